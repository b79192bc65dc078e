"""Words for rows that are token ids already: segment the text that the pieces spell.

Packed rows have lost their text, and with it the offsets that `WordIds` aligns by. The pieces of a WordPiece tokenizer
still spell it: Chinese characters stand alone, other words are a start piece and its "##" continuations. Between words
of scripts that have spaces, Korean included, there is a space again.
"""

from collections.abc import Mapping
from typing import Any

from .segmentation import NO_WORD, Segmenter, word_ids_from_offsets
from .unspaced_scripts import is_spaced_letter

UNKNOWN_CHARACTER = "□"  # one character, no letter of any script: no segmenter joins it to its neighbours


class PieceWordIds:
    """Add a `word_ids` column to rows of token ids.

    Args:
        tokenizer: a WordPiece tokenizer ("##" marks continuations).
        segmenter: function from a text to the list of its words, such as `jieba_segmenter()`.

    Raises:
        ValueError: the tokenizer is no WordPiece tokenizer, or, in a call, a word of the segmenter is not in the text.

    Example:
        >>> from transformers import BertTokenizer
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "武": 5, "汉": 6, "是": 7, "ok": 8}
        >>> add = PieceWordIds(BertTokenizer(vocab=vocab), segmenter=lambda text: ["武汉", "是", "ok"])
        >>> add({"input_ids": [2, 5, 6, 7, 8, 3]})["word_ids"]
        [-1, 0, 0, 1, 2, -1]
    """

    def __init__(self, tokenizer: Any, segmenter: Segmenter):
        _check_wordpiece(tokenizer)
        self.segmenter = segmenter
        self._pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self._separators = {
            getattr(tokenizer, f"{role}_token_id") for role in ("cls", "sep", "pad", "mask", "bos", "eos")
        } - {None}
        self._unknown = tokenizer.unk_token_id

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Add the words of one row.

        Args:
            row: columns of one row, `input_ids` among them.

        Returns:
            The row with `word_ids`: words are numbered through the row, special tokens have -1.
        """
        ids = list(row["input_ids"])
        word_ids: list[int] = []
        segment: list[int] = []
        for token in [*ids, None]:
            if token is not None and token not in self._separators:
                segment.append(token)
                continue
            word_ids += self._number(segment, 1 + max(word_ids, default=NO_WORD))
            segment = []
            if token is not None:
                word_ids.append(NO_WORD)
        return {**row, "word_ids": word_ids}

    def _number(self, ids: list[int], first: int) -> list[int]:
        """Word numbers of a run of ordinary tokens, counted from `first`."""
        text, offsets = self._spell(ids)
        if not text:
            return []
        return [first + word for word in word_ids_from_offsets(text, offsets, self.segmenter(text))]

    def _spell(self, ids: list[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of a run of tokens and the place of each token in it."""
        text, offsets = "", []
        for token in ids:
            piece = UNKNOWN_CHARACTER if token == self._unknown else self._pieces[token]
            if piece.startswith("##"):
                piece = piece[2:]
            elif text and is_spaced_letter(text[-1]) and is_spaced_letter(piece[0]):
                text += " "
            offsets.append((len(text), len(text) + len(piece)))
            text += piece
        return text, offsets


def _check_wordpiece(tokenizer: Any) -> None:
    """Refuse tokenizers whose pieces do not spell the text: a space mark would become a letter of it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        marked = getattr(backend.model, "continuing_subword_prefix", None) == "##"
    else:
        pieces = tokenizer.get_vocab()
        marked = hasattr(tokenizer, "wordpiece_tokenizer") or any(
            piece.startswith("##") and len(piece) > 2 for piece in pieces
        )
    if not marked:
        raise ValueError(
            f"`tokenizer` must be a WordPiece tokenizer, whose pieces mark continuations with '##', got "
            f"{type(tokenizer).__name__}. Use `WordIds` on the text before it is packed."
        )
