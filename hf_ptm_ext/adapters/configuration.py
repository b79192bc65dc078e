"""Configurations of bottleneck adapters, as PEFT's other methods have them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from peft import PeftConfig
from peft.utils import PeftType

from ..models.bottleneck_core import INIT_WEIGHTS, SCALINGS, activation
from ..version import __version__

REQUIRES = "import hf_ptm_ext"


def add_peft_type(name: str) -> Any:
    """The member of `PeftType` with this name, added: the enumeration is closed to methods from outside."""
    if name in PeftType.__members__:
        return PeftType[name]
    types: Any = PeftType
    member: Any = str.__new__(PeftType, name)
    member._name_ = name
    member._value_ = name
    member._sort_order_ = len(PeftType.__members__)
    member.__objclass__ = PeftType
    PeftType._member_names_.append(name)
    PeftType._member_map_[name] = member
    PeftType._value2member_map_[name] = member
    if hasattr(types, "_hashable_values_"):  # Python 3.13: what `in` looks through
        types._hashable_values_.append(name)
    type.__setattr__(PeftType, name, member)
    return member


HOULSBY = add_peft_type("HOULSBY")
PFEIFFER = add_peft_type("PFEIFFER")


@dataclass
class BottleneckConfig(PeftConfig):
    """What Houlsby and Pfeiffer adapters share.

    Args:
        task_type: PEFT's name of the task, such as `"SEQ_CLS"`. Heads whose weights are new are trained and saved
            with or without it.
        target_modules: where adapters go: a regular expression of whole module names, or endings of names (default:
            by `model_type`, see `adapters.placements`, or the model's own `_peft_houlsby_target_modules` or
            `_peft_pfeiffer_target_modules`).
        exclude_modules: modules that are no targets after all, given in the same way.
        modules_to_save: further modules that are trained as a copy and saved whole.
        reduction_factor: the bottleneck is the hidden size divided by this, rounded down, at least 1 (default 16, as
            in the `adapters` library); also layer number -> factor, with one for `"default"`.
        bottleneck_size: width of the bottleneck, whatever the hidden size (the paper's is 64).
        non_linearity: between the projections; `"gelu"`, `"swish"`, `"relu"` or another one of transformers.
        scaling: factor of the adapter's output (default 1), or `"learned"` or `"channel"`.
        dropout: of the adapter's output (default 0).
        ln_before: LayerNorm of its own in front of the down-projection (default none).
        ln_after: LayerNorm of its own behind the up-projection (default none).
        leave_out: numbers of the layers without adapters, from 0; a decoder's layers count on from its encoder's.
        init_weights: `"identity"` (default) draws the down-projection from a truncated normal and sets the
            up-projection to 0, so that the model starts as exactly what it was; `"truncated_normal"` draws both
            (google-research/adapter-bert); `"bert"` draws both from N(0, 0.02) (the `adapters` library).
        init_std: standard deviation of the truncated normal, cut at two of them (default 1e-3, adapter-bert).
        train_layer_norms: whether copies of all LayerNorms are trained and saved too.
        id2label: number -> name of the classes of the head that is trained beside (default: the model's, if they have
            names of their own); a model with as many nameless classes gets them when the adapter is loaded.
        requires: what a process must do before it loads the adapter; informative, for readers of the file.
        hf_ptm_ext_version: version that wrote the file.
    """

    target_modules: list[str] | str | None = field(default=None)
    exclude_modules: list[str] | str | None = field(default=None)
    modules_to_save: list[str] | None = field(default=None)
    reduction_factor: float | dict[str, float] = field(default=16)
    bottleneck_size: int | None = field(default=None)
    non_linearity: str = field(default="gelu")
    scaling: float | str = field(default=1.0)
    dropout: float = field(default=0.0)
    ln_before: bool = field(default=False)
    ln_after: bool = field(default=False)
    leave_out: list[int] = field(default_factory=list)
    init_weights: str = field(default="identity")
    init_std: float = field(default=1e-3)
    train_layer_norms: bool = field(default=False)
    id2label: dict[str, str] | None = field(default=None)
    requires: str = field(default=REQUIRES)
    hf_ptm_ext_version: str = field(default=__version__)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("target_modules", "exclude_modules"):
            if isinstance(getattr(self, name), list | tuple):
                setattr(self, name, set(getattr(self, name)))  # what PEFT expects
        self.leave_out = sorted(set(self.leave_out))
        self.requires, self.hf_ptm_ext_version = REQUIRES, __version__
        self._check_sizes()
        activation(self.non_linearity)
        if not (self.scaling in SCALINGS if isinstance(self.scaling, str) else _is_number(self.scaling)):
            raise ValueError(f"`scaling` must be a number or one of {', '.join(SCALINGS)}, got {self.scaling!r}.")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"`dropout` must be at least 0 and below 1, got {self.dropout}.")
        if self.init_weights not in INIT_WEIGHTS:
            raise ValueError(f"`init_weights` must be one of {', '.join(INIT_WEIGHTS)}, got {self.init_weights!r}.")
        if not self.init_std > 0:
            raise ValueError(f"`init_std` must be positive, got {self.init_std}.")
        if any(not isinstance(number, int) or number < 0 for number in self.leave_out):
            raise ValueError(f"`leave_out` must be numbers of layers, from 0, got {self.leave_out}.")

    def _check_sizes(self) -> None:
        factors = self.reduction_factor
        for factor in factors.values() if isinstance(factors, Mapping) else [factors]:
            if not _is_number(factor) or factor <= 0:
                raise ValueError(f"`reduction_factor` must be positive, got {factors!r}.")
        size = self.bottleneck_size
        if size is not None and (type(size) is not int or size < 1):
            raise ValueError(f"`bottleneck_size` must be a positive integer, got {size!r}.")

    def size_in_layer(self, hidden_size: int, layer: int) -> int:
        """Width of the bottleneck in one layer."""
        if self.bottleneck_size is not None:
            return self.bottleneck_size
        factor: Any = self.reduction_factor
        if isinstance(factor, Mapping):
            factor = factor.get(str(layer), factor.get("default"))
            if factor is None:
                raise ValueError(
                    f"`reduction_factor` must have an entry for layer {layer} or for `default`, got "
                    f"{self.reduction_factor}."
                )
        return max(int(hidden_size // factor), 1)


@dataclass
class HoulsbyConfig(BottleneckConfig):
    """Two adapters in each layer, behind attention and behind the feed-forward part; LayerNorms are trained too.

        out = LayerNorm(h + A(h) + x),      h = dropout(dense(...)), x the sub-layer's input

    Houlsby et al. 2019, "Parameter-Efficient Transfer Learning for NLP" (arXiv:1902.00751), placed as in
    google-research/adapter-bert. The `adapters` library calls it DoubleSeqBn (`DoubleSeqBnConfig`), with swish, and
    does not train the LayerNorms.

    Args:
        train_layer_norms: whether copies of all LayerNorms are trained and saved too (default True, as in the paper).

    See `BottleneckConfig` for the others.

    Examples:
        >>> from peft import get_peft_model
        >>> from transformers import BertConfig, BertModel
        >>> sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
        >>> model = get_peft_model(BertModel(BertConfig(**sizes)), HoulsbyConfig(train_layer_norms=False))
        >>> model.get_nb_trainable_parameters()[0] == 2 * 2 * (2 * 32 * 2 + 2 + 32)
        True
    """

    train_layer_norms: bool = field(default=True)

    def __post_init__(self) -> None:
        self.peft_type = HOULSBY
        super().__post_init__()


@dataclass
class PfeifferConfig(BottleneckConfig):
    """One adapter in each layer, behind the feed-forward part, between two passes through its LayerNorm.

        z = LayerNorm(h + x),   out = LayerNorm(A(z) + h + x)      the same LayerNorm twice

    In a layer whose LayerNorms stand in front (T5): `out = A(h + x) + h + x`. Pfeiffer et al. 2021, "AdapterFusion:
    Non-Destructive Task Composition for Transfer Learning" (arXiv:2005.00247); SeqBn (`SeqBnConfig`) in the `adapters`
    library.

    Args:
        non_linearity: between the projections (default `"relu"`, the `adapters` library).

    See `BottleneckConfig` for the others.

    Examples:
        >>> PfeifferConfig(reduction_factor=4).size_in_layer(32, 0)
        8
    """

    non_linearity: str = field(default="relu")

    def __post_init__(self) -> None:
        self.peft_type = PFEIFFER
        super().__post_init__()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
