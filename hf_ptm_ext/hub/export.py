"""Making a checkpoint's folder complete: the code files of its family, the whole auto_map, a pipeline.

`save_pretrained` of our classes does the same; this is for folders that were written otherwise, and for checking.
"""

import importlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import read_json, write_json
from .adapted import adapted_files, is_adapted, model_type_of

MODELS = Path(__file__).resolve().parents[1] / "models"
PIPELINES = MODELS.with_name("pipelines")
PIPELINE_ENTRY = "pipeline_question_answering"
ENTRY_FILES = ("configuration", "modeling", "tokenization", "processing")


def families() -> list[str]:
    """The `model_type` of every family of the package.

    Returns:
        The names, sorted.

    Examples:
        >>> "spanbert" in families()
        True
    """
    names = {path.stem.removeprefix("configuration_") for path in MODELS.glob("configuration_*.py")}
    return sorted(names - {"core"})


def code_files(family: str, entries: Sequence[str] = ENTRY_FILES) -> list[Path]:
    """The files of a family that a checkpoint carries: its entry files and all that they import from their folder.

    Args:
        family: its `model_type`.
        entries: kinds of entry files (default all).

    Returns:
        Paths inside the package, sorted by name.

    Raises:
        ValueError: the package has no such family.

    Examples:
        >>> "modeling_spanbert.py" in [path.name for path in code_files("spanbert")]
        True
    """
    from transformers.dynamic_module_utils import get_relative_import_files

    _check_family(family)
    found: set[Path] = set()
    for kind in entries:
        entry = MODELS / f"{kind}_{family}.py"
        if entry.is_file():
            found |= {entry, *(Path(path) for path in get_relative_import_files(entry))}
    return sorted(found)


def full_auto_map(family: str) -> dict[str, Any]:
    """The auto_map that every checkpoint of a family carries.

    Args:
        family: its `model_type`.

    Returns:
        Auto class -> `file.Class` in the checkpoint's folder.

    Raises:
        ValueError: the package has no such family.

    Examples:
        >>> full_auto_map("spanbert")["AutoModelForMaskedLM"]
        'modeling_spanbert.SpanBertForMaskedLM'
    """
    _check_family(family)
    module = importlib.import_module(f"hf_ptm_ext.models.configuration_{family}")
    return dict(module.AUTO_MAP)


def finish_folder(folder: str | Path) -> list[str]:
    """Copy the family's code files into a checkpoint's folder and complete the auto_map of its `config.json`.

    A family with a decoding of its own also gets its `custom_generate/generate.py`.

    Args:
        folder: a folder with `config.json`. A `model_type` that is not one of ours needs no code: nothing is done.

    Returns:
        Names of the code files that the folder has now, sorted.

    Raises:
        FileNotFoundError: there is no `config.json`.
        ValueError: it is not a JSON object.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "config.json"
        ...     _ = path.write_text('{"model_type": "spanbert"}', encoding="utf-8")
        ...     files = finish_folder(folder)
        ...     "modeling_spanbert.py" in files, len(read_config(folder)["auto_map"])
        (True, 8)
    """
    folder = Path(folder)
    config = read_config(folder)
    family = model_type_of(config)
    remove_links(folder)
    if family in families():
        # Without the file of a tokenizer or a processor nothing names its code, and saving the model again drops it.
        files = {"tokenization": "tokenizer_config.json", "processing": "processor_config.json"}
        for path in code_files(
            family, [kind for kind in ENTRY_FILES if kind not in files or (folder / files[kind]).is_file()]
        ):
            shutil.copyfile(path, folder / path.name)
        for inner in inner_families(config):
            for path in code_files(inner, ("configuration", "modeling")):
                shutil.copyfile(path, folder / path.name)
        if (MODELS / f"custom_generate_{family}.py").is_file():
            importlib.import_module(f"hf_ptm_ext.models.custom_generate_{family}").write_custom_generate(folder)
        if not is_adapted(config):
            config["auto_map"] = {**(config.get("auto_map") or {}), **full_auto_map(family)}
            write_json(folder / "config.json", config, sort_keys=True)
    for name, text in written_files(config).items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(path.name for path in folder.glob("*.py"))


def inner_families(config: Mapping[str, Any]) -> list[str]:
    """The families of the encoders inside, of encoders in encoders too: their code travels with the model."""
    found, known, inner = [], families(), config.get("encoder_config")
    while isinstance(inner, Mapping):
        if inner.get("model_type") in known:
            found.append(str(inner["model_type"]))
        inner = inner.get("encoder_config")
    return found


def written_files(config: Mapping[str, Any]) -> dict[str, str]:
    """Name and text of the code files that saving writes for each checkpoint anew, by its configuration."""
    adapted = adapted_files(config) if is_adapted(config) else {}
    if "encoder_config" not in config:
        return adapted
    from ..models.inner_config_core import FAMILY_FILE, family_file

    maps = {family: full_auto_map(family) for family in inner_families(config)}
    return adapted | {
        FAMILY_FILE: family_file({name: (one["AutoConfig"], one["AutoModel"]) for name, one in maps.items()})
    }


def remove_links(folder: str | Path) -> None:
    """Take away links where files are about to be written: what they lead to is another's, or the Hub's cache."""
    folder = Path(folder)
    for path in (folder / "config.json", folder / "custom_generate", *folder.glob("*.py")):
        if path.is_symlink():
            path.unlink()
    search = folder / "custom_generate" / "generate.py"
    if search.is_symlink():
        search.unlink()


def read_config(folder: str | Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint's folder."""
    path = Path(folder) / "config.json"
    if not path.is_file() and (Path(folder) / "adapter_config.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds an adapter, not a model: `import hf_ptm_ext`, load the base model and put the adapter on "
            "it by `peft.PeftModel.from_pretrained(base, folder)`. `hf_ptm_ext.save_adapted` writes both as one model."
        )
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a checkpoint: it has no config.json.")
    return read_json(path)


def _check_family(family: str) -> None:
    if family not in families():
        raise ValueError(f"`family` must be one of {', '.join(families())}, got {family!r}.")


def pipeline_files() -> list[Path]:
    """The files of the question-answering pipeline that a checkpoint carries."""
    from transformers.dynamic_module_utils import get_relative_import_files

    entry = PIPELINES / f"{PIPELINE_ENTRY}.py"
    return sorted({entry, *map(Path, get_relative_import_files(entry))})


def add_question_answering_pipeline(folder: str | Path) -> list[str]:
    """Copy the question-answering pipeline into a checkpoint and name it in `config.json`.

    `pipeline(model=folder, trust_remote_code=True)` then works without this package, as after the pipeline's own
    `save_pretrained`.

    Args:
        folder: a checkpoint of any `...ForQuestionAnswering`.

    Returns:
        Names of the files that were copied.

    Raises:
        FileNotFoundError: there is no `config.json`.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
        ...     add_question_answering_pipeline(folder)[0]
        'pipeline_question_answering.py'
    """
    folder = Path(folder)
    config = read_config(folder)
    files = pipeline_files()
    remove_links(folder)
    for file in files:
        shutil.copyfile(file, folder / file.name)
    config["custom_pipelines"] = {
        **(config.get("custom_pipelines") or {}),
        "extractive-question-answering": {
            "impl": f"{PIPELINE_ENTRY}.ExtractiveQuestionAnsweringPipeline",
            "pt": ["AutoModelForQuestionAnswering"],
        },
    }
    write_json(folder / "config.json", config, sort_keys=True)
    return [file.name for file in files]
