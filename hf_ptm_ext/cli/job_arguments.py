"""What every training job can be told about its output folder and about updates that fail."""

from dataclasses import dataclass, field

from transformers import TrainingArguments

from ..data.bad_rows import ON_BAD_ROWS
from ..trainers.stopping import NONFINITE

# Of the option `on_bad_rows`.
BAD_ROWS = {
    "help": "Rows of a file that cannot be used: error tells all of them, skip leaves them out with a count.",
    "choices": ON_BAD_ROWS,
}


@dataclass
class JobArguments(TrainingArguments):
    """transformers' TrainingArguments, with what decides whether a run goes on."""

    resume_from_checkpoint: str | None = field(
        default=None, metadata={"help": "A checkpoint folder, or auto: go on with the newest one, or start if none."}
    )
    overwrite: bool = field(default=False, metadata={"help": "Train anew in an output folder that has files."})
    accept_changes: bool = field(
        default=False,
        metadata={"help": "Go on although what decides the result (options, data, models) is not what it was."},
    )
    nonfinite: str = field(
        default="stop",
        metadata={
            "help": "If loss or gradient is NaN or infinite: stop, or skip the update.",
            "choices": NONFINITE,
        },
    )


__all__ = ["BAD_ROWS", "JobArguments"]
