"""Model cards: written from a template of `model_cards/`, and checked without a network.

The front matter is made by `huggingface_hub`; what the Hub would check on a push (`/api/validate-yaml`) and what
readers miss in cards of models with code of their own is checked here, before anything is sent.
"""

import difflib
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from ..redaction import redacted
from ..resources import resource
from .card_vocabulary import LANGUAGES, LICENSES, PIPELINE_TAGS

LIBRARIES = ("transformers", "peft")
GENERIC_TEMPLATE = "encoder.md"
PLACEHOLDER_REVISION = "COMMIT"
INCLUDE = re.compile(r'^\{% include "([^"]+)" %\}$', re.MULTILINE)
TASK_NAMES = {"fill-mask": "Masked language modelling"}
AUTO_CLASSES = {
    "fill-mask": "AutoModelForMaskedLM",
    "feature-extraction": "AutoModel",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "summarization": "AutoModelForSeq2SeqLM",
    "translation": "AutoModelForSeq2SeqLM",
    "text-generation": "AutoModelForSeq2SeqLM",
}


def write_model_card(
    folder: str | Path,
    *,
    family: str,
    metrics: Mapping[str, float],
    baselines: Mapping[str, float],
    training: Mapping[str, Any],
    data: Mapping[str, Any],
    language: str | Sequence[str],
    license: str,
    base_model: str | None = None,
    initial_metrics: Mapping[str, float] | None = None,
    repo_id: str | None = None,
    revision: str | None = None,
    title: str | None = None,
    description: str = "",
    limitations: Sequence[str] = (),
    tags: Sequence[str] = (),
    pipeline_tag: str = "fill-mask",
    figure: str | None = None,
    license_name: str | None = None,
    license_link: str | None = None,
    template: str | None = None,
    library_name: str = "transformers",
    values: Mapping[str, Any] | None = None,
    scored: tuple[str, str] | None = None,
    before: str = "before training",
) -> Path:
    """Write `README.md` into a checkpoint's folder.

    Args:
        folder: the checkpoint's folder; its `.py` files are listed in the card.
        family: `model_type`, a tag of the card.
        metrics: these very weights' results on held-out data; a leading `eval_` is dropped. They also become the
            card's model-index.
        baselines: what to compare with. One named like a metric stands beside it, any other in a row of its own.
        training: hyper-parameters, in the order in which they are shown.
        data: what was trained on: `name` and `license`, and `hub_id` if it is a dataset of the Hub; further entries
            (documents, tokens, source, ...) are shown as they are.
        language: language codes of the training text.
        license: licence of the weights, as the Hub spells it.
        base_model: what training started from. Only a Hub id is named in the card: a path says nothing to readers.
        initial_metrics: the same metrics before training, for a column of their own.
        repo_id: where the card will be on the Hub (default: the folder's name under `your-name`).
        revision: commit that the snippets pin (default: the word `COMMIT`, for the reader to fill in).
        title: heading and name in the model-index (default: the last part of `repo_id`).
        description: a paragraph on this very checkpoint.
        limitations: sentences on this checkpoint, in front of the family's.
        tags: tags beside `custom_code`, the family and the package's name.
        pipeline_tag: the task of the Hub's widget.
        figure: file name of a picture in the folder, such as the loss curve; left out if the file is not there.
        license_name: name of the licence if `license` is `"other"`.
        license_link: address of the licence if `license` is `"other"`.
        template: which template of model_cards/ to fill (default: the family's; the general one if there is none).
        library_name: what loads the folder, `"transformers"` (default) or `"peft"`.
        values: further values that the template shows.
        scored: name (`""` for that of the training data) and split of what was scored (default: held-out text).
        before: what the column of `initial_metrics` is called, such as that of a model whose head was new.

    Returns:
        The file that was written.

    Raises:
        ValueError: an entry of `data` is missing, or the card would not pass `card_problems`.
        FileNotFoundError: the folder does not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_model_card(folder, family="spanbert", metrics={"eval_mlm_accuracy": 0.31},
        ...         baselines={"mlm_accuracy": 0.05}, training={"learning_rate": 1e-4},
        ...         data={"name": "a text", "license": "cc0-1.0"}, language="en", license="apache-2.0")
        ...     "| mlm_accuracy | 0.31 | 0.05 |" in path.read_text(encoding="utf-8")
        True
    """
    from huggingface_hub import ModelCard, ModelCardData

    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"`folder` must be a checkpoint's folder, got {folder}, which does not exist.")
    absent = [name for name in ("name", "license") if not data.get(name)]
    if absent:
        raise ValueError(f"`data` must say what was trained on and under which licence; it lacks {', '.join(absent)}.")
    repo_id = repo_id or f"your-name/{folder.resolve().name}"
    title = title or repo_id.rpartition("/")[2]
    code_files = sorted(path.name for path in folder.glob("*.py"))
    metrics = {name.removeprefix("eval_"): float(value) for name, value in metrics.items()}
    card_data = ModelCardData(
        language=[language] if isinstance(language, str) else list(language),
        license=license,
        license_name=license_name,
        license_link=license_link,
        library_name=library_name,
        pipeline_tag=pipeline_tag,
        base_model=base_model if is_hub_id(base_model) else None,
        datasets=[data["hub_id"]] if data.get("hub_id") else None,
        tags=_unique([*(["custom_code"] if code_files else []), family, "hf-ptm-ext", *tags]),
        model_name=title,
        eval_results=_eval_results(metrics, data, pipeline_tag, scored),
    )
    article = "An" if family[:1].lower() in "aeio" else "A"  # "a UniLM"
    results_header, results = _results(metrics, baselines, initial_metrics, before)
    card = ModelCard.from_template(
        card_data,
        template_str=_template(family if template is None else template),
        family=family,
        title=title,
        description=description or f"{article} `{family}` model made with hf-ptm-ext.",
        article=article,
        repo_id=repo_id,
        revision=revision or PLACEHOLDER_REVISION,
        auto_class=AUTO_CLASSES.get(pipeline_tag, "AutoModel"),
        code_files=code_files,
        results_header=results_header,
        results=results,
        scored="held-out text" if scored is None else f"{scored[0] or data['name']}, {scored[1]}",
        figure=figure if figure and (folder / figure).is_file() else None,
        data=[(name, _cell(value)) for name, value in data.items()],
        training=[(name, _cell(value)) for name, value in training.items()],
        limitations=list(limitations),
        **(values or {}),
    )
    # Loops and conditions of the template leave a varying number of blank lines.
    text = re.sub(r"\n(?=#+ )", "\n\n", str(card))
    text = redacted(re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n")
    problems = card_problems(text)
    if problems:
        raise ValueError(f"The card of {folder} would be refused: {' '.join(problems)}")
    path = folder / "README.md"
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return path


def validate_model_card(path: str | Path) -> None:
    """Check a card's file, offline.

    Args:
        path: the `README.md`, or the folder that it is in.

    Raises:
        FileNotFoundError: there is no card.
        ValueError: the card has problems; all are named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_model_card(folder, family="bert", metrics={}, baselines={}, training={},
        ...         data={"name": "a text", "license": "cc0-1.0"}, language="en", license="apache-2.0")
        ...     validate_model_card(folder)
    """
    path = Path(path)
    if path.is_dir():
        path = path / "README.md"
    if not path.is_file():
        raise FileNotFoundError(f"There is no card: {path} does not exist.")
    with open(path, encoding="utf-8") as file:
        problems = card_problems(file.read())
    if problems:
        raise ValueError(f"{path}: {' '.join(problems)}")


def check_card_fields(
    language: str | Sequence[str],
    license: str,
    *,
    pipeline_tag: str = "fill-mask",
    license_name: str | None = None,
) -> None:
    """Check the fields of a card that people write by hand, before there is a card: before a training, for instance.

    Args:
        language: language code, or several.
        license: licence of the weights.
        pipeline_tag: the task of the Hub's widget (default `"fill-mask"`).
        license_name: name of the licence, needed if `license` is `"other"`.

    Raises:
        ValueError: a value is not one that the Hub knows; all such fields are named, each with its value and what is
            allowed.

    Example:
        >>> check_card_fields("en", "apache-2.0")
        >>> check_card_fields(["en", "klingon"], "mit")
        Traceback (most recent call last):
        ...
        ValueError: `language` must be ISO 639 codes such as 'en' or 'zh', got 'klingon'.
    """
    front = {
        "language": [language] if isinstance(language, str) else list(language),
        "license": license,
        "license_name": license_name,
        "pipeline_tag": pipeline_tag,
    }
    problems = _field_problems(front)
    if problems:
        raise ValueError(" ".join(problems))


def card_problems(text: str) -> list[str]:
    """What is wrong with a card: each problem is a sentence that names the field.

    Args:
        text: the whole card.

    Returns:
        The problems, none for a good card.

    Example:
        >>> card_problems("no front matter")
        ['The card must begin with YAML between two lines `---`.']
    """
    import yaml

    match = re.match(r"---\r?\n(.*?)\r?\n---\s*(?:\n|$)", text, re.DOTALL)
    if match is None:
        return ["The card must begin with YAML between two lines `---`."]
    try:
        front = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 2}" if mark is not None else ""
        return [f"The YAML at the top is invalid{line}: {getattr(error, 'problem', error)}."]
    if not isinstance(front, dict):
        return ["The YAML at the top must be a mapping."]
    return [*_front_problems(front), *_index_problems(front), *_body_problems(text[match.end() :])]


