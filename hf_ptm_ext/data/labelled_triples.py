"""Triples of a knowledge graph as examples, the texts that stand for entities and relations, and the rows of KG-BERT.

    [CLS] head [SEP] relation [SEP] tail [SEP]      segments 0, 1, 0
    [CLS] head [SEP] tail [SEP]                     segments 0, 1 (relation prediction)

Yao et al. 2019, https://arxiv.org/abs/1909.03193; yao8839836/kg-bert.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .bad_rows import usable
from .lines import iter_lines
from .rows import FORMATS, Files, PlacedRow, dataset_rows, expand_files, field_of, id_of, placed_files, read_rows

TRUE, FALSE = "1", "0"
_SAID = {"1": TRUE, "1.0": TRUE, "true": TRUE, "0": FALSE, "-1": FALSE, "0.0": FALSE, "-1.0": FALSE, "false": FALSE}
_FIELDS = ("head", "relation", "tail")
_ENDINGS = {**FORMATS, ".txt": "tsv"}


class LabelledTriple(NamedTuple):
    """A statement of a knowledge graph.

    Args:
        head: Name of the first entity.
        relation: Name of the relation.
        tail: Name of the second entity.
        label: `"1"` if it is true, `"0"` if not; `None` where the file says nothing, and only true ones stand.
        id: Its name in the data set, if it has one.
    """

    head: str
    relation: str
    tail: str
    label: str | None = None
    id: str | int | None = None


def read_labelled_triples(
    files: Files,
    label: str = "label",
    *,
    file_format: str | None = None,
    encoding: str = "utf-8",
    unlabelled: bool = True,
) -> Iterator[LabelledTriple]:
    """Read triples in the order of the files.

    Args:
        files: Paths or glob patterns. `.tsv` and `.txt`: `head<TAB>relation<TAB>tail`, perhaps with a fourth field, 1
            for true and -1 or 0 for false (WN11, FB13), with or without a first line that names them. `.jsonl`, `.csv`
            and `.parquet`: columns `head`, `relation`, `tail`. All also `.gz`.
        label: Column of the fourth field.
        file_format: Of all files; told from the names by default.
        encoding: Of files of text.
        unlabelled: For the jobs' sake; a triple may always be without a label.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "test.tsv"
        >>> _ = file.write_text("cat\\tis a\\tanimal\\t1\\n", encoding="utf-8")
        >>> list(read_labelled_triples(file))
        [LabelledTriple(head='cat', relation='is a', tail='animal', label='1', id=None)]
    """
    placed = placed_files(files, file_format, _ENDINGS)
    return _labelled(read_rows(placed, encoding, {"tsv": _lines_of_triples}), label)


def dataset_labelled_triples(
    path: str | PathLike[str],
    name: str | None = None,
    *,
    split: str,
    label: str = "label",
    revision: str | None = None,
    unlabelled: bool = True,
) -> Iterator[LabelledTriple]:
    """Read triples from a dataset of the Hub or of a folder, by the columns of `read_labelled_triples`.

    Examples:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> rows = {"head": ["cat"], "relation": ["is a"], "tail": ["animal"]}
        >>> Dataset.from_dict(rows).save_to_disk(folder := tempfile.mkdtemp())
        >>> next(dataset_labelled_triples(folder, split="train")).label is None
        True
    """
    return _labelled(dataset_rows(path, name, split, revision)[0], label)


def _lines_of_triples(path: Path, encoding: str) -> Iterator[PlacedRow]:
    for line in iter_lines(path, encoding):
        fields = [field.strip() for field in line.text.split("\t")]
        named = tuple(field.lower() for field in fields[:3]) == _FIELDS and line.number == 1
        if not line.text.strip() or named:
            continue
        where = f"{path}, line {line.number}"
        if len(fields) not in (3, 4):
            got = f"{len(fields)} field{'s' * (len(fields) > 1)}"
            yield where, ValueError(f"{where}: must be head, relation, tail and perhaps 1 or -1 by tabs, got {got}.")
        else:
            yield where, dict(zip((*_FIELDS, "label"), fields, strict=False))


def _labelled(rows: Iterable[PlacedRow], label: str) -> Iterator[LabelledTriple]:
    def example(row: Mapping[str, Any], where: str) -> LabelledTriple:
        names = [field_of(row, field, "a text").strip() for field in _FIELDS]
        told = row.get(label, row.get("label"))
        value = None if told is None or told == "" else _SAID.get(str(told).lower())
        if value is None and told not in (None, ""):
            raise ValueError(f"the label must be 1 (true) or 0 or -1 (false), got {told!r:.40}.")
        return LabelledTriple(names[0], names[1], names[2], value, id_of(row))

    return usable(rows, example)


def read_descriptions(files: Files, encoding: str = "utf-8") -> dict[str, str]:
    """Read what stands for entities or relations: `name<TAB>text` a line, also `.gz`.

    Args:
        files: Paths or glob patterns; of a name that is there twice the last text counts, so that
            `entity2text.txt entity2textlong.txt` are KG-BERT's texts of FB15k-237.
        encoding: Of the files.

    Returns:
        name -> text, in the order of the files.

    Raises:
        ValueError: lines are no name and text, or there are none; one message names the lines.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "entity2text.txt"
        >>> _ = file.write_text("Q146\\ta domestic cat\\n", encoding="utf-8")
        >>> read_descriptions(file)
        {'Q146': 'a domestic cat'}
    """

    def lines() -> Iterator[PlacedRow]:
        for path in expand_files(files):
            for line in iter_lines(path, encoding):
                if line.text.strip():
                    yield f"{path}, line {line.number}", [field.strip() for field in line.text.split("\t")]

    def described(fields: list[str], where: str) -> tuple[str, str]:
        if len(fields) != 2 or not all(fields):
            raise ValueError(f"must be a name and a text, separated by a tab, got {len(fields)} fields.")
        return fields[0], fields[1]

    found = dict(usable(lines(), described, named=False))
    if not found:
        raise ValueError(f"`files` must have at least one line with a name and a text, got none in {files}.")
    return found


class TripleEncoder:
    """KG-BERT's rows of triples for any encoder; every text is cut into pieces once.

    While a row is too long, the last piece of its longest text is left out, of the last text if two are longest (the
    reference's rule; where that would empty a text already empty, the longest one's). Segments are given where the
    tokenizer has them.

    Args:
        tokenizer: Of any encoder whose rows begin with one token and separate texts by another.
        entities: Text of each entity, by number.
        relations: Text of each relation.
        max_length: Most tokens of a row, special tokens included.
        with_relation: False for relation prediction, where head and tail alone are read.

    Raises:
        ValueError: the tokenizer has no such tokens, or there is no room for a piece of each text.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "animal", "is", "a"]
        >>> tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
        >>> encoder = TripleEncoder(tokenizer, ["cat", "animal"], ["is a"], max_length=16)
        >>> row = encoder.rows([[0, 0, 1]])[0]
        >>> row["input_ids"], row["token_type_ids"]
        ([2, 5, 3, 7, 8, 3, 6, 3], [0, 0, 0, 1, 1, 1, 0, 0])
    """

    def __init__(
        self,
        tokenizer: Any,
        entities: Sequence[str],
        relations: Sequence[str],
        max_length: int = 128,
        with_relation: bool = True,
    ):
        first = tokenizer.bos_token_id if tokenizer.cls_token_id is None else tokenizer.cls_token_id
        separator = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
        if first is None or separator is None or tokenizer.padding_side == "left":
            raise ValueError(
                "`tokenizer` must have a first token (cls or bos) and a separator, and pad on the right, got "
                f"{type(tokenizer).__name__} with {first} and {separator}, {tokenizer.padding_side}."
            )
        self.parts = (0, 1, 2) if with_relation else (0, 2)
        self.room = max_length - len(self.parts) - 1
        if self.room < len(self.parts):
            raise ValueError(f"`max_length` must leave room for a piece of each text, got {max_length}.")
        self._first, self._separator, self._pad = first, separator, tokenizer.pad_token_id or 0
        self._segments = "token_type_ids" in tokenizer.model_input_names
        unique = dict[tuple[int, ...], int]()  # texts that are the same to the model are one
        texts = [*entities, *relations]
        pieces = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        self._number = np.array([unique.setdefault(tuple(ids[: self.room]), len(unique)) for ids in pieces])
        self._lengths = np.array([len(ids) for ids in unique])
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._pieces = np.array([piece for ids in unique for piece in ids], dtype=np.int64)
        self.num_entities, self.num_relations = len(entities), len(relations)

    def texts_of(self, triples: Any) -> np.ndarray:
        """The numbers of the texts that are read, `(triples, 3 or 2)`; equal rows are the same to the model."""
        triples = np.asarray(triples, dtype=np.int64).reshape(-1, 3)
        if len(triples) and (
            triples.min() < 0
            or triples[:, [0, 2]].max() >= self.num_entities
            or triples[:, 1].max() >= self.num_relations
        ):
            raise ValueError(
                f"`triples` must name entities below {self.num_entities} and relations below {self.num_relations}, "
                f"got numbers up to {triples.max(axis=0).tolist()}."
            )
        shifted = triples + np.array([0, self.num_entities, 0])
        return self._number[shifted[:, list(self.parts)]]

    def cut(self, texts: np.ndarray) -> np.ndarray:
        """How many pieces of each text are kept."""
        lengths = self._lengths[texts]
        while len(over := np.flatnonzero(lengths.sum(axis=1) > self.room)):
            part = lengths[over]
            longest, last = part.max(axis=1), part.shape[1] - 1
            alone = (part == longest[:, None]).sum(axis=1) == 1
            column = np.where(alone | (part[:, last] == 0), part.argmax(axis=1), last)
            lengths[over, column] -= 1
        return lengths

    def assemble(self, texts: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        """Model inputs of rows, padded to the longest of them."""
        total = lengths.sum(axis=1) + len(self.parts) + 1
        place = np.arange(total.max(initial=0))[None]
        ids = np.full((len(texts), place.shape[1]), self._pad, dtype=np.int64)
        segments = np.zeros_like(ids)
        ids[:, 0] = self._first
        start = np.ones((len(texts), 1), dtype=np.int64)
        for number in range(len(self.parts)):
            end = start + lengths[:, [number]]
            within = (place >= start) & (place < end)
            source = self._starts[texts[:, [number]]] + place - start
            ids[within] = self._pieces[source[within]]
            ids[place == end] = self._separator
            segments[(place >= start) & (place <= end)] = number % 2
            start = end + 1
        mask = (place < total[:, None]).astype(np.int64)
        return {"input_ids": ids, "attention_mask": mask, **({"token_type_ids": segments} if self._segments else {})}

    def rows(self, triples: Any) -> list[dict[str, list[int]]]:
        """Model inputs of triples `(number, 3)`, head, relation, tail, without padding."""
        texts = self.texts_of(triples)
        lengths = self.cut(texts)
        columns, total = self.assemble(texts, lengths), lengths.sum(axis=1) + len(self.parts) + 1
        return [
            {name: values[row, :end].tolist() for name, values in columns.items()} for row, end in enumerate(total)
        ]
