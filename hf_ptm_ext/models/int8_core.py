"""Integer inference of Q8BERT (Zafrir et al. 2019, https://arxiv.org/abs/1910.06188; IntelLabs/nlp-architect).

Symmetric, without zero points: with M = 127 and thresholds t,

    q(x, t) = clamp(round(x M / t), -M, M),      y = (q(x, t_x) q(W, t_W)^T + round(b s)) / s,   s = M / t_x * M / t_W

On the CPU the product is one of int8 by oneDNN's kernel in torch; elsewhere, and in compiled graphs, of the same whole
numbers in floating point. `WithInt8` is a model with such modules, as `save_int8` writes it: this file goes along.
"""

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel
else:
    PreTrainedModel = object

# The configuration's field of a model with such modules: name of a module -> its options.
FIELD = "int8"
LEVELS = 127
PART = 1 << 17  # numbers that are rounded together
TINY = 1e-12  # of a threshold: all zeros stay zeros


def scale_of(threshold: torch.Tensor, levels: int = LEVELS) -> torch.Tensor:
    """What numbers are multiplied by before they are rounded."""
    return levels / threshold.clamp(min=TINY)


def to_whole(values: torch.Tensor, scale: torch.Tensor, levels: int = LEVELS) -> torch.Tensor:
    """Whole numbers, as floating-point ones."""
    return torch.mul(values, scale).round_().clamp_(-levels, levels)


class _Scratch(threading.local):
    """Memory of a thread in which inputs are rounded, kept from call to call: fresh pages cost more than the sums."""

    def __init__(self) -> None:
        with torch.inference_mode(False):
            self.part, self.memory = torch.empty(PART), torch.empty(0, dtype=torch.int8)

    def whole(self, values: torch.Tensor, scale: float) -> torch.Tensor:
        """Whole numbers of 8 bits, valid until the next call; made in parts that stay in the cache."""
        size, flat = values.numel(), values.reshape(-1)
        if self.memory.numel() < size:
            with torch.inference_mode(False):
                self.memory = torch.empty(size, dtype=torch.int8)
        for first in range(0, size, PART):
            part = self.part[: min(PART, size - first)]
            torch.mul(flat[first : first + PART], scale, out=part)
            self.memory[first : first + len(part)].copy_(part.round_().clamp_(-LEVELS, LEVELS))
        return self.memory[:size].view(values.shape)


_SCRATCH = _Scratch()


def has_kernel(states: torch.Tensor) -> bool:
    """Whether the product is one of int8."""
    on_cpu = states.device.type == "cpu" and states.dtype == torch.float32
    return on_cpu and torch.backends.mkldnn.is_available() and not torch.compiler.is_compiling()


