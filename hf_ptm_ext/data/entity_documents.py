"""Documents whose tokens carry entities: from annotated texts, from the original project's files, to sentence pairs.

    shard_token    one document a line, tab separated: number of sentences, then of each its length and its token ids
    shard_entity   the same counts at the same places, with an entity for each token: "Q392" or "#UNK#"

Every token of a mention carries the entity here. `entity_pairs` then makes rows as ERNIE-THU's `create_instances.py`
does (Zhang et al. 2019, section 3.3): an entity that equals its left neighbour in its sentence is dropped, then BERT's
sentence pairs are joined and cut with the entities in lockstep, and rows with fewer than five entities left out.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .lines import iter_lines
from .sentence_pairs import next_sentence_pairs
from .tokenization import SpecialTokens

UNKNOWN = "#UNK#"
MOST_DIGITS = 12  # of a token id or a count


class EntitySentence(NamedTuple):
    """The tokens of a sentence and what they carry.

    Args:
        input_ids (`list[int]`): Without special tokens.
        entity_ids (`list[int]`): One per token, 0 = none.
    """

    input_ids: list[int]
    entity_ids: list[int]


EntityDocument = Sequence[EntitySentence]


def encode_entity_documents(
    documents: Iterable[Sequence[tuple[str, Sequence[Any]]]], processor: Any
) -> Iterator[list[EntitySentence]]:
    """Turn annotated texts into documents.

    Args:
        documents (`Iterable[Sequence[tuple[str, Sequence]]]`): Of each document its sentences: a text and the
            annotations in it, in any form the processor takes.
        processor (`ErnieThuProcessor`): Tokenises and places the entities.

    Returns:
        `Iterator[list[EntitySentence]]`: one document for each document, sentences without tokens left out.

    Example:

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
        token_file (`str` or `PathLike`): `<shard>_token`.
        entity_file (`str` or `PathLike`): `<shard>_entity`.
        rows (`Callable`): Turns external ids into entity ids, 0 for unknown ones: `table.rows` or `vocabulary.rows`.
        encoding (`str`, *optional*, defaults to `"utf-8"`): Of both files.

    Returns:
        `Iterator[list[EntitySentence]]`: one document for each line.

    Raises:
        ValueError: If a line is not of the form, or the two files do not fit; with the number of the line.
    """
    files = [(line.text for line in iter_lines(Path(path), encoding)) for path in (token_file, entity_file)]
    for number, (token_line, entity_line) in enumerate(_both(*files, token_file), start=1):
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


def _both(tokens: Iterator[str], entities: Iterator[str], name: Any) -> Iterator[tuple[str, str]]:
    for pair in zip_longest(tokens, entities):
        if None in pair:
            raise ValueError(f"{name} and its entity file must have the same number of lines. Get them again.")
        yield pair


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
    """Write a shard in the original project's form.

    Args:
        documents (`Iterable[Sequence[EntitySentence]]`): The documents.
        token_file (`str` or `PathLike`): `<shard>_token`.
        entity_file (`str` or `PathLike`): `<shard>_entity`.
        names (`Callable`): Turns an entity id into the external id: `vocabulary.id_of`.
    """
    known: dict[int, str] = {0: UNKNOWN}
    with open(token_file, "w", encoding="utf-8") as tokens, open(entity_file, "w", encoding="utf-8") as entities:
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
    """Yield rows of sentence pairs with entities, for one pass over the documents.

    Args:
        documents (`Sequence[Sequence[EntitySentence]]`): At least two.
        max_length (`int`): Most tokens of a row, special tokens included (reference: 256).
        special_tokens (`SpecialTokens`): From `special_tokens_of(tokenizer)`.
        generator (`numpy.random.Generator`): Draws everything.
        short_seq_prob (`float`, *optional*, defaults to 0.1): As in `next_sentence_pairs`.
        min_entities (`int`, *optional*, defaults to 5): Rows with fewer entities are left out (reference: 5; the paper
            says 3).
        thin (`bool`, *optional*, defaults to `True`): Drop an entity that equals its left neighbour, as that is left,
            so that a mention of k tokens keeps tokens 0, 2, 4, ... (reference): in each sentence, before they are
            joined and cut.

    Returns:
        `Iterator[dict[str, Any]]`: `input_ids`, `token_type_ids`, `entity_ids`, `next_sentence_label`; for
        `DataCollatorForDenoisingEntities`. For `datasets`, give a generator function to `Dataset.from_generator`.

    Raises:
        ValueError: If an option is out of range or fewer than two documents have tokens.

    Example:

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
