"""The tasks of `hf-ptm-ext finetune`: how their examples become rows, which head they need, what is scored.

A task has the attributes and methods of `ClassificationTask`; the job knows nothing else of it.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from ..data.labelled_text import LabelledText, TextColumns, dataset_labelled_texts, read_labelled_texts
from ..data.rows import NoRows
from ..data.tag_schemes import OUTSIDE, PLAIN, detect_scheme, scheme_breaks, spans_of, to_iob2
from ..data.tagged_words import TaggedWords, dataset_tagged_words, read_tagged_words
from ..metrics.classification import classification_scores
from ..metrics.entities import entity_scores
from ..metrics.kbert import PADDING, kbert_span_scores
from ..metrics.ranking import mean_reciprocal_rank
from .finetune_arguments import AUTO, TaskDataArguments
from .finetune_questions import ExtractionTask, QuestionAnsweringTask
from .finetune_rows import Rows, rows_of
from .seeded_runs import update_loss

logger = logging.getLogger(__name__)

IGNORED = -100


@dataclass(frozen=True)
class ClassificationTask:
    """One class for a text or a pair of texts.

    Args:
        labels: all classes of the training data, in order.
        groups: whether rows belong to questions, and the mean reciprocal rank is scored.
    """

    labels: tuple[str, ...]
    groups: bool = False
    name = "classification"
    kind = "text classification"
    head = "SequenceClassification"
    pipeline_tag = "text-classification"
    simple = "majority"
    template = "text_task"
    loss = staticmethod(update_loss)

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores of the tables, the first of which is what matters most."""
        return (*(("mrr",) if self.groups else ()), "accuracy", "macro_f1", "matthews_correlation")

    @staticmethod
    def read(data: TaskDataArguments, files: list[str] | None, split: str | None) -> Iterator[LabelledText]:
        """Examples of files, or of a split of the data set."""
        columns = TextColumns(data.text_column, data.label_column, data.pair_column, data.group_column)
        if files:
            return read_labelled_texts(files, columns, file_format=data.file_format, encoding=data.encoding)
        return dataset_labelled_texts(
            data.dataset_name or "", data.dataset_config_name, split=split or "", columns=columns
        )

    @classmethod
    def of(cls, examples: Sequence[LabelledText], data: TaskDataArguments) -> "ClassificationTask":
        """The task that the training examples set."""
        labels = {example.label for example in examples}
        numbers = all(label.lstrip("-").isdecimal() for label in labels)
        task = cls(tuple(sorted(labels, key=int if numbers else None)), data.group_column is not None)
        if len(task.labels) < 2:
            raise ValueError(f"The training data must have at least two labels, got {list(task.labels)}.")
        if task.groups and len(task.labels) != 2:
            raise ValueError(
                f"`group_column` ranks right before wrong rows and needs two labels, got {list(task.labels)}."
            )
        return task

    def prepare(self, examples: Sequence[LabelledText]) -> list[LabelledText]:
        """Examples as they are compared with predictions."""
        return list(examples)

    def encode(self, examples: Sequence[LabelledText], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Token ids and labels."""
        pairs = [example.pair for example in examples] if examples[0].pair is not None else None
        encoded = tokenizer(
            [example.text for example in examples],
            pairs,
            truncation=True,
            max_length=max_length,
            verbose=False,
            **options,
        )
        inputs = rows_of(encoded)
        known = {label: number for number, label in enumerate(self.labels)}
        if all(example.label in known for example in examples):  # otherwise there is no loss, only predictions
            inputs = [{**row, "labels": known[example.label]} for row, example in zip(inputs, examples, strict=True)]
        return Rows(inputs)

    @staticmethod
    def collator(tokenizer: Any) -> Any:
        """What pads."""
        return DataCollatorWithPadding(tokenizer)

    @staticmethod
    def reduce_logits(logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the logits `(batch, num_labels)`."""
        return logits[0] if isinstance(logits, tuple) else logits

    def scores(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Rows) -> dict[str, float]:
        """Scores of logits."""
        found = classification_scores(
            [self.labels[number] for number in predictions.argmax(axis=-1)], [example.label for example in examples]
        )
        if self.groups:
            # The difference of two logits ranks as the probability of the second class does.
            ranks = (predictions[:, 1] - predictions[:, 0]).tolist()
            found["mrr"] = self._mrr(ranks, examples)
        return found

    def records(self, predictions: np.ndarray, examples: Sequence[LabelledText], rows: Rows) -> list[dict[str, Any]]:
        """What was predicted for each example."""
        found = [self.labels[number] for number in predictions.argmax(axis=-1)]
        return [
            {"text": example.text, "label": example.label, "prediction": label}
            for example, label in zip(examples, found, strict=True)
        ]

    @staticmethod
    def saved(tokenizer: Any) -> Any:
        """What is saved beside the model."""
        return tokenizer

    def majority(self, train: Sequence[LabelledText], test: Sequence[LabelledText]) -> dict[str, float]:
        """Scores of the most frequent class, answers in the order of the file."""
        (label, _), *_ = Counter(example.label for example in train).most_common(1)
        found = classification_scores([label] * len(test), [example.label for example in test])
        if self.groups:
            found["mrr"] = self._mrr([0.0] * len(test), test)
        return found

    def _mrr(self, scores: Sequence[float], examples: Sequence[LabelledText]) -> float:
        right = [example.label == self.labels[1] for example in examples]
        return mean_reciprocal_rank(scores, right, [example.group for example in examples])


@dataclass(frozen=True)
class TaggingTask:
    """A tag for every word; tags that mark spans are scored as entities.

    Args:
        labels: all tags of the training data in IOB2, O first.
        scheme: how the files write spans, or `"plain"`.
        parity: whether K-BERT's own score is given too.
    """

    labels: tuple[str, ...]
    scheme: str
    parity: bool = False
    name = "tagging"
    kind = "tagging"
    head = "TokenClassification"
    pipeline_tag = "token-classification"
    simple = "most frequent tag of the word"
    template = "text_task"
    loss = staticmethod(update_loss)

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores of the tables, the first of which is what matters most."""
        spans = ("f1", "precision", "recall", *(("kbert_f1",) if self.parity else ()))
        return ("accuracy", "macro_f1") if self.scheme == PLAIN else spans

    @staticmethod
    def read(data: TaskDataArguments, files: list[str] | None, split: str | None) -> Iterator[TaggedWords]:
        """Sentences of files, or of a split of the data set."""
        columns = {"words_column": data.words_column, "tags_column": data.tags_column, "pair_column": data.pair_column}
        if files:
            return read_tagged_words(files, **columns, file_format=data.file_format, encoding=data.encoding)
        return dataset_tagged_words(data.dataset_name or "", data.dataset_config_name, split=split or "", **columns)

    @classmethod
    def of(cls, examples: Sequence[TaggedWords], data: TaskDataArguments) -> "TaggingTask":
        """The task that the training examples set."""
        scheme = data.tag_scheme
        if scheme == AUTO:
            scheme = detect_scheme(example.tags for example in examples)
        parity = data.parity_metric is not None
        if parity and scheme == PLAIN:
            raise ValueError(f"`parity_metric` = {data.parity_metric} scores spans, and these tags mark none.")
        task = cls((), scheme, parity)
        if scheme != PLAIN and (breaks := sum(scheme_breaks(example.tags, scheme) for example in examples)):
            logger.warning("%d training tags break the scheme %s and are read as conlleval does.", breaks, scheme)
        tags = {tag for example in task.prepare(examples) for tag in example.tags}
        # O first, then B and I of each type together.
        labels = sorted(
            tags | ({OUTSIDE} if scheme != PLAIN else set()), key=lambda tag: (tag != OUTSIDE, tag[1:], tag)
        )
        if len(labels) < 2:
            raise ValueError(f"The training data must have at least two tags, got {labels}.")
        return cls(tuple(labels), scheme, parity)

    def prepare(self, examples: Sequence[TaggedWords]) -> list[TaggedWords]:
        """Sentences with their tags in IOB2."""
        if self.scheme == PLAIN:
            return list(examples)
        return [example._replace(tags=tuple(to_iob2(example.tags, self.scheme))) for example in examples]

    def encode(self, examples: Sequence[TaggedWords], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Token ids, and a label on the first piece of each word."""
        pairs = [list(example.pair) for example in examples if example.pair is not None]
        encoded = tokenizer(
            [list(example.words) for example in examples],
            pairs or None,
            is_split_into_words=True,
            truncation=True,
            max_length=max_length,
            verbose=False,
            **options,
        )
        known = {label: number for number, label in enumerate(self.labels)}
        rows = Rows(rows_of(encoded))
        for number, (row, example) in enumerate(zip(rows.inputs, examples, strict=True)):
            places: list[int | None] = [None] * len(example.words)
            labels = [IGNORED] * len(row["input_ids"])
            numbers = zip(encoded.word_ids(number), encoded.sequence_ids(number), strict=True)
            for place, (word, sequence) in enumerate(numbers):
                if word is not None and sequence == 0 and places[word] is None:
                    places[word] = place
                    labels[place] = known.get(example.tags[word], IGNORED)
            row["labels"] = labels
            rows.places.append(places)
        lost = sum(place is None for places in rows.places for place in places)
        if lost:
            logger.warning(
                "%d of %d words have no token (cut off at %d, or unknown to the tokenizer's normalisation) and count "
                "as untagged.",
                lost,
                sum(map(len, rows.places)),
                max_length,
            )
        return rows

    @staticmethod
    def collator(tokenizer: Any) -> Any:
        """What pads."""
        return DataCollatorForTokenClassification(tokenizer)

    @staticmethod
    def reduce_logits(logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the logits `(batch, seq_len, num_labels)`: the likeliest label."""
        return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)

    def scores(self, predictions: np.ndarray, examples: Sequence[TaggedWords], rows: Rows) -> dict[str, float]:
        """Scores of label numbers `(examples, seq_len)`; a word without a token counts as untagged."""
        return self.scores_of_tags(self._tags(predictions, rows), examples)

    def records(self, predictions: np.ndarray, examples: Sequence[TaggedWords], rows: Rows) -> list[dict[str, Any]]:
        """What was predicted for each example."""
        return [
            {"words": list(example.words), "tags": list(example.tags), "prediction": tags}
            for example, tags in zip(examples, self._tags(predictions, rows), strict=True)
        ]

    @staticmethod
    def saved(tokenizer: Any) -> Any:
        """What is saved beside the model."""
        return tokenizer

    def _tags(self, predictions: np.ndarray, rows: Rows) -> list[list[str]]:
        untagged = OUTSIDE if OUTSIDE in self.labels else self.labels[0]
        return [
            [untagged if place is None else self.labels[row[place]] for place in places]
            for row, places in zip(predictions, rows.places, strict=True)
        ]

    def scores_of_tags(self, tags: Sequence[Sequence[str]], examples: Sequence[TaggedWords]) -> dict[str, float]:
        """Scores of predicted tags."""
        truth = [example.tags for example in examples]
        words = [[tag for sentence in side for tag in sentence] for side in (tags, truth)]
        found = classification_scores(*words)
        if self.scheme == PLAIN:
            return found
        strict, lenient = (
            entity_scores(*([spans_of(one, strict=mode) for one in side] for side in (tags, truth)))
            for mode in (True, False)
        )
        scores = {"accuracy": found["accuracy"], **strict, "conlleval_f1": lenient["f1"]}
        if self.parity:
            batch = [[tag for sentence in side for tag in (*sentence, PADDING)] for side in (tags, truth)]
            scores["kbert_f1"] = kbert_span_scores(batch[:1], batch[1:])["f1"]
        return scores

    def majority(self, train: Sequence[TaggedWords], test: Sequence[TaggedWords]) -> dict[str, float]:
        """Scores of tagging every word with its most frequent tag, unknown words with the most frequent of all."""
        by_word: dict[str, Counter[str]] = defaultdict(Counter)
        for example in train:
            for word, tag in zip(example.words, example.tags, strict=True):
                by_word[word][tag] += 1
        total: Counter[str] = sum(by_word.values(), Counter())
        likeliest = {word: tags.most_common(1)[0][0] for word, tags in by_word.items()}
        unknown = total.most_common(1)[0][0]
        return self.scores_of_tags([[likeliest.get(word, unknown) for word in one.words] for one in test], test)


TASKS: dict[str, Any] = {
    "classification": ClassificationTask,
    "tagging": TaggingTask,
    "question-answering": QuestionAnsweringTask,
    "extraction": ExtractionTask,
}


def read_splits(data: TaskDataArguments) -> tuple[dict[str, list[Any]], Any]:
    """The examples of each split that is named, and the task that they set.

    Args:
        data: data arguments.

    Returns:
        Split -> examples; the task.

    Raises:
        ValueError: a split is empty, or see the readers.
    """
    cls = TASKS[data.task]
    examples: dict[str, list[Any]] = {}
    for name in ("train", "validation", "test"):
        files, split = getattr(data, f"{name}_file"), getattr(data, f"{name}_split")
        if not files and not (data.dataset_name and split):
            continue
        limit = data.max_train_rows if name == "train" else data.max_eval_rows
        try:
            examples[name] = list(islice(cls.read(data, files, split), limit))
        except NoRows as error:
            raise ValueError(f"`{name}_file` or `{name}_split` has no example: {error}") from error
        if not examples[name]:
            raise ValueError(f"`{name}_file` or `{name}_split` has no example: {files or split}.")
    task = cls.of(examples["train"], data)
    return {name: task.prepare(found) for name, found in examples.items()}, task


__all__ = ["TASKS", "ClassificationTask", "TaggingTask", "read_splits"]
