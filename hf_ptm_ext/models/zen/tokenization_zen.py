"""ZEN's tokenizer: BERT's, and the n-grams that a lexicon finds in the tokens (Diao et al. 2019, section 2.1;
https://github.com/sinovation/ZEN).

Four columns join BERT's, each with an entry per n-gram: `ngram_ids` (lines of the lexicon, 0 = padding),
`ngram_positions` and `ngram_lengths` (place in the row of the first token, and number of tokens) and
`ngram_token_type_ids`. The lexicon travels with the tokenizer as `ngram.txt`; tokenizer_config.json has its sha256,
and a file that is missing or different is an error, since ids are numbers of lines.

N-grams are found in the tokens as they are: whoever masks tokens finds n-grams afterwards (`ngram_inputs`), or they
would tell what was masked.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import BatchEncoding, BertTokenizer
from transformers.utils import to_py_obj

from .files_zen import tokenizer_files, with_words
from .lexicon_zen import (
    LEXICON_FILE,
    NgramIndex,
    NgramMatch,
    keep_some,
    lexicon_text,
    proportional_limit,
    read_lexicon,
)
from .pickling_zen import WorkedOut, backend_as_it_was, leaving_the_backend

NGRAM_INPUTS = ("ngram_ids", "ngram_positions", "ngram_lengths", "ngram_token_type_ids")
LIMITS = ("fixed", "proportional")
ALIGNMENTS = ("token", "reference_tagging")


class _Saved:
    """Stands for what was saved with the tokenizer."""

    def __repr__(self) -> str:
        return "<as saved>"

    def __reduce__(self) -> str:
        return "SAVED"


SAVED = _Saved()


class ZenTokenizer(BertTokenizer):
    """A BERT tokenizer with a lexicon of n-grams.

    Args:
        vocab: as in `BertTokenizer`; so are all arguments not named here.
        ngrams: the lexicon: n-grams, or a mapping from n-grams to frequencies, or the path of an `ngram.txt`; `[]` for
            a tokenizer that finds none. Default: the lexicon that was saved with the tokenizer.
        max_ngrams: n-grams of a row at most (default 128; the original's pre-training script takes 20).
        ngram_limit: "fixed" (default, as in the original's pre-training) keeps up to `max_ngrams` of a row;
            "proportional", as in its fine-tuning, ceil(tokens / max_length * max_ngrams), and needs `max_length` in
            every call.
        ngram_seed: which n-grams of a row with too many are kept: `None` (default) the shortest, and of these the
            first; a number draws them, as the original does, the same ones for the same row.
        ngram_alignment: "token" (default), or "reference_tagging" for places as in the original's tagging script. It
            counts them without [CLS], so that every n-gram stands one token too far left, and takes only the text's
            own tokens into account.
        ngram_file: path of a lexicon; `from_pretrained` fills it in.
        ngram_sha256: what that file must have; from tokenizer_config.json.
        kwargs: as in `BertTokenizer`.

    Raises:
        TypeError: an option is of another kind.
        ValueError: an option is none of its values, or the lexicon is missing, malformed or another one.

    Example:
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] 提 高 速 公 路".split()
        >>> vocab = {word: number for number, word in enumerate(words)}
        >>> tokenizer = ZenTokenizer(vocab, ngrams=["提高", "高速公路", "公路"])
        >>> inputs = tokenizer("提高速公路")
        >>> inputs["ngram_ids"], inputs["ngram_positions"], inputs["ngram_lengths"]
        ([1, 3, 2], [1, 4, 2], [2, 2, 4])
    """

    vocab_files_names = {**BertTokenizer.vocab_files_names, "ngram_file": LEXICON_FILE}
    model_input_names = [*BertTokenizer.model_input_names, *NGRAM_INPUTS]

    def __init__(
        self,
        vocab: str | dict[str, int] | None = None,
        do_lower_case: bool = True,
        *,
        ngrams: Any = SAVED,
        max_ngrams: int = 128,
        ngram_limit: str = "fixed",
        ngram_seed: int | None = None,
        ngram_alignment: str = "token",
        ngram_file: str | None = None,
        ngram_sha256: Any = SAVED,
        **kwargs: Any,
    ):
        _check_choice("ngram_limit", ngram_limit, LIMITS)
        _check_choice("ngram_alignment", ngram_alignment, ALIGNMENTS)
        if isinstance(max_ngrams, bool) or not isinstance(max_ngrams, int) or max_ngrams < 1:
            raise ValueError(f"`max_ngrams` must be at least 1, got {max_ngrams!r}.")
        options = {
            "max_ngrams": max_ngrams,
            "ngram_limit": ngram_limit,
            "ngram_seed": ngram_seed,
            "ngram_alignment": ngram_alignment,
        }
        names = kwargs.pop("model_input_names", None) or self.model_input_names
        super().__init__(
            vocab, do_lower_case, model_input_names=list(dict.fromkeys([*names, *NGRAM_INPUTS])), **kwargs, **options
        )
        for name, value in options.items():
            setattr(self, name, value)
        self.lexicon = _load_lexicon(ngrams, ngram_file, ngram_sha256)
        self._worked_out = WorkedOut()
        self.deprecation_warnings = WorkedOut()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load the tokenizer of a ZEN, or of a BERT with a lexicon (`ngrams`).

        Args:
            pretrained_model_name_or_path: a folder or a hub id.
            args: as upstream.
            kwargs: as upstream, and the options of the class.

        Returns:
            The tokenizer.

        Raises:
            ValueError: there is no vocabulary (upstream would make a tokenizer without words), or as in the class.
        """
        tokenizer = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        return with_words(tokenizer, pretrained_model_name_or_path)

    @classmethod
    def _from_pretrained(  # type: ignore[override]
        cls, resolved_vocab_files: dict[str, Any], source: Any, configuration: Any, *args: Any, **kwargs: Any
    ) -> Any:
        found = tokenizer_files(source, resolved_vocab_files, kwargs, ["ngrams"], lists=False)
        kwargs |= {name: path for name, (path,) in found.items()}
        return super()._from_pretrained(resolved_vocab_files, source, configuration, *args, **kwargs)

    def _add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        self._worked_out = WorkedOut()  # n-grams are looked up as the tokens that the vocabulary made of them before
        return super()._add_tokens(new_tokens, special_tokens)

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; the lexicon goes along."""
        self.init_kwargs["ngrams"] = []
        try:
            tokenizer = super().train_new_from_iterator(*args, **kwargs)
        finally:
            del self.init_kwargs["ngrams"]
        tokenizer.lexicon = list(self.lexicon)
        return tokenizer

    # ---- saving ----

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Save the tokenizer and its lexicon.

        Args:
            save_directory: the folder.
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The files.
        """
        self.init_kwargs["ngram_sha256"] = _sha256(lexicon_text(self.lexicon)) if self.lexicon else None
        try:
            return super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            del self.init_kwargs["ngram_sha256"]

    def _save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        files = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        if not self.lexicon:
            return files
        path = Path(save_directory, (f"{filename_prefix}-" if filename_prefix else "") + LEXICON_FILE)
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(lexicon_text(self.lexicon))
        return (*files, str(path))

    # ---- n-grams of token ids ----

    def find_ngrams(
        self,
        input_ids: Sequence[int],
        token_type_ids: Sequence[int] | None = None,
        attention_mask: Sequence[int] | None = None,
        max_length: int | None = None,
    ) -> dict[str, list[int]]:
        """The n-grams of one row.

        Args:
            input_ids: token ids, special ones and padding included.
            token_type_ids: their types; an n-gram has that of its first token (default: 0).
            attention_mask: 0 on padding (default: none is).
            max_length: tokens of the longest row, for `ngram_limit="proportional"`.

        Returns:
            `ngram_ids`, `ngram_positions`, `ngram_lengths` and `ngram_token_type_ids`, lists of the same length.

        Raises:
            ValueError: `max_length` is missing where it is needed.
        """
        row = list(input_ids)
        real = [True] * len(row) if attention_mask is None else [value != 0 for value in attention_mask]
        first = real.index(True) if True in real else 0
        tokens = [token for token, is_real in zip(row, real, strict=True) if is_real]
        if self.ngram_alignment == "reference_tagging":
            special = set(self.all_special_ids) - {self.unk_token_id, self.mask_token_id}
            tokens = [token for token in tokens if token not in special]
        matches = self.index.find(tokens)
        limit = self.max_ngrams
        if self.ngram_limit == "proportional":
            if max_length is None:
                raise ValueError("`max_length` must be given with ngram_limit='proportional', which depends on it.")
            limit = proportional_limit(len(tokens), max_length, self.max_ngrams)
        kept = [
            NgramMatch(match.ngram_id, match.start + first, match.length)
            for match in keep_some(matches, limit, self.ngram_seed, tokens)
        ]
        tagging = token_type_ids is None or self.ngram_alignment == "reference_tagging"
        return {
            "ngram_ids": [match.ngram_id for match in kept],
            "ngram_positions": [match.start for match in kept],
            "ngram_lengths": [match.length for match in kept],
            "ngram_token_type_ids": [0 if tagging else int(token_type_ids[match.start]) for match in kept],
        }

    def ngram_inputs(
        self, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None, max_length: int | None = None
    ) -> dict[str, Any]:
        """The n-grams of a batch as tensors, for token ids that were changed after tokenising: masked ones, say.

        Args:
            input_ids: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`, or `None`.
            attention_mask: `(batch, seq_len)`, or `None`. Packed rows need none.
            max_length: tokens of the longest row, for `ngram_limit="proportional"`.

        Returns:
            The four columns, `(batch, ngrams)` int64 each, as wide as the row with the most n-grams.
        """
        rows = to_py_obj(input_ids)
        types, masks = (
            [None] * len(rows) if value is None else to_py_obj(value) for value in (token_type_ids, attention_mask)
        )
        found = [self.find_ngrams(*row, max_length) for row in zip(rows, types, masks, strict=True)]
        columns = _padded({name: [row[name] for row in found] for name in NGRAM_INPUTS})
        import torch  # a tokenizer alone needs none

        return {name: torch.tensor(values).reshape(len(rows), -1).long() for name, values in columns.items()}

    @property
    def index(self) -> NgramIndex:
        """The lexicon in token ids, made on first use."""
        if "index" not in self._worked_out:
            texts = [ngram for ngram, _ in self.lexicon]
            with backend_as_it_was(self):
                self._tokenizer.no_truncation()
                self._tokenizer.no_padding()
                self._tokenizer.encode_special_tokens = False
                encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
            self._worked_out["index"] = NgramIndex(encoding.ids for encoding in encodings)
        return self._worked_out["index"]

    # ---- text to inputs ----

    @leaving_the_backend
    def _encode_plus(self, *args: Any, **kwargs: Any) -> BatchEncoding:  # type: ignore[override]
        return_tensors = kwargs.pop("return_tensors", None)
        result = super()._encode_plus(*args, **kwargs, return_tensors=None)
        nested = bool(result["input_ids"]) and isinstance(result["input_ids"][0], list)
        if result.encodings is None:  # of marked chats there are ids alone
            ids, masks = (result.get(name) for name in ("input_ids", "attention_mask"))
            ids, masks = (ids, masks or [None] * len(ids)) if nested else ([ids], [masks])
            rows = ((row, None, mask) for row, mask in zip(ids, masks, strict=True))
        else:
            rows = ((encoding.ids, encoding.type_ids, encoding.attention_mask) for encoding in result.encodings)
        found = [self.find_ngrams(*row, kwargs.get("max_length")) for row in rows]
        columns = {name: [row[name] for row in found] for name in NGRAM_INPUTS}
        if return_tensors is not None or kwargs.get("padding_strategy", "do_not_pad") != "do_not_pad":
            columns = _padded(columns, kwargs.get("pad_to_multiple_of"))
        if not nested:
            columns = {name: values[0] for name, values in columns.items()}
        # Tensors have a batch dimension even if there is one text.
        single = return_tensors is not None and not nested
        data = {**result.data, **columns}
        return BatchEncoding(data, result.encodings, tensor_type=return_tensors, prepend_batch_axis=single)

    def pad(self, encoded_inputs: Any, *args: Any, **kwargs: Any) -> BatchEncoding:
        """Pad as upstream does; n-grams to the row with the most, and their places go along with the tokens.

        Args:
            encoded_inputs: as upstream.
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The padded batch.
        """
        if isinstance(encoded_inputs, list | tuple) and encoded_inputs and isinstance(encoded_inputs[0], Mapping):
            encoded_inputs = {name: [row[name] for row in encoded_inputs] for name in encoded_inputs[0]}
        given = dict(encoded_inputs)
        columns = {name: to_py_obj(given.pop(name)) for name in NGRAM_INPUTS if name in given}
        if not columns:
            return super().pad(given, *args, **kwargs)
        ids = given["input_ids"]
        nested = len(ids) > 0 and hasattr(ids[0], "__len__")
        sizes = [len(row) for row in ids] if nested else [len(ids)]
        result = super().pad(given, *args, **kwargs)
        width = len(result["input_ids"][0] if nested else result["input_ids"])
        rows = {name: [list(row) for row in values] if nested else [list(values)] for name, values in columns.items()}
        if (kwargs.get("padding_side") or self.padding_side) == "left" and "ngram_positions" in rows:
            lengths = rows.get("ngram_lengths", rows["ngram_positions"])
            rows["ngram_positions"] = [
                [place + width - size if span else place for place, span in zip(places, spans, strict=True)]
                for places, spans, size in zip(rows["ngram_positions"], lengths, sizes, strict=True)
            ]
        kind = _tensor_type(result["input_ids"])
        padded = _padded(rows, kwargs.get("pad_to_multiple_of"))
        if not nested:
            padded = {name: values[0] for name, values in padded.items()}
        result.update(BatchEncoding(padded, tensor_type=kind).data)
        return result


def _padded(columns: dict[str, list[list[int]]], multiple: int | None = None) -> dict[str, list[list[int]]]:
    """Rows of 0 behind the n-grams of shorter rows; one column of padding if no row has any."""
    width = max([1, *(len(row) for values in columns.values() for row in values)])
    width += -width % (multiple or 1)
    return {name: [row + [0] * (width - len(row)) for row in values] for name, values in columns.items()}


def _tensor_type(value: Any) -> str | None:
    """What `return_tensors` made a value."""
    if isinstance(value, list | tuple):
        return None
    return "np" if type(value).__module__ == "numpy" else "pt"


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}.")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _load_lexicon(ngrams: Any, file: str | None, sha256: Any) -> list[tuple[str, str]]:
    """N-gram and frequency of each line."""
    if isinstance(ngrams, str | os.PathLike):
        if not os.path.isfile(ngrams):  # upstream takes an OSError for one of the vocabulary's
            raise ValueError(f"`ngrams` must be the path of an ngram.txt, and there is no file {ngrams}.")
        return read_lexicon(ngrams)
    if isinstance(ngrams, Mapping):
        return [(_ngram(text), str(frequency)) for text, frequency in ngrams.items()]
    if ngrams is not SAVED:
        if not isinstance(ngrams, Iterable):
            raise TypeError(
                "`ngrams` must be n-grams, a mapping from n-grams to frequencies, or the path of an ngram.txt, got "
                f"{type(ngrams).__name__}."
            )
        return [(_ngram(text), "1") for text in ngrams]
    if sha256 is None:
        return []
    if file is None or not os.path.isfile(file):
        raise ValueError(
            f"`{LEXICON_FILE}` must be beside the vocabulary, and is missing: n-gram ids are numbers of its lines. "
            "Restore it, pass the lexicon as `ngrams`, or pass ngrams=[] for a tokenizer that finds none."
        )
    entries = read_lexicon(file)
    if sha256 is not SAVED and _sha256(lexicon_text(entries)) != sha256:
        raise ValueError(
            f"{file} is not the lexicon that was saved with the tokenizer, whose sha256 is {sha256}: its n-grams "
            "would have the ids of others. Restore it, or pass another one as `ngrams` beside a model trained with it."
        )
    return entries


def _ngram(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"`ngrams` must be texts, got {text!r}.")
    if not text.strip() or "\n" in text:
        raise ValueError(f"`ngrams` must be texts of one line, not empty, got {text!r}.")
    return text


__all__ = ["ZenTokenizer"]
