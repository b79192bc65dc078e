"""LayerDrop (Fan et al. 2020, https://arxiv.org/abs/1909.11556; reference code facebookresearch/fairseq).

In training each layer is left out with a probability of its own, the same for all rows of an update; nothing is
rescaled. A model trained so can be cut to any depth afterwards without further training.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..distillation.theseus.layers import STREAMS, copy_with_layers, find_layers
from ..distillation.theseus.model import ZeroGradient

EVERY_OTHER = "every-other"
# Model type -> lists beside that of the layers, whose entries go with the layers of the same numbers, and the field
# that counts them.
COMPANIONS = {"zen": (("encoder.word_layers", "num_hidden_word_layers"),)}


def every_other(layers: int, rate: float = 0.5) -> list[int]:
    """Layers that stay when a share of `rate` goes: those whose number is no multiple of floor(1 / rate).

    Args:
        layers: number of layers.
        rate: share of the layers that go (paper: 0.5).

    Returns:
        Layer numbers, 0 at the bottom.

    Raises:
        ValueError: `rate` is not in (0, 0.5], or no layer would stay.

    Examples:
        >>> every_other(12), every_other(6, 0.33)
        ([1, 3, 5, 7, 9, 11], [1, 2, 4, 5])
    """
    if not 0 < rate <= 0.5:
        raise ValueError(f"`rate` must be above 0 and at most 0.5, got {rate}: name the layers to keep fewer.")
    kept = [layer for layer in range(layers) if layer % int(1 / rate + 1e-9)]
    if not kept:
        raise ValueError(f"`rate` = {rate} leaves no layer of {layers}: name the layers that stay.")
    return kept


def chosen_layers(keep: str | int | Sequence[int], layers: int) -> list[int]:
    """The numbers that `keep` names; an integer spreads that many evenly over the depth, the last layer included."""
    if isinstance(keep, str) and keep != EVERY_OTHER:
        words = keep.replace(",", " ").split()
        if not words or not all(word.isdecimal() for word in words):
            raise ValueError(f"`layers` must be {EVERY_OTHER}, a number or numbers of layers, got {keep!r}.")
        keep = int(words[0]) if len(words) == 1 and "," not in keep else [int(word) for word in words]
    if isinstance(keep, str):
        return every_other(layers)
    if isinstance(keep, int):
        if not 1 <= keep <= layers:
            raise ValueError(f"`layers` must be from 1 to the model's {layers}, got {keep}.")
        return [(place + 1) * layers // keep - 1 for place in range(keep)]
    found = [int(place) for place in keep]
    if not found or found != sorted(set(found)) or not 0 <= found[0] <= found[-1] < layers:
        raise ValueError(f"`layers` must be rising numbers from 0 to {layers - 1}, got {found}.")
    return found


def keep_layers(model: Any, layers: str | int | Sequence[int] = EVERY_OTHER) -> Any:
    """Copy a model with some of its layers: a plain model of its class, with fewer layers.

    Args:
        model: any encoder with any head, of upstream's or ours; it is not changed.
        layers: `every-other` (default; paper: layers 1, 3, 5, ... from 0), numbers of layers from 0, or how many,
            which are spread evenly and end with the last one.

    Returns:
        A model of the same class that shares nothing with `model`; `save_pretrained` writes a plain checkpoint.

    Raises:
        TypeError: `model` is none of transformers.
        ValueError: layers that it does not have, or a model whose layers are one (ALBERT) or are not known.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=4, num_attention_heads=2)
        >>> model = BertModel(tiny)
        >>> len(keep_layers(model, "every-other").encoder.layer), len(keep_layers(model, 3).encoder.layer)
        (2, 3)
    """
    stack = _stack(model)
    for field in ("adapter_layers", "mixed_layers"):
        if read := getattr(model.config, field, None):
            raise ValueError(
                f"`model` = {type(model).__name__} reads hidden states {read} of its encoder (`{field}`), which move "
                "with the layers: cut the encoder alone, and build the model on it."
            )
    chosen = chosen_layers(layers, len(stack))
    shorter = copy_with_layers(model, stack, chosen)
    config = shorter.config
    for path, field in COMPANIONS.get(config.model_type, ()):
        beside = shorter.base_model.get_submodule(path)
        kept = [beside[place] for place in chosen if place < len(beside)]
        parent, _, name = path.rpartition(".")
        setattr(shorter.base_model.get_submodule(parent), name, nn.ModuleList(kept))
        setattr(config, field, len(kept))

    def moved(layer: int) -> int:
        """The number of the nearest layer below that is kept, or of the first one."""
        return max(sum(place <= layer for place in chosen) - 1, 0)

    if getattr(config, "pair_target_layer", -1) != -1:  # SpanBERT's boundary head reads it
        config.pair_target_layer = moved(config.pair_target_layer % len(stack))
    if config.model_type == "knowbert":
        for name, block in shorter.base_model.knowledge.items():
            block.base = {**block.base, "insert_after_layer": moved(block.base["insert_after_layer"])}
            config.knowledge_bases[name] = block.base
    module: Any
    for number, layer in enumerate(_stack(shorter)):
        for module in layer.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                module.layer_idx = number
    return shorter


def _stack(model: Any) -> nn.ModuleList:
    stack = find_layers(model, "model", alike=False)
    if any(isinstance(part, nn.RNNBase) for part in stack.modules()):
        raise ValueError(
            f"`model` = {type(model).__name__} has recurrent layers, whose widths and states are their own: none of "
            "them can be left out."
        )
    if len(stack) != model.config.num_hidden_layers:
        raise ValueError(
            f"`model` has {len(stack)} layers that are used {model.config.num_hidden_layers} times (shared "
            "parameters): none of them can be left out."
        )
    return stack


# ---- training ----


class _Skippable:
    """Mixed into a layer's class while it may be left out; weights, names and hooks stay what they are."""

    _layer_drop: "LayerDrop"
    _layer_number: int
    _streams: int

    # The choice is another in every update: traced with the layers it would make a graph for every combination.
    @torch.compiler.disable(recursive=False)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The layer, or its input states."""
        drop: LayerDrop = self._layer_drop
        layer: Any = super()
        if not self.training or not drop.dropped[self._layer_number]:  # type: ignore[attr-defined]
            return layer.forward(*args, **kwargs)
        states = args[: self._streams] if args else (kwargs["hidden_states"],)
        if self._streams not in drop.forms:  # whether it gives a tensor or how many things, seen once
            place = states[0].device
            with torch.no_grad(), torch.random.fork_rng([place] if place.type == "cuda" else []):
                output = layer.forward(*args, **kwargs)
            drop.forms[self._streams] = len(output) if isinstance(output, tuple) else None
        weights = [value for value in self.parameters() if value.requires_grad]  # type: ignore[attr-defined]
        if weights and torch.is_grad_enabled():  # so that every process has a gradient of every weight
            states = (ZeroGradient.apply(states[0], *weights), *states[1:])
        length = drop.forms[self._streams]
        return states[0] if length is None else (*states, *[None] * (length - len(states)))


class LayerDrop:
    """Lets the layers of a model be left out while it trains, for loops of one's own; see `LayerDropCallback`.

    Args:
        model: any encoder with any head, of upstream's or ours. Its layers are changed until `remove`.
        rate: probability with which each layer is left out of an update (paper: 0.2; 0.5 to cut to half or less).
        seed: of the draws. Each update's draw depends on it and on the update's number alone.

    Raises:
        TypeError: `model` is none of transformers.
        ValueError: `rate` is not in [0, 1), or a model whose layers are one (ALBERT) or are not known.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=4, num_attention_heads=2))
        >>> drop = LayerDrop(model, rate=0.5)
        >>> drop.draw(step=16)  # before each update
        [True, False, False, True]
        >>> drop.remove()
    """

    def __init__(self, model: Any, rate: float = 0.2, seed: int = 0):
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be a probability below 1, got {rate}.")
        stack = _stack(model)
        self.rate, self.seed = rate, seed
        self.dropped = [False] * len(stack)
        self.forms: dict[int, int | None] = {}
        self._layers: list[nn.Module] = []
        base = getattr(model, "base_model", model)
        beside = [base.get_submodule(path) for path, _ in COMPANIONS.get(model.config.model_type, ())]
        for streams, one in ((STREAMS.get(model.config.model_type, 1), stack), *((1, one) for one in beside)):
            for number, layer in enumerate(one):
                self._make_skippable(layer, number, streams)

    def _make_skippable(self, layer: Any, number: int, streams: int) -> None:
        # A subclass rather than a wrapper, as torch's parametrizations do: names in the state dict stay.
        if isinstance(layer, _Skippable):
            raise ValueError(f"Layer {number} of `model` has LayerDrop already: `remove` the first one.")
        own = type(layer)
        layer.__class__ = type(own.__name__, (_Skippable, own), {"__module__": own.__module__, "_own_class": own})
        layer._layer_drop, layer._layer_number, layer._streams = self, number, streams
        self._layers.append(layer)

    def draw(self, step: int) -> list[bool]:
        """Draw which layers are left out of an update, the same in every process; gives one bool a layer."""
        # The generator of the update alone: a resumed run draws what the whole one would have drawn.
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + step) % 2**63)
        self.dropped = (torch.rand(len(self.dropped), generator=generator) < self.rate).tolist()
        return self.dropped

    def remove(self) -> None:
        """Make the layers what they were."""
        for layer in self._layers:
            layer.__class__ = layer._own_class  # type: ignore[assignment]
            for name in ("_layer_drop", "_layer_number", "_streams"):
                delattr(layer, name)
        self._layers = []


class LayerDropCallback(TrainerCallback):
    """LayerDrop for any Trainer and any encoder, of upstream's or ours.

    Each update leaves every layer out with probability `rate`, in all processes and micro-batches the same ones; a
    layer that is left out has a gradient of zeros. Evaluation and the saved model have all layers, under their names.
    A resumed run draws what the whole one would have drawn.

    Args:
        rate: as `LayerDrop`.
        seed: of the draws (default: the Trainer's).

    Raises:
        ValueError: as `LayerDrop`.

    Examples:
        >>> callback = LayerDropCallback(0.2)  # Trainer(..., callbacks=[callback])
        >>> # afterwards: keep_layers(trainer.model, "every-other").save_pretrained("smaller")
    """

    def __init__(self, rate: float = 0.2, seed: int | None = None):
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be a probability below 1, got {rate}.")
        self.rate, self.seed = rate, seed
        self._drop: LayerDrop | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Let layers be left out."""
        if self._drop is not None:  # of a training that failed
            self._drop.remove()
        self._drop = LayerDrop(kwargs["model"], self.rate, args.seed if self.seed is None else self.seed)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Draw for the update."""
        if self._drop is not None:
            self._drop.draw(state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the model as it was found."""
        if self._drop is not None:
            self._drop.remove()
            self._drop = None
