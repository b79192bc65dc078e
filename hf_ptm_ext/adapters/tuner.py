"""Houlsby and Pfeiffer adapters as PEFT tuners: what is wrapped, by what, and what is trained beside it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from peft.tuners.tuners_utils import BaseTuner, check_target_module_exists
from peft.utils import ModulesToSaveWrapper, TaskType
from torch import nn

from .configuration import BottleneckConfig
from .layers import CANNOT_MERGE, BottleneckLayer, HoulsbyLayer, PfeifferLayer
from .placements import PLACEMENTS, Placement
from .trained import is_layer_norm, layer_norm_names, never_trained_norms, new_parts, plain_modules, unwrapped

_NUMBERED = re.compile(r"(?:.*?\.)?\d+(?=\.|$)")


class BottleneckModel(BaseTuner):
    """What the tuners of both methods share."""

    method: ClassVar[str]
    target_module_mapping: Any  # model type -> regular expression

    # Layers whose dropout the wrappers draw -> its probability.
    _residual_dropouts: dict[str, float]
    # LayerNorms that the model itself keeps frozen.
    _never_trained: list[str]
    # Name of a layer -> its number, of the adapter that is being added.
    _layer_numbers: dict[str, int]

    def _pre_injection_hook(self, model: nn.Module, config: Any, adapter_name: str) -> None:
        self._residual_dropouts = {}
        self._never_trained = never_trained_norms(model)

    # ---- what is wrapped ----

    def _placement(self) -> Placement | None:
        return PLACEMENTS.get(self._model_type())

    def _model_type(self) -> str:
        return self.get_model_config(self.model).get("model_type") or ""

    def _prepare_adapter_config(self, peft_config: Any, model_config: dict) -> BottleneckConfig:
        """Fill in the targets, and the modules that are trained whole."""
        self._fill_in_targets(peft_config)
        targets = self._target_names(peft_config)
        self._check_targets_are_not_saved_whole(peft_config, targets)
        layers = list(dict.fromkeys(self._layer_of(name) for name in targets))
        unknown = [number for number in peft_config.leave_out if number >= len(layers)]
        if layers and unknown:
            raise ValueError(f"`leave_out` must be numbers below {len(layers)}, the number of layers, got {unknown}.")
        if layers and len(peft_config.leave_out) == len(layers):
            raise ValueError(f"`leave_out` must leave a layer with adapters, got all {len(layers)}.")
        self._layer_numbers = {layer: number for number, layer in enumerate(layers)}
        self._train_whole(peft_config, targets)
        _share_labels(peft_config, self.model)
        return peft_config

    def _fill_in_targets(self, peft_config: Any) -> None:
        if peft_config.target_modules is not None:
            return
        attribute = f"_peft_{self.method}_target_modules"
        targets = getattr(self.model, attribute, None) or self.target_module_mapping.get(self._model_type())
        if targets is None:
            raise ValueError(
                f"`target_modules` must be given: where {self.method} adapters go in a model of `model_type` "
                f"{self._model_type()!r} is not known. Pass a regular expression of the modules' names (that of BERT: "
                f"{self.target_module_mapping['bert']!r}), or set `{attribute}` on the model class."
            )
        peft_config.target_modules = targets if isinstance(targets, str) else set(targets)

    def _target_names(self, peft_config: BottleneckConfig) -> list[str]:
        """Names of the modules that the targets match, in layers that are left out and in `modules_to_save` too."""
        matched_alone = replace(peft_config, modules_to_save=None)
        return [name for name, _ in plain_modules(self.model) if check_target_module_exists(matched_alone, name)]

    def _layer_of(self, name: str) -> str:
        """Name of the layer that a module belongs to: by the architecture, or up to the first number."""
        placement = self._placement()
        match = re.match(rf"(?:.*?\.)?{placement.layer}(?=\.|$)", name) if placement is not None else None
        match = match or _NUMBERED.match(name)
        return match[0] if match else name

    def _check_target_module_exists(self, peft_config: Any, key: str) -> Any:  # type: ignore[override]
        """As PEFT's, without the layers that are left out."""
        found = check_target_module_exists(peft_config, key)
        if found and self._layer_numbers.get(self._layer_of(key)) in peft_config.leave_out:
            return False
        return found

    # ---- what is trained beside the adapters ----

    def _check_targets_are_not_saved_whole(self, peft_config: BottleneckConfig, targets: list[str]) -> None:
        """PEFT would leave such targets out without a word, or refuse them all."""
        lost = [name for name in targets if not check_target_module_exists(peft_config, name)]
        if lost:
            raise ValueError(
                f"`modules_to_save` = {peft_config.modules_to_save} names modules where adapters go, such as "
                f"`{lost[0]}`. Name others; LayerNorms are trained with `train_layer_norms=True`."
            )

    def _train_whole(self, peft_config: BottleneckConfig, targets: list[str]) -> None:
        """Add new heads and, if they are trained, LayerNorms to `modules_to_save`."""
        names = list(peft_config.modules_to_save or ())
        if peft_config.task_type != TaskType.FEATURE_EXTRACTION:
            names += [name for name in new_parts(self.model) if not name.endswith(tuple(names))]
        if peft_config.train_layer_norms:
            whole = [name for name, _ in plain_modules(self.model) if name.endswith(tuple(names))]
            norms = layer_norm_names(self.model, targets, [*whole, *self._never_trained])
            inside = [name for name in targets if _has_layer_norm_inside(self.model.get_submodule(name))]
            if inside:
                raise ValueError(
                    f"`train_layer_norms` must be False for {self.method} adapters in a {self._model_type()!r} model: "
                    f"adapters wrap `{inside[0]}` with a LayerNorm in it, of which PEFT trains no copy."
                )
            names += [name for name in norms if name not in names]
        peft_config.modules_to_save = names or None

    # ---- wrapping ----

    def _create_and_replace(
        self,
        peft_config: Any,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        parameter_name: str | None = None,
    ) -> None:
        self._take_over_dropout(current_key)
        target = getattr(parent, target_name)  # may be wrapped by now
        layer = target if isinstance(target, BottleneckLayer) else self._wrap(parent, target_name, target)
        number = self._layer_numbers[self._layer_of(current_key)]
        layer.update_layer(adapter_name, peft_config, number, _parameter_near(layer, parent))
        layer.set_adapter(self.active_adapters, inference_mode=peft_config.inference_mode)

    def _wrap(self, parent: nn.Module, name: str, module: nn.Module) -> BottleneckLayer:
        """Put a wrapper in the place of a module."""
        wrapper = self._new_layer(module, self._hidden_size(module, parent)).train(module.training)
        setattr(parent, name, wrapper)
        return wrapper

    def _new_layer(self, module: nn.Module, hidden_size: int) -> BottleneckLayer:
        raise NotImplementedError(f"`{type(self).__name__}._new_layer` must give the wrapper. Subclasses define it.")

    def _take_over_dropout(self, key: str) -> None:
        """Nothing, where adapters act on the sum."""

    def _hidden_size(self, module: nn.Module, parent: nn.Module) -> int:
        """Width of what a module returns: its own, that of a LayerNorm beside it, or the model's."""
        if isinstance(module, nn.Linear):
            return module.out_features
        parts: list[Any] = [unwrapped(part) for part in (module, *parent.children())]
        for part in parts:
            if is_layer_norm(part):
                return part.weight.shape[-1]
        config = getattr(self.model, "config", None)
        size = getattr(config, "hidden_size", None) or getattr(config, "d_model", None)
        if size is None:
            raise ValueError(
                "`target_modules` must name linear layers or LayerNorms in a model whose config has no `hidden_size`, "
                f"got a {type(module).__name__}, which does not tell its width."
            )
        return size

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        """Put a module in its place; adapters are on the right device from the start, and a dropout has no weight."""
        setattr(parent, child_name, new_module)

    # ---- several adapters in a batch ----

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """`adapter_names` of PEFT's forward and generate reach every module that has weights of an adapter."""
        names = kwargs.get("adapter_names")
        if kwargs.get("alora_offsets") is not None:
            raise ValueError(f"`alora_offsets` must be None for {self.method} adapters, which act on every token.")
        if names is None:
            yield
            return
        if self.training:
            raise ValueError(
                f"`adapter_names` must be None in training, got {names}. Call `model.eval()`, or train one at a time."
            )
        unknown = sorted({*names} - {*self.peft_config, "__base__"})
        if unknown:
            raise ValueError(f"`adapter_names` must be of {[*self.peft_config, '__base__']}, got {unknown}.")
        handles = []
        for module in self.modules():
            if isinstance(module, BottleneckLayer):
                handles.append(module.register_forward_pre_hook(partial(_name_rows, list(names)), with_kwargs=True))
            elif isinstance(module, ModulesToSaveWrapper):
                handles.append(module.register_forward_hook(partial(_mixed_copies, list(names)), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    # ---- switching and taking off ----

    def set_adapter(self, adapter_name: str | list[str], inference_mode: bool = False) -> None:
        """As PEFT's."""
        if not isinstance(adapter_name, str) and len(adapter_name) > 1:
            raise ValueError(f"`adapter_name` must be one {self.method} adapter, got {list(adapter_name)}.")
        super().set_adapter(adapter_name, inference_mode=inference_mode)

    def _check_merge_allowed(self) -> None:
        raise ValueError(CANNOT_MERGE)

    def _unload_and_optionally_merge(self, merge: bool = True, *args: Any, **kwargs: Any) -> Any:
        if merge:
            self._check_merge_allowed()
        # PEFT would leave the trained copies of LayerNorms and heads in the model: it would be neither what it was nor
        # what was trained.
        for parent in list(self.model.modules()):
            for name, module in parent.named_children():
                if isinstance(module, ModulesToSaveWrapper):
                    setattr(parent, name, unwrapped(module))
        model: Any = super()._unload_and_optionally_merge(merge, *args, **kwargs)
        for name, probability in self._residual_dropouts.items():
            model.get_submodule(name).dropout = probability
        self._residual_dropouts.clear()
        return model


class HoulsbyModel(BottleneckModel):
    """A model with Houlsby adapters, see `HoulsbyConfig`; made by `peft.get_peft_model`."""

    prefix = "houlsby_"
    method = "houlsby"
    tuner_layer_cls = HoulsbyLayer
    target_module_mapping = {name: rf"(.*\.)?{placement.houlsby}" for name, placement in PLACEMENTS.items()}

    def _new_layer(self, module: nn.Module, hidden_size: int) -> HoulsbyLayer:
        return HoulsbyLayer(module, hidden_size)

    def _take_over_dropout(self, key: str) -> None:
        """Let wrappers draw the dropout of a layer that drops by a function, so that adapters stand behind it.

        All of its projections are wrapped, since they share one probability; the layer's own becomes 0 until the
        adapters are taken off.
        """
        placement, name = self._placement(), self._layer_of(key)
        if placement is None or not placement.dropped_projections or name in self._residual_dropouts:
            return
        layer = self.model.get_submodule(name)
        for path in placement.dropped_projections:
            owner_name, _, projection = path.rpartition(".")
            owner = getattr(layer, owner_name, None) if owner_name else layer
            if owner is not None:
                self._wrap(owner, projection, getattr(owner, projection)).residual_dropout = layer.dropout
        self._residual_dropouts[name] = layer.dropout
        layer.dropout = 0.0


class PfeifferModel(BottleneckModel):
    """A model with Pfeiffer adapters, see `PfeifferConfig`; made by `peft.get_peft_model`."""

    prefix = "pfeiffer_"
    method = "pfeiffer"
    tuner_layer_cls = PfeifferLayer
    target_module_mapping = {name: rf"(.*\.)?{placement.pfeiffer}" for name, placement in PLACEMENTS.items()}

    def _new_layer(self, module: nn.Module, hidden_size: int) -> PfeifferLayer:
        return PfeifferLayer(module, hidden_size, takes_sum=is_layer_norm(module))


def _of_rows(names: list[str], states: torch.Tensor) -> list[str]:
    """The adapter of each row; searches and several answers have a few rows for each text."""
    copies, rest = divmod(len(states), len(names) or 1)
    if rest or not copies:
        raise ValueError(f"`adapter_names` must have a name for each text, got {len(names)} for {len(states)} rows.")
    return [name for name in names for _ in range(copies)]


def _name_rows(names: list[str], module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Hand a wrapper the adapter of each of its rows."""
    states = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
    return args, {**kwargs, "adapter_names": _of_rows(names, states)}


def _mixed_copies(names: list[str], module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> torch.Tensor:
    """Let each row go through its own adapter's copy of a module; PEFT does so for few kinds of module."""
    named = _of_rows(names, output)
    size = len(output)
    mixed = torch.empty_like(output)
    for adapter in set(named):
        rows = [row for row, name in enumerate(named) if name == adapter]
        copy = dict(module.modules_to_save.items()).get(adapter, module.original_module)
        given = (value[rows] if isinstance(value, torch.Tensor) and len(value) == size else value for value in args)
        mixed[rows] = copy(*given, **kwargs)
    return mixed


def _has_layer_norm_inside(module: nn.Module) -> bool:
    return any(is_layer_norm(part) for name, part in unwrapped(module).named_modules() if name)


def _parameter_near(layer: BottleneckLayer, parent: nn.Module) -> torch.Tensor | None:
    """A floating-point parameter beside the new adapter; a dropout has none itself."""
    for module in (unwrapped(layer), parent):
        for parameter in module.parameters():
            if parameter.is_floating_point():
                return parameter
    return None


def _share_labels(peft_config: BottleneckConfig, model: Any) -> None:
    """Names of the classes go with the adapter, and back to a model that has none for them."""
    config: Any = getattr(model, "config", None)
    names = getattr(config, "id2label", None) or {}
    if any(name != f"LABEL_{number}" for number, name in names.items()):
        if peft_config.id2label is None:
            peft_config.id2label = {str(number): name for number, name in names.items()}
    elif peft_config.id2label and len(peft_config.id2label) == len(names):
        config.id2label = {int(number): name for number, name in peft_config.id2label.items()}
        config.label2id = {name: number for number, name in config.id2label.items()}
