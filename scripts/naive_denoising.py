"""The sequence-to-sequence noises one row at a time: what `bench_collators.py` compares with.

Each row is a tensor that is corrupted as its objective is described, as the items of a Dataset are made, and the rows
of a batch are padded together. Rows of token ids `<s> text </s>`, no options that the benchmark does not use.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence


@dataclass
class Vocabulary:
    """Ids that the loops need.

    Args:
        size: Number of ids.
        pad: Padding.
        end: End of a text.
        mask: The mask.
        first_random: Smallest id of random tokens.
        word_starts: Whether each id begins a word.
        full_stops: Ids that end a sentence.
        sentinels: Ids of the sentinels.
    """

    size: int
    pad: int
    end: int
    mask: int
    first_random: int
    word_starts: Sequence[bool]
    full_stops: set[int]
    sentinels: Sequence[int]


def padded(rows: list[torch.Tensor], fill: int) -> torch.Tensor:
    """Rows as one tensor."""
    return pad_sequence(rows, batch_first=True, padding_value=fill)


def seq2seq_batch(
    sources: list[torch.Tensor], targets: list[torch.Tensor], vocabulary: Vocabulary, start: int
) -> dict[str, torch.Tensor]:
    """The four columns of an encoder-decoder."""
    shifted = [torch.cat([torch.tensor([start]), row[:-1]]) for row in targets]
    return {
        "input_ids": padded(sources, vocabulary.pad),
        "attention_mask": padded([torch.ones_like(row) for row in sources], 0),
        "decoder_input_ids": padded(shifted, vocabulary.pad),
        "labels": padded(targets, -100),
    }


def mass(rows: list[list[int]], vocabulary: Vocabulary, rng: random.Random) -> dict[str, torch.Tensor]:
    """MASS, summarization variant: windows of 64, 15 %."""
    sources, fed, positions, labels = [], [], [], []
    for row in rows:
        text = torch.tensor(row)
        source = text.clone()
        hidden: list[int] = []
        for begin in range(1, len(row), 64):
            end = min(begin + 64, len(row))
            length = int((end - begin) * 0.15)
            start = rng.randint(begin, end - length)
            hidden += range(start, start + length)
        for place in hidden:
            fate = rng.random()
            if fate < 0.8:
                source[place] = vocabulary.mask
            elif fate < 0.9:
                source[place] = rng.randrange(vocabulary.first_random, vocabulary.size)
        places = torch.tensor(hidden)
        sources.append(source)
        fed.append(text[places - 1])
        positions.append(places - 1)
        labels.append(text[places])
    return {
        "input_ids": padded(sources, vocabulary.pad),
        "attention_mask": padded([torch.ones_like(row) for row in sources], 0),
        "decoder_input_ids": padded(fed, vocabulary.pad),
        "decoder_position_ids": padded(positions, 0),
        "labels": padded(labels, -100),
    }


def poisson(mean: float, rng: random.Random) -> int:
    """One Poisson number (Knuth)."""
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count


def permute_sentences(row: torch.Tensor, vocabulary: Vocabulary, rng: random.Random) -> torch.Tensor:
    """Shuffle the sentences between the first and the last token."""
    sentences, begin, before = [], 1, False
    for place, token in enumerate(row[1:-1].tolist(), start=1):
        is_stop = token in vocabulary.full_stops or place == len(row) - 2
        if is_stop and not before:
            sentences.append(row[begin : place + 1])
            begin = place + 1
        before = is_stop
    rng.shuffle(sentences)
    return torch.cat([row[:1], *sentences, row[begin:]])


def infill_row(row: torch.Tensor, vocabulary: Vocabulary, rng: random.Random) -> torch.Tensor:
    """Text infilling of one row: 30 % of the words, Poisson lengths of 3.5."""
    starts = [
        place for place, token in enumerate(row[1:-1].tolist(), start=1) if place == 1 or vocabulary.word_starts[token]
    ]
    budget = math.ceil(len(starts) * 0.3)
    lengths, covered, insertions = [], 0, 0
    while covered < budget:
        length = min(poisson(3.5, rng), budget - covered)
        covered += length
        if length:
            lengths.append(length)
        else:
            insertions += 1
    noisy = row.clone()
    kept = torch.ones(len(row), dtype=torch.bool)
    starting = set(starts)
    for start, length in zip(rng.sample(starts, len(lengths)), lengths, strict=True):
        is_random = rng.random() < 0.1
        noisy[start] = rng.randrange(1, vocabulary.size) if is_random else vocabulary.mask
        words, place = 1, start + 1
        while place < len(row) - 1:
            words += place in starting
            if words > length:
                break
            kept[place] = False
            place += 1
    noisy = noisy[kept]
    random_left = math.ceil(insertions * 0.1)
    for _ in range(insertions):
        place = rng.randint(1, len(noisy) - 1)
        new = rng.randrange(1, vocabulary.size) if random_left > 0 else vocabulary.mask
        noisy = torch.cat([noisy[:place], torch.tensor([new]), noisy[place:]])
        random_left -= 1
    return noisy


def text_infilling(rows: list[list[int]], vocabulary: Vocabulary, rng: random.Random) -> dict[str, torch.Tensor]:
    """BART: sentences permuted, spans infilled."""
    sources = [infill_row(permute_sentences(torch.tensor(row), vocabulary, rng), vocabulary, rng) for row in rows]
    return seq2seq_batch(sources, [torch.tensor(row) for row in rows], vocabulary, vocabulary.end)


def random_split(total: int, parts: int, rng: random.Random) -> list[int]:
    """`total` in `parts` parts that are not empty."""
    cuts = sorted(rng.sample(range(1, total), parts - 1))
    return [stop - start for start, stop in zip([0, *cuts], [*cuts, total], strict=True)]


def span_corruption(rows: list[list[int]], vocabulary: Vocabulary, rng: random.Random) -> dict[str, torch.Tensor]:
    """T5: 15 % noise in spans of 3."""
    sources, targets = [], []
    for row in rows:
        text = torch.tensor(row[1:-1])
        noise = min(max(round(len(text) * 0.15), 1), len(text) - 1)
        spans = max(1, round(noise / 3))
        source, target, place = [], [], 0
        clean_parts = random_split(len(text) - noise, spans, rng)
        for number, (clean, hidden) in enumerate(zip(clean_parts, random_split(noise, spans, rng), strict=True)):
            sentinel = torch.tensor([vocabulary.sentinels[number]])
            source += [text[place : place + clean], sentinel]
            target += [sentinel, text[place + clean : place + clean + hidden]]
            place += clean + hidden
        end = torch.tensor([vocabulary.end])
        sources.append(torch.cat([*source, end]))
        targets.append(torch.cat([*target, end]))
    return seq2seq_batch(sources, targets, vocabulary, vocabulary.pad)
