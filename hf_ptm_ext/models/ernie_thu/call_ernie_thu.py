"""One call of the processor: annotations to mentions, mentions to tokens, tokens to fields of the batch.

Three ways lead to the batch, all with the tokenizer's own tokens:

    plain       the tokenizer makes the batch; entities are placed on its rows
    windows     the same, but rows may begin inside a text: entities are placed on all tokens of a text, and each row
                takes its part, so that no window gives a mention another token than the whole text does
    assembled   rows are put together here, because markers stand between the tokens, or because the reference cuts
                pairs by a rule of its own
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import BatchEncoding
from transformers.utils import logging

from .alignment_ernie_thu import (
    ALIGNMENTS,
    TextTokens,
    WordTokens,
    place,
    reference_start,
    slice_window,
    thin,
    word_end,
)
from .annotations_ernie_thu import (
    DroppedEntity,
    EntityAnnotation,
    Span,
    read_annotations,
    read_span,
    resolve_overlaps,
)
from .entity_vocab_ernie_thu import POLICIES
from .markers_ernie_thu import (
    TASKS,
    TRUNCATIONS,
    Frame,
    Segment,
    kept_lengths,
    mark_text,
    shifted_spans,
    windows,
)

logger = logging.get_logger(__name__)

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
    """An annotation that counts.

    Args:
        span: its place in the text that is tokenised.
        entity: its entity id, 0 = unknown.
        annotation: what was given.
    """

    span: Span
    entity: int
    annotation: EntityAnnotation


class ProcessorCall:
    """The state of one call.

    Args:
        processor: whose tokenizer, vocabulary, linker and markers are used.
        text: as in the processor's call.
        text_pair: as in the processor's call.
        split: whether texts are lists of words.
        alignment: one of `ALIGNMENTS`.
        min_score: annotations count above it.
        on_unknown_entity: policy for ids that the vocabulary lacks.
        on_dropped_entity: policy for annotations that cannot be placed as asked for.

    Raises:
        ValueError: an option is none of its values, or there are not as many second texts as first ones.
    """

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
        """Check annotations, or have them linked, and find their entity ids.

        Args:
            entities: as in the processor's call.
            entities_pair: as in the processor's call.
            link: whether the linker may be asked.

        Raises:
            TypeError: an annotation is of no known form.
            ValueError: an annotation lies outside its text, or entities are unknown under the policy "error".
        """
        if entities_pair is not None and len(self.texts) == 1:
            raise ValueError("`entities_pair` must come with `text_pair`, got none.")
        unit = "words" if self.split else "characters"
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
                annotations = read_annotations(values, len(text), unit, not self.as_reference) if values else []
                kept = self._select(annotations, number, bool(pair)) if annotations else []
                counts[-1].append(len(kept))
                flat += kept
        entity_ids = iter(zip(flat, self._entity_ids(flat), strict=True))
        self.mentions = [
            [
                self._to_mentions([next(entity_ids) for _ in range(count)], number, bool(pair))
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
                "`entities` must be given when the texts come as words, because the linker reads texts. Pass "
                "`entities`, or link=False for none."
            )
        found = self.processor.linker(texts)
        if len(found) != len(texts):
            raise ValueError(f"`linker` must return one list per text, got {len(found)} for {len(texts)} texts.")
        return found

    def _select(self, annotations: list[EntityAnnotation], text: int, pair: bool) -> list[EntityAnnotation]:
        """Drop what does not count: low scores and, where the reference does not want them all, overlaps."""
        self.given += len(annotations)
        kept = [one for one in annotations if one.score > self.min_score]
        if len(kept) < len(annotations):
            self._drop(text, pair, (one for one in annotations if not one.score > self.min_score), "score")
        if self.alignment == "reference" or len(kept) < 2:
            return kept
        kept, overlapping = resolve_overlaps(kept)
        if overlapping:
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
        mentions = []
        for annotation, entity in pairs:
            if not entity:
                self._drop(text, pair, [annotation], "unknown")
                if self.alignment != "reference":
                    continue
            mentions.append(Mention((annotation.start, annotation.end), entity, annotation))
        return mentions

    def _by_words_between_spaces(self) -> None:
        """The reference's rule, on the texts as they are tokenised; of mentions with one start the last counts."""
        for pair, (texts, of_texts) in enumerate(zip(self.texts, self.mentions, strict=True)):
            for number, text in enumerate(texts):
                last: dict[int, Mention] = {}
                for mention in of_texts[number]:
                    start = reference_start(text, mention.span[0])
                    if start is not None:
                        if start in last and last[start].entity:
                            self._drop(number, bool(pair), [last[start].annotation], "overlap")
                        last[start] = mention._replace(span=(start, word_end(text, start)))
                    elif mention.entity:
                        self._drop(number, bool(pair), [mention.annotation], "no_token")
                of_texts[number] = [mention for mention in last.values() if mention.entity]

    # ---- mentions to tokens ----

    def encode(self, text: Any, text_pair: Any, return_tensors: str | None, options: dict[str, Any]) -> BatchEncoding:
        """Tokenise and place entities, without markers.

        Args:
            text: as the tokenizer gets it.
            text_pair: as the tokenizer gets it.
            return_tensors: as in the tokenizer.
            options: of the tokenizer.

        Returns:
            The batch.
        """
        if self.as_reference:
            self._by_words_between_spaces()
            if len(self.texts) == 2 and _truncation(options) == "longest_first":
                return self._assembled(None, return_tensors, options)
        overflow = bool(options.get("return_overflowing_tokens"))
        batch = self.tokenizer(
            text, text_pair, is_split_into_words=self.split, return_tensors=return_tensors, **options
        )
        encodings = batch.encodings
        if overflow or (_truncation(options) is not None and self.tokenizer.truncation_side == "left"):
            samples = _plain(batch["overflow_to_sample_mapping"]) if overflow else range(len(encodings))
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
                self._place_all(of_texts[number], self._tokens(encoding, number, pair, pair), number, pair, found)
        return self._thinned(found)

    def _tokens(self, encoding: Any, number: int, pair: int, sequence: int) -> TextTokens | WordTokens:
        if self.split:
            return WordTokens(encoding, sequence)
        return TextTokens(encoding, self.texts[pair][number], sequence)

    def _place_all(
        self, mentions: list[Mention], tokens: TextTokens | WordTokens, number: int, pair: int, found: dict[int, int]
    ) -> None:
        alignment = "first" if self.alignment == "reference" else self.alignment
        for mention in mentions:
            placed = place(tokens, mention.span, mention.entity, alignment)
            if not placed:
                reason = "truncated" if tokens.encoding.overflowing else "no_token"
                self._drop(number, bool(pair), [mention.annotation], reason)
                continue
            if tokens.starts_inside(placed[0][0], mention.span):
                self._drop(number, bool(pair), [mention.annotation], "inside_token")
            self.placed += 1
            for token, entity in placed:
                found.setdefault(token, entity)

    def _thinned(self, found: dict[int, int]) -> dict[int, int]:
        if self.alignment != "alternate" or not found:
            return found
        row = [found.get(token, 0) for token in range(max(found) + 1)]
        return {token: entity for token, entity in enumerate(thin(row)) if entity}

    def _whole_texts(self) -> list[list[tuple[Any, dict[int, int]]]]:
        """Encoding of every whole text without special tokens, and its entities."""
        result = []
        for pair, texts in enumerate(self.texts):
            encodings = (
                self.tokenizer(
                    texts, add_special_tokens=False, truncation=False, is_split_into_words=self.split, verbose=False
                ).encodings
                if texts
                else []
            )
            placed = []
            for number, encoding in enumerate(encodings):
                found: dict[int, int] = {}
                tokens = self._tokens(encoding, number, pair, 0)
                self._place_all(self.mentions[pair][number], tokens, number, pair, found)
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
                for token, entity in of_texts[number][1].items():
                    if token in tokens:
                        row[first + token - tokens.start] = entity
                        seen[pair][number].add(token)
            rows.append(row)
        self._report_unseen(whole, seen)
        return rows

    def _report_unseen(self, whole: Sequence[Sequence[tuple[Any, dict[int, int]]]], seen: Any) -> None:
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

    def encode_with_markers(
        self, task: str, spans: dict[str, Any], return_tensors: str | None, options: dict[str, Any]
    ) -> BatchEncoding:
        """Tokenise, place entities, and put markers around mentions of the first text.

        Args:
            task: "relation" or "typing".
            spans: `head`, `tail` and `span` as in the processor's call.
            return_tensors: as in the tokenizer.
            options: of the tokenizer.

        Returns:
            The batch.

        Raises:
            TypeError: a span is of no known form.
            ValueError: the task is unknown, a span is missing, superfluous, empty, outside its text or overlaps with
                the other one, or a marker is not in the vocabulary.
        """
        check_choice("task", task, TASKS)
        names = ("head", "tail") if task == "relation" else ("span",)
        for name, value in spans.items():
            if (value is None) == (name in names):
                raise ValueError(
                    f"`task='{task}'` must come with {' and '.join(f'`{one}`' for one in names)} and nothing else of "
                    f"the kind, got `{name}={value!r}`."
                )
        markers = self.processor.markers[:2] if task == "relation" else self.processor.markers[2:]
        marked = self._marked_spans({name: spans[name] for name in names}, markers)
        self._marker_ids(markers)
        if not self.as_reference:
            return self._assembled(marked, return_tensors, options)
        for number, mentions in enumerate(marked):
            self.texts[0][number] = mark_text(self.texts[0][number], mentions)
            own = self.mentions[0][number]
            shifted = shifted_spans([mention.span for mention in own], mentions)
            self.mentions[0][number] = [
                mention._replace(span=span) for mention, span in zip(own, shifted, strict=True)
            ]
        texts = self.texts if self.batched else [one[0] for one in self.texts]
        return self.encode(texts[0], texts[1] if len(texts) == 2 else None, return_tensors, options)

    def _marked_spans(self, spans: dict[str, Any], markers: Sequence[str]) -> list[list[tuple[Span, str]]]:
        unit = "words" if self.split else "characters"
        result = []
        per_text = {name: values if self.batched else [values] for name, values in spans.items()}
        for name, values in per_text.items():
            if not isinstance(values, list | tuple) or len(values) != len(self.texts[0]):
                raise ValueError(f"`{name}` must have one span per text, got {values!r}.")
        for number, text in enumerate(self.texts[0]):
            mentions = [
                (read_span(name, values[number], len(text), unit, not self.as_reference), marker)
                for (name, values), marker in zip(per_text.items(), markers, strict=True)
            ]
            first, last = min(mentions)[0], max(mentions)[0]
            if self.as_reference:
                if len(mentions) == 1 and first[0] == first[1]:
                    raise ValueError(f"`span` must not be empty, got {first}: the reference leaves such records out.")
            elif len(mentions) == 2 and first[1] > last[0]:
                raise ValueError(
                    f"`head` and `tail` must not overlap, got {mentions[0][0]} and {mentions[1][0]}: their markers "
                    "would cross."
                )
            result.append(mentions)
        return result

    def _marker_ids(self, markers: Sequence[str]) -> dict[str, int]:
        ids = {marker: self.tokenizer.convert_tokens_to_ids(marker) for marker in markers}
        for marker, token in ids.items():
            if token is None or token == self.tokenizer.unk_token_id:
                raise ValueError(
                    f"`markers` must be in the vocabulary, got {marker!r}. Choose other `markers`, or add it with "
                    "`tokenizer.add_tokens` and resize the model's embeddings."
                )
        return ids

    def _assembled(
        self, marked: list[list[tuple[Span, str]]] | None, return_tensors: str | None, options: dict[str, Any]
    ) -> BatchEncoding:
        """Rows put together from the tokens of whole texts."""
        options = dict(options)
        truncation = _truncation(options)
        options.pop("truncation", None)
        options.pop("verbose", None)
        max_length, stride = options.pop("max_length", None), options.pop("stride", 0)
        overflow, wants_length = (options.pop(f"return_{name}", False) for name in ("overflowing_tokens", "length"))
        frame = Frame.of(self.tokenizer, len(self.texts), options.pop("add_special_tokens", True))
        room = (self.tokenizer.model_max_length if max_length is None else max_length) - frame.size
        columns = {"input_ids", "entity_ids"}
        for name, option in _COLUMNS.items():
            wanted = options.pop(option, None)
            if wanted or (wanted is None and name in self.tokenizer.model_input_names):
                columns.add(name)
        whole = self._whole_texts()
        seen: list[list[set[int]]] = [[set() for _ in of_texts] for of_texts in whole]
        rows, samples = [], []
        for number in range(len(self.texts[0])):
            segments = [_segment(*of_texts[number]) for of_texts in whole]
            if marked is not None:
                tokens = self._tokens(whole[0][number][0], number, 0, 0)
                segments[0] = segments[0].with_markers(self._marked_tokens(tokens, marked[number]))
            for parts in self._cut(segments, room, truncation, stride, overflow):
                rows.append(frame.row(parts))
                samples.append(number)
                for pair, part in enumerate(parts):
                    seen[pair][number].update(part.tokens)
        self._report_unseen(whole, seen)
        data: dict[str, Any] = {name: [row[name] for row in rows] for name in sorted(columns)}
        data["entity_mask"] = [_mask_of(entities, 0) for entities in data["entity_ids"]]
        padded = dict(self.processor.pad(data, options.pop("padding", False), max_length=max_length, **options))
        if wants_length:
            padded["length"] = [len(row) for row in padded["input_ids"]]
        if overflow:
            padded["overflow_to_sample_mapping"] = samples
        elif not self.batched and return_tensors is None:
            padded = {name: values[0] for name, values in padded.items()}
        return BatchEncoding(padded, tensor_type=return_tensors)

    def _marked_tokens(
        self, tokens: TextTokens | WordTokens, mentions: Sequence[tuple[Span, str]]
    ) -> list[tuple[range, int]]:
        ids = self._marker_ids([marker for _, marker in mentions])
        result = []
        for span, marker in mentions:
            found = tokens.tokens(span)
            if not found:
                raise ValueError(f"A marked mention must have a token, got none in [{span[0]}, {span[1]}).")
            result.append((found, ids[marker]))
        first, *rest = sorted(result, key=lambda one: one[0].start)
        if rest and rest[0][0].start < first[0].stop:
            raise ValueError("`head` and `tail` must not share a token, got a border inside one. Move the border.")
        return result

    def _cut(
        self, segments: list[Segment], room: int, truncation: str | None, stride: int, overflow: bool
    ) -> list[list[Segment]]:
        """The parts of one or two texts that make rows."""
        lengths = [len(segment) for segment in segments]
        if truncation is None or sum(lengths) <= room:
            return [segments]
        if room < 0:
            raise ValueError(f"`max_length` must leave room for special tokens, got {room} tokens too few.")
        left = self.tokenizer.truncation_side == "left"
        if len(segments) == 1 and truncation == "only_second":
            raise ValueError("`truncation='only_second'` must come with `text_pair`, got none.")
        cut = 1 if truncation == "only_second" else 0
        if not overflow:
            kept = [room]
            if len(segments) == 2:
                kept = list(kept_lengths(*lengths, room, truncation, self.alignment == "reference"))
            return [
                [
                    one.part(len(one) - size if left else 0, len(one) if left else size)
                    for one, size in zip(segments, kept, strict=True)
                ]
            ]
        if len(segments) == 2 and truncation == "longest_first":
            raise ValueError(
                "`return_overflowing_tokens` of pairs must come with `truncation` 'only_first' or 'only_second', got "
                "'longest_first', under which there are no windows of one text."
            )
        size = room - sum(lengths) + lengths[cut]
        if size < 1:
            raise ValueError(f"`truncation='{truncation}'` must leave room for the text it cuts, got {size} tokens.")
        return [
            [one.part(part.start, part.stop) if index == cut else one for index, one in enumerate(segments)]
            for part in windows(lengths[cut], size, stride, left)
        ]

    # ---- the report ----

    def report(self) -> None:
        """Count what became of the annotations, and say it under the policies.

        Raises:
            ValueError: a policy is "error" and there is something to say.
        """
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
        """Sort the report by texts.

        Returns:
            A list for each text.
        """
        result: list[list[DroppedEntity]] = [[] for _ in self.texts[0]]
        for one in self.dropped:
            result[one.text].append(one)
        return result


def check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse an option that is none of its values.

    Args:
        field: its name.
        value: what was given.
        choices: its values.

    Raises:
        ValueError: it is.
    """
    if value not in choices:
        raise ValueError(f"`{field}` must be one of {choices}, got {value!r}.")


def _truncation(options: dict[str, Any]) -> str | None:
    """The strategy by its name, `None` for no truncation."""
    value = options.get("truncation")
    value = getattr(value, "value", value)
    if value is None or value is False or value == "do_not_truncate":
        return None
    if value is True:
        return "longest_first"
    check_choice("truncation", value, TRUNCATIONS)
    return str(value)


def _segment(encoding: Any, entities: dict[int, int]) -> Segment:
    count = len(encoding)
    placed = [entities.get(token, 0) for token in range(count)]
    return Segment(encoding.ids, encoding.offsets, placed, list(range(count)))


def _mask_of(entities: Sequence[int], first: int) -> list[int]:
    """1 where an entity is, and at the first token, which is always there to be attended to."""
    mask = [int(entity != 0) for entity in entities]
    if first < len(mask):
        mask[first] = 1
    return mask


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


def _plain(values: Any) -> Any:
    return values.tolist() if hasattr(values, "tolist") else values
