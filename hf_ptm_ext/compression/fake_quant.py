"""Training that feels its quantisation: Q8BERT's 8 bits and Q-BERT's groups of fewer.

Q8BERT (Zafrir et al. 2019, https://arxiv.org/abs/1910.06188; reference code IntelLabs/nlp-architect): symmetric 8 bits
a tensor; the threshold of weights is their largest magnitude, that of activations a moving average of the batches'.
Q-BERT (Shen et al. 2020, https://arxiv.org/abs/1909.05840; no code): each matrix is cut into groups of output neurons,
every group with a range of its own in 2 to 8 bits, activations in 8.

In the backward pass rounding is the identity, also for values beyond a threshold. Modules stay `nn.Linear` and
`nn.Embedding` under their names; buffers with the thresholds come to them until `remove_fake_quant`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback

from ..models.int8_core import scale_of

EMA, DYNAMIC, NONE = "ema", "dynamic", "none"
MODES = (EMA, DYNAMIC, NONE)


def fake_quantize(values: torch.Tensor, threshold: torch.Tensor, bits: int = 8) -> torch.Tensor:
    """Round to a symmetric grid and back, with the gradient of the identity.

    Args:
        values: any shape.
        threshold: the magnitude of the largest level, of one element or broadcast against `values`.
        bits: of the grid, which has 2 ** bits - 1 levels.

    Returns:
        What `2 ** bits - 1` levels tell of `values`.

    Examples:
        >>> fake_quantize(torch.tensor([0.2, 0.6, 3.0]), torch.tensor(1.0), bits=2)
        tensor([0., 1., 1.])
    """
    levels = 2 ** (bits - 1) - 1
    scale = scale_of(threshold.detach(), levels)
    rounded = (values.detach() * scale).round_().clamp_(-levels, levels).div_(scale)
    return rounded + (values - values.detach())


def group_wise_fake_quant(weight: torch.Tensor, bits: int, groups: int = 128) -> torch.Tensor:
    """Q-BERT's uniform grid for each group of output neurons, from its smallest to its largest weight.

    Args:
        weight: `(out_features, in_features)`; rows that follow each other are a group. Where heads share the groups
            evenly, no group is of two heads.
        bits: 1 to 8.
        groups: number of groups (paper: 128); of a matrix with fewer rows each row is one, and where rows do not
            divide, groups differ by one row.

    Returns:
        The weights on their grids, with the gradient of the identity.

    Raises:
        ValueError: `bits` or `groups` out of their range.

    Examples:
        >>> group_wise_fake_quant(torch.tensor([[0.0, 0.4, 1.0], [0.0, 4.0, 10.0]]), bits=1, groups=2).tolist()
        [[0.0, 0.0, 1.0], [0.0, 0.0, 10.0]]
    """
    if not 1 <= bits <= 8 or groups < 1:
        raise ValueError(f"`bits` must be from 1 to 8 and `groups` at least 1, got {bits} and {groups}.")
    codes, low, step = grid_codes(weight.detach(), bits, groups)
    group = torch.arange(len(weight), device=weight.device) * len(low) // len(weight)
    rounded = codes * step[group, None] + low[group, None]
    return rounded + (weight - weight.detach())


def grid_codes(values: torch.Tensor, bits: int, groups: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes from 0 of a matrix, and the lowest value and the step of each group's grid."""
    rows, steps = values.shape[0], 2**bits - 1
    number = min(groups, rows)
    group = torch.arange(rows, device=values.device) * number // rows
    low = values.new_full((number,), float("inf")).scatter_reduce(0, group, values.amin(1), "amin")
    high = values.new_full((number,), float("-inf")).scatter_reduce(0, group, values.amax(1), "amax")
    step = ((high - low) / steps).clamp(min=torch.finfo(values.dtype).tiny)
    codes = ((values - low[group, None]) / step[group, None]).round_().clamp_(0, steps)
    return codes.to(torch.uint8), low, step


# ---- modules ----


