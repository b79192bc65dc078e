"""KG-BERT's three tasks on a knowledge graph: is a triple true, which relation holds, which entity completes it."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ...data.labelled_triples import (
    FALSE,
    TRUE,
    LabelledTriple,
    TripleEncoder,
    dataset_labelled_triples,
    read_descriptions,
    read_labelled_triples,
)
from ...data.triples import NegativeSampler
from ...kg_bert import TripleScorer
from ...metrics import classification_scores, link_prediction_scores, random_scores, relation_ranks, triple_ranks
from ..arguments import LINK, RELATION, TRIPLE_TASKS, TaskDataArguments
from ..console import bar, in_parts
from .base import IGNORED, Rows, Task

logger = logging.getLogger(__name__)

LINK_NEGATIVES = 5  # of each true triple; 1 for triple classification
NAMED = 5


@dataclass(frozen=True, eq=False)
class TripleTask(Task):
    """One of `TRIPLE_TASKS` on the triples of a graph.

    Args:
        labels: `("0", "1")`, or the relations.
        asked: which of the tasks.
        entities: name -> text, in order.
        relations: name -> text, in order.
        negatives: corruptions of each true training triple.
        candidates: of link prediction, see `triple_ranks`.
        ties: of ranks, see `triple_ranks`.
        known: all true triples of all splits, by numbers.
        encoders: what has cut the texts into pieces, by tokenizer and length.
    """

    labels: tuple[str, ...]
    asked: str
    entities: dict[str, str] = field(default_factory=dict, repr=False)
    relations: dict[str, str] = field(default_factory=dict, repr=False)
    negatives: int = 1
    candidates: str | int = "all"
    ties: str = "realistic"
    known: Any = field(default=None, repr=False)
    encoders: dict[Any, TripleEncoder] = field(default_factory=dict, repr=False)
    name = "triples"
    head = "SequenceClassification"
    pipeline_tag = "text-classification"
    page = "how-to/triples"
    readers = (read_labelled_triples, dataset_labelled_triples)
    numbered: ClassVar[tuple[str, ...]] = ("head", "relation", "tail")

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The task in words."""
        return self.asked.replace("-", " ")

    @property
    def ranks(self) -> bool:  # type: ignore[override]
        """Whether it is scored by ranks among the entities, which the trained model makes."""
        return self.asked == LINK

    @property
    def simple(self) -> str:
        """What it is guessed by."""
        return {LINK: "random order", RELATION: "most frequent relations"}.get(self.asked, "majority")

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores of the tables; mean ranks, which are no shares, are in the results."""
        ranked = ("mrr", "hits@1", "hits@3", "hits@10")
        return {LINK: ranked, RELATION: (*ranked, "accuracy")}.get(
            self.asked, ("accuracy", "macro_f1", "matthews_correlation")
        )

    @classmethod
    def columns(cls, data: TaskDataArguments) -> dict[str, Any]:
        return {"label": data.label_column}

    @classmethod
    def of(cls, examples: Sequence[LabelledTriple], data: TaskDataArguments) -> "TripleTask":
        texts = [
            {} if files is None else read_descriptions(files, data.encoding)
            for files in (data.entity_text_file, data.relation_text_file)
        ]
        asked, given = data.triple_task, data.ranking_candidates
        relations = texts[1] or dict.fromkeys(sorted({one.relation for one in examples}))
        labels = tuple(relations) if asked == RELATION else (FALSE, TRUE)
        if len(labels) < 2:
            raise ValueError(f"The training data must have at least two relations, got {list(labels)}.")
        return cls(
            labels,
            asked,
            texts[0],
            texts[1],
            data.num_negatives or (LINK_NEGATIVES if asked == LINK else 1),
            int(given) if given.isdecimal() else given,
            data.ranking_ties,
        )

    def completed(self, examples: dict[str, list[Any]]) -> tuple[dict[str, list[Any]], "TripleTask"]:
        """Number entities and relations, and add false triples where a file has true ones only."""
        if self.asked in (RELATION, LINK):
            for split, found in examples.items():
                if false := sum(one.label == FALSE for one in found):
                    raise ValueError(
                        f"`{split}_file` or `{split}_split` has {false} triples that are labelled false, which "
                        f"`triple_task` = {self.asked} cannot use. Take them out."
                    )
        every = [one for found in examples.values() for one in found]
        names = (sorted({name for one in every for name in (one.head, one.tail)}), sorted({o.relation for o in every}))
        texts = []
        for option, given, found in zip(("entity", "relation"), (self.entities, self.relations), names, strict=True):
            lacking = [name for name in found if given and name not in given]
            if lacking:
                raise ValueError(
                    f"`{option}_text_file` has no text for {len(lacking)} of the {len(found)} names of the triples: "
                    f"{', '.join(lacking[:NAMED])}{', ...' * (len(lacking) > NAMED)}. Add them, or take these triples "
                    "out."
                )
            texts.append(given or dict(zip(found, found, strict=True)))
        task = replace(self, entities=texts[0], relations=texts[1])
        true = {split: task.numbers([o for o in found if o.label != FALSE]) for split, found in examples.items()}
        task = replace(task, known=np.unique(np.concatenate(list(true.values())), axis=0))
        if self.asked == RELATION:
            return examples, task
        if not len(true["train"]):
            raise ValueError(f"The training data must have true triples, got {len(examples['train'])} false ones.")
        rng, known = np.random.default_rng(0), true["train"]
        made: dict[str, list[Any]] = {}
        for split, found in examples.items():
            made[split] = [one._replace(label=one.label or TRUE) for one in found]
            if any(one.label == FALSE for one in found):
                continue
            if split == "train":
                false = task._corrupted(true[split], known, self.negatives, rng)
            else:  # neither a true triple nor, unless a small graph has no other, one that training calls false
                called = np.concatenate([task.known, task.numbers(made["train"])])
                try:
                    false = task._corrupted(true[split], called, 1, rng)
                except ValueError:
                    false = task._corrupted(true[split], task.known, 1, rng)
            made[split] += false
            logger.info("%d %s triples, and %d false ones beside them", len(found), split, len(false))
        return made, task

    def _corrupted(self, true: np.ndarray, known: np.ndarray, negatives: int, rng: Any) -> list[LabelledTriple]:
        """False triples, all of one true one on the same side, by a coin."""
        sampler = NegativeSampler(known, len(self.entities), len(self.relations))
        rows = np.repeat(true, negatives, axis=0)
        heads = np.repeat(rng.random(len(true)) < 0.5, negatives)
        rows[np.arange(len(rows)), np.where(heads, 0, 2)] = sampler.draw(rows, heads, rng)
        entities, relations = list(self.entities), list(self.relations)
        return [LabelledTriple(entities[h], relations[r], entities[t], FALSE) for h, r, t in rows.tolist()]

    def numbers(self, examples: Sequence[LabelledTriple]) -> np.ndarray:
        """Triples by the numbers of entities and relations, `(examples, 3)`."""
        entity, relation = ({name: place for place, name in enumerate(of)} for of in (self.entities, self.relations))
        rows = [(entity[one.head], relation[one.relation], entity[one.tail]) for one in examples]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def text_of(self, example: LabelledTriple) -> str:
        return "\t".join(example[:3])

    def classes_of(self, example: LabelledTriple) -> tuple[str, ...]:
        """Whether it is true, or its relation."""
        return (example.relation,) if self.asked == RELATION else (example.label or TRUE,)

    # ---- rows ----

    def encoder(self, tokenizer: Any, max_length: int) -> TripleEncoder:
        """What makes the rows."""
        if getattr(tokenizer, "kg", None) is not None:
            raise ValueError(
                f"`kg`, a graph in the text, does not go with `task` = triples, got {type(tokenizer).__name__} with "
                "one. Leave it out."
            )
        texts, place = (list(self.entities.values()), list(self.relations.values())), (id(tokenizer), max_length)
        if place not in self.encoders:
            self.encoders[place] = TripleEncoder(tokenizer, *texts, max_length, self.asked != RELATION)
        return self.encoders[place]

    def encode(self, examples: Sequence[LabelledTriple], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        encoder, inputs = self.encoder(tokenizer, max_length), list[dict[str, Any]]()
        known = {label: place for place, label in enumerate(self.labels)}
        for part in in_parts(examples, "assembling"):
            rows = encoder.rows(self.numbers(part))
            inputs += [
                {**row, "labels": known.get(self.classes_of(one)[0], IGNORED)}
                for row, one in zip(rows, part, strict=True)
            ]
        return Rows(inputs, encoder=encoder)

    # ---- scores ----

    def predicted(self, trainer: Any, examples: Sequence[LabelledTriple], rows: Rows) -> Any:
        """What a Trainer predicts; in link prediction the ranks of the true triples instead of logits."""
        if not self.ranks:
            return super().predicted(trainer, examples, rows)
        asked, size = self._asked(examples), len(self.entities)
        with bar(None, "triples", 2 * len(asked) * size if isinstance(self.candidates, str) else None) as shown:
            batch = trainer.args.per_device_eval_batch_size
            scorer = TripleScorer(trainer.model, rows.encoder, batch, on_scored=shown.update)
            found = scorer.rank(asked, self.known, candidates=self.candidates, ties=self.ties)
        return Ranked(np.stack([found.filtered, found.raw]).transpose(2, 0, 1), found.scores())

    def _asked(self, examples: Sequence[LabelledTriple]) -> np.ndarray:
        return self.numbers([one for one in examples if one.label == TRUE])

    def scores_of(self, output: Any, examples: Sequence[LabelledTriple], rows: Rows) -> dict[str, float]:
        """Scores of ranks, or of logits; logits of link prediction, while it is trained, say nothing of ranks."""
        if self.ranks:
            return output.scores if isinstance(output, Ranked) else {}
        decided = self.decided(output.predictions, examples)
        found = classification_scores(decided, [self.classes_of(one)[0] for one in examples])
        return found if self.asked != RELATION else self._relation_scores(output.predictions, examples, found)

    def _relation_scores(
        self, logits: np.ndarray, examples: Sequence[LabelledTriple], found: dict[str, float]
    ) -> dict[str, float]:
        order = {name: place for place, name in enumerate(self.labels)}
        rows, names = self.numbers(examples), list(self.relations)
        holding: dict[tuple[int, int], list[int]] = {}
        for head, relation, tail in self.known.tolist():
            holding.setdefault((head, tail), []).append(order[names[relation]])
        others = [holding[head, tail] for head, _, tail in rows.tolist()]
        true = [order[one.relation] for one in examples]
        raw, filtered = relation_ranks(logits, true, others, ties=self.ties)
        shares = {f"raw_{name}": value for name, value in link_prediction_scores(raw).items()}
        return {**link_prediction_scores(filtered), **shares, "accuracy": found["accuracy"]}

    def records(self, predictions: np.ndarray, examples: Sequence[Any], rows: Any = None) -> list[dict[str, Any]]:
        """What was predicted for each example; ranks of each true one."""
        if not self.ranks:
            return super().records(predictions, examples, rows)
        true = [one for one in examples if one.label == TRUE]
        names = ("head_rank", "tail_rank")
        return [
            {**self.record(one), **dict(zip(names, filtered, strict=True))}
            for one, (filtered, _) in zip(true, predictions.tolist(), strict=True)
        ]

    def record(self, example: LabelledTriple) -> dict[str, Any]:
        """Its names, and its label."""
        return {name: value for name, value in example._asdict().items() if name != "id" and value is not None}

    def majority(self, train: Sequence[LabelledTriple], test: Sequence[LabelledTriple]) -> dict[str, float]:
        """Scores of the simple guess."""
        if self.ranks:
            size, known = len(self.entities), self.known
            found = triple_ranks(
                *(self._asked(test), known, size, lambda rows: np.zeros(len(rows))), candidates=self.candidates
            )
            return random_scores(found.candidates.ravel())
        counts = Counter(self.classes_of(one)[0] for one in train)
        if self.asked == RELATION:
            logits = np.tile([float(counts[label]) for label in self.labels], (len(test), 1))
            return self.scores_of(Ranked(logits, {}), test, Rows([]))
        (label, _), *_ = counts.most_common(1)
        return classification_scores([label] * len(test), [self.classes_of(one)[0] for one in test])


@dataclass(frozen=True)
class Ranked:
    """What stands for the output of a prediction: ranks `(triples, filtered and raw, head and tail)`, their scores."""

    predictions: np.ndarray
    scores: dict[str, float]


__all__ = ["TRIPLE_TASKS", "TripleTask"]
