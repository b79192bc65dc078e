"""Documents whose tokens carry entities: from annotated texts, from the original project's files, to sentence pairs.

    shard_token    one document a line, tab separated: number of sentences, then of each its length and its token ids
    shard_entity   the same counts at the same places, with an entity for each token: "Q392" or "#UNK#"

Its instances of length L are vectors of 6 L + 1 integers: token ids, attention mask, token types, labels of masked
tokens (-1 = none), entity ids (-1 = none), entity mask, next-sentence label. Our rows count entities from 1 (0 = none)
and mark unlabelled tokens with -100.

    .bin           all vectors one after the other, little endian, each value + 1
    .idx           "TNTIDX" and two zero bytes; as uint64 version 1, type code, bytes of a value, number of instances,
                   number of sizes; as int64 offsets into the sizes, offsets into the values, sizes

Every token of a mention carries the entity here.
"""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..files import file_aside
from .lines import iter_lines
from .sentence_pairs import next_sentence_pairs
from .tokenization import SpecialTokens

UNKNOWN = "#UNK#"
MAGIC = b"TNTIDX\x00\x00"
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f4", 7: "<f8"}
_NONE, _IGNORED = -1, -100
MOST_DIGITS = 12  # of a token id or a count


class EntitySentence(NamedTuple):
    """The tokens of a sentence and what they carry.

    Args:
        input_ids: Without special tokens.
        entity_ids: One per token, 0 = none.
    """

    input_ids: list[int]
    entity_ids: list[int]


EntityDocument = Sequence[EntitySentence]


def encode_entity_documents(
    documents: Iterable[Sequence[tuple[str, Sequence[Any]]]], processor: Any
) -> Iterator[list[EntitySentence]]:
    """Turn annotated texts into documents, without sentences that have no tokens.

    Args:
        documents: Of each document its sentences: a text and the annotations in it, in any form the processor takes.
        processor: Tokenises and places the entities.

    Examples:
        >>> processor = lambda texts, **_: {"input_ids": [[7, 8]], "entity_ids": [[3, 3]]}
        >>> next(encode_entity_documents([[("Bob Dylan", [(0, 9, "Q392")])]], processor))
        [EntitySentence(input_ids=[7, 8], entity_ids=[3, 3])]
    """
    for document in documents:
        sentences = [(text, list(entities)) for text, entities in document if text.strip()]
        if not sentences:
            yield []
            continue
        encoded = processor(
            [text for text, _ in sentences],
            entities=[entities for _, entities in sentences],
            alignment="all",
            add_special_tokens=False,
            truncation=False,
            verbose=False,
        )
        rows = zip(encoded["input_ids"], encoded["entity_ids"], strict=True)
        yield [EntitySentence(list(ids), list(entities)) for ids, entities in rows if len(ids)]


def read_entity_documents(
    token_file: str | os.PathLike[str],
    entity_file: str | os.PathLike[str],
    rows: Callable[[list[str]], Iterable[int]],
    *,
    encoding: str = "utf-8",
) -> Iterator[list[EntitySentence]]:
    """Read a shard of the original project.

    Args:
        token_file: `<shard>_token`.
        entity_file: `<shard>_entity`.
        rows: Turns external ids into entity ids, 0 for unknown ones: `table.rows` or `vocabulary.rows`.
        encoding: Of both files.
    """
    files = [(line.text for line in iter_lines(Path(path), encoding)) for path in (token_file, entity_file)]
    for number, (token_line, entity_line) in enumerate(zip_longest(*files), start=1):
        if token_line is None or entity_line is None:
            raise ValueError(
                f"{token_file} and its entity file must have the same number of lines, got no line {number} of one. "
                "Get them again."
            )
        place = f"{token_file}, line {number}"
        token_sentences, entity_sentences = (_sentences(line, place) for line in (token_line, entity_line))
        sizes = [[len(sentence) for sentence in one] for one in (token_sentences, entity_sentences)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"{place}, must have an entity field for each token, got other counts in the files.")
        flat = [name for sentence in entity_sentences for name in sentence]
        found = [name for name in flat if name != UNKNOWN]
        translated = iter(int(row) for row in rows(found)) if found else iter(())
        ids = iter([0 if name == UNKNOWN else next(translated) for name in flat])
        numbers = [token for sentence in token_sentences for token in sentence]
        if wrong := [token for token in numbers if not token.isdecimal() or len(token) > MOST_DIGITS]:
            raise ValueError(f"{place}, must hold token ids, got {wrong[0][:60]!r}.")
        yield [
            EntitySentence([int(token) for token in sentence], [next(ids) for _ in sentence])
            for sentence in token_sentences
        ]


