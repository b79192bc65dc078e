"""The two tasks of the fine-tuning jobs: how their examples become rows, which head they need, what is scored."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding
from transformers.utils import logging

from ..data.annotated_text import (
    Mention,
    RelationExample,
    TypingExample,
    mark_mentions,
    read_relation_examples,
    read_typing_examples,
)
from ..metrics.entity_typing import predicted_types, typing_scores
from ..metrics.relations import DIRECTION, NEGATIVE, relation_scores
from .knowledge_arguments import KnowledgeDataArguments
from .seeded_runs import IGNORED_INDEX, update_loss

logger = logging.get_logger(__name__)

# The reference's markers: ordinary symbols of BERT's vocabulary.
HEAD_MARKER, TAIL_MARKER, TYPED_MARKER = "#", "$", "\u3002"


def add_markers(symbols: Sequence[str], tokenizer: Any, model: Any) -> list[str]:
    """Give a vocabulary the markers that it lacks, which would all be one unknown token, and the model a row each.

    Args:
        symbols: the task's markers.
        tokenizer: is changed.
        model: is resized if it has to be.

    Returns:
        The markers that are new.
    """
    unknown = tokenizer.unk_token_id
    missing = [one for one in symbols if unknown in tokenizer(one, add_special_tokens=False)["input_ids"]]
    if missing:
        tokenizer.add_tokens(missing)
        if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        logger.warning(
            f"The vocabulary lacks the marker {' and '.join(missing)}: it was added, with an embedding that has not "
            "been pre-trained."
        )
    return missing


def behind_the_cut(task: Any, examples: Sequence[Any], tokenizer: Any, max_length: int) -> int:
    """How many examples have a mention that the cut to `max_length` tokens takes away, in part or as a whole."""
    cut = 0
    for one in examples:
        marked = task.marked_text(one)
        if len(marked) < max_length:  # a token has at least a character
            continue
        spans = sorted(task.spans(one))
        last = max(range(len(spans)), key=lambda place: spans[place][0][1])
        markers = sum(2 * (len(marker) + 1) for _, marker in spans[:last]) + len(spans[last][1]) + 1
        seen = tokenizer(marked[: spans[last][0][1] + markers], verbose=False)["input_ids"]
        cut += len(seen) > max_length
    return cut


class MarkedMentions:
    """What both tasks share."""

    @classmethod
    def text_of(cls, example: Any) -> str:
        """What makes two rows the same: the text and what is asked about."""
        return cls.marked_text(example)

    @classmethod
    def marked_text(cls, example: Any) -> str:
        """The text with markers around what is asked about."""
        return mark_mentions(example.text, cls.spans(example))

    @staticmethod
    def spans(example: Any) -> list[tuple[tuple[int, int], str]]:
        """What is asked about, and the marker of each."""
        raise NotImplementedError

    @staticmethod
    def collator(processor: Any) -> Any:
        """What pads."""
        return DataCollatorWithPadding(processor)

    @staticmethod
    def reduce_logits(logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the outputs."""
        return logits[0] if isinstance(logits, tuple) else logits

    def records(self, predictions: np.ndarray, examples: Sequence[Any], rows: Any) -> list[dict[str, Any]]:
        """What was predicted for each example."""
        return [
            {
                "text": one.text,
                "mentions": [one.text[slice(*span)] for span, _ in self.spans(one)],
                **({} if self.classes_of(one) is None else {"labels": list(self.classes_of(one))}),
                "prediction": decided,
            }
            for one, decided in zip(examples, self.decided(predictions), strict=True)
        ]

    def classes_of(self, example: Any) -> Any:
        """Its classes; `None` if they are not told."""
        raise NotImplementedError

    def decided(self, logits: np.ndarray) -> list[Any]:
        """What logits say."""
        raise NotImplementedError


