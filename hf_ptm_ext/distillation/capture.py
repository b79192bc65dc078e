"""Hidden states, queries, keys and values of a model's forward, taken by hooks.

`output_attentions=True` gives an empty tuple under sdpa and flash attention, and probabilities after dropout under
eager attention; hooks on the projections work under every implementation. By name, layers counted from 0:

* `hidden.i`: hidden state i as upstream counts them, 0 for the embeddings, `(batch, seq_len, hidden)`;
* `first.i`: its first position, `(batch, hidden)`;
* `query.i`, `key.i`, `value.i`: what the projection of layer i gives, `(batch, seq_len, heads * head_dim)`.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from .layouts import ModelShape, base_model, layer_module, layout_of, plain_model, projection

# Columns that hold what is to be predicted: the student's own loss reads them, a teacher never sees them.
LABEL_COLUMNS = ("labels", "start_positions", "end_positions", "next_sentence_label", "sentence_order_label")
_SINGLE = ("logits", "prediction_logits")
_SPAN = ("start_logits", "end_logits")
STATES = ("hidden", "first")
PROJECTIONS = ("query", "key", "value")


def needed(kind: str, layer: int) -> str:
    """Spell the name of something that can be taken."""
    return f"{kind}.{layer}"


def first_tensor(output: Any) -> torch.Tensor:
    """The states in what a module returned: the tensor, `last_hidden_state`, or the first of several."""
    if torch.is_tensor(output):
        return output
    states = getattr(output, "last_hidden_state", None)
    return states if states is not None else output[0]


def logits_fields(output: Any) -> dict[str, torch.Tensor]:
    """The logits that metrics should see."""
    if not isinstance(output, Mapping):
        return {}
    for names in ((_SINGLE[0],), (_SINGLE[1],), _SPAN):
        if all(output.get(name) is not None for name in names):
            return {name: output[name] for name in names}
    return {}


def joint_logits(fields: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """The logits as one tensor: start and end of a span as two rows, so that a mean over rows is the mean of both."""
    if not fields:
        return None
    return next(iter(fields.values())) if len(fields) == 1 else torch.stack(list(fields.values()), dim=1)


def trains(module: nn.Module) -> bool:
    """Whether a module has a parameter that is trained."""
    return any(parameter.requires_grad for parameter in module.parameters())


class Capture:
    """Takes named tensors out of a model's forward.

    The hooks stay until `close`: with activation checkpointing the backward pass runs layers again, and they must take
    the same way through the code (an encoder of this package fuses its projections where nothing hangs on them).

    Args:
        model: a model of a known layout, see `layout_of`.
        names: what is wanted, such as `hidden.0` or `query.3`.

    Raises:
        ValueError: a name of another kind, or a layer that the model does not have.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(
        ...     vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8
        ... )
        >>> model = BertModel(config)
        >>> capture = Capture(model, ["hidden.2", "query.1"])
        >>> capture.start()
        >>> _ = model(input_ids=torch.tensor([[1, 2, 3]]))
        >>> {name: tuple(value.shape) for name, value in capture.take().items()}
        {'query.1': (1, 3, 8), 'hidden.2': (1, 3, 8)}
    """

    def __init__(self, model: nn.Module, names: Iterable[str]):
        self.names = sorted(set(names))
        self.model = model
        self._recording = False
        self._seen: dict[str, torch.Tensor] = {}
        self._calls: dict[str, int] = {}
        self._sources: dict[str, nn.Module] = {}
        self._handles: list[Any] = []
        if not self.names:
            return
        layers = ModelShape.of(model).layers
        layout = layout_of(model)
        at: dict[tuple[str, str], tuple[nn.Module, dict[int, list[str]]]] = {}
        for name in self.names:
            kind, layer = self._parse(name, layers)
            hooked, way, source = self._place(kind, layer, layers)
            self._sources[name] = source
            # One module that stands for all layers gives its n-th call's output as layer n's.
            call = layer if layout.shared and hooked is not base_model(model) else 0
            at.setdefault((str(id(hooked)), way), (hooked, {}))[1].setdefault(call, []).append(name)
        for (_, way), (hooked, wanted) in at.items():
            self._hook(hooked, way, wanted)

    def _parse(self, name: str, layers: int) -> tuple[str, int]:
        kind, _, number = name.partition(".")
        if kind not in (*STATES, *PROJECTIONS) or not number.isdigit():
            raise ValueError(
                f"`names` must be of the kinds {', '.join((*STATES, *PROJECTIONS))} with a number, such as 'query.3', "
                f"got {name!r}."
            )
        most = layers if kind in STATES else layers - 1
        if int(number) > most:
            raise ValueError(f"`names` has {name!r}, but {type(plain_model(self.model)).__name__} ends with {most}.")
        return kind, int(number)

    def _place(self, kind: str, layer: int, layers: int) -> tuple[nn.Module, str, nn.Module]:
        """Which module is hooked, at its input or output, and which one makes the tensor."""
        if kind in PROJECTIONS:
            module = projection(self.model, kind, layer)
            return module, "output", module
        base = base_model(self.model)
        if layer == layers:
            return base, "output", layer_module(self.model, layer - 1)
        source = layer_module(self.model, layer - 1) if layer else getattr(base, "embeddings", base)
        return layer_module(self.model, layer), "input", source

    def _hook(self, module: nn.Module, way: str, wanted: dict[int, list[str]]) -> None:
        slot = f"{id(module)} {way}"
        # Partials of methods rather than closures: a student is copied and pickled with what hangs on it.
        if way == "input":
            hook = partial(self._on_input, slot, wanted)
            self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        else:
            self._handles.append(module.register_forward_hook(partial(self._on_output, slot, wanted)))

    def _on_input(
        self, slot: str, wanted: dict[int, list[str]], _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._recording:
            self._keep(slot, wanted, args[0] if args else kwargs["hidden_states"])

    def _on_output(
        self, slot: str, wanted: dict[int, list[str]], _: nn.Module, args: tuple[Any, ...], output: Any
    ) -> None:
        if self._recording:
            self._keep(slot, wanted, first_tensor(output))

    def _keep(self, slot: str, wanted: dict[int, list[str]], tensor: torch.Tensor) -> None:
        call = self._calls.get(slot, 0)
        self._calls[slot] = call + 1
        for name in wanted.get(call, ()):
            self._seen[name] = tensor[:, 0] if name.startswith("first.") else tensor

    def start(self) -> None:
        """Begin to record: what the next forward makes is kept."""
        self._seen.clear()
        self._calls.clear()
        self._recording = True

    def take(self, gradients: bool = False) -> dict[str, torch.Tensor]:
        """End the recording and hand over what was seen."""
        self._recording = False
        seen = dict(self._seen)
        self._seen.clear()
        missing = [name for name in self.names if name not in seen]
        model = type(plain_model(self.model)).__name__
        if missing:
            raise ValueError(
                f"{model} gave nothing for {', '.join(missing)}: its forward computes them without calling the "
                "modules that hold them, or it did not run. Objectives on them would be 0 without notice."
            )
        if gradients:
            cut = [name for name in self.names if not seen[name].requires_grad and trains(self._sources[name])]
            if cut:
                raise ValueError(
                    f"{model} gave {', '.join(cut)} without a gradient, so their objectives would train nothing. "
                    "Reentrant activation checkpointing does this: set "
                    '`activation_checkpointing_kwargs={"use_reentrant": False}`.'
                )
        return seen

    def close(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
