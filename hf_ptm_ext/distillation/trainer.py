"""The Trainer of distillation: presets, terms in the log, exact accumulation and resume, plain checkpoints."""

import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback
from transformers.trainer_pt_utils import nested_detach

from ..trainers.auxiliary import PROJECTIONS_FILE
from ..trainers.base import from_checkpoint
from ..trainers.rows import is_resumable
from .arguments import DistillationArguments
from .base import CompressionTrainer
from .cache import TeacherCache, check_cacheable, row_digests
from .capture import logits_fields
from .checks import check_labels, check_vocabularies, columns_of, teacher_warning
from .dual_training import DualTrainModel
from .layouts import ModelShape
from .presets import DUALTRAIN, preset_objectives
from .progressive import is_open, layer_of_parameters, learning_rate_factors, phase_of
from .teachers import TeacherColumns
from .wrapper import REENTRANT, DistillationModel

logger = logging.getLogger(__name__)

LAYER = "distilled_layer"
NO_LAYER = -1


class ClosedLayers(TrainerCallback):
    """Progressive distillation: parameters whose turn has not come get no gradient, so Adam keeps no moments."""

    def __init__(self, total_steps: int, layers: int):
        self.total_steps = total_steps
        self.layers = layers

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        for group in optimizer.param_groups:
            layer = None if group[LAYER] == NO_LAYER else group[LAYER]
            if not is_open(layer, state.global_step, self.total_steps, self.layers):
                for parameter in group["params"]:
                    parameter.grad = None