class Int8Linear(nn.Module):
    """A projection of whole numbers.

    Args:
        in_features: width of what it reads.
        out_features: width of what it gives.
        bias: whether there is one; it stays float32 and is rounded to 32 bits where it is used.
        static: whether thresholds of activations were learnt; otherwise each batch has its own.
        requantize: whether what it gives is rounded to 8 bits too.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, static: bool, requantize: bool):
        super().__init__()
        self.in_features, self.out_features, self.requantize = in_features, out_features, requantize
        self.qweight = nn.Parameter(torch.zeros(out_features, in_features, dtype=torch.int8), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self.register_buffer("weight_threshold", torch.ones(1))
        self.register_buffer("input_threshold", torch.ones(1) if static else None)
        self.register_buffer("output_threshold", torch.ones(1) if static and requantize else None)
        self._packed: tuple[Any, ...] | None = None

    @property
    def weight(self) -> torch.Tensor:
        """The weights in floating point, for code that reads them."""
        return self.qweight / scale_of(self.get_buffer("weight_threshold"))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(..., in_features)` to `(..., out_features)`."""
        learnt: Any = self.input_threshold
        of_output: Any = self.output_threshold
        dtype = states.dtype
        threshold = states.detach().abs().max()[None] if learnt is None else learnt
        if has_kernel(states):
            output = self._product(states.detach(), threshold)
        else:
            input_scale = scale_of(threshold)
            scale = scale_of(self.get_buffer("weight_threshold")) * input_scale
            output = nn.functional.linear(to_whole(states, input_scale), self.qweight.to(dtype)) / scale
            output = output if self.bias is None else output + self._rounded_bias(scale)
        if self.requantize:
            output_scale = scale_of(output.detach().abs().max() if of_output is None else of_output)
            output = to_whole(output, output_scale).div_(output_scale)
        return output.to(dtype)

    def _rounded_bias(self, scale: torch.Tensor) -> Any:
        return None if self.bias is None else (self.bias.detach() * scale).round() / scale

    def _product(self, states: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        if self._packed is None:  # in the kernel's own order
            weight_scale = scale_of(self.get_buffer("weight_threshold"))
            zero, packed = torch.zeros(1, dtype=torch.int32), torch.ops.onednn.qlinear_prepack(self.qweight, None)
            learnt = None if self.input_threshold is None else self._of_input(threshold, weight_scale)
            self._packed = packed, 1 / weight_scale, zero, weight_scale, learnt
        packed, step, zero, weight_scale, learnt = self._packed
        scale, bias = self._of_input(threshold, weight_scale) if learnt is None else learnt
        whole = _SCRATCH.whole(states.reshape(-1, self.in_features), scale)
        given: Any = (whole, 1 / scale, 0, packed, step, zero, bias, 1.0, 0, torch.float32, "none", [], "")
        return torch.ops.onednn.qlinear_pointwise(*given).reshape(*states.shape[:-1], self.out_features)

    def _of_input(self, threshold: torch.Tensor, weight_scale: torch.Tensor) -> tuple[float, Any]:
        scale = scale_of(threshold)
        return float(scale), self._rounded_bias(weight_scale * scale)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._packed = None
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._packed = None
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}  # the kernel's order is not to be copied


class Int8Embedding(nn.Module):
    """A table of whole numbers."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.qweight = nn.Parameter(torch.zeros(num_embeddings, embedding_dim, dtype=torch.int8), requires_grad=False)
        self.register_buffer("weight_threshold", torch.ones(1))

    @property
    def weight(self) -> torch.Tensor:
        """The rows in floating point, for code that reads them."""
        return self.qweight / scale_of(self.get_buffer("weight_threshold"))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """`(...)` ids to `(..., embedding_dim)`."""
        return nn.functional.embedding(ids, self.qweight) / scale_of(self.get_buffer("weight_threshold"))


def put_int8(model: Any, places: dict[str, dict[str, Any]]) -> None:
    """Put empty modules of whole numbers where `places` says; ties of weights follow."""
    for name, options in places.items():
        owner, _, child = name.rpartition(".")
        old: Any = model.get_submodule(name)
        with torch.device(old.weight.device):
            new: nn.Module
            if "static" in options:
                new = Int8Linear(old.in_features, old.out_features, old.bias is not None, **options)
            else:
                new = Int8Embedding(old.num_embeddings, old.embedding_dim, old.padding_idx)
        setattr(model.get_submodule(owner), child, new)
        bias = getattr(old, "bias", None)
        if bias is not None:  # ties to it stay
            new.bias = bias
    tied = getattr(model, "_tied_weights_keys", None)
    if isinstance(tied, dict):
        model._tied_weights_keys = {_renamed(model, one): _renamed(model, other) for one, other in tied.items()}


def _renamed(model: Any, name: str) -> str:
    """The name of a weight, behind which whole numbers may stand now."""
    owner, _, child = name.rpartition(".")
    found = dict(model.named_modules()).get(owner)
    return f"{owner}.qweight" if child == "weight" and isinstance(found, Int8Linear | Int8Embedding) else name


class WithInt8(PreTrainedModel):
    """Mixin in front of a model's class: its configuration's `int8` says which modules compute with whole numbers."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        prefix = f"{self.base_model_prefix}."
        bare = not hasattr(self, self.base_model_prefix)  # of the names of a model with a head
        spoken = getattr(config, FIELD)
        names = {name: name.removeprefix(prefix) if bare else name for name in spoken}
        modules = {name for name, _ in self.named_modules()}
        put_int8(self, {names[name]: options for name, options in spoken.items() if names[name] in modules})
        self.post_init()

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As the model's; the code of the whole numbers goes along."""
        if self._auto_class is not None:
            self.config.auto_map = {**(getattr(self.config, "auto_map", None) or {}), **self._auto_map}
        super().save_pretrained(*args, **kwargs)