def is_repeated() -> bool:
    """Whether a forward pass is one again, in the backward pass that needs its states (gradient checkpointing)."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


class FakeQuant:
    """Mixed into `nn.Linear` and `nn.Embedding`; `quant` says how, buffers `*_threshold` and `quant_step` remember."""

    quant: dict[str, Any]
    quant_step: torch.Tensor
    weight: Any
    training: bool

    def is_on(self) -> bool:
        """Whether the module quantises now."""
        if self.quant["mode"] == NONE:
            return False
        if not self.training or not self.quant["start_step"]:
            return True
        return bool(self.quant_step - int(is_repeated()) >= self.quant["start_step"])

    def quantized_weight(self) -> torch.Tensor:
        """The weights on their grid."""
        if self.quant["groups"] is not None:
            return group_wise_fake_quant(self.weight, self.quant["bits"], self.quant["groups"])
        return fake_quantize(self.weight, self.weight.detach().abs().max(), self.quant["bits"])

    def activation(self, states: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        """Activations on their grid; in training the moving average comes first."""
        largest = states.detach().abs().max().to(threshold.dtype)
        if self.quant["mode"] == DYNAMIC:
            return fake_quantize(states, largest, self.quant["activation_bits"])
        if self.training and not is_repeated():
            decay, first = self.quant["ema_decay"], self.quant_step == self.quant["start_step"]
            with torch.no_grad():
                threshold.copy_(torch.where(first, largest, threshold - (1 - decay) * (threshold - largest)))
        return fake_quantize(states, threshold.clone(), self.quant["activation_bits"])

    def count(self) -> None:
        """Count a forward pass of training."""
        if self.training and self.quant["mode"] != NONE and not is_repeated():
            self.quant_step += 1


class FakeQuantLinear(FakeQuant, nn.Linear):
    """A projection that trains as Q8BERT's `QuantizedLinear` does; in evaluation it computes with whole numbers."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`(..., in_features)` to `(..., out_features)`."""
        if not self.is_on():
            self.count()
            return super().forward(input)
        states = self.activation(input, self.get_buffer("input_threshold"))
        bias: Any = self.bias
        if not self.training and bias is not None and self.quant["groups"] is None:
            largest = (
                input.detach().abs().max() if self.quant["mode"] == DYNAMIC else self.get_buffer("input_threshold")
            )
            levels = [2 ** (self.quant[kind] - 1) - 1 for kind in ("bits", "activation_bits")]
            scale = scale_of(self.weight.detach().abs().max(), levels[0]) * scale_of(largest, levels[1])
            bias = (bias * scale).round() / scale
        output = nn.functional.linear(states, self.quantized_weight(), bias)
        if self.quant["requantize_output"]:
            output = self.activation(output, self.get_buffer("output_threshold"))
        self.count()
        return output


class FakeQuantEmbedding(FakeQuant, nn.Embedding):
    """A table that trains as Q8BERT's `QuantizedEmbedding` does."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`(...)` ids to `(..., embedding_dim)`."""
        quantized = self.is_on()
        self.count()
        return nn.functional.embedding(input, self.quantized_weight() if quantized else self.weight, self.padding_idx)


QUANTIZED = {nn.Linear: FakeQuantLinear, nn.Embedding: FakeQuantEmbedding}


def prepare_fake_quant(
    model: Any,
    *,
    bits: int | Mapping[str, int] = 8,
    groups: int | None = None,
    activation_bits: int = 8,
    embedding_bits: int = 8,
    mode: str = EMA,
    ema_decay: float = 0.9999,
    start_step: int = 0,
    requantize_output: bool = False,
    exclude: Sequence[str] = (),
) -> Any:
    """Let a model train as it will compute after quantisation, in place.

    Without `groups` the model trains as a Q8BERT, to be written by `save_int8`; with them as a Q-BERT.

    Args:
        model: any model of upstream's or ours, with any head.
        bits: of the weights of projections (Q8BERT: 8): a number, or regular expression -> number (Q-BERT's mixed
            precision, see `mixed_precision`); the first one that finds a module's name counts, and modules that none
            finds have 8.
        groups: groups of output neurons of each matrix (Q-BERT: 128); default none, one grid a matrix.
        activation_bits: of what projections read (both papers: 8).
        embedding_bits: of tables of embeddings (Q-BERT: 8 or 4).
        mode: `ema` (default), thresholds of activations are moving averages; `dynamic`, each batch has its own;
            `none`, nothing is quantised.
        ema_decay: of the moving average (reference: 0.9999).
        start_step: forward passes of training before quantisation begins.
        requantize_output: whether what a projection gives is rounded too (an option of the reference).
        exclude: regular expressions; a module whose name one of them finds stays as it is.

    Returns:
        The same model, whose state dict has buffers more.

    Raises:
        ValueError: a value out of its range, nothing to quantise, or a model that is prepared already.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> model = prepare_fake_quant(BertModel(tiny))  # Trainer(model=model, ...)
        >>> type(model.pooler.dense).__name__
        'FakeQuantLinear'
    """
    given = {"activation_bits": activation_bits, "embedding_bits": embedding_bits}
    given |= dict(bits) if isinstance(bits, Mapping) else {"bits": bits}
    for name, value in given.items():
        if not 2 <= value <= 8:
            raise ValueError(f"`{name}` must be from 2 to 8 bits, got {value}.")
    if groups is not None and groups < 1:
        raise ValueError(f"`groups` must be at least 1, got {groups}.")
    if mode not in MODES:
        raise ValueError(f"`mode` must be one of {', '.join(MODES)}, got {mode!r}.")
    if not 0 <= ema_decay < 1:
        raise ValueError(f"`ema_decay` must be in [0, 1), got {ema_decay}.")
    if any(isinstance(module, FakeQuant) for module in model.modules()):
        raise ValueError(f"{type(model).__name__} is prepared already: `remove_fake_quant` first.")
    options = {"mode": mode, "ema_decay": ema_decay, "start_step": start_step, "activation_bits": activation_bits}
    found = 0
    for name, module in model.named_modules():
        cls = QUANTIZED.get(type(module))
        if cls is None or any(re.search(one, name) for one in exclude):
            continue
        linear, found = cls is FakeQuantLinear, found + 1
        own = _bits_of(bits, name) if linear else embedding_bits
        module.__class__ = cls  # names, weights and ties stay
        module.quant = {**options, "bits": own, "groups": groups, "requantize_output": linear and requantize_output}
        place = module.weight.device
        module.register_buffer("quant_step", torch.zeros((), dtype=torch.long, device=place))
        for kind in ["input"] * linear + ["output"] * (linear and requantize_output):
            module.register_buffer(f"{kind}_threshold", torch.zeros((), device=place))
    if not found:
        raise ValueError(f"{type(model).__name__} has nothing to quantise, or `exclude` = {list(exclude)} names it.")
    return model


