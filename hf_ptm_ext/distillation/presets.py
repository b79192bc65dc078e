"""Published distillation recipes as lists of objectives.

| preset | system | terms |
| --- | --- | --- |
| distilbert | DistilBERT (Sanh et al. 2019), before fine-tuning | 5 soft labels (T=2) + 2 masked LM + 1 cosine |
| tinybert-general | TinyBERT (Jiao et al. 2020), stage 1, no masked LM | attention scores + hidden states |
| tinybert-intermediate | the same on the task, teacher fine-tuned | attention scores + hidden states |
| tinybert-prediction | TinyBERT, the task's last stage | soft labels; the labels if the task is a regression |
| pkd | Patient KD (Sun et al. 2019) | (1-a) labels + a soft labels (T=10) + b patience of [CLS] states |
| mobilebert | MobileBERT (Sun et al. 2020), layer by layer | feature maps + attention + means + variances |
| minilm | MiniLM (Wang et al. 2020) | attention + value relation of the last layer; no masked LM |
| minilm-v2 | MiniLM v2 (Wang et al. 2021) | query, key and value relations; no masked LM |
| dualtrain | mixed vocabularies (Zhao et al. 2019) | not a list: `DualTrainModel` |
| bilstm | Distilled BiLSTM (Tang et al. 2019) | squared distance of logits |
| ensemble | MT-DNN's ensemble distillation (Liu et al. 2019) | labels + soft labels of several teachers' mean |
| soft-labels | Hinton et al. 2015 | (1-a) labels + a soft labels (T=2) |
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .layer_maps import Layers
from .layouts import ModelShape
from .registry import check_known

Objectives = list[dict[str, Any]]
# Soft labels of a regression: the squared distance of the outputs as they are, which no temperature divides.
DISTANCE: dict[str, Any] = {"kind": "logit_mse"}


def distilbert(
    student: ModelShape,
    *,
    temperature: float = 2.0,
    soft_label_weight: float = 5.0,
    label_weight: float = 2.0,
    cosine_weight: float = 1.0,
    positions: str = "tokens",
) -> Objectives:
    """DistilBERT's loss; defaults are those of the published recipe."""
    soft = {"kind": "hinton_kl", "temperature": temperature, "positions": positions, "weight": soft_label_weight}
    return [
        {"objective": "soft_labels", **soft},
        {"objective": "labels", "weight": label_weight},
        {"objective": "cosine", "weight": cosine_weight},
    ]


def tinybert_layers(student: ModelShape, *, layers: Layers = "uniform", projection: str = "auto") -> Objectives:
    """TinyBERT's attention and hidden-state losses, weight 1 each, the embeddings among the states."""
    return [
        {"objective": "attention_scores", "layers": layers},
        {"objective": "hidden", "layers": layers, "projection": projection},
    ]


def tinybert_prediction(student: ModelShape, *, temperature: float = 1.0) -> Objectives:
    """TinyBERT's prediction loss: soft cross entropy, or for a regression the labels without the teacher."""
    if student.is_regression:
        return [{"objective": "labels"}]
    return [{"objective": "soft_labels", "kind": "tinybert_soft_ce", "temperature": temperature}]


def pkd(
    student: ModelShape,
    *,
    alpha: float = 0.7,
    beta: float = 500.0,
    temperature: float = 10.0,
    layers: Layers = "skip",
    normalize: bool = True,
) -> Objectives:
    """Patient knowledge distillation."""
    soft = DISTANCE if student.is_regression else {"kind": "pkd_kl", "temperature": temperature}
    return [
        {"objective": "labels", "weight": 1 - alpha},
        {"objective": "soft_labels", **soft, "weight": alpha},
        {"objective": "patience", "layers": layers, "normalize": normalize, "weight": beta},
    ]


def mobilebert(
    student: ModelShape,
    *,
    feature_map_weight: float = 100.0,
    attention_weight: float = 1.0,
    mean_weight: float = 5000.0,
    variance_weight: float = 5.0,
) -> Objectives:
    """MobileBERT's knowledge transfer, layer by layer (see `hf_ptm_ext.distillation.progressive`)."""
    return [
        {"objective": "feature_map", "weight": feature_map_weight},
        {"objective": "attention_cross_entropy", "weight": attention_weight},
        {"objective": "hidden_mean", "weight": mean_weight},
        {"objective": "hidden_variance", "weight": variance_weight},
    ]


