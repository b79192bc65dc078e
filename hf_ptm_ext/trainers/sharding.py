"""Models that FSDP2 shards over several processes: where they are cut, and whole again to evaluate and to save."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils import OPTIMIZER_NAME, DynamoBackend, broadcast_object_list
from torch import nn
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

from .manifest import TypedTrainer
from .master_weights import FP32

# Options of FSDP that would train another model, and why.
REFUSED = {
    "cpu_ram_efficient_loading": "every process reads the weights, to evaluate the whole model before training.",
    "activation_checkpointing": "it computes layers again with other dropout than they had. Take "
    "`gradient_checkpointing`, which keeps it.",
}


def layers_to_shard(model: nn.Module) -> list[str]:
    """Classes whose modules are sharded one by one: those that are not split, and share no weight with the rest."""
    owners: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), set()).add(name)
    whole = {name for module in model.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    alone, shared = set[str](), set[str]()
    for name, module in model.named_modules():
        if type(module).__name__ in whole:
            inside = all(
                all(owner.startswith(f"{name}.") for owner in owners[id(parameter)])
                for parameter in module.parameters()
            )
            (alone if inside else shared).add(type(module).__name__)
    tables = {type(module).__name__ for module in model.modules() if _looks_up(module)}
    return sorted(alone - shared - tables)


def _looks_up(module: nn.Module) -> bool:
    """Whether a module has tables of its own: the part in front of the layers, which heads may read too."""
    return any(isinstance(child, nn.Embedding) for child in module.children())


def local(value: torch.Tensor) -> torch.Tensor:
    """What this process holds of a tensor that may be sharded."""
    to_local = getattr(value, "to_local", None)
    return value if to_local is None else to_local()


class ShardedModels(TypedTrainer):
    """`transformers.Trainer` that shards by FSDP2 any model of the package, by `fsdp` or by accelerate's config.

    Each layer is a unit; embeddings, heads and whatever shares weights are one more, whole during a step. An
    evaluation gathers all weights once, or comes before they are sharded: every process then has the whole model, so
    metrics and generated texts are those of one process. What `save_model` writes is one whole checkpoint.
    """

    def create_accelerator_and_postprocess(self) -> None:
        """As upstream; what cannot be sharded is refused."""
        self._scalars: list[str] = []
        if self.args.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
            if (weights := getattr(self.args, "weights", FP32)) != FP32:
                raise ValueError(f"`weights` = {weights} does not go with FSDP: leave one out, or take --bf16 true.")
            self._refuse(FullyShardedDataParallelPlugin(**(self.args.fsdp_plugin_args or {})))
        super().create_accelerator_and_postprocess()
        if self.args.fsdp and not self.is_fsdp_enabled:
            raise ValueError(
                f"`fsdp` = {self.args.fsdp} shards models over GPUs, and this run has the device {self.args.device}: "
                "leave it out."
            )
        if self.is_fsdp_enabled and self._plugin.mixed_precision_policy is not None:
            # Losses and sums of gradients in full precision, as without shards.
            precise = replace(self._plugin.mixed_precision_policy, output_dtype=None, reduce_dtype=torch.float32)
            self._plugin.mixed_precision_policy = precise

    @staticmethod
    def _refuse(plugin: Any) -> None:
        if plugin.fsdp_version != 2:
            raise ValueError(
                f"`fsdp_config` must have version 2, got {plugin.fsdp_version}: FSDP1 is deprecated, and does not "
                'evaluate what it shards. Take {"version": 2}, or fsdp_version: 2 in accelerate\'s file.'
            )
        for name, reason in REFUSED.items():
            if value := getattr(plugin, name):
                raise ValueError(f"`{name}` of FSDP must be false, got {value}: {reason}")

    @property
    def _plugin(self) -> Any:
        return self.accelerator.state.fsdp_plugin if self.is_fsdp_enabled else None

    # ---- sharded ----

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; the model is cut where no weight is on both sides."""
        model = self.model
        if not self.is_fsdp_enabled or isinstance(model, FSDPModule):
            return super()._prepare_for_training(*args, **kwargs)
        named = (self.args.fsdp_config or {}).get("transformer_layer_cls_to_wrap")
        if not named and not os.environ.get("FSDP_TRANSFORMER_CLS_TO_WRAP"):
            self._plugin.transformer_cls_names_to_wrap = layers_to_shard(model)
        self._scalars_to_vectors()
        compilation = self.accelerator.state.dynamo_plugin
        backend = compilation.backend
        if backend != DynamoBackend.NO:
            self._compile_layers(compilation.to_kwargs())
            compilation.backend = DynamoBackend.NO
        # Accelerate would shard the embeddings that a model names apart from what is tied to them.
        hidden = [name for name in ("get_input_embeddings", "get_output_embeddings") if hasattr(model, name)]
        for name in hidden:
            setattr(model, name, lambda: None)
        try:
            prepared = super()._prepare_for_training(*args, **kwargs)
        finally:
            compilation.backend = backend
            for name in hidden:
                delattr(model, name)
        if hasattr(self.model, "evaluation_sums"):
            register_fsdp_forward_method(self.model, "evaluation_sums")
        return prepared

    def _compile_layers(self, options: dict[str, Any]) -> None:
        """Each sharded layer is compiled by itself: gathering weights between two would break a graph of the whole."""
        for layer in self.model.modules():
            if type(layer).__name__ in (self._plugin.transformer_cls_names_to_wrap or ()):
                layer.forward = torch.compile(layer.forward, **options)

    def _scalars_to_vectors(self) -> None:
        """FSDP has no way to shard a parameter without dimensions: until it is saved it is a vector of one."""
        self._scalars = [name for name, value in self.model.named_parameters() if value.dim() == 0]
        for name in self._scalars:
            place, _, last = name.rpartition(".")
            old = self.model.get_parameter(name)
            setattr(self.model.get_submodule(place), last, nn.Parameter(old.data.reshape(1), old.requires_grad))

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """As upstream; what had no gradient yet, and so has no state in the checkpoint, gets none."""
        without = []
        if self.is_fsdp_enabled and checkpoint is not None:
            known = self._names_with_state(Path(checkpoint))
            trained = [(name, value) for name, value in self.model.named_parameters() if value.requires_grad]
            without = [value for name, value in trained if name.replace("_orig_mod.", "") not in known]
        for parameter in without:
            parameter.requires_grad_(False)  # torch would expect its state
        super()._load_optimizer_and_scheduler(checkpoint)
        for parameter in without:
            parameter.requires_grad_(True)

    def _names_with_state(self, checkpoint: Path) -> set[str]:
        """Parameters of whose optimizer state a checkpoint has something."""
        if (checkpoint / f"{OPTIMIZER_NAME}_0").is_dir():
            found = FileSystemReader(checkpoint / f"{OPTIMIZER_NAME}_0").read_metadata().state_dict_metadata
            return {name.removeprefix("optimizer.state.").rpartition(".")[0] for name in found}
        names: list[Any] = [None]
        if self.is_world_process_zero():
            names = [set(torch.load(checkpoint / f"{OPTIMIZER_NAME}.bin", weights_only=True, mmap=True)["state"])]
        return broadcast_object_list(names)[0]

    # ---- whole again ----

    @contextmanager
    def whole_model(self) -> Iterator[None]:
        """In the block each process has all weights of the model, and runs it without waiting for the others."""
        if not self.is_fsdp_enabled:
            yield
            return
        units = [module for module in self.model.modules() if isinstance(module, FSDPModule)]
        if not units:
            with self._replicated():
                yield
            return
        for unit in units:
            unit.unshard()
        layers = [unit for unit in units if unit is not self.model]
        for layer in layers:
            layer.set_reshard_after_forward(False, recurse=False)
        try:
            yield
        finally:
            for layer in layers:
                layer.set_reshard_after_forward(bool(self._plugin.reshard_after_forward), recurse=False)
            for unit in units:
                unit.reshard()

    @contextmanager
    def _replicated(self) -> Iterator[None]:
        """Before training, when nothing is sharded, the run is one of processes that each have the whole model."""
        self.model.to(self.args.device)
        self.is_fsdp_enabled = False
        try:
            yield
        finally:
            self.is_fsdp_enabled = True
            # Training casts by other means than an evaluation.
            self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False, keep_torch_compile=True)
            self.accelerator._models.clear()
            self.model_wrapped = self.model

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream, on the whole model."""
        with self.whole_model():
            return super().evaluation_loop(*args, **kwargs)

    def whole_state(self) -> dict[str, torch.Tensor] | None:
        """All weights of a sharded model, in the first process alone; `None` for other models.

        Every process must ask for them.
        """
        if not self.is_fsdp_enabled:
            return None
        state = self.accelerator.get_state_dict(self.model)
        first: dict[int, str] = {}
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            name = name.replace("_orig_mod.", "")
            if name in state:  # weights that are tied are one again
                state[name] = state[first.setdefault(id(parameter), name)]
        return {name: value.reshape(()) if name in self._scalars else value for name, value in state.items()}

    @property
    def saved_model(self) -> Any:
        """The plain model that checkpoints hold."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def save_whole(self, folder: str | Path, state: dict[str, torch.Tensor] | None) -> None:
        """Write `saved_model`, of a sharded one the weights of `whole_state`; for the first process alone."""
        with plain_class(self.saved_model) as model:
            model.save_pretrained(folder, state_dict=state)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As upstream; of a sharded model everything, but for checkpoints, which hold its shards."""
        checkpoint = _internal_call and output_dir is not None
        if not self.is_fsdp_enabled or (checkpoint and "SHARDED" in str(self._plugin.state_dict_type)):
            super().save_model(output_dir, _internal_call)
            return
        with plain_class(self.accelerator.unwrap_model(self.model, keep_torch_compile=False)):
            self._save(output_dir, state_dict=self.whole_state())
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)


@contextmanager
def plain_class(model: Any) -> Iterator[Any]:
    """In the block a sharded model is of its own class, whose code files a checkpoint carries."""
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    classes = [type(module) for module in sharded]
    for module, cls in zip(sharded, classes, strict=True):
        module.__class__ = cls.__mro__[2]
    try:
        yield model
    finally:
        for module, cls in zip(sharded, classes, strict=True):
            module.__class__ = cls
