"""ELMo trained on texts, as frozen features, against its random self: tasks of texts, a learned mixture of its layers.

    python scripts/compare_elmo.py --text 'corpus/*.txt.gz' --data sst2 trec --output elmo.json      # one GPU
    python scripts/compare_elmo.py --text FILE --data FOLDER --size tiny --steps 200 --device cpu

`--data` are folders with train, valid and test files of `text` and `label` (.jsonl, .tsv, .csv, packed or not). The
language models are one `hf-ptm-ext pretrain --objective bilm`, or `--elmo FOLDER`. The encoders are frozen, so each
text is read once, and what is trained by seed is what `WeightedLayersForSequenceClassification` with `pooling="mean"`
trains beside its encoder: the mixture, whose mean over words is the mixture of the means, and the classifier. The
epoch is that of the best validation accuracy. A random ELMo is drawn for each seed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hf_ptm_ext import ElmoModel, ElmoTokenizer, ScalarMix
from hf_ptm_ext.cli import main as run
from hf_ptm_ext.data import read_labelled_texts

# cell_size, projection_dim, filters, n_highway; "small" is the published small model.
SIZES: dict[str, tuple[int, int, str, int]] = {
    "tiny": (64, 32, "[[1,16],[2,16],[3,32]]", 1),
    "small": (1024, 128, "[[1,32],[2,32],[3,64],[4,128],[5,256],[6,512],[7,1024]]", 1),
    "medium": (2048, 256, "[[1,32],[2,32],[3,64],[4,128],[5,256],[6,512],[7,1024]]", 1),
}
SPLITS = ("train", "valid", "test")
READ_AT_ONCE, BATCH, RATE, DROPOUT = 256, 64, 2e-3, 0.5


def pretrain(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Train the language models into a folder; their held-out losses."""
    cell, width, filters, highways = SIZES[options.size]
    overrides = {"cell_size": cell, "projection_dim": width, "filters": filters, "n_highway": highways}
    values = {
        "output_dir": folder,
        "objective": "bilm",
        "vocab_size": options.words,
        "lowercase": False,
        "config_overrides": ",".join(f"{name}={value}" for name, value in overrides.items()),
        "max_seq_length": options.length,
        "max_steps": options.steps,
        "max_eval_rows": 512,
        "per_device_train_batch_size": options.rows,
        "per_device_eval_batch_size": 128,
        "learning_rate": options.learning_rate,
        "max_grad_norm": 10.0,
        "logging_steps": max(options.steps // 20, 1),
        "save_strategy": "no",
        "report_to": "none",
        "seed": 0,
        "use_cpu": options.device == "cpu",
        "bf16": options.bf16 and options.device == "cuda",
    }
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    if run(["pretrain", *words, "--train_file", *options.text]):
        sys.exit(1)
    found = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if name.endswith("_loss") and name != "train_loss"}


def rows_of(folder: str, split: str, limit: int | None, seed: int) -> list[tuple[str, str]]:
    """Texts and labels of a split, some of them if there are more."""
    files = sorted(str(path) for path in Path(folder).glob(f"{split}.*"))
    if not files:
        raise SystemExit(f"{folder} must have a file {split}.jsonl, .tsv or .csv (.gz).")
    rows = [(row.text, str(row.label)) for row in read_labelled_texts(files[0])]
    if limit is None or limit >= len(rows):
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:limit].tolist()
    return [rows[number] for number in order]


@torch.no_grad()
def features_of(model: Any, tokenizer: Any, texts: list[str], device: str) -> torch.Tensor:
    """`(texts, layers, width)`: the mean over each text's words of every layer."""
    found: dict[int, torch.Tensor] = {}
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    for start in range(0, len(order), READ_AT_ONCE):
        numbers = order[start : start + READ_AT_ONCE]
        inputs = tokenizer([texts[number] or "." for number in numbers], padding=True, return_tensors="pt").to(device)
        states = torch.stack(model(**inputs, output_hidden_states=True).hidden_states, dim=1)
        means = states.sum(2) / inputs["attention_mask"].sum(1)[:, None, None].clamp(min=1)
        found.update(zip(numbers, means.cpu(), strict=True))
    return torch.stack([found[number] for number in range(len(texts))])


class Classifier(nn.Module):
    """The mixture of the layers' means, and a class for each text."""

    def __init__(self, layers: int, width: int, labels: int):
        super().__init__()
        self.mix, self.dropout, self.classifier = ScalarMix(layers), nn.Dropout(DROPOUT), nn.Linear(width, labels)

    def forward(self, layers: torch.Tensor) -> torch.Tensor:
        """`(rows, layers, width)` to logits."""
        return self.classifier(self.dropout(self.mix(layers.unbind(1))))


def accuracy(model: nn.Module, layers: torch.Tensor, targets: torch.Tensor) -> float:
    """In per cent."""
    with torch.no_grad():
        return 100 * (model.eval()(layers).argmax(-1) == targets).float().mean().item()