def minilm(student: ModelShape, *, layers: Layers = "final", reduction: str = "sequence_mean") -> Objectives:
    """MiniLM: attention and value relation of the last layer."""
    return [
        {"objective": "attention_divergence", "layers": layers, "reduction": reduction},
        {"objective": "value_relation", "layers": layers, "reduction": reduction},
    ]


def minilm_v2(
    student: ModelShape,
    *,
    relation_heads: int | None = None,
    layers: Layers | None = None,
    relations: Any = ("qq", "kk", "vv"),
    reduction: str = "sequence_mean",
) -> Objectives:
    """MiniLM v2: self-attention relations of one layer."""
    options = {"relation_heads": relation_heads, "layers": layers, "relations": relations, "reduction": reduction}
    return [{"objective": "relations", **options}]


def bilstm(student: ModelShape, *, alpha: float = 1.0) -> Objectives:
    """Distilled BiLSTM: squared distance of logits."""
    return [
        {"objective": "labels", "weight": 1 - alpha},
        {"objective": "soft_labels", "kind": "logit_mse", "weight": alpha},
    ]


def ensemble(student: ModelShape, *, soft_label_weight: float = 1.0, label_weight: float = 1.0) -> Objectives:
    """MT-DNN's distillation from an ensemble; for a regression the distance of outputs."""
    kind = "logit_mse" if student.is_regression else "mtdnn_kl"
    return [
        {"objective": "labels", "weight": label_weight},
        {"objective": "soft_labels", "kind": kind, "weight": soft_label_weight},
    ]


def soft_labels(
    student: ModelShape, *, alpha: float = 0.5, temperature: float = 2.0, kind: str | None = None
) -> Objectives:
    """Hinton's distillation."""
    soft: dict[str, Any] = {"kind": "hinton_kl" if kind is None else kind, "temperature": temperature}
    if kind is None and student.is_regression:
        soft = DISTANCE
    return [
        {"objective": "labels", "weight": 1 - alpha},
        {"objective": "soft_labels", **soft, "weight": alpha},
    ]


PRESETS: dict[str, Callable[..., Objectives]] = {
    "distilbert": distilbert,
    "tinybert-general": tinybert_layers,
    "tinybert-intermediate": tinybert_layers,
    "tinybert-prediction": tinybert_prediction,
    "pkd": pkd,
    "mobilebert": mobilebert,
    "minilm": minilm,
    "minilm-v2": minilm_v2,
    "bilstm": bilstm,
    "ensemble": ensemble,
    "soft-labels": soft_labels,
}
# Trains the teacher too: a module of its own instead of a list of objectives.
DUALTRAIN = "dualtrain"
PRESET_NAMES = (*PRESETS, DUALTRAIN)
# Presets that train one layer after the other.
PROGRESSIVE = ("mobilebert",)


def weighted_objectives(preset: str, student: Any, options: Mapping[str, Any]) -> Objectives:
    """The objectives of a preset for a model of this shape, those of weight 0 aside."""
    alpha = options.get("alpha", 0.0)
    if not 0 <= alpha <= 1:
        raise ValueError(f"`alpha` must be between 0 and 1, got {alpha}.")
    return [each for each in PRESETS[preset](student, **options) if each.get("weight", 1.0)]


def preset_objectives(preset: str, student: Any, **options: Any) -> Objectives:
    """The objectives of a preset.

    Args:
        preset: its name, see the module.
        student: the student model.
        options: its options, such as `temperature`.

    Returns:
        A list as `build_terms` takes it, without objectives of weight 0.

    Raises:
        ValueError: an unknown preset or option.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(
        ...     vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> preset_objectives("tinybert-general", BertModel(config))[0]
        {'objective': 'attention_scores', 'layers': 'uniform'}
    """
    if preset == DUALTRAIN:
        raise ValueError(f"Preset {preset} is no list of objectives: build a `DualTrainModel`, or use the Trainer.")
    check_known("preset", preset, PRESET_NAMES)
    known = [name for name in inspect.signature(PRESETS[preset]).parameters if name != "student"]
    for option in options:
        check_known(f"option of preset {preset}", option, known)
    return weighted_objectives(preset, ModelShape.of(student), options)
