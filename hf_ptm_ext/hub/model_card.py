"""Model cards: written from a template of `model_cards/`; what the Hub checks on a push is checked before, offline."""

import json
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..files import read_json, resource, write_whole
from ..hints import did_you_mean
from ..redaction import redacted
from .card_vocabulary import LANGUAGES, LICENSES, PIPELINE_TAGS, SENTENCES

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

LIBRARIES = ("transformers", "peft")
GENERIC_TEMPLATE = "encoder.md"
PLACEHOLDER_REVISION = "COMMIT"  # a push puts the commit of the weights in its place
FRAMEWORKS = ("hf-ptm-ext", "transformers", "torch", "tokenizers", "datasets")
# Tasks whose widget takes a text.
OF_A_TEXT = ("text-classification", "token-classification", "summarization", "translation", "text-generation")
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


class CardOptions(TypedDict, total=False):
    """What a card may say beside what `write_model_card` asks for."""

    base_model: str | None  # what training started from; only a Hub id is named, of a folder that which it came from
    initial_metrics: Mapping[str, float] | None  # the same metrics before training, for a column of their own
    repo_id: str | None  # where the card will be on the Hub (default: the folder's name under `your-name`)
    revision: str | None  # commit that the snippets pin (default: the word `COMMIT`, for the reader to fill in)
    title: str | None  # heading and name in the model-index (default: the last part of `repo_id`)
    description: str  # a paragraph on this very checkpoint
    limitations: Sequence[str]  # sentences on this checkpoint, in front of the family's
    tags: Sequence[str]  # beside `custom_code`, the family and the package's name
    pipeline_tag: str  # the task of the Hub's widget (default fill-mask)
    figure: str | None  # file name of a picture in the folder; left out if the file is not there
    license_name: str | None  # of a licence "other"
    license_link: str | None  # likewise
    template: str | None  # of model_cards/ (default: the family's; the general one if there is none)
    library_name: str  # what loads the folder, "transformers" (default) or "peft"
    values: Mapping[str, Any] | None  # further ones that the template shows
    scored: tuple[str, str] | None  # name ("": the training data's) and split of what was scored (default: held out)
    widget: Sequence[Mapping[str, Any]]  # examples for it (default: a general one in English or Chinese)
    page: str  # of the documentation (default: the family's)
    before: str  # what the column of `initial_metrics` is called, such as that of a model whose head was new


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
    **options: Unpack[CardOptions],
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
        options: see `CardOptions`.

    Returns:
        The file that was written.

    Raises:
        ValueError: an entry of `data` is missing, or the card would not pass `card_problems`.
        FileNotFoundError: the folder does not exist.
        TypeError: there is no such option.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_model_card(folder, family="spanbert", metrics={"eval_mlm_accuracy": 0.31},
        ...         baselines={"mlm_accuracy": 0.05}, training={"learning_rate": 1e-4},
        ...         data={"name": "a text", "license": "cc0-1.0"}, language="en", license="apache-2.0")
        ...     "| mlm_accuracy | 0.31 | 0.05 |" in path.read_text(encoding="utf-8")
        True
    """
    unknown = sorted(options.keys() - CardOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"`{unknown[0]}` is no option of a card, which are {', '.join(CardOptions.__annotations__)}.")
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"`folder` must be a checkpoint's folder, got {folder}, which does not exist.")
    absent = [name for name in ("name", "license") if not data.get(name)]
    if absent:
        raise ValueError(f"`data` must say what was trained on and under which licence; it lacks {', '.join(absent)}.")
    repo_id = options.get("repo_id") or f"your-name/{folder.resolve().name}"
    card = {
        "pipeline_tag": "fill-mask",
        **options,
        "repo_id": repo_id,
        "title": options.get("title") or repo_id.rpartition("/")[2],
        "code_files": sorted(path.name for path in folder.glob("*.py")),
        "mask": _mask_token(folder),
        "family": family,
        "metrics": {name.removeprefix("eval_"): float(value) for name, value in metrics.items()},
        "baselines": baselines,
        "training": training,
        "data": data,
        "language": [language] if isinstance(language, str) else list(language),
        "license": license,
    }
    text = _filled(_template(options.get("template") or family), _front_matter(card), _body(folder, card))
    if problems := card_problems(text):
        raise ValueError(f"The card of {folder} would be refused: {' '.join(problems)}")
    write_whole(folder / "README.md", text)
    return folder / "README.md"


def _front_matter(card: Mapping[str, Any]) -> "ModelCardData":
    """What the Hub reads of a card."""
    from huggingface_hub import ModelCardData

    base_model, data = card.get("base_model"), card["data"]
    custom = ["custom_code"] if card["code_files"] else []
    return ModelCardData(
        language=card["language"],
        license=card["license"],
        license_name=card.get("license_name"),
        license_link=card.get("license_link"),
        library_name=card.get("library_name", "transformers"),
        pipeline_tag=card["pipeline_tag"],
        base_model=hub_id_of(base_model),
        datasets=[data["hub_id"]] if data.get("hub_id") else None,
        tags=list(dict.fromkeys([*custom, card["family"], "hf-ptm-ext", *card.get("tags", ())])),
        model_name=card["title"],
        widget=_widget(card) or None,
        eval_results=_eval_results(card),
    )


def _auto_class(folder: Path, pipeline_tag: str) -> str:
    """The auto class of a task; whether text is written by a decoder alone or behind an encoder says the config."""
    auto_class = AUTO_CLASSES.get(pipeline_tag, "AutoModel")
    if pipeline_tag == "text-generation" and (folder / "config.json").is_file():
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if auto_class not in (config.get("auto_map") or {}) and not config.get("is_encoder_decoder"):
            return "AutoModelForCausalLM"
    return auto_class


def _body(folder: Path, card: Mapping[str, Any]) -> dict[str, Any]:
    """What the template shows."""
    article = "An" if card["family"][:1].lower() in "aeio" else "A"  # "a UniLM"
    header, results = _results(card)
    figure, scored = card.get("figure"), card.get("scored")
    return {
        **{name: card[name] for name in ("family", "title", "repo_id", "code_files")},
        "description": card.get("description") or f"{article} `{card['family']}` model made with hf-ptm-ext.",
        "article": article,
        "adapted": not {"modeling_adapted.py", "modeling_int8.py"}.isdisjoint(card["code_files"]),
        "revision": card.get("revision") or PLACEHOLDER_REVISION,
        "auto_class": _auto_class(folder, card["pipeline_tag"]),
        "results_header": header,
        "results": results,
        "scored": "held-out text" if scored is None else f"{scored[0] or card['data']['name']}, {scored[1]}",
        "figure": figure if figure and (folder / figure).is_file() else None,
        "data": [(name, _cell(value)) for name, value in card["data"].items() if name != "hub_id"],
        "training": [(name, _cell(value)) for name, value in card["training"].items()],
        "limitations": list(card.get("limitations", ())),
        "versions": _versions(card.get("library_name", "")),
        "documentation": _page(card.get("page") or _page_of(card["family"])),
        **(card.get("values") or {}),
    }


def _filled(template: str, front: "ModelCardData", body: Mapping[str, Any]) -> str:
    from huggingface_hub import ModelCard

    card = ModelCard.from_template(front, template_str=template, **body)
    # Loops and conditions of the template leave a varying number of blank lines.
    text = re.sub(r"\n(?=#+ )", "\n\n", str(card))
    made: str = redacted(re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n")
    return made


def validate_model_card(path: str | Path) -> None:
    """Check a card's file, offline.

    Args:
        path: the `README.md`, or the folder that it is in.

    Raises:
        FileNotFoundError: there is no card.
        ValueError: the card has problems; all are named.

    Examples:
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
    if problems := card_problems(path.read_text(encoding="utf-8")):
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

    Examples:
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
    if problems := _field_problems(front):
        raise ValueError(" ".join(problems))


