"""What a distillation run can be told."""

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import TrainingArguments

from .presets import PRESET_NAMES, PROGRESSIVE
from .registry import check_known
from .teachers import AVERAGES


@dataclass
class DistillationArguments(TrainingArguments):
    """transformers' TrainingArguments and what is distilled.

    Args:
        preset: a published recipe, see `hf_ptm_ext.distillation.presets`.
        preset_options: its options, such as `{"temperature": 5}`.
        objectives: a composition instead of a preset, see `build_terms`.
        projections_from: folder of an earlier stage (or its `distill_projections.safetensors`) whose projections this
            one starts from, as TinyBERT's second stage does.
        teacher_average: how several teachers' logits become one.
        teacher_dtype: dtype in which teachers run, by torch's name (default: as they are, under the run's autocast).
        teacher_in_eval: whether evaluation computes the objectives with the teachers. By default its loss is the
            student's own on the labels, and no teacher runs.
        teacher_check_rows: on how many rows the teacher's accuracy is looked at before training; 0 for none.
        teacher_cache: file with the teacher's outputs for each training row, written if it is not there.
        sample_id_column: column with a number that stays with its row; the cache is keyed by it.
        progressive_steps: updates of progressive distillation (default: those of the run).
        train_head_only: whether the student's encoder, embeddings included, stays as it is, its head alone trained.
    """

    preset: str | None = field(default=None, metadata={"help": f"One of {', '.join(PRESET_NAMES)}."})
    preset_options: dict | str | None = field(
        default=None, metadata={"help": "Options of the preset, as JSON or a mapping."}
    )
    objectives: dict | str | None = field(
        default=None, metadata={"help": "Objectives instead of a preset: a mapping from names to options, or JSON."}
    )
    projections_from: str | None = field(
        default=None, metadata={"help": "Folder of an earlier stage whose projections this one starts from."}
    )
    teacher_average: str = field(
        default="probabilities", metadata={"help": f"Of several teachers: {' or '.join(AVERAGES)}."}
    )
    teacher_dtype: str | None = field(default=None, metadata={"help": "Such as bfloat16. Default: as loaded."})
    teacher_in_eval: bool = field(default=False, metadata={"help": "Compute the objectives in evaluation too."})
    teacher_check_rows: int = field(
        default=256, metadata={"help": "Rows on which the teacher is compared with chance before training; 0: none."}
    )
    teacher_cache: str | None = field(default=None, metadata={"help": "File of the teacher's outputs by sample id."})
    sample_id_column: str = field(default="sample_id", metadata={"help": "Column that the cache is keyed by."})
    progressive_steps: int | None = field(
        default=None, metadata={"help": "Updates of progressive distillation. Default: those of the run."}
    )
    train_head_only: bool = field(default=False, metadata={"help": "Leave the student's encoder as it is."})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.preset_options = _parsed("preset_options", self.preset_options)
        self.objectives = _parsed("objectives", self.objectives)
        if (self.preset is None) == (self.objectives is None):
            raise ValueError(
                f"`preset` or `objectives` must be given, one of them; got {self.preset!r} and {self.objectives!r}. "
                f"Presets: {', '.join(PRESET_NAMES)}."
            )
        if self.preset is not None:
            check_known("preset", self.preset, PRESET_NAMES)
        if self.preset_options and self.preset is None:
            raise ValueError(
                f"`preset_options` are options of a `preset`, got {self.preset_options!r} without one; those of "
                "`objectives` stand in them."
            )
        check_known("teacher_average", self.teacher_average, AVERAGES)
        if self.teacher_dtype is not None and not isinstance(getattr(torch, self.teacher_dtype, None), torch.dtype):
            raise ValueError(
                f"`teacher_dtype` must be a dtype of torch, such as bfloat16, got {self.teacher_dtype!r}."
            )
        if self.progressive_steps is not None and not self.is_progressive:
            raise ValueError(
                f"`progressive_steps` belongs to the presets {', '.join(PROGRESSIVE)}, got {self.preset!r}."
            )

    @property
    def is_progressive(self) -> bool:
        """Whether layers are trained one after the other."""
        return self.preset in PROGRESSIVE


def _parsed(name: str, value: Any) -> Any:
    """A mapping or list as it is, or as JSON spells it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"`{name}` must be a mapping or JSON, got {value!r}: {error}") from error
