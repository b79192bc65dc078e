"""A small task gains by being learnt together with related ones, the more the fewer rows it has.

Three groups, in each of which the first task has 1, 10 or 100 % of its rows and the others 4,000 of theirs at most:
sentiment (SST-2, with MR and SUBJ, of which sentences that SST-2 evaluates are left out), entities (WikiGold, with
the Broad Twitter Corpus and WNUT 2017) and inference (RTE, with questions that a sentence of XQuAD answers or not).
The task alone has its own learning rate and passes enough; after the joint training it is trained alone again on the
same rows. MR asks the same as SST-2 of sentences of the same source, some of them its training sentences.
"""

import random
from pathlib import Path
from typing import Any

from experiment import Lab, main, rows_of, unseen, write_rows

ABOUT = {
    "id": "MT1",
    "order": 15,
    "title": "Related tasks together",
    "paper": "Liu et al., 2019, arXiv:1901.11504",
    "systems": ["MT-DNN"],
    "metric": "accuracy",
    "columns": "score",
    "set_up": "Accuracy on SST-2 (1,821 test sentences) and RTE (2,000; 400 others choose), entity F1 on WikiGold "
    "(340); rows drawn by the seed; each arm at the better of two learning rates by the validation data. "
    "Linear: n-grams, of entities words.",
}
MOST = 4000
# Group -> the task, its score, its rows; the others and their passes together.
GROUPS = {
    "SST-2": ("classification", "accuracy", 6920, ("mr", "subj"), 3),
    "WikiGold": ("tagging", "f1", 1186, ("btc", "wnut"), 5),
    "RTE": ("classification", "accuracy", 1767, ("questions",), 5),
}
PASSES = {1: 40, 10: 20, 100: 8}  # alone, by the share of rows
RECIPES = {"SST-2": "bert_classification.yaml", "WikiGold": "tagging.yaml", "RTE": "pair_classification.yaml"}
PAIRS = {"text_column": "premise", "pair_column": "hypothesis"}
PLACES = {"SST-2": "cls_en_sst2", "WikiGold": "ner_en_wikigold", "RTE": "nli_en_rte"}
OTHERS = {"mr": "cls_en_mr", "subj": "cls_en_subj", "btc": "ner_en_btc", "wnut": "ner_en_wnut17"}


def questions(source: Path) -> list[dict[str, Any]]:
    """Each question with the sentence that answers it, and with another one of the passage."""
    found = []
    for row in rows_of(source):
        start = row["answers"]["answer_start"][0]
        sentences, place = row["context"].split(". "), 0
        ends = [place := place + len(sentence) + 2 for sentence in sentences]
        right = next(number for number, end in enumerate(ends) if start < end)
        wrong = [sentence for number, sentence in enumerate(sentences) if number != right]
        told = [(sentences[right], "entailment"), *((one, "not_entailment") for one in wrong[:1])]
        found += [{"premise": text, "hypothesis": row["question"], "label": label} for text, label in told]
    return found


def rows(folder: Path, data: Path) -> None:
    """The files of all tasks."""
    shuffle = random.Random(0)
    for name, place in PLACES.items():
        train, test = (rows_of(data / place / f"{split}.jsonl.gz") for split in ("train", "test"))
        valid = data / place / "valid.jsonl.gz"
        if not valid.is_file():
            shuffle.shuffle(test)
        chosen = rows_of(valid) if valid.is_file() else test[:400]
        for split, kept in (("train", train), ("valid", chosen), ("test", test if valid.is_file() else test[400:])):
            write_rows(folder / f"{name}-{split}.jsonl", kept)
    evaluated = rows_of(
        *(folder / f"{name}-{split}.jsonl" for name in ("SST-2", "WikiGold") for split in ("valid", "test"))
    )
    asked = questions(data / "qa_xquad/en.jsonl.gz")
    shuffle.shuffle(asked)
    write_rows(folder / "questions-train.jsonl", asked[300:])
    write_rows(folder / "questions-valid.jsonl", asked[:300])
    for name, place in OTHERS.items():
        train, valid = (rows_of(data / place / f"{split}.jsonl.gz") for split in ("train", "valid"))
        shuffle.shuffle(train)
        write_rows(folder / f"{name}-train.jsonl", unseen(train, evaluated, valid)[:MOST])
        write_rows(folder / f"{name}-valid.jsonl", unseen(valid, evaluated))


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    data = lab.make("rows", rows, lab.data)
    common: dict[str, Any] = {"bf16": True, "language": "en", "grid": ["learning_rate=5e-5,1e-4"]}
    for name, (kind, metric, size, others, passes) in GROUPS.items():
        task = lab.splits(data, f"{name}-{{}}.jsonl")
        for share, alone in PASSES.items():
            column, few = f"{name}, {share} %", {"train_sample": round(size * share / 100) if share < 100 else None}
            own = {**common, **task, **few, "num_train_epochs": alone}
            told = {"model_name_or_path": lab.model, "linear_baseline": True}
            single = lab.job(f"alone-{name}-{share}", f"finetune {RECIPES[name]}", **own, **told)
            joint, after = [], []
            given: dict[str, Any] = {f"tasks.target.{option}": value for option, value in {**task, **few}.items()}
            for each in others:
                files = lab.splits(data, f"{each}-{{}}.jsonl")
                given |= {f"tasks.{each}.{option}": files[option] for option in ("train_file", "validation_file")}
            for each in ("target", *others):
                given[f"tasks.{each}.task"] = kind
                given |= {f"tasks.{each}.{option}": value for option, value in PAIRS.items()} if name == "RTE" else {}
            given |= {"num_train_epochs": passes, "per_device_train_batch_size": 64, "baseline": False}
            for seed in lab.seeds:
                told = {**common, **given, "model_name_or_path": lab.model, "seeds": [seed]}
                together = lab.job(f"together-{name}-{share}-{seed}", "multitask", **told)
                begun = {**own, "model_name_or_path": lab.file(together, "target"), "seeds": [seed]}
                joint.append(together)
                after.append(lab.job(f"after-{name}-{share}-{seed}", f"finetune {RECIPES[name]}", **begun))
            lab.arm(column, "most frequent", single, "majority", metric=metric)
            lab.arm(column, "linear", single, "linear", metric=metric)
            lab.arm(column, "alone", single, metric=metric)
            lab.arm(column, "together", joint, metric=metric, task="target")
            lab.arm(column, "together, then alone", after, metric=metric)
    lab.compare("together, then alone", "alone", "together")
    lab.compare("together", "alone")
    lab.figure("share of the rows, %")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