def _bits_of(bits: int | Mapping[str, int], name: str) -> int:
    if isinstance(bits, int):
        return bits
    return next((value for pattern, value in bits.items() if re.search(pattern, name)), 8)


def remove_fake_quant(model: Any, bake: bool = False) -> Any:
    """Make the modules plain again, in place.

    Args:
        model: as `prepare_fake_quant` gave it.
        bake: whether weights become those of their grids (a plain checkpoint that shows what quantisation costs).

    Returns:
        The same model, whose state dict has the usual names.

    Examples:
        >>> layer = prepare_fake_quant(nn.Sequential(nn.Linear(4, 4)))
        >>> list(remove_fake_quant(layer, bake=True).state_dict())
        ['0.weight', '0.bias']
    """
    done: set[int] = set()
    module: Any
    for module in [one for one in model.modules() if isinstance(one, FakeQuant)]:
        if bake and id(module.weight) not in done:
            done.add(id(module.weight))
            with torch.no_grad():
                module.weight.copy_(module.quantized_weight())
        module.__class__ = nn.Linear if isinstance(module, nn.Linear) else nn.Embedding
        for name in ("quant_step", "input_threshold", "output_threshold"):
            module._buffers.pop(name, None)
        del module.quant
    return model


@torch.no_grad()
def calibrate(model: Any, batches: Iterable[Mapping[str, Any]]) -> Any:
    """Learn the thresholds of activations from batches, and nothing else: quantisation after training.

    Args:
        model: as `prepare_fake_quant` gave it; with few batches prepare it with `ema_decay=0.9`.
        batches: what the model's `forward` takes.

    Returns:
        The same model, in evaluation mode.

    Raises:
        ValueError: the model is not prepared.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> model = prepare_fake_quant(BertModel(tiny), ema_decay=0.9)
        >>> bool(calibrate(model, [{"input_ids": torch.tensor([[1, 2, 3]])}]).pooler.dense.input_threshold > 0)
        True
    """
    modules = [module for module in model.modules() if isinstance(module, FakeQuant)]
    if not modules:
        raise ValueError(f"{type(model).__name__} has no quantised module: `prepare_fake_quant` first.")
    model.eval()
    for module in modules:
        module.training = True
    for batch in batches:
        model(**batch)
    return model.eval()


class QuantisationBegins(TrainerCallback):
    """Refuses a training that is over before its quantisation begins: no ranges would be learnt."""

    def __init__(self, start_step: int):
        self.start_step = start_step

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the forward passes."""
        passes = state.max_steps * args.gradient_accumulation_steps
        if self.start_step >= passes:
            raise ValueError(
                f"`start_step` must be below the {passes} forward passes of this training, got {self.start_step}."
            )
