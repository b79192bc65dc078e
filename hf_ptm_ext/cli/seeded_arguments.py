"""What every fine-tuning job by seeds can be told, and how its command line is read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .job_arguments import JobArguments
from .options import read_options

AUTO = ("auto", "true")
DROP_OVERLAP = {
    "help": "Leave out rows that are in the training data and in another split too: of train, or of evaluation.",
    "choices": ("train", "evaluation"),
}


@dataclass
class SeededArguments(JobArguments):
    """transformers' TrainingArguments with defaults that suit fine-tuning."""

    output_dir: str = field(default="outputs/finetune", metadata={"help": "Where results and the model go."})
    seeds: list[int] = field(
        default_factory=lambda: [0, 1, 2], metadata={"help": "One run a seed; the first one's model is kept."}
    )
    num_train_epochs: float = field(default=10.0, metadata={"help": "Passes over the data."})
    learning_rate: float = field(default=2e-5, metadata={"help": "Peak learning rate of AdamW."})
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Rows of a batch."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Rows of an evaluation batch."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Warm-up updates, or their share if below 1."})
    save_strategy: str = field(
        default="epoch", metadata={"help": "When checkpoints are written; a run's are removed when it is through."}
    )
    save_total_limit: int | None = field(default=1, metadata={"help": "How many checkpoints of a run are kept."})
    logging_steps: float = field(default=50, metadata={"help": "Updates between log lines."})
    resume_from_checkpoint: str | None = field(
        default=None, metadata={"help": "auto: go on with the runs of the output folder, or start if there are none."}
    )

    best_by: ClassVar[str] = "loss"  # which score says what is best, if none is named

    def __post_init__(self) -> None:
        if self.load_best_model_at_end or str(self.save_strategy) in ("best", "SaveStrategy.BEST"):
            if str(self.eval_strategy) in ("no", "IntervalStrategy.NO"):
                name = "`load_best_model_at_end`" if self.load_best_model_at_end else "`save_strategy` = best"
                raise ValueError(
                    f"{name} needs an `eval_strategy`, epoch or steps, got no: without evaluation there is no best "
                    "model."
                )
            self.metric_for_best_model = self.metric_for_best_model or self.best_by
            if self.save_strategy == type(self).__dataclass_fields__["save_strategy"].default:
                # A checkpoint for each evaluation, which upstream asks for.
                self.save_strategy, self.save_steps = self.eval_strategy, self.eval_steps or self.logging_steps
        super().__post_init__()


def parse_groups(arguments: list[str], groups: Sequence[type], command: str, description: str = "") -> tuple[Any, ...]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win.

    Args:
        arguments: the command line without the program's name.
        groups: dataclasses; the last one is a `SeededArguments`.
        command: the sub-command, for help and messages.
        description: a line for its help.

    Returns:
        The groups of arguments.

    Raises:
        ValueError: an unknown recipe key or a value that cannot be.
    """
    parsed = read_options(arguments, groups, command, description)
    training = parsed[-1]
    if not training.seeds or len(set(training.seeds)) != len(training.seeds):
        raise ValueError(f"`seeds` must be different numbers, at least one, got {training.seeds}.")
    if training.resume_from_checkpoint is not None and training.resume_from_checkpoint.lower() not in AUTO:
        raise ValueError(
            f"`resume_from_checkpoint` must be auto, got {training.resume_from_checkpoint}: each run of the output "
            "folder goes on with its own checkpoint."
        )
    return parsed


__all__ = ["SeededArguments", "parse_groups"]
