"""One call of the processor: annotations to mentions, mentions to tokens, tokens to fields of the batch.

plain       the tokenizer makes the batch; entities are placed on its rows
windows     the same, but rows may begin inside a text: entities are placed on all tokens of a text, and each row
            takes its part, so that no window gives a mention another token than the whole text does
assembled   rows are put together here: markers stand between the tokens, or the reference cuts pairs by its rule
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import BatchEncoding
from transformers.utils import logging

from .annotations_ernie_thu import (
    ALIGNMENTS,
    DroppedEntity,
    EntityAnnotation,
    Span,
    TextTokens,
    WordTokens,
    check_span,
    read_annotation,
    reference_word,
    resolve_overlaps,
    slice_window,
    thin,
)
from .entity_vocab_ernie_thu import POLICIES
from .markers_ernie_thu import (
    TASKS,
    TRUNCATIONS,
    Marked,
    cut,
    frame_of,
    joined,
    mark_text,
    marker_id,
    read_marked,
    shifted_spans,
    tokens_of,
    with_markers,
)
from .tokenizer_core import check_choice

logger = logging.get_logger(__name__)

# Columns that rows may have, and the options that ask for them.
_COLUMNS = {
    "token_type_ids": "return_token_type_ids",
    "attention_mask": "return_attention_mask",
    "special_tokens_mask": "return_special_tokens_mask",
    "offset_mapping": "return_offsets_mapping",
}
# What a policy is about; low scores and truncation were asked for, and are only counted.
_REPORTED = {
    "overlap": "overlaps with a longer one or one of more weight",
    "inside_token": "starts inside a token, and is kept on it",
    "no_token": "no token begins there",
}
_NAMED = 8


class Mention(NamedTuple):
    """An annotation that counts."""

    span: Span  # in the text that is tokenised
    entity: int  # 0 = unknown
    annotation: EntityAnnotation  # as it was given


class ProcessorCall:
    """The state of one call."""

    def __init__(
        self,
        processor: Any,
        text: Any,
        text_pair: Any,
        *,
        split: bool,
        alignment: str,
        min_score: float,
        on_unknown_entity: str,
        on_dropped_entity: str,
    ):
        check_choice("alignment", alignment, ALIGNMENTS)
        check_choice("on_unknown_entity", on_unknown_entity, POLICIES)
        check_choice("on_dropped_entity", on_dropped_entity, POLICIES)
        self.processor, self.tokenizer = processor, processor.tokenizer
        self.split, self.alignment, self.min_score = split, alignment, min_score
        self.unit = "words" if split else "characters"
        self.on_unknown, self.on_dropped = on_unknown_entity, on_dropped_entity
        is_list = isinstance(text, list | tuple)
        self.batched = is_list and (not split or (len(text) > 0 and isinstance(text[0], list | tuple)))
        # One list of texts, or two for pairs; the tokenizer takes an empty second text for none.
        self.texts: list[list[Any]] = [list(text) if self.batched else [text]]
        if text_pair is not None and (self.batched or text_pair):
            self.texts.append(list(text_pair) if self.batched else [text_pair])
            if len(self.texts[0]) != len(self.texts[1]):
                raise ValueError(
                    f"`text_pair` must have a text for each of `text`, got {len(self.texts[1])} for "
                    f"{len(self.texts[0])}."
                )
        # The reference's rule is about characters.
        self.as_reference = alignment == "reference" and not split
        self.mentions: list[list[list[Mention]]] = []
        self.dropped: list[DroppedEntity] = []
        self.given = self.placed = 0

    # ---- annotations to mentions ----

    def read_entities(self, entities: Any, entities_pair: Any, link: bool) -> None:
        """Check annotations, or have them linked, and find their entity ids."""
        if entities_pair is not None and len(self.texts) == 1:
            raise ValueError(f"`entities_pair` must come with `text_pair`, got {entities_pair!r:.60} alone.")
        flat: list[EntityAnnotation] = []
        counts: list[list[int]] = []
        for pair, (texts, given) in enumerate(zip(self.texts, (entities, entities_pair), strict=False)):
            field = "entities_pair" if pair else "entities"
            rows = self._per_text(field, given)
            if rows is None and link and self.processor.linker is not None:
                rows = self._link(texts)
            if rows is None:
                counts.append([0] * len(texts))
                continue
            counts.append([])
            for number, (text, values) in enumerate(zip(texts, rows, strict=True)):
                kept = self._read_of_text(values, len(text), number, bool(pair)) if values else []
                counts[-1].append(len(kept))
                flat += kept
        found = iter(zip(flat, self._entity_ids(flat), strict=True))
        self.mentions = [
            [
                self._to_mentions([next(found) for _ in range(count)], number, bool(pair))
                for number, count in enumerate(of_texts)
            ]
            for pair, of_texts in enumerate(counts)
        ]

    def _per_text(self, field: str, given: Any) -> Sequence[Any] | None:
        if given is None or not self.batched:
            return None if given is None else [given]
        if not isinstance(given, list | tuple) or len(given) != len(self.texts[0]):
            size = len(given) if hasattr(given, "__len__") else given
            raise ValueError(f"`{field}` must have one list per text, got {size} for {len(self.texts[0])} texts.")
        return given

    def _link(self, texts: list[Any]) -> Sequence[Any]:
        if self.split:
            raise ValueError(
                "`entities` must be given when the texts come as words, because the linker reads texts, got none for "
                f"{texts[0]!r:.60}. Pass `entities`, or link=False for none."
            )
        found = self.processor.linker(texts)
        if len(found) != len(texts):
            raise ValueError(f"`linker` must return one list per text, got {len(found)} for {len(texts)} texts.")
        return found

    def _read_of_text(self, values: Iterable[Any], length: int, text: int, pair: bool) -> list[EntityAnnotation]:
        """Read what was given for a text, and drop low scores and overlaps; the reference wants all that overlap."""
        annotations = [read_annotation(value) for value in values]
        if not self.as_reference:
            for one in annotations:
                check_span("entities", (one.start, one.end), length, self.unit)
        self.given += len(annotations)
        kept = [one for one in annotations if one.score > self.min_score]
        if len(kept) < len(annotations):
            self._drop(text, pair, (one for one in annotations if not one.score > self.min_score), "score")
        if self.alignment == "reference":
            return kept
        kept, overlapping = resolve_overlaps(kept)
        self._drop(text, pair, overlapping, "overlap")
        return kept

    def _drop(self, text: int, pair: bool, annotations: Iterable[EntityAnnotation], reason: str) -> None:
        self.dropped += [DroppedEntity(text, pair, one, reason) for one in annotations]

    def _entity_ids(self, annotations: list[EntityAnnotation]) -> list[int]:
        ids = [one.id for one in annotations]
        if self.processor.entity_vocab is not None:
            return self.processor.entity_vocab.rows(ids).tolist() if ids else []
        for value in ids:
            if isinstance(value, str) or value < 0:
                raise ValueError(
                    f"`entities`: an `id` must be an entity id, an integer from 0, as the processor has no "
                    f"vocabulary, got {value!r}. Make the processor with `entity_vocab`."
                )
        return [int(value) for value in ids]

    def _to_mentions(self, pairs: list[tuple[EntityAnnotation, int]], text: int, pair: bool) -> list[Mention]:
        self._drop(text, pair, [annotation for annotation, entity in pairs if not entity], "unknown")
        return [
            Mention((annotation.start, annotation.end), entity, annotation)
            for annotation, entity in pairs
            if entity or self.alignment == "reference"
        ]

    def _by_words_between_spaces(self) -> None:
        """The reference's rule, on the texts as they are tokenised; of mentions with one start the last counts."""
        for pair, (texts, of_texts) in enumerate(zip(self.texts, self.mentions, strict=True)):
            for number, text in enumerate(texts):
                last: dict[int, Mention] = {}
                for mention in of_texts[number]:
                    word = reference_word(text, mention.span[0])
                    if word is not None:
                        if word[0] in last and last[word[0]].entity:
                            self._drop(number, bool(pair), [last[word[0]].annotation], "overlap")
                        last[word[0]] = mention._replace(span=word)
                    elif mention.entity:
                        self._drop(number, bool(pair), [mention.annotation], "no_token")
                of_texts[number] = [mention for mention in last.values() if mention.entity]

    # ---- mentions to tokens ----

    def encode(
        self, return_tensors: str | None, options: dict[str, Any], marked: list[Marked] | None = None
    ) -> BatchEncoding:
        """Tokenise and place entities, with markers around the marked spans of the first texts."""
        truncation = truncation_of(options)
        if self.as_reference:
            if marked is not None:
                self._mark_texts(marked)
                marked = None
            self._by_words_between_spaces()
        if marked is not None or (self.as_reference and len(self.texts) == 2 and truncation == "longest_first"):
            return self._assembled(marked, truncation, return_tensors, options)
        texts = self.texts if self.batched else [one[0] for one in self.texts]
        batch = self.tokenizer(*texts, is_split_into_words=self.split, return_tensors=return_tensors, **options)
        encodings = batch.encodings
        overflow = bool(options.get("return_overflowing_tokens"))
        if overflow or (truncation is not None and self.tokenizer.truncation_side == "left"):
            samples = plain(batch["overflow_to_sample_mapping"]) if overflow else range(len(encodings))
            rows = self._on_windows(encodings, samples)
        else:
            rows = [self._on_row(encoding, number) for number, encoding in enumerate(encodings)]
        single = not self.batched and return_tensors is None and not overflow
        return _with_fields(batch, encodings, rows, return_tensors, single)

    def _on_row(self, encoding: Any, number: int) -> dict[int, int]:
        """Entities of a row whose texts begin at their beginnings."""
        found: dict[int, int] = {}
        for pair, of_texts in enumerate(self.mentions):
            if of_texts[number]:
                self._place(self._tokens(encoding, number, pair, pair), number, pair, found)
        return self._thinned(found)

    def _tokens(self, encoding: Any, number: int, pair: int, sequence: int) -> TextTokens | WordTokens:
        if self.split:
            return WordTokens(encoding, sequence)
        return TextTokens(encoding, self.texts[pair][number], sequence)

    def _place(self, tokens: TextTokens | WordTokens, number: int, pair: int, found: dict[int, int]) -> None:
        for mention in self.mentions[pair][number]:
            places: Sequence[int]
            if self.alignment in ("first", "reference"):
                first = tokens.first(mention.span)
                places = () if first is None else (first,)
            else:
                places = tokens.tokens(mention.span)
            if not places:
                reason = "truncated" if tokens.encoding.overflowing else "no_token"
                self._drop(number, bool(pair), [mention.annotation], reason)
                continue
            if tokens.starts_inside(places[0], mention.span):
                self._drop(number, bool(pair), [mention.annotation], "inside_token")
            self.placed += 1
            for token in places:
                found.setdefault(token, mention.entity)

    def _thinned(self, found: dict[int, int]) -> dict[int, int]:
        if self.alignment != "alternate" or not found:
            return found
        row = [found.get(token, 0) for token in range(max(found) + 1)]
        return {token: entity for token, entity in enumerate(thin(row)) if entity}

    def _whole_texts(self) -> list[list[tuple[Any, dict[int, int]]]]:
        """Encoding of every whole text without special tokens, and its entities."""
        options = {"add_special_tokens": False, "truncation": False, "verbose": False}
        result = []
        for pair, texts in enumerate(self.texts):
            placed = []
            encoded = self.tokenizer(texts, is_split_into_words=self.split, **options).encodings if texts else []
            for number, encoding in enumerate(encoded):
                found: dict[int, int] = {}
                self._place(self._tokens(encoding, number, pair, 0), number, pair, found)
                placed.append((encoding, self._thinned(found)))
            result.append(placed)
        return result

    def _on_windows(self, encodings: Sequence[Any], samples: Iterable[int]) -> list[dict[int, int]]:
        """Entities of rows that are parts of texts."""
        whole = self._whole_texts()
        keys = [
            [list(zip(encoding.word_ids, encoding.offsets, strict=True)) for encoding, _ in of_texts]
            for of_texts in whole
        ]
        seen: list[list[set[int]]] = [[set() for _ in of_texts] for of_texts in whole]
        rows = []
        for window, number in zip(encodings, samples, strict=True):
            row: dict[int, int] = {}
            for pair, of_texts in enumerate(whole):
                part = slice_window(window, keys[pair][number], pair)
                if part is None:
                    continue
                first, tokens = part
                seen[pair][number].update(tokens)
                placed = of_texts[number][1].items()
                row |= {first + token - tokens.start: entity for token, entity in placed if token in tokens}
            rows.append(row)
        self._report_unseen(whole, seen)
        return rows

    def _report_unseen(
        self, whole: Sequence[Sequence[tuple[Any, dict[int, int]]]], seen: Sequence[Sequence[set[int]]]
    ) -> None:
        """Mentions of which no row has a token."""
        for pair, of_texts in enumerate(whole):
            for number, (encoding, found) in enumerate(of_texts):
                if set(found) <= seen[pair][number]:
                    continue
                tokens = self._tokens(encoding, number, pair, 0)
                for mention in self.mentions[pair][number]:
                    own = set(tokens.tokens(mention.span)) & set(found)
                    if own and not own & seen[pair][number]:
                        self._drop(number, bool(pair), [mention.annotation], "truncated")
                        self.placed -= 1

    # ---- markers ----

    def marked_spans(self, task: str, spans: dict[str, Any]) -> list[Marked]:
        """Check what `head` and `tail`, or `span`, say about each of the first texts."""
        check_choice("task", task, tuple(TASKS))
        lengths = [len(text) for text in self.texts[0]]
        unit = "" if self.as_reference else self.unit
        marked = read_marked(task, spans, self.processor.markers, lengths, self.batched, unit)
        for marker in self.processor.markers[TASKS[task][1]]:
            marker_id(self.tokenizer, marker)
        return marked

    def _mark_texts(self, marked: list[Marked]) -> None:
        """Put markers into the first texts, as the reference does, and move their mentions along."""
        for number, spans in enumerate(marked):
            self.texts[0][number] = mark_text(self.texts[0][number], spans)
            own = self.mentions[0][number]
            shifted = shifted_spans([mention.span for mention in own], spans)
            self.mentions[0][number] = [
                mention._replace(span=span) for mention, span in zip(own, shifted, strict=True)
            ]

    def _assembled(
        self, marked: list[Marked] | None, truncation: str | None, return_tensors: str | None, options: dict[str, Any]
    ) -> BatchEncoding:
        """Rows put together from the tokens of whole texts."""
        options = {name: value for name, value in options.items() if name not in ("truncation", "verbose")}
        max_length, stride = options.pop("max_length", None), options.pop("stride", 0)
        overflow, wants_length = (options.pop(f"return_{name}", False) for name in ("overflowing_tokens", "length"))
        pieces, kinds = frame_of(self.tokenizer, len(self.texts), options.pop("add_special_tokens", True))
        room = (self.tokenizer.model_max_length if max_length is None else max_length) - len(joined(pieces)["number"])
        columns = {"input_ids", "entity_ids"}
        for name, option in _COLUMNS.items():
            wanted = options.pop(option, None)
            if wanted or (wanted is None and name in self.tokenizer.model_input_names):
                columns.add(name)
        rules = {"left": self.tokenizer.truncation_side == "left", "reference": self.alignment == "reference"}
        whole = self._whole_texts()
        seen: list[list[set[int]]] = [[set() for _ in of_texts] for of_texts in whole]
        rows, samples = [], []
        for number in range(len(self.texts[0])):
            texts = []
            for of_texts, kind in zip(whole, kinds, strict=True):
                encoding, found = of_texts[number]
                numbers = list(range(len(encoding)))
                entities = [found.get(token, 0) for token in numbers]
                texts.append(tokens_of(encoding.ids, kind, encoding.offsets, entities, numbers))
            if marked is not None:
                asked = self._tokens(whole[0][number][0], number, 0, 0)
                texts[0] = with_markers(texts[0], asked, marked[number], self.tokenizer)
            for parts in cut(texts, room, truncation, stride, overflow=overflow, **rules):
                rows.append(joined([pieces[0], *chain(*zip(parts, pieces[1:], strict=True))]))
                samples.append(number)
                for pair, part in enumerate(parts):
                    seen[pair][number].update(part["number"])
        self._report_unseen(whole, seen)
        data: dict[str, Any] = {name: [row[name] for row in rows] for name in sorted(columns)}
        data["entity_mask"] = [
            [int(not place or entity != 0) for place, entity in enumerate(row)] for row in data["entity_ids"]
        ]
        padded = dict(self.processor.pad(data, options.pop("padding", False), max_length=max_length, **options))
        if wants_length:
            padded["length"] = [len(row) for row in padded["input_ids"]]
        if overflow:
            padded["overflow_to_sample_mapping"] = samples
        elif not self.batched and return_tensors is None:
            padded = {name: values[0] for name, values in padded.items()}
        return BatchEncoding(padded, tensor_type=return_tensors)

    # ---- the report ----

    def report(self) -> None:
        """Count what became of the annotations, and say it under the policies."""
        counts = self.processor.entity_counts
        if self.given:
            counts.update(given=self.given, placed=self.placed)
        if not self.dropped:
            return
        counts.update(one.reason for one in self.dropped)
        unknown = [one for one in self.dropped if one.reason == "unknown"]
        others = [one for one in self.dropped if one.reason in _REPORTED]
        for policy, dropped, what, advice in (
            (self.on_unknown, unknown, "are not in the entity vocabulary", "on_unknown_entity"),
            (self.on_dropped, others, "were dropped or moved", "on_dropped_entity"),
        ):
            if not dropped or policy == "ignore":
                continue
            named = "; ".join(
                f"{one.annotation.id!r} [{one.annotation.start}, {one.annotation.end}) of text {one.text}"
                f"{' (second)' if one.pair else ''}: {_REPORTED.get(one.reason, 'unknown')}"
                for one in dropped[:_NAMED]
            )
            message = f"{len(dropped)} of {self.given} entities {what}: {named}{'; ...' * (len(dropped) > _NAMED)}."
            if policy == "error":
                raise ValueError(f"{message} Correct them, or pass `{advice}='ignore'` or 'warn'.")
            logger.warning(message)

    def dropped_by_text(self) -> list[list[DroppedEntity]]:
        """The report, sorted by texts."""
        return [[one for one in self.dropped if one.text == number] for number in range(len(self.texts[0]))]


