"""The same seed draws the same masks; epochs, workers, processes and calls draw others; a resumed job goes on."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hf_ptm_ext.collators import (
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForNgramMasking,
    DataCollatorForSpanMasking,
    DataCollatorForWholeWordMasking,
)

ROW = [2] + [69, 9, 40, 81] * 25 + [3]
COLLATORS = [
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForWholeWordMasking,
    DataCollatorForSpanMasking,
    DataCollatorForNgramMasking,
]


@pytest.fixture(params=COLLATORS, ids=lambda c: c.__name__[15:])
def make(request, wordpiece):
    return lambda **options: request.param(wordpiece, **options)


def draw(collator):
    batch = collator([ROW] * 2)
    return batch["input_ids"], batch["labels"]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_seed_epoch_and_call(make):
    first, second = make(seed=1), make(seed=1)
    a, b = draw(first), draw(first)
    assert not same(a, b)
    assert same(a, draw(second))
    assert same(b, draw(second))
    assert not same(a, draw(make(seed=2)))
    first.set_epoch(1)
    c = draw(first)
    assert not same(a, c)
    second.set_epoch(1)
    assert same(c, draw(second))
    first.set_epoch(0)
    assert same(a, draw(first))


def test_rows_of_a_batch_and_unseeded_collators_differ(make):
    collator = make()
    ids, labels = draw(collator)
    assert not torch.equal(labels[0], labels[1])
    assert not same((ids, labels), draw(make()))


def test_global_state_is_neither_read_nor_moved(make):
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    a = draw(make(seed=1))
    assert (np.random.get_state()[1] == before[0]).all()
    assert torch.equal(torch.get_rng_state(), before[1])
    np.random.seed(7)
    torch.manual_seed(7)
    assert same(a, draw(make(seed=1)))


@pytest.mark.parametrize("seed", [None, 4])
def test_a_resumed_job_draws_the_same_masks(make, seed):
    job = make(seed=seed)
    job.set_epoch(3)
    draw(job)
    state = pickle.loads(pickle.dumps(job.state_dict()))
    expected = [draw(job) for _ in range(2)]
    resumed = make(seed=seed)
    resumed.load_state_dict(state)
    resumed.set_epoch(3)
    assert all(same(masks, draw(resumed)) for masks in expected)
    with pytest.raises(ValueError, match="`calls`"):
        resumed.load_state_dict({"entropy": 1, "epoch": 0})
    with pytest.raises(ValueError, match="`epoch`"):
        resumed.set_epoch(-1)


def test_copies_and_pickles_go_on_alike(make):
    collator = make(seed=1)
    draw(collator)
    twins = [copy.deepcopy(collator), pickle.loads(pickle.dumps(collator))]
    expected = draw(collator)
    assert all(same(expected, draw(twin)) for twin in twins)


def test_processes_of_a_distributed_job_differ(make, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    a = draw(make(seed=1))
    monkeypatch.setenv("RANK", "1")
    assert not same(a, draw(make(seed=1)))


def worker_masks(collator, context, base_seed):
    """Labels of one pass with two workers; the loader's generator gives the workers their seeds."""
    generator = torch.Generator().manual_seed(base_seed)
    loader = DataLoader(
        [ROW] * 4,
        batch_size=1,
        num_workers=2,
        collate_fn=collator,
        multiprocessing_context=context,
        generator=generator,
    )
    return [batch["labels"] for batch in loader]


def all_different(masks):
    return all(not torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


@pytest.mark.slow
def test_collators_work_in_spawned_workers(wordpiece):
    assert all_different(worker_masks(DataCollatorForSpanMasking(wordpiece, seed=1), "spawn", 0))


def test_workers_and_epochs_draw_their_own_masks(make):
    collator = make(seed=1)
    first = worker_masks(collator, "fork", 0)
    collator.set_epoch(1)
    assert all_different([*first, *worker_masks(collator, "fork", 1), *worker_masks(collator, "fork", 0)])
    collator.set_epoch(0)
    assert same(first, worker_masks(collator, "fork", 0))
