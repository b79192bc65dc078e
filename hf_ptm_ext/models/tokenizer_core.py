"""What our tokenizers share: one more file that is saved with them, and a state that use does not change."""

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from transformers import BertTokenizer

from .tokenizer_files_core import tokenizer_files, with_words


class _Saved:
    """Stands for what was saved with the tokenizer."""

    def __repr__(self) -> str:
        return "<as saved>"

    def __reduce__(self) -> str:
        return "SAVED"


SAVED = _Saved()


class WorkedOut(dict[Any, Any]):
    """What follows from the rest of an object: not pickled, so that `datasets.map` finds its cache again after use."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


@contextmanager
def backend_as_it_was(tokenizer: Any) -> Iterator[None]:
    """Context: truncation and padding of one call do not stay in the tokenizer."""
    backend = tokenizer._tokenizer
    truncation, padding, split = backend.truncation, backend.padding, backend.encode_special_tokens
    try:
        yield
    finally:
        backend.encode_special_tokens = split
        if truncation is None:
            backend.no_truncation()
        else:
            backend.enable_truncation(**truncation)
        if padding is None:
            backend.no_padding()
        else:
            backend.enable_padding(**padding)


def leaving_the_backend(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a method of a tokenizer, or of what has one, runs in `backend_as_it_was`."""

    @functools.wraps(method)
    def outer(self: Any, *args: Any, **kwargs: Any) -> Any:
        with backend_as_it_was(getattr(self, "tokenizer", self)):
            return method(self, *args, **kwargs)

    return outer


def plain_backend(tokenizer: Any, split_special_tokens: bool = False) -> Any:
    """The tokenizer's backend without truncation and padding; for use in `backend_as_it_was`."""
    backend = tokenizer._tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = split_special_tokens
    return backend


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is none of an option's."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}.")


def kept_sizes(first: int, second: int, room: int, strategy: str) -> tuple[int, int]:
    """How much of each text of a pair is kept, as the tokenizers library decides it."""
    excess = first + second - room
    if excess <= 0:
        return first, second
    if strategy == "longest_first":
        short, long = sorted((first, second))
        long = short if short > room else max(short, room - short)
        if short + long > room:
            short = room // 2
            long = room - short
        return (long, short) if first > second else (short, long)
    size = second if strategy == "only_second" else first
    if size <= excess:
        raise ValueError(
            f"`truncation={strategy!r}` must leave a part of that text: it has {size} tokens, and {excess} are too "
            "many for `max_length`. Raise `max_length`, or cut both texts with truncation=True."
        )
    return (first, second - excess) if strategy == "only_second" else (first - excess, second)


@dataclass(frozen=True)
class OwnFile:
    """The file `name` that a tokenizer is saved with, with the field of tokenizer_config.json that has its `sha256`.

    `argument` takes other content (`nothing` for none; `several` paths or one), `attribute` has it.
    """

    name: str
    sha256: str
    argument: str
    attribute: str
    nothing: Any
    several: bool


class TokenizerWithFile(BertTokenizer):
    """A BERT tokenizer with a file of its own, which is saved, loaded and checked with it."""

    own_file: OwnFile

    def __init__(
        self, vocab: str | dict[str, int] | None, do_lower_case: bool, options: dict[str, Any], **kwargs: Any
    ) -> None:
        own_inputs = [name for name in self.model_input_names if name not in BertTokenizer.model_input_names]
        names = kwargs.pop("model_input_names", None) or self.model_input_names
        names = list(dict.fromkeys([*names, *own_inputs]))
        super().__init__(vocab, do_lower_case, model_input_names=names, **kwargs, **options)
        for name, value in options.items():
            setattr(self, name, value)
        self._worked_out = WorkedOut()
        self.deprecation_warnings = WorkedOut()

    @classmethod
    def read_argument(cls, value: Any) -> Any:
        """Read what the argument for the content names, if an error of its files must be told from upstream's."""
        return value

    def own_sha256(self) -> str | None:
        """Of the file that `save_own_file` writes; `None` if there is no content."""
        raise NotImplementedError(f"`{type(self).__name__}.own_sha256` must name the digest. Subclasses define it.")

    def save_own_file(self, path: Path) -> None:
        """Write the content."""
        raise NotImplementedError(f"`{type(self).__name__}.save_own_file` must write a file. Subclasses define it.")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As upstream, with the options of the class; no vocabulary is a ValueError, not a tokenizer without words."""
        argument = cls.own_file.argument
        if argument in kwargs:
            kwargs[argument] = cls.read_argument(kwargs[argument])
        tokenizer = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        return with_words(tokenizer, pretrained_model_name_or_path)

    @classmethod
    def _from_pretrained(  # type: ignore[override]
        cls, resolved_vocab_files: dict[str, Any], source: Any, configuration: Any, *args: Any, **kwargs: Any
    ) -> Any:
        own = cls.own_file
        for name, paths in tokenizer_files(source, resolved_vocab_files, kwargs, [own.argument], own.several).items():
            kwargs[name] = cls.read_argument(paths if own.several else paths[0])
        return super()._from_pretrained(resolved_vocab_files, source, configuration, *args, **kwargs)

    def save_pretrained(self, save_directory: str | PathLike[str], *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """As upstream; the tokenizer's own file goes along."""
        self.init_kwargs[self.own_file.sha256] = self.own_sha256()
        try:
            return super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            del self.init_kwargs[self.own_file.sha256]

    def _save_pretrained(
        self,
        save_directory: str | PathLike[str],
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        files = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        if self.own_sha256() is None:
            return files
        path = Path(save_directory, (f"{filename_prefix}-" if filename_prefix else "") + self.own_file.name)
        self.save_own_file(path)
        return (*files, str(path))

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; the content of the tokenizer's own file goes along."""
        own = self.own_file
        self.init_kwargs[own.argument] = own.nothing
        try:
            tokenizer = super().train_new_from_iterator(*args, **kwargs)
        finally:
            del self.init_kwargs[own.argument]
        setattr(tokenizer, own.attribute, copy.deepcopy(getattr(self, own.attribute)))
        return tokenizer

    def _add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        self._worked_out = WorkedOut()  # the ids in it are those of the vocabulary before
        return super()._add_tokens(new_tokens, special_tokens)
