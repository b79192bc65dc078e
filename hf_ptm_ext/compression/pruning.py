"""Magnitude pruning, once or gradually while a Trainer trains (Gordon et al. 2020, https://arxiv.org/abs/2002.08307).

Of every weight matrix (projections and embeddings; no biases, no LayerNorms) the entries of the smallest magnitude
become zero and stay zero. The ranking is that of `torch.nn.utils.prune`; masks are not kept beside the weights but are
their zeros, so every checkpoint of a run is a plain one.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils import prune
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

MATRIX, GLOBAL = "matrix", "global"
SCOPES = (MATRIX, GLOBAL)
SCHEDULES = ("cubic", "linear", "stepwise", "constant")
STEPS = 5  # of the stepwise schedule


def prunable_matrices(model: nn.Module, exclude: Sequence[str] = ()) -> dict[str, nn.Parameter]:
    """The weights of all `nn.Linear` and `nn.Embedding`, each once, under the names of the state dict.

    Args:
        model: any model.
        exclude: regular expressions; a matrix whose name one of them finds stays whole.

    Returns:
        Name -> parameter.

    Raises:
        ValueError: nothing is left.

    Examples:
        >>> list(prunable_matrices(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 2)), ["^2"]))
        ['0.weight']
    """
    found: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    for path, module in model.named_modules():
        name = f"{path}.weight".lstrip(".")
        weight: Any = getattr(module, "weight", None)
        wanted = isinstance(module, nn.Linear | nn.Embedding) and isinstance(weight, nn.Parameter)
        if not wanted or id(weight) in seen or any(re.search(one, name) for one in exclude):
            continue
        seen.add(id(weight))
        found[name] = weight
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no matrix that can be pruned, or `exclude` = {list(exclude)} names them all."
        )
    return found


def magnitude_masks(
    matrices: dict[str, torch.Tensor], sparsity: float, scope: str = MATRIX
) -> dict[str, torch.Tensor]:
    """Which entries stay: all but the share of the smallest magnitude.

    Args:
        matrices: name -> weights.
        sparsity: share of zeros, in [0, 1).
        scope: `matrix`, that share of each one (paper); `global`, of all together.

    Returns:
        Name -> bool mask of the matrix's shape.

    Raises:
        ValueError: `sparsity` or `scope` is none.

    Examples:
        >>> magnitude_masks({"w": torch.tensor([[1.0, -3.0], [0.1, 2.0]])}, 0.5)["w"].tolist()
        [[False, True], [False, True]]
    """
    _check(sparsity, scope)
    with torch.no_grad():
        if scope == GLOBAL:
            flat = torch.cat([value.detach().abs().flatten().float() for value in matrices.values()])
            masks = _smallest(flat, sparsity).split([value.numel() for value in matrices.values()])
            return {name: mask.view_as(value) for (name, value), mask in zip(matrices.items(), masks, strict=True)}
        return {name: _smallest(value.detach(), sparsity) for name, value in matrices.items()}


def _smallest(values: torch.Tensor, sparsity: float) -> torch.Tensor:
    amount = round(sparsity * values.numel())
    return prune.L1Unstructured(amount).compute_mask(values, torch.ones_like(values)).bool()


def _check(sparsity: float, scope: str) -> None:
    if not 0 <= sparsity < 1:
        raise ValueError(f"`sparsity` must be a share in [0, 1), got {sparsity}.")
    if scope not in SCOPES:
        raise ValueError(f"`scope` must be one of {', '.join(SCOPES)}, got {scope!r}.")


def prune_model(model: Any, sparsity: float, scope: str = MATRIX, exclude: Sequence[str] = ()) -> Any:
    """Prune a model at once, in place.

    Args:
        model: any model.
        sparsity: share of zeros, in [0, 1).
        scope: `matrix` or `global`, see `magnitude_masks`.
        exclude: regular expressions of names of matrices that stay whole.

    Returns:
        The same model; `save_pretrained` writes a plain checkpoint.

    Raises:
        ValueError: as `magnitude_masks` and `prunable_matrices`.

    Examples:
        >>> round(sparsity_report(prune_model(nn.Linear(8, 8), 0.25))["total"]["sparsity"], 2)
        0.25
    """
    matrices: dict[str, Any] = dict(prunable_matrices(model, exclude))
    with torch.no_grad():
        for name, mask in magnitude_masks(matrices, sparsity, scope).items():
            matrices[name].mul_(mask)
    return model


def apply_masks(model: Any) -> Any:
    """Make what `torch.nn.utils.prune` has masked plain weights again, zeros included, in place.

    Args:
        model: any model; weights without a mask stay as they are.

    Returns:
        The same model, whose state dict has the usual names.

    Examples:
        >>> list(apply_masks(prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)).state_dict())
        ['bias', 'weight']
    """
    for module in model.modules():
        for name in [key.removesuffix("_mask") for key in module._buffers if key.endswith("_mask")]:
            if f"{name}_orig" in module._parameters:
                prune.remove(module, name)
    return model


def sparsity_report(model: nn.Module, exclude: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """How many entries of each matrix are zero.

    Args:
        model: any model.
        exclude: as `prunable_matrices`.

    Returns:
        Name of the matrix, and `total`, -> `size`, `zeros` and their share `sparsity`.

    Examples:
        >>> sparsity_report(prune_model(nn.Linear(4, 4), 0.5))["weight"]
        {'size': 16, 'zeros': 8, 'sparsity': 0.5}
    """
    report: dict[str, dict[str, float]] = {}
    for name, value in prunable_matrices(model, exclude).items():
        report[name] = {"size": value.numel(), "zeros": int((value == 0).sum())}
    sums = {key: sum(one[key] for one in report.values()) for key in ("size", "zeros")}
    report["total"] = sums
    for one in report.values():
        one["sparsity"] = one["zeros"] / one["size"]
    return report


def sparsity_at(progress: float, sparsity: float, schedule: str = "cubic", initial: float = 0.0) -> float:
    """The share of zeros at a point of the schedule.

    Args:
        progress: how much of the schedule is over, in [0, 1].
        sparsity: the share at its end.
        schedule: `cubic` (Zhu and Gupta 2017: fast first), `linear`, `stepwise` (five equal steps) or `constant`.
        initial: the share at its beginning.

    Returns:
        The share.

    Raises:
        ValueError: an unknown schedule.

    Examples:
        >>> [round(sparsity_at(part, 0.8), 4) for part in (0, 0.5, 1)]
        [0.0, 0.7, 0.8]
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"`schedule` must be one of {', '.join(SCHEDULES)}, got {schedule!r}.")
    done = min(max(progress, 0.0), 1.0)
    shape = {
        "cubic": 1 - (1 - done) ** 3,
        "linear": done,
        "stepwise": int(done * STEPS + 1e-9) / STEPS,
        "constant": 1.0,
    }[schedule]
    return initial + (sparsity - initial) * shape


