"""Readers of entity vectors in the forms in which people have them.

    kg_embed folder of the original project   entity2id.txt, entity2vec.vec, entity_map.txt
    OpenKE                                    entity2id.txt and vectors as .vec, .bin, .json, .ckpt/.pt, .npy
    word2vec text                             optional header, then `name v1 v2 ...` in each line

A line of the wrong length is an error with its number: padding a file that was cut off would train on zeros.
"""

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .entity_vocab_ernie_thu import MOST_DIGITS
from .texts_ernie_thu import text_lines

_LINES = 8192


def read_vectors(path: str | os.PathLike[str], num_rows: int, encoding: str = "utf-8") -> np.ndarray:
    """Read the vectors of numbered entities, in the order of their numbers.

    Args:
        path: `.vec`/`.txt` (a line per entity), `.bin` (float32), `.npy`, `.json`/`.ckpt`/`.pt`/`.pth` (OpenKE's
            `ent_embeddings.weight`).
        num_rows: number of entities.
        encoding: of a file of text.

    Returns:
        Float array `(num_rows, dim)`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the form is unknown, or the file does not hold `num_rows` vectors of one length.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file of entity vectors {path}.")
    kind = path.suffix.lower()
    if kind in (".vec", ".txt"):
        vectors = _parse_lines(text_lines(path, encoding=encoding), num_rows, path)
    elif kind == ".bin":
        flat = np.fromfile(path, dtype="<f4")
        if not num_rows or not len(flat) or len(flat) % num_rows:
            raise ValueError(f"{path} has {len(flat)} numbers, which are not {num_rows} vectors of one length.")
        vectors = flat.reshape(num_rows, -1)
    elif kind == ".npy":
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    elif kind == ".json":
        vectors = np.array(_openke_entities(_json_of(path), path), dtype=np.float32)
    elif kind in (".ckpt", ".pt", ".pth"):
        state = torch.load(path, map_location="cpu", weights_only=True)
        vectors = _openke_entities(state, path).float().numpy()
    else:
        raise ValueError(f"{path} must end in .vec, .txt, .bin, .npy, .json, .ckpt, .pt or .pth, got {kind!r}.")
    if vectors.ndim != 2 or len(vectors) != num_rows:
        raise ValueError(f"{path} must hold {num_rows} vectors, got an array of shape {vectors.shape}.")
    return vectors


def _json_of(path: Path) -> Any:
    try:
        return json.loads("\n".join(text_lines(path)))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON: {error}.") from error


def _openke_entities(state: Any, path: Path) -> Any:
    """The entity matrix among OpenKE's parameters."""
    names = ("ent_embeddings.weight", "model.ent_embeddings.weight", "ent_embeddings")
    for name in names:
        if name in state:
            return state[name]
    raise ValueError(f"{path} must hold OpenKE's `ent_embeddings.weight`, got {sorted(state)[:8]}.")


def _parse_lines(lines: Iterable[str], num_rows: int, path: Path) -> np.ndarray:
    """Vectors as lines of numbers."""
    result = None
    done = 0
    for first, block in _blocks(lines):
        if result is None:
            result = np.empty((num_rows, len(block[0].split())), dtype=np.float32)
        if done + len(block) > num_rows:
            raise ValueError(f"{path} must hold {num_rows} vectors, got more. Its entity list is of another file.")
        result[done : done + len(block)] = _parse_block(block, result.shape[1], first, path)
        done += len(block)
    if done < num_rows or result is None:
        raise ValueError(f"{path} must hold {num_rows} vectors, got {done}. The file is cut off; get it again.")
    return result


def _blocks(lines: Iterable[str], first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Lines in blocks, with the number of the first of each; a last empty line is left out."""
    source = iter(lines)
    while block := list(islice(source, _LINES)):
        size = len(block)
        if not block[-1].strip():
            block.pop()
        if block:
            yield first, block
        first += size


def _parse_block(block: list[str], dim: int, first: int, path: Path) -> np.ndarray:
    """A block of lines as numbers `(len(block), dim)`."""
    for offset, line in enumerate(block):
        if len(line.split()) != dim:
            raise ValueError(
                f"{path}, line {first + offset}, must have {dim} numbers, got {len(line.split())}. The file is cut "
                "off or damaged; get it again."
            )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = np.fromstring(" ".join(block), dtype=np.float32, sep=" ").reshape(len(block), dim)
            if not np.isfinite(found).all():
                raise ValueError("NaN or infinity")
            return found
        except (DeprecationWarning, ValueError) as error:
            bad = next((offset for offset, line in enumerate(block) if not _are_numbers(line)), 0)
            raise ValueError(
                f"{path}, line {first + bad}, must hold numbers, got {block[bad].strip()[:60]!r}."
            ) from error


def _are_numbers(line: str) -> bool:
    try:
        return bool(np.isfinite(np.array(line.split(), dtype=np.float32)).all())
    except ValueError:
        return False


def read_word2vec(path: str | os.PathLike[str], encoding: str = "utf-8") -> tuple[list[str], np.ndarray]:
    """Read vectors in word2vec's text form.

    Args:
        path: `name v1 ... vd` in each line, after an optional header `count d`. Names may contain spaces.
        encoding: of the file.

    Returns:
        Names and float32 vectors `(count, d)`.

    Raises:
        ValueError: the lines are not of one length, or not as many as the header says.
    """
    path = Path(path)
    names: list[str] = []
    parts: list[np.ndarray] = []
    lines = text_lines(path, encoding=encoding)
    opening = next(lines, "")
    fields = opening.split()
    header = len(fields) == 2 and all(field.isdecimal() and len(field) <= MOST_DIGITS for field in fields)
    dim = int(fields[1]) if header else len(fields) - 1
    if dim < 1:
        raise ValueError(f"{path} must have `name v1 v2 ...` in each line, got {opening.strip()[:60]!r}.")
    for first, block in _blocks(lines if header else chain([opening], lines), 2 if header else 1):
        numbers = []
        for offset, line in enumerate(block):
            pieces = line.rstrip().rsplit(None, dim)
            if len(pieces) != dim + 1:
                raise ValueError(
                    f"{path}, line {first + offset}, must be a name and {dim} numbers, got "
                    f"{len(line.split())} fields. The file is cut off or damaged; get it again."
                )
            names.append(pieces[0])
            numbers.append(" ".join(pieces[1:]))
        parts.append(_parse_block(numbers, dim, first, path))
    if header and len(names) != int(fields[0]):
        raise ValueError(f"{path} says {fields[0]} vectors and has {len(names)}. The file is cut off; get it again.")
    return names, np.concatenate(parts) if parts else np.zeros((0, dim), dtype=np.float32)


def read_titles(path: str | os.PathLike[str], encoding: str = "utf-8") -> list[tuple[str, str]]:
    """Read an `entity_map.txt` or `anchor2id.txt`.

    Args:
        path: `title<TAB>id` in each line.
        encoding: of the file.

    Returns:
        (title, id) pairs in order.

    Raises:
        ValueError: a line is not of this form.
    """
    pairs = []
    for number, line in enumerate(text_lines(path, encoding=encoding), start=1):
        fields = line.rsplit("\t", 1)
        if not line.strip():
            continue
        if len(fields) != 2:
            raise ValueError(f"{path}, line {number}, must be a title, a tab and an id, got {line.strip()[:60]!r}.")
        pairs.append((fields[0], fields[1].strip()))
    if not pairs:
        raise ValueError(f"{path} must have at least one title, got none.")
    return pairs
