"""Show which tokens count as one word."""

from __future__ import annotations

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..data.segmentation import Segmenter, WordIds
from ..masking import block_starts, candidate_mask, find_segments, word_starts, word_starts_from_ids
from .vocabulary import vocabulary_tables


def describe_words(
    tokenizer: PreTrainedTokenizerBase, text: str, segmenter: Segmenter | None = None
) -> list[list[str]]:
    """List the units that whole-word and span masking see in a text.

    Args:
        tokenizer: Fast or slow tokenizer.
        text: Any text.
        segmenter: Function from a text to its words (fast tokenizers only); None uses the tokenizer's own marks.

    Returns:
        Pieces of each unit, in order, without special tokens.

    Raises:
        ValueError: If the tokenizer has no word boundaries and there is no segmenter.

    Example:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "light": 5, "##house": 6, ",": 7}
        >>> describe_words(BertTokenizerFast(vocab=vocab), "lighthouse, light")
        [['light', '##house'], [','], ['light']]
    """
    tables = vocabulary_tables(tokenizer)
    word_ids = None
    if segmenter is None:
        row = tokenizer(text)["input_ids"]
    else:
        encoded = WordIds(tokenizer, segmenter)({"text": text})
        row, word_ids = encoded["input_ids"], np.array([encoded["word_ids"]])
    ids = np.array([row], dtype=np.int64).reshape(1, -1)
    candidates = candidate_mask(ids, tables.never_masked)
    if word_ids is not None:
        candidates &= word_ids >= 0
    blocks = block_starts(candidates)
    if word_ids is not None:
        starts = word_starts_from_ids(word_ids, candidates, blocks)
    elif tables.is_continuation is None:
        raise ValueError(
            f"`tokenizer` ({type(tokenizer).__name__}) must mark word boundaries in its pieces, got none. Pass a "
            "`segmenter`."
        )
    else:
        starts = word_starts(ids, candidates, blocks, tables.is_continuation, tables.ends_word)
    pieces = [str(tokenizer.convert_ids_to_tokens(index)) for index in row]
    words = find_segments(candidates, starts)
    return [pieces[start:stop] for start, stop in zip(words.start, words.stop, strict=True)]
