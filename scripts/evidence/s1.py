"""Hidden spans teach more than hidden words and tokens, and predicting them from their boundaries more still.

Every objective continues from the same encoder, with the same text, batches and updates. A score is the mean over the
fine-tuning seeds of one seed of pre-training, so intervals are those of three seeds of pre-training.
"""

import json
import random
from pathlib import Path
from typing import Any

from experiment import Job, Lab, main, rows_of, write_rows

ABOUT = {
    "id": "S1",
    "order": 11,
    "title": "What is hidden: tokens, whole words, n-grams, spans",
    "paper": "Joshi et al., 2020, arXiv:1907.10529; Cui et al., 2019, arXiv:1906.08101",
    "systems": ["SpanBERT", "BERT masked language model", "BERT-WWM", "Chinese-BERT-wwm", "ALBERT n-grams"],
    "metric": "f1",
    "columns": "data, score",
    "models": ("model", "model_zh"),
    "set_up": "4,000 updates of 128 x 128 on English text of six sources, 1,500 on Chinese text of three (CMRC's "
    "passages among it). XQuAD: 1,190 questions, five folds by article. SemEval: 1,000 rows drawn by the "
    "seed. Spans: 2 to 5 tokens of whole words in 2,000 held-out rows, restored by the head for tokens. "
    "Each arm at the better of two rates by the validation data.",
}
PRETRAINED = (0, 1, 2)
ENGLISH: dict[str, dict[str, Any]] = {
    "spans and boundaries (SpanBERT)": {"objective": "span"},
    "spans alone": {"objective": "span", "sbo_loss_weight": 0},
    "n-grams": {"objective": "ngram"},
    "whole words": {"objective": "wwm"},
    "tokens": {"objective": "mlm"},
    "tokens of two segments, next sentences (BERT)": {"objective": "mlm", "sentence_pairs": "next"},
}
CHINESE = ("spans and boundaries (SpanBERT)", "whole words", "tokens")  # words of jieba


