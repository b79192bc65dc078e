"""What can be said about a checkpoint without running anything of it: `verify` looks here first.

Code comes into a checkpoint by name: `auto_map` in any of its JSON files, `custom_pipelines`, an attention kernel, the
base model of an adapter. A name with `owner/repo--` in front, or that of a repository, is code of others that nobody
was shown; such a checkpoint is refused.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..files import check_link, check_shard_index, check_tokenizer_config, path_inside
from .export import families, full_auto_map

# Files in which transformers looks for classes and their options.
CONFIG_FILES = (
    *("config.json", "generation_config.json", "adapter_config.json", "tokenizer_config.json"),
    *("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"),
)
# Large, and nothing is looked up in them.
NO_CONFIG_FILES = ("tokenizer.json", "vocab.json")
# Fields that may name a kernel of the Hub, which is code too.
KERNEL_FIELDS = (
    *("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation"),
    "kernel_config",
)


def static_problems(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a checkpoint's files, as far as reading them tells."""
    problems = []
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        problems.append(f"{folder.name} has no weights: neither a .safetensors nor a .bin file.")
    problems += _path_problems(folder, config)
    problems += _reference_problems(folder)
    auto_map = config.get("auto_map") or {}
    family = config.get("model_type")
    if not isinstance(auto_map, Mapping):
        problems.append(f"The `auto_map` of config.json must map auto classes to classes, got {auto_map!r}.")
    elif family in families():
        lacking = [name for name in full_auto_map(family) if name not in auto_map]
        if lacking:
            problems.append(
                f"The `auto_map` of config.json lacks {', '.join(lacking)}: `save_pretrained` of the installed "
                "classes writes them all."
            )
    problems += _weight_problems(folder)
    for name in sorted({name for path in folder.glob("*.py") for name in _relative_imports(path)}):
        if not (folder / f"{name}.py").is_file():
            problems.append(f"{name}.py is missing: another code file imports it.")
    return list(dict.fromkeys(problems))


def reads_code(folder: Path) -> bool:
    """Whether any file of a checkpoint names a class of code that travels with it."""
    return any(found for _, content in _files(folder) for found in _references(content))


def pipeline_code(folder: Path) -> set[str]:
    """Code files that pipelines of a checkpoint bring: saving the model alone does not copy them."""
    named: dict[bool, list[str]] = {True: [], False: []}
    for _, content in _files(folder):
        for entry, value in _references(content):
            modules = [item.rpartition(".")[0] for item in _texts(value)]
            named[entry.startswith("custom_pipelines.")] += modules
    ours, others = (_with_imports(folder, modules) for modules in (named[True], named[False]))
    return ours - others


