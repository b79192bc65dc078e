"""Time one compiled training step of every family beside upstream's BERT, and the attention paths of packed rows.

    python scripts/bench_gpu.py                               # all families, BERT-base, 48 rows of 512, bf16
    python scripts/bench_gpu.py --families upstream spanbert  # some of them
    python scripts/bench_gpu.py --attention                   # rows of 512 to 8,192 by sdpa, flex, flash attention
    python scripts/bench_gpu.py --size tiny --device cpu      # that it runs, anywhere

A step is forward, backward and AdamW. Each model is built, compiled, warmed up, timed and given back before the next,
so that the peak of memory is its own. Figures are medians of `--rounds`; the first step is timed again at the end,
which shows how far the machine drifted. Tokens per second count tokens that are not padding.
"""

import argparse
import dataclasses
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from bench_job import SIZES
from bench_step import (
    ENTITY_INPUTS,
    KNOWLEDGE,
    MLM_INPUTS,
    Batch,
    Variant,
    add_branches,
    add_entities,
    fill_rows,
    forward_with,
    make_rows,
    measure,
    mixed_lengths,
)
from transformers import BertConfig, BertForMaskedLM

import hf_ptm_ext

OURS = (*MLM_INPUTS, "label_positions")
SPANS = ("span_boundaries", "span_labels")
MODES = ("lm_mode", "source_lengths", "next_sentence_label")
NGRAMS = ("ngram_ids", "ngram_positions", "ngram_lengths")
LONGEST_TEXT = 512  # of packed rows, however long they are
ENTITY_WIDTH = 100
NGRAM_LINES = 104_089  # of ZEN's lexicon
COLUMNS = ("ms", "k real tok/s", "per token / upstream", "GiB", "compile s")


