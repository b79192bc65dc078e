"""Candidate entities of mentions as tensors: the forms in which they come, the loss of linking, and its links.

For K knowledge bases, in the config's order: `(batch, K, spans, ...)`; for a single one also `(batch, spans, ...)`;
or a mapping of names to the latter. What comes out has the form that came in.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .knowledge_knowbert import NOT_A_CANDIDATE, Candidates
from .losses_core import value_outside, values_can_be_read

Entities = torch.Tensor | Mapping[str, torch.Tensor] | None
Formed = Callable[[dict[str, torch.Tensor]], Any]


def by_name(config: Any, field: str, given: Any, dimensions: int) -> dict[str, torch.Tensor]:
    """One tensor a knowledge base, of `dimensions` dimensions, from any of the forms."""
    names = list(config.knowledge_bases or {})
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise ValueError(f"`{field}` must name the knowledge bases {names}, got {list(given)}.")
        return {name: given[name] for name in names}
    if not torch.is_tensor(given):
        raise TypeError(f"`{field}` must be a tensor, or one for each knowledge base, got {type(given).__name__}.")
    if given.dim() == dimensions and len(names) == 1:
        return {names[0]: given}
    if given.dim() != dimensions + 1 or given.shape[1] != len(names):
        raise ValueError(
            f"`{field}` must have {dimensions + 1} dimensions, the second of which the {len(names)} knowledge bases "
            f"{names}, got {tuple(given.shape)}."
        )
    return dict(zip(names, given.unbind(1), strict=True))


def former(given: Any, dimensions: int) -> Formed:
    """What puts tensors by name into the form of `given`."""
    if isinstance(given, Mapping):
        return dict
    if torch.is_tensor(given) and given.dim() == dimensions:
        return lambda found: next(iter(found.values()))

    def stack(found: dict[str, torch.Tensor]) -> Any:
        each = list(found.values())
        same = len(each) > 0 and all(one.shape == each[0].shape for one in each)
        return torch.stack(each, dim=1) if same else found or None

    return stack


def read_candidates(
    config: Any, words: torch.Tensor, spans: Any, entities: Any, priors: Any, sequence_ids: torch.Tensor | None
) -> tuple[dict[str, Candidates], Formed]:
    """The candidates of a batch by knowledge base, checked, and what gives results their form."""
    bases = config.knowledge_bases or {}
    if (spans is None) != (entities is None):
        given = "`candidate_entities`" if spans is None else "`candidate_spans`"
        raise ValueError(f"`candidate_spans` and `candidate_entities` must come together, got {given} alone.")
    if not bases and spans is not None:
        raise ValueError(f"`candidate_spans` need knowledge bases, got `config.knowledge_bases` = {bases}.")
    batch, length = words.shape[:2]
    if spans is None:
        nobody = torch.zeros(batch, 1, 1, dtype=torch.long, device=words.device)
        spans = {name: nobody.expand(-1, -1, 2) - 1 for name in bases}
        entities, form = dict.fromkeys(bases, nobody), former(None, 3)
    else:
        form = former(entities, 3)
    of_spans, of_entities = (
        by_name(config, "candidate_spans", spans, 3),
        by_name(config, "candidate_entities", entities, 3),
    )
    of_priors = {} if priors is None else by_name(config, "candidate_priors", priors, 3)
    found = {}
    for name, base in bases.items():
        places, rows = of_spans[name].to(words.device), of_entities[name].to(words.device)
        check(name, base, places, rows, batch, length)
        prior = of_priors.get(name)
        if prior is None:
            real = (rows > 0).to(words.dtype)
            prior = real / real.sum(-1, keepdim=True).clamp(min=1)
        elif prior.shape != rows.shape:
            raise ValueError(
                f"`candidate_priors` must have the shape of `candidate_entities`, {tuple(rows.shape)}, got "
                f"{tuple(prior.shape)}."
            )
        found[name] = grouped(places, rows, prior.to(words.device), sequence_ids)
    return found, form


def check(
    name: str, base: Mapping[str, Any], spans: torch.Tensor, rows: torch.Tensor, batch: int, length: int
) -> None:
    """Refuse candidates that do not fit the text, or each other, where looking costs nothing."""
    if spans.shape != (batch, rows.shape[1], 2) or rows.shape[0] != batch or not rows.shape[1]:
        raise ValueError(
            f"`candidate_spans` and `candidate_entities` of {name} must be (batch, spans, 2) and (batch, "
            f"spans, candidates) with batch = {batch} and at least one span, got {tuple(spans.shape)} and "
            f"{tuple(rows.shape)}."
        )
    outside = value_outside(rows, base["entity_vocab_size"])
    if outside is not None:
        raise ValueError(
            f"`candidate_entities` of {name} must be 0 to {base['entity_vocab_size'] - 1}, the rows of its table, got "
            f"{outside}."
        )
    if values_can_be_read(spans) and bool(
        (
            (spans >= length)
            | (spans < -1)
            | (spans[..., :1] > spans[..., 1:])
            | (spans.amin(-1, True) < 0) & (spans >= 0)
        ).any()
    ):
        raise ValueError(
            f"`candidate_spans` of {name} must be first and last token of a mention in the row of {length} tokens, or "
            "-1 and -1 for padding. Was the text cut after they were made?"
        )


def grouped(
    spans: torch.Tensor, rows: torch.Tensor, priors: torch.Tensor, sequence_ids: torch.Tensor | None
) -> Candidates:
    """Candidates with the sequence of each span; packed rows get one span of padding, for sequences without any."""
    if sequence_ids is not None:
        spans = nn.functional.pad(spans, (0, 0, 0, 1), value=-1)
        rows, priors = nn.functional.pad(rows, (0, 0, 0, 1)), nn.functional.pad(priors, (0, 0, 0, 1))
    real = spans[..., 0] >= 0
    groups = real.long()
    if sequence_ids is not None:
        groups = groups * sequence_ids.to(spans.device).gather(1, spans[..., 0].clamp(min=0)).long()
    return Candidates(spans, rows, priors, groups)


def linking_sums(
    config: Any, linking_scores: Any, candidate_entities: Any, gold_entities: Any
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For each knowledge base the sum of the linking loss and, flat, which targets it is of (-100 elsewhere)."""
    scores = by_name(config, "linking_scores", linking_scores, 3)
    entities = by_name(config, "candidate_entities", candidate_entities, 3)
    gold = by_name(config, "gold_entities", without_one(gold_entities, candidate_entities), 2)
    for name, base in (config.knowledge_bases or {}).items():
        known = scores[name].float()
        wanted, rows = gold[name].to(known.device), entities[name].to(known.device)
        right = (rows == wanted[..., None]) & (rows > 0)
        if base["linking_loss"] == "margin":
            counts = (rows > 0) & (wanted != -100)[..., None]
            losses = (base["margin"] + torch.where(right, -known, known)).relu()
            yield (losses * counts).sum(), torch.where(counts, 0, -100).flatten()
            continue
        asked = (rows > 0).any(-1) & (wanted != -100)
        missing = asked & ~right.any(-1)
        if values_can_be_read(missing) and bool(missing.any()):
            row, span = missing.nonzero()[0].tolist()
            raise ValueError(
                f"`gold_entities` of {name} must be among the candidates of each mention, got "
                f"{int(wanted[row, span])} for span {span} of row {row}: add it to "
                f"`candidate_entities`, or set it to -100."
            )
        targets = torch.where(asked & ~missing, right.long().argmax(-1), -100).flatten()
        yield nn.functional.cross_entropy(known.flatten(0, 1), targets, reduction="sum"), targets


