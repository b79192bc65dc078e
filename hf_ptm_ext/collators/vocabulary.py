"""Tables over a vocabulary: special ids, word boundaries, ids that random replacement must avoid.

A tokenizer writes word boundaries into its pieces in one of a few ways; `word_boundary_style` names the way, or None
when there is none, and nothing is guessed silently:

    "wordpiece"   a prefix marks pieces that CONTINUE a word ("##ing")                     BERT, DistilBERT, ELECTRA
    "byte_level"  a space mark opens a word ("Ġlight"), bytes in place of characters       RoBERTa, GPT-2, BART
    "metaspace"   a space mark opens a word ("▁light")                                     ALBERT, XLM-R, T5
    "word_end"    a suffix marks the LAST piece of a word ("ing</w>")                      XLM, GPT, CLIP
    "word_inside" a suffix marks pieces that are NOT the last ("light@@")                  BERTweet, PhoBERT
    "word_level"  every token is a word

One rule for punctuation holds for all of them, BERT's: a piece of punctuation only is a unit of its own and the piece
after it starts a new one; a piece that begins with punctuation never continues a word ("don't" is don | ' | t).
Scripts that are written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) have no boundaries in a
space-marking vocabulary; there each piece counts as a unit unless a `word_ids` column says more.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..data.segmentation import is_unspaced

_BYTE_TOKEN = re.compile(r"^<0x([0-9A-Fa-f]{2})>$")


@dataclass(frozen=True, eq=False)
class VocabularyTables:
    """What masking needs to know about each id, boolean arrays `(vocab_size,)`.

    Args:
        never_masked: Special tokens other than the unknown token.
        special: All special tokens.
        is_continuation: Pieces that continue the word before them; None if the tokenizer has no word boundaries.
        ends_word: Pieces after which a new word begins in any case; None with the same meaning.
        unspaced: Pieces that begin with a character of a script written without spaces.
        unspaced_continuation: "##X" pieces of such a script: the tokenizer never produces them, they are untrained.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "##s": 5}
        >>> tokenizer = BertTokenizerFast(vocab=vocab)
        >>> vocabulary_tables(tokenizer).is_continuation.astype(int)
        array([0, 0, 0, 0, 0, 1])
    """

    never_masked: np.ndarray
    special: np.ndarray
    is_continuation: np.ndarray | None
    ends_word: np.ndarray | None
    unspaced: np.ndarray
    unspaced_continuation: np.ndarray


def check_tokenizer(name: str, tokenizer: Any) -> None:
    """Raise if an argument is no tokenizer but the name of one, or none."""
    if tokenizer is None or isinstance(tokenizer, str | PathLike):
        raise TypeError(
            f"`{name}` must be a tokenizer, got {tokenizer!r}. Load it with `AutoTokenizer.from_pretrained`."
        )


def vocabulary_tables(tokenizer: PreTrainedTokenizerBase) -> VocabularyTables:
    """Read the vocabulary of a fast or slow tokenizer once.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> tokenizer = BertTokenizerFast(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5})
        >>> vocabulary_tables(tokenizer).never_masked.astype(int)
        array([1, 0, 1, 1, 1, 0])
    """
    vocabulary = tokenizer.get_vocab()
    size = max(len(tokenizer), max(vocabulary.values(), default=-1) + 1)
    special = np.zeros(size, dtype=bool)
    special[[i for i in tokenizer.all_special_ids if 0 <= i < size]] = True
    for index, token in tokenizer.added_tokens_decoder.items():
        if getattr(token, "special", False) and 0 <= index < size:
            special[index] = True
    never_masked = special.copy()
    if tokenizer.unk_token_id is not None:
        unknown = tokenizer.unk_token_id
        # One token often serves several roles; it is ordinary text only if it is the unknown token and nothing else.
        roles = ("pad_token_id", "cls_token_id", "sep_token_id", "mask_token_id", "bos_token_id", "eos_token_id")
        never_masked[unknown] = any(getattr(tokenizer, role, None) == unknown for role in roles)

    backend = _backend(tokenizer)
    style = _boundary_style(tokenizer, backend)
    prefix = (backend or {"model": {}})["model"].get("continuing_subword_prefix") or "##"
    added = set(tokenizer.added_tokens_decoder)
    continues, ends, unspaced, unspaced_continuation = (np.zeros(size, dtype=bool) for _ in range(4))
    for piece, index in vocabulary.items():
        if index < 0:
            continue
        if index in added:  # matched as a whole before the model cuts words: a unit of its own
            ends[index] = True
            unspaced[index] = is_unspaced(piece[:1])
            continue
        shape = _piece_shape(piece, style, prefix)
        continues[index], ends[index], unspaced[index] = shape
        unspaced_continuation[index] = style == "wordpiece" and shape[0] and shape[2]
    known = style is not None
    return VocabularyTables(
        never_masked,
        special,
        continues if known else None,
        ends if known else None,
        unspaced,
        unspaced_continuation,
    )


def ids_of_texts(tokenizer: PreTrainedTokenizerBase, texts: Collection[str]) -> list[int]:
    """Find the pieces that stand for one of some texts, whatever marks of word boundaries they carry."""
    wanted = set(texts)
    backend = _backend(tokenizer)
    style = _boundary_style(tokenizer, backend)
    prefix = (backend or {"model": {}})["model"].get("continuing_subword_prefix") or "##"
    return sorted(
        index for piece, index in tokenizer.get_vocab().items() if {piece, _piece_text(piece, style, prefix)} & wanted
    )


def piece_texts(tokenizer: PreTrainedTokenizerBase) -> dict[int, tuple[str, bool]]:
    """The text of every piece that is no added token, without its marks, and whether it begins a word.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6}
        >>> piece_texts(BertTokenizerFast(vocab=vocab))
        {5: ('a', True), 6: ('b', False)}
    """
    backend = _backend(tokenizer)
    style = _boundary_style(tokenizer, backend)
    prefix = (backend or {"model": {}})["model"].get("continuing_subword_prefix") or "##"
    ids = tokenizer.get_vocab()

    def begins(piece: str) -> bool:
        # Where the end of a word is marked its beginning is not: a marked piece may be a word of its own.
        return piece.endswith("</w>") if style == "word_end" else not _piece_shape(piece, style, prefix)[0]

    pieces = sorted(_ordinary_pieces(tokenizer), key=lambda piece: ids[piece])
    return {ids[piece]: (_piece_text(piece, style, prefix), begins(piece)) for piece in pieces}


def word_boundary_style(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Say how a fast or slow tokenizer marks word boundaries in its pieces.

    Fast tokenizers are asked for their pre-tokenizer and model, slow ones for the marks in their vocabulary.

    Returns:
        "wordpiece", "byte_level", "metaspace", "word_end", "word_inside", "word_level", or None: no boundaries.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6}
        >>> word_boundary_style(BertTokenizerFast(vocab=vocab))
        'wordpiece'
    """
    return _boundary_style(tokenizer, _backend(tokenizer))


