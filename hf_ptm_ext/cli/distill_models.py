"""Teachers, students and the speed of both, for `hf-ptm-ext distill`."""

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer, set_seed

from ..distillation import make_student
from .distill_arguments import BILSTM, StudentArguments
from .finetune_models import set_labels

TIMED_ROWS = 256
TIMED_BATCH = 32


class Pair:
    """The teachers and what makes students of them.

    Args:
        task: its labels and its head.
        args: which teachers, what student.

    Raises:
        ValueError: a teacher has no trained head, or other classes.
    """

    def __init__(self, task: Any, args: StudentArguments):
        self.task, self.args = task, args
        self.source = {"revision": args.teacher_revision, "trust_remote_code": args.trust_remote_code}

    @cached_property
    def tokenizer(self) -> Any:
        """The first teacher's tokenizer, which is the student's too."""
        return AutoTokenizer.from_pretrained(self.args.teacher_name_or_path[0], **self.source)

    @cached_property
    def teachers(self) -> list[Any]:
        """The teachers, in evaluation mode, each with a trained head and the data's classes."""
        return [self._teacher(name) for name in self.args.teacher_name_or_path]

    def _teacher(self, name: str) -> Any:
        auto_class = getattr(transformers, f"AutoModelFor{self.task.head}")
        model, report = auto_class.from_pretrained(name, dtype=torch.float32, output_loading_info=True, **self.source)
        missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
        if missing:
            raise ValueError(
                f"`teacher_name_or_path` = {name} has no trained head for {self.task.kind} (`{missing[0]}` is new): "
                f"fine-tune it first (hf-ptm-ext finetune --task {self.task.name}) and name its folder."
            )
        if self.task.labels:
            self._check_labels(name, model.config)
        return model.eval()

    def _check_labels(self, name: str, config: Any) -> None:
        theirs = [str(config.id2label[number]) for number in range(config.num_labels)]
        generic = all(label.startswith("LABEL_") for label in theirs)
        if len(theirs) != len(self.task.labels) or not (generic or theirs == list(self.task.labels)):
            raise ValueError(
                f"`teacher_name_or_path` = {name} has the classes {theirs[:8]}, the training data "
                f"{list(self.task.labels)[:8]}: they must be the same, in the same order."
            )

    def student(self, seed: int) -> Any:
        """A student as it is before training, the same for the same seed.

        Args:
            seed: of the weights that are new.
        """
        set_seed(seed)
        args = self.args
        if args.student_name_or_path is not None:
            auto_class = getattr(transformers, f"AutoModelFor{self.task.head}")
            options = {"dtype": torch.float32, "ignore_mismatched_sizes": True, "num_labels": len(self.task.labels)}
            if not self.task.labels:
                options.pop("num_labels")
            model = auto_class.from_pretrained(args.student_name_or_path, **options)
        elif args.student_class == BILSTM:
            model = self._bilstm()
        else:
            model = make_student(
                self.teachers[0],
                layers=args.student_layers,
                hidden_size=args.student_hidden_size,
                intermediate_size=args.student_intermediate_size,
                num_attention_heads=args.student_num_attention_heads,
                init=_init(args.student_init),
                model_class=args.student_class,
                size=args.student_size,
            )
        if self.task.labels:
            set_labels(model.config, self.task.labels)
        return model

    def _bilstm(self) -> Any:
        from .. import DistilledBiLstmConfig, DistilledBiLstmForSequenceClassification

        if self.task.head != "SequenceClassification":
            raise ValueError(f"`student_class` = {BILSTM} is a classifier of texts, got `task` = {self.task.name}.")
        sizes = {} if self.args.student_hidden_size is None else {"hidden_size": self.args.student_hidden_size}
        config = DistilledBiLstmConfig(
            vocab_size=len(self.tokenizer),
            pad_token_id=self.tokenizer.pad_token_id,
            num_labels=len(self.task.labels),
            **sizes,
        )
        return DistilledBiLstmForSequenceClassification(config)


def _init(text: str) -> Any:
    """A name, or layers by number."""
    parts = text.split(",")
    return [int(part) for part in parts] if all(part.strip().isdecimal() for part in parts) else text


@torch.no_grad()
def costs(model: Any, rows: Sequence[dict[str, Any]], collator: Any) -> dict[str, float]:
    """Size and speed of a model.

    Args:
        model: in any mode; left as it was.
        rows: model inputs.
        collator: makes batches.

    Returns:
        `parameters` and `rows_per_second` of its forward pass, where the model is.
    """
    training, device = model.training, next(model.parameters()).device
    model.eval()
    taken = list(rows[:TIMED_ROWS])
    batches = [collator(taken[start : start + TIMED_BATCH]) for start in range(0, len(taken), TIMED_BATCH)]
    batches = [{name: value.to(device) for name, value in batch.items() if name != "labels"} for batch in batches]
    model(**batches[0])
    _wait(device)
    start = time.perf_counter()
    for batch in batches:
        model(**batch)
    _wait(device)
    seconds = time.perf_counter() - start
    model.train(training)
    parameters = float(sum(value.numel() for value in model.parameters()))
    return {"parameters": parameters, "rows_per_second": len(taken) / seconds}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


__all__ = ["Pair", "costs"]