def held_out(folder: Path, data: Path) -> None:
    """The text in two parts: the last twentieth of each file is held out."""
    import gzip

    parts: dict[str, list[str]] = {"train": [], "valid": []}
    for file in sorted(data.glob("*.txt.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as found:
            lines = found.read().splitlines()
        cut = len(lines) * 19 // 20
        parts["train"] += [*lines[:cut], ""]
        parts["valid"] += [*lines[cut:], ""]
    for name, lines in parts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def folds(folder: Path, file: Path) -> None:
    """Five folds by article: one is tested on, the next one chooses, three are trained on."""
    rows = rows_of(file)
    titles = sorted({row["title"] for row in rows})
    random.Random(0).shuffle(titles)
    for fold in range(5):
        place = {title: (number - fold) % 5 for number, title in enumerate(titles)}
        for name, wanted in (("test", (0,)), ("valid", (1,)), ("train", (2, 3, 4))):
            write_rows(folder / f"{name}-{fold}.jsonl", (row for row in rows if place[row["title"]] in wanted))


def answers(lab: Lab, name: str, model: Any, made: Job) -> list[Job]:
    """Fine-tuning on the questions of each fold, by the fold's own seed."""
    given: dict[str, Any] = {"num_train_epochs": 5, "bf16": True, "grid": ["learning_rate=1e-4,3e-4"]}
    found = []
    for fold in range(5):
        data = lab.splits(made, f"{{}}-{fold}.jsonl")
        job = f"{name}-xquad-{fold}"
        command = "finetune question_answering.yaml"
        found.append(lab.job(job, command, model_name_or_path=model, seeds=[fold], **data, **given))
    return found


def filled(folder: Path, model: Path, text: Path, most: int) -> None:
    """How many hidden spans, and tokens of them, the head for tokens restores."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    import hf_ptm_ext  # noqa: F401  (registers SpanBERT)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(model)
    net = AutoModelForMaskedLM.from_pretrained(model).to(device).eval()
    draw, exact, right, tokens, rows = random.Random(0), 0, 0, 0, 0
    for line in text.read_text(encoding="utf-8").splitlines():
        row = tokenizer(line, truncation=True, max_length=128)
        ids, words = row["input_ids"], row.word_ids()
        size = draw.randint(2, 5)
        begins = [at for at in range(1, len(ids) - size - 1) if words[at] != words[at - 1]]
        places = [at for at in begins if words[at + size - 1] != words[at + size]]
        if len(ids) < 32 or not places or rows == most:
            continue
        place = draw.choice(places)
        span = slice(place, place + size)
        given = torch.tensor([ids], device=device)
        given[0, span] = tokenizer.mask_token_id
        with torch.no_grad():
            guess = net(given).logits[0, span].argmax(-1).tolist()
        same = [one == other for one, other in zip(guess, ids[span], strict=True)]
        rows, exact, right, tokens = rows + 1, exact + all(same), right + sum(same), tokens + size
    scores = {"spans": exact / rows, "tokens": right / tokens}
    runs = [{"seed": 0, "variant": "filled", "scores": scores}]
    (folder / "results.json").write_text(json.dumps({"runs": runs, "summary": {}, "rows": rows}), encoding="utf-8")


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    text, made = (
        lab.make("text", held_out, lab.data / "pretrain_en"),
        lab.make("folds", folds, lab.data / "qa_xquad/en.jsonl.gz"),
    )
    chinese = lab.make("text-zh", held_out, lab.data / "pretrain_zh")
    common: dict[str, Any] = {"max_seq_length": 128, "per_device_train_batch_size": 128, "learning_rate": 2e-4}
    common |= {"seeds": None, "bf16": True, "torch_compile": True}
    tuning: dict[str, Any] = {"bf16": True, "grid": ["learning_rate=1e-4,3e-4"]}
    tasks: dict[str, tuple[str, str, dict[str, Any]]] = {
        "WikiGold, F1": ("finetune tagging.yaml", "ner_en_wikigold", {"num_train_epochs": 10}),
        "SemEval-2010, F1": (
            "finetune-relations relations.yaml",
            "re_en_semeval2010",
            {"train_sample": 1000, "max_seq_length": 128},
        ),
        "CMRC (zh), F1": ("finetune question_answering_zh.yaml", "qa_zh_cmrc2018", {}),
    }
    for number, (arm, options) in enumerate(ENGLISH.items()):
        cells: dict[str, dict[int, list[Job]]] = {}
        for seed in PRETRAINED:
            name, zh = f"{number}-{seed}", arm in CHINESE
            files = {"train_file": lab.file(text, "train.txt"), "validation_file": lab.file(text, "valid.txt")}
            steps = round(4000 * lab.options.scale)
            job = lab.job(
                f"{name}-en",
                "pretrain",
                model_name_or_path=lab.model,
                seed=seed,
                max_steps=steps,
                **files,
                **common,
                **options,
            )
            encoders = {"en": job}
            if zh:
                files = {
                    "train_file": lab.file(chinese, "train.txt"),
                    "validation_file": lab.file(chinese, "valid.txt"),
                }
                words = {} if options["objective"] == "mlm" else {"segmenter": "jieba"}
                steps = round(1500 * lab.options.scale)
                encoders["zh"] = lab.job(
                    f"{name}-zh",
                    "pretrain",
                    model_name_or_path=lab.options.model_zh,
                    seed=seed,
                    max_steps=steps,
                    language="zh",
                    **files,
                    **common,
                    **options,
                    **words,
                )
            cells.setdefault("XQuAD, F1", {})[seed] = answers(lab, name, job, made)
            for column, (command, folder, more) in tasks.items():
                language = "zh" if folder.startswith("qa_zh") else "en"
                if language in encoders:
                    data = lab.splits(folder)
                    given = {"model_name_or_path": encoders[language], "language": language, **tuning, **data, **more}
                    cells.setdefault(column, {})[seed] = [lab.job(f"{name}-{folder}", command, **given)]
            most = 20 if lab.options.smoke else 2000
            spans = [lab.make(f"{name}-filled", filled, job, lab.file(text, "valid.txt"), most)]
            cells.setdefault("spans filled", {})[seed] = cells.setdefault("their tokens", {})[seed] = spans
        for column, jobs in cells.items():
            lab.arm(column, arm, jobs, metric=METRICS.get(column, "f1"))
    lab.compare(*ENGLISH)


METRICS = {"SemEval-2010, F1": "semeval_f1", "spans filled": "spans", "their tokens": "tokens"}


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