def truncation_of(options: dict[str, Any]) -> str | None:
    """The strategy by its name, `None` for no truncation."""
    value = options.get("truncation")
    value = getattr(value, "value", value)
    if value is None or value is False or value == "do_not_truncate":
        return None
    if value is True:
        return "longest_first"
    check_choice("truncation", value, TRUNCATIONS)
    return str(value)


def plain(values: Any) -> Any:
    """Arrays and tensors, or a list of them, as lists."""
    if isinstance(values, list | tuple):
        return [plain(one) for one in values] if values and hasattr(values[0], "tolist") else values
    return values.tolist() if hasattr(values, "tolist") else values


def _with_fields(
    batch: BatchEncoding,
    encodings: Sequence[Any],
    rows: Sequence[dict[int, int]],
    return_tensors: str | None,
    single: bool,
) -> BatchEncoding:
    """Add the entity fields, in the form that the other fields have."""
    ids, masks = [], []
    for encoding, row in zip(encodings, rows, strict=True):
        entities, mask = [0] * len(encoding), [0] * len(encoding)
        for token, entity in row.items():
            entities[token], mask[token] = entity, 1
        attended = encoding.attention_mask
        if any(attended):  # padding stands before the first token if the tokenizer pads on the left
            mask[attended.index(1)] = 1
        ids.append(entities)
        masks.append(mask)
    for name, values in (("entity_ids", ids), ("entity_mask", masks)):
        batch[name] = values[0] if single else values
        if return_tensors == "pt":
            batch[name] = torch.tensor(values)
        elif return_tensors is not None:
            batch[name] = np.array(values)
    return batch