def card_problems(text: str) -> list[str]:
    """What is wrong with a card: each problem is a sentence that names the field.

    Args:
        text: the whole card.

    Returns:
        The problems, none for a good card.

    Examples:
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
            f"`license` must be one of the Hub's licence ids, got {license!r}.{did_you_mean(license, LICENSES)} Use "
            "'other' with `license_name` for one of your own."
        )
    elif license == "other" and not front.get("license_name"):
        problems.append("`license_name` must be given when `license` is 'other'.")
    pipeline_tag = front.get("pipeline_tag")
    if not _known(pipeline_tag, PIPELINE_TAGS):
        meant = did_you_mean(pipeline_tag, PIPELINE_TAGS)
        problems.append(f"`pipeline_tag` must be a task of the Hub, got {pipeline_tag!r}.{meant}")
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

    def included(match: re.Match[str]) -> str:
        return resource("model_cards", match[1]).read_text(encoding="utf-8").strip()

    return INCLUDE.sub(included, path.read_text(encoding="utf-8"))


def is_hub_id(name: str | None) -> bool:
    """Whether a name can be a repository of the Hub and is no path that exists here."""
    return name is not None and not os.path.exists(name) and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is not None


def hub_id_of(name: str | None) -> str | None:
    """The repository that a model's name stands for: itself, or that of which a folder is a copy or was made."""
    if name is None or is_hub_id(name):
        return name
    for part in reversed(Path(name).absolute().parts):  # the Hub's cache
        if re.fullmatch(r"models--[\w.-]+", part):
            return part.removeprefix("models--").replace("--", "/", 1)
    try:
        front = (Path(name) / "README.md").read_text(encoding="utf-8").split("\n---")[0]
    except (OSError, ValueError):
        return None
    found = re.search(r"^base_model:\s+([\w./-]+)$", front, re.MULTILINE)
    return found[1] if found and is_hub_id(found[1]) else None


