"""Train Transformer-XL with and without its memory, and measure both on held-out text with and without it.

    python scripts/compare_transfo_xl.py --text "corpus/*.txt.gz" --held_out "held/*.txt" --output results

Both models have the same sizes, text and updates. Results are bits per word (of the vocabulary, `<unk>` included) and
per character of the held-out text; every word but the first is predicted once, in segments of `--segment` words. A
table is printed; `results.json` has every run.
"""

import argparse
import glob
import gzip
import json
import math
import re
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_ptm_ext import (
    ContiguousStreams,
    DataCollatorForBackpropagationThroughTime,
    TransfoXLConfig,
    TransfoXLLMHeadModel,
    TransfoXLTokenizer,
)

UNITS = re.compile(r"\w+|[^\w\s]")


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, help="files to train on, as a pattern; .gz too")
    parser.add_argument(
        "--held_out", required=True, help="files to measure on; those also in --text are left out there"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of results.json")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--unit", choices=("word", "character"), default="word")
    parser.add_argument("--vocab_size", type=int, default=20000)
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--segment", type=int, default=32)
    parser.add_argument("--mem_len", type=int, default=128)
    parser.add_argument("--d_model", type=int, default=256)
    parser.add_argument("--n_layer", type=int, default=6)
    parser.add_argument("--learning_rate", type=float, default=3e-4, help="six layers learn nothing at 1e-3")
    parser.add_argument("--max_held_out", type=int, default=400_000, help="characters of held-out text that are read")
    arguments = parser.parse_args()

    held_files = sorted(glob.glob(arguments.held_out))
    files = [name for name in sorted(glob.glob(arguments.text)) if name not in held_files]
    if not files or not held_files:
        parser.error(f"--text and --held_out must match files, got {len(files)} and {len(held_files)}")
    train = [line for name in files for line in lines_of(name, arguments.unit)]
    held, characters = [], 0
    for line, size in ((line, size) for name in held_files for line, size in sized_lines(name, arguments.unit)):
        if characters + size > arguments.max_held_out:
            break
        held.append(line)
        characters += size
    counts = Counter(word for line in train for word in line)
    words = ["<eos>", "<unk>", *(word for word, _ in counts.most_common(arguments.vocab_size - 2))]
    vocab = TransfoXLTokenizer({word: number for number, word in enumerate(words)}).get_vocab()
    data = [[[*(vocab.get(word, 1) for word in line), 0] for line in part] for part in (train, held)]

    runs = []
    for seed in arguments.seeds:
        for trained in (True, False):
            model, seconds = trained_model(arguments, len(words), data[0], trained, seed)
            for evaluated in (True, False):
                nats, targets = measured(arguments, model, data[1], evaluated)
                runs.append(
                    {
                        "seed": seed,
                        "trained_with_memory": trained,
                        "evaluated_with_memory": evaluated,
                        "bits_per_word": nats / targets / math.log(2),
                        "bits_per_character": nats / characters / math.log(2),
                        "seconds": seconds,
                    }
                )
                print(json.dumps(runs[-1]), flush=True)
    facts = {
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "vocabulary": len(words),
        "training_words": sum(map(len, data[0])),
        "held_out_words": sum(map(len, data[1])),
        "held_out_characters": characters,
        "unigram_bits_per_word": unigram_bits(data),
        "runs": runs,
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "results.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print_table(facts)


def sized_lines(name: str, unit: str) -> Any:
    """Lower-cased words or characters of every line that has some, and the characters of the line."""
    opened = gzip.open if name.endswith(".gz") else open
    with opened(name, "rt", encoding="utf-8") as file:
        for line in file:
            text = line.strip().lower()
            if text:
                yield (UNITS.findall(text) if unit == "word" else [*text.replace(" ", "_")]), len(text) + 1


def lines_of(name: str, unit: str) -> list[list[str]]:
    """The same without sizes."""
    return [line for line, _ in sized_lines(name, unit)]


def batches(streams: ContiguousStreams, device: str) -> Any:
    """Batches of a pass, each the segments behind those of the batch before."""
    collate, size = DataCollatorForBackpropagationThroughTime(), streams.batch_size
    for start in range(0, len(streams), size):
        batch = collate([streams[number] for number in range(start, start + size)])
        yield batch["input_ids"].to(device), batch["shift_labels"].to(device)


def device_of() -> str:
    """The accelerator, if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def trained_model(
    arguments: argparse.Namespace, vocabulary: int, documents: list[list[int]], memory: bool, seed: int
) -> tuple[TransfoXLLMHeadModel, float]:
    """A model after the updates."""
    device = device_of()
    torch.manual_seed(seed)
    config = TransfoXLConfig(
        vocab_size=vocabulary,
        cutoffs=[vocabulary // 5, vocabulary // 2] if vocabulary >= 2000 else [],
        div_val=2 if vocabulary >= 2000 else 1,
        d_model=arguments.d_model,
        n_layer=arguments.n_layer,
        n_head=max(1, arguments.d_model // 64),
        d_inner=4 * arguments.d_model,
        mem_len=arguments.mem_len if memory else 0,
        same_length=False,
        clamp_len=-1,
        initial_memory="empty",
    )
    model = TransfoXLLMHeadModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, weight_decay=0.01)
    warm = max(1, arguments.updates // 20)

    def rate(step: int) -> float:
        return min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * step / arguments.updates))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    streams = ContiguousStreams(documents, arguments.batch_size, arguments.segment)
    started, done, mems = time.monotonic(), 0, None
    while done < arguments.updates:
        mems = None
        for ids, targets in batches(streams, device):
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                output = model(ids, shift_labels=targets, mems=mems)
            mems = output.mems
            optimizer.zero_grad(set_to_none=True)
            output.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            schedule.step()
            done += 1
            if done == arguments.updates:
                break
    return model.eval(), time.monotonic() - started


@torch.no_grad()
def measured(
    arguments: argparse.Namespace, model: TransfoXLLMHeadModel, documents: list[list[int]], memory: bool
) -> tuple[float, int]:
    """Nats of all words of the held-out text, and their number."""
    before, model.config.mem_len = model.config.mem_len, arguments.mem_len if memory else 0
    nats, number, mems, device = 0.0, 0, None, device_of()
    for ids, targets in batches(ContiguousStreams(documents, 8, arguments.segment), device):
        output = model(ids, shift_labels=targets, mems=mems, logits_to_keep=1)
        mems = output.mems
        nats += output.losses.double().sum().item()
        number += int((targets != -100).sum())
    model.config.mem_len = before
    return nats, number


def unigram_bits(data: list[list[list[int]]]) -> float:
    """Bits per word of the training text's frequencies, one added to each."""
    counts = np.bincount(np.concatenate(data[0]), minlength=1 + max(map(max, data[1]))) + 1.0
    return float(-np.log2(counts / counts.sum())[np.concatenate(data[1])].mean())


def print_table(facts: dict[str, Any]) -> None:
    """Mean and standard deviation over seeds."""
    print(f"\n{'trained':<16}{'evaluated':<16}{'bits per word':>18}{'bits per character':>22}")
    for trained in (True, False):
        for evaluated in (True, False):
            chosen = [
                run
                for run in facts["runs"]
                if (run["trained_with_memory"], run["evaluated_with_memory"]) == (trained, evaluated)
            ]
            cells = []
            for name, digits in (("bits_per_word", 3), ("bits_per_character", 4)):
                values = [run[name] for run in chosen]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                cells.append(f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}")
            names = ["memory" if each else "no memory" for each in (trained, evaluated)]
            print(f"{names[0]:<16}{names[1]:<16}{cells[0]:>18}{cells[1]:>22}")
    print(f"{'unigram':<32}{facts['unigram_bits_per_word']:>13.3f}")


if __name__ == "__main__":
    main()
