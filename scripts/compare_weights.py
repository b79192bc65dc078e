"""Compare what is learnt with `--weights bf16` and with `--bf16 true`, same seeds, rows and masks, in one run.

    python scripts/compare_weights.py --text 'corpus/*.txt.gz'                    # one GPU: BERT-base, 2,000 updates
    python scripts/compare_weights.py --text FILE --steps 300 --size tiny --device cpu

Each precision is one `hf-ptm-ext pretrain` by seeds; the table has the held-out loss of each seed, its mean, and the
seconds of training. The difference of the means is to be read beside the spread of the seeds.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from bench_job import SIZES, tokenizer_of

from hf_ptm_ext.cli import main as run

PRECISIONS = {"bf16 over fp32 weights": ("--bf16", "true"), "bf16 weights": ("--weights", "bf16")}


def job(options: argparse.Namespace, folder: Path, tokenizer: str, precision: tuple[str, str]) -> list[str]:
    """The words of a job."""
    cuda = options.device == "cuda"
    values = {
        "output_dir": folder,
        "objective": "mlm",
        "tokenizer_name": tokenizer,
        "config_overrides": ",".join(f"{name}={value}" for name, value in SIZES[options.size].items()),
        "pack_rows": True,
        "max_seq_length": options.length,
        "max_steps": options.steps,
        "per_device_train_batch_size": options.rows,
        "learning_rate": options.learning_rate,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": not cuda,
        "torch_compile": cuda,
    }
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    return ["pretrain", *words, "--train_file", *options.text, "--seeds", *map(str, options.seeds), *precision]


def main() -> None:
    """Run the jobs one after the other and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=tuple(SIZES), default="base" if torch.cuda.is_available() else "tiny")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("more", nargs="*", help="Behind `--`: further words of both jobs.")
    options = parser.parse_args()
    losses: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = tokenizer_of(options, str(Path(folder) / "tokenizer"))
        for number, (name, precision) in enumerate(PRECISIONS.items()):
            output = Path(folder) / str(number)
            if run([*job(options, output, tokenizer, precision), *options.more]):
                sys.exit(1)
            runs = json.loads((output / "results.json").read_text(encoding="utf-8"))["runs"]
            losses[name] = [one["scores"]["eval_loss"] for one in runs]
    print(f"\nHeld-out loss after {options.steps} updates, seeds {' '.join(map(str, options.seeds))}")
    for name, found in losses.items():
        print(f"{name:<24}" + "".join(f"{loss:>9.4f}" for loss in found) + f"   mean {statistics.mean(found):.4f}")
    first, second = losses.values()
    spread = f"{statistics.stdev(first):.4f}" if len(first) > 1 else "unknown"
    print(f"difference of the means {statistics.mean(second) - statistics.mean(first):+.4f}, spread of seeds {spread}")


if __name__ == "__main__":
    main()
