"""K-BERT's knowledge helps to tag a domain that has few labels, and knowledge that is wrong does not.

The graph is `Medical.spo` of K-BERT's release, close to a list of the entities' types, alone or with CMeKG (`--graph`,
see weights.py), which knows twice as many diseases and drugs, and their symptoms and parts in place of types. Test
sentences that are in the training file, and sentences that occur several times, are left out.
"""

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

from experiment import Lab, main

ABOUT = {
    "id": "K1",
    "title": "K-BERT with few labels",
    "paper": "Liu et al., 2020, arXiv:1909.07606",
    "systems": ["K-BERT"],
    "metric": "f1",
    "columns": "medical NER (zh), rows",
    "models": ("model", "graph"),
    "set_up": "Entity F1 on the test sentences that are not in the training file; each arm at the better of two "
    "learning rates by the validation data, 40 epochs up to 200 rows, 10 above.",
}
ROWS = (50, 100, 200, 500, None)
EVERY = 4274  # rows, of None
ABLATIONS = {
    "Medical.spo, all tokens see all": "use_visible_matrix",
    "Medical.spo, positions in sequence": "use_soft_positions",
}
LARGER = "Medical.spo + CMeKG"


def sentences(file: Path) -> list[tuple[list[str], list[str]]]:
    """Characters and tags of a file of K-BERT's release."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        next(lines)
        cells = [line.rstrip("\n").split("\t") for line in lines]
    return [(one[0].split(" "), one[1].split(" ")) for one in cells if len(one) == 2]


def unique(folder: Path, source: Path) -> None:
    """The three splits without repeated sentences, and none of a later one that an earlier one has."""
    seen: set[str] = set()
    for split in ("train", "dev", "test"):
        kept = []
        for words, tags in sentences(source / f"{split}.tsv.gz"):
            text = "".join(words)
            if text not in seen and len(words) == len(tags):
                seen.add(text)
                kept.append({"text_a": words, "label": tags})
        rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept)
        (folder / f"{split}.jsonl").write_text(rows, encoding="utf-8")


def shuffled(folder: Path, graph: Path) -> None:
    """The graph with its objects given to others at random."""
    with gzip.open(graph, "rt", encoding="utf-8") as lines:
        triples = [line.rstrip("\n").split("\t") for line in lines if line.count("\t") == 2]
    objects = [one[2] for one in triples]
    random.Random(0).shuffle(objects)
    rows = "".join("\t".join((*one[:2], other)) + "\n" for one, other in zip(triples, objects, strict=True))
    (folder / "shuffled.spo").write_text(rows, encoding="utf-8")


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    graph = lab.data / "kbert/Medical.spo.gz"
    rows, wrong = lab.make("rows", unique, lab.data / "kbert/medical_ner"), lab.make("shuffled", shuffled, graph)
    for size in ROWS:
        common: dict[str, Any] = {
            "model_name_or_path": lab.model,
            "train_file": lab.file(rows, "train.jsonl"),
            "validation_file": lab.file(rows, "dev.jsonl"),
            "test_file": lab.file(rows, "test.jsonl"),
            "train_sample": size,
            "grid": ["learning_rate=5e-5,1e-4"],
            "num_train_epochs": 40 if size and size <= 200 else 10,
            "bf16": True,
            "language": "zh",
        }
        column = size or "all"
        right = lab.job(f"graph-{column}", "finetune kbert_ner.yaml", kg=graph, linear_baseline=True, **common)
        other = lab.job(
            f"shuffled-{column}",
            "finetune kbert_ner.yaml",
            kg=lab.file(wrong, "shuffled.spo"),
            baseline=False,
            **common,
        )
        lab.arm(column, "characters, linear", right, "words, linear")
        lab.arm(column, "without a graph", right, "kg=None")
        lab.arm(column, "Medical.spo", right)
        lab.arm(column, "Medical.spo, objects shuffled", other)
        if lab.options.graph:
            graphs = {"kg": [graph, lab.options.graph], "baseline": False}
            lab.arm(column, LARGER, lab.job(f"larger-{column}", "finetune kbert_ner.yaml", **common, **graphs))
        for name, field in ABLATIONS.items() if size in (100, 500) else ():
            fewer = {"config_overrides": f"{field}=false", "kg": graph, "baseline": False}
            lab.arm(column, name, lab.job(f"{field}-{column}", "finetune kbert_ner.yaml", **common, **fewer))
    lab.compare("Medical.spo", "without a graph", "Medical.spo, objects shuffled")
    if lab.options.graph:
        lab.compare(LARGER, "Medical.spo", "without a graph")
    else:
        print(f"Without --graph (see weights.py) there is no arm {LARGER!r}.", file=sys.stderr)
    lab.figure("rows to train on", all=EVERY)


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
