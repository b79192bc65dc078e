"""Integer inference of Q8BERT (Zafrir et al. 2019, https://arxiv.org/abs/1910.06188; IntelLabs/nlp-architect).

Symmetric, without zero points: with M = 127 and thresholds t,

    q(x, t) = clamp(round(x M / t), -M, M),      y = (q(x, t_x) q(W, t_W)^T + round(b s)) / s,   s = M / t_x * M / t_W

On the CPU the product is one of int8 by oneDNN's kernel in torch; elsewhere, in compiled graphs, and on processors
without VNNI, whose kernel cuts sums of two products to 16 bits, of the same whole numbers in floating point.
`WithInt8` is a model with such modules, as `save_int8` writes it: this file goes along.
"""

import threading
from functools import cache
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
SHAPES = 256  # shapes of inputs whose memory is remembered
# Names of projections that read the same input: one product for all of them.
TOGETHER = (("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("q_lin", "k_lin", "v_lin"), ("q", "k", "v"))
TINY = 1e-12  # of a threshold: all zeros stay zeros


def scale_of(threshold: torch.Tensor, levels: int = LEVELS) -> torch.Tensor:
    """What numbers are multiplied by before they are rounded."""
    return levels / threshold.clamp(min=TINY)


def to_whole(values: torch.Tensor, scale: torch.Tensor, levels: int = LEVELS) -> torch.Tensor:
    """Whole numbers, as floating-point ones."""
    return torch.mul(values, scale).round_().clamp_(-levels, levels)


class _Scratch(threading.local):
    """What a thread keeps from call to call: memory in which inputs are rounded, since fresh pages cost more than the
    sums, and what was computed for projections of the same input that are still to come."""

    def __init__(self) -> None:
        with torch.inference_mode(False):
            self.part, self.memory = torch.empty(PART), torch.empty(0, dtype=torch.int8)
        self.views: dict[torch.Size, tuple[torch.Tensor, torch.Tensor]] = {}
        self.of_input: Any = None
        self.waiting: dict[int, torch.Tensor] = {}

    def whole(self, values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Whole numbers of 8 bits, valid until the next call; made in parts that stay in the cache."""
        shape = values.shape
        if shape not in self.views:
            self._make_views(shape)
        part, whole = self.views[shape]
        if part.shape == shape:
            return whole.copy_(torch.mul(values, scale, out=part).round_().clamp_(-LEVELS, LEVELS))
        flat, memory = values.reshape(-1), whole.view(-1)
        for first in range(0, len(flat), PART):
            one = flat[first : first + PART]
            part = torch.mul(one, scale, out=self.part[: len(one)])
            memory[first : first + PART].copy_(part.round_().clamp_(-LEVELS, LEVELS))
        return whole

    def _make_views(self, shape: torch.Size) -> None:
        size = shape.numel()
        with torch.inference_mode(False):
            if self.memory.numel() < size:
                self.memory = torch.empty(size, dtype=torch.int8)
            if self.memory.numel() == size or len(self.views) > SHAPES:
                self.views.clear()  # those of other memory, or too many
            part = self.part[:size].view(shape) if size <= PART else self.part
            self.views[shape] = part, self.memory[:size].view(shape)


_SCRATCH = _Scratch()


def has_kernel(states: torch.Tensor) -> bool:
    """Whether the product is one of int8."""
    there = states.is_cpu and states.dtype is torch.float32 and torch.backends.mkldnn.is_available()
    return there and not torch.compiler.is_compiling() and sums_are_whole()


@cache
def sums_are_whole() -> bool:
    """Whether this processor's product of int8 gives the largest sums as they are."""
    with torch.inference_mode(), torch.device("cpu"):  # whatever the default is
        ones = torch.full((16, 64), LEVELS, dtype=torch.int8)
        packed = torch.ops.onednn.qlinear_prepack(ones, None)
        step, zero = torch.ones(1, dtype=torch.float32), torch.zeros(1, dtype=torch.int32)
        found = qlinear(ones, 1.0, packed, step, zero, None)
    return bool((found == ones.shape[1] * LEVELS**2).all())


def qlinear(whole: torch.Tensor, step: float, *weights_and_bias: Any) -> torch.Tensor:
    """oneDNN's product of int8: inputs and their step, then packed weights, their steps and zero points, the bias."""
    op = torch.ops.onednn.qlinear_pointwise.default
    found: torch.Tensor = op(whole, step, 0, *weights_and_bias, 1.0, 0, torch.float32, "none", [], "")
    return found


class Int8Module(nn.Module):
    """What stores its weights as whole numbers, and keeps what follows from them until they change."""

    qweight: nn.Parameter
    options: dict[str, Any]
    kept: Any = None

    @property
    def weight(self) -> torch.Tensor:
        """The weights in floating point, for code that reads them."""
        return self.qweight / scale_of(self.get_buffer("weight_threshold"))

    def forget(self) -> None:
        """Let go what followed from other weights."""
        self.kept = None

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.forget()
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.forget()
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": None}  # the kernel's order is not to be copied


class Int8Linear(Int8Module):
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
        self.together: list[Int8Linear] = [self]  # those that read the same input

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(..., in_features)` to `(..., out_features)`."""
        output = self._product(states) if has_kernel(states) else self._in_floats(states)
        if self.requantize:
            learnt: Any = self.output_threshold
            scale = scale_of(output.detach().abs().max() if learnt is None else learnt)
            output = to_whole(output, scale).div_(scale).to(states.dtype)
        return output

    def threshold_of(self, states: torch.Tensor) -> torch.Tensor:
        """The learnt threshold of the inputs, or that of these."""
        learnt: Any = self.input_threshold
        return states.detach().abs().max()[None] if learnt is None else learnt

    def rounded_bias(self, scale: torch.Tensor) -> Any:
        """The bias as a whole number has it; `None` without."""
        return None if self.bias is None else (self.bias.detach() * scale).round() / scale

    def _in_floats(self, states: torch.Tensor) -> torch.Tensor:
        input_scale = scale_of(self.threshold_of(states))
        scale = scale_of(self.get_buffer("weight_threshold")) * input_scale
        output = nn.functional.linear(to_whole(states, input_scale), self.qweight.to(states.dtype)) / scale
        return (output if self.bias is None else output + self.rounded_bias(scale)).to(states.dtype)

    def _product(self, states: torch.Tensor) -> torch.Tensor:
        group = self.together
        if len(group) == 1:
            if self.kept is None:
                self.kept = Kernel(group)
            output: torch.Tensor = self.kept(states)
            return output
        waiting = _SCRATCH.waiting
        if _SCRATCH.of_input is states and id(self) in waiting:
            return waiting.pop(id(self))
        if any(id(one) in waiting for one in group) or not alike(group):  # inputs of their own, in truth
            self.forget()
            for one in group:
                one.together = [one]
            return self._product(states)
        if self.kept is None:
            kernel = Kernel(group)
            for one in group:
                one.kept = kernel
        found = self.kept(states).split([one.out_features for one in group], -1)
        _SCRATCH.of_input, _SCRATCH.waiting = states, {id(one): own for one, own in zip(group, found, strict=True)}
        return _SCRATCH.waiting.pop(id(self))

    def forget(self) -> None:
        """Let go what followed from other weights, also of those that it is computed with."""
        for one in self.together:
            one.kept = None


class Kernel:
    """oneDNN's product for a projection, or for several of the same input, whose columns follow each other."""

    def __init__(self, members: list[Int8Linear]):
        self.members = members
        self.scales = [scale_of(one.get_buffer("weight_threshold")) for one in members]
        weight = torch.cat([one.qweight for one in members]) if len(members) > 1 else members[0].qweight
        self.packed = torch.ops.onednn.qlinear_prepack(weight, None)
        # One for all columns, or one for each.
        widths = [one.out_features if len(members) > 1 else 1 for one in members]
        self.step = torch.cat([(1 / scale).expand(width) for scale, width in zip(self.scales, widths, strict=True)])
        self.zero = torch.zeros(len(self.step), dtype=torch.int32)
        learnt: Any = members[0].input_threshold
        self.learnt = None if learnt is None else self.of_input(learnt)

    def of_input(self, threshold: torch.Tensor) -> tuple[torch.Tensor, float, Any]:
        """What inputs are multiplied by, its inverse, and the biases."""
        scale = scale_of(threshold)
        found = [one.rounded_bias(own * scale) for one, own in zip(self.members, self.scales, strict=True)]
        return scale, 1 / float(scale), None if found[0] is None else torch.cat(found)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """The columns of all members."""
        if states.requires_grad:
            states = states.detach()
        scale, step, bias = self.learnt or self.of_input(self.members[0].threshold_of(states))
        return qlinear(_SCRATCH.whole(states, scale), step, self.packed, self.step, self.zero, bias)


def alike(group: list[Int8Linear]) -> bool:
    """Whether one product serves projections of the same input: those that learnt of it learnt the same."""
    if group[0].kept is not None:
        return True
    learnt: list[Any] = [one.input_threshold for one in group]
    return len({one.bias is None for one in group}) == 1 and (
        learnt[0] is None or all(torch.equal(one, learnt[0]) for one in learnt)
    )


class Int8Embedding(Int8Module):
    """A table of whole numbers."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.qweight = nn.Parameter(torch.zeros(num_embeddings, embedding_dim, dtype=torch.int8), requires_grad=False)
        self.register_buffer("weight_threshold", torch.ones(1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """`(...)` ids to `(..., embedding_dim)`."""
        scale, compiling = self.kept, torch.compiler.is_compiling()
        if scale is None or compiling:
            scale = scale_of(self.get_buffer("weight_threshold"))
            self.kept = None if compiling else scale
        return nn.functional.embedding(ids, self.qweight) / scale


class PackedModule(Int8Module):
    """What stores Q-BERT's groups of rows: codes of a few bits one behind the other, and a grid for each group."""

    def make(self, rows: int, width: int, bits: int, groups: int) -> None:
        """Room for the codes and the grids."""
        self.shape, self.bits, self.groups = (rows, width), bits, groups
        self.qweight = nn.Parameter(torch.zeros(-(-rows * width * bits // 8), dtype=torch.uint8), requires_grad=False)
        for name in ("low", "step"):
            self.register_buffer(name, torch.ones(min(groups, rows)))

    def row_groups(self) -> torch.Tensor:
        """The group of each row."""
        rows = self.shape[0]
        return torch.arange(rows, device=self.qweight.device) * min(self.groups, rows) // rows

    @property
    def weight(self) -> torch.Tensor:
        """The weights on their grids."""
        if self.kept is None or torch.compiler.is_compiling():
            number = self.shape[0] * self.shape[1]
            places = torch.arange(7, -1, -1, dtype=torch.uint8, device=self.qweight.device)
            stream = (self.qweight[:, None] >> places & 1).flatten()[: number * self.bits].view(number, self.bits)
            codes = (stream << places[-self.bits :]).sum(1, dtype=torch.uint8).view(self.shape)
            group = self.row_groups()
            step, low = (self.get_buffer(name)[group, None] for name in ("step", "low"))
            found = codes * step + low
            if torch.compiler.is_compiling():
                return found
            self.kept = found
        kept: torch.Tensor = self.kept
        return kept


class PackedLinear(PackedModule):
    """A projection whose weights are in groups, and whose inputs are rounded as in training."""

    def __init__(self, in_features: int, out_features: int, bias: bool, **options: Any):
        super().__init__()
        self.in_features, self.out_features, self.options = in_features, out_features, options
        self.make(out_features, in_features, options["bits"], options["groups"])
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        for kind, there in (("input", True), ("output", options["requantize"])):
            self.register_buffer(f"{kind}_threshold", torch.ones(1) if there and options["static"] else None)

    def rounded(self, values: torch.Tensor, learnt: Any) -> torch.Tensor:
        """Activations on their grid."""
        levels = 2 ** (self.options["activation_bits"] - 1) - 1
        scale = scale_of(values.detach().abs().max() if learnt is None else learnt, levels)
        return to_whole(values, scale, levels) / scale

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(..., in_features)` to `(..., out_features)`."""
        output = nn.functional.linear(self.rounded(states, self.input_threshold), self.weight, self.bias)
        return self.rounded(output, self.output_threshold) if self.options["requantize"] else output


class PackedEmbedding(PackedModule):
    """A table whose rows are in groups."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, **options: Any):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.options = options
        self.make(num_embeddings, embedding_dim, **options)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """`(...)` ids to `(..., embedding_dim)`."""
        return nn.functional.embedding(ids, self.weight)


def packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes below `2 ** bits` as bytes, their bits one behind the other."""
    places = torch.arange(bits - 1, -1, -1, dtype=torch.uint8)
    stream = (codes.flatten()[:, None] >> places & 1).flatten()
    stream = nn.functional.pad(stream, (0, -stream.shape[0] % 8)).view(-1, 8)
    return (stream << torch.arange(7, -1, -1, dtype=torch.uint8)).sum(1, dtype=torch.uint8)


def put_int8(model: Any, places: dict[str, dict[str, Any]]) -> None:
    """Put empty modules of whole numbers where `places` says; ties of weights follow.

    Projections of an attention that read the same input are told of each other.
    """
    for name, options in places.items():
        owner, _, child = name.rpartition(".")
        old: Any = model.get_submodule(name)
        with torch.device(old.weight.device):
            new: nn.Module
            if "static" in options:
                kind = PackedLinear if "bits" in options else Int8Linear
                new = kind(old.in_features, old.out_features, old.bias is not None, **options)
            else:
                table = PackedEmbedding if "bits" in options else Int8Embedding
                new = table(old.num_embeddings, old.embedding_dim, old.padding_idx, **options)
        setattr(model.get_submodule(owner), child, new)
        bias = getattr(old, "bias", None)
        if bias is not None:  # ties to it stay
            new.bias = bias
    for name in dict.fromkeys(name.rpartition(".")[0] for name in places):
        owner = model.get_submodule(name)
        for names in TOGETHER:
            parts: list[Any] = [getattr(owner, one, None) for one in names]
            if all(isinstance(one, Int8Linear) for one in parts) and len({one.in_features for one in parts}) == 1:
                for one in parts:
                    one.together = parts
    for part in model.modules():  # the model inside a head has ties of its own
        for field in ("_tied_weights_keys", "all_tied_weights_keys"):
            if isinstance(tied := getattr(part, field, None), dict):
                setattr(part, field, _renamed_ties(part, tied))


def _renamed_ties(model: Any, tied: dict[str, str]) -> dict[str, str]:
    """Ties by the names of whole numbers; what is of other bits now is no longer the same."""
    modules = dict(model.named_modules(remove_duplicate=False))
    kinds = {name: (one.shape, one.dtype) for name, one in model.named_parameters(remove_duplicate=False)}

    def renamed(name: str) -> str:
        owner, _, child = name.rpartition(".")
        return f"{owner}.qweight" if child == "weight" and isinstance(modules.get(owner), Int8Module) else name

    pairs = ((renamed(one), renamed(other)) for one, other in tied.items())
    return {one: other for one, other in pairs if kinds.get(one) == kinds.get(other)}


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

    def get_expanded_tied_weights_keys(self, *args: Any, **kwargs: Any) -> dict[str, str]:
        """As the model's, by the names of whole numbers."""
        return _renamed_ties(self, super().get_expanded_tied_weights_keys(*args, **kwargs))

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As the model's; the code of the whole numbers goes along."""
        if self._auto_class is not None:
            self.config.auto_map = {**(getattr(self.config, "auto_map", None) or {}), **self._auto_map}
        super().save_pretrained(*args, **kwargs)
