"""The one reader of options: a recipe, flags and `--overrides` become dataclasses whose numbers are in range."""

import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from transformers import HfArgumentParser

from .ranges import check_ranges
from .recipes import RECIPES, as_flags, read_recipe, split_overrides

NULL = "null"
_NAMES = {
    **{bool: "true or false", int: "a whole number", float: "a number", str: "a text", dict: "a mapping"},
    **{list: "a list", type(None): "nothing"},
}
_TRUE_OR_FALSE = ("true", "false", "yes", "no", "1", "0")


class OptionParser(HfArgumentParser):
    """Reads words into dataclasses; mistakes are errors with one line, not the end of the process.

    A list may be given as JSON (`--train_file '["-a.txt"]'`), and `null` sets what may be nothing to nothing.

    Args:
        groups: the dataclasses.
        options: of the parser.
    """

    def __init__(self, groups: Sequence[type], **options: Any):
        super().__init__(groups, **options)
        hints = {name: hint for group in groups for name, hint in get_type_hints(group).items()}
        self.optional = {name for name, hint in hints.items() if type(None) in kinds_of(hint)}
        self.not_empty = {
            name for group in groups for name in (one.name for one in fields(group) if one.default != "")
        } - {"debug", "fsdp"}
        for action in self._actions:
            if action.dest in hints and action.type is not None:
                action.type = self._reader(action)

    def _reader(self, action: Any) -> Any:
        plain, name, several = action.type, action.dest, action.nargs == "+"

        def read(text: str) -> Any:
            if text == NULL and name in self.optional:
                return None
            if not text.strip() and name in self.not_empty:
                raise ArgumentTypeError("must not be empty: leave it out, or give a value")
            if several and text.startswith("["):
                items = _json_list(text)
                if items is not None:
                    return [plain(item) for item in items]
            return plain(text)

        read.__name__ = getattr(plain, "__name__", str(plain))  # the parser names it in its errors
        return read

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Namespace, list[str]]:
        """Read words, and check their numbers.

        Args:
            args: the words.
            namespace: what gets the values.
        """
        found, rest = super().parse_known_args(args, namespace)
        for name, value in vars(found).items():
            if isinstance(value, list):  # JSON among them made lists
                flat = [one for item in value for one in (item if isinstance(item, list) else [item])]
                setattr(found, name, None if flat == [None] else flat)
        check_ranges(vars(found))
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Raise what the base class would print.

        Args:
            message: what is wrong.
        """
        raise ValueError(f"{message}. See `{self.prog.partition(',')[0]} --help`.")

    def read(self, words: Sequence[str]) -> tuple[Any, ...]:
        """The dataclasses of a command line.

        Args:
            words: flags and values.

        Raises:
            ValueError: an option is unknown, or a value is none.
        """
        *found, rest = self.parse_args_into_dataclasses(
            list(words), return_remaining_strings=True, look_for_args_file=False
        )
        if rest:
            recipe = "" if rest[0].startswith("-") else f" (a recipe comes first, and ends in {' or '.join(RECIPES)})"
            self.error(f"{rest[0]!r} is no argument of {self.prog}{recipe}")
        return tuple(found)


def _json_list(text: str) -> list[str] | None:
    """Items of a list in JSON as words; `None` for what is none, such as a glob pattern."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    plain = isinstance(items, list) and all(isinstance(item, str | int | float) for item in items)
    return [item if isinstance(item, str) else json.dumps(item) for item in items] if plain else None


def read_options(
    arguments: Sequence[str], groups: Sequence[type], command: str, description: str = "", usage: str = ""
) -> tuple[Any, ...]:
    """Read `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win.

    Args:
        arguments: the command line without the program's name.
        groups: the dataclasses.
        command: the sub-command, for help and messages.
        description: a line for its help.
        usage: further words of its usage line.

    Returns:
        The groups of arguments.

    Raises:
        ValueError: an unknown key or option, or a value that cannot be.
    """
    words = list(arguments)
    parser = OptionParser(
        groups,
        prog=f"hf-ptm-ext {command}",
        usage=f"hf-ptm-ext {command} [RECIPE.yaml|RECIPE.json] [--argument value ...] "
        f"{usage or '[--overrides name=value ...]'}",
        description=description,
    )
    return parser.read(with_recipe(words, groups, command))


def with_recipe(words: Sequence[str], groups: Sequence[type], command: str) -> list[str]:
    """A command line in which a recipe and `--overrides` are flags.

    Args:
        words: the command line.
        groups: the dataclasses.
        command: the sub-command, for messages.
    """
    found = split_overrides(list(words))
    if found and found[0].endswith(RECIPES):
        recipe = read_recipe(found[0], groups, command)
        found = as_flags(checked(recipe, groups, f"{found[0]}: ")) + found[1:]
    return found


def checked(values: Mapping[str, Any], groups: Sequence[type], where: str) -> dict[str, Any]:
    """The values of a recipe or mapping, each of its option's kind and in its range.

    Args:
        values: option -> value; numbers may be texts, as YAML has 1e-5.
        groups: the dataclasses that have the options.
        where: stands before messages.

    Raises:
        ValueError: an option is unknown, or a value is of another kind or out of range.
    """
    hints = {name: hint for group in groups for name, hint in get_type_hints(group).items()}
    unknown = sorted(str(name) for name in values if name not in hints)
    if unknown:
        raise ValueError(f"{where}unknown arguments: {', '.join(unknown)}.")
    found = {name: of_kind(where, name, value, hints[name]) for name, value in values.items()}
    check_ranges(found, where)
    return found


def kinds_of(hint: Any) -> dict[Any, Any]:
    """The types that a hint allows -> the hint of each."""
    if get_origin(hint) in (Union, UnionType):
        return {kind: one for part in get_args(hint) for kind, one in kinds_of(part).items()}
    return {get_origin(hint) or hint: hint}


def of_kind(where: str, name: str, value: Any, hint: Any) -> Any:
    """The value, of a kind that the hint of its option allows; numbers may be texts.

    Args:
        where: stands before the message.
        name: of the option.
        value: as a recipe has it.
        hint: the option's type.

    Raises:
        ValueError: it is of another kind.
    """
    kinds = kinds_of(hint)
    if list in kinds and isinstance(value, list):
        inner = next(iter(get_args(kinds[list])), str)
        return [of_kind(where, name, item, inner) for item in value]
    if list in kinds and not kinds.keys() & {str, bool, dict}:
        kinds = {**kinds, **kinds_of(next(iter(get_args(kinds[list])), str))}
    known = kinds.keys() & {bool, int, float, str, dict, list, type(None)}
    if Any in kinds or type(value) in known:
        return value
    if kinds.keys() - known - {Any}:  # an enumeration of upstream's
        known = known | {str}
    if type(value) is int and (known & {float, str} or (bool in known and value in (0, 1))):
        return value
    if type(value) is float and str in known:
        return value
    if type(value) is str:
        if str in known or (bool in known and value.lower() in _TRUE_OR_FALSE):
            return value
        for kind in (int, float):
            if kind in known:
                try:
                    return kind(value)
                except ValueError:
                    continue
    rules = " or ".join(_NAMES[kind] for kind in _NAMES if kind in known)
    hint = ' Write it in quotes, such as "no".' if type(value) is bool and str in known else ""
    got = "nothing (null)" if value is None else f"{str(value)[:80]!r} ({type(value).__name__})"
    raise ValueError(f"{where}`{name}` must be {rules or 'a text'}, got {got}.{hint}")


__all__ = ["OptionParser", "checked", "kinds_of", "of_kind", "read_options", "with_recipe"]
