"""What `hf-ptm-ext finetune` can be told: dataclasses, a recipe file, and flags that override it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.bad_rows import ERROR
from ..data.tag_schemes import PLAIN, SCHEMES
from ..models.kbert.configuration_kbert import POOLINGS
from .job_arguments import BAD_ROWS
from .seeded_arguments import DROP_OVERLAP, SeededArguments, parse_groups

TASK_NAMES = ("classification", "tagging", "question-answering", "extraction", "regression")
AUTO = "auto"
PARITY_METRICS = ("kbert",)
ANSWER_METRICS = ("squad", "cmrc")


@dataclass
class FinetuneModelArguments:
    """Which model is fine-tuned."""

    model_name_or_path: str = field(
        metadata={"help": "Checkpoint of any encoder, of transformers or of this package: a folder or a hub id."}
    )
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of a hub id."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run code that a checkpoint carries."})
    license: str | None = field(
        default=None, metadata={"help": "Licence of the trained weights, as the Hub spells it, for the model card."}
    )


@dataclass
class TaskDataArguments:
    """What it is fine-tuned on, and for which task."""

    task: str = field(metadata={"help": f"One of {', '.join(TASK_NAMES)}."})
    train_file: list[str] | None = field(
        default=None,
        metadata={
            "help": "Files or glob patterns: .jsonl, .csv, .tsv, .parquet, CoNLL, SQuAD's .json (text also .gz), or "
            "brat's folders."
        },
    )
    validation_file: list[str] | None = field(default=None, metadata={"help": "Files for evaluation."})
    test_file: list[str] | None = field(
        default=None, metadata={"help": "Files for the final test; without labels they are predicted, not scored."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "Hub id or folder for datasets.load_dataset."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Its configuration."})
    train_split: str = field(default="train", metadata={"help": "Its training split."})
    validation_split: str | None = field(default=None, metadata={"help": "Its evaluation split."})
    test_split: str | None = field(default=None, metadata={"help": "Its test split."})
    text_column: str = field(default="text", metadata={"help": "Classification: column with the text."})
    pair_column: str | None = field(
        default=None, metadata={"help": "Classification, tagging: column with a second text."}
    )
    label_column: str = field(
        default="label", metadata={"help": "Classification, regression: column with the class or the score."}
    )
    group_column: str | None = field(
        default=None,
        metadata={
            "help": "Classification of answers: column with the question; also scores the mean reciprocal rank."
        },
    )
    words_column: str = field(
        default="tokens",
        metadata={"help": "Tagging: column with the words, a list or separated by one blank; of CoNLL its number."},
    )
    tags_column: str = field(
        default="tags",
        metadata={
            "help": "Tagging: column with their tags, or with spans of characters; of CoNLL its number, from 1."
        },
    )
    tag_scheme: str = field(
        default=AUTO,
        metadata={"help": "Tagging: auto, iob2, iob1, bioes, or plain for tags without spans (parts of speech)."},
    )
    parity_metric: str | None = field(
        default=None,
        metadata={"help": "Tagging: kbert also gives the score of K-BERT's script, which does not compare types."},
    )
    question_column: str = field(default="question", metadata={"help": "Questions: column with the question."})
    context_column: str = field(default="context", metadata={"help": "Questions: column with the passage."})
    answers_column: str = field(
        default="answers",
        metadata={"help": "Questions: column with SQuAD's answers; none for a question without an answer."},
    )
    doc_stride: int = field(
        default=128, metadata={"help": "Questions: tokens that two windows of a long passage share."}
    )
    max_question_length: int = field(
        default=64, metadata={"help": "Questions: longer ones are cut to so many tokens."}
    )
    max_answer_length: int = field(default=30, metadata={"help": "Questions: most tokens of an answer."})
    n_best_size: int = field(default=20, metadata={"help": "Questions: answers of each in the predictions' file."})
    null_score_diff_threshold: float = field(
        default=0.0,
        metadata={"help": "Questions that may have no answer: by how much 'no answer' must beat the best answer."},
    )
    best_null_threshold: bool = field(
        default=False,
        metadata={
            "help": "Questions that may have no answer: take the threshold that is best (F1) on the validation data; "
            "results and predictions name it."
        },
    )
    answer_metric: str = field(
        default=AUTO,
        metadata={"help": "Questions: squad, cmrc (Chinese), or auto: cmrc if `language` is zh."},
    )
    file_format: str | None = field(
        default=None,
        metadata={"help": "jsonl, csv, tsv, parquet, conll, brat or squad, for files whose names do not tell."},
    )
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of text files."})
    on_bad_rows: str = field(default=ERROR, metadata=BAD_ROWS)
    max_seq_length: int = field(default=128, metadata={"help": "Most tokens of a row, special tokens included."})
    max_train_rows: int | None = field(default=None, metadata={"help": "Use only the first rows."})
    max_eval_rows: int | None = field(default=None, metadata={"help": "Evaluate and test on the first rows only."})
    drop_overlap: str | None = field(default=None, metadata=DROP_OVERLAP)
    language: str = field(default="und", metadata={"help": "Language of the text, for the model card: en, zh..."})
    data_license: str | None = field(default=None, metadata={"help": "Licence of the data, for the model card."})


def data_name(data: Any, split: str = "train") -> str:
    """What a card calls the data of a split: names of files, or of the data set."""
    files = getattr(data, f"{split}_file") or ()
    names = [Path(file).name for file in ([files] if isinstance(files, str) else files)]
    return ", ".join(names) or data.dataset_name


@dataclass
class KnowledgeGraphArguments:
    """Knowledge that is put into the text (K-BERT)."""

    kg: list[str] | None = field(
        default=None,
        metadata={
            "help": "Triple files (.spo, .tsv, .csv, .jsonl, also .gz); the model, any BERT, then reads as a K-BERT. "
            "Default: the text alone."
        },
    )
    kg_encoding: str = field(default="utf-8", metadata={"help": "Encoding of the triple files."})
    max_entities: int = field(default=2, metadata={"help": "Most objects that a word gets (K-BERT: 2)."})
    use_predicate: bool | None = field(
        default=None,
        metadata={"help": "Put predicates before objects (default, as K-BERT: in classification, not in tagging)."},
    )
    pooling: str | None = field(
        default=None,
        metadata={
            "help": "What a K-BERT classifier pools: first (default, if the model says nothing), mean, max, last."
        },
    )
    baseline: bool = field(
        default=True, metadata={"help": "With kg: also train the same model without knowledge, with each seed."}
    )


@dataclass
class FinetuneArguments(SeededArguments):
    """Arguments of training, with K-BERT's values (5 epochs, batches of 32, learning rate 2e-5, 10 % warm-up)."""

    num_train_epochs: float = field(default=5.0, metadata={"help": "Passes over the data (K-BERT: 5)."})


