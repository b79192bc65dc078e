"""What our Trainer costs beside transformers': updates watched for NaN, checkpoints that end with a manifest.

    python scripts/bench_trainer.py --device cuda
    python scripts/bench_trainer.py --layers 2 --hidden 128 --updates 40

Ratios within one run, the Trainers in turn; the least of a few repetitions each.
"""

import argparse
import logging
import tempfile
import time

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from hf_ptm_ext.trainers import PtmTrainer

VOCABULARY, TOKENS, ROWS = 30522, 128, 32


def seconds(cls, options, config, updates, **more):
    """Time of a run."""
    set_seed(0)
    rows = [{"input_ids": torch.randint(5, VOCABULARY, (TOKENS,)), "labels": number % 2} for number in range(2048)]
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            max_steps=updates,
            per_device_train_batch_size=ROWS,
            report_to="none",
            disable_tqdm=True,
            logging_steps=10**6,
            use_cpu=options.device == "cpu",
            **{"save_strategy": "no", **({options.precision: True} if options.precision else {}), **more},
        )
        trainer = cls(model=BertForSequenceClassification(config), args=args, train_dataset=rows)
        start = time.perf_counter()
        trainer.train()
        if options.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start


def main():
    """Print both ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("bf16", "fp16", ""), default="")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=4)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    size = {
        "hidden_size": options.hidden,
        "num_hidden_layers": options.layers,
        "intermediate_size": 4 * options.hidden,
    }
    config = BertConfig(vocab_size=VOCABULARY, num_attention_heads=options.hidden // 64, **size)
    seconds(Trainer, options, config, 5)
    saving = {"save_strategy": "steps", "save_steps": 1}
    for updates, more in ((options.updates, {}), (4, saving)):
        found = {cls: [] for cls in (Trainer, PtmTrainer)}
        for _ in range(options.repetitions):
            for cls, times in found.items():
                times.append(seconds(cls, options, config, updates, **more))
        least = {cls: min(times) for cls, times in found.items()}
        print(
            f"{updates} updates{' with a checkpoint each' if more else ''}: {least[Trainer]:.2f} s, "
            f"{least[PtmTrainer]:.2f} s, ratio {least[PtmTrainer] / least[Trainer]:.2f}"
        )


if __name__ == "__main__":
    main()