def _sentences(line: str, place: str) -> list[list[str]]:
    """The fields of one line by sentences."""
    fields = line.split("\t")
    try:
        at, result = 1, []
        for _ in range(_count(fields[0], fields)):
            size = _count(fields[at], fields)
            result.append(fields[at + 1 : at + 1 + size])
            at += 1 + size
    except (ValueError, IndexError) as error:
        raise ValueError(f"{place}, must hold counts and fields, got {line[:60]!r}.") from error
    if at != len(fields):
        raise ValueError(f"{place}, must have {at} fields by its counts, got {len(fields)}. The file is damaged.")
    return result


def _count(text: str, fields: Sequence[str]) -> int:
    """A count of what stands in a line, which it cannot exceed."""
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) > len(fields):
        raise ValueError(text[:60])
    return int(text)


def write_entity_documents(
    documents: Iterable[EntityDocument],
    token_file: str | os.PathLike[str],
    entity_file: str | os.PathLike[str],
    names: Callable[[int], Any],
) -> None:
    """Write a shard in the original project's form; `names` gives external ids, as `vocabulary.id_of`."""
    known: dict[int, str] = {0: UNKNOWN}
    with (
        file_aside(Path(token_file)) as token_path,
        file_aside(Path(entity_file)) as entity_path,
        open(token_path, "w", encoding="utf-8") as tokens,
        open(entity_path, "w", encoding="utf-8") as entities,
    ):
        for document in documents:
            lines: tuple[list[str], list[str]] = ([str(len(document))], [str(len(document))])
            for sentence in document:
                for line in lines:
                    line.append(str(len(sentence.input_ids)))
                for entity in sentence.entity_ids:
                    if entity not in known:
                        known[entity] = str(names(entity))
                lines[0].extend(map(str, sentence.input_ids))
                lines[1].extend(known[entity] for entity in sentence.entity_ids)
            tokens.write("\t".join(lines[0]) + "\n")
            entities.write("\t".join(lines[1]) + "\n")


