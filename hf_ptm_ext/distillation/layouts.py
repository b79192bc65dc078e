"""Where an encoder keeps what distillation compares: its layers and their query, key and value projections."""

import inspect
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

# Class attribute by which a model of any other kind says where they are: (layers, query, key, value).
CUSTOM_LAYOUT = "_distill_qkv"


@dataclass(frozen=True)
class Layout:
    """Places of modules inside a base model.

    Args:
        layers: path of the list of layers, from the base model.
        query: path of the query projection, from a layer.
        key: path of the key projection, from a layer.
        value: path of the value projection, from a layer.
        shared: whether one module stands for all layers and is called once for each (ALBERT).
    """

    layers: str = "encoder.layer"
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    shared: bool = False


_BERT = Layout()
_BERT_LIKE = (
    "bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "electra", "ernie", "roformer", "splinter",
    "layoutlm", "convbert", "mobilebert", "spanbert", "unilm", "kbert", "knowbert", "nezha", "zen", "ernie_thu",
    "ib_bert",
)  # fmt: skip
LAYOUTS: dict[str, Layout] = {
    **dict.fromkeys(_BERT_LIKE, _BERT),
    "distilbert": Layout("transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "deberta-v2": replace(
        _BERT,
        query="attention.self.query_proj",
        key="attention.self.key_proj",
        value="attention.self.value_proj",
    ),
    "mpnet": replace(_BERT, query="attention.attn.q", key="attention.attn.k", value="attention.attn.v"),
    "albert": Layout(
        "encoder.albert_layer_groups.0.albert_layers", "attention.query", "attention.key", "attention.value", True
    ),
}


def plain_model(model: Any) -> Any:
    """The model inside a PEFT wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def base_model(model: nn.Module) -> Any:
    """The encoder below a model's head."""
    plain = plain_model(model)
    return getattr(plain, getattr(plain, "base_model_prefix", "") or "", plain)


def layout_of(model: nn.Module) -> Layout:
    """Look up where a model keeps its layers and projections."""
    for candidate in (plain_model(model), base_model(model)):
        custom = getattr(type(candidate), CUSTOM_LAYOUT, None)
        if custom is not None:
            if len(custom) != 4:
                raise ValueError(
                    f"`{CUSTOM_LAYOUT}` of {type(candidate).__name__} must be four paths (layers, query, key, value), "
                    f"got {custom!r}."
                )
            return Layout(*custom)
    config = plain_model(model).config
    model_type = getattr(config, "model_type", None)
    if model_type not in LAYOUTS:
        raise ValueError(
            f"`model_type` {model_type!r} is none whose query, key and value projections are known: "
            f"{', '.join(sorted(LAYOUTS))}. Give {type(plain_model(model)).__name__} a class attribute "
            f"`{CUSTOM_LAYOUT}` = (path of the layers, of query, of key, of value), such as "
            f"{(_BERT.layers, _BERT.query, _BERT.key, _BERT.value)}."
        )
    groups = getattr(config, "num_hidden_groups", None)
    if groups is None:
        return LAYOUTS[model_type]
    if (groups, config.inner_group_num) != (1, 1):
        raise ValueError(
            "`num_hidden_groups` and `inner_group_num` must be 1 to distil shared layers one by one, got "
            f"{groups} and {config.inner_group_num}."
        )
    return replace(LAYOUTS[model_type], shared=True)


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that objectives must agree on; `name` is its class, for messages."""

    name: str
    model: Any

    @classmethod
    def of(cls, model: nn.Module) -> "ModelShape":
        """Describe a model."""
        plain = plain_model(model)
        if not hasattr(plain, "config") or not isinstance(plain, nn.Module):
            raise TypeError(f"`student` and `teacher` must be models of transformers, got {type(model).__name__}.")
        return cls(type(plain).__name__, plain)

    @property
    def config(self) -> Any:
        """The configuration."""
        return self.model.config

    def _size(self, name: str) -> int:
        value = getattr(self.config, name, None)
        if value is None:
            raise ValueError(f"{self.name} has no `{name}` in its config, so it cannot be distilled layer by layer.")
        return int(value)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self._size("num_hidden_layers")

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return self._size("hidden_size")

    @property
    def heads(self) -> int:
        """Number of attention heads."""
        return self._size("num_attention_heads")

    def projection_width(self, kind: str, layer: int) -> int:
        """Width of what a projection gives."""
        return int(projection(self.model, kind, layer).weight.shape[0])

    @property
    def is_regression(self) -> bool:
        """Whether the head gives one number per row rather than classes."""
        return getattr(self.config, "problem_type", None) == "regression" or (
            "SequenceClassification" in self.name and self.config.num_labels == 1
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that its forward declares."""
        parameters = inspect.signature(self.model.forward).parameters.values()
        return tuple(p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))


def layer_module(model: nn.Module, layer: int) -> nn.Module:
    """The module of one layer."""
    layout = layout_of(model)
    layers = base_model(model).get_submodule(layout.layers)
    return layers[0 if layout.shared else layer]


def projection(model: nn.Module, kind: str, layer: int) -> Any:
    """The query, key or value projection of one layer."""
    return layer_module(model, layer).get_submodule(getattr(layout_of(model), kind))
