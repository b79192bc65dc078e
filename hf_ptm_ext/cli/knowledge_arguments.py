"""What the fine-tuning jobs of knowledge models can be told: dataclasses, a recipe file, and flags."""

from dataclasses import dataclass, field

from ..data.bad_rows import ERROR
from .job_arguments import BAD_ROWS
from .seeded_arguments import DROP_OVERLAP, SeededArguments, parse_groups


@dataclass
class KnowledgeModelArguments:
    """Which model is fine-tuned."""

    model_name_or_path: str = field(
        metadata={"help": "Checkpoint: ERNIE-THU (with or without entities), or any encoder of upstream's."}
    )
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of a hub id."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run code that a checkpoint carries."})
    entity_table: str | None = field(
        default=None,
        metadata={"help": "Entity vectors (`train-entity-vectors`, `EntityTable.save`). Default: no entities."},
    )
    baseline: bool = field(
        default=True, metadata={"help": "With a table: also train the same model without entities, with each seed."}
    )
    license: str | None = field(
        default=None, metadata={"help": "Licence of the trained weights, as the Hub spells it, for the model card."}
    )


@dataclass
class KnowledgeDataArguments:
    """What it is fine-tuned on."""

    train_file: str = field(metadata={"help": ".json, .jsonl or SemEval's .txt, also .gz (see data.annotated_text)."})
    validation_file: str | None = field(default=None, metadata={"help": "Examples for evaluation."})
    test_file: str | None = field(default=None, metadata={"help": "Examples for the final test."})
    wordnet_senses: str | None = field(
        default=None,
        metadata={"help": "lemma, part of speech, synsets: link mentions to their first noun sense by name."},
    )
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of text files."})
    on_bad_rows: str = field(default=ERROR, metadata=BAD_ROWS)
    labels_field: str | None = field(default=None, metadata={"help": "Field with the types (entity typing)."})
    always_one_type: bool = field(
        default=False, metadata={"help": "Always predict the likeliest type too, as for FIGER (entity typing)."}
    )
    max_seq_length: int = field(default=128, metadata={"help": "Most tokens of a row, special tokens included."})
    max_train_rows: int | None = field(default=None, metadata={"help": "Use only the first rows."})
    max_eval_rows: int | None = field(default=None, metadata={"help": "Evaluate and test on the first rows only."})
    drop_overlap: str | None = field(default=None, metadata=DROP_OVERLAP)
    language: str = field(default="und", metadata={"help": "Language of the text, for the model card: en, zh..."})
    data_license: str | None = field(default=None, metadata={"help": "Licence of the data, for the model card."})


@dataclass
class FinetuningArguments(SeededArguments):
    """Arguments of training, with ERNIE-THU's values (10 epochs, batches of 32, learning rate 2e-5)."""


GROUPS = (KnowledgeModelArguments, KnowledgeDataArguments, FinetuningArguments)


def parse(
    arguments: list[str], command: str
) -> tuple[KnowledgeModelArguments, KnowledgeDataArguments, FinetuningArguments]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win.

    Args:
        arguments: the command line without the program's name.
        command: the sub-command, for help and messages.

    Returns:
        The three groups of arguments.

    Raises:
        ValueError: an unknown recipe key or a value that cannot be.
    """
    model, data, training = parse_groups(arguments, GROUPS, command)
    if data.validation_file is None and data.test_file is None:
        raise ValueError("`validation_file` or `test_file` must be named: without either nothing is measured.")
    if training.eval_strategy != "no" and data.validation_file is None:
        raise ValueError(
            f"`eval_strategy` = {training.eval_strategy.value} needs `validation_file`: the test data must not choose "
            "the model."
        )
    return model, data, training


__all__ = ["GROUPS", "FinetuningArguments", "KnowledgeDataArguments", "KnowledgeModelArguments", "parse"]