def entity_pairs(
    documents: Sequence[EntityDocument],
    max_length: int,
    special_tokens: SpecialTokens,
    generator: np.random.Generator,
    *,
    short_seq_prob: float = 0.1,
    min_entities: int = 5,
    thin: bool = True,
) -> Iterator[dict[str, Any]]:
    """Yield rows of sentence pairs with entities, as ERNIE-THU's `create_instances.py` does in one pass.

    Args:
        documents: At least two.
        max_length: Most tokens of a row, special tokens included (reference: 256).
        special_tokens: From `special_tokens_of(tokenizer)`.
        generator: Draws everything.
        short_seq_prob: As in `next_sentence_pairs`.
        min_entities: Rows with fewer entities are left out (reference: 5; the paper says 3).
        thin: Drop an entity that equals its left neighbour, as that is left, so that a mention of k tokens keeps
            tokens 0, 2, 4, ... (reference): in each sentence, before they are joined and cut.

    Returns:
        `input_ids`, `token_type_ids`, `entity_ids`, `next_sentence_label`; for `DataCollatorForDenoisingEntities`. For
        `datasets`, give a generator function to `Dataset.from_generator`.

    Examples:
        >>> one = [EntitySentence([7, 8, 9], [1, 1, 1]), EntitySentence([7], [2])]
        >>> special = SpecialTokens([2], [3], [2], [3], [3])
        >>> rows = entity_pairs([one, one], 9, special, np.random.default_rng(0), short_seq_prob=0, min_entities=1)
        >>> next(rows)["entity_ids"]
        [0, 1, 0, 1, 0, 1, 0, 1, 0]
    """
    # Pairs are made of places, so that token and entity of a place stay together through every cut.
    token_ids = np.array([0, *(i for document in documents for sentence in document for i in sentence.input_ids)])
    kept = _thinned if thin else list
    entity_ids = np.array(
        [0, *(i for document in documents for sentence in document for i in kept(sentence.entity_ids))]
    )
    place = 1
    places: list[list[list[int]]] = []
    for document in documents:
        places.append([])
        for sentence in document:
            places[-1].append(list(range(place, place + len(sentence.input_ids))))
            place += len(sentence.input_ids)
    frame = SpecialTokens(
        special_tokens.prefix,
        special_tokens.suffix,
        [0] * len(special_tokens.pair_prefix),
        [0] * len(special_tokens.pair_middle),
        [0] * len(special_tokens.pair_suffix),
    )
    room = max_length - special_tokens.pair_count
    for pair in next_sentence_pairs(places, room, generator, short_seq_prob=short_seq_prob):
        entities = entity_ids[frame.pair(pair.first, pair.second)["input_ids"]].tolist()
        if sum(entity != 0 for entity in entities) < min_entities:
            continue
        row = special_tokens.pair(token_ids[pair.first].tolist(), token_ids[pair.second].tolist())
        yield {**row, "entity_ids": entities, "next_sentence_label": pair.next_sentence_label}


def _thinned(entities: list[int]) -> list[int]:
    """Entities whose left neighbour, as it is left, is another one."""
    result: list[int] = []
    for entity in entities:
        result.append(0 if result and entity == result[-1] else entity)
    return result


def read_instances(prefix: str | os.PathLike[str], *, keep_padding: bool = False) -> Iterator[dict[str, Any]]:
    """Read instances one by one; the file is memory-mapped.

    Args:
        prefix: Path without `.idx` and `.bin`.
        keep_padding: Whether rows keep their padding.

    Returns:
        `input_ids`, `attention_mask`, `token_type_ids`, `labels`, `entity_ids`, `next_sentence_label`.
    """
    offsets, values = _open(Path(prefix))
    for number, (begin, end) in enumerate(pairwise(offsets)):
        length, rest = divmod(int(end - begin) - 1, 6)
        if rest:
            raise ValueError(f"{prefix}.idx, instance {number}, must have 6 L + 1 values, got {int(end - begin)}.")
        vector = values[begin:end].astype(np.int64) - 1
        ids, mask, types, labels, entities, _ = vector[:-1].reshape(6, length)
        size = length if keep_padding else int(np.flatnonzero(mask).max(initial=-1)) + 1
        yield {
            "input_ids": ids[:size].tolist(),
            "attention_mask": mask[:size].tolist(),
            "token_type_ids": types[:size].tolist(),
            "labels": np.where(labels == _NONE, _IGNORED, labels)[:size].tolist(),
            "entity_ids": (entities + 1)[:size].tolist(),
            "next_sentence_label": int(vector[-1]),
        }


def instances_dataset(prefix: str | os.PathLike[str], *, keep_padding: bool = False) -> Any:
    """Read instances as a `datasets.Dataset`, cached by path, size and time of the file; see `read_instances`.

    Returns:
        With the columns of `read_instances`.
    """
    from datasets import Dataset

    _open(Path(prefix))
    state = os.stat(f"{os.fspath(prefix)}.bin")
    stamp = (os.path.abspath(prefix), keep_padding, state.st_size, state.st_mtime_ns)
    return Dataset.from_generator(_stamped, gen_kwargs={"stamp": stamp})


