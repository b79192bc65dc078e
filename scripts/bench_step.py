"""Time one training step on a CPU: classes of ours beside upstream's BERT, all variants interleaved in one run.

    python scripts/bench_step.py    # 4 layers x 256, 16 rows of 512; on a GPU: bench_gpu.py

Every figure is a median over interleaved rounds; the ratio is to `BertForMaskedLM` of the same run. Tokens per second
count tokens that are not padding.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from hf_ptm_ext import (
    ErnieThuConfig,
    ErnieThuForPreTraining,
    KBertConfig,
    KBertForMaskedLM,
    SpanBertConfig,
    SpanBertForMaskedLM,
    SpanBertForPreTraining,
)
from hf_ptm_ext.models.losses_core import classification_loss, select_labelled

Batch = dict[str, torch.Tensor]
MAX_PAIR_TARGETS = 15
ENTITY_INPUTS = ("entity_embeds", "entity_mask", "entity_labels", "entity_candidate_embeds")
KNOWLEDGE = ("word_index", "branch_id")
MLM_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "sequence_ids", "labels")


@dataclass
class Variant:
    """One line of the table: a model, how it is called, and its batch."""

    name: str
    model: nn.Module
    batch: Batch
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    real_tokens: int


def make_rows(lengths: list[list[int]], width: int, vocab_size: int, seed: int) -> Batch:
    """Random rows of one or several sequences with SpanBERT-like labels: 15 % of the tokens in spans of 1 to 10."""
    rng = np.random.default_rng(seed)
    rows = len(lengths)
    budget = int(np.ceil(width * 0.16 / 8) * 8) + 8
    pairs = budget // 3
    batch = {
        "input_ids": rng.integers(1000, vocab_size, (rows, width)),
        "attention_mask": np.zeros((rows, width), dtype=np.int64),
        "token_type_ids": np.zeros((rows, width), dtype=np.int64),
        "position_ids": np.zeros((rows, width), dtype=np.int64),
        "sequence_ids": np.zeros((rows, width), dtype=np.int64),
        "labels": np.full((rows, width), -100),
        "label_positions": np.zeros((rows, budget), dtype=np.int64),
        "span_boundaries": np.zeros((rows, pairs, 2), dtype=np.int64),
        "span_labels": np.full((rows, pairs, MAX_PAIR_TARGETS), -100),
    }
    for row, sequence_lengths in enumerate(lengths):
        start, pair = 0, 0
        for number, length in enumerate(sequence_lengths, 1):
            inside = slice(start, start + length)
            batch["attention_mask"][row, inside] = 1
            batch["position_ids"][row, inside] = np.arange(length)
            batch["sequence_ids"][row, inside] = number
            remaining = int(0.15 * (length - 2))
            at = start + 2 + int(rng.integers(0, 4))
            while remaining > 0 and pair < pairs:
                size = min(int(rng.geometric(0.2)), 10, remaining)
                if at + size >= start + length - 1:
                    break
                batch["labels"][row, at : at + size] = batch["input_ids"][row, at : at + size]
                batch["span_boundaries"][row, pair] = (at - 1, at + size)
                batch["span_labels"][row, pair, :size] = batch["input_ids"][row, at : at + size]
                remaining, pair, at = remaining - size, pair + 1, at + size + int(rng.integers(12, 24))
            start += length
    order = np.argsort(batch["labels"] == -100, axis=1, kind="stable")
    batch["label_positions"] = order[:, :budget]
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}


def add_entities(batch: Batch, width: int, seed: int) -> Batch:
    """The batch with an entity's vector at every eighth token, 15 % of them removed, 400 candidates."""
    generator = torch.Generator().manual_seed(seed)
    shape = batch["input_ids"].shape
    present = torch.rand(shape, generator=generator) < 0.125
    seen = present & (torch.rand(shape, generator=generator) >= 0.15)
    candidates = torch.randn(400, width, generator=generator)
    candidates[0] = 0.0
    labels = torch.randint(1, 400, shape, generator=generator)
    mask = seen.clone()
    mask[:, 0] = True
    return {
        **batch,
        "entity_embeds": candidates[labels] * seen[..., None],
        "entity_mask": mask,
        "entity_labels": torch.where(present, labels, -100),
        "entity_candidate_embeds": candidates,
    }


def add_branches(batch: Batch, seed: int) -> Batch:
    """Trees that fill the rows: words of 1 to 3 tokens, every third with two branches of 2 to 6 tokens."""
    rng = np.random.default_rng(seed)
    shape = batch["input_ids"].shape
    words, branches = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row in range(shape[0]):
        at = word = branch = 0
        while at < shape[1]:
            sizes = [int(rng.integers(1, 4)), *(int(size) for size in rng.integers(2, 7, 2) if word % 3 == 0)]
            for number, size in enumerate(sizes):
                branch += number > 0
                words[row, at : at + size], branches[row, at : at + size] = word, branch if number else 0
                at += size
            word += 1
    return {**batch, "word_index": torch.from_numpy(words), "branch_id": torch.from_numpy(branches)}


def mixed_lengths(rows: int, width: int, seed: int) -> list[int]:
    """Log-normal text lengths with a median near 200, as in real corpora."""
    rng = np.random.default_rng(seed)
    return [int(length) for length in np.clip(rng.lognormal(np.log(200), 0.6, rows), 16, width)]


