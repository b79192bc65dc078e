"""What the fine-tuning jobs of knowledge models can be told: dataclasses, a recipe file, and flags."""

from dataclasses import dataclass, field
from typing import Any

from transformers import HfArgumentParser, TrainingArguments

from .recipes import as_flags, read_recipe, split_overrides


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
    labels_field: str | None = field(default=None, metadata={"help": "Field with the types (entity typing)."})
    always_one_type: bool = field(
        default=False, metadata={"help": "Always predict the likeliest type too, as for FIGER (entity typing)."}
    )
    max_seq_length: int = field(default=128, metadata={"help": "Most tokens of a row, special tokens included."})
    max_train_rows: int | None = field(default=None, metadata={"help": "Use only the first rows."})
    max_eval_rows: int | None = field(default=None, metadata={"help": "Evaluate and test on the first rows only."})
    language: str = field(default="und", metadata={"help": "Language of the text, for the model card: en, zh..."})
    data_license: str | None = field(default=None, metadata={"help": "Licence of the data, for the model card."})


@dataclass
class FinetuningArguments(TrainingArguments):
    """transformers' TrainingArguments with defaults that suit fine-tuning."""

    output_dir: str = field(default="outputs/finetune", metadata={"help": "Where results and the model go."})
    seeds: list[int] = field(
        default_factory=lambda: [0, 1, 2], metadata={"help": "One run a seed; the first one's model is kept."}
    )
    num_train_epochs: float = field(default=10.0, metadata={"help": "Passes over the data (ERNIE-THU, FewRel: 10)."})
    learning_rate: float = field(default=2e-5, metadata={"help": "Peak learning rate of AdamW (ERNIE-THU: 2e-5)."})
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Rows of a batch (ERNIE-THU: 32)."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Rows of an evaluation batch."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay (ERNIE-THU: 0.01)."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Warm-up updates, or their share if below 1."})
    save_strategy: str = field(default="no", metadata={"help": "When checkpoints are written."})
    logging_steps: float = field(default=50, metadata={"help": "Updates between log lines."})
    overwrite: bool = field(default=False, metadata={"help": "Write into an output folder that has files."})


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
    parser = HfArgumentParser(
        GROUPS,
        prog=f"hf-ptm-ext {command}",
        usage=f"hf-ptm-ext {command} [RECIPE.yaml|RECIPE.json] [--argument value ...] [--overrides name=value ...]",
    )
    if arguments and arguments[0].endswith((".yaml", ".yml", ".json")):
        recipe: dict[str, Any] = read_recipe(arguments[0], GROUPS, command)
        arguments = as_flags(recipe) + arguments[1:]
    model, data, training = parser.parse_args_into_dataclasses(args=split_overrides(arguments))
    if not training.seeds or len(set(training.seeds)) != len(training.seeds):
        raise ValueError(f"`seeds` must be different numbers, at least one, got {training.seeds}.")
    if data.validation_file is None and data.test_file is None:
        raise ValueError("`validation_file` or `test_file` must be named: without either nothing is measured.")
    if data.max_seq_length < 8:
        raise ValueError(f"`max_seq_length` must be at least 8, got {data.max_seq_length}.")
    return model, data, training


__all__ = ["GROUPS", "FinetuningArguments", "KnowledgeDataArguments", "KnowledgeModelArguments", "parse"]
