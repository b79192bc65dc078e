"""Recipe files and `--overrides`, turned into command-line flags: later ones win."""

import codecs
import json
import math
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from ..files import resource, write_whole
from ..hints import did_you_mean
from ..redaction import is_secret_name, redacted

RECIPES = (".yaml", ".yml", ".json")
# What a job was told, in its folder; without where that is, what may be lost there, and what leaves this machine.
OWN_RECIPE, TOLD = "recipe.yaml", "What this run was told"
NOT_REPEATED = ("output_dir", "overwrite", "resume_from_checkpoint", "accept_changes", "push_to_hub")
MOST_BYTES = {"json": 1_000_000, "yaml": 250_000}  # a second to read
MOST_VALUES = 100_000
MOST_DEPTH = 50
# References to references multiply: so many of them stand for at most about 100,000 values.
MOST_REFERENCES = 32
_COMMENTED = re.compile(r"^#.*\bhf[-_]ptm[-_]ext ([a-z0-9-]+) \w+\.ya?ml", re.MULTILINE)
_FOLDER_NAME = re.compile(r"[^\W_][\w-]{0,99}")
_RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)\d", re.IGNORECASE)
# A field and its value, whose commas are in brackets.
PAIR = re.compile(r"(?:[^,\[]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])+|\[")


def recipe_file(path: str) -> Path:
    """Find a recipe."""
    file = Path(path)
    return file if file.exists() or file.name != path else resource("configs", path)


def job_of(file: Path) -> str | None:
    """The job that a comment of a recipe names: `# hf-ptm-ext JOB NAME.yaml ...`."""
    found = _COMMENTED.search(file.read_text(encoding="utf-8", errors="replace"))
    return found[1] if found else None


def recipes_of(command: str) -> list[str]:
    """Names of the recipes that come with the package for a job."""
    return [name for name, job in sorted(jobs_of_recipes().items()) if job == command]


def jobs_of_recipes() -> dict[str, str | None]:
    """Recipe -> its job."""
    return {path.name: job_of(path) for path in resource("configs", "quickstart.yaml").parent.glob("*.yaml")}


def check_folder_name(what: str, name: Any) -> None:
    """Refuse a name that cannot be the name of a folder everywhere."""
    if not isinstance(name, str) or not _FOLDER_NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise ValueError(
            f"{what} must be named by letters, digits, - and _ (100 at most, the first no - or _), not as a device of "
            f"an operating system, got {name!r}."
        )


class _Loader(yaml.SafeLoader):
    """YAML without keys that are there twice, and without a flood of references."""

    references = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose, and count references: a few of them stand for billions of values."""
        if self.check_event(yaml.AliasEvent):
            self.references += 1
            if self.references > MOST_REFERENCES:
                raise ValueError(f"it has more than {MOST_REFERENCES} references (*name)")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct, unless a key is there twice."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError(f"line {key.start_mark.line + 1}: a key must be a text, got a {key.id}")
            if (key.tag, key.value) in seen:
                raise ValueError(f"line {key.start_mark.line + 1}: the key {key.value!r} is there twice")
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, unless a key is there twice."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} is there twice")
        seen.add(key)
    return dict(pairs)


def form_of(file: Path) -> str:
    """Of a file: `json` or `yaml`."""
    return "json" if file.suffix == ".json" else "yaml"


def small_text(file: Path) -> str:
    """The text of a small file that a person wrote."""
    how = file.stat().st_mode
    if not stat.S_ISREG(how):
        raise ValueError(f"{file} must be a file, got {'a folder' if stat.S_ISDIR(how) else 'a pipe or device'}.")
    most = MOST_BYTES[form_of(file)]
    if file.stat().st_size > most:
        raise ValueError(f"{file} must have at most {most:,} bytes, got {file.stat().st_size:,}.")
    data = file.read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{file} is in UTF-16: save it in UTF-8.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(f"{file}, line {line}: not in UTF-8 ({error.reason}). Save it in UTF-8.") from error
    if "\0" in text:
        raise ValueError(f"{file} must be a text, got a file with zero bytes.")
    return text


def parse_text(text: str, form: str, where: Any) -> Any:
    """The values that a YAML or JSON text spells."""
    try:
        value = json.loads(text, object_pairs_hook=_unique) if form == "json" else _Loader(text).get_single_data()
    except (ValueError, yaml.YAMLError, RecursionError, OverflowError, LookupError, TypeError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{where} is not valid {form.upper()}: {reason[:400]}.") from error
    open_values, count = [(value, 1)], 0
    while open_values:
        one, depth = open_values.pop()
        count += 1
        if count > MOST_VALUES or depth > MOST_DEPTH:
            raise ValueError(f"{where} must have at most {MOST_VALUES:,} values, {MOST_DEPTH} deep, got more.")
        inner = [*one.keys(), *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else ()
        open_values += [(item, depth + 1) for item in inner]
    return value


def read_mapping(file: Path) -> dict[str, Any]:
    """Read a mapping that a person wrote, in YAML or JSON."""
    value = parse_text(small_text(file), form_of(file), file)
    if not isinstance(value, dict):
        got = "nothing" if value is None else type(value).__name__
        raise ValueError(f"{file} must be a mapping of arguments to values, got {got}.")
    wrong = [key for key in value if not isinstance(key, str)]
    if wrong:
        raise ValueError(f"{file} must have names as keys, got {wrong[0]!r}: write it in quotes.")
    return value


def read_recipe(path: str, groups: Sequence[type], command: str) -> dict[str, Any]:
    """Read a flat YAML or JSON recipe."""
    file = recipe_file(path)
    recipe = read_mapping(file)
    known = {f.name for group in groups for f in fields(group) if f.init}
    unknown = sorted(set(recipe) - known)
    if unknown:
        job = job_of(file)
        if job not in (None, command):
            raise ValueError(f"{file} is a recipe of `hf-ptm-ext {job}`, not of `{command}`.")
        hint = did_you_mean(unknown[0], known)
        raise ValueError(
            f"{file} has unknown arguments: {', '.join(unknown)}.{hint} See `hf-ptm-ext {command} --help`."
        )
    return recipe


def repeatable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a recipe spells them, without secrets and without `NOT_REPEATED`."""
    gone = {name for name in options if name in NOT_REPEATED or name.startswith("hub_")}
    return _spelt({name: value for name, value in options.items() if name not in gone})