def _widget(card: Mapping[str, Any]) -> list[Any]:
    """Examples for the Hub's widget: what is given, or a general one in a language that is known."""
    if "widget" in card:
        return list(card["widget"])
    language, tag = next((one for one in card["language"] if one in SENTENCES), None), card["pipeline_tag"]
    if language is None or card.get("library_name", "transformers") != "transformers":
        return []
    text, masked, question = SENTENCES[language]
    if tag == "question-answering":
        return [{"text": question, "context": text}]
    if tag == "fill-mask":
        return [{"text": masked.format(mask=card["mask"])}] if card["mask"] else []
    return [{"text": text}] if tag in OF_A_TEXT else []


def _mask_token(folder: Path) -> str | None:
    """The mask of the folder's tokenizer."""
    file = folder / "tokenizer_config.json"
    found = read_json(file).get("mask_token") if file.is_file() else None
    return found.get("content") if isinstance(found, dict) else found


def _versions(library: str) -> list[tuple[str, str]]:
    """What the folder was made with, as far as it is installed."""
    found = []
    for name in (*FRAMEWORKS, *(["peft"] if library == "peft" else [])):
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def _page_of(family: str) -> str:
    """The page of a family, or of every other model."""
    try:
        resource("model_cards", f"{family}.md")
    except FileNotFoundError:
        return "how-to/load"
    return f"families/{family}"


def _page(name: str) -> str:
    """A page of the documentation: a link if the package says where that is, else its place in the source."""
    try:
        urls = dict(url.split(", ", 1) for url in metadata("hf-ptm-ext").get_all("Project-URL") or ())
    except PackageNotFoundError:
        urls = {}
    site = urls.get("Documentation")
    return f"[{name}]({site.rstrip('/')}/{name}/)" if site else f"`docs/{name}.md` in the source of hf-ptm-ext"


def _eval_results(card: Mapping[str, Any]) -> list[Any] | None:
    from huggingface_hub import EvalResult

    data, (name, split) = card["data"], card.get("scored") or ("", "held-out")
    results = [
        EvalResult(
            task_type=card["pipeline_tag"],
            task_name=TASK_NAMES.get(card["pipeline_tag"]),
            dataset_type=str(data.get("hub_id") or "text"),
            dataset_name=str(name or data["name"]),
            dataset_split=split,
            metric_type=metric,
            metric_name=metric.replace("_", " "),
            metric_value=value,
        )
        for metric, value in card["metrics"].items()
        if math.isfinite(value)
    ]
    return results or None


def _results(card: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of results; columns without any value are left out."""
    sources = {
        card.get("before", "before training"): card.get("initial_metrics") or {},
        "value": card["metrics"],
        "baseline": card["baselines"],
    }
    columns = {
        column: {name.removeprefix("eval_"): value for name, value in values.items()}
        for column, values in sources.items()
        if values
    }
    names = dict.fromkeys(name for values in (card["metrics"], *columns.values()) for name in values)
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