def _front_problems(front: Mapping[str, Any]) -> list[str]:
    problems = _field_problems(front)
    if front.get("library_name") not in LIBRARIES:
        problems.append(f"`library_name` must be one of {', '.join(LIBRARIES)}, got {front.get('library_name')!r}.")
    tags = front.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        problems.append(f"`tags` must be a list of words, got {tags!r}.")
    return problems


def _field_problems(front: Mapping[str, Any]) -> list[str]:
    """Problems of the fields that have a fixed vocabulary."""
    problems = []
    license = front.get("license")
    if not _known(license, LICENSES):
        problems.append(
            f"`license` must be one of the Hub's licence ids{_alike(license, LICENSES)}, got {license!r}; use 'other' "
            "with `license_name` for one of your own."
        )
    elif license == "other" and not front.get("license_name"):
        problems.append("`license_name` must be given when `license` is 'other'.")
    pipeline_tag = front.get("pipeline_tag")
    if not _known(pipeline_tag, PIPELINE_TAGS):
        problems.append(
            f"`pipeline_tag` must be a task of the Hub{_alike(pipeline_tag, PIPELINE_TAGS)}, got {pipeline_tag!r}."
        )
    languages = front.get("language")
    languages = languages if isinstance(languages, list) else [languages]
    # YAML reads a bare `no` (Norwegian) as false.
    unknown = [code for code in languages if not _known(code, LANGUAGES)]
    if unknown or not languages:
        got = ", ".join(map(repr, unknown)) or "none"
        problems.append(f"`language` must be ISO 639 codes such as 'en' or 'zh', got {got}.")
    return problems


