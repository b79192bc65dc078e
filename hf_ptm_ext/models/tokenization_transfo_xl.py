"""Transformer-XL's tokenizer: words of a vocabulary by frequency, as in its corpora, where they stand apart.

Reads `vocab.txt` (a word a line) and the pickled vocabularies of transformers 4 without running what is in them; saves
`tokenizer.json`.
"""

import collections
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import TokenizersBackend

from .tokenizer_files_core import tokenizer_files, with_words

# Files of a vocabulary, the first that is there.
VOCABULARIES = {"pretrained_vocab_file": "vocab.pkl", "vocab_bin_file": "vocab.bin", "vocab_file": "vocab.txt"}
_IN_NUMBERS = re.compile(r"(?<=\d)[,.](?=\d)")


class _Plain(pickle.Unpickler):
    """Makes data of Python's own and counts of words, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "collections" and name in ("Counter", "OrderedDict"):
            return getattr(collections, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read_vocabulary(path: str | Path) -> dict[str, Any]:
    """The `vocab` of words and ids, and with it the options that a pickled vocabulary of transformers 4 has."""
    path = Path(path)
    if path.suffix == ".txt":
        words = [line for line in path.read_text(encoding="utf-8").split("\n") if line]
        return {"vocab": _numbered(words, path)}
    try:
        with path.open("rb") as file:
            # torch's older files begin with a number, its newer ones are archives.
            content = None if zipfile.is_zipfile(path) else _Plain(file).load()
        if not isinstance(content, dict):
            with torch.serialization.safe_globals([collections.Counter]):
                content = torch.load(path, weights_only=True)
        options = {name: content[name] for name in ("lower_case", "delimiter") if name in content}
        words = list(content["idx2sym"])
    except Exception as error:  # a damaged or foreign pickle raises anything
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"{path} must be a vocabulary of transformers 4, a pickled dictionary with `idx2sym` ({reason}). A pickle "
            "can run code, so nothing else in it is made: write the words into a vocab.txt, one a line."
        ) from error
    return {"vocab": _numbered(words, path), "moses": options.get("delimiter") != "", **options}


def _numbered(words: list[str], path: Path) -> dict[str, int]:
    """Words and their ids."""
    vocab: dict[str, int] = {}
    for number, word in enumerate(words):
        if vocab.setdefault(word, number) != number:
            raise ValueError(f"{path}, word {number + 1}: {word!r} is there twice, first as word {vocab[word] + 1}.")
    return vocab


class TransfoXLTokenizer(TokenizersBackend):
    """Splits a text at blanks, or as Moses does, into words of a vocabulary.

    Args:
        vocab: words and ids, or the path of a `vocab.txt`.
        lower_case: whether texts are lower-cased (default False).
        delimiter: what stands between words (default None: blanks); `""` makes every character a word.
        moses: whether texts are split by Moses' rules and numbers at `,` and `.`, as transformers 4 did, which needs
            `sacremoses`; default False for texts whose words stand apart, as WikiText's do, and True for a pickled
            vocabulary of transformers 4.
        language: of Moses' rules (default `"en"`).
        unk_token: the word for others (default `<unk>`, or `<UNK>`, if the vocabulary has it).
        eos_token: end of a line (default `<eos>`, if the vocabulary has it).

    Raises:
        ValueError: a word that is there twice, a pickle with other objects, or offsets asked for behind Moses' rules.
        ImportError: `moses` without sacremoses.

    Examples:
        >>> from hf_ptm_ext import TransfoXLTokenizer
        >>> tokenizer = TransfoXLTokenizer({"<unk>": 0, "<eos>": 1, "the": 2, "cat": 3}, lower_case=True)
        >>> tokenizer("The cat sat <eos>").input_ids
        [2, 3, 0, 1]
    """

    vocab_files_names = {**VOCABULARIES, "tokenizer_file": "tokenizer.json"}
    model_input_names = ["input_ids", "attention_mask"]
    model: Any = WordLevel
    _tokenizer: Any

    def __init__(
        self,
        vocab: str | Path | dict[str, int] | None = None,
        lower_case: bool = False,
        delimiter: str | None = None,
        moses: bool = False,
        language: str = "en",
        unk_token: Any = None,
        eos_token: Any = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(vocab, str | Path):
            vocab = read_vocabulary(vocab)["vocab"]
        words: Any = vocab or {"<unk>": 0, "<eos>": 1}
        unk_token = unk_token or next((word for word in ("<unk>", "<UNK>") if word in words), None)
        eos_token = eos_token or next((word for word in ("<eos>",) if word in words), None)
        self.lower_case, self.delimiter, self.moses, self.language = lower_case, delimiter, moses, language
        model = WordLevel(words, unk_token=str(unk_token)) if unk_token else WordLevel(words)
        backend = Tokenizer(model)
        steps = [normalizers.Strip()] + [normalizers.Lowercase()] * lower_case
        backend.normalizer = normalizers.Sequence(steps)
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        if delimiter == "":
            backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
            backend.decoder = decoders.Fuse()
        elif delimiter is not None and not moses:
            backend.pre_tokenizer = pre_tokenizers.Split(delimiter, "removed")
        self._tokenizer = backend
        options = {"lower_case": lower_case, "delimiter": delimiter, "moses": moses, "language": language}
        super().__init__(unk_token=unk_token, eos_token=eos_token, **options, **kwargs)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As upstream; no vocabulary is a ValueError, not a tokenizer without words."""
        tokenizer = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        return with_words(tokenizer, pretrained_model_name_or_path)

    @classmethod
    def _from_pretrained(  # type: ignore[override]
        cls, resolved_vocab_files: dict[str, Any], source: Any, configuration: Any, *args: Any, **kwargs: Any
    ) -> Any:
        found = next((path for name in VOCABULARIES if (path := resolved_vocab_files.get(name))), None)
        tokenizer_files(source, {**resolved_vocab_files, "vocab_file": found}, kwargs, [])
        return super()._from_pretrained(resolved_vocab_files, source, configuration, *args, **kwargs)

    @classmethod
    def convert_to_native_format(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As upstream, from the files of a vocabulary too."""
        files = [path for name in VOCABULARIES if (path := kwargs.pop(name, None))]
        if files and kwargs.get("vocab") is None and kwargs.get("tokenizer_file") is None:
            kwargs = {**read_vocabulary(files[0]), **kwargs}
            kwargs.pop("tokenizer_file", None)
            return kwargs
        return super().convert_to_native_format(*args, **kwargs)

    def _encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **kwargs: Any) -> Any:
        if self.moses and not kwargs.get("is_split_into_words"):
            if kwargs.get("return_offsets_mapping"):
                raise ValueError(
                    f"`return_offsets_mapping` must be False with `moses` = {self.moses}, whose rules rewrite texts: "
                    "load the tokenizer with moses=False for texts whose words stand apart."
                )
            text, text_pair = self._split(text), self._split(text_pair)
        return super()._encode_plus(text, text_pair, *args, **kwargs)

    def _decode(self, *args: Any, **kwargs: Any) -> str:
        text = super()._decode(*args, **kwargs)
        if not self.moses:
            return text
        text = _sacremoses().MosesDetokenizer(lang=self.language).detokenize(text.split())
        return text.replace(" @,@ ", ",").replace(" @.@ ", ".").strip()

    def _split(self, text: Any) -> Any:
        """Words of texts by Moses' rules, with blanks between them; special words in pointed brackets stay."""
        if isinstance(text, list | tuple):
            return [self._split(one) for one in text]
        if text is None:
            return None
        moses = _sacremoses()
        line = moses.MosesPunctNormalizer(lang=self.language).normalize(text.strip())
        words = moses.MosesTokenizer(lang=self.language).tokenize(
            line, aggressive_dash_splits=True, return_str=True, escape=False, protected_patterns=[r"<\w+>"]
        )
        return _IN_NUMBERS.sub(r" @\g<0>@ ", words)


def _sacremoses() -> Any:
    try:
        import sacremoses
    except ImportError as error:
        raise ImportError(
            f"`moses` = True needs sacremoses (`pip install sacremoses`), got {error}. For texts whose words stand "
            "apart load the tokenizer with moses=False."
        ) from error
    return sacremoses
