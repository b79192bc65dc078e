"""Streams of text: every token is a target once, and a row goes on in the next batch."""

import numpy as np
import pytest

from hf_ptm_ext.collators import DataCollatorForBackpropagationThroughTime
from hf_ptm_ext.data import ContiguousStreams

DOCUMENTS = [list(range(1, 40)), [], list(range(40, 45)), list(range(45, 102))]


@pytest.mark.parametrize("options", [{}, {"variable": True}, {"shuffle": True}, {"variable": True, "shuffle": True}])
def test_a_row_goes_on_in_the_next_batch_and_each_token_is_a_target_once(options):
    streams = ContiguousStreams(DOCUMENTS, batch_size=4, bptt=8, seed=1, **options)
    collator, seen = DataCollatorForBackpropagationThroughTime(return_tensors="np"), []
    for epoch in range(3):
        streams.set_epoch(epoch)
        rows = [streams[number] for number in range(len(streams))]
        batches = [collator(rows[start : start + 4]) for start in range(0, len(rows), 4)]
        assert [batch["segment"] for batch in batches] == list(range(len(rows) // 4))
        inputs = np.concatenate([batch["input_ids"] for batch in batches], axis=1)
        targets = np.concatenate([batch["shift_labels"] for batch in batches], axis=1)
        assert np.array_equal(inputs[:, 1:][targets[:, :-1] >= 0], targets[:, :-1][targets[:, :-1] >= 0])
        text = np.concatenate([inputs.ravel()[:1], targets.ravel()])
        text = text[text >= 0]
        assert sorted(text) == list(range(1, 102))
        seen.append((text.tolist(), [batch["input_ids"].shape[1] for batch in batches]))
    assert (seen[0][0] != seen[1][0]) == ("shuffle" in options)
    assert (seen[0][1] != seen[1][1]) == ("variable" in options)
    assert sorted(seen[0][1]) == sorted(seen[1][1])  # as many batches in each epoch
    assert all(isinstance(streams[0][name], np.ndarray) for name in ("input_ids", "labels"))


def test_lengths_are_the_papers():
    lengths = ContiguousStreams([np.ones(400_000, int)], batch_size=1, bptt=70, variable=True)._segment_lengths
    full = lengths[lengths > 52]
    assert 0.94 < len(full) / len(lengths) < 0.96
    assert abs(full.mean() - 69.5) < 0.5
    assert abs(full.std() - 5) < 0.4
    assert lengths.min() >= 5


def test_what_changes_the_rows_changes_their_fingerprint():
    digests = [
        ContiguousStreams(DOCUMENTS[:count], 2, 8, **options).rows_digest()
        for count in (3, 4)
        for options in ({}, {"variable": True}, {"shuffle": True}, {"seed": 1})
    ]
    assert len(set(digests)) == len(digests)
    streams = ContiguousStreams(DOCUMENTS, 2, 8, shuffle=True)
    before = streams.rows_digest()
    streams.set_epoch(3)
    assert streams.rows_digest() == before


def test_wrong_sizes_and_rows_are_refused():
    with pytest.raises(ValueError, match=r"`batch_size` = 4 streams need a target each, .* got 4"):
        ContiguousStreams([[1, 2, 3, 4]], batch_size=4)
    with pytest.raises(ValueError, match="`bptt` must be at least 1, got 0"):
        ContiguousStreams(DOCUMENTS, 2, bptt=0)
    streams, collator = ContiguousStreams(DOCUMENTS, 2, 8), DataCollatorForBackpropagationThroughTime()
    with pytest.raises(ValueError, match="one segment of neighbouring streams"):
        collator([streams[1], streams[2]])
    with pytest.raises(ValueError, match="Rows must be those of `ContiguousStreams`"):
        collator([{"input_ids": [1, 2]}])
    with pytest.raises(ValueError, match="`return_tensors` must be"):
        DataCollatorForBackpropagationThroughTime(return_tensors="tf")