GROUPS = (FinetuneModelArguments, TaskDataArguments, KnowledgeGraphArguments, FinetuneArguments)


def parse(
    arguments: list[str],
) -> tuple[FinetuneModelArguments, TaskDataArguments, KnowledgeGraphArguments, FinetuneArguments]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The four groups of arguments.

    Raises:
        ValueError: an unknown recipe key, or values that contradict each other.
    """
    description = "Fine-tune an encoder for classification, tagging or question answering, by seeds."
    model, data, knowledge, training = parse_groups(arguments, GROUPS, "finetune", description)
    check(data, knowledge, training)
    return model, data, knowledge, training


def check(data: TaskDataArguments, knowledge: KnowledgeGraphArguments, training: FinetuneArguments) -> None:
    """Refuse values that contradict each other, before anything is read.

    Args:
        data: what is read.
        knowledge: what is put into it.
        training: how it is trained.

    Raises:
        ValueError: see the messages.
    """
    for name, value, known in (
        ("task", data.task, TASK_NAMES),
        ("tag_scheme", data.tag_scheme, (AUTO, *SCHEMES, PLAIN)),
        ("parity_metric", data.parity_metric, (None, *PARITY_METRICS)),
        ("answer_metric", data.answer_metric, (AUTO, *ANSWER_METRICS)),
    ):
        if value not in known:
            raise ValueError(f"`{name}` must be one of {', '.join(filter(None, known))}, got {value!r}.")
    if bool(data.train_file) == bool(data.dataset_name):
        got = "both" if data.train_file else "neither"
        raise ValueError(f"Name one source of training data, `train_file` or `dataset_name`; got {got}.")
    if not any((data.validation_file, data.test_file, data.validation_split, data.test_split)):
        raise ValueError(
            "`validation_file` or `test_file` (or a split) must be named: without it nothing is measured."
        )
    if data.task in ("question-answering", "extraction") and data.doc_stride >= data.max_seq_length:
        raise ValueError(
            f"`doc_stride` must be less than `max_seq_length` = {data.max_seq_length}, got {data.doc_stride}: windows "
            "would not move on. Common are 128 and 384."
        )
    if data.best_null_threshold and not (data.validation_file or data.validation_split):
        raise ValueError(
            "`best_null_threshold` needs `validation_file` or `validation_split`: the test data must not choose it."
        )
    if knowledge.pooling not in (None, *POOLINGS):
        raise ValueError(f"`pooling` must be one of {', '.join(POOLINGS)}, got {knowledge.pooling!r}.")
    for name in ("pooling", "use_predicate"):
        if getattr(knowledge, name) is not None and not knowledge.kg:
            raise ValueError(f"`{name}` needs `kg`, got none. Name the graphs, or leave `{name}` out.")
    if training.eval_strategy != "no" and not (data.validation_file or data.validation_split):
        raise ValueError(
            f"`eval_strategy` = {training.eval_strategy.value} needs `validation_file` or `validation_split`: the "
            "test data must not choose the model."
        )


__all__ = [
    "GROUPS",
    "FinetuneArguments",
    "FinetuneModelArguments",
    "KnowledgeGraphArguments",
    "TaskDataArguments",
    "data_name",
    "parse",
]
