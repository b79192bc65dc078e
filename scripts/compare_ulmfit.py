"""ULMFiT's three stages against a classifier of the same kind from nothing, on few labelled rows.

    python scripts/compare_ulmfit.py --corpus general.txt --train train.jsonl --valid valid.jsonl --test test.jsonl

The stages: a language model of the corpus, the same on the task's texts (labels unread), a classifier on it with rates
that fall by 2.6 a layer, a slanted triangle and gradual unfreezing. Beside it: the classifier alone, with as many
epochs on the same rows. Both take the learning rate that is best on the validation rows. Rows are JSON lines with
`text` and `label`. Prints a table and writes JSON.
"""

import argparse
import gzip
import json
import statistics
import time
from pathlib import Path

import torch
from transformers import DataCollatorWithPadding, TrainingArguments, set_seed

from hf_ptm_ext import (
    AwdLstmConfig,
    AwdLstmForCausalLM,
    AwdLstmForSequenceClassification,
    AwdLstmTokenizer,
    BpttTrainer,
    ContiguousStreams,
    DataCollatorForBackpropagationThroughTime,
    GradualUnfreezingCallback,
    PtmTrainer,
    transfer_vocabulary,
)
from hf_ptm_ext.models.configuration_awd_lstm import CLASSIFIER_RATES
from hf_ptm_ext.trainers import get_slanted_triangular_schedule, layerwise_parameter_groups, number_of_updates

BATCH, BPTT = 64, 70


def text_of(path):
    """A text, packed or not."""
    data = Path(path).read_bytes()
    return (gzip.decompress(data) if str(path).endswith(".gz") else data).decode("utf-8")


def read_rows(path, most=None):
    """Texts and labels."""
    rows = [json.loads(line) for line in text_of(path).splitlines() if line.strip()]
    return [{"text": row["text"], "label": int(row["label"])} for row in rows[:most]]


def arguments(folder, **options):
    """Arguments of a Trainer that keeps nothing."""
    fixed = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    return TrainingArguments(str(folder), **{**fixed, "adam_beta1": 0.8, "adam_beta2": 0.99, **options})


