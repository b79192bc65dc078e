"""Time UniLM's generation with and without cache, and a mixed-mode training step beside a bidirectional one.

    python scripts/bench_generate.py [--device cuda]

Ratios within one run, variants interleaved, medians.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

from hf_ptm_ext import UniLMConfig, UniLMForConditionalGeneration, UniLMForPreTraining


def median_seconds(variants: dict[str, Callable[[], None]], rounds: int, device: str) -> dict[str, float]:
    """Median wall seconds of each variant, rounds interleaved, after one untimed round."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for index in range(rounds + 1):
        for name, run in variants.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            if index:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def generation(config: UniLMConfig, device: str, new_tokens: int) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    model = UniLMForConditionalGeneration(config).to(device).eval()
    source = torch.randint(200, config.vocab_size, (8, 192), device=device)

    def run(use_cache: bool) -> None:
        model.generate(
            input_ids=source, max_new_tokens=new_tokens, do_sample=False, use_cache=use_cache, eos_token_id=None
        )

    return {"cached": lambda: run(True), "uncached": lambda: run(False)}


def training(config: UniLMConfig, device: str) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    model = UniLMForPreTraining(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    ids = torch.randint(200, config.vocab_size, (16, 256), device=device)
    labels = torch.where(torch.rand(ids.shape, device=device) < 0.15, ids, -100)
    positions = (labels == -100).to(torch.uint8).sort(dim=1, stable=True).indices[:, :64]
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": labels,
        "label_positions": positions,
        "source_lengths": torch.full((16,), 128, device=device),
    }

    def step(modes: torch.Tensor | None) -> None:
        model(**batch, lm_mode=modes, return_logits=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    mixed = torch.arange(16, device=device) % 4
    return {"bidirectional": lambda: step(torch.zeros_like(mixed)), "mixed": lambda: step(mixed)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default 5)")
    parser.add_argument("--new-tokens", type=int, default=64)
    options = parser.parse_args(arguments)
    config = UniLMConfig(
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=512,
        attn_implementation="sdpa",
    )
    generated = median_seconds(generation(config, options.device, options.new_tokens), options.rounds, options.device)
    trained = median_seconds(training(config, options.device), options.rounds, options.device)
    print("| 4 layers x 256 | s | ratio |\n| --- | ---: | ---: |")
    ratio = generated["uncached"] / generated["cached"]
    print(f"| {options.new_tokens} new tokens, 8 sources of 192, no cache | {generated['uncached']:.2f} | 1.00 |")
    print(f"| the same with cache | {generated['cached']:.2f} | {ratio:.1f} times faster |")
    ratio = trained["mixed"] / trained["bidirectional"]
    print(f"| training step 16 x 256, bidirectional | {trained['bidirectional']:.3f} | 1.00 |")
    print(f"| training step 16 x 256, four modes mixed | {trained['mixed']:.3f} | {ratio:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