def _boundary_style(tokenizer: PreTrainedTokenizerBase, backend: dict[str, Any] | None) -> str | None:
    pieces = _ordinary_pieces(tokenizer)
    if backend is not None:
        model = backend["model"]
        kind = model.get("type") or ("WordPiece" if model.get("continuing_subword_prefix") else "BPE")
        steps = json.dumps([backend.get("pre_tokenizer"), backend.get("decoder")])
        if kind == "WordPiece" or (model.get("continuing_subword_prefix") and kind == "BPE"):
            return "wordpiece"
        if kind == "WordLevel":
            return "word_level"
        if '"ByteLevel"' in steps and any(piece.startswith("Ġ") for piece in pieces):
            return "byte_level"
        if any(piece.startswith("▁") for piece in pieces):
            return "metaspace"
        if model.get("end_of_word_suffix"):
            return "word_end"
        return _suffix_style(pieces)
    marks = {
        "wordpiece": sum(piece.startswith("##") and len(piece) > 2 for piece in pieces),
        "byte_level": sum(piece.startswith("Ġ") for piece in pieces) if hasattr(tokenizer, "byte_encoder") else 0,
        "metaspace": sum(piece.startswith("▁") for piece in pieces),
    }
    best = max(marks, key=lambda name: marks[name])
    return best if marks[best] else _suffix_style(pieces)


def _suffix_style(pieces: list[str]) -> str | None:
    """Recognise "x</w>" and "x@@" vocabularies."""
    word_end = sum(piece.endswith("</w>") and len(piece) > 4 for piece in pieces)
    inside = sum(piece.endswith("@@") and len(piece) > 2 for piece in pieces)
    if not word_end and not inside:
        return None
    return "word_end" if word_end >= inside else "word_inside"


