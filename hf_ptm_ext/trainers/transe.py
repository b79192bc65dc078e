"""TransE (Bordes et al., NIPS 2013): entity and relation vectors from triples alone.

    d(h, r, t) = ||h + r - t||,  entities on the unit sphere
    loss       = mean over triples and corruptions of max(0, margin + d(h, r, t) - d(h', r, t'))

Each corruption replaces the head or the tail with probability 1/2 and is never a known triple. From the paper: the
margin, the norms, unit entities, the initial values. Not from it: several corruptions a triple and Adam on the rows
that a batch touches instead of one corruption and plain descent; both only save epochs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from .stopping import NotFinite

# (triples, head is replaced, source of randomness) -> one replacing entity per triple
DrawNegatives = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]
FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class TransEOptions:
    """How TransE is trained.

    Args:
        dimension: length of the vectors (ERNIE-THU: 100).
        epochs: passes over the triples.
        margin: by how much a true triple must be nearer than a corrupted one.
        norm: 1 or 2, of the distance.
        negatives: corruptions of each triple (paper: 1).
        batch_size: triples of an update.
        learning_rate: of Adam; falls linearly to 0.
        seed: of initial values, order and corruptions.

    Raises:
        ValueError: an option is out of range.
    """

    dimension: int = 100
    epochs: int = 30
    margin: float = 5.0
    norm: int = 1
    negatives: int = 4
    batch_size: int = 2048
    learning_rate: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("dimension", "epochs", "negatives", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be positive, got {getattr(self, name)}.")
        for name in ("margin", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be above 0, got {getattr(self, name)}.")
        if self.norm not in (1, 2):
            raise ValueError(f"`norm` must be 1 or 2, got {self.norm}.")


@dataclass(frozen=True)
class TransEVectors:
    """What TransE has learnt.

    Args:
        entities: `(num_entities, dimension)` float32, of length 1.
        relations: `(num_relations, dimension)` float32.
        losses: mean loss of each epoch.
    """

    entities: np.ndarray
    relations: np.ndarray
    losses: tuple[float, ...]


class _RowAdam:
    """A table of vectors and Adam on the rows that have a gradient; others wait."""

    def __init__(self, table: torch.Tensor):
        self.table = table
        self.first, self.second = torch.zeros_like(table), torch.zeros_like(table)
        self.steps = torch.zeros(len(table), 1, device=table.device)

    def update(self, rows: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        steps = self.steps[rows] + 1
        first = self.first[rows].lerp_(gradient, 1 - FIRST_DECAY)
        second = self.second[rows].mul_(SECOND_DECAY).addcmul_(gradient, gradient, value=1 - SECOND_DECAY)
        self.steps[rows], self.first[rows], self.second[rows] = steps, first, second
        scale = (second / (1 - SECOND_DECAY**steps)).sqrt_().add_(EPSILON)
        self.table[rows] -= rate * (first / (1 - FIRST_DECAY**steps)) / scale


def train_transe(
    triples: np.ndarray,
    num_entities: int,
    num_relations: int,
    draw_negatives: DrawNegatives,
    options: TransEOptions | None = None,
    device: str = "cpu",
    on_epoch: Callable[[int, float], None] | None = None,
) -> TransEVectors:
    """Train vectors; the same seed gives the same vectors on the same machine.

    Args:
        triples: `(num_triples, 3)` head, relation, tail.
        num_entities: size of the graph; entities without a triple keep their random vector.
        num_relations: number of relations.
        draw_negatives: draws replacing entities, such as `data.NegativeSampler.draw`.
        options: dimension, epochs and so on.
        device: where the vectors are trained.
        on_epoch: called with the number of each epoch, from 1, and its mean loss.

    Returns:
        Vectors and losses.

    Raises:
        ValueError: there are no triples.

    Examples:
        >>> triples = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 3]])
        >>> def draw(rows, heads, rng):
        ...     return rng.integers(4, size=len(rows))
        >>> vectors = train_transe(triples, 4, 1, draw, TransEOptions(dimension=8, epochs=3))
        >>> vectors.entities.shape, len(vectors.losses)
        ((4, 8), 3)
    """
    options = TransEOptions() if options is None else options
    if not len(triples):
        raise ValueError(f"`triples` must have at least one row, got the shape {np.shape(triples)}.")
    rng = np.random.default_rng(options.seed)
    reach = 6 / math.sqrt(options.dimension)
    start = [
        torch.from_numpy(rng.uniform(-reach, reach, (rows, options.dimension)).astype(np.float32)).to(device)
        for rows in (num_entities, num_relations)
    ]
    entities, relations = (_RowAdam(torch.nn.functional.normalize(table, dim=1)) for table in start)
    batches = -(-len(triples) // options.batch_size)
    updates, losses = options.epochs * batches, []
    for epoch in range(options.epochs):
        order = rng.permutation(len(triples))
        total = 0.0
        for number in range(batches):
            rows = triples[order[number * options.batch_size : (number + 1) * options.batch_size]]
            repeated = np.repeat(rows, options.negatives, axis=0)
            heads = rng.random(len(repeated)) < 0.5
            drawn = draw_negatives(repeated, heads, rng)
            rate = options.learning_rate * (1 - (epoch * batches + number) / updates)
            total += _update(entities, relations, rows, heads, drawn, options, rate) * len(rows)
        losses.append(total / len(triples))
        if not math.isfinite(losses[-1]):
            raise NotFinite(
                f"The loss of epoch {epoch + 1} of {options.epochs} is {losses[-1]}: nothing is saved. Take a smaller "
                f"`learning_rate` than {options.learning_rate}."
            )
        if on_epoch is not None:
            on_epoch(epoch + 1, losses[-1])
    return TransEVectors(entities.table.cpu().numpy(), relations.table.cpu().numpy(), tuple(losses))


def _update(
    entities: _RowAdam,
    relations: _RowAdam,
    rows: np.ndarray,
    heads: np.ndarray,
    drawn: np.ndarray,
    options: TransEOptions,
    rate: float,
) -> float:
    """One update on a batch; returns its mean loss."""
    device = entities.table.device
    names, place = np.unique(np.concatenate([rows[:, 0], rows[:, 2], drawn]), return_inverse=True)
    kinds, kind = np.unique(rows[:, 1], return_inverse=True)
    entity_rows, relation_rows = torch.from_numpy(names).to(device), torch.from_numpy(kinds).to(device)
    entity = entities.table[entity_rows].requires_grad_()
    relation = relations.table[relation_rows].requires_grad_()
    vectors = entity[torch.from_numpy(place.reshape(-1)).to(device)]
    batch = len(rows)
    head, tail, false = vectors[:batch], vectors[batch : 2 * batch], vectors[2 * batch :]
    moved = relation[torch.from_numpy(kind.reshape(-1)).to(device)]
    shape = (batch, options.negatives, -1)
    true = torch.linalg.vector_norm(head + moved - tail, ord=options.norm, dim=-1)
    replaces_head = torch.from_numpy(heads).to(device).reshape(batch, options.negatives, 1)
    false = false.reshape(shape)
    corrupted = torch.where(replaces_head, false + (moved - tail).unsqueeze(1), (head + moved).unsqueeze(1) - false)
    distance = torch.linalg.vector_norm(corrupted, ord=options.norm, dim=-1)
    loss = (options.margin + true.unsqueeze(1) - distance).relu().mean()
    gradients = torch.autograd.grad(loss * batch, (entity, relation))
    entities.update(entity_rows, gradients[0], rate)
    relations.update(relation_rows, gradients[1], rate)
    entities.table[entity_rows] = torch.nn.functional.normalize(entities.table[entity_rows], dim=1)
    return loss.item()
