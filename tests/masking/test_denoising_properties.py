"""What must hold for any rows: infilling is a loop over spans, sentinels give the text back, nothing crosses rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.masking import (
    RandomTokens,
    Segments,
    append_to_rows,
    find_sentences,
    index_ranges,
    infill,
    insert_tokens,
    pad_ragged,
    permuted_sentences,
    poisson_length_probabilities,
    rotated,
    row_index,
    row_offsets,
    row_positions,
    sample_infilling_spans,
    sample_span_corruption,
    sentinel_sequences,
)

MASK, RANDOM, STOP, BOS, EOS = 9, 7, 6, 0, 2


@st.composite
def flat_rows(draw):
    """Rows <s> text </s> of any length, laid end to end; some of nothing but special tokens."""
    sizes = np.array(draw(st.lists(st.integers(0, 30), min_size=1, max_size=5)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = [np.concatenate([[BOS], rng.integers(10, 40, size), [EOS]]) for size in sizes]
    for row in rows:
        row[1:-1][rng.random(len(row) - 2) < 0.2] = STOP
    lengths = sizes + 2
    start = np.cumsum(lengths) - lengths
    return np.concatenate(rows), lengths, Segments(np.arange(len(sizes)), start + 1, start + lengths - 1), rng


def loop_infill(tokens, lengths, spans, fates, replace_length):
    """Text infilling one span and one token at a time, from its description."""
    noisy, kept = tokens.tolist(), [True] * len(tokens)
    for _, start, _, fate in sorted(zip(*spans, fates, strict=True), key=lambda span: -span[1]):
        noisy[start] = RANDOM if fate else MASK
    for _, start, stop, fate in sorted(zip(*spans, fates, strict=True), key=lambda span: -span[1]):
        for place in range(start, stop):
            if replace_length == -1:
                noisy[place] = RANDOM if fate else MASK
            elif replace_length == 0 or place > start:
                kept[place] = False
    rows = row_index(lengths)
    out = [[] for _ in lengths]
    for token, keep, row in zip(noisy, kept, rows, strict=True):
        if keep:
            out[row].append(token)
    return out


@settings(max_examples=120, deadline=None)
@given(flat_rows(), st.floats(0, 1), st.sampled_from([-1, 0, 1]), st.sampled_from([0.0, 1.0]))
def test_infilling_is_the_loop(rows, ratio, replace_length, random_ratio):
    tokens, lengths, body, rng = rows
    starts = np.zeros(len(tokens), dtype=bool)
    inside = index_ranges(body.start, body.lengths)
    starts[inside] = rng.random(len(inside)) < 0.6
    drawn = sample_infilling_spans(starts, body, ratio, poisson_length_probabilities(2.0), rng)
    noisy, sizes = infill(
        tokens,
        lengths,
        drawn.spans,
        rng,
        mask_token_id=MASK,
        random_tokens=RandomTokens(np.array([RANDOM])),
        random_ratio=random_ratio,
        replace_length=replace_length,
    )
    expected = loop_infill(tokens, lengths, drawn.spans, [random_ratio] * len(drawn.words), replace_length)
    assert [row.tolist() for row in np.split(noisy, np.cumsum(sizes)[:-1])] == expected


def test_overlapping_masks_take_the_fate_of_the_first_span():
    """One mask for each token, spans [1, 4) and [3, 6): the first one decides at 3."""
    spans = Segments(np.array([0, 0]), np.array([3, 1]), np.array([6, 4]))
    seen = set()
    for seed in range(40):
        noisy, _ = infill(
            np.arange(10, 18),
            np.array([8]),
            spans,
            np.random.default_rng(seed),
            mask_token_id=MASK,
            random_tokens=RandomTokens(np.array([RANDOM])),
            random_ratio=0.5,
            replace_length=-1,
        )
        assert len(set(noisy[1:4])) == 1
        assert len(set(noisy[4:6])) == 1
        seen.add((noisy[1], noisy[5]))
    assert len(seen) == 4


@settings(max_examples=80, deadline=None)
@given(flat_rows(), st.integers(0, 5), st.floats(0, 1))
def test_insertions_leave_the_text(rows, most, random_ratio):
    tokens, lengths, body, rng = rows
    counts = rng.integers(0, most + 1, len(lengths))
    longer, sizes = insert_tokens(
        tokens,
        body,
        lengths,
        counts,
        rng,
        mask_token_id=MASK,
        random_tokens=RandomTokens(np.array([RANDOM])),
        random_ratio=random_ratio,
    )
    assert (sizes == lengths + counts).all()
    for row, new in enumerate(np.split(longer, np.cumsum(sizes)[:-1])):
        is_new = np.isin(new, [MASK, RANDOM])
        assert new[~is_new].tolist() == np.split(tokens, np.cumsum(lengths)[:-1])[row].tolist()
        assert is_new.sum() == counts[row]
        assert (new == RANDOM).sum() == np.ceil(counts[row] * random_ratio)
        assert not is_new[[0, -1]].any()


@settings(max_examples=80, deadline=None)
@given(flat_rows(), st.floats(0, 1))
def test_moves_keep_rows_sentences_and_ends(rows, ratio):
    tokens, lengths, body, rng = rows
    sentences = find_sentences(tokens == STOP, body)
    of_row = row_index(lengths)
    for order in (
        permuted_sentences(sentences, len(tokens), ratio, rng),
        rotated(body, len(tokens), ratio, rng),
    ):
        assert sorted(order.tolist()) == list(range(len(tokens)))
        assert (of_row[order] == of_row).all()
        ends = np.concatenate([row_offsets(lengths), np.cumsum(lengths) - 1])
        assert (order[ends] == ends).all()
    order = permuted_sentences(sentences, len(tokens), ratio, rng).tolist()
    for start, stop in zip(sentences.start.tolist(), sentences.stop.tolist(), strict=True):
        at = order.index(start)
        assert order[at : at + stop - start] == list(range(start, stop))


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 120), min_size=1, max_size=6),
    density=st.floats(0.01, 0.99),
    mean=st.floats(0.5, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_spans_and_sentinels_give_the_text_back(lengths, density, mean, seed):
    rng = np.random.default_rng(seed)
    lengths = np.array(lengths)
    tokens = rng.integers(0, 500, lengths.sum())
    spans = sample_span_corruption(lengths, rng, noise_density=density, mean_noise_span_length=mean)
    sentinels = np.arange(1000, 1200)[::-1]
    (inputs, input_lengths), (targets, target_lengths) = sentinel_sequences(tokens, lengths, spans, sentinels)
    texts = np.split(tokens, np.cumsum(lengths)[:-1])
    sources = np.split(inputs, np.cumsum(input_lengths)[:-1])
    answers = np.split(targets, np.cumsum(target_lengths)[:-1])
    for text, source, answer in zip(texts, sources, answers, strict=True):
        used = source[source >= 1000]
        assert used.tolist() == sentinels[: len(used)].tolist() == answer[answer >= 1000].tolist()
        assert source[0] < 1000
        assert answer[0] >= 1000 > answer[-1]
        assert source[-1] >= 1000  # the last token is always noise
        pieces = np.split(answer, np.flatnonzero(answer >= 1000))[1:]
        restored = []
        for token in source.tolist():
            restored += pieces[sentinels.tolist().index(token)][1:].tolist() if token >= 1000 else [token]
        assert restored == text.tolist()


def test_too_few_sentinels():
    noise = Segments(np.array([0, 0]), np.array([1, 3]), np.array([2, 4]))
    with pytest.raises(ValueError, match="must have one sentinel for each noise span of a row, got 1 for 2"):
        sentinel_sequences(np.arange(4), np.array([4]), noise, np.array([99]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.booleans())
def test_flat_rows_and_back(sizes, left):
    lengths = np.array(sizes)
    values = np.arange(lengths.sum()) + 1
    padded = pad_ragged(values, lengths, 0, left=left)
    assert (padded[padded > 0] == values).all()
    assert ((padded > 0).sum(axis=1) == lengths).all()
    if padded.shape[1]:
        assert (padded[lengths > 0, -1 if left else 0] > 0).all()
    assert row_positions(lengths).tolist() == [i for n in sizes for i in range(n)]
    ended = append_to_rows(values, lengths, -1)
    assert [row.tolist() for row in np.split(ended, np.cumsum(lengths + 1)[:-1])] == [
        [*range(start + 1, start + n + 1), -1] for start, n in zip(row_offsets(lengths), sizes, strict=True)
    ]
