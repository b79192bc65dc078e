"""Vectors of a knowledge graph, fused into the encoder and denoised, help with few labels; vectors of others do not.

Types and relations of marked mentions, which are linked to Wikidata by the data (the graph is CoDEx, without any pair
that FewRel asks for) or, in SemEval, to the first noun sense of WordNet. No arm sees another text than the others.
"""

import random
from itertools import chain
from pathlib import Path
from typing import Any

from experiment import Lab, has_gpu, main, rows_of, write_rows

ABOUT = {
    "id": "E1",
    "order": 2,
    "title": "ERNIE-THU with few labels",
    "paper": "Zhang et al., 2019, arXiv:1905.07129",
    "systems": ["ERNIE-THU"],
    "metric": "micro_f1",
    "columns": "set, rows to train on",
    "set_up": "Typing: the 25 most frequent fine types, entities of the splits disjoint. SemEval-2010 task 8: 5, "
    "10, 20 rows a class on average. FewRel: rows with a linked mention. Micro F1 (of FewRel "
    "accuracy, of SemEval without Other). Pre-training: 2,500 updates of 128 x 128 on English text of "
    "six sources. 300 updates of 16 rows, each arm at the better of two rates by the validation data.",
}
SPLITS = ("train", "valid", "test")
COLUMNS = {"typing": (50, 100, 200, 500), "semeval": (85, 170, 340), "fewrel": (80, 320)}
SOURCES = {"typing": "typing_en_wikidata", "semeval": "re_en_semeval2010", "fewrel": "re_en_fewrel_wiki"}
KINDS = {"ernie": "ERNIE", "permuted": "ERNIE, vectors permuted", "undenoised": "ERNIE, entities not denoised"}
GRAPHS = {"typing": "wikidata", "semeval": "wordnet", "fewrel": "wikidata"}


def lines_of(file: Path) -> list[list[str]]:
    """The fields of a file of tabs."""
    import gzip

    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t") for line in lines]


def wikidata(folder: Path, data: Path) -> None:
    """Triples of CoDEx without the pairs of FewRel, and names of its entities."""
    rows = rows_of(*(data / f"re_en_fewrel_wiki/{split}.jsonl.gz" for split in SPLITS))
    asked = {frozenset((row["head"]["id"], row["tail"]["id"])) for row in rows}
    files = [data / f"kg_codex/codex-{size}-{split}.tsv.gz" for size in "sm" for split in SPLITS]
    triples = {tuple(one) for one in chain(*map(lines_of, files)) if frozenset((one[0], one[2])) not in asked}
    names = {one["name"]: one["id"] for row in rows for one in (row["head"], row["tail"])}
    names |= {row["name"]: row["id"] for row in rows_of(data / "kg_codex/entity_types.jsonl.gz") if row.get("name")}
    write(folder, sorted(triples), names)


def wordnet(folder: Path, data: Path) -> None:
    """Triples of WordNet, and nouns with the first sense of each."""
    senses = [one for one in lines_of(data / "kg_wn18rr/lemma2synsets.tsv.gz") if one[1] == "n" and one[2]]
    triples = chain(*(lines_of(data / f"kg_wn18rr/{split}.tsv.gz") for split in SPLITS))
    write(folder, [tuple(one) for one in triples], {one[0].replace("_", " "): one[2].split()[0] for one in senses})


def write(folder: Path, triples: list[tuple[str, ...]], names: dict[str, str]) -> None:
    """A graph and the titles of its entities."""
    text = "".join("\t".join(one) + "\n" for one in triples)
    (folder / "triples.tsv").write_text(text, encoding="utf-8")
    titles = "".join(f"{name}\t{entity}\n" for name, entity in sorted(names.items()) if len(name) > 2)
    (folder / "titles.tsv").write_text(titles, encoding="utf-8")


def permuted(folder: Path, table: Path) -> None:
    """The table with its vectors given to other entities at random."""
    import numpy as np

    from hf_ptm_ext import EntityTable

    found = EntityTable.from_file(table / "entity_table.safetensors")
    vectors = np.array(found.weight())
    vectors[1:] = np.random.default_rng(0).permutation(vectors[1:])
    EntityTable(vectors, found.vocabulary).save(folder / "entity_table.safetensors")


def sets(folder: Path, data: Path, graph: Path) -> None:
    """Typing with the most frequent types alone, FewRel's rows with a link, SemEval as it is."""
    triples = [line.split("\t") for line in (graph / "triples.tsv").read_text(encoding="utf-8").splitlines()]
    known = {entity for one in triples for entity in (one[0], one[2])}
    found = {name: {one: rows_of(data / f"{of}/{one}.jsonl.gz") for one in SPLITS} for name, of in SOURCES.items()}
    types = [name for row in found["typing"]["train"] for name in row["types"]]
    frequent = set(sorted(set(types), key=lambda name: (-types.count(name), name))[:25])
    for split in SPLITS:
        typed = [{**row, "labels": sorted(frequent & set(row["types"]))} for row in found["typing"][split]]
        found["typing"][split] = [row for row in typed if row["labels"]]
        linked = [row for row in found["fewrel"][split] if known & {row["head"]["id"], row["tail"]["id"]}]
        found["fewrel"][split] = linked
        for name in SOURCES:
            write_rows(folder / f"{name}-{split}.jsonl", found[name][split])


