"""Time our masking collators beside upstream's on real text and print the table that the README quotes.

One thread, batch 32 x 512, features as Python lists (as a Trainer delivers them) and as numpy rows, the same returned
columns on both sides. The collators take turns, round by round, so a busy machine slows all of them alike; CPU time
is taken, medians are quoted, and ratios compare medians of one run.

    python scripts/bench_collators.py                      # the embedded English corpus
    python scripts/bench_collators.py --text my_text.txt   # any text, one sentence or paragraph a line (.gz works)

The sequence-to-sequence noises have nothing upstream in PyTorch to compare with: they stand beside a loop over rows,
a tensor for each, as the items of a Dataset would be made (`naive_denoising.py`).
"""

from __future__ import annotations

import argparse
import gzip
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import naive_denoising
import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertTokenizerFast, DataCollatorForLanguageModeling
from transformers import DataCollatorForPermutationLanguageModeling as UpstreamPermutations

from hf_ptm_ext.collators import (
    DataCollatorForErnieMasking,
    DataCollatorForErnieTask,
    DataCollatorForInfoWord,
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForMassPreTraining,
    DataCollatorForNgramMasking,
    DataCollatorForPermutationLanguageModeling,
    DataCollatorForSentimentMasking,
    DataCollatorForSpanCorruption,
    DataCollatorForSpanMasking,
    DataCollatorForSupersenseMasking,
    DataCollatorForTextInfilling,
    DataCollatorForUnicoder,
    DataCollatorForWholeWordMasking,
    vocabulary_tables,
)
from hf_ptm_ext.data import PairPacker, PairRule, embedded_corpus, encode_documents
from hf_ptm_ext.data.sentence_pairs import PAIR_KINDS

BATCH, LENGTH = 32, 512
PAIR_GOAL = 200_000  # tokens a second
COLUMNS = ("input_ids", "token_type_ids", "attention_mask", "special_tokens_mask", "offset_mapping")
# ours: the upstream collator it is compared with and the ratio that must hold
GOALS = {"masked_lm": ("mlm", 8.0), "whole_word": ("wwm", 12.0), "span": ("mlm", 2.0)}
DENOISING_GOAL = 10.0  # times the plain loop
DENOISING = {
    "mass": ("MASS", DataCollatorForMassPreTraining, naive_denoising.mass),
    "text_infilling": ("text infilling", DataCollatorForTextInfilling, naive_denoising.text_infilling),
    "span_corruption": ("span corruption", DataCollatorForSpanCorruption, naive_denoising.span_corruption),
}
LABELS = {
    "mlm": "upstream MLM",
    "wwm": "upstream whole words",
    "masked_lm": "MLM",
    "whole_word": "whole words",
    "span": "spans and pairs (against upstream MLM)",
}


def read_lines(path: str | None) -> list[str]:
    """Lines of a text file, or of the embedded corpus."""
    if path is None:
        return [sentence for document in embedded_corpus("en") for sentence in document]
    opener: Callable[..., Any] = gzip.open if path.endswith(".gz") else open
    with opener(Path(path), "rt", encoding="utf-8") as stream:
        return [line.strip() for line in stream if line.strip()]


def train_tokenizer(lines: Iterable[str], vocab_size: int) -> BertTokenizerFast:
    """A WordPiece tokenizer of this text."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return BertTokenizerFast(tokenizer_object=tokenizer)


def make_batches(tokenizer: BertTokenizerFast, lines: list[str], count: int) -> list[list[dict[str, list[int]]]]:
    """Full rows of 512 tokens with the columns a Trainer would deliver, and offsets for upstream's whole words."""
    rows: list[dict[str, Any]] = []
    for start in range(0, len(lines), 60):
        encoded = tokenizer(
            " ".join(lines[start : start + 60]),
            truncation=True,
            max_length=LENGTH,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        for i, ids in enumerate(encoded["input_ids"]):
            if len(ids) == LENGTH:
                rows.append({name: encoded[name][i] for name in COLUMNS})
        if len(rows) >= count * BATCH:
            break
    if not rows:
        sys.exit("The text is too short for one row of 512 tokens. Pass a longer --text.")
    return [[rows[(i * BATCH + j) % len(rows)] for j in range(BATCH)] for i in range(count)]


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: values for name, values in row.items() if name not in names} for row in rows]


