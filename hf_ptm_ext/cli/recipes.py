"""Recipe files and `--overrides`, turned into command-line flags: later ones win."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from ..resources import resource


def recipe_file(path: str) -> Path:
    """Find a recipe.

    Args:
        path: a file; a name without a folder is also looked up among the recipes that come with the package.

    Returns:
        The file, which need not exist if a folder is named.

    Raises:
        FileNotFoundError: no such file and no such recipe.

    Example:
        >>> recipe_file("quickstart.yaml").name
        'quickstart.yaml'
    """
    file = Path(path)
    return file if file.is_file() or file.name != path else resource("configs", path)


def read_recipe(path: str, groups: Sequence[type], command: str) -> dict[str, Any]:
    """Read a flat YAML or JSON recipe.

    Args:
        path: a file; a name without a folder is also looked up among the recipes that come with the package.
        groups: the dataclasses whose fields may be named.
        command: the sub-command, for the message.

    Returns:
        Field name -> value.

    Raises:
        ValueError: not a mapping, not parsable, or a key that is no argument.
        FileNotFoundError: no such file and no such recipe.
    """
    file = recipe_file(path)
    text = file.read_text(encoding="utf-8")
    try:
        recipe = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file} is not valid {file.suffix.lstrip('.')}: {error}") from error
    if not isinstance(recipe, dict):
        raise ValueError(f"{file} must be a mapping of arguments to values, got {type(recipe).__name__}.")
    known = {f.name for group in groups for f in fields(group)}
    unknown = sorted(set(recipe) - known)
    if unknown:
        raise ValueError(f"{file} has unknown arguments: {', '.join(unknown)}. See `hf-ptm-ext {command} --help`.")
    return recipe


def as_flags(values: dict[str, Any]) -> list[str]:
    """Spell values as command-line flags."""
    flags: list[str] = []
    for name, value in values.items():
        if value is None:
            continue
        flags.append(f"--{name}")
        if isinstance(value, dict):
            flags.append(json.dumps(value))
        else:
            flags += [str(item) for item in (value if isinstance(value, list) else [value])]
    return flags


def split_nested(arguments: Sequence[str], group: str) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Take the flags out that name a field inside a mapping of mappings.

    Args:
        arguments: a command line.
        group: name of the mapping.

    Returns:
        The other arguments; member -> field -> the word behind the flag, or all of them if there are several.

    Raises:
        ValueError: such a flag does not name a member and a field, or has no value.

    Example:
        >>> split_nested(["--seeds", "0", "--tasks.topic.train_file", "a", "b", "--tasks.tags.head=san"], "tasks")
        (['--seeds', '0'], {'topic': {'train_file': ['a', 'b']}, 'tags': {'head': 'san'}})
    """
    others: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    values: list[str] | None = None  # of the flag that is being read
    flags: list[tuple[str, list[str]]] = []
    for word in arguments:
        if word.startswith(f"--{group}."):
            name, equals, value = word.partition("=")
            values = [value] if equals else []
            flags.append((name, values))
        elif word.startswith("--") or values is None:
            values = None
            others.append(word)
        else:
            values.append(word)
    for name, words in flags:
        member, _, field = name.removeprefix(f"--{group}.").partition(".")
        if not (member and field and words):
            raise ValueError(f"`{name}` must be spelt --{group}.NAME.FIELD VALUE.")
        found.setdefault(member, {})[field] = words[0] if len(words) == 1 else words
    return others, found


def mapping(name: str, value: Any) -> dict[str, Any]:
    """A mapping, as it is or as JSON spells it; empty for `None`.

    Args:
        name: of the argument, for messages.
        value: the mapping, or JSON.

    Returns:
        The mapping.

    Raises:
        ValueError: it is no mapping.
    """
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise ValueError(f"`{name}` must be a mapping or JSON, got {value!r}: {error}") from error
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"`{name}` must be a mapping, got {found!r}.")
    return found or {}


def nested(name: str, value: Any, changes: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """A mapping of mappings, as it is or as JSON spells it, with changes.

    Args:
        name: of the argument, for messages.
        value: the mapping, or JSON.
        changes: what `split_nested` found.

    Returns:
        The mapping, of at least one member.

    Raises:
        ValueError: it is no mapping of mappings.

    Example:
        >>> nested("tasks", '{"topic": {"task": "classification"}}', {"topic": {"head": "san"}})
        {'topic': {'task': 'classification', 'head': 'san'}}
    """
    found = mapping(name, value)
    if not all(isinstance(one, dict) for one in found.values()):
        raise ValueError(f"`{name}` must be a mapping from names to mappings of arguments, got {found!r}.")
    merged = {one: {**found.get(one, {}), **(changes or {}).get(one, {})} for one in (*found, *(changes or {}))}
    if not merged:
        raise ValueError(f"`{name}` must have at least one member, got none: name them in a recipe.")
    return merged


def split_overrides(arguments: list[str]) -> list[str]:
    """Turn every `--overrides name=value ...` into the flags it stands for, in its place."""
    if "--overrides" not in arguments:
        return arguments
    at = arguments.index("--overrides")
    pairs = []
    for item in arguments[at + 1 :]:
        if item.startswith("--"):
            break
        pairs.append(item)
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise ValueError(f"`--overrides` takes name=value pairs, got {wrong[0]!r}.")
    behind = split_overrides(arguments[at + 1 + len(pairs) :])
    return arguments[:at] + as_flags(dict(pair.split("=", 1) for pair in pairs)) + behind


def parse_overrides(overrides: str | None, known: Collection[str], config_class: str) -> dict[str, Any]:
    """Read fields of a config as the command line gives them.

    Args:
        overrides: `name=value,name=value`, or `None`.
        known: names that the config has.
        config_class: its name, for the message.

    Returns:
        Field name -> value.

    Raises:
        ValueError: a name that the config does not have.

    Example:
        >>> parse_overrides("hidden_size=32, hidden_act=relu", {"hidden_size", "hidden_act"}, "UniLMConfig")
        {'hidden_size': 32, 'hidden_act': 'relu'}
    """
    values: dict[str, Any] = {}
    for pair in (overrides or "").split(","):
        if not pair.strip():
            continue
        name, _, text = pair.strip().partition("=")
        if name not in known:
            raise ValueError(f"`config_overrides` names {name!r}, which {config_class} does not have.")
        values[name] = parse_value(text)
    return values


def parse_value(text: str) -> Any:
    """Read a config value as YAML does, and 1e-5 as the number it is; the config checks the type.

    Args:
        text: what stands behind the "=".

    Example:
        >>> [parse_value(text) for text in ("128", "0.1", "1e-5", "true", "gelu")]
        [128, 0.1, 1e-05, True, 'gelu']
    """
    value = yaml.safe_load(text)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