def linear(folder: Path, rows: Path, name: str, size: int, seeds: list[int]) -> None:
    """N-grams of the sentence and of the mentions under a logistic regression, of several types one each."""
    import json

    from hf_ptm_ext.metrics.ngram_classifier import ngram_classifier

    def texts(split: str) -> list[str]:
        ends = [[row] if "name" in row else [row["head"], row["tail"]] for row in given[split]]
        named = zip(given[split], ends, strict=True)
        return [" ".join((*row["tokens"], "#", *(one["name"] for one in marked))) for row, marked in named]

    given = {split: rows_of(rows / f"{name}-{split}.jsonl") for split in ("train", "test")}
    wanted = {split: [set(row.get("labels") or [row["relation"]]) for row in given[split]] for split in given}
    train, test, runs = texts("train"), texts("test"), []
    for seed in seeds:
        drawn = random.Random(seed).sample(range(len(train)), size)
        truth, told = [wanted["train"][place] for place in drawn], [set() for _ in test]
        for label in sorted(set.union(*truth)) if name == "typing" else [None]:
            classes = ["".join(one) if label is None else str(label in one) for one in truth]
            if len(set(classes)) > 1:
                decided = ngram_classifier([train[place] for place in drawn], classes).predict(test)
                for one, guess in zip(told, decided, strict=True):
                    one |= {guess} if label is None else {label} if guess == "True" else set()
        # SemEval's Other is no relation, as in the score of the jobs.
        told, true = ([one - {"Other"} for one in each] for each in (told, wanted["test"]))
        right = sum(len(one & other) for one, other in zip(told, true, strict=True))
        score = 2 * right / (sum(map(len, told)) + sum(map(len, true)))
        runs.append({"seed": seed, "variant": "n-grams, linear", "test": {"micro_f1": score}})
    (folder / "results.json").write_text(json.dumps({"runs": runs, "split": "test", "summary": {}}), encoding="utf-8")


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    training: dict[str, Any] = {"model_name_or_path": lab.model, "train_file": [lab.data / "pretrain_en/*.txt.gz"]}
    training |= {"seeds": None, "seed": 0, "max_seq_length": 128, "max_steps": round(2500 * lab.options.scale)}
    training |= {"per_device_train_batch_size": 128, "learning_rate": 1e-4, "bf16": True, "torch_compile": True}
    text = lab.job("text", "pretrain", objective="mlm", sentence_pairs="next", **training)
    tables, encoders = {}, {}
    on = ["--device", "cuda"] if not lab.options.smoke and has_gpu() else []
    for graph, function in (("wikidata", wikidata), ("wordnet", wordnet)):
        made = lab.make(graph, function, lab.data)
        longer = ["--epochs", 1 if lab.options.smoke else 200, *on, "--output_dir"]
        table = lab.tool(f"{graph}-vectors", "train-entity-vectors", lab.file(made, "triples.tsv"), *longer)
        other = lab.make(f"{graph}-vectors-permuted", permuted, table)
        off = {"entity_replace_prob": 0, "entity_mask_prob": 0, "config_overrides": "entity_loss_weight=0"}
        for name, vectors, more in (("ernie", table, {}), ("permuted", other, {}), ("undenoised", table, off)):
            tables[name, graph] = lab.file(vectors, "entity_table.safetensors")
            named = {"entity_table": tables[name, graph], "entity_titles": lab.file(made, "titles.tsv"), **training}
            job = lab.job(f"{graph}-{name}", "pretrain ernie_thu.yaml", min_entities=2, **named, **more)
            encoders[name, graph] = job
        if graph == "wikidata":
            rows = lab.make("rows", sets, lab.data, made)
    for name, sizes in COLUMNS.items():
        graph = GRAPHS[name]
        task = "finetune-typing typing.yaml" if name == "typing" else "finetune-relations relations.yaml"
        for size in sizes:
            common: dict[str, Any] = {"train_sample": size, "max_steps": 300, "grid": ["learning_rate=5e-5,2e-4"]}
            common |= lab.splits(rows, f"{name}-{{}}.jsonl")
            common |= {"per_device_train_batch_size": 16, "bf16": True, "max_seq_length": 128, "language": "en"}
            if name == "semeval":
                common["wordnet_senses"] = lab.data / "kg_wn18rr/lemma2synsets.tsv.gz"
            column = f"{name}, {size}"
            plain = {"base": ("the base alone", lab.model), "text": ("same updates of words and sentences", text)}
            for kind, (arm, encoder) in plain.items():
                lab.arm(column, arm, lab.job(f"{name}-{size}-{kind}", task, model_name_or_path=encoder, **common))
            for kind, arm in KINDS.items():
                named = {"model_name_or_path": encoders[kind, graph], "entity_table": tables[kind, graph]}
                job = lab.job(f"{name}-{size}-{kind}", task, baseline=kind == "ernie", **named, **common)
                lab.arm(column, arm, job)
                if kind == "ernie":
                    lab.arm(column, "ERNIE, entities=None", job, "entities=None")
            fitted = lab.make(f"{name}-{size}-linear", linear, rows, name, size, lab.seeds)
            lab.arm(column, "n-grams, linear", fitted)
    others = ("ERNIE, entities=None", "ERNIE, vectors permuted", "ERNIE, entities not denoised")
    lab.compare("ERNIE", "same updates of words and sentences", *others, "the base alone", "n-grams, linear")
    lab.figure("rows to train on")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