def _known(value: Any, words: Collection[str]) -> bool:
    return isinstance(value, str) and value in words


def _alike(value: Any, words: Collection[str]) -> str:
    """Words that a mistyped one may have meant, for a message."""
    close = difflib.get_close_matches(str(value), sorted(words), n=3)
    return f" (such as {', '.join(close)})" if close else ""


def _index_problems(front: Mapping[str, Any]) -> list[str]:
    """Problems of the model-index, whose every entry must be whole: the Hub drops it otherwise."""
    if "model-index" not in front:
        return []
    index = front["model-index"]
    if not isinstance(index, list) or not index:
        return ["`model-index` must be a list of models."]
    problems = []
    for model in index:
        if not isinstance(model, dict) or not model.get("name") or not model.get("results"):
            problems.append("`model-index` must give `name` and `results` of each model.")
            continue
        for result in model["results"]:
            problems += _result_problems(result)
    return problems


def _result_problems(result: Any) -> list[str]:
    problems = []
    for path in ("task.type", "dataset.type", "dataset.name"):
        group, _, name = path.partition(".")
        if not isinstance(result, dict) or not (result.get(group) or {}).get(name):
            problems.append(f"A result of the `model-index` lacks `{path}`.")
    measured = (result.get("metrics") if isinstance(result, dict) else None) or []
    if not measured:
        problems.append("A result of the `model-index` has no `metrics`.")
    for metric in measured:
        value = metric.get("value")
        if not metric.get("type") or isinstance(value, bool) or not isinstance(value, int | float):
            problems.append(f"A metric of the `model-index` must have `type` and a number as `value`, got {metric!r}.")
        elif not math.isfinite(value):
            problems.append(f"A metric of the `model-index` must be finite, got {metric['type']} = {value}.")
    return problems