def _spelt(value: Any) -> Any:
    """A value, or those inside it; a text whose name is that of a secret is left out, a task of such a name is not."""
    if isinstance(value, Mapping):
        inner = {name: one for name, one in value.items() if not (is_secret_name(name) and isinstance(one, str))}
        return {name: _spelt(one) for name, one in inner.items()}
    if isinstance(value, list | tuple):
        return [_spelt(one) for one in value]
    return redacted(value.value if isinstance(value, Enum) else value)


def is_written(file: Path) -> bool:
    """Whether a file is a recipe that a job wrote."""
    return file.name == OWN_RECIPE and file.is_file() and TOLD in file.read_text(encoding="utf-8", errors="replace")


def write_recipe(folder: Path, args: Any) -> None:
    """Write what a job was told, so that it can be run again; nothing if it was not started by a command."""
    command, values = getattr(args, "told", (None, {}))
    if command is None:
        return
    head = (
        f"# hf-ptm-ext {command} {OWN_RECIPE}\n"
        f"# {TOLD}: `hf-ptm-ext {command} {OWN_RECIPE} --output_dir OTHER` runs it again.\n"
        "# Paths are as they were given.\n"
    )
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=118)
    write_whole(folder / OWN_RECIPE, head + text)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Spell values as command-line flags, which `OptionParser` reads."""
    flags: list[str] = []
    for name, value in values.items():
        words = [_word(item) for item in value] if isinstance(value, list) else []
        if words and not any(word.startswith(("-", "[")) for word in words):
            flags += [f"--{name}", *words]
        else:
            flags.append(f"--{name}={_word(words if isinstance(value, list) else value)}")
    return flags


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) or value is None else str(value)


def split_nested(arguments: Sequence[str], group: str) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Take the flags out that name a field inside a mapping of mappings."""
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
        numbers = [_number(word) for word in words]
        found.setdefault(member, {})[field] = numbers[0] if len(numbers) == 1 else numbers
    return others, found


def _number(word: str) -> Any:
    """The number that a word is, if that is spelt as it."""
    for kind in (int, float):
        with suppress(ValueError):
            if str(kind(word)) == word and math.isfinite(kind(word)):
                return kind(word)
    return word


def mapping(name: str, value: Any) -> dict[str, Any]:
    """A mapping, as it is or as JSON or YAML spells it; empty for `None`."""
    found = value
    if isinstance(value, str):
        try:
            found = parse_text(value, "json", "it")
        except ValueError as error:
            try:
                found = parse_text(value, "yaml", "it")
            except ValueError:
                message = f"`{name}` must be a mapping or JSON, got {value[:200]!r}: {error}"
                raise ValueError(message) from error
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"`{name}` must be a mapping, got {found!r}.")
    return found or {}


def nested(name: str, value: Any, changes: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """A mapping of mappings, as it is or as a text spells it, with changes."""
    found = mapping(name, value)
    if not all(isinstance(one, dict) for one in found.values()):
        raise ValueError(f"`{name}` must be a mapping from names to mappings of arguments, got {found!r}.")
    for one in (*found, *(changes or {})):
        check_folder_name(f"A {name.removesuffix('s')}", one)
    merged = {one: {**found.get(one, {}), **(changes or {}).get(one, {})} for one in (*found, *(changes or {}))}
    if not merged:
        one = name.removesuffix("s")
        raise ValueError(f"`{name}` must name at least one {one} and its options, got none: name them in a recipe.")
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
    wrong = [pair for pair in pairs if not re.match(r"[A-Za-z_][\w.-]*=", pair)]
    if wrong or not pairs:
        raise ValueError(f"`--overrides` takes name=value pairs, got {wrong[0] if wrong else 'none'!r}.")
    names = [pair.partition("=")[0] for pair in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"`--overrides` must name each argument once, got {twice!r} twice.")
    behind = split_overrides(arguments[at + 1 + len(pairs) :])
    return arguments[:at] + as_flags(dict(pair.split("=", 1) for pair in pairs)) + behind


def parse_overrides(overrides: str | None, known: Collection[str], config_class: str) -> dict[str, Any]:
    """Read fields of a config as the command line gives them."""
    values: dict[str, Any] = {}
    for pair in PAIR.findall(overrides or ""):
        if not pair.strip():
            continue
        name, _, text = pair.strip().partition("=")
        if name not in known:
            raise ValueError(f"`config_overrides` names {name!r}, which {config_class} does not have.")
        if name in values:
            raise ValueError(f"`config_overrides` must name each field once, got {name!r} twice.")
        values[name] = parse_value(text)
        if isinstance(values[name], float) and not math.isfinite(values[name]):
            raise ValueError(f"`config_overrides`: `{name}` must be a finite number, got {text!r}.")
    return values


def parse_value(text: str) -> Any:
    """Read a config value as YAML does, and 1e-5 as the number it is; the config checks the type."""
    value = parse_text(text, "yaml", "A value of `config_overrides`")
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