class DistillationTrainer(CompressionTrainer):
    """Distils a student from one or several teachers.

    The loss is a mean over the update: accumulation and the number of processes change neither loss nor gradient.
    Exact for any row lengths are the terms that are means over rows, tokens or labels (labels, soft labels, cosine,
    patience, MiniLM's); TinyBERT's and MobileBERT's hidden-state and attention terms are means over padded rows, as in
    their references, and so are exact where the rows of all micro-batches are padded to the same length.

    Under DDP and FSDP every process has the whole teacher; the student and the projections are wrapped or sharded.

    Checkpoints hold the student under its own class, which loads with its Auto class, and beside it
    `distill_projections.safetensors` if the objectives have parameters.

    Args:
        model: the student, a model with the head that the objectives need, or a folder or repository of the Hub.
        teacher: one teacher or a list, likewise; they are frozen and put in evaluation mode.
        args: `DistillationArguments`.
        teacher_processing_class: the teachers' tokenizer, if it may differ from `processing_class`: vocabularies are
            compared, and columns that begin with `teacher_` are padded with it.
        eval_collator: collator of evaluation batches (default: a copy of the training one, reset before each
            evaluation).
        kwargs: as `transformers.Trainer`.

    Raises:
        TypeError: `args` are no `DistillationArguments`.
        ValueError: student, teacher, data and objectives do not fit together.

    Examples:
        >>> import tempfile
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(vocab_size=9, hidden_size=8, num_attention_heads=2, intermediate_size=8)
        >>> student = BertForSequenceClassification(BertConfig(num_hidden_layers=1, **sizes))
        >>> teacher = BertForSequenceClassification(BertConfig(num_hidden_layers=2, **sizes))
        >>> rows = [{"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "labels": n % 2} for n in range(4)]
        >>> args = DistillationArguments(
        ...     tempfile.mkdtemp(), preset="pkd", preset_options={"layers": [[1, 1]]}, use_cpu=True, report_to="none"
        ... )
        >>> trainer = DistillationTrainer(student, teacher, args, train_dataset=rows)
        >>> list(trainer.wrapper.terms), type(trainer.student).__name__
        (['label', 'soft_label', 'patience'], 'BertForSequenceClassification')
    """

    arguments_class = DistillationArguments
    reentrant_reason = REENTRANT
    auxiliary_file = PROJECTIONS_FILE
    # Each term is a mean; the Trainer divides by the number of micro-batches.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        model: nn.Module | str | PathLike[str] | None = None,
        teacher: Any = None,
        args: DistillationArguments | None = None,
        *,
        teacher_processing_class: Any = None,
        eval_collator: Any = None,
        **kwargs: Any,
    ):
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError(
                f"`compute_loss_func` must be None, got {kwargs['compute_loss_func']!r}: the loss is what the "
                "objectives make it."
            )
        several = isinstance(teacher, Sequence) and not isinstance(teacher, str)
        teachers = [from_checkpoint(one, "teacher") for one in (teacher if several else [teacher])]
        self._teacher = teachers if several else teachers[0]
        self._cache: TeacherCache | None = None
        super().__init__(model, args, eval_collator=eval_collator, **kwargs)
        wrapper = self.wrapper
        student = ModelShape.of(wrapper.model)
        self._takes_target_counts = True
        self._count_targets_of = wrapper.count_targets
        self._eval_terms: dict[str, torch.Tensor] = {}
        if teacher_processing_class is not None:
            self.data_collator = TeacherColumns(self.data_collator, teacher_processing_class)
            if eval_collator is None:
                self.eval_collator = copy.deepcopy(self.data_collator)
        columns = columns_of(self.train_dataset)
        check_vocabularies(student, wrapper.teachers, columns, self.processing_class, teacher_processing_class)
        check_labels(student, wrapper.teachers)
        if self.args.teacher_cache is not None:
            check_cacheable(wrapper.teachers.names)
        if self.args.is_progressive:
            self.add_callback(ClosedLayers(self.progressive_steps, student.layers))

    # ---- the wrapper ----

    def _wrapped(self, student: nn.Module) -> DistillationModel | DualTrainModel:
        wrapper = self._new_wrapper(student)
        if self.args.projections_from is not None:
            path = Path(self.args.projections_from)
            path = path / self.auxiliary_file if path.is_dir() else path
            if not path.is_file():
                raise ValueError(
                    f"`projections_from` must be a folder with {self.auxiliary_file}, got "
                    f"{self.args.projections_from}. A stage whose objectives have no parameters writes none."
                )
            wrapper.load_auxiliary_state_dict(load_file(str(path)))
        return wrapper

    def _new_wrapper(self, student: nn.Module) -> DistillationModel | DualTrainModel:
        args = self.args
        if args.preset == DUALTRAIN:
            if not isinstance(self._teacher, nn.Module):
                got = type(self._teacher).__name__ if self._teacher is None else f"{len(self._teacher)} in a list"
                raise ValueError(f"`teacher` must be one model in preset dualtrain, got {got}.")
            return DualTrainModel(student, self._teacher, **(args.preset_options or {}))
        objectives = args.objectives
        if args.preset is not None:
            objectives = preset_objectives(args.preset, student, **(args.preset_options or {}))
        several = getattr(getattr(student, "config", None), "problem_type", None) == "multi_label_classification"
        wrapper = DistillationModel(
            student,
            self._teacher,
            objectives,
            average=args.teacher_average,
            teacher_dtype=None if args.teacher_dtype is None else getattr(torch, args.teacher_dtype),
            teacher_in_eval=args.teacher_in_eval,
            label_smoothing=0.0 if several else args.label_smoothing_factor,
        )
        wrapper.teachers.to(args.device)
        return wrapper

    @property
    def student(self) -> Any:
        """The student."""
        return self.wrapper.model

    # ---- data ----

    def _input_columns(self) -> list[str]:
        """Columns of the student, of the teachers (plain and as `teacher_...`) and of the cache."""
        cached = [] if self.args.teacher_cache is None else [self.args.sample_id_column]
        return [*self.wrapper.columns, *cached]

    # ---- training ----

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; before it the teacher is compared with chance, and its cache written or read."""
        logger.info(f"Distilling {type(self.student).__name__} by {self.wrapper.described()}.")
        if self.wrapper.teachers.models:
            rows = list(self._rows_to_check(self.args.teacher_check_rows))
            warning = teacher_warning(self.wrapper.teachers, rows)
            if warning is not None:
                logger.warning(warning)
        if self.args.teacher_cache is not None:
            self._cache = self._teacher_cache(Path(self.args.teacher_cache))
        with self._frozen_encoder() if self.args.train_head_only else nullcontext():
            return super().train(*args, **kwargs)

    @contextmanager
    def _frozen_encoder(self) -> Iterator[None]:
        """The student's encoder gets no gradient, and is then as it was."""
        encoder = [parameter for parameter in self.student.base_model.parameters() if parameter.requires_grad]
        for parameter in encoder:
            parameter.requires_grad_(False)
        try:
            if not any(parameter.requires_grad for parameter in self.student.parameters()):
                raise ValueError(f"`train_head_only` needs a head, {type(self.student).__name__} has none to train.")
            yield
        finally:
            for parameter in encoder:
                parameter.requires_grad_(True)

    def _teacher_cache(self, path: Path) -> TeacherCache:
        """Read the cache; write it first if it is not there."""
        teachers, column = self.wrapper.teachers, self.args.sample_id_column
        fingerprint = f"{teachers.digest()} {teachers.average}"
        if not path.is_file() and self.is_world_process_zero():
            if not hasattr(self.train_dataset, "__len__") or is_resumable(self.train_dataset):
                raise ValueError(f"`teacher_cache` = {path} needs a training set of known length, not a stream.")

            def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]]:
                for batch in self._some_rows(self.train_dataset, len(self.train_dataset)):
                    yield self._sample_ids(batch), row_digests(batch), self._run_teachers(batch)

            TeacherCache.collect(batches()).save(path, fingerprint)
            logger.info(f"Wrote the teacher's outputs for {len(self.train_dataset)} rows ({column}) to {path}.")
        self.accelerator.wait_for_everyone()
        return TeacherCache.load(path, fingerprint, teachers.names)

    def _sample_ids(self, inputs: Mapping[str, Any]) -> torch.Tensor:
        ids = inputs.get(self.args.sample_id_column)
        if not torch.is_tensor(ids):
            raise ValueError(
                f"`teacher_cache` needs a column of numbers `{self.args.sample_id_column}` that stay with their rows "
                f"(`sample_id_column`), the batch has {', '.join(sorted(inputs))}. "
                "data.map(lambda row, i: {'sample_id': i}, with_indices=True) makes one."
            )
        return ids

    @property
    def progressive_steps(self) -> int:
        """Updates of progressive distillation."""
        if self.args.progressive_steps is not None:
            return self.args.progressive_steps
        if self.args.max_steps <= 0:
            raise ValueError(
                "Progressive distillation is planned by updates: set `max_steps` or `progressive_steps`, got "
                f"{self.args.max_steps} and None."
            )
        return self.args.max_steps

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Run teachers and student, and remember the terms."""
        wrapper = self.wrapper
        arguments = dict(inputs)
        wrapper.phase = None
        if wrapper.training and self.args.is_progressive:
            layers = ModelShape.of(wrapper.model).layers
            wrapper.phase = phase_of(self.state.global_step, self.progressive_steps, layers)
        if any(term.teacher_needs for term in wrapper.active_terms()):
            arguments["teacher_outputs"] = self._teacher_outputs(inputs)
        if wrapper.training:
            arguments["term_scales"] = self._term_scales(wrapper, inputs)
        outputs = model(**arguments)
        if wrapper.training:
            self._remember_terms(outputs, None)
        else:
            self._remember_eval_terms(outputs, len(next(iter(inputs.values()))))
        loss = outputs.get("loss")
        return (loss, outputs) if return_outputs else loss

    def _teacher_outputs(self, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """From the cache, which knows the training rows only, or from the teachers."""
        if self._cache is None or not self.wrapper.training:
            return self._run_teachers(inputs)
        found = self._cache.look_up(self._sample_ids(inputs), row_digests(inputs))
        return {name: value.to(self.args.device) for name, value in found.items()}

    def _run_teachers(self, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        if self.args.teacher_dtype is not None:
            with torch.autocast(self.args.device.type, enabled=False):
                return self.wrapper.teachers(inputs)
        with self.accelerator.autocast():
            return self.wrapper.teachers(inputs)

    def _term_scales(
        self, wrapper: DistillationModel | DualTrainModel, inputs: Mapping[str, Any]
    ) -> dict[str, torch.Tensor]:
        """This micro-batch's share of what is counted over the update, times what the mean over them divides by."""
        parts = self.current_gradient_accumulation_steps
        if self.args.average_tokens_across_devices:
            parts *= self.args.world_size
        return {
            unit: parts * count.to(self.args.device) / self._target_counts[unit].clamp_min(1)
            for unit, count in wrapper.count_targets(inputs).items()
        }

    # ---- evaluation ----

    def _remember_eval_terms(self, outputs: Mapping[str, Any], rows: int) -> None:
        count = torch.tensor(float(rows), device=self.args.device)
        self._eval_terms["rows"] = self._eval_terms.get("rows", 0) + count
        for name in self.wrapper.term_fields:
            if name in outputs:
                self._eval_terms[name] = self._eval_terms.get(name, 0) + outputs[name].detach().float() * count

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> Any:
        """As upstream, with the terms among the metrics if teachers take part in evaluation."""
        self._eval_terms = {}
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        sums = self.accelerator.reduce(self._eval_terms, reduction="sum") if self._eval_terms else {}
        for name in self.wrapper.term_fields:
            if name in sums:
                output.metrics[f"{metric_key_prefix}_{name}"] = (sums[name] / sums["rows"]).item()
        return output

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        """Loss, logits and labels of a batch: nothing else of the output is gathered, labels may be missing."""
        inputs = self._prepare_inputs(inputs)
        labels = [inputs[name] for name in self.label_names if inputs.get(name) is not None]
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
        loss = None if loss is None else loss.detach().mean()
        if prediction_loss_only:
            return loss, None, None
        logits = nested_detach(tuple(logits_fields(outputs).values()))
        return loss, _single(logits), _single(tuple(labels))

    # ---- progressive distillation ----

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """As upstream; in progressive distillation with one group of parameters a layer."""
        if not self.args.is_progressive or self.optimizer is not None:
            return super().create_optimizer(model)
        trained: Any = self.model if model is None else model
        layers = layer_of_parameters(self.student, ModelShape.of(self.student).layers)
        decayed = set(self.get_decay_parameter_names(trained))
        groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
        for name, parameter in trained.named_parameters():
            if parameter.requires_grad:
                groups.setdefault((layers.get(id(parameter), NO_LAYER), name in decayed), []).append(parameter)
        decay = self.args.weight_decay
        listed = [
            {"params": groups[layer, decays], "weight_decay": decay if decays else 0.0, LAYER: layer}
            for layer, decays in sorted(groups)
        ]
        self.optimizer = self.optimizer_of(listed, trained)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """As upstream; progressive distillation has its own schedule, whatever `lr_scheduler_type` says."""
        if not self.args.is_progressive or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        given: Any = self.optimizer if optimizer is None else optimizer
        layers = ModelShape.of(self.student).layers
        factors = [
            learning_rate_factors(None if group[LAYER] == NO_LAYER else group[LAYER], self.progressive_steps, layers)
            for group in given.param_groups
        ]
        self.lr_scheduler = LambdaLR(getattr(given, "optimizer", given), factors)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _get_learning_rate(self) -> float:
        """As upstream; in progressive distillation that of the layer whose turn it is."""
        if not self.args.is_progressive:
            return super()._get_learning_rate()
        optimizer: Any = self.optimizer
        return max(float(group["lr"]) for group in optimizer.param_groups)


def _single(values: tuple[Any, ...]) -> Any:
    """Nothing, the only value, or all."""
    return None if not values else values[0] if len(values) == 1 else values
