"""What is asked about marked mentions: the relation of two, or the types of one."""

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...data.annotated_text import (
    Mention,
    RelationExample,
    TypingExample,
    mark_mentions,
    read_relation_examples,
    read_typing_examples,
)
from ...metrics import predicted_types, relation_scores, typing_scores
from ...metrics.classification import DIRECTION, NEGATIVE
from ..console import in_parts
from .base import IGNORED, Rows, Task, rows_of

logger = logging.getLogger(__name__)

# The reference's markers: ordinary symbols of BERT's vocabulary.
HEAD_MARKER, TAIL_MARKER, TYPED_MARKER = "#", "$", "\u3002"


def behind_the_cut(task: Any, examples: Sequence[Any], tokenizer: Any, max_length: int) -> int:
    """How many examples have a mention that the cut to `max_length` tokens takes away, in part or as a whole."""
    cut = 0
    for one in examples:
        marked = task.text_of(one)
        if len(marked) < max_length:  # a token has at least a character
            continue
        spans = sorted(task.spans(one))
        last = max(range(len(spans)), key=lambda place: spans[place][0][1])
        markers = sum(2 * (len(marker) + 1) for _, marker in spans[:last]) + len(spans[last][1]) + 1
        seen = tokenizer(marked[: spans[last][0][1] + markers], verbose=False)["input_ids"]
        cut += len(seen) > max_length
    return cut


def annotations(mentions: Sequence[Mention]) -> list[dict[str, Any]]:
    """Mentions as the processor takes them; those without an entity are left out."""
    return [
        {"start": one.start, "end": one.end, "id": one.id, "score": one.score}
        for one in mentions
        if one.id is not None
    ]


