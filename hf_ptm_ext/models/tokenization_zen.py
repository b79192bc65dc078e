"""ZEN's tokenizer: BERT's, and the n-grams that a lexicon finds in the tokens (Diao et al. 2019, section 2.1;
https://github.com/sinovation/ZEN).

Each n-gram has an entry in `ngram_ids` (lines of the lexicon, 0 = padding), `ngram_positions` and `ngram_lengths`
(place in the row of the first token, and number of tokens) and `ngram_token_type_ids`. Whoever masks tokens finds
n-grams afterwards (`ngram_inputs`), or they would tell what was masked.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import BatchEncoding, BertTokenizer
from transformers.utils import to_py_obj

from .lexicon_zen import LEXICON_FILE, NgramIndex, keep_some, lexicon_text, proportional_limit, read_lexicon
from .tokenizer_core import (
    SAVED,
    OwnFile,
    TokenizerWithFile,
    backend_as_it_was,
    check_choice,
    leaving_the_backend,
    plain_backend,
)

NGRAM_INPUTS = ("ngram_ids", "ngram_positions", "ngram_lengths", "ngram_token_type_ids")
LIMITS = ("fixed", "proportional")
ALIGNMENTS = ("token", "reference_tagging")


class ZenTokenizer(TokenizerWithFile):
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

    Examples:
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] 提 高 速 公 路".split()
        >>> vocab = {word: number for number, word in enumerate(words)}
        >>> tokenizer = ZenTokenizer(vocab, ngrams=["提高", "高速公路", "公路"])
        >>> inputs = tokenizer("提高速公路")
        >>> inputs["ngram_ids"], inputs["ngram_positions"], inputs["ngram_lengths"]
        ([1, 3, 2], [1, 4, 2], [2, 2, 4])
    """

    vocab_files_names = {**BertTokenizer.vocab_files_names, "ngram_file": LEXICON_FILE}
    model_input_names = [*BertTokenizer.model_input_names, *NGRAM_INPUTS]
    own_file = OwnFile(LEXICON_FILE, "ngram_sha256", argument="ngrams", attribute="lexicon", nothing=(), several=False)

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
        check_choice("ngram_limit", ngram_limit, LIMITS)
        check_choice("ngram_alignment", ngram_alignment, ALIGNMENTS)
        if isinstance(max_ngrams, bool) or not isinstance(max_ngrams, int) or max_ngrams < 1:
            raise ValueError(f"`max_ngrams` must be at least 1, got {max_ngrams!r}.")
        options = {
            "max_ngrams": max_ngrams,
            "ngram_limit": ngram_limit,
            "ngram_seed": ngram_seed,
            "ngram_alignment": ngram_alignment,
        }
        super().__init__(vocab, do_lower_case, options, **kwargs)
        self.lexicon = _load_lexicon(ngrams, ngram_file, ngram_sha256)

    def own_sha256(self) -> str | None:
        """Of the lexicon's file."""
        return _sha256(self.lexicon) if self.lexicon else None

    def save_own_file(self, path: Path) -> None:
        """Write the lexicon."""
        path.write_text(lexicon_text(self.lexicon), encoding="utf-8", newline="\n")

    # ---- n-grams of token ids ----

    def find_ngrams(
        self,
        input_ids: Sequence[int],
        token_type_ids: Sequence[int] | None = None,
        attention_mask: Sequence[int] | None = None,
        max_length: int | None = None,
    ) -> dict[str, list[int]]:
        """The four columns of one row of token ids, as lists; `max_length` is for `ngram_limit="proportional"`."""
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
                raise ValueError(
                    f"`max_length` must be given with ngram_limit={self.ngram_limit!r}, got {max_length}."
                )
            limit = proportional_limit(len(tokens), max_length, self.max_ngrams)
        kept = keep_some(matches, limit, self.ngram_seed, tokens)
        positions = [match.start + first for match in kept]
        if token_type_ids is None or self.ngram_alignment == "reference_tagging":
            types = [0] * len(kept)
        else:
            types = [int(token_type_ids[position]) for position in positions]
        return {
            "ngram_ids": [match.ngram_id for match in kept],
            "ngram_positions": positions,
            "ngram_lengths": [match.length for match in kept],
            "ngram_token_type_ids": types,
        }

    def ngram_inputs(
        self, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None, max_length: int | None = None
    ) -> dict[str, Any]:
        """The n-grams of a batch as tensors, for token ids that were changed after tokenising: masked ones, say.

        Args:
            input_ids: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`, or `None`.
            attention_mask: `(batch, seq_len)`, or `None`. Packed rows need none.
            max_length: as in `find_ngrams`.

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
                encodings = plain_backend(self).encode_batch(texts, add_special_tokens=False)
            self._worked_out["index"] = NgramIndex(encoding.ids for encoding in encodings)
        return self._worked_out["index"]

    # ---- text to inputs ----

    @leaving_the_backend
    def _encode_plus(self, *args: Any, **kwargs: Any) -> BatchEncoding:
        return_tensors = kwargs.pop("return_tensors", None)
        result = super()._encode_plus(*args, **kwargs)
        nested = bool(result["input_ids"]) and isinstance(result["input_ids"][0], list)
        rows: list[tuple[Any, Any, Any]]
        if result.encodings is None:  # of marked chats there are ids alone
            ids, masks = result["input_ids"], result.get("attention_mask")
            ids, masks = (ids, masks or [None] * len(ids)) if nested else ([ids], [masks])
            rows = [(row, None, mask) for row, mask in zip(ids, masks, strict=True)]
        else:
            rows = [(encoding.ids, encoding.type_ids, encoding.attention_mask) for encoding in result.encodings]
        found = [self.find_ngrams(*row, kwargs.get("max_length")) for row in rows]
        columns: dict[str, Any] = {name: [row[name] for row in found] for name in NGRAM_INPUTS}
        if return_tensors is not None or kwargs.get("padding_strategy", "do_not_pad") != "do_not_pad":
            columns = _padded(columns, kwargs.get("pad_to_multiple_of"))
        if not nested:
            columns = {name: values[0] for name, values in columns.items()}
        # Tensors have a batch dimension even if there is one text.
        single = return_tensors is not None and not nested
        data = {**result.data, **columns}
        return BatchEncoding(data, result.encodings, tensor_type=return_tensors, prepend_batch_axis=single)

    def pad(self, encoded_inputs: Any, *args: Any, **kwargs: Any) -> BatchEncoding:
        """Pad as upstream does; n-grams to the row with the most, and their places go along with the tokens."""
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
        padded: dict[str, Any] = _padded(rows, kwargs.get("pad_to_multiple_of"))
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


def _sha256(lexicon: list[tuple[str, str]]) -> str:
    return hashlib.sha256(lexicon_text(lexicon).encode()).hexdigest()


def _load_lexicon(ngrams: Any, file: str | None, sha256: Any) -> list[tuple[str, str]]:
    """N-gram and frequency of each line."""
    if isinstance(ngrams, str | os.PathLike):
        if not os.path.isfile(ngrams):  # upstream takes an OSError for one of the vocabulary's
            raise ValueError(f"`ngrams` must be the path of an ngram.txt, and there is no file {ngrams}.")
        return read_lexicon(Path(ngrams))
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
    if sha256 is not SAVED and _sha256(entries) != sha256:
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
