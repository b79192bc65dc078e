"""Cards of repositories that hold an adapter alone: which model it belongs on, and what to import to load it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import read_json
from .model_card import AUTO_CLASSES, hub_id_of, write_model_card

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE_PLACEHOLDER = "BASE_MODEL"
OURS = ("houlsby", "pfeiffer")  # methods that PEFT has from this package
# Options of an adapter that the card shows.
SHOWN = ("reduction_factor", "bottleneck_size", "non_linearity", "scaling", "leave_out", "train_layer_norms", "r")
# PEFT's name of a task -> auto class of the model
TASKS = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "CAUSAL_LM": "AutoModelForCausalLM",
}
# Auto class -> task of the Hub
PIPELINE_TAGS = {auto_class: tag for tag, auto_class in AUTO_CLASSES.items()} | {
    "AutoModelForCausalLM": "text-generation"
}


def write_adapter_card(
    folder: str | Path,
    *,
    family: str,
    training: Mapping[str, Any] | None = None,
    auto_class: str | None = None,
    labels: Sequence[str] = (),
    base_parameters: int | None = None,
    **fields: Any,
) -> Path:
    """Write `README.md` into the folder of an adapter.

    Args:
        folder: has `adapter_config.json` and `adapter_model.safetensors`.
        family: `model_type` of the model that it belongs on.
        training: hyper-parameters, shown behind the method and its options.
        auto_class: class that loads the base model (default: by the adapter's task).
        labels: names of the classes of a head that is in the adapter.
        base_parameters: size of the base model, for the share that was trained.
        fields: the others of `write_model_card`; what it needs has a default here: no metrics or baselines, unrecorded
            data, an undetermined language, an unknown licence, the pipeline tag of the auto class.

    Returns:
        The file that was written.

    Raises:
        FileNotFoundError: there is no adapter in the folder.
        ValueError: see `write_model_card`.

    Examples:
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
    auto_class = auto_class or TASKS.get(config.get("task_type") or "", "AutoModel")
    shown = {name: config[name] for name in SHOWN if config.get(name) not in (None, [], {})}
    weights = _weights(folder / ADAPTER_WEIGHTS)
    defaults = {
        "metrics": {},
        "baselines": {},
        "data": {"name": "not recorded", "license": "unknown"},
        "language": "und",
        "license": "unknown",
        "pipeline_tag": PIPELINE_TAGS.get(auto_class, "feature-extraction"),
        "page": "how-to/adapters",
        "description": f"A {method} adapter for a `{family}` model.",
    }
    return write_model_card(
        folder,
        family=family,
        training={"method": method, **shown, **(training or {})},
        base_model=base,
        template="adapter",
        library_name="peft",
        tags=["adapter", method],
        values={
            "method": method,
            "base": hub_id_of(base) or BASE_PLACEHOLDER,
            "base_class": auto_class,
            "ours": method in OURS,
            "base_options": f", num_labels={len(labels)}, id2label={dict(enumerate(labels))}" if labels else "",
            "weights": f"{weights:,}",
            "share": f" ({100 * weights / base_parameters:.2f} % of the model's)" if base_parameters else "",
        },
        **{**defaults, **{name: value for name, value in fields.items() if value is not None}},
    )


def _weights(file: Path) -> int:
    from safetensors import safe_open

    if not file.is_file():
        return 0
    with safe_open(file, "pt") as opened:
        return sum(math.prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
