"""KnowBERT's knowledge layer helps to type and to tag entities when labels are few.

The layer links mentions to Wikidata by a dictionary of names; it is trained on FewRel's sentences (masked tokens and
links) before. Beside it: the same encoder with as many updates of masked tokens on the same sentences, and the layer
with each name given the entity of another one.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from experiment import Lab, main

ABOUT = {
    "id": "N1",
    "order": 33,
    "title": "KnowBERT with few labels",
    "paper": "Peters et al., 2019, arXiv:1909.04164",
    "systems": ["KnowBERT"],
    "metric": "micro_f1",
    "columns": "rows",
    "set_up": "Micro F1 of the 25 most frequent types of Wikidata's entities (no test entity is trained on), and F1 "
    "of WikiGold's entities; vectors by TransE, names of the entities of all splits; each arm at the "
    "better of two rates by the validation data.",
}
ARMS = {"no entities": "plain", "KnowBERT": "knowbert", "KnowBERT, entities exchanged": "exchanged"}
TYPES, MENTIONS = "typing_en_wikidata", "re_en_fewrel_wiki"


def read(file: Path) -> list[dict[str, Any]]:
    """Rows of packed JSON lines."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def prepare(folder: Path, data: Path) -> None:
    """Sentences, the dictionary of names, and typing rows with the most frequent types alone."""
    parts = {part: read(data / TYPES / f"{part}.jsonl.gz") for part in ("train", "valid", "test")}
    usual = [name for name, _ in Counter(one for row in parts["train"] for one in row["types"]).most_common(25)]
    for part, rows in parts.items():
        kept = [{**row, "types": [one for one in row["types"] if one in usual]} for row in rows]
        text = "".join(json.dumps(row) + "\n" for row in kept if row["types"])
        (folder / f"{part}.jsonl").write_text(text, encoding="utf-8")
    related = [row for part in parts for row in read(data / MENTIONS / f"{part}.jsonl.gz")]
    names: dict[str, Counter[str]] = {}
    for one in [
        *(row[end] for row in related for end in ("head", "tail")),
        *(row for rows in parts.values() for row in rows),
    ]:
        names.setdefault(one["name"], Counter())[one["id"]] += 1
    (folder / "names.json").write_text(json.dumps(names), encoding="utf-8")
    texts = dict.fromkeys(" ".join(row["tokens"]) for row in related)
    (folder / "sentences.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def knowbert(folder: Path, prepared: Path, data: Path, model: Path, updates: int, exchanged: bool) -> None:
    """A BERT with the layer, trained on the sentences, with its processor."""
    import numpy as np
    import torch
    from safetensors.numpy import load_file
    from transformers import AutoTokenizer, Trainer, TrainingArguments

    from hf_ptm_ext import EntityCandidateGenerator, KnowBertForPreTraining, KnowBertProcessor
    from hf_ptm_ext.collators import DataCollatorForEntityCandidates, DataCollatorForMaskedLanguageModeling

    with gzip.open(data / "kg_codex/transe_ids.json.gz", "rt", encoding="utf-8") as file:
        places = {name: place for place, name in enumerate(json.load(file)["entities"])}
    tensors = load_file(data / "kg_codex/transe.safetensors")
    vectors = next(value for value in tensors.values() if len(value) == len(places)).astype(np.float32)
    known = {
        name: {one: count for one, count in found.items() if one in places}
        for name, found in json.loads((prepared / "names.json").read_text(encoding="utf-8")).items()
    }
    find = EntityCandidateGenerator({name: found for name, found in known.items() if found})
    table = np.zeros((find.entity_vocab_size, vectors.shape[1]), np.float32)
    for name in find.entities:
        table[find.row_of(name)] = vectors[places[name]]
    base = {"entity_vocab_size": len(table), "insert_after_layer": 3, "entity_size": table.shape[1]}
    base |= {"intermediate_size": 4 * table.shape[1]}
    torch.manual_seed(0)
    trained = KnowBertForPreTraining.from_pretrained(model, knowledge_bases={"wiki": base})
    trained.set_entity_table("wiki", torch.from_numpy(table))
    tokenizer = AutoTokenizer.from_pretrained(model)
    processor = KnowBertProcessor(tokenizer, {"wiki": find.permuted(0) if exchanged else find})
    texts = (prepared / "sentences.txt").read_text(encoding="utf-8").split("\n\n")
    rows = [processor(text.strip(), truncation=True, max_length=64) for text in texts if text.strip()]
    for row in rows:  # the likeliest candidate of a name
        row["gold_entities"] = [[found[0] if found else 0 for found in spans] for spans in row["candidate_entities"]]
    collator = DataCollatorForEntityCandidates(DataCollatorForMaskedLanguageModeling(tokenizer))
    args = TrainingArguments(
        str(folder),
        max_steps=updates,
        per_device_train_batch_size=64,
        learning_rate=1e-4,
        warmup_steps=0.1,
        remove_unused_columns=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    Trainer(trained, args, train_dataset=[dict(row) for row in rows], data_collator=collator).train()
    trained.save_pretrained(folder)
    processor.save_pretrained(folder)


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    updates = 3 if lab.options.smoke else int(2000 * lab.options.scale)
    prepared = lab.make("prepared", prepare, lab.data)
    models = {
        "plain": lab.job(
            "plain",
            "pretrain --objective mlm",
            model_name_or_path=lab.model,
            train_file=lab.file(prepared, "sentences.txt"),
            max_seq_length=64,
            max_steps=updates,
            per_device_train_batch_size=64,
            learning_rate=1e-4,
            seeds=None,
            seed=0,
        ),
        "knowbert": lab.make("knowbert", knowbert, prepared, lab.data, lab.model, updates, False),
        "exchanged": lab.make("exchanged", knowbert, prepared, lab.data, lab.model, updates, True),
    }
    for arm, name in ARMS.items():
        common: dict[str, Any] = {
            "model_name_or_path": models[name],
            "grid": ["learning_rate=5e-5,2e-4"],
            "bf16": True,
        }
        typing, gold = lab.splits(prepared, "{}.jsonl"), lab.splits("ner_en_wikigold")
        for rows in (50, 100, 200, 500):
            few = {"train_sample": rows, "num_train_epochs": 40 if rows <= 200 else 20, **common}
            job = lab.job(f"typing-{name}-{rows}", "finetune-typing", labels_field="types", **typing, **few)
            lab.arm(f"typing, {rows}", arm, job)
            if rows >= 200:
                tagged = lab.job(f"gold-{name}-{rows}", "finetune", task="tagging", tag_scheme="iob1", **gold, **few)
                lab.arm(f"WikiGold, {rows}", arm, tagged, metric="f1")
    lab.compare("KnowBERT", "no entities", "KnowBERT, entities exchanged")
    lab.figure("rows to train on")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
