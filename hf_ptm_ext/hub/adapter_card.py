"""Cards of repositories that hold an adapter alone: which model it belongs on, and what to import to load it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import read_json
from .model_card import is_hub_id, write_model_card

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE_PLACEHOLDER = "BASE_MODEL"
BARE_MODEL = "AutoModel"
OURS = ("houlsby", "pfeiffer")  # methods that PEFT has from this package
# Options of an adapter that the card shows.
SHOWN = ("reduction_factor", "bottleneck_size", "non_linearity", "scaling", "leave_out", "train_layer_norms", "r")
# PEFT's name of a task -> (auto class of the model, task of the Hub)
TASKS = {
    "SEQ_CLS": ("AutoModelForSequenceClassification", "text-classification"),
    "TOKEN_CLS": ("AutoModelForTokenClassification", "token-classification"),
    "QUESTION_ANS": ("AutoModelForQuestionAnswering", "question-answering"),
    "SEQ_2_SEQ_LM": ("AutoModelForSeq2SeqLM", "text-generation"),
    "CAUSAL_LM": ("AutoModelForCausalLM", "text-generation"),
    "FEATURE_EXTRACTION": ("AutoModel", "feature-extraction"),
}


def write_adapter_card(
    folder: str | Path,
    *,
    family: str,
    metrics: Mapping[str, float] | None = None,
    baselines: Mapping[str, float] | None = None,
    training: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    language: str | Sequence[str] = "und",
    license: str = "unknown",
    auto_class: str | None = None,
    pipeline_tag: str | None = None,
    labels: Sequence[str] = (),
    base_parameters: int | None = None,
    **fields: Any,
) -> Path:
    """Write `README.md` into the folder of an adapter.

    Args:
        folder: has `adapter_config.json` and `adapter_model.safetensors`.
        family: `model_type` of the model that it belongs on.
        metrics: as `write_model_card` (default none).
        baselines: as `write_model_card` (default none).
        training: as `write_model_card` (default none).
        data: as `write_model_card` (default: not recorded).
        language: language codes of the training text (default: undetermined).
        license: licence of the adapter, as the Hub spells it (default unknown).
        auto_class: class that loads the base model (default: by the adapter's task).
        pipeline_tag: task of the Hub's widget (default: by the adapter's task).
        labels: names of the classes of a head that is in the adapter.
        base_parameters: size of the base model, for the share that was trained.
        fields: further ones of `write_model_card`.

    Returns:
        The file that was written.

    Raises:
        FileNotFoundError: there is no adapter in the folder.
        ValueError: see `write_model_card`.

    Example:
        >>> import json, tempfile, torch
        >>> from safetensors.torch import save_file
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     config = {"peft_type": "HOULSBY", "task_type": "SEQ_CLS", "base_model_name_or_path": "user/encoder"}
        ...     _ = (Path(folder) / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
        ...     save_file({"weight": torch.ones(3, 2)}, f"{folder}/adapter_model.safetensors")
        ...     card = write_adapter_card(folder, family="bert").read_text(encoding="utf-8")
        >>> "import hf_ptm_ext" in card, "6 weights" in card
        (True, True)
    """
    folder = Path(folder)
    if not (folder / ADAPTER_CONFIG).is_file():
        raise FileNotFoundError(f"`folder` must hold an adapter, got {folder} without {ADAPTER_CONFIG}.")
    config = read_json(folder / ADAPTER_CONFIG)
    method = str(config.get("peft_type", "")).lower()
    base = config.get("base_model_name_or_path")
    auto_class = auto_class or TASKS.get(config.get("task_type") or "", (BARE_MODEL, ""))[0]
    tags = dict(reversed(TASKS.values()))
    shown = {name: config[name] for name in SHOWN if config.get(name) not in (None, [], {})}
    return write_model_card(
        folder,
        family=family,
        metrics=metrics or {},
        baselines=baselines or {},
        training={"method": method, **shown, **(training or {})},
        data=data or {"name": "not recorded", "license": "unknown"},
        language=language,
        license=license,
        base_model=base,
        pipeline_tag=pipeline_tag or tags.get(auto_class, "feature-extraction"),
        template="adapter",
        library_name="peft",
        tags=["adapter", method],
        description=fields.pop("description", None) or f"A {method} adapter for a `{family}` model.",
        values={
            "method": method,
            "base": base if is_hub_id(base) else BASE_PLACEHOLDER,
            "base_class": auto_class,
            "ours": method in OURS,
            "base_options": f", num_labels={len(labels)}, id2label={dict(enumerate(labels))}" if labels else "",
            "weights": _count(folder / ADAPTER_WEIGHTS),
            "share": _share(folder / ADAPTER_WEIGHTS, base_parameters),
        },
        **fields,
    )


def _numel(weights: Path) -> int:
    from safetensors import safe_open

    if not weights.is_file():
        return 0
    total = 0
    with safe_open(weights, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (it is no mapping)
            size = 1
            for length in file.get_slice(name).get_shape():
                size *= length
            total += size
    return total


def _count(weights: Path) -> str:
    return f"{_numel(weights):,}"


def _share(weights: Path, base_parameters: int | None) -> str:
    return f" ({100 * _numel(weights) / base_parameters:.2f} % of the model's)" if base_parameters else ""


__all__ = ["write_adapter_card"]