def _backend(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """The serialised pipeline of a fast tokenizer, None for a slow one."""
    if not tokenizer.is_fast:
        return None
    description: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return description


def _ordinary_pieces(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The vocabulary without added tokens."""
    added = set(tokenizer.added_tokens_decoder)
    return [piece for piece, index in tokenizer.get_vocab().items() if index not in added]


def _piece_shape(piece: str, style: str | None, prefix: str) -> tuple[bool, bool, bool]:
    """(continues the word before, ends its word, begins with a script without spaces) of one piece."""
    if style == "wordpiece":
        continues = piece.startswith(prefix) and len(piece) > len(prefix)
        return continues, False, is_unspaced(piece[len(prefix) :][:1] if continues else piece[:1])
    if style in ("word_end", "word_inside"):
        suffix = "</w>" if style == "word_end" else "@@"
        marked = piece.endswith(suffix) and len(piece) > len(suffix)
        body = piece[: -len(suffix)] if marked else piece
        over = marked if style == "word_end" else not marked
        only = _is_punctuation_only(body)
        return not _begins_unit(body), over or only, is_unspaced(body[:1])
    if style == "byte_level":
        raw = _byte_level_bytes(piece)
        text = raw.decode("utf-8", errors="ignore")
        opens = raw[:1] == b" "
        # A piece may hold only the first bytes of a character; the lead byte then tells the script.
        unspaced = is_unspaced(text.strip()[:1]) or _leads_unspaced(raw.lstrip()[:2], text.strip())
        starts = opens or unspaced or (_begins_unit(text) and not _is_continuation_byte(raw))
        breaks_line = text.isspace() and bool(text.strip(" "))
        return not starts, _is_punctuation_only(text.strip()) or breaks_line, unspaced
    if style == "metaspace":
        byte = _BYTE_TOKEN.match(piece)
        if byte:
            raw = bytes([int(byte.group(1), 16)])
            unspaced = _leads_unspaced(raw, "")
            return not unspaced, False, unspaced
        opens = piece.startswith("▁")
        body = piece.lstrip("▁")
        unspaced = is_unspaced(body[:1])
        return not (opens or _begins_unit(body)), _is_punctuation_only(body), unspaced
    return False, False, is_unspaced(piece[:1])


def _piece_text(piece: str, style: str | None, prefix: str) -> str:
    """A piece without its marks of word boundaries."""
    if style == "wordpiece":
        return piece.removeprefix(prefix)
    if style in ("word_end", "word_inside"):
        return piece.removesuffix("</w>" if style == "word_end" else "@@")
    if style == "byte_level":
        return _byte_level_bytes(piece).decode("utf-8", errors="ignore").strip(" ")
    return piece.lstrip("▁") if style == "metaspace" else piece


def _begins_unit(text: str) -> bool:
    """Whether a piece without a space mark still starts a unit: punctuation, white space, a script without spaces."""
    return bool(text) and (_is_punctuation(text[0]) or text[0].isspace() or is_unspaced(text[0]))


def _is_punctuation_only(text: str) -> bool:
    return bool(text) and all(_is_punctuation(char) for char in text)


def _is_punctuation(char: str) -> bool:
    """BERT's definition: ASCII signs and the Unicode categories P*."""
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def _is_continuation_byte(raw: bytes) -> bool:
    """Whether a piece begins inside a UTF-8 character."""
    return bool(raw) and 0x80 <= raw[0] <= 0xBF


def _leads_unspaced(raw: bytes, text: str) -> bool:
    """Whether an incomplete character begins a script without spaces, by its first one or two bytes.

    U+3000 to U+9FFF is known from one byte; Thai and Lao, Burmese and Khmer need two, a lone first byte of theirs is
    shared with Indic scripts and counts as a letter.
    """
    if text or not raw:
        return False
    second = raw[1] if len(raw) > 1 else 0
    return (
        0xE3 <= raw[0] <= 0xE9
        or (raw[0] == 0xE0 and 0xB8 <= second <= 0xBB)
        or (raw[0] == 0xE1 and (0x80 <= second <= 0x82 or 0x9E <= second <= 0x9F))
    )


@lru_cache(maxsize=1)
def _byte_level_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level BPE (GPT-2): printable ones for themselves, others shifted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return alphabet


def _byte_level_bytes(piece: str) -> bytes:
    """The bytes a byte-level piece stands for; characters outside the alphabet count as themselves."""
    alphabet = _byte_level_alphabet()
    return b"".join(bytes([alphabet[char]]) if char in alphabet else char.encode() for char in piece)