def as_numpy(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: np.asarray(values) for name, values in row.items()} for row in rows]


def measure(contenders: dict[str, tuple[Callable[[Any], Any], list[Any]]], rounds: int) -> dict[str, float]:
    """Median CPU seconds a batch of each contender, taking turns round by round."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, (collate, batches) in contenders.items():
            for features in batches:  # not timed: the collator before has emptied the caches
                collate(features)
            start = time.process_time()
            for features in batches:
                collate(features)
            times[name].append((time.process_time() - start) / len(batches))
    return {name: statistics.median(values) for name, values in times.items()}


def contenders_for(
    tokenizer: BertTokenizerFast, batches: list[list[dict[str, Any]]], kind: str
) -> dict[str, tuple[Callable[[Any], Any], list[Any]]]:
    """Every collator with the rows it is fed; both sides return input_ids, token_type_ids, attention_mask, labels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # upstream warns that whole words change the replacement probabilities
        upstream = {
            "mlm": DataCollatorForLanguageModeling(tokenizer, return_tensors=kind, seed=0),
            "wwm": DataCollatorForLanguageModeling(
                tokenizer,
                whole_word_mask=True,
                mask_replace_prob=1.0,
                random_replace_prob=0.0,
                return_tensors=kind,
                seed=0,
            ),
        }
    ours = {
        "masked_lm": DataCollatorForMaskedLanguageModeling(tokenizer, return_tensors=kind, seed=0),
        "whole_word": DataCollatorForWholeWordMasking(tokenizer, return_tensors=kind, seed=0),
        "span": DataCollatorForSpanMasking(tokenizer, return_tensors=kind, seed=0),
    }
    plain = [without(rows, "offset_mapping") for rows in batches]
    return {
        "mlm": (upstream["mlm"], plain),
        "wwm": (upstream["wwm"], batches),
        **{name: (collator, plain) for name, collator in ours.items()},
    }


def denoising_contenders(
    tokenizer: BertTokenizerFast, batches: list[list[dict[str, Any]]]
) -> dict[str, tuple[Callable[[Any], Any], list[Any]]]:
    """Every noise as our collator and as a loop, fed rows of token ids; both sides return the same columns."""
    tables = vocabulary_tables(tokenizer)
    sentinels = tokenizer.convert_tokens_to_ids([f"<extra_id_{i}>" for i in range(100)])
    vocabulary = naive_denoising.Vocabulary(
        size=len(tokenizer),
        pad=tokenizer.pad_token_id,
        end=tokenizer.sep_token_id,
        mask=tokenizer.mask_token_id,
        first_random=tokenizer.mask_token_id + 1,
        word_starts=(~tables.is_continuation).tolist(),
        full_stops={tokenizer.convert_tokens_to_ids(".")},
        sentinels=sentinels,
    )
    rng = random.Random(0)
    features = [without(rows, *(name for name in COLUMNS if name != "input_ids")) for rows in batches]
    contenders: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {}
    for name, (_, collator_class, loop) in DENOISING.items():

        def naive(rows: list[dict[str, Any]], loop: Callable[..., Any] = loop) -> dict[str, torch.Tensor]:
            return loop([row["input_ids"] for row in rows], vocabulary, rng)

        contenders[name] = (collator_class(tokenizer, seed=0), features)
        contenders[f"naive_{name}"] = (naive, features)
    return contenders