def _stamped(stamp: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    return read_instances(stamp[0], keep_padding=stamp[1])


def write_instances(
    rows: Iterable[Mapping[str, Any]], prefix: str | os.PathLike[str], max_length: int, *, pad_token_id: int = 0
) -> int:
    """Write rows as instances.

    Args:
        rows: With `input_ids` and, where they are not zeros (mask: ones; labels: -100), `attention_mask`,
            `token_type_ids`, `labels`, `entity_ids`, `next_sentence_label`.
        prefix: Path without `.idx` and `.bin`.
        max_length: L, to which rows are padded.
        pad_token_id: Of the tokenizer.
    """
    width, count = 6 * max_length + 1, 0
    with file_aside(f"{os.fspath(prefix)}.bin") as values, file_aside(f"{os.fspath(prefix)}.idx") as index:
        with open(values, "wb") as file:
            for row in rows:
                (_vector(row, max_length, pad_token_id, count) + 1).astype("<i4").tofile(file)
                count += 1
        with open(index, "wb") as file:
            file.write(MAGIC + struct.pack("<5Q", 1, 4, 4, count, count))
            np.arange(count + 1, dtype="<i8").tofile(file)
            (np.arange(count + 1, dtype="<i8") * width).tofile(file)
            np.full(count, width, dtype="<i8").tofile(file)
    return count


def _vector(row: Mapping[str, Any], max_length: int, pad_token_id: int, number: int) -> np.ndarray:
    """A row as 6 L + 1 integers, before the + 1."""
    size = len(row["input_ids"])
    if size > max_length:
        raise ValueError(f"`max_length` must hold every row, got {max_length} for {size} tokens of row {number}.")

    def column(name: str, missing: int, padding: int) -> np.ndarray:
        values = np.asarray(row[name] if row.get(name) is not None else [missing] * size, dtype=np.int64)
        if values.shape != (size,):
            raise ValueError(f"`{name}` must have one entry per token, got {values.shape} for {size} of row {number}.")
        return np.concatenate([values, np.full(max_length - size, padding)])

    labels = column("labels", _IGNORED, _IGNORED)
    entities = column("entity_ids", 0, 0) - 1
    parts = [
        column("input_ids", pad_token_id, pad_token_id),
        column("attention_mask", 1, 0),
        column("token_type_ids", 0, 0),
        np.where(labels == _IGNORED, _NONE, labels),
        entities,
        entities != _NONE,
        [int(row.get("next_sentence_label", 0))],
    ]
    return np.concatenate(parts).astype(np.int64)


def _open(prefix: Path) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and values of the two files."""
    index, binary = (prefix.with_name(prefix.name + ending) for ending in (".idx", ".bin"))
    for path in (index, binary):
        if not path.is_file():
            raise FileNotFoundError(f"There is no {path}. `prefix` must be the path without `.idx` and `.bin`.")
    data = index.read_bytes()
    if data[:8] != MAGIC or len(data) < 48:
        raise ValueError(f"{index} must begin with {MAGIC!r}, got {data[:8]!r}: it is of another format.")
    version, code, size, count, sizes = struct.unpack("<5Q", data[8:48])
    if version != 1 or code not in _TYPES or np.dtype(_TYPES[code]).itemsize != size:
        raise ValueError(
            f"{index} must be of version 1 with a known type, got {version}, type {code} of {size} bytes."
        )
    if len(data) != 48 + 8 * (2 * (count + 1) + sizes):
        raise ValueError(f"{index} must have {48 + 8 * (2 * (count + 1) + sizes)} bytes, got {len(data)}: cut off.")
    offsets = np.frombuffer(data, dtype="<i8", count=count + 1, offset=48 + 8 * (count + 1))
    available = binary.stat().st_size // size
    if count and (np.any(np.diff(offsets) < 0) or offsets[0] < 0 or offsets[-1] > available):
        raise ValueError(f"{binary} must have {int(offsets[-1])} values, got {available}: it is cut off.")
    values = np.memmap(binary, dtype=_TYPES[code], mode="r") if available else np.zeros(0, dtype=_TYPES[code])
    return offsets, values
