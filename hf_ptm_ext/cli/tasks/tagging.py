"""A tag for every word; tags that mark spans are scored as entities."""

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from transformers import DataCollatorForTokenClassification

from ...data.tag_schemes import OUTSIDE, PLAIN, detect_scheme, scheme_breaks, spans_of, to_iob2
from ...data.tagged_words import TaggedWords, dataset_tagged_words, read_tagged_words
from ...metrics import classification_scores, entity_scores, kbert_span_scores, linear_tagger
from ...metrics.entities import PADDING
from ..arguments import AUTO, TaskDataArguments
from ..console import in_parts
from .base import IGNORED, Rows, Task, rows_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaggingTask(Task):
    """A tag for every word.

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
    readers = (read_tagged_words, dataset_tagged_words)
    simple = "most frequent tag of the word"
    outside = OUTSIDE

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores of the tables."""
        spans = ("f1", "precision", "recall", *(("kbert_f1",) if self.parity else ()))
        return ("accuracy", "macro_f1") if self.scheme == PLAIN else spans

    @classmethod
    def columns(cls, data: TaskDataArguments) -> dict[str, Any]:
        return {name: getattr(data, name) for name in ("words_column", "tags_column", "pair_column")}

    @classmethod
    def of(cls, examples: Sequence[TaggedWords], data: TaskDataArguments) -> "TaggingTask":
        scheme = data.tag_scheme
        if scheme == AUTO:
            scheme = detect_scheme(example.tags or () for example in examples)
        parity = data.parity_metric is not None
        if parity and scheme == PLAIN:
            raise ValueError(f"`parity_metric` = {data.parity_metric} scores spans, and these tags mark none.")
        task = cls((), scheme, parity)
        if scheme != PLAIN and (breaks := sum(scheme_breaks(example.tags or (), scheme) for example in examples)):
            logger.warning("%d training tags break the scheme %s and are read as conlleval does.", breaks, scheme)
        tags = {tag for example in task.prepare(examples) for tag in example.tags or ()}
        # O first, then B and I of each type together.
        labels = sorted(
            tags | ({OUTSIDE} if scheme != PLAIN else set()), key=lambda tag: (tag != OUTSIDE, tag[1:], tag)
        )
        if len(labels) < 2:
            raise ValueError(f"The training data must have at least two tags, got {labels}.")
        return replace(task, labels=tuple(labels))

    def prepare(self, examples: Sequence[TaggedWords]) -> list[TaggedWords]:
        """Sentences with their tags in IOB2."""
        if self.scheme == PLAIN:
            return list(examples)
        return [
            one if one.tags is None else one._replace(tags=tuple(to_iob2(one.tags, self.scheme))) for one in examples
        ]

    def text_of(self, example: TaggedWords) -> str:
        return "\n".join(" ".join(words) for words in (example.words, example.pair or ()))

    def classes_of(self, example: TaggedWords) -> tuple[str, ...] | None:
        """Its tags; `None` without any."""
        return example.tags

    def encode(self, examples: Sequence[TaggedWords], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Token ids, and a label on the first piece of each word."""
        known = {label: number for number, label in enumerate(self.labels)}
        rows = Rows([])
        for part in in_parts(examples, "tokenizing"):
            pairs = [list(example.pair) for example in part if example.pair is not None]
            encoded = tokenizer(
                [list(example.words) for example in part],
                pairs or None,
                is_split_into_words=True,
                truncation=True,
                max_length=max_length,
                verbose=False,
                **options,
            )
            for number, (row, example) in enumerate(zip(rows_of(encoded), part, strict=True)):
                places: list[int | None] = [None] * len(example.words)
                labels = [IGNORED] * len(row["input_ids"])
                size = len(row["input_ids"])  # of words, where tokens are words
                words, sequences = range(size), [0] * size
                if encoded.is_fast:
                    words, sequences = encoded.word_ids(number), encoded.sequence_ids(number)
                for place, (word, sequence) in enumerate(zip(words, sequences, strict=True)):
                    if word is not None and sequence == 0 and places[word] is None:
                        places[word] = place
                        labels[place] = IGNORED if example.tags is None else known.get(example.tags[word], IGNORED)
                rows.inputs.append(row if example.tags is None else {**row, "labels": labels})
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

    def collator(self, tokenizer: Any) -> Any:
        return DataCollatorForTokenClassification(tokenizer)

    def reduce_logits(self, logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the logits `(batch, seq_len, num_labels)`: the likeliest label."""
        return super().reduce_logits(logits, labels).argmax(-1)

    def decided(self, predictions: np.ndarray, examples: Sequence[TaggedWords], rows: Any = None) -> list[list[str]]:
        """The tags of label numbers `(examples, seq_len)`; a word without a token counts as untagged."""
        untagged = OUTSIDE if OUTSIDE in self.labels else self.labels[0]
        return [
            [untagged if place is None else self.labels[row[place]] for place in places]
            for row, places in zip(predictions, rows.places, strict=True)
        ]

    def record(self, example: TaggedWords) -> dict[str, Any]:
        """Its words, and its tags if they are told."""
        tags = {} if example.tags is None else {"tags": list(example.tags)}
        return {"words": list(example.words), **tags}

    def scores(self, predictions: np.ndarray, examples: Sequence[TaggedWords], rows: Any = None) -> dict[str, float]:
        """Scores of label numbers `(examples, seq_len)`."""
        return self.scores_of_tags(self.decided(predictions, examples, rows), examples)

    def scores_of_tags(self, tags: Sequence[Sequence[str]], examples: Sequence[TaggedWords]) -> dict[str, float]:
        """Scores of predicted tags."""
        truth = [example.tags or () for example in examples]
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
            for word, tag in zip(example.words, example.tags or (), strict=True):
                by_word[word][tag] += 1
        total: Counter[str] = sum(by_word.values(), Counter())
        likeliest = {word: tags.most_common(1)[0][0] for word, tags in by_word.items()}
        unknown = total.most_common(1)[0][0]
        return self.scores_of_tags([[likeliest.get(word, unknown) for word in one.words] for one in test], test)

    def linear(
        self, train: Sequence[TaggedWords], splits: Sequence[Sequence[TaggedWords]], language: str
    ) -> list[dict[str, float]]:
        """Scores of a linear tagger on each split."""
        tagger = linear_tagger([one.words for one in train], [one.tags or () for one in train])
        return [self.scores_of_tags(tagger.predict([one.words for one in split]), split) for split in splits]