def bench_denoising(tokenizer: BertTokenizerFast, batches: list[list[dict[str, Any]]], rounds: int) -> list[str]:
    """Print the table of the sequence-to-sequence noises; return what misses its goal."""
    tokenizer.add_tokens([f"<extra_id_{i}>" for i in range(100)], special_tokens=True)
    contenders = denoising_contenders(tokenizer, batches)
    for name in DENOISING:
        columns = [sorted(collate(rows[0])) for collate, rows in (contenders[name], contenders[f"naive_{name}"])]
        if columns[0] != columns[1]:
            sys.exit(f"Collator and loop must return the same columns, got {columns}.")
    times = measure(contenders, rounds)
    print("\n| noise | lists: ms/batch | Mtok/s | plain loop: ms/batch | times the loop |")
    print("| --- | --- | --- | --- | --- |")
    missed = []
    for name, (label, _, _) in DENOISING.items():
        ours, naive = times[name], times[f"naive_{name}"]
        rate = BATCH * LENGTH / ours / 1e6
        print(f"| {label} | {ours * 1e3:.2f} | {rate:.1f} | {naive * 1e3:.1f} | {naive / ours:.1f} |")
        if naive / ours < DENOISING_GOAL or rate < 1:
            missed.append(label)
    return missed


def bench_objectives(tokenizer: BertTokenizerFast, batches: list[list[dict[str, Any]]], rounds: int) -> list[str]:
    """Print the rates of further objectives, of permutations beside upstream's; return what is below a million."""
    rows = [without(features, *(name for name in COLUMNS if name != "input_ids")) for features in batches]
    units = [
        [{**row, "phrase_ids": [place // 2 for place in range(len(row["input_ids"]))]} for row in batch]
        for batch in rows
    ]
    tagged = [[{**row, "labels": [token % 2 for token in row["input_ids"]]} for row in batch] for batch in rows]
    known = {"pos_tag_ids": 3, "word_polarity_ids": 1, "supersenses": 1 << 40}
    lexicon = [
        [{**row, **{name: [n] * len(row["input_ids"]) for name, n in known.items()}} for row in b] for b in rows
    ]
    half = LENGTH // 2
    translations = [
        [
            {
                "source_ids": row["input_ids"][1:half],
                "target_ids": row["input_ids"][half:-1],
                "negative_ids": row["input_ids"][1:half],
                "mixed_ids": row["input_ids"][1:-1],
                "mixed_sides": [place // 32 % 2 for place in range(LENGTH - 2)],
            }
            for row in batch
        ]
        for batch in rows
    ]
    contenders: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
        "n-grams of words": (DataCollatorForNgramMasking(tokenizer, seed=0), rows),
        "tokens drawn with replacement": (
            DataCollatorForMaskedLanguageModeling(tokenizer, budget="electra", random_replace_prob=0, seed=0),
            rows,
        ),
        "tokens by frequency": (
            DataCollatorForMaskedLanguageModeling(
                tokenizer, budget="exact", sample_alpha=0.5, token_counts=[1] * len(tokenizer), seed=0
            ),
            rows,
        ),
        "sentences and n-grams": (DataCollatorForInfoWord(tokenizer, seed=0), rows),
        "Unicoder's four tasks": (DataCollatorForUnicoder(tokenizer, languages=(0, 1), seed=0), translations),
        "phrases": (DataCollatorForErnieMasking(tokenizer, levels={"phrase": "phrase_ids"}, seed=0), units),
        "classes of tokens": (DataCollatorForErnieTask(tokenizer, 1), tagged),
        "sentiment": (DataCollatorForSentimentMasking(tokenizer, seed=0), lexicon),
        "supersenses": (DataCollatorForSupersenseMasking(tokenizer, seed=0), lexicon),
        "permutations": (DataCollatorForPermutationLanguageModeling(tokenizer, seed=0), rows),
        "upstream permutations": (UpstreamPermutations(tokenizer), rows),
    }
    times = measure(contenders, rounds)
    print("\n| objective | lists: ms/batch | Mtok/s |")
    print("| --- | --- | --- |")
    rates = {name: BATCH * LENGTH / seconds / 1e6 for name, seconds in times.items()}
    for name, rate in rates.items():
        print(f"| {name} | {times[name] * 1e3:.2f} | {rate:.1f} |")
    return [name for name, rate in rates.items() if rate < 1 and not name.startswith("upstream")]


def bench_pairs(tokenizer: BertTokenizerFast, rounds: int) -> list[str]:
    """Print the rates of sentence pairs out of token ids; return what is below 200,000 tokens a second."""
    documents = list(encode_documents(embedded_corpus("en")[:500], tokenizer))
    print("\n| sentence pairs | all documents at once: Mtok/s | one after the other |\n| --- | --- | --- |")
    missed = []
    for kind in PAIR_KINDS:
        rates = []
        for streamed in (False, True):
            spent = tokens = 0.0
            for seed in range(rounds):
                generator = np.random.default_rng(seed)
                packer = PairPacker(PairRule(kind), LENGTH - 3, generator)
                begin = time.process_time()
                if streamed:
                    pairs = [pair for document in documents for pair in packer.add(document)]
                else:
                    pairs = list(PairRule(kind).pairs(documents, LENGTH - 3, generator))
                spent += time.process_time() - begin
                tokens += sum(len(pair.first) + len(pair.second) for pair in pairs)
            rates.append(tokens / spent)
        missed += [f"pairs: {kind}"] * (min(rates) < PAIR_GOAL)
        print(f"| {kind} | {rates[0] / 1e6:.1f} | {rates[1] / 1e6:.1f} |")
    return missed


def main() -> int:
    """Print the table; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", default=None, help="text file (.txt or .txt.gz); default: the embedded corpus")
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = read_lines(args.text)
    tokenizer = train_tokenizer(lines, args.vocab_size)
    batches = make_batches(tokenizer, lines, count=4)
    columns = {
        name: sorted(collate(rows[0]))
        for name, (collate, rows) in contenders_for(tokenizer, batches, "pt").items()
        if name != "span"
    }
    if len({tuple(names) for names in columns.values()}) != 1:
        sys.exit(f"The collators must return the same columns, got {columns}.")
    lists = measure(contenders_for(tokenizer, batches, "pt"), args.rounds)
    arrays = measure(contenders_for(tokenizer, [as_numpy(rows) for rows in batches], "pt"), args.rounds)
    pieces = [i for rows in batches for row in rows for i in row["input_ids"]]
    share = sum(token.startswith("##") for token in tokenizer.convert_ids_to_tokens(pieces)) / len(pieces)
    print(f"Batch {BATCH} x {LENGTH}, one thread, {len(tokenizer)} pieces, {share:.0%} continuations, medians:\n")
    print("| collator | lists: ms/batch | Mtok/s | times upstream | numpy rows: ms/batch | times upstream |")
    print("| --- | --- | --- | --- | --- | --- |")
    missed = []
    for name, label in LABELS.items():
        rate = BATCH * LENGTH / lists[name] / 1e6
        cells = [label, f"{lists[name] * 1e3:.2f}", f"{rate:.1f}", "", f"{arrays[name] * 1e3:.2f}", ""]
        if name in GOALS:
            base, goal = GOALS[name]
            ratio = lists[base] / lists[name]
            cells[3] = f"{ratio:.1f} (goal {goal:g})"
            cells[5] = f"{arrays[base] / arrays[name]:.1f}"
            if ratio < goal or rate < 1:
                missed.append(label)
        print(f"| {' | '.join(cells)} |")
    missed += bench_objectives(tokenizer, batches, args.rounds)
    missed += bench_pairs(tokenizer, max(args.rounds // 4, 3))
    missed += bench_denoising(tokenizer, batches, max(args.rounds // 4, 3))
    if missed:
        print(f"\nBelow the goal: {', '.join(missed)}.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
