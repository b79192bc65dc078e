"""Word vectors as the start of a small encoder's embeddings, against a random start, on few labelled rows.

    python scripts/compare_vectors.py --sets sst2=FOLDER trec=FOLDER --text corpus.txt.gz --output vectors.json

A set is a folder with `train.jsonl.gz`, `valid.jsonl.gz` and `test.jsonl.gz` of `text` and `label`. Vectors are
trained on `--text` (`train_word_vectors`; gensim's algorithms need it) or read (`--vectors`). Both starts have the
same words, rows, updates and seeds, and each its own learning rate by the validation rows. Two encoders: a BERT-like
one (2 layers, a mean over the text) and the distilled BiLSTM's. On a GPU if there is one.
"""

import argparse
import gzip
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

from hf_ptm_ext import (
    DistilledBiLstmConfig,
    DistilledBiLstmForSequenceClassification,
    WeightedLayersForSequenceClassification,
    WordVectors,
    init_input_embeddings,
    train_word_vectors,
)
from hf_ptm_ext.data import word_tokenizer

RATES = {"bert": (1e-4, 5e-4), "bilstm": (1e-3, 4e-3)}
LONGEST = 64


def rows_of(folder: Path, part: str, labels: dict[str, int]) -> list[tuple[str, int]]:
    """Texts and the numbers of their classes."""
    with gzip.open(folder / f"{part}.jsonl.gz", "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return [(row["text"], labels.setdefault(str(row["label"]), len(labels))) for row in found]


def lines_of(files: list[Path]) -> list[list[str]]:
    """The words of a text's lines."""
    split = word_tokenizer(["a"], lower_case=True).backend_tokenizer
    texts = []
    for path in files:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for line in file:
                words = split.pre_tokenizer.pre_tokenize_str(split.normalizer.normalize_str(line))
                texts.append([word for word, _ in words])
    return texts


def made(kind: str, tokenizer: Any, vectors: WordVectors | None, width: int, classes: int, seed: int) -> Any:
    """A new model, its embeddings from vectors if there are any."""
    torch.manual_seed(seed)
    if kind == "bert":
        sizes = {"hidden_size": width, "num_attention_heads": 2, "intermediate_size": 4 * width}
        config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=2, **sizes)
        model = WeightedLayersForSequenceClassification.from_encoder(
            BertModel(config), num_labels=classes, mixed_layers=[2], freeze_encoder=False, pooling="mean"
        )
        if vectors is not None:
            init_input_embeddings(model, tokenizer, vectors)
        return model
    bilstm = DistilledBiLstmConfig(
        vocab_size=len(tokenizer), embedding_size=width, multichannel=False, num_labels=classes, classifier_dropout=0.1
    )
    student = DistilledBiLstmForSequenceClassification(bilstm)
    if vectors is not None:
        init_input_embeddings(student, tokenizer, vectors)
    return student


def encoded(rows: list[tuple[str, int]], tokenizer: Any, device: str) -> dict[str, torch.Tensor]:
    """All rows as one batch."""
    texts, labels = zip(*rows, strict=True)
    batch = tokenizer(list(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
    return {name: value.to(device) for name, value in {**batch, "labels": torch.tensor(labels)}.items()}


@torch.no_grad()
def accuracy(model: Any, rows: dict[str, torch.Tensor]) -> float:
    """Share of rows whose class is found."""
    model.eval()
    right = 0
    for start in range(0, len(rows["labels"]), 256):
        batch = {name: value[start : start + 256] for name, value in rows.items()}
        right += int((model(**batch).logits.argmax(-1) == batch["labels"]).sum())
    return right / len(rows["labels"])


def trained(model: Any, rows: dict[str, torch.Tensor], rate: float, epochs: int, seed: int) -> Any:
    """The model after its updates."""
    generator = torch.Generator().manual_seed(seed)
    size = len(rows["labels"])
    updates = epochs * -(-size // 32)
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, updates)
    model.to(rows["labels"].device).train()
    for _ in range(epochs):
        order = torch.randperm(size, generator=generator).to(rows["labels"].device)
        for start in range(0, size, 32):
            batch = {name: value[order[start : start + 32]] for name, value in rows.items()}
            optimizer.zero_grad()
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model


def compared(name: str, folder: Path, vectors: WordVectors, tokenizer: Any, options: Any, device: str) -> list[dict]:
    """Scores of both encoders from both starts on one set."""
    labels: dict[str, int] = {}
    parts = {part: rows_of(folder, part, labels) for part in ("train", "valid", "test")}
    valid, test = (encoded(parts[part], tokenizer, device) for part in ("valid", "test"))
    results = []
    for kind, rates in RATES.items():
        for start, own in (("random", None), ("vectors", vectors)):
            began, scores = time.perf_counter(), []
            for seed in options.seeds:
                picked = torch.randperm(len(parts["train"]), generator=torch.Generator().manual_seed(seed))
                few = encoded([parts["train"][place] for place in picked[: options.rows]], tokenizer, device)
                runs = []
                for rate in rates:
                    model = made(kind, tokenizer, own, vectors.width, len(labels), seed)
                    model = trained(model, few, rate, options.epochs, seed)
                    runs.append((accuracy(model, valid), accuracy(model, test), rate))
                scores.append(max(runs))
            result = {"set": name, "encoder": kind, "start": start, "rows": options.rows, "seeds": options.seeds}
            tests = [100 * score for _, score, _ in scores]
            spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
            result |= {"accuracy": tests, "mean": statistics.mean(tests), "stdev": spread}
            result |= {"rates": [rate for *_, rate in scores], "seconds": round(time.perf_counter() - began, 1)}
            print(
                f"{name:8} {kind:8} {start:8} {result['mean']:5.1f} +- {spread:3.1f}   {result['seconds']} s",
                flush=True,
            )
            results.append(result)
    return results


def main() -> None:
    """Compare, print a table and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", required=True, help="NAME=FOLDER of each set")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", nargs="+", type=Path, help="lines of text to train vectors on")
    source.add_argument("--vectors", type=Path, help="a file of vectors")
    parser.add_argument("--algorithm", default="skipgram", help="of train_word_vectors (default: skipgram)")
    parser.add_argument("--width", type=int, default=128, help="width of trained vectors (default: 128)")
    parser.add_argument(
        "--words", type=int, default=20_000, help="most frequent words that have a row (default: 20000)"
    )
    parser.add_argument("--rows", type=int, default=500, help="labelled rows (default: 500)")
    parser.add_argument("--epochs", type=int, default=15, help="of the labelled rows (default: 15)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="(default: 0 1 2)")
    parser.add_argument("--output", type=Path, default=Path("compare_vectors.json"))
    options = parser.parse_args()
    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.perf_counter()
    if options.vectors is not None:
        vectors = WordVectors.load(options.vectors, limit=options.words)
    else:
        width = {"dim" if options.algorithm == "glove" else "vector_size": options.width}
        found = train_word_vectors(lines_of(options.text), options.algorithm, min_count=3, **width)
        vectors = WordVectors(found.words[: options.words], found.table[: options.words])
    print(f"{len(vectors)} vectors of {vectors.width} numbers, {time.perf_counter() - began:.0f} s", flush=True)
    tokenizer = word_tokenizer(vectors.words, lower_case=True)
    results = []
    for each in options.sets:
        name, _, folder = each.partition("=")
        results += compared(name, Path(folder), vectors, tokenizer, options, device)
    settings = {name: str(value) for name, value in vars(options).items()} | {"device": device}
    text = json.dumps({"options": settings, "vectors": len(vectors), "results": results}, indent=2)
    options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