def _body_problems(body: str) -> list[str]:
    problems = []
    if not re.search(r"^# \S", body, re.MULTILINE):
        problems.append("The card must have a heading.")
    if "More information needed" in body or re.search(r"\{%|\{\{ ?\w", body):
        problems.append("The card has places that were not filled in.")
    calls = re.findall(r"from_pretrained\([^)]*trust_remote_code=True[^)]*\)", body)
    if any("revision=" not in call for call in calls):
        problems.append("A snippet with `trust_remote_code=True` must pin `revision`.")
    return problems


def _template(family: str) -> str:
    """The family's template with its parts put in."""
    try:
        path = resource("model_cards", f"{family}.md")
    except FileNotFoundError:
        path = resource("model_cards", GENERIC_TEMPLATE)
    return INCLUDE.sub(lambda match: _read(resource("model_cards", match[1])).strip(), _read(path))


def _read(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _unique(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))


def is_hub_id(name: str | None) -> bool:
    """Whether a name can be a repository of the Hub and is no path that exists here.

    Args:
        name: what a model was loaded from.

    Example:
        >>> is_hub_id("user/encoder"), is_hub_id(None)
        (True, False)
    """
    return name is not None and not os.path.exists(name) and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is not None


def _eval_results(
    metrics: Mapping[str, float], data: Mapping[str, Any], pipeline_tag: str, scored: tuple[str, str] | None
) -> list[Any] | None:
    from huggingface_hub import EvalResult

    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    results = [
        EvalResult(
            task_type=pipeline_tag,
            task_name=TASK_NAMES.get(pipeline_tag),
            dataset_type=str(data.get("hub_id") or "text"),
            dataset_name=str((scored and scored[0]) or data["name"]),
            dataset_split=scored[1] if scored else "held-out",
            metric_type=name,
            metric_name=name.replace("_", " "),
            metric_value=value,
        )
        for name, value in finite.items()
    ]
    return results or None


def _results(
    metrics: Mapping[str, float],
    baselines: Mapping[str, float],
    initial: Mapping[str, float] | None,
    before: str,
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of results; columns without any value are left out."""
    initial = {name.removeprefix("eval_"): value for name, value in (initial or {}).items()}
    baselines = {name.removeprefix("eval_"): value for name, value in baselines.items()}
    columns = {before: initial, "value": metrics, "baseline": baselines}
    columns = {name: values for name, values in columns.items() if values}
    names = _unique([*metrics, *initial, *baselines])
    rows = [[name, *(_cell(values.get(name, "")) for values in columns.values())] for name in names]
    return ["metric", *columns], rows


def _cell(value: Any) -> str:
    """A value as the text of a table's cell, without line breaks and without the folders of a path."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_cell(item)}" for name, item in value.items())
    if isinstance(value, list | tuple | set):
        return ", ".join(_cell(item) for item in value)
    text = str(value)
    if isinstance(value, PurePath) or os.path.isabs(text):
        text = PurePath(text).name
    return " ".join(text.split()).replace("|", "\\|")


__all__ = ["card_problems", "check_card_fields", "validate_model_card", "write_model_card"]
