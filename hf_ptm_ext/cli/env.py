"""`hf-ptm-ext env`: versions and devices, for a report of what does not work."""

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import COMMANDS

PACKAGES = (
    *("hf-ptm-ext", "torch", "transformers", "peft", "accelerate", "datasets", "evaluate", "huggingface-hub"),
    *("safetensors", "tokenizers", "numpy", "jieba", "ahocorasick-rs", "gensim", "sacrebleu", "rouge-score"),
    *("seqeval", "scikit-learn", "matplotlib"),
)


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command."""
    return subparsers.add_parser("env", help=COMMANDS["env"], description=COMMANDS["env"])


def run(arguments: argparse.Namespace) -> int:
    """Print one line for each fact."""
    import torch

    facts = {"python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    facts["GPUs"] = ", ".join(devices) or "none"
    facts["threads of torch"] = str(torch.get_num_threads())
    width = max(map(len, facts))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in facts.items()))
    return 0