def without_one(gold: Any, candidates: Any) -> Any:
    """Gold entities without the dimension of 1 that the reference's files have in the place of the candidates'."""
    if isinstance(gold, Mapping):
        return {name: without_one(one, candidates[name]) for name, one in gold.items()}
    return gold.squeeze(-1) if gold.dim() == candidates.dim() else gold


def decode_links(config: Any, linking_scores: Any, spans: Any, entities: Any) -> dict[str, list[Any]]:
    """See `KnowBertPreTrainedModel.decode_links`."""
    scores = by_name(config, "linking_scores", linking_scores, 3)
    places, rows = by_name(config, "candidate_spans", spans, 3), by_name(config, "candidate_entities", entities, 3)
    links: dict[str, list[Any]] = {}
    for name, base in (config.knowledge_bases or {}).items():
        real = scores[name].masked_fill(rows[name] == 0, NOT_A_CANDIDATE)
        best, number = real.max(-1)
        chosen = rows[name].gather(-1, number[..., None]).squeeze(-1)
        kept = (best > base["threshold"]) & (chosen != base["null_entity_id"]) & (chosen > 0)
        links[name] = [
            (row, tuple(places[name][row, span].tolist()), int(chosen[row, span]))
            for row, span in kept.nonzero().tolist()
        ]
    return links
