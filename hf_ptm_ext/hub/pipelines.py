"""Giving a saved checkpoint the pipeline that transformers no longer has."""

import json
import shutil
from pathlib import Path

from ..files import read_json
from .export import remove_links

PIPELINES = Path(__file__).resolve().parents[1] / "pipelines"
ENTRY = "pipeline_question_answering"


def pipeline_files() -> list[Path]:
    """The files of the question-answering pipeline that a checkpoint carries.

    Returns:
        Paths inside the package, sorted by name.

    Example:
        >>> [path.name for path in pipeline_files()][0]
        'pipeline_question_answering.py'
    """
    from transformers.dynamic_module_utils import get_relative_import_files

    entry = PIPELINES / f"{ENTRY}.py"
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

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
        ...     add_question_answering_pipeline(folder)[0]
        'pipeline_question_answering.py'
    """
    folder = Path(folder)
    config = read_json(folder / "config.json")
    files = pipeline_files()
    remove_links(folder)
    for file in files:
        shutil.copyfile(file, folder / file.name)
    config["custom_pipelines"] = {
        **(config.get("custom_pipelines") or {}),
        "extractive-question-answering": {
            "impl": f"{ENTRY}.ExtractiveQuestionAnsweringPipeline",
            "pt": ["AutoModelForQuestionAnswering"],
        },
    }
    partial = folder / "config.json.partial"
    partial.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(folder / "config.json")
    return [file.name for file in files]


__all__ = ["add_question_answering_pipeline", "pipeline_files"]