def _with_imports(folder: Path, modules: Iterable[str]) -> set[str]:
    """Files of modules and of all that they import from the folder."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = f"{waiting.pop()}.py"
        if name not in found and (folder / name).is_file():
            found.add(name)
            waiting += _relative_imports(folder / name)
    return found


def _files(folder: Path) -> Iterator[tuple[str, Any]]:
    """Name and content of the JSON files beside the weights; those that cannot be read are left out."""
    for path in sorted(folder.glob("*.json")):
        if path.is_file() and path.name not in NO_CONFIG_FILES:
            try:
                yield path.name, json.loads(path.read_text(encoding="utf-8"))
            except (ValueError, RecursionError):
                continue


def _path_problems(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """Files outside the folder, that its JSON names or that its links lead to."""
    problems = []

    def note(check: Callable[..., Any], *arguments: Any) -> None:
        try:
            check(*arguments)
        except ValueError as error:
            problems.append(str(error))

    note(check_shard_index, folder)
    note(check_tokenizer_config, folder, ["kg"])
    note(check_tokenizer_config, folder, ["ngrams"], False)
    source = config.get("entity_embeddings_source")
    if isinstance(source, Mapping) and "path" in source:
        note(path_inside, folder, source["path"], "`entity_embeddings_source` of config.json")
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            note(check_link, folder, path, folder.name)
    return problems


def _reference_problems(folder: Path) -> list[str]:
    """References to code that is not there, or is of another repository; and files that hide what they refer to."""
    problems = []
    readable = dict(_files(folder))
    for name in CONFIG_FILES:
        if (folder / name).is_file() and not isinstance(readable.get(name), dict):
            problems.append(f"{name} must hold a JSON object.")
    for name, content in readable.items():
        for entry, value in _references(content):
            problems += _reference_problem(folder, name, entry, value)
        for entry, value in _kernels(content):
            problems.append(f"{name} takes `{entry}` from the repository {value}: such code is not run.")
    base = (readable.get("adapter_config.json") or {}).get("base_model_name_or_path")
    if base:
        problems.append(
            f"adapter_config.json takes `base_model_name_or_path` from another place ({base}): such code is not run. "
            "Merge the adapter into the model to verify both."
        )
    return problems


def _references(content: Any) -> Iterator[tuple[str, Any]]:
    """Entries and the classes that they name, of every `auto_map` and `custom_pipelines` at any depth.

    The forms: `{auto class: "module.Class"}`, a list in place of the text (slow and fast tokenizer), in old tokenizer
    configurations the list alone, and `{task: {"impl": "module.Class"}}`.
    """
    if isinstance(content, Mapping):
        for name, value in content.items():
            if name == "auto_map" and value:
                if isinstance(value, Mapping):
                    yield from ((f"auto_map.{auto_class}", item) for auto_class, item in value.items() if item)
                else:
                    yield "auto_map", value
            elif name == "custom_pipelines" and isinstance(value, Mapping):
                for task, item in value.items():
                    yield f"custom_pipelines.{task}", item.get("impl") if isinstance(item, Mapping) else item
            else:
                yield from _references(value)
    elif isinstance(content, list):
        for item in content:
            yield from _references(item)


def _kernels(content: Any) -> Iterator[tuple[str, str]]:
    """Fields that name a repository of kernels."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            if name in KERNEL_FIELDS:
                yield from ((name, text) for text in _texts(value) if "/" in text)
            else:
                yield from _kernels(value)
    elif isinstance(content, list):
        for item in content:
            yield from _kernels(item)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _reference_problem(folder: Path, file: str, entry: str, value: Any) -> list[str]:
    problems = []
    for reference in value if isinstance(value, list) else [value]:
        if reference is None:
            continue
        if not isinstance(reference, str):
            problems.append(f"`{entry}` of {file} must name a class as `module.Class`, got {reference!r}.")
        elif "--" in reference:
            problems.append(f"`{entry}` of {file} is from another repository ({reference}): such code is not run.")
        else:
            problems += _class_problems(folder, file, entry, reference)
    return problems


def _class_problems(folder: Path, file: str, entry: str, reference: str) -> list[str]:
    module, _, name = reference.rpartition(".")
    path = folder / f"{module}.py"
    if not re.fullmatch(r"\w+", module) or not path.is_file():
        return [f"{module}.py is missing: `{entry}` of {file} names it."]
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        return [f"{path.name} is not valid Python: {error}."]
    if not any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body):
        return [f"{path.name} has no class {name}, which `{entry}` of {file} names."]
    return []


def _weight_problems(folder: Path) -> list[str]:
    """Files of weights that cannot be read, and tensors that are not finite."""
    import torch
    from safetensors import SafetensorError, safe_open

    problems = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                broken = [name for name in file.keys() if not torch.isfinite(file.get_tensor(name)).all()]  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            problems.append(f"{path.name} is damaged: {error}.")
            continue
        if broken:
            problems.append(f"{path.name} has weights that are not finite: {', '.join(broken[:4])}.")
    return problems


def _relative_imports(path: Path) -> Iterable[str]:
    """Modules that a file imports from its own folder."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return []
    return [
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
    ]
