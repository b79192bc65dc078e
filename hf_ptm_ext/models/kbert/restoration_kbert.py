"""From predictions on tokens back to the words and entities of the original text; what was injected has no say."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from transformers import BatchEncoding

from .encoding_kbert import KBertEncoding


class RestoredToken(NamedTuple):
    """A prediction on a place in a text.

    Args:
        start: first character.
        end: the character behind the last.
        prediction: what was predicted.
    """

    start: int
    end: int
    prediction: Any


class RestoredEntity(NamedTuple):
    """An entity in the original text.

    Args:
        text: its characters.
        type: its type.
        start: its first character, or its first word if the text came as words.
        end: the one behind its last.
    """

    text: str
    type: str
    start: int
    end: int


def tag_spans(tags: Sequence[str | None]) -> list[tuple[str, int, int]]:
    """Entities from tags: B- begins one, I- of the same type goes on, anything else ends it; S- and E- as usual.

    An I- that continues nothing begins an entity, as the CoNLL scorer counts it. Entities have types: a tag of another
    type never continues one.

    Args:
        tags: "O", "B-PER", "I-PER", "E-PER", "S-PER", ...; `None` is "O".

    Returns:
        (type, first, behind the last) of each.

    Example:
        >>> tag_spans(["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-ORG"])
        [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5), ('ORG', 5, 6)]
    """
    spans: list[tuple[str, int, int]] = []
    kind, begin, closed = "", 0, True
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = (tag or "O").partition("-")
        goes_on = not closed and prefix in ("I", "E", "M") and name == kind
        if not goes_on:
            if not closed:
                spans.append((kind, begin, place))
            kind, begin, closed = name, place, not name
        if not closed and prefix in ("E", "S"):
            spans.append((kind, begin, place + 1))
            closed = True
    return spans


def rows_of(predictions: Any, encodings: Sequence[Any], batched: bool) -> list[list[Any]]:
    """Predictions as a list of rows.

    Args:
        predictions: a row or rows of classes; or logits, of which the highest counts.
        encodings: of the rows.
        batched: whether there are rows.

    Returns:
        A list for each row.

    Raises:
        ValueError: there are not as many predictions as tokens.
    """
    if hasattr(predictions, "detach"):
        predictions = predictions.detach().cpu().numpy()
    if isinstance(predictions, np.ndarray):
        if predictions.ndim == 2 + batched:
            predictions = predictions.argmax(-1)
        predictions = predictions.tolist()
    if batched and any(isinstance(row, str) or not hasattr(row, "__iter__") for row in predictions):
        raise ValueError(
            f"`predictions` must have a row for each of the encoding, got a single row for {len(encodings)}. Pass a "
            "list of rows."
        )
    rows = [list(row) for row in predictions] if batched else [list(predictions)]
    for number, (row, encoding) in enumerate(zip(rows, encodings, strict=False)):
        if len(row) != len(encoding):
            raise ValueError(
                f"`predictions` must have one for each token, padding included, got {len(row)} for the "
                f"{len(encoding)} tokens of row {number}. Pass those of the very batch that `encoding` is."
            )
    if len(rows) != len(encodings):
        raise ValueError(
            f"`predictions` must have a row for each of the encoding, got {len(rows)} for {len(encodings)}."
        )
    return rows


def restore_row(
    predictions: Sequence[Any], encoding: Any, num_words: int | None, missing: Any, sequence: int
) -> list[Any]:
    """Predictions on the words, or on the places, of a text.

    Args:
        predictions: of each token.
        encoding: of the row.
        num_words: how many words the text came as, or `None` for a text.
        missing: for words without a token.
        sequence: 0 or 1, the text of a pair.

    Returns:
        For words one prediction each, that on the word's first piece; for a text a `RestoredToken` for each token.
    """
    own = [place for place, value in enumerate(encoding.sequence_ids) if value == sequence]
    if num_words is None:
        return [RestoredToken(*encoding.offsets[place], predictions[place]) for place in own]
    restored = [missing] * num_words
    for place in reversed(own):
        restored[encoding.word_ids[place]] = predictions[place]
    return restored


def named(prediction: Any, id2label: Mapping[Any, str] | None) -> str | None:
    """A prediction as a tag.

    Args:
        prediction: a class, or its name.
        id2label: names of classes.

    Returns:
        The tag; `None` for none.

    Raises:
        ValueError: a class has no name.
    """
    if prediction is None or isinstance(prediction, str):
        return prediction
    if id2label is None or prediction not in id2label:
        raise ValueError(
            f"`id2label` must name the class {prediction!r}, got {dict(id2label) if id2label else None}. Pass "
            "`model.config.id2label`."
        )
    return id2label[prediction]


def encodings_of(encoding: Any) -> tuple[list[KBertEncoding], bool]:
    """The encodings of what the tokenizer returned, and whether that is a batch.

    Args:
        encoding: the batch.

    Returns:
        Encodings, and whether there are rows.

    Raises:
        ValueError: it does not know where its tokens come from.
    """
    encodings = getattr(encoding, "encodings", None)
    if not encodings or not hasattr(encodings[0], "sample"):
        raise ValueError("`encoding` must be what this tokenizer returned, got no record of where tokens come from.")
    first = encoding["input_ids"]
    batched = not (isinstance(first, list) and first and isinstance(first[0], int))
    return list(encodings), batched


class KBertRestoring:
    """The way back, as methods of a tokenizer."""

    def restore(self, predictions: Any, encoding: BatchEncoding, missing: Any = None, sequence: int = 0) -> list[Any]:
        """Bring predictions on tokens back to the original text; injected and special tokens have no say.

        Args:
            predictions: a class, or logits, for each token (padding included); for a batch one row each.
            encoding: what the tokenizer returned.
            missing: for words without a token (blanks, or cut off).
            sequence: 0 or 1, the text of a pair.

        Returns:
            If the text came as words, a prediction for each word (that on its first piece); else a `RestoredToken`
            (start, end, prediction) for each token of the text. For a batch, a list of these.

        Raises:
            ValueError: there are not as many predictions as tokens, or `encoding` is not the tokenizer's.
        """
        encodings, batched = encodings_of(encoding)
        restored = [
            restore_row(row, one, one.num_words(sequence), missing, sequence)
            for row, one in zip(rows_of(predictions, encodings, batched), encodings, strict=True)
        ]
        return restored if batched else restored[0]

    def restore_entities(
        self,
        predictions: Any,
        encoding: BatchEncoding,
        id2label: Mapping[Any, str] | None = None,
        sequence: int = 0,
    ) -> list[Any]:
        """Read entities off predicted tags.

        Args:
            predictions: as in `restore`; classes, logits, or tags.
            encoding: as in `restore`.
            id2label: names of classes, as in `model.config.id2label`; not needed for tags.
            sequence: as in `restore`.

        Returns:
            A `RestoredEntity` (text, type, start, end) each, in characters or words of the original text; for a batch,
            a list of these lists.

        Raises:
            ValueError: as `restore`, or a class has no name.
        """
        encodings, batched = encodings_of(encoding)
        restored = self.restore(predictions, encoding, sequence=sequence)
        found = []
        for row, one in zip(restored if batched else [restored], encodings, strict=True):
            is_token = [isinstance(value, RestoredToken) for value in row]
            tags = [
                named(value.prediction if token else value, id2label)
                for value, token in zip(row, is_token, strict=True)
            ]
            entities = []
            for kind, begin, end in tag_spans(tags):
                if any(is_token):
                    begin, end = row[begin].start, row[end - 1].end
                entities.append(RestoredEntity(one.excerpt(sequence, begin, end), kind, begin, end))
            found.append(entities)
        return found if batched else found[0]


__all__ = ["KBertRestoring", "RestoredEntity", "RestoredToken", "tag_spans"]
