"""The one reader of options: a recipe, flags and `--overrides` become dataclasses whose numbers are in range."""

import json
from argparse import SUPPRESS, Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import field, fields
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from ..hints import did_you_mean
from . import COMMANDS, LineParser
from .help import own_groups, text_of
from .ranges import check_ranges, ranges_of
from .recipes import RECIPES, as_flags, nested, read_recipe, repeatable, split_nested, split_overrides

REQUIRED = object()
NULL = "null"
_NAMES: dict[Any, str] = {
    **{bool: "true or false", int: "a whole number", float: "a number", str: "a text", dict: "a mapping"},
    **{list: "a list", type(None): "nothing"},
}
_TRUE_OR_FALSE = ("true", "false", "yes", "no", "1", "0")


def option(default: Any, help: str, **more: Any) -> Any:
    """A field of options: its default, its help and what else the parser is told, such as `choices`."""
    metadata = {"help": help, **more}
    if default is REQUIRED:
        return field(metadata=metadata, kw_only=True)
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


class _HelpAll(Action):
    """Prints the base class's help, which lists everything, and ends."""

    def __call__(self, parser: ArgumentParser, *_: Any) -> None:
        print(HfArgumentParser.format_help(parser))
        parser.exit()


class OptionParser(LineParser, HfArgumentParser):
    """Reads words into dataclasses; mistakes are errors with one line, not the end of the process.

    A list may be given as JSON (`--train_file '["-a.txt"]'`), and `null` sets what may be nothing to nothing.
    """

    def __init__(self, groups: Sequence[type], **options: Any):
        super().__init__(cast(Any, groups), **options)
        self.groups, self.words = groups, list[str]()
        self.add_argument(
            "--help_all", action=_HelpAll, nargs=0, default=SUPPRESS, help="show transformers' options too"
        )
        self.ranges = ranges_of(groups)
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

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Namespace, list[str]]:
        """Read words, and check their numbers."""
        found, rest = super().parse_known_args(args, namespace)
        for name, value in vars(found).items():
            if isinstance(value, list):  # JSON among them made lists
                flat = [one for item in value for one in (item if isinstance(item, list) else [item])]
                setattr(found, name, None if flat == [None] else flat)
        check_ranges(vars(found), ranges=self.ranges)
        self.values = dict(vars(found))
        return found, rest

    def told(self) -> dict[str, Any]:
        """What was read last, as a recipe: all options of ours, and of upstream's those that are no default."""
        own = {one.name for _, listed in own_groups(self.groups) for one in listed}
        defaults = {  # a text is read as if it were given
            one.dest: self._get_value(one, one.default) if isinstance(one.default, str) else one.default
            for one in reversed(self._actions)  # `--no_...` comes second
        }
        unset = {name for name, value in self.values.items() if value == defaults[name]}
        empty = {name for name in unset if self.values[name] in (None, "", [])}
        return {name: value for name, value in self.values.items() if name not in empty | (unset - own)}

    def format_help(self) -> str:
        """Our own options in groups; the base class has all in one list."""
        command = self.prog.rpartition(" ")[2]
        return text_of(self.prog, self.usage or "", self.description or command, self.groups, command, self.words)

    def read(self, words: Sequence[str]) -> tuple[Any, ...]:
        """The dataclasses of a command line."""
        self.words = list(words)
        *found, rest = self.parse_args_into_dataclasses(
            list(words), return_remaining_strings=True, look_for_args_file=False
        )
        self.refuse(rest, f" A recipe comes first, and ends in {' or '.join(RECIPES)}.")
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
    arguments: Sequence[str], groups: Sequence[type], command: str, members: str | None = None
) -> tuple[Any, ...]:
    """Read `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win.

    `members` is an option that maps names to mappings: an entry of one is also a flag, `--tasks.NAME.ENTRY value`.
    """
    usage = f"hf-ptm-ext {command} [RECIPE.yaml|RECIPE.json] [--argument value ...] "
    usage += f"[--{members}.NAME.ARGUMENT value ...]" if members else "[--overrides name=value ...]"
    parser = OptionParser(groups, prog=f"hf-ptm-ext {command}", usage=usage, description=COMMANDS[command])
    words = with_recipe(arguments, groups, command)
    changes: dict[str, dict[str, Any]] = {}
    if members is not None:
        words, changes = split_nested(words, members)
    found = parser.read(words)
    told = parser.told()
    if members is not None:
        owner = next(one for one in found if hasattr(one, members))
        told[members] = nested(members, getattr(owner, members), changes)
        setattr(owner, members, deepcopy(told[members]))  # jobs complete it
    found[-1].told = command, repeatable(told)
    return found


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Say of a value that is refused where it stands."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def with_recipe(words: Sequence[str], groups: Sequence[type], command: str) -> list[str]:
    """A command line in which a recipe and `--overrides` are flags."""
    found = split_overrides(list(words))
    if "--config" in found[:-1]:  # as other trainers spell it
        place = found.index("--config")
        found = [found[place + 1], *found[:place], *found[place + 2 :]]
    if found and found[0].endswith(RECIPES):
        recipe = read_recipe(found[0], groups, command)
        found = as_flags(checked(recipe, groups, f"{found[0]}: ")) + found[1:]
    return found


def checked(values: Mapping[str, Any], groups: Sequence[type], where: str) -> dict[str, Any]:
    """The values of a recipe or mapping, each of its option's kind and in its range."""
    hints = {name: hint for group in groups for name, hint in get_type_hints(group).items()}
    unknown = sorted(str(name) for name in values if name not in hints)
    if unknown:
        raise ValueError(f"{where}unknown arguments: {', '.join(unknown)}.{did_you_mean(unknown[0], hints)}")
    found = {name: of_kind(where, name, value, hints[name]) for name, value in values.items()}
    check_ranges(found, where, ranges_of(groups))
    return found


def kinds_of(hint: Any) -> dict[Any, Any]:
    """The types that a hint allows -> the hint of each."""
    if get_origin(hint) in (Union, UnionType):
        return {kind: one for part in get_args(hint) for kind, one in kinds_of(part).items()}
    return {get_origin(hint) or hint: hint}


def of_kind(where: str, name: str, value: Any, hint: Any) -> Any:
    """The value, of a kind that the hint of its option allows; numbers may be texts."""
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
        if str in known:
            return value
        if bool in known and value.lower() in _TRUE_OR_FALSE:
            return string_to_bool(value)
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
