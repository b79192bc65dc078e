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
from collections.abc import Callable
from typing import Any

from .layer_maps import Layers
from .layouts import ModelShape
from .registry import unknown_name

Objectives = list[dict[str, Any]]
# Soft labels of a regression: the squared distance of the outputs as they are, which no temperature divides.
DISTANCE: dict[str, Any] = {"kind": "logit_mse"}


def _mixed(alpha: float, objectives: Objectives) -> Objectives:
    """Refuse a share outside 0..1, and leave out what has weight 0."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"`alpha` must be between 0 and 1, got {alpha}.")
    return [each for each in objectives if each["weight"]]


def distilbert(
    student: ModelShape,
    *,
    temperature: float = 2.0,
    soft_label_weight: float = 5.0,
    label_weight: float = 2.0,
    cosine_weight: float = 1.0,
    positions: str = "tokens",
) -> Objectives:
    """DistilBERT's loss; defaults are those of the published recipe.

    Args:
        student: the student, of the teacher's width.
        temperature: of the soft labels.
        soft_label_weight: reference: alpha_ce.
        label_weight: reference: alpha_mlm.
        cosine_weight: reference: alpha_cos.
        positions: tokens (all that are not padding) or labels (reference: restrict_ce_to_mask).
    """
    soft = {"kind": "hinton_kl", "temperature": temperature, "positions": positions, "weight": soft_label_weight}
    objectives = [
        {"objective": "soft_labels", **soft},
        {"objective": "labels", "weight": label_weight},
        {"objective": "cosine", "weight": cosine_weight},
    ]
    return [each for each in objectives if each["weight"]]


def tinybert_layers(student: ModelShape, *, layers: Layers = "uniform", projection: str = "auto") -> Objectives:
    """TinyBERT's attention and hidden-state losses, weight 1 each, the embeddings among the states.

    Args:
        student: the student, with the teacher's number of heads.
        layers: `uniform`; for other maps compose the objectives.
        projection: see `HiddenTerm`; the released code's is `shared`, also on a copied student, whose states it
            disturbs.
    """
    return [
        {"objective": "attention_scores", "layers": layers},
        {"objective": "hidden", "layers": layers, "projection": projection},
    ]


def tinybert_prediction(student: ModelShape, *, temperature: float = 1.0) -> Objectives:
    """TinyBERT's prediction loss: soft cross entropy, or for a regression the labels without the teacher.

    Args:
        student: the student.
        temperature: divides the logits; the loss is not multiplied by its square.
    """
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
    """Patient knowledge distillation.

    Args:
        student: the student, of the teacher's width.
        alpha: share of the soft labels (searched: 0.2, 0.5, 0.7).
        beta: weight of the patience term (searched: 10, 100, 500, 1000).
        temperature: of the soft labels (searched: 5, 10, 20); a regression has none.
        layers: skip or last, see `hidden_map`.
        normalize: whether the states are brought to unit length.
    """
    soft = DISTANCE if student.is_regression else {"kind": "pkd_kl", "temperature": temperature}
    objectives: Objectives = [
        {"objective": "labels", "weight": 1 - alpha},
        {"objective": "soft_labels", **soft, "weight": alpha},
        {"objective": "patience", "layers": layers, "normalize": normalize, "weight": beta},
    ]
    return _mixed(alpha, objectives)


def mobilebert(
    student: ModelShape,
    *,
    feature_map_weight: float = 100.0,
    attention_weight: float = 1.0,
    mean_weight: float = 5000.0,
    variance_weight: float = 5.0,
) -> Objectives:
    """MobileBERT's knowledge transfer, layer by layer (see `hf_ptm_ext.distillation.progressive`).

    Args:
        student: the student, with the teacher's number of layers, width and heads.
        feature_map_weight: reference: hidden_distill_factor.
        attention_weight: reference: attention_distill_factor.
        mean_weight: reference: beta_distill_factor; 0 leaves the term out.
        variance_weight: reference: gamma_distill_factor; 0 leaves the term out.
    """
    objectives = [
        {"objective": "feature_map", "weight": feature_map_weight},
        {"objective": "attention_cross_entropy", "weight": attention_weight},
        {"objective": "hidden_mean", "weight": mean_weight},
        {"objective": "hidden_variance", "weight": variance_weight},
    ]
    return [each for each in objectives if each["weight"]]


def minilm(student: ModelShape, *, layers: Layers = "final", reduction: str = "sequence_mean") -> Objectives:
    """MiniLM: attention and value relation of the last layer.

    Args:
        student: the student, with the teacher's number of heads.
        layers: see `attention_map`.
        reduction: sequence_mean (the paper) or token_mean.
    """
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
    """MiniLM v2: self-attention relations of one layer.

    Args:
        student: the student.
        relation_heads: see `RelationTerm`.
        layers: see `RelationTerm`.
        relations: see `RelationTerm`.
        reduction: sequence_mean (the paper) or token_mean.
    """
    options = {"relation_heads": relation_heads, "layers": layers, "relations": relations, "reduction": reduction}
    return [{"objective": "relations", **options}]


def bilstm(student: ModelShape, *, alpha: float = 1.0) -> Objectives:
    """Distilled BiLSTM: squared distance of logits.

    Args:
        student: the student.
        alpha: share of the distance, the rest being the labels' (the paper's best: all of it).
    """
    objectives = [
        {"objective": "labels", "weight": 1 - alpha},
        {"objective": "soft_labels", "kind": "logit_mse", "weight": alpha},
    ]
    return _mixed(alpha, objectives)


def ensemble(student: ModelShape, *, soft_label_weight: float = 1.0, label_weight: float = 1.0) -> Objectives:
    """MT-DNN's distillation from an ensemble; for a regression the distance of outputs.

    Args:
        student: the student.
        soft_label_weight: weight of the mean teacher's predictions.
        label_weight: weight of the labels.
    """
    kind = "logit_mse" if student.is_regression else "mtdnn_kl"
    objectives = [
        {"objective": "labels", "weight": label_weight},
        {"objective": "soft_labels", "kind": kind, "weight": soft_label_weight},
    ]
    return [each for each in objectives if each["weight"]]


def soft_labels(
    student: ModelShape, *, alpha: float = 0.5, temperature: float = 2.0, kind: str | None = None
) -> Objectives:
    """Hinton's distillation.

    Args:
        student: the student.
        alpha: share of the soft labels, the rest being the labels'.
        temperature: of the soft labels.
        kind: formula (default: hinton_kl, for a regression logit_mse).
    """
    soft: dict[str, Any] = {"kind": "hinton_kl" if kind is None else kind, "temperature": temperature}
    if kind is None and student.is_regression:
        soft = DISTANCE
    objectives = [
        {"objective": "labels", "weight": 1 - alpha},
        {"objective": "soft_labels", **soft, "weight": alpha},
    ]
    return _mixed(alpha, objectives)


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


def preset_objectives(preset: str, student: Any, **options: Any) -> Objectives:
    """The objectives of a preset.

    Args:
        preset: its name, see the module.
        student: the student model.
        options: its options, such as `temperature`.

    Returns:
        A list as `build_terms` takes it.

    Raises:
        ValueError: an unknown preset or option.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(
        ...     vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> preset_objectives("tinybert-general", BertModel(config))[0]
        {'objective': 'attention_scores', 'layers': 'uniform'}
    """
    if preset == DUALTRAIN:
        raise ValueError("Preset dualtrain is no list of objectives: build a `DualTrainModel`, or use the Trainer.")
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESET_NAMES)
    known = [name for name in inspect.signature(PRESETS[preset]).parameters if name != "student"]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of preset {preset}", option, known)
    return PRESETS[preset](ModelShape.of(student), **options)


__all__ = ["DUALTRAIN", "PRESETS", "PRESET_NAMES", "PROGRESSIVE", "preset_objectives"]