class PruningCallback(TrainerCallback):
    """Magnitude pruning for any Trainer: prunes by a schedule, and keeps what is pruned at zero.

    The share of zeros follows from the update's number, the masks are the weights' zeros: checkpoints are plain, and
    a resumed run is the whole one. A checkpoint that has fewer zeros than its update must have is refused.

    Args:
        sparsity: share of zeros at the end, in [0, 1).
        scope: `matrix` (paper) or `global`, see `magnitude_masks`.
        schedule: see `sparsity_at`; `constant` prunes before the first update, and trains what is left.
        begin: share of the updates after which pruning begins (default 0).
        end: share of the updates after which it is complete (default 0.5: then the rest trains on under its masks).
        every: updates between two prunings (default 10).
        initial: share of zeros at the beginning.
        exclude: regular expressions of names of matrices that stay whole.

    Raises:
        ValueError: a value out of its range; while training: a checkpoint that was not pruned so, or sharded weights.

    Examples:
        >>> callback = PruningCallback(0.6, scope="global")  # Trainer(..., callbacks=[callback])
    """

    def __init__(
        self,
        sparsity: float,
        scope: str = MATRIX,
        schedule: str = "cubic",
        begin: float = 0.0,
        end: float = 0.5,
        every: int = 10,
        initial: float = 0.0,
        exclude: Sequence[str] = (),
    ):
        _check(sparsity, scope)
        sparsity_at(0.0, sparsity, schedule)
        if not 0 <= begin <= end <= 1:
            raise ValueError(f"`begin` and `end` must be rising shares of the updates, got {begin} and {end}.")
        if not 0 <= initial <= sparsity:
            raise ValueError(f"`initial` must be in [0, `sparsity` = {sparsity}], got {initial}.")
        if every < 1:
            raise ValueError(f"`every` must be at least 1, got {every}.")
        self.sparsity, self.scope, self.schedule, self.initial = sparsity, scope, schedule, initial
        self.begin, self.end, self.every, self.exclude = begin, end, every, tuple(exclude)
        self.masks: dict[str, torch.Tensor] = {}
        self._matrices: dict[str, Any] = {}
        self._hooks: list[Any] = []

    def share(self, step: int, steps: int) -> float:
        """The share of zeros after `step` of `steps` updates."""
        first, last = int(self.begin * steps), int(self.end * steps)
        if self.schedule == "constant":
            return self.sparsity if step >= first else self.initial
        if step < first:
            return self.initial if self.initial else 0.0
        pruned = last if step >= last else first + (step - first) // self.every * self.every
        progress = (pruned - first) / (last - first) if last > first else 1.0
        return sparsity_at(progress, self.sparsity, self.schedule, self.initial)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Prune what the schedule begins with, or find the masks of a resumed run."""
        if args.fsdp or args.deepspeed:
            raise ValueError(
                f"Pruning ranks whole matrices, and `fsdp` = {args.fsdp} or `deepspeed` = {args.deepspeed} shards "
                "them: leave them out."
            )
        self._matrices = dict(prunable_matrices(kwargs["model"], self.exclude))
        share = self.share(state.global_step, state.max_steps)
        if state.global_step:
            self._check_resumed(share, state.global_step)
        self._prune(share)
        self._hooks = [value.register_hook(self._masked(name)) for name, value in self._matrices.items()]

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep zeros at zero: the optimizer's moments may still move them."""
        with torch.no_grad():
            for name, mask in self.masks.items():
                self._matrices[name].mul_(mask)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Prune further where the schedule says so."""
        share = self.share(state.global_step, state.max_steps)
        if share > self.share(state.global_step - 1, state.max_steps):
            self._prune(share)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the share of zeros to the log."""
        if kwargs.get("logs") is not None and "loss" in kwargs["logs"]:
            share = round(self.share(state.global_step, state.max_steps), 4)
            kwargs["logs"]["sparsity"] = state.log_history[-1]["sparsity"] = share

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Let the weights go, pruned."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._matrices = [], {}

    def _masked(self, name: str) -> Any:
        return lambda gradient: gradient if name not in self.masks else gradient * self.masks[name]

    def _prune(self, share: float) -> None:
        if not share:
            return
        self.masks = magnitude_masks(self._matrices, share, self.scope)
        with torch.no_grad():
            for name, mask in self.masks.items():
                self._matrices[name].mul_(mask)

    def _check_resumed(self, share: float, step: int) -> None:
        wanted = self._matrices if self.scope == MATRIX else {"all matrices": None}
        for name in wanted:
            values = list(self._matrices.values()) if self.scope == GLOBAL else [self._matrices[name]]
            zeros, size = sum(int((one == 0).sum()) for one in values), sum(one.numel() for one in values)
            if zeros < round(share * size):
                raise ValueError(
                    f"`resume_from_checkpoint`: after {step} updates {share:.1%} of {name} must be zero, got "
                    f"{zeros / size:.1%}. It was pruned by another schedule, or not at all: resume with its own "
                    "options, or start a new run from its weights."
                )