class MarkedMentions(Task):
    """What both tasks share.

    Its attributes: `asked`, what the processor calls a mention -> the example's field with it, and its marker;
    `problem_type`, of the config; `ernie_thu_head`, of an ERNIE-THU model.
    """

    head = "SequenceClassification"
    pipeline_tag = "text-classification"
    template = "knowledge_task"
    page = "how-to/relations_and_types"
    asked: ClassVar[dict[str, tuple[str, str]]]
    problem_type: ClassVar[str]
    ernie_thu_head: ClassVar[str]

    def text_of(self, example: Any) -> str:
        """The text with markers around what is asked about, which makes two rows the same."""
        return mark_mentions(example.text, self.spans(example))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The markers."""
        return tuple(marker for _, marker in self.asked.values())

    def spans(self, example: Any) -> list[tuple[tuple[int, int], str]]:
        """What is asked about, and the marker of each."""
        return [(getattr(example, field).span, marker) for field, marker in self.asked.values()]

    def markers(self, examples: Sequence[Any]) -> dict[str, list[tuple[int, int]]]:
        """What the processor is told to mark."""
        return {name: [getattr(one, field).span for one in examples] for name, (field, _) in self.asked.items()}

    @abstractmethod
    def target(self, example: Any) -> Any:
        """What the loss compares with."""

    def configure(self, config: Any) -> None:
        """Give a config the head's size, the names of its classes, and whether there is one or several."""
        super().configure(config)
        config.problem_type = self.problem_type

    def encode(self, examples: Sequence[Any], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Model inputs of a processor, or of a tokenizer; `with_entities` says whether entities are told."""
        with_entities = options["with_entities"]
        limits = {"truncation": True, "max_length": max_length}
        rows: list[dict[str, Any]] = []
        for part in in_parts(examples, "tokenizing"):
            if hasattr(tokenizer, "entity_vocab"):
                encoded = tokenizer(
                    [one.text for one in part],
                    entities=[annotations(one.entities) if with_entities else [] for one in part],
                    task=self.name,
                    **self.markers(part),
                    **limits,
                )
            else:
                encoded = tokenizer([self.text_of(one) for one in part], **limits)
            rows += rows_of(
                {name: values for name, values in encoded.items() if with_entities or "entity" not in name}
            )
        if self.classes_of(examples[0]) is not None:
            rows = [{**row, "labels": self.target(one)} for row, one in zip(rows, examples, strict=True)]
        return Rows(rows)

    def record(self, example: Any) -> dict[str, Any]:
        """Its text, what is asked about, and its classes if they are told."""
        classes = self.classes_of(example)
        return {
            "text": example.text,
            "mentions": [example.text[slice(*span)] for span, _ in self.spans(example)],
            **({} if classes is None else {"labels": list(classes)}),
        }


@dataclass(frozen=True)
class RelationTask(MarkedMentions):
    """Relation classification: `... # head # ... $ tail $ ...`, one class.

    Args:
        labels: all relations of the training data, sorted.
    """

    labels: tuple[str, ...]
    name = "relation"
    kind = "relation classification"
    asked = {"head": ("head", HEAD_MARKER), "tail": ("tail", TAIL_MARKER)}
    problem_type = "single_label_classification"
    ernie_thu_head = "ErnieThuForSequenceClassification"

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores that say something on these labels: SemEval's with directions, TACRED's with a negative class."""
        directed = any(DIRECTION.search(label) for label in self.labels)
        negative = any(label in NEGATIVE for label in self.labels)
        own = ("semeval_f1",) if directed else ("micro_f1",) if negative else ()
        return ("accuracy", "macro_f1", *own)

    @classmethod
    def read(cls, data: Any, files: Any, split: str | None, unlabelled: bool = False) -> Any:
        return read_relation_examples(files, unlabelled, encoding=data.encoding)

    @classmethod
    def of(cls, examples: Sequence[RelationExample], data: Any) -> "RelationTask":
        return cls(tuple(sorted({str(example.label) for example in examples})))

    def classes_of(self, example: RelationExample) -> tuple[str, ...] | None:
        """Its relation; `None` without."""
        return None if example.label is None else (example.label,)

    def target(self, example: RelationExample) -> int:
        """A relation that training does not know has no loss."""
        return self.labels.index(example.label) if example.label in self.labels else IGNORED

    def scores(
        self, predictions: np.ndarray, examples: Sequence[RelationExample], rows: Any = None
    ) -> dict[str, float]:
        """Scores of logits."""
        return relation_scores(self.decided(predictions, examples), [str(example.label) for example in examples])

    def majority(self, train: Sequence[RelationExample], test: Sequence[RelationExample]) -> dict[str, float]:
        """Scores of the most frequent relation."""
        (label, _), *_ = Counter(example.label for example in train).most_common(1)
        return relation_scores([str(label)] * len(test), [str(example.label) for example in test])


@dataclass(frozen=True)
class TypingTask(MarkedMentions):
    """Entity typing: `... 。 mention 。 ...`, any number of types.

    Args:
        labels: all types of the training data, sorted.
        always_one: always predict the likeliest type too.
    """

    labels: tuple[str, ...]
    always_one: bool = False
    name = "typing"
    kind = "entity typing"
    asked = {"span": ("mention", TYPED_MARKER)}
    problem_type = "multi_label_classification"
    ernie_thu_head = "ErnieThuForEntityTyping"
    loss = None  # the head's own, of all types
    shown = ("accuracy", "macro_f1", "micro_f1")

    @classmethod
    def read(cls, data: Any, files: Any, split: str | None, unlabelled: bool = False) -> Any:
        return read_typing_examples(files, data.labels_field, unlabelled, encoding=data.encoding)

    @classmethod
    def of(cls, examples: Sequence[TypingExample], data: Any) -> "TypingTask":
        known = {label for example in examples for label in example.labels or ()}
        return cls(tuple(sorted(known)), data.always_one_type)

    def classes_of(self, example: TypingExample) -> tuple[str, ...] | None:
        """Its types; `None` if they are not told."""
        return example.labels

    def target(self, example: TypingExample) -> list[float]:
        """Whether each type holds."""
        return [float(label in (example.labels or ())) for label in self.labels]

    def decided(self, predictions: np.ndarray, examples: Sequence[Any], rows: Any = None) -> list[list[str]]:
        """The types that logits say."""
        chosen = predicted_types(predictions, self.always_one)
        return [[name for name, holds in zip(self.labels, row, strict=True) if holds] for row in chosen]

    def scores(self, predictions: np.ndarray, examples: Sequence[TypingExample], rows: Any = None) -> dict[str, float]:
        """Scores of logits."""
        return typing_scores(*self._with_unknown(predicted_types(predictions, self.always_one), examples))

    def majority(self, train: Sequence[TypingExample], test: Sequence[TypingExample]) -> dict[str, float]:
        """Scores of the most frequent type."""
        (label, _), *_ = Counter(label for example in train for label in example.labels or ()).most_common(1)
        predictions = np.tile([name == label for name in self.labels], (len(test), 1))
        return typing_scores(*self._with_unknown(predictions, test))

    def _with_unknown(self, predictions: np.ndarray, examples: Sequence[TypingExample]) -> tuple[Any, Any]:
        """Predictions and truth over all types of truth: those that training never saw are missed, not forgotten."""
        types = [set(example.labels or ()) for example in examples]
        unseen = sorted(set().union(*types) - set(self.labels))
        names = [*self.labels, *unseen]
        truth = np.array([[name in known for name in names] for known in types])
        return np.pad(predictions, ((0, 0), (0, len(unseen)))), truth