@dataclass(frozen=True)
class RelationTask(MarkedMentions):
    """Relation classification: `... # head # ... $ tail $ ...`, one class.

    Args:
        labels: all relations of the training data, sorted.
    """

    labels: tuple[str, ...]
    name = "relation"
    symbols = (HEAD_MARKER, TAIL_MARKER)
    problem_type = "single_label_classification"
    simple = "majority"
    loss = staticmethod(update_loss)

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores that say something on these labels: SemEval's with directions, TACRED's with a negative class."""
        directed = any(DIRECTION.search(label) for label in self.labels)
        negative = any(label in NEGATIVE for label in self.labels)
        return (
            "accuracy",
            "macro_f1",
            *(("semeval_f1",) if directed else ()),
            *(("micro_f1",) if negative and not directed else ()),
        )

    @staticmethod
    def read(path: str, data: KnowledgeDataArguments, unlabelled: bool = False) -> list[RelationExample]:
        return read_relation_examples(path, unlabelled, encoding=data.encoding)

    @staticmethod
    def spans(example: RelationExample) -> list[tuple[tuple[int, int], str]]:
        """What is asked about, and the marker of each."""
        return [(example.head.span, HEAD_MARKER), (example.tail.span, TAIL_MARKER)]

    def classes_of(self, example: RelationExample) -> tuple[str, ...] | None:
        """Its relation; `None` without."""
        return None if example.label is None else (example.label,)

    @classmethod
    def of(cls, examples: Sequence[RelationExample], data: KnowledgeDataArguments) -> "RelationTask":
        return cls(tuple(sorted({str(example.label) for example in examples})))

    @staticmethod
    def markers(examples: Sequence[RelationExample]) -> dict[str, list[tuple[int, int]]]:
        """What the processor is told to mark."""
        return {"head": [one.head.span for one in examples], "tail": [one.tail.span for one in examples]}

    def target(self, example: RelationExample) -> int:
        return self.labels.index(example.label) if example.label in self.labels else IGNORED_INDEX

    def scores(self, logits: np.ndarray, examples: Sequence[RelationExample], rows: Any = None) -> dict[str, float]:
        return relation_scores(self.decided(logits), [str(example.label) for example in examples])

    def decided(self, logits: np.ndarray) -> list[Any]:
        """What logits say."""
        return [self.labels[number] for number in logits.argmax(axis=-1)]

    def majority(self, train: Sequence[RelationExample], test: Sequence[RelationExample]) -> dict[str, float]:
        """Scores of the most frequent relation."""
        (label, _), *_ = Counter(example.label for example in train).most_common(1)
        return relation_scores([label] * len(test), [example.label for example in test])

    @staticmethod
    def head_class(model_type: str) -> Any:
        if model_type == "ernie_thu":  # also of a BERT that becomes one
            from ..models.ernie_thu.modeling_ernie_thu import ErnieThuForSequenceClassification

            return ErnieThuForSequenceClassification
        return AutoModelForSequenceClassification


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
    symbols = (TYPED_MARKER,)
    problem_type = "multi_label_classification"
    simple = "majority"
    loss = None  # the head's own, of all types
    shown = ("accuracy", "macro_f1", "micro_f1")

    @staticmethod
    def read(path: str, data: KnowledgeDataArguments, unlabelled: bool = False) -> list[TypingExample]:
        return read_typing_examples(path, data.labels_field, unlabelled, encoding=data.encoding)

    @staticmethod
    def spans(example: TypingExample) -> list[tuple[tuple[int, int], str]]:
        """What is asked about, and its marker."""
        return [(example.mention.span, TYPED_MARKER)]

    def classes_of(self, example: TypingExample) -> tuple[str, ...] | None:
        """Its types; `None` if they are not told."""
        return example.labels

    @classmethod
    def of(cls, examples: Sequence[TypingExample], data: KnowledgeDataArguments) -> "TypingTask":
        return cls(
            tuple(sorted({label for example in examples for label in example.labels or ()})), data.always_one_type
        )

    @staticmethod
    def markers(examples: Sequence[TypingExample]) -> dict[str, list[tuple[int, int]]]:
        """What the processor is told to mark."""
        return {"span": [one.mention.span for one in examples]}

    def target(self, example: TypingExample) -> list[float]:
        return [float(label in (example.labels or ())) for label in self.labels]

    def decided(self, logits: np.ndarray) -> list[Any]:
        """What logits say."""
        chosen = predicted_types(logits, self.always_one)
        return [[name for name, holds in zip(self.labels, row, strict=True) if holds] for row in chosen]

    def scores(self, logits: np.ndarray, examples: Sequence[TypingExample], rows: Any = None) -> dict[str, float]:
        return typing_scores(*self._with_unknown(predicted_types(logits, self.always_one), examples))

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

    @staticmethod
    def head_class(model_type: str) -> Any:
        if model_type == "ernie_thu":
            from ..models.ernie_thu.modeling_ernie_thu import ErnieThuForEntityTyping

            return ErnieThuForEntityTyping
        return AutoModelForSequenceClassification


TASKS: dict[str, Any] = {"relation": RelationTask, "typing": TypingTask}


def annotations(mentions: Sequence[Mention]) -> list[dict[str, Any]]:
    """Mentions as the processor takes them; those without an entity are left out.

    Args:
        mentions: of one text.
    """
    return [
        {"start": one.start, "end": one.end, "id": one.id, "score": one.score}
        for one in mentions
        if one.id is not None
    ]


__all__ = ["TASKS", "RelationTask", "TypingTask", "annotations", "behind_the_cut"]
