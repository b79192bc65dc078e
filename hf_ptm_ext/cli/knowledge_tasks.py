"""The two tasks of the fine-tuning jobs: how their examples become rows, which head they need, what is scored."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import AutoModelForSequenceClassification
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


@dataclass(frozen=True)
class RelationTask:
    """Relation classification: `... # head # ... $ tail $ ...`, one class.

    Args:
        labels: all relations of the training data, sorted.
    """

    labels: tuple[str, ...]
    name = "relation"
    symbols = (HEAD_MARKER, TAIL_MARKER)
    problem_type = "single_label_classification"

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
    def read(path: str, data: KnowledgeDataArguments) -> list[RelationExample]:
        return read_relation_examples(path)

    @classmethod
    def of(cls, examples: Sequence[RelationExample], data: KnowledgeDataArguments) -> "RelationTask":
        return cls(tuple(sorted({example.label for example in examples})))

    @staticmethod
    def markers(examples: Sequence[RelationExample]) -> dict[str, list[tuple[int, int]]]:
        """What the processor is told to mark."""
        return {"head": [one.head.span for one in examples], "tail": [one.tail.span for one in examples]}

    @staticmethod
    def marked_text(example: RelationExample) -> str:
        return mark_mentions(example.text, [(example.head.span, HEAD_MARKER), (example.tail.span, TAIL_MARKER)])

    def target(self, example: RelationExample) -> int:
        return self.labels.index(example.label) if example.label in self.labels else -1

    def scores(self, logits: np.ndarray, examples: Sequence[RelationExample]) -> dict[str, float]:
        predictions = [self.labels[number] for number in logits.argmax(axis=-1)]
        return relation_scores(predictions, [example.label for example in examples])

    def majority(self, train: Sequence[RelationExample], test: Sequence[RelationExample]) -> dict[str, float]:
        """Scores of the most frequent relation."""
        (label, _), *_ = Counter(example.label for example in train).most_common(1)
        return relation_scores([label] * len(test), [example.label for example in test])

    @staticmethod
    def head_class(model_type: str) -> Any:
        return AutoModelForSequenceClassification


@dataclass(frozen=True)
class TypingTask:
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
    shown = ("accuracy", "macro_f1", "micro_f1")

    @staticmethod
    def read(path: str, data: KnowledgeDataArguments) -> list[TypingExample]:
        return read_typing_examples(path, data.labels_field)

    @classmethod
    def of(cls, examples: Sequence[TypingExample], data: KnowledgeDataArguments) -> "TypingTask":
        return cls(tuple(sorted({label for example in examples for label in example.labels})), data.always_one_type)

    @staticmethod
    def markers(examples: Sequence[TypingExample]) -> dict[str, list[tuple[int, int]]]:
        """What the processor is told to mark."""
        return {"span": [one.mention.span for one in examples]}

    @staticmethod
    def marked_text(example: TypingExample) -> str:
        return mark_mentions(example.text, [(example.mention.span, TYPED_MARKER)])

    def target(self, example: TypingExample) -> list[float]:
        return [float(label in example.labels) for label in self.labels]

    def scores(self, logits: np.ndarray, examples: Sequence[TypingExample]) -> dict[str, float]:
        return typing_scores(*self._with_unknown(predicted_types(logits, self.always_one), examples))

    def majority(self, train: Sequence[TypingExample], test: Sequence[TypingExample]) -> dict[str, float]:
        """Scores of the most frequent type."""
        (label, _), *_ = Counter(label for example in train for label in example.labels).most_common(1)
        predictions = np.tile([name == label for name in self.labels], (len(test), 1))
        return typing_scores(*self._with_unknown(predictions, test))

    def _with_unknown(self, predictions: np.ndarray, examples: Sequence[TypingExample]) -> tuple[Any, Any]:
        """Predictions and truth over all types of truth: those that training never saw are missed, not forgotten."""
        unseen = sorted({label for example in examples for label in example.labels} - set(self.labels))
        names = [*self.labels, *unseen]
        truth = np.array([[name in example.labels for name in names] for example in examples])
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


__all__ = ["TASKS", "RelationTask", "TypingTask", "annotations"]
