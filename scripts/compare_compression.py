#!/usr/bin/env python
"""What compression costs: a model of a local folder fine-tuned on labelled texts, five seeds, paired differences.

    python scripts/compare_compression.py layer_drop --model BERT --train train.jsonl --test test.jsonl
    python scripts/compare_compression.py pruning ...         # 0 to 90 % of zeros, gradually and at the end
    python scripts/compare_compression.py quantisation ...    # Q8BERT's training, and after training; 8 bits and fewer

Rows have `text` and `label`. Every arm of a seed starts from the same weights and sees the same rows; each is scored
on the test rows once. Printed and written (`--output`): means, standard deviations, and the difference to the first
arm with its 95 % interval over seeds.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

from hf_ptm_ext import LayerDropCallback, PruningCallback, keep_layers, prepare_fake_quant, prune_model, to_int8
from hf_ptm_ext.compression import calibrate

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26}  # Student's t for as many seeds


class Runs:
    """Trains and scores on the rows of a command line."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.tokenizer = AutoTokenizer.from_pretrained(options.model)
        rows = {split: read(getattr(options, split)) for split in ("train", "test")}
        self.labels = sorted({row["label"] for row in rows["train"]})
        self.rows = {split: self.encoded(found) for split, found in rows.items()}

    def encoded(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows as inputs."""
        made = self.tokenizer([row["text"] for row in rows], truncation=True, max_length=self.options.max_length)
        return [
            {**{name: made[name][place] for name in made}, "labels": self.labels.index(row["label"])}
            for place, row in enumerate(rows)
        ]

    def trained(self, seed: int, prepare: Callable[[Any], Any] | None = None, callbacks: Any = ()) -> Any:
        """A model fine-tuned from the folder's weights."""
        options = self.options
        set_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=len(self.labels))
        model = model if prepare is None else prepare(model)
        with tempfile.TemporaryDirectory() as folder:
            args = TrainingArguments(
                folder,
                num_train_epochs=options.epochs,
                learning_rate=options.learning_rate,
                per_device_train_batch_size=options.batch_size,
                warmup_steps=0.1,
                seed=seed,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                logging_strategy="no",
            )
            Trainer(
                model=model,
                args=args,
                train_dataset=self.rows["train"],
                processing_class=self.tokenizer,
                callbacks=list(callbacks),
            ).train()
        return model.eval()

    def batches(self, split: str, most: int | None = None) -> Any:
        """Padded batches."""
        rows = self.rows[split][:most]
        for first in range(0, len(rows), 64):
            yield self.tokenizer.pad(rows[first : first + 64], return_tensors="pt")

    @torch.inference_mode()
    def accuracy(self, model: Any) -> float:
        """Share of the test rows that are right, in percent."""
        device, right = next(model.parameters()).device, 0
        for batch in self.batches("test"):
            given = {name: value.to(device) for name, value in batch.items()}
            labels = given.pop("labels")
            right += int((model(**given).logits.argmax(-1) == labels).sum())
        return 100 * right / len(self.rows["test"])

    def calibrated(self, model: Any, **options: Any) -> Any:
        """Quantised after training, its ranges found on training rows."""
        device = next(model.parameters()).device
        prepared = prepare_fake_quant(copy_of(model), ema_decay=0.9, **options)
        batches = ({name: one.to(device) for name, one in batch.items()} for batch in self.batches("train", 256))
        return calibrate(prepared, batches)


def copy_of(model: Any) -> Any:
    """The model again."""
    return keep_layers(model, list(range(model.config.num_hidden_layers)))


def read(file: str) -> list[dict[str, Any]]:
    """Rows of a file of JSON lines."""
    return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]


def layer_drop(runs: Runs, seed: int) -> dict[str, float]:
    """Half of the layers: of a model trained normally, of one trained with LayerDrop, and trained as half."""
    plain = runs.trained(seed)
    dropped = runs.trained(seed, callbacks=[LayerDropCallback(runs.options.rate)])
    return {
        "normal, all layers": runs.accuracy(plain),
        "normal, then every other layer": runs.accuracy(keep_layers(plain)),
        "LayerDrop, all layers": runs.accuracy(dropped),
        "LayerDrop, then every other layer": runs.accuracy(keep_layers(dropped)),
        "every other layer, then fine-tuned": runs.accuracy(runs.trained(seed, keep_layers)),
    }


def pruning(runs: Runs, seed: int) -> dict[str, float]:
    """Accuracy at shares of zeros: while fine-tuning, and at its end."""
    plain, found = runs.trained(seed), {}
    for share in SHARES:
        found[f"at the end, {share:.0%}"] = runs.accuracy(prune_model(copy_of(plain), share))
    for share in SHARES[1:]:
        found[f"gradually, {share:.0%}"] = runs.accuracy(runs.trained(seed, callbacks=[PruningCallback(share)]))
    return found


def quantisation(runs: Runs, seed: int) -> dict[str, float]:
    """8 bits learnt and found afterwards, and fewer in groups."""
    plain = runs.trained(seed)
    prepare = partial(prepare_fake_quant, ema_decay=runs.options.ema_decay)
    found = {"float32": runs.accuracy(plain)}
    found["8 bits after training"] = runs.accuracy(to_int8(runs.calibrated(plain)))
    found["Q8BERT, 8 bits"] = runs.accuracy(to_int8(runs.trained(seed, prepare)))
    for bits in (4, 3):
        fewer = {"bits": bits, "groups": 128}
        found[f"{bits} bits in groups, after training"] = runs.accuracy(runs.calibrated(plain, **fewer))
        found[f"Q-BERT, {bits} bits in groups"] = runs.accuracy(runs.trained(seed, partial(prepare, **fewer)))
    return found


COMPARISONS = {"layer_drop": layer_drop, "pruning": pruning, "quantisation": quantisation}


def interval(values: list[float]) -> str:
    """A mean difference with its 95 % interval."""
    if len(values) < 2:
        return f"{values[0]:+.1f}"
    half = T95.get(len(values), 1.96) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.mean(values)
    return f"{mean:+.1f} ({mean - half:+.1f} .. {mean + half:+.1f})"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", choices=COMPARISONS)
    parser.add_argument("--model", required=True, help="folder of an encoder")
    parser.add_argument("--train", required=True, help="JSON lines with text and label")
    parser.add_argument("--test", required=True, help="the same, for the score")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_length", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.5, help="of LayerDrop (default 0.5, as half is kept)")
    parser.add_argument("--ema_decay", type=float, default=0.99, help="of Q8BERT's ranges (default 0.99)")
    parser.add_argument("--output", help="file of the results, JSON")
    options = parser.parse_args(arguments)
    runs = Runs(options)
    found = [COMPARISONS[options.comparison](runs, seed) for seed in options.seeds]
    first = next(iter(found[0]))
    majority = max(sum(row["labels"] == place for row in runs.rows["test"]) for place in range(len(runs.labels)))
    print(
        f"\nAccuracy on {len(runs.rows['test'])} rows, {len(options.seeds)} seeds; the majority class has "
        f"{100 * majority / len(runs.rows['test']):.1f}\n"
    )
    print(f"| arm | accuracy | to `{first}` (95 %) |\n| --- | ---: | ---: |")
    for arm in found[0]:
        values = [one[arm] for one in found]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        apart = interval([one[arm] - one[first] for one in found])
        print(f"| {arm} | {statistics.mean(values):.1f}{spread} | {apart if arm != first else ''} |")
    if options.output:
        told = {"options": vars(options), "seeds": options.seeds, "accuracy": found}
        Path(options.output).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
