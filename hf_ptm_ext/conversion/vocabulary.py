"""Vocabularies of word pieces: `vocab.txt`, one piece a line, and the `tokenizer.json` of transformers 5."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from ..files import read_json, write_whole
from ..models.texts_core import text_lines

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def read_pieces(path: Path) -> dict[str, int]:
    """Pieces and their ids, one a line."""
    vocab: dict[str, int] = {}
    for number, piece in enumerate(text_lines(path)):
        if piece in vocab:
            raise ValueError(f"{path}, line {number + 1}: {piece!r} is there twice, first in line {vocab[piece] + 1}.")
        vocab[piece] = number
    return vocab


def read_vocabulary(path: Path) -> dict[str, int]:
    """Pieces and their ids in a BERT's `vocab.txt`."""
    vocab = read_pieces(path)
    absent = [token for token in SPECIAL_TOKENS if token not in vocab]
    if absent:
        raise ValueError(f"{path} must be a WordPiece vocabulary, one piece a line; it lacks {', '.join(absent)}.")
    return vocab


def read_tokenizer(path: Path) -> dict[str, int]:
    """Pieces and their ids in a `tokenizer.json`, which is all that transformers 5 saves of a BERT's tokenizer."""
    content = read_json(path, strict=True)
    model = content.get("model")
    model = model if isinstance(model, dict) else {}
    kind = model.get("type")
    if kind != "WordPiece":
        raise ValueError(
            f"{path} must hold a WordPiece tokenizer, as BERT's; its model is {kind!r}. Name the right "
            "vocabulary by `--vocab`, or move this file away to convert without a tokenizer."
        )
    pieces, added = model.get("vocab"), content.get("added_tokens") or []
    if not isinstance(pieces, dict) or not isinstance(added, list) or not all(isinstance(a, dict) for a in added):
        raise ValueError(f"{path} must have a `vocab` of pieces and their ids, and a list of `added_tokens`.")
    vocab = {**pieces, **{str(token.get("content")): token.get("id") for token in added}}
    numbered = all(type(number) is int and number >= 0 for number in vocab.values())
    if not numbered or len({*vocab.values()}) < len(vocab):
        raise ValueError(f"{path} must number its pieces, each once.")
    absent = [token for token in SPECIAL_TOKENS if token not in vocab]
    if absent:
        raise ValueError(f"{path} must be a BERT's tokenizer; it lacks {', '.join(absent)}.")
    return vocab


def lowercases(path: Path) -> bool:
    """Whether a `tokenizer.json` lower-cases texts."""
    normalizer = read_json(path).get("normalizer")
    steps = normalizer.get("normalizers") or [normalizer] if isinstance(normalizer, dict) else normalizer or []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ValueError(f"{path} must have a `normalizer` with a list of steps, or none.")
    return any(step.get("lowercase") or step.get("type") == "Lowercase" for step in steps)


def looks_cased(pieces: Iterable[str]) -> bool:
    """Whether a piece has a capital letter."""
    # Tags say nothing: Google's lower-case Chinese vocabulary has <S> and <T>.
    return any(piece != piece.lower() for piece in pieces if (piece[:1], piece[-1:]) not in (("[", "]"), ("<", ">")))


def copy_vocabulary(source: Path, target: Path) -> None:
    """Write the `vocab.txt` of a vocabulary in either form."""
    if source.suffix != ".json":
        shutil.copyfile(source, target)
        return
    vocab = read_tokenizer(source)
    write_whole(target, "".join(f"{piece}\n" for piece in sorted(vocab, key=vocab.__getitem__)))