def fill_rows(lengths: list[int], width: int, rows: int) -> list[list[int]]:
    """First-fit packing of an endless repetition of `lengths` into `rows` rows."""
    packed: list[list[int]] = [[] for _ in range(rows)]
    for length in lengths:
        for row in packed:
            if sum(row) + length <= width:
                row.append(length)
                break
    return packed


def forward_with(names: tuple[str, ...]) -> Callable[[nn.Module, Batch], torch.Tensor]:
    """A step function that passes the named inputs."""

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        return model(**{name: batch[name] for name in names if name in batch}).loss

    return loss


class GatheredBert(nn.Module):
    """Upstream's body and head with the same label gather as ours: what remains is the body alone."""

    def __init__(self, model: BertForMaskedLM):
        super().__init__()
        self.model = model

    def forward(self, labels: torch.Tensor, label_positions: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        states = self.model.bert(**inputs).last_hidden_state
        selected, targets = select_labelled(states, labels, label_positions)
        return classification_loss(self.model.cls(selected), targets)


def gathered_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    names = ("input_ids", "attention_mask", "token_type_ids", "labels", "label_positions")
    return model(**{name: batch[name] for name in names if name in batch})


def measure(variants: list[Variant], rounds: int, device: str, warmup: int) -> dict[str, tuple[float, float]]:
    """Median wall and processor seconds of one forward, backward and AdamW step per variant, rounds interleaved."""
    optimizers = {v.name: torch.optim.AdamW(v.model.parameters(), lr=1e-5, fused=device == "cuda") for v in variants}

    def step(variant: Variant) -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = variant.loss(variant.model, variant.batch)
        loss.backward()
        optimizers[variant.name].step()
        optimizers[variant.name].zero_grad(set_to_none=True)

    times: dict[str, list[tuple[float, float]]] = {v.name: [] for v in variants}
    for index in range(rounds + warmup):
        for variant in variants:
            repeat = 5 if device == "cuda" and index >= warmup else 1
            if device == "cuda":
                torch.cuda.synchronize()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(repeat):
                step(variant)
            if device == "cuda":
                torch.cuda.synchronize()
            if index >= warmup:
                times[variant.name].append(
                    ((time.perf_counter() - wall) / repeat, (time.process_time() - cpu) / repeat)
                )
    return {
        name: (statistics.median(t[0] for t in pairs), statistics.median(t[1] for t in pairs))
        for name, pairs in times.items()
    }


def cpu_variants(vocab_size: int) -> list[Variant]:
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    }
    torch.manual_seed(0)
    upstream = BertForMaskedLM(BertConfig(**sizes, attn_implementation="sdpa"))
    ours = SpanBertConfig(**sizes, attn_implementation="sdpa")
    batch = make_rows([[512]] * 16, 512, vocab_size, seed=0)
    for name in ("position_ids", "sequence_ids", "attention_mask"):
        del batch[name]
    # The published sizes of the entity side scaled as the text side is, and as they are.
    entities = {
        width: ErnieThuConfig(**sizes, entity_hidden_size=width, attn_implementation="sdpa") for width in (32, 100)
    }
    kbert = KBertForMaskedLM(KBertConfig(**sizes, attn_implementation="sdpa"))
    tokens = 16 * 512
    mlm = ("input_ids", "token_type_ids", "labels", "label_positions")
    return [
        Variant("upstream BertForMaskedLM", upstream, batch, forward_with(mlm[:3]), tokens),
        Variant("upstream body, our label gather", GatheredBert(upstream), batch, gathered_loss, tokens),
        Variant("SpanBertForMaskedLM", SpanBertForMaskedLM(ours), batch, forward_with(mlm), tokens),
        Variant(
            "SpanBertForPreTraining",
            SpanBertForPreTraining(ours),
            batch,
            forward_with((*mlm, "span_boundaries", "span_labels")),
            tokens,
        ),
        Variant(
            "SpanBertForPreTraining, tokens alone", SpanBertForPreTraining(ours), batch, forward_with(mlm), tokens
        ),
        *(
            Variant(
                f"ErnieThuForPreTraining, entities of {width}",
                ErnieThuForPreTraining(config),
                add_entities(batch, width, seed=0),
                forward_with((*mlm, *ENTITY_INPUTS)),
                tokens,
            )
            for width, config in entities.items()
        ),
        Variant("KBertForMaskedLM, no knowledge", kbert, batch, forward_with(mlm), tokens),
        Variant(
            "KBertForMaskedLM, knowledge", kbert, add_branches(batch, seed=0), forward_with((*mlm, *KNOWLEDGE)), tokens
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds (default 7)")
    parser.add_argument("--vocab-size", type=int, default=30522)
    options = parser.parse_args(arguments)

    variants = cpu_variants(options.vocab_size)
    for variant in variants:
        variant.model.train()
    times = measure(variants, options.rounds, "cpu", warmup=1)

    base = times[variants[0].name]
    print(
        f"CPU, {torch.get_num_threads()} threads; torch {torch.__version__}; "
        f"median of {options.rounds} interleaved rounds\n"
    )
    print("| training step | ms | processor ms | time / upstream | k real tokens/s | per token / upstream |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for variant in variants:
        wall, cpu = times[variant.name]
        per_token = (wall / variant.real_tokens) / (base[0] / variants[0].real_tokens)
        print(
            f"| {variant.name} | {1e3 * wall:.1f} | {1e3 * cpu:.1f} | {wall / base[0]:.2f} | "
            f"{variant.real_tokens / wall / 1e3:.1f} | {per_token:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