def train_language_model(model, texts, tokenizer, folder, epochs, rate, seed, layerwise=False):
    """Train on texts; the loss of the last update is returned with the model."""
    size = min(BATCH, max(len(texts) // 4, 1))
    streams = ContiguousStreams(tokenizer(texts)["input_ids"], size, BPTT, variable=True, shuffle=True, seed=seed)
    args = arguments(
        folder,
        num_train_epochs=epochs,
        learning_rate=rate,
        per_device_train_batch_size=size,
        seed=seed,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        max_grad_norm=0.25,
    )
    optimizers = (None, None)
    if layerwise:
        optimizer = torch.optim.AdamW(layerwise_parameter_groups(model, rate, factor=2.6), betas=(0.8, 0.99))
        updates = number_of_updates(args, len(streams))
        optimizers = optimizer, get_slanted_triangular_schedule(optimizer, updates)
    collator = DataCollatorForBackpropagationThroughTime()
    trainer = BpttTrainer(model, args, train_dataset=streams, data_collator=collator, optimizers=optimizers)
    trainer.train()
    return model


def train_classifier(model, rows, tokenizer, folder, epochs, rate, seed, gradual):
    """Train a classifier, as ULMFiT does or plainly."""
    data = [{**tokenizer(row["text"], truncation=True, max_length=400), "labels": row["label"]} for row in rows]
    args = arguments(
        folder,
        num_train_epochs=epochs,
        learning_rate=rate,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        seed=seed,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
    )
    optimizers, callbacks = (None, None), []
    if gradual:
        optimizer = torch.optim.AdamW(layerwise_parameter_groups(model, rate, factor=2.6), betas=(0.8, 0.99))
        optimizers = optimizer, get_slanted_triangular_schedule(optimizer, number_of_updates(args, len(data)))
        callbacks = [GradualUnfreezingCallback()]
    collator = DataCollatorWithPadding(tokenizer)
    trainer = PtmTrainer(
        model, args, train_dataset=data, data_collator=collator, optimizers=optimizers, callbacks=callbacks
    )
    trainer.train()
    return trainer


def accuracy(trainer, rows, tokenizer):
    """Share of rows that are classified rightly."""
    data = [{**tokenizer(row["text"], truncation=True, max_length=400), "labels": row["label"]} for row in rows]
    found = trainer.predict(data)
    logits = found.predictions[0] if isinstance(found.predictions, tuple) else found.predictions
    return float((logits.argmax(-1) == found.label_ids).mean())


def main():
    """Run all seeds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("corpus", "train", "valid", "test"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--output_dir", default="outputs/compare_ulmfit")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--train_rows", type=int, default=500)
    parser.add_argument("--unlabelled_rows", type=int, default=20000, help="texts of --train for the second stage")
    parser.add_argument("--corpus_lines", type=int, default=120000)
    parser.add_argument("--vocab_size", type=int, default=20000)
    parser.add_argument("--width", type=int, nargs=2, default=[400, 1152], help="embeddings, LSTM")
    parser.add_argument("--epochs", type=int, nargs=3, default=[4, 4, 8], help="of each stage")
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-4, 1e-3, 3e-3, 1e-2], help="of both classifiers")
    options = parser.parse_args()
    start, output = time.time(), Path(options.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    lines = text_of(options.corpus).splitlines()[: options.corpus_lines]
    general = [line for line in lines if line.strip()]
    pool = read_rows(options.train, options.unlabelled_rows)
    valid, test = read_rows(options.valid), read_rows(options.test)
    texts = [row["text"] for row in pool]
    old = AwdLstmTokenizer.train(general, max_vocab=options.vocab_size)
    new = AwdLstmTokenizer.train(texts, max_vocab=options.vocab_size, min_freq=2)
    sizes = {"embedding_size": options.width[0], "lstm_size": options.width[1], "drop_mult": 0.5}
    set_seed(0)
    first = AwdLstmForCausalLM(AwdLstmConfig(vocab_size=len(old), **sizes))
    train_language_model(first, general, old, output, options.epochs[0], 3e-3, 0)
    transfer_vocabulary(first, old, new)
    train_language_model(first, texts, new, output, options.epochs[1], 3e-3, 0, layerwise=True)
    first.save_pretrained(output / "language_model")
    found = {"three stages": [], "from nothing": []}
    for seed in options.seeds:
        generator = torch.Generator().manual_seed(seed)
        rows = [pool[int(n)] for n in torch.randperm(len(pool), generator=generator)[: options.train_rows]]
        for name, scores in found.items():
            best = (-1.0, 0.0, 0.0)
            for rate in options.rates:
                set_seed(seed)
                fields = {**CLASSIFIER_RATES, "num_labels": 1 + max(row["label"] for row in pool)}
                staged = name == "three stages"
                if staged:
                    model = AwdLstmForSequenceClassification.from_pretrained(output / "language_model", **fields)
                else:
                    config = AwdLstmConfig(vocab_size=len(new), **{**sizes, **fields})
                    model = AwdLstmForSequenceClassification(config)
                trainer = train_classifier(model, rows, new, output, options.epochs[2], rate, seed, staged)
                right = accuracy(trainer, valid, new)
                if right > best[0]:
                    best = right, accuracy(trainer, test, new), rate
            scores.append({"seed": seed, "valid": best[0], "test": best[1], "rate": best[2]})
            print(f"seed {seed}, {name}: {100 * best[1]:.2f} % of the test rows, rate {best[2]:g}", flush=True)
    print(f"\n{'':<14} test accuracy, mean and deviation of {len(options.seeds)} seeds")
    for name, scores in found.items():
        values = [100 * score["test"] for score in scores]
        print(f"{name:<14} {statistics.mean(values):.2f} +- {statistics.stdev(values) if len(values) > 1 else 0:.2f}")
    result = {"scores": found, "seconds": round(time.time() - start), "options": vars(options)}
    (output / "results.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
