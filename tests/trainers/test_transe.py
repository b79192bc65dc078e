"""TransE follows its loss and learns what translations can say."""

import numpy as np
import pytest
import torch

from hf_ptm_ext.data import NegativeSampler
from hf_ptm_ext.metrics.link_prediction import filtered_ranks, link_prediction_scores
from hf_ptm_ext.trainers import TransEOptions, train_transe


def families(people=40, houses=5):
    """Relation 0: people belong to a house; 1: a house stands in a city of its own; 2: people live in that city."""
    triples = []
    for house in range(houses):
        triples.append((people + house, 1, people + houses + house))
    for person in range(people):
        triples.append((person, 0, people + person % houses))
        triples.append((person, 2, people + houses + person % houses))
    return np.array(triples), people + 2 * houses


def score(vectors, triples, known, norm):
    entities, relations = torch.from_numpy(vectors.entities), torch.from_numpy(vectors.relations)

    def distances(fixed, relation, heads):
        answer = entities[fixed] + (-relations[relation] if heads else relations[relation])
        return torch.cdist(answer, entities, p=float(norm)).numpy()

    return link_prediction_scores(filtered_ranks(triples, known, len(entities), distances)[0])


@pytest.mark.parametrize(("norm", "margin"), [(1, 3.0), (2, 1.0)])
def test_held_out_links_follow_from_two_others(norm, margin):
    triples, entities = families()
    held_out = (triples[:, 1] == 2) & (triples[:, 0] % 4 == 3)
    sampler = NegativeSampler(triples[~held_out], entities, 3)
    options = TransEOptions(
        dimension=16, epochs=150, margin=margin, norm=norm, negatives=4, batch_size=16, learning_rate=0.01
    )
    vectors = train_transe(triples[~held_out], entities, 3, sampler.draw, options)
    assert vectors.losses[-1] < vectors.losses[0] / 3
    assert score(vectors, triples[held_out], triples, norm)["mrr"] > 0.8  # by chance: below 0.13
    np.testing.assert_allclose(np.linalg.norm(vectors.entities, axis=1), 1.0, atol=1e-5)


def test_the_seed_decides_everything():
    triples, entities = families(8, 2)
    sampler = NegativeSampler(triples, entities, 3)

    def train(seed):
        return train_transe(triples, entities, 3, sampler.draw, TransEOptions(dimension=8, epochs=3, seed=seed))

    first, again, other = train(1), train(1), train(2)
    np.testing.assert_array_equal(first.entities, again.entities)
    np.testing.assert_array_equal(first.relations, again.relations)
    assert first.losses == again.losses
    assert not np.allclose(first.entities, other.entities)


def test_the_loss_of_an_epoch_is_the_formula():
    """One batch, one corruption each, always of the tail by its neighbour: the first epoch's loss by hand."""
    triples = np.array([[0, 0, 1], [1, 0, 2]])
    sides = []

    def draw(rows, heads, rng):
        sides.append(heads)
        return np.where(heads, 3, 4)

    options = TransEOptions(dimension=4, epochs=1, margin=1.5, norm=2, negatives=1, learning_rate=1e-9, seed=5)
    vectors = train_transe(triples, 5, 1, draw, options)
    order = np.random.default_rng(5)
    for rows in (5, 1):
        order.uniform(-1, 1, (rows, 4))
    rows = triples[order.permutation(2)]
    entity, relation = vectors.entities, vectors.relations[0]
    losses = []
    for (head, _, tail), replaced in zip(rows, sides[0], strict=True):
        true = np.linalg.norm(entity[head] + relation - entity[tail])
        false = entity[3] + relation - entity[tail] if replaced else entity[head] + relation - entity[4]
        losses.append(max(0.0, 1.5 + true - np.linalg.norm(false)))
    assert vectors.losses[0] == pytest.approx(np.mean(losses), abs=1e-5)


def test_entities_without_a_triple_keep_a_unit_vector():
    vectors = train_transe(
        np.array([[0, 0, 1]]), 4, 1, lambda rows, heads, rng: np.full(len(rows), 1), TransEOptions(epochs=1)
    )
    np.testing.assert_allclose(np.linalg.norm(vectors.entities[3]), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimension": 0}, "`dimension` must be positive, got 0"),
        ({"margin": 0.0}, "`margin` must be above 0"),
        ({"norm": 3}, "`norm` must be 1 or 2, got 3"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        TransEOptions(**options)


def test_no_triples():
    with pytest.raises(ValueError, match="`triples` must have at least one row"):
        train_transe(np.zeros((0, 3), dtype=np.int64), 2, 1, lambda rows, heads, rng: rows[:, 0])
