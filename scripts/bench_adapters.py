#!/usr/bin/env python
"""Full fine-tuning, Houlsby, Pfeiffer and LoRA on one classifier: trained parameters, file, step time, memory.

Random weights and tokens, nothing to download. Rounds are interleaved, so ratios within a run hold on a busy machine.

    python scripts/bench_adapters.py                    # MiniLM's size (6 x 384), CPU
    python scripts/bench_adapters.py --device cuda      # BERT-base, bfloat16 autocast
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from peft import LoraConfig, PeftConfig, get_peft_model
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from hf_ptm_ext import HoulsbyConfig, PfeifferConfig
from hf_ptm_ext.compression.costs import file_bytes

Batch = dict[str, torch.Tensor]
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
CLASSES = 3


@dataclass
class Variant:
    """One line of the table."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    saved_bytes: int
    file_bytes: int = 0
    peak_bytes: int = 0

    @property
    def trained(self) -> int:
        return sum(value.numel() for value in self.model.parameters() if value.requires_grad)

    @property
    def state_bytes(self) -> int:
        """Gradients and Adam's two moments, in single precision."""
        return 3 * 4 * self.trained


def methods(reduction: int) -> dict[str, Callable[[], PeftConfig] | None]:
    """Name -> configuration; `None` trains everything."""
    task = {"task_type": "SEQ_CLS"}
    return {
        "full fine-tuning": None,
        f"Houlsby, reduction {reduction}, LayerNorms": lambda: HoulsbyConfig(reduction_factor=reduction, **task),
        f"Houlsby, reduction {reduction}": lambda: HoulsbyConfig(
            reduction_factor=reduction, train_layer_norms=False, **task
        ),
        f"Pfeiffer, reduction {reduction}": lambda: PfeifferConfig(reduction_factor=reduction, **task),
        "LoRA, r = 8, query and value": lambda: LoraConfig(r=8, **task),
    }


def build(config: BertConfig, method: Callable[[], PeftConfig] | None, device: str) -> nn.Module:
    """The classifier, adapted."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(config).to(device)
    return (model if method is None else get_peft_model(model, method())).train()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, device: str) -> None:
    """Forward, backward and update."""
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=device == "cuda"):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def activation_bytes(model: nn.Module, batch: Batch, device: str) -> int:
    """What the backward pass keeps of the forward pass, the model's own weights aside."""
    own = {value.untyped_storage().data_ptr() for value in model.parameters()}
    kept: dict[int, int] = {}

    def remember(value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    with (
        torch.autograd.graph.saved_tensors_hooks(remember, lambda value: value),
        torch.autocast("cuda", dtype=torch.bfloat16, enabled=device == "cuda"),
    ):
        loss = model(**batch).loss
    total = sum(kept.values())
    del loss
    return total


def measure(variants: list[Variant], batch: Batch, rounds: int, device: str) -> dict[str, float]:
    """Median seconds of a step, rounds interleaved; also each variant's own peak of GPU memory."""
    times: dict[str, list[float]] = {variant.name: [] for variant in variants}
    repeat = 5 if device == "cuda" else 1
    for number in range(rounds + 1):
        for variant in variants:
            if device == "cuda":
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            start = time.perf_counter() if device == "cuda" else time.process_time()
            for _ in range(repeat):
                step(variant.model, variant.optimizer, batch, device)
            if device == "cuda":
                torch.cuda.synchronize()
                weights = sum(value.numel() * value.element_size() for value in variant.model.parameters())
                moments = variant.state_bytes * 2 // 3
                # All variants stay on the device: what this one adds while it runs, and what it holds between.
                variant.peak_bytes = torch.cuda.max_memory_allocated() - before + weights + moments
            elapsed = (time.perf_counter() if device == "cuda" else time.process_time()) - start
            if number:  # the first round warms up
                times[variant.name].append(elapsed / repeat)
    return {name: statistics.median(values) for name, values in times.items()}


def make_batch(config: BertConfig, rows: int, width: int, device: str) -> Batch:
    """Random tokens, rows of half to full width."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(width // 2, width + 1, (rows,), generator=generator)
    batch = {
        "input_ids": torch.randint(5, config.vocab_size, (rows, width), generator=generator),
        "attention_mask": (torch.arange(width) < lengths[:, None]).long(),
        "labels": torch.randint(CLASSES, (rows,), generator=generator),
    }
    return {name: value.to(device) for name, value in batch.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds (default 7)")
    parser.add_argument("--rows", type=int, help="rows a step (default 16 on the CPU, 64 on a GPU)")
    parser.add_argument("--width", type=int, default=128, help="tokens a row (default 128)")
    parser.add_argument("--reduction", type=int, default=16, help="reduction factor of the adapters (default 16)")
    options = parser.parse_args(arguments)
    device = options.device
    config = BertConfig(num_labels=CLASSES, **({} if device == "cuda" else MINILM))
    batch = make_batch(config, options.rows or (64 if device == "cuda" else 16), options.width, device)

    variants = []
    for name, method in methods(options.reduction).items():
        model = build(config, method, device)
        trained = [value for value in model.parameters() if value.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=device == "cuda")
        variants.append(Variant(name, model, optimizer, activation_bytes(model, batch, device), file_bytes(model)))
    times = measure(variants, batch, options.rounds, device)

    full = variants[0]
    place = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    kind = "" if device == "cuda" else "processor "
    print(
        f"{place}; torch {torch.__version__}; {config.num_hidden_layers} x {config.hidden_size}, batch "
        f"{tuple(batch['input_ids'].shape)}, median of {options.rounds} interleaved rounds\n"
    )
    head = ["training step", "trained", "of all", "file MB", "file / full", f"{kind}ms", "time / full"]
    head += ["kept activations MB", "gradients and moments MB", "memory / full"]
    if device == "cuda":
        head += ["peak MB", "peak / full"]
    print(f"| {' | '.join(head)} |")
    print(f"| --- |{' ---: |' * (len(head) - 1)}")
    for variant in variants:
        memory = variant.saved_bytes + variant.state_bytes
        cells = [
            variant.name,
            f"{variant.trained:,}",
            f"{100 * variant.trained / sum(value.numel() for value in variant.model.parameters()):.2f} %",
            f"{variant.file_bytes / 2**20:.2f}",
            f"{100 * variant.file_bytes / full.file_bytes:.2f} %",
            f"{1e3 * times[variant.name]:.1f}",
            f"{times[variant.name] / times[full.name]:.2f}",
            f"{variant.saved_bytes / 2**20:.0f}",
            f"{variant.state_bytes / 2**20:.1f}",
            f"{memory / (full.saved_bytes + full.state_bytes):.2f}",
        ]
        if device == "cuda":
            cells += [f"{variant.peak_bytes / 2**20:.0f}", f"{variant.peak_bytes / full.peak_bytes:.2f}"]
        print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