class Rows:
    """Batches of one size, made when they are asked for."""

    def __init__(self, rows: int, length: int, vocab_size: int):
        self.rows, self.length, self.vocab_size = rows, length, vocab_size

    def made(self, lengths: list[list[int]], *without: str) -> Batch:
        """Rows of sequences of these lengths."""
        batch = make_rows(lengths, self.length, self.vocab_size, seed=0)
        return {name: value for name, value in batch.items() if name not in without}

    def full(self) -> Batch:
        """One text a row, without padding."""
        return self.made([[self.length]] * self.rows, "attention_mask", "position_ids", "sequence_ids")

    def padded(self) -> Batch:
        """One text a row, of mixed lengths."""
        lengths = [[length] for length in mixed_lengths(self.rows, self.length, seed=0)]
        return self.made(lengths, "position_ids", "sequence_ids")

    def packed(self) -> Batch:
        """Texts of mixed lengths, as many as a row takes."""
        longest = min(self.length, LONGEST_TEXT)
        texts = mixed_lengths(8 * self.rows * (self.length // longest), longest, seed=1)
        return self.made(fill_rows(texts, self.length, self.rows), "attention_mask")

    def moded(self) -> Batch:
        """UniLM's: packed, in four modes, half of each text as the source, whether its second half is the next."""
        batch = self.packed()
        ids = batch["sequence_ids"]
        most = int(ids.max())
        lengths = (ids[:, None] == torch.arange(1, most + 1)[None, :, None]).sum(-1)
        modes = torch.arange(self.rows * most).view(self.rows, most) % 4
        return {**batch, "lm_mode": modes, "source_lengths": lengths // 2, "next_sentence_label": modes // 2}

    def with_ngrams(self) -> Batch:
        """ZEN's: packed, an n-gram of 3 tokens at every eighth."""
        batch = self.packed()
        places = torch.arange(0, self.length - 3, 8).repeat(self.rows, 1)
        inside = (batch["sequence_ids"].gather(1, places) == batch["sequence_ids"].gather(1, places + 2)).long()
        numbers = (1 + torch.arange(places.numel()).view(places.shape) * 7 % (NGRAM_LINES - 1)) * inside
        return {**batch, "ngram_ids": numbers, "ngram_positions": places * inside, "ngram_lengths": 3 * inside}

    def translated(self) -> Batch:
        """A source a row and a target of half its length."""
        batch = self.full()
        return {"input_ids": batch["input_ids"], "labels": batch["input_ids"][:, : self.length // 2].clone()}

    def classified(self) -> Batch:
        """A class for a text."""
        batch = self.padded()
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": self.classes()}

    def classes(self) -> torch.Tensor:
        """Three classes."""
        return torch.arange(self.rows) % 3


def upstream(sizes: dict[str, int], **fields: Any) -> torch.nn.Module:
    """Upstream's BERT."""
    return BertForMaskedLM(BertConfig(**sizes, attn_implementation="sdpa", **fields))


def ours(name: str, **fields: Any) -> Callable[..., torch.nn.Module]:
    """A class of ours with a BERT of these sizes."""

    def build(sizes: dict[str, int], **more: Any) -> torch.nn.Module:
        cls = getattr(hf_ptm_ext, name)
        return cls(cls.config_class(**{"attn_implementation": "sdpa", **sizes, **fields, **more}))

    return build


def around(name: str, *parts: str) -> Callable[..., torch.nn.Module]:
    """A class of ours around upstream's BERT of these sizes, with parts of its widths."""

    def build(sizes: dict[str, int]) -> torch.nn.Module:
        cls, encoder = getattr(hf_ptm_ext, name), {"model_type": "bert", **sizes}
        own = {f"{part}_{field}": sizes[field] for part in parts for field in SIZES["base"] if "layers" not in field}
        return cls(cls.config_class(encoder_config=encoder, num_labels=3, **own))

    return build


def encoder_decoder(name: str, **fields: Any) -> Callable[..., torch.nn.Module]:
    """An encoder-decoder of ours, half of the layers on each side."""

    def build(sizes: dict[str, int]) -> torch.nn.Module:
        layers, heads = max(sizes["num_hidden_layers"] // 2, 1), sizes["num_attention_heads"]
        own: dict[str, Any] = {"vocab_size": sizes["vocab_size"], "d_model": sizes["hidden_size"]}
        for side in ("encoder", "decoder"):
            own |= {f"{side}_layers": layers, f"{side}_attention_heads": heads}
            own[f"{side}_ffn_dim"] = sizes["intermediate_size"]
        return ours(name)({}, **own, **fields)

    return build


def ib_bert(sizes: dict[str, int]) -> torch.nn.Module:
    """IB-BERT: twice the layers of BERT, its widths two thirds outside and four thirds inside, as in the paper."""
    width = sizes["hidden_size"]
    own = {
        "hidden_size": 2 * width // 3 // 16 * 16,
        "intra_bottleneck_size": 4 * width // 3 // 16 * 16,
        "intermediate_size": 4 * sizes["intermediate_size"] // 3,
        "num_hidden_layers": 2 * sizes["num_hidden_layers"],
        "num_attention_heads": 4,
        "embedding_size": width // 6,
    }
    return ours("IBBertForMaskedLM")({"vocab_size": sizes["vocab_size"]}, **own)


@dataclasses.dataclass
class Case:
    """A line of the first table: how the model is built, its batch, and what of it goes in."""

    build: Callable[..., torch.nn.Module]
    batch: Callable[[Rows], Batch]
    names: tuple[str, ...]
    compiles: bool = True


SEQUENCES = ("input_ids", "attention_mask", "labels")
LANGUAGES = ("langs", "decoder_langs")
FAMILIES = {
    "upstream": Case(upstream, Rows.full, MLM_INPUTS),
    "upstream_padded": Case(upstream, Rows.padded, MLM_INPUTS),
    "spanbert_padded": Case(ours("SpanBertForMaskedLM"), Rows.padded, OURS),
    "spanbert": Case(ours("SpanBertForMaskedLM"), Rows.packed, OURS),
    "spanbert_no_attention_dropout": Case(
        ours("SpanBertForMaskedLM", attention_probs_dropout_prob=0.0), Rows.packed, OURS
    ),
    "spanbert_spans": Case(ours("SpanBertForPreTraining"), Rows.packed, (*OURS, *SPANS)),
    "unilm": Case(ours("UniLMForPreTraining"), Rows.moded, (*OURS, *MODES)),
    "kbert": Case(ours("KBertForMaskedLM"), lambda rows: add_branches(rows.full(), seed=0), (*OURS, *KNOWLEDGE)),
    "ernie_thu": Case(
        ours("ErnieThuForPreTraining", entity_hidden_size=ENTITY_WIDTH),
        lambda rows: add_entities(rows.full(), ENTITY_WIDTH, seed=0),
        (*OURS, *ENTITY_INPUTS),
    ),
    "nezha": Case(ours("NezhaForMaskedLM"), Rows.packed, OURS),
    "zen": Case(ours("ZenForMaskedLM", word_vocab_size=NGRAM_LINES), Rows.with_ngrams, (*OURS, *NGRAMS)),
    "ib_bert": Case(ib_bert, Rows.packed, OURS),
    "mass": Case(encoder_decoder("MassForConditionalGeneration"), Rows.translated, SEQUENCES),
    "mass_nmt": Case(
        encoder_decoder("MassNmtForConditionalGeneration", lang2id={"en": 0, "fr": 1}),
        lambda rows: {
            **rows.translated(),
            "langs": torch.zeros(rows.rows).long(),
            "decoder_langs": torch.ones(rows.rows).long(),
        },
        (*SEQUENCES, *LANGUAGES),
    ),
    "k_adapter": Case(
        around("KAdapterForSequenceClassification", "adapter"), Rows.classified, SEQUENCES, compiles=False
    ),
    "weighted_layers": Case(
        around("WeightedLayersForSequenceClassification"), Rows.classified, SEQUENCES, compiles=False
    ),
    "distilled_bilstm": Case(
        lambda sizes: ours("DistilledBiLstmForSequenceClassification")(
            {"vocab_size": sizes["vocab_size"]}, attn_implementation=None, num_labels=3
        ),
        Rows.classified,
        SEQUENCES,
        compiles=False,
    ),
}


def real_tokens(batch: Batch) -> int:
    """Tokens that are not padding, targets of an encoder-decoder among them."""
    if "sequence_ids" in batch:
        return int((batch["sequence_ids"] > 0).sum())
    found = int(batch["attention_mask"].sum()) if "attention_mask" in batch else batch["input_ids"].numel()
    generated = batch["labels"].dim() == 2 and batch["labels"].shape != batch["input_ids"].shape
    return found + (batch["labels"].numel() if generated else 0)


def timed(
    build: Callable[[], torch.nn.Module], batch: Batch, names: tuple[str, ...], options: Any
) -> dict[str, float]:
    """One step: milliseconds, tokens a second, peak memory, seconds until it was compiled."""
    cuda = options.device == "cuda"
    torch._dynamo.reset()
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    model = build().to(options.device).train()
    tokens = real_tokens(batch)
    batch = {name: value.to(options.device) for name, value in batch.items()}
    step = Variant("", model, batch, forward_with(names), tokens)
    start = time.perf_counter()
    if options.compiled:
        step.model = torch.compile(model, dynamic=False, backend=options.backend)
    measure([step], 1, options.device, warmup=2)
    compiled = time.perf_counter() - start
    seconds, _ = measure([step], options.rounds, options.device, warmup=1)[""]
    memory = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    return {"ms": 1e3 * seconds, "tokens": tokens / seconds, "GiB": memory, "compile s": compiled}


def families(options: Any) -> Iterator[tuple[str, dict[str, float] | str]]:
    """The step of each family, upstream's before and after."""
    rows = Rows(options.rows, options.length, options.vocab_size)
    sizes = {"vocab_size": options.vocab_size, **SIZES[options.size]}
    names = [name for name in FAMILIES if options.families is None or name in options.families]
    for name in [*names, *names[:1]]:
        case = FAMILIES[name]
        options.compiled = case.compiles and not options.eager
        yield name, attempt(lambda case=case: timed(lambda: case.build(sizes), case.batch(rows), case.names, options))


def attention(options: Any) -> Iterator[tuple[str, dict[str, float] | str]]:
    """SpanBERT's step by length of packed rows, as many tokens in each, and by attention path."""
    sizes = {"vocab_size": options.vocab_size, "max_position_embeddings": LONGEST_TEXT, **SIZES[options.size]}
    options.compiled = not options.eager
    for length in options.lengths:
        batch = Rows(max(options.rows * options.length // length, 1), length, options.vocab_size).packed()
        for path in options.paths:
            for dropout in (0.0, 0.1):
                if dropout and path == "flex_attention":
                    continue
                fields = {"attn_implementation": path, "attention_probs_dropout_prob": dropout}
                build = lambda fields=fields: ours("SpanBertForMaskedLM")(sizes, **fields)  # noqa: E731
                name = f"{length} {path}, attention dropout {dropout:g}"
                yield name, attempt(lambda build=build, batch=batch: timed(build, batch, OURS, options))


def attempt(step: Callable[[], dict[str, float]]) -> dict[str, float] | str:
    """What was measured, or why it was not: the others go on."""
    try:
        return step()
    except (RuntimeError, ValueError, ImportError, NotImplementedError, TypeError) as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a table."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if cuda else "cpu")
    parser.add_argument("--size", choices=tuple(SIZES), default="base")
    parser.add_argument("--families", nargs="+", choices=tuple(FAMILIES))
    parser.add_argument("--attention", action="store_true", help="row length x attention path instead of families")
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--paths", nargs="+", default=["sdpa", "flex_attention", "flash_attention_2"])
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--vocab_size", type=int, default=30522)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--eager", action="store_true", help="not compiled")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--output", help="where the figures go, as JSON")
    options = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = True
    place = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{place}; torch {torch.__version__}; {options.size}, {options.rows} rows of {options.length}\n")
    print(f"| training step | {' | '.join(COLUMNS)} |")
    print(f"| --- |{' ---: |' * len(COLUMNS)}")
    found: list[tuple[str, dict[str, float] | str]] = []
    first: float | None = None
    for name, one in (attention if options.attention else families)(options):
        found.append((name, one))
        if isinstance(one, str):
            print(f"| {name} | {one} |", flush=True)
            continue
        first = first or one["tokens"]
        cells = (one["ms"], one["tokens"] / 1e3, first / one["tokens"], one["GiB"], one["compile s"])
        print(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} |", flush=True)
    if options.output:
        Path(options.output).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
