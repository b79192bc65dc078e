"""Which task each batch is of."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_ptm_ext.trainers import MixedBatchSampler, Mixing

LENGTHS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 40), min_size=1)


def task_of(batch, lengths):
    start = 0
    for name, length in lengths.items():
        if all(start <= row < start + length for row in batch):
            return name
        start += length
    raise AssertionError(f"{batch} has rows of several tasks")


@given(LENGTHS, st.integers(1, 9), st.booleans(), st.integers(0, 3))
def test_an_epoch_in_proportion_has_every_row_once(lengths, batch_size, shuffle_rows, epoch):
    sampler = MixedBatchSampler(lengths, batch_size, Mixing(shuffle_rows=shuffle_rows), seed=1)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert sorted(row for batch in batches for row in batch) == list(range(sum(lengths.values())))
    assert len(batches) == len(sampler)
    assert {task_of(batch, lengths) for batch in batches} == set(lengths)
    assert list(sampler) == batches, "batches are a function of seed and epoch"


@given(LENGTHS, st.integers(1, 9), st.sampled_from(["equal", "temperature", "main"]), st.floats(0.1, 3))
def test_other_mixtures_have_the_batches_they_announce(lengths, batch_size, strategy, number):
    mixing = Mixing(strategy, extra_task_ratio=number, temperature=number)
    sampler = MixedBatchSampler(lengths, batch_size, mixing)
    batches = list(sampler)
    counts = Counter(task_of(batch, lengths) for batch in batches)
    assert len(batches) == len(sampler) == sum(sampler.counts.values())
    if strategy == "main":  # of which the others' are drawn
        main = next(iter(lengths))
        assert counts[main] == sampler.counts[main] == -(-lengths[main] // batch_size)
    else:
        assert counts == sampler.counts
    for batch in batches:
        assert 0 < len(batch) <= batch_size
        assert len(set(batch)) == len(batch)


@given(LENGTHS, st.integers(1, 9), st.integers(2, 4))
def test_processes_share_the_batches(lengths, batch_size, processes):
    whole = list(MixedBatchSampler(lengths, batch_size, Mixing(), seed=5))
    shares = [
        list(MixedBatchSampler(lengths, batch_size, Mixing(), 5, index, processes)) for index in range(processes)
    ]
    assert len({len(share) for share in shares}) == 1
    dealt = [batch for group in zip(*shares, strict=True) for batch in group]
    assert dealt[: len(whole)] == whole
    assert all(batch in whole for batch in dealt[len(whole) :])


def test_epochs_differ():
    sampler = MixedBatchSampler({"a": 20, "b": 20}, 4, Mixing())
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_the_reference_cuts_batches_in_the_order_of_the_rows():
    batches = list(MixedBatchSampler({"a": 6}, 2, Mixing(shuffle_rows=False)))
    assert sorted(batches) == [[0, 1], [2, 3], [4, 5]]


def test_shares():
    lengths = {"a": 800, "b": 80}
    assert Mixing("equal").batches_per_epoch(lengths, 8) == {"a": 55, "b": 55}
    assert Mixing("temperature", temperature=1.0).batches_per_epoch(lengths, 8) == {"a": 100, "b": 10}
    main = Mixing("main", main_task="b", extra_task_ratio=2.0).batches_per_epoch(lengths, 8)
    assert main == {"a": 20, "b": 10}
    assert Mixing("main", extra_task_ratio=9.0).batches_per_epoch(lengths, 8) == {"a": 100, "b": 10}, "none twice"
    ten = {"main": 80, **{f"small{number}": 8 for number in range(10)}}
    assert sum(Mixing("main", extra_task_ratio=0.1).batches_per_epoch(ten, 8).values()) == 11, "rounded over the whole"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mixing("random"), "`strategy` must be one of"),
        (lambda: Mixing("main", extra_task_ratio=-1), "`extra_task_ratio` must not be negative"),
        (lambda: Mixing("temperature", temperature=0), "`temperature` must be positive"),
        (lambda: MixedBatchSampler({"a": 0}, 2, Mixing()), r"without any: \['a'\]"),
        (lambda: MixedBatchSampler({"a": 3, "b": 0}, 2, Mixing("main")), r"without any: \['b'\]"),
        (lambda: MixedBatchSampler({"a": 1}, 0, Mixing()), "`batch_size` must be at least 1"),
        (lambda: MixedBatchSampler({"a": 1}, 1, Mixing("main", main_task="b")), "`main_task` must be one of"),
    ],
)
def test_impossible_mixtures_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
