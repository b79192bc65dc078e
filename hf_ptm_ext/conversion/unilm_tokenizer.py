"""A BERT tokenizer of transformers, set up for UniLM; no class of its own, so that no code travels with it.

Padding is on the left, as `generate` wants it, and there are no `token_type_ids`: the model makes them from the mode.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .vocabulary import SPECIAL_TOKENS, looks_cased, read_pieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def unilm_tokenizer(
    vocab: "str | os.PathLike | Mapping[str, int] | PreTrainedTokenizerBase",
    *,
    do_lower_case: bool | None = None,
    token_types: bool = False,
    padding_side: str = "left",
    **kwargs: Any,
) -> "PreTrainedTokenizerBase":
    """Make a tokenizer for UniLM, or set one up.

    What it writes with `save_pretrained` is read by `AutoTokenizer` with the same settings.

    Args:
        vocab: piece -> id; a `vocab.txt`, or a folder with one and without a tokenizer's own files, as
            `microsoft/unilm-*-cased`; a folder or Hub id that `AutoTokenizer` reads; or a tokenizer, which is changed
            in place.
        do_lower_case: for vocabularies; `None` (default) sees it from the pieces: cased if one has a capital letter.
        token_types: whether it returns `token_type_ids` 0 and 1. False (default) leaves them to the model. True is for
            pairs given to the heads of understanding tasks, as BERT's, and for `model(**tokenizer(source, target))`;
            `generate` never reads them.
        padding_side: "left" (default, for generation) or "right"; the models take both.
        kwargs: as for `BertTokenizerFast` or `AutoTokenizer.from_pretrained`, such as `model_max_length`.

    Returns:
        The tokenizer.

    Raises:
        ValueError: the vocabulary lacks a special token, or is none; an option is out of range.

    Examples:
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> tokenizer = unilm_tokenizer(vocab)
        >>> dict(tokenizer(["a b", "a"], padding=True))
        {'input_ids': [[2, 5, 6, 3], [0, 2, 5, 3]], 'attention_mask': [[1, 1, 1, 1], [0, 1, 1, 1]]}
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f"`padding_side` must be 'left' or 'right', got {padding_side!r}.")
    names = ["input_ids", "token_type_ids", "attention_mask"] if token_types else ["input_ids", "attention_mask"]
    settings: dict[str, Any] = {"padding_side": padding_side, "model_input_names": names}
    from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerBase

    if isinstance(vocab, PreTrainedTokenizerBase):
        _refuse(vocab, {**kwargs, "do_lower_case": do_lower_case})
        for name, value in settings.items():
            setattr(vocab, name, value)
        vocab.init_kwargs.update(settings)  # which is what `save_pretrained` writes
        _check_special_tokens(vocab)
        return vocab
    file = None if isinstance(vocab, Mapping) else _vocab_file(Path(vocab))
    if file is None and not isinstance(vocab, Mapping):
        given = {} if do_lower_case is None else {"do_lower_case": do_lower_case}
        tokenizer = AutoTokenizer.from_pretrained(vocab, **settings, **given, **kwargs)
        _check_special_tokens(tokenizer)
        return tokenizer
    pieces = dict(vocab) if isinstance(vocab, Mapping) else read_pieces(file or Path(vocab))
    absent = [token for token in SPECIAL_TOKENS if token not in pieces]
    if absent:
        raise ValueError(
            f"`vocab` must be a WordPiece vocabulary with {', '.join(SPECIAL_TOKENS)}, got {len(pieces)} pieces "
            f"without {', '.join(absent)}."
        )
    if do_lower_case is None:
        do_lower_case = not looks_cased(pieces)
    return BertTokenizer(vocab=pieces, do_lower_case=do_lower_case, **settings, **kwargs)


def _refuse(tokenizer: Any, options: Mapping[str, Any]) -> None:
    """A finished tokenizer takes no options of a vocabulary."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(
            f"`{given[0]}` must be left out when `vocab` is a tokenizer, got {options[given[0]]!r} and "
            f"{type(tokenizer).__name__}: set it where that is made."
        )


def _check_special_tokens(tokenizer: Any) -> None:
    """What UniLM feeds and stops at must be there."""
    for name in ("pad_token", "cls_token", "sep_token", "mask_token"):
        if getattr(tokenizer, f"{name}_id", None) is None:
            raise ValueError(
                f"The tokenizer must have a `{name}`, got {type(tokenizer).__name__} without one. Set it."
            )


def _vocab_file(path: Path) -> Path | None:
    """A vocab.txt that nothing else describes."""
    if path.is_file():
        return path
    described = any((path / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    return path / "vocab.txt" if (path / "vocab.txt").is_file() and not described else None