def classify(
    layers: dict[str, torch.Tensor], targets: dict[str, torch.Tensor], chosen: torch.Tensor, epochs: int, seed: int
) -> tuple[float, list[float]]:
    """Test accuracy at the best epoch of validation, and the layers' shares."""
    torch.manual_seed(seed)
    train = layers["train"][chosen]
    mean, scale = train.mean((0, 2), keepdim=True), train.std((0, 2), keepdim=True).clamp(min=1e-6)
    layers = {name: (values - mean) / scale for name, values in layers.items()}  # each layer's size, for both encoders
    train, wanted = layers["train"][chosen], targets["train"][chosen]
    labels = int(max(values.max() for values in targets.values())) + 1
    model = Classifier(train.shape[1], train.shape[2], labels).to(train.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    best, result, shares = -1.0, 0.0, [0.0]
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(train), device=train.device).split(BATCH):
            loss = nn.functional.cross_entropy(model(train[batch]), wanted[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = accuracy(model, layers["valid"], targets["valid"])
        if found > best:
            best, result = found, accuracy(model, layers["test"], targets["test"])
            shares = [round(one, 3) for one in model.mix.shares().tolist()]
    return result, shares


def compare(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Accuracies of all tasks, both encoders, all numbers of rows and seeds."""
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    trained = ElmoModel.from_pretrained(folder).eval().to(options.device)
    found = []
    for task in options.data:
        rows = {split: rows_of(task, split, options.most, 0) for split in SPLITS}
        names = sorted({label for split in rows.values() for _, label in split})
        targets = {
            split: torch.tensor([names.index(label) for _, label in values]).to(options.device)
            for split, values in rows.items()
        }
        counts = torch.bincount(targets["train"], minlength=len(names))
        majority = 100 * (targets["test"] == counts.argmax()).float().mean().item()
        kept: dict[str, torch.Tensor] = {}
        for kind in ("trained", "random"):
            for seed in options.seeds:
                if kind == "random" or not kept:
                    torch.manual_seed(seed)
                    model = trained if kind == "trained" else ElmoModel(trained.config).eval().to(options.device)
                    read = {
                        split: features_of(model, tokenizer, [text for text, _ in values], options.device)
                        for split, values in rows.items()
                    }
                    kept = {split: values.to(options.device) for split, values in read.items()}
                for number in options.train_rows:
                    size = min(number or len(rows["train"]), len(rows["train"]))
                    draw = torch.Generator().manual_seed(seed)
                    chosen = torch.randperm(len(rows["train"]), generator=draw)[:size].to(options.device)
                    score, shares = classify(kept, targets, chosen, options.epochs, seed)
                    one = {"task": Path(task).name, "encoder": kind, "train_rows": size, "seed": seed}
                    found.append({**one, "accuracy": score, "majority": majority, "shares": shares})
    return found


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and spreads over the seeds, and the shares of the layers in the first."""
    keys = dict.fromkeys((one["task"], one["train_rows"], one["encoder"]) for one in runs)
    found = []
    for key in keys:
        own = [one for one in runs if (one["task"], one["train_rows"], one["encoder"]) == key]
        scores = [one["accuracy"] for one in own]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        row = {"task": key[0], "train_rows": key[1], "encoder": key[2], "mean": statistics.mean(scores), "sd": spread}
        found.append({**row, "majority": own[0]["majority"], "shares": own[0]["shares"]})
    return found


def main() -> None:
    """Train, compare, print the table and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", nargs="+", help="Files of the language models' text.")
    parser.add_argument("--elmo", help="A trained ELMo's folder in the place of --text.")
    parser.add_argument("--data", nargs="+", required=True, help="Folders of tasks.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=tuple(SIZES), default="small" if torch.cuda.is_available() else "tiny")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rows", type=int, default=128, help="Sentences of a batch.")
    parser.add_argument("--length", type=int, default=40, help="Most words of a row.")
    parser.add_argument("--words", type=int, default=30000, help="Words of the softmax.")
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--train_rows", type=int, nargs="+", default=[500, 0], help="Rows of a task; 0 = all.")
    parser.add_argument("--most", type=int, help="Most rows of each split that are read (default: all).")
    parser.add_argument("--epochs", type=int, default=40, help="Epochs of a classifier.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, help="JSON file of all numbers.")
    options = parser.parse_args()
    if (options.text is None) == (options.elmo is None):
        parser.error("name the texts of the language models by --text, or a trained one by --elmo")
    start, losses = time.time(), {}
    with tempfile.TemporaryDirectory() as folder:
        if options.elmo is None:
            losses = pretrain(options, Path(folder) / "elmo")
        seconds = time.time() - start
        runs = compare(options, options.elmo or str(Path(folder) / "elmo"))
    table = summary(runs)
    print(f"\nAccuracy in per cent, frozen features, seeds {' '.join(map(str, options.seeds))}")
    print(f"{'task':<14}{'rows':>7}  {'encoder':<9}{'mean':>7}{'sd':>6}{'majority':>10}  shares of the layers")
    for row in table:
        line = f"{row['task']:<14}{row['train_rows']:>7}  {row['encoder']:<9}{row['mean']:>7.1f}{row['sd']:>6.1f}"
        print(f"{line}{row['majority']:>10.1f}  {' '.join(f'{share:.2f}' for share in row['shares'])}")
    print(f"language models {seconds:.0f} s, all {time.time() - start:.0f} s")
    if options.output is not None:
        told = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
        result = {"options": told, "losses": losses, "seconds": time.time() - start, "summary": table, "runs": runs}
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
