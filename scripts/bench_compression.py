#!/usr/bin/env python
"""Float32, whole numbers (Q8BERT's) and torchao on one encoder: file, time of a batch on the CPU at equal threads.

Random weights and tokens, nothing to download. Rounds are interleaved, so ratios within a run hold on a busy machine.

    python scripts/bench_compression.py                    # MiniLM's size, 6 x 384
    python scripts/bench_compression.py --torchao          # also torchao's int8 (pip install hf-ptm-ext[torchao])
"""

import argparse
import sys
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from hf_ptm_ext import keep_layers, prepare_fake_quant, to_int8
from hf_ptm_ext.compression import calibrate
from hf_ptm_ext.compression.costs import alternated, file_bytes

MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
SHAPES = ((1, 32), (1, 128), (8, 128), (32, 128))


def batch_of(config: Any, rows: int, width: int) -> dict[str, torch.Tensor]:
    """Random tokens of full rows."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, config.vocab_size, (rows, width), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def variants(config: Any, with_torchao: bool) -> dict[str, Any]:
    """Name -> model; the first one is the measure."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(config).eval()
    learnt = prepare_fake_quant(keep_layers(model, model.config.num_hidden_layers), ema_decay=0.9)
    found = {"float32": model, "int8, static": to_int8(calibrate(learnt, [batch_of(config, 8, 64)]))}
    drawn = prepare_fake_quant(keep_layers(model, model.config.num_hidden_layers), mode="dynamic")
    found |= {"int8, dynamic": to_int8(drawn), "every other layer": keep_layers(model).eval()}
    if with_torchao:
        from hf_ptm_ext import to_torchao

        found["torchao int8, uncompiled"] = to_torchao(model)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds (default 9)")
    parser.add_argument("--threads", type=int, default=1, help="threads of every variant (default 1)")
    parser.add_argument("--torchao", action="store_true", help="also measure torchao's int8")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    config = BertConfig(num_labels=3, **MINILM)
    models = variants(config, options.torchao)
    times = {shape: alternated(models, batch_of(config, *shape), options.rounds) for shape in SHAPES}
    sizes = {name: file_bytes(model) for name, model in models.items()}
    print(
        f"CPU, {options.threads} threads; torch {torch.__version__}; {config.num_hidden_layers} x "
        f"{config.hidden_size}, median of {options.rounds} interleaved rounds\n"
    )
    head = [
        "",
        "file MB",
        "file / float32",
        *(f"ms, {rows} x {width} | times float32's speed" for rows, width in SHAPES),
    ]
    print(f"| {' | '.join(head)} |\n| --- |{' ---: |' * (2 + 2 * len(SHAPES))}")
    for name in models:
        cells = [name, f"{sizes[name] / 2**20:.1f}", f"{sizes[name] / sizes['float32']:.2f}"]
        for found in times.values():
            cells += [f"{1e3 * found[name]:.1f}", f"{found['float32'] / found[name]:.2f}"]
        print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
