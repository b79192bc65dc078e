"""What jobs can be told: their dataclasses' common part, and what is checked before anything is read."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import CONFIG_MAPPING, TrainingArguments
from transformers.utils import is_torch_bf16_gpu_available, is_torch_tf32_available

from ..data.bad_rows import ERROR, ON_BAD_ROWS
from ..data.tag_schemes import PLAIN, SCHEMES
from ..hints import did_you_mean
from ..hub.model_card import is_hub_id
from ..metrics.triple_ranking import TIES
from ..trainers.master_weights import ADAMW, BF16, FP32, WEIGHTS
from ..trainers.stopping import NONFINITE
from ..trainers.transfer import SCHEDULES
from .options import REQUIRED, option, read_options
from .ranges import AnyNumber, Below1, Count, Positive, RowLength, Seed, Size, check_ranges

TASK_NAMES = ("classification", "tagging", "question-answering", "extraction", "regression", "triples")
AUTO = "auto"
TRIPLE_TASKS = (TRIPLE, RELATION, LINK) = ("triple-classification", "relation-prediction", "link-prediction")
GO_ON = ("auto", "true")
# What a `grid` may try.
IN_A_GRID = (
    *("learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "warmup_steps"),
    *("weight_decay", "label_smoothing_factor"),
)
PARITY_METRICS = ("kbert",)
ANSWER_METRICS = ("squad", "cmrc")
DROPS = ("train", "evaluation")
TABLES = ("jsonl", "csv", "tsv", "parquet")
# Of the option `on_bad_rows`.
BAD_ROWS: dict[str, Any] = {
    "help": "Rows that cannot be used: error tells all of them, skip leaves them out.",
    "choices": ON_BAD_ROWS,
}


# ---- training ----


@dataclass
class JobArguments(TrainingArguments):
    """transformers' TrainingArguments, with what decides whether a run goes on."""

    weight_decay: float = option(0.01, "Weight decay (SpanBERT's, UniLM's and K-BERT's: 0.01).")
    warmup_steps: float = option(0.1, "Warm-up updates, or their share if below 1.")
    save_total_limit: int | None = option(None, "Checkpoints that are kept (default: two while it trains, then none).")
    logging_steps: float = option(50, "Updates between log lines.")
    resume_from_checkpoint: str | None = option(
        None, "A checkpoint folder, or auto: go on with the newest one, or start if none."
    )
    overwrite: bool = option(False, "Train anew in an output folder that has files.")
    accept_changes: bool = option(False, "Go on although options, data or models are not what they were.")
    nonfinite: str = option(
        "stop", "If loss or gradient is NaN or infinite: stop, or skip the update.", choices=NONFINITE
    )
    seeds: list[Seed] | None = option(None, "One run a seed; the first one's model is kept (default: one run).")
    weights: str = option(FP32, "What the model's weights are; bf16: trained by float32 copies.", choices=WEIGHTS)
    lr_schedule: str | None = option(
        None, "slanted_triangular, ULMFiT's, rises in warmup_steps (default: lr_scheduler_type)."
    )
    layer_decay: Positive | None = option(
        None, "Learning rate of a layer over that of the one below (ULMFiT: 2.6); 0.9 is 1 / 0.9."
    )
    gradual_unfreezing: Size | None = option(
        None, "Train the head alone first, and so many more layers each epoch (ULMFiT: 1)."
    )
    grid: list[str] | None = option(
        None, "Values to try, as learning_rate=1e-5,3e-5 max_steps=50,99; validation data choose."
    )
    dataloader_num_workers: int = option(-1, "Processes that make batches ahead (-1: up to 4 for a GPU, else 0).")

    long: ClassVar[bool] = False  # whether the job trains for long, so that workers are worth their start

    def __post_init__(self) -> None:
        if self.seeds is not None and len(set(self.seeds)) != max(len(self.seeds), 1):
            raise ValueError(f"`seeds` must be different numbers, at least one, got {self.seeds}.")
        if self.seeds is not None and (self.resume_from_checkpoint or GO_ON[0]).lower() not in GO_ON:
            raise ValueError(
                f"`resume_from_checkpoint` must be auto, got {self.resume_from_checkpoint}: each run of the output "
                "folder goes on with its own checkpoint."
            )
        self.points = points_of(self)
        half = [f"`{name}` = true" for name in ("bf16", "bf16_full_eval") if getattr(self, name)]
        half += [f"`weights` = {BF16}"] if self.weights == BF16 else []
        if half and not self.use_cpu and not is_torch_bf16_gpu_available():
            raise ValueError(
                f"{half[0]} needs a GPU that has bf16, and none is found: leave it out, or add --use_cpu true, "
                "where it works too."
            )
        if self.tf32 and not is_torch_tf32_available():
            raise ValueError(
                f"`tf32` = {self.tf32} needs an NVIDIA GPU of Ampere or later, and none is found: leave it out."
            )
        if self.lr_schedule is not None:
            self._check_schedule()
        if isinstance(self.fsdp, str) and self.fsdp.lower() in ("true", "false"):
            self.fsdp = "full_shard" if self.fsdp.lower() == "true" else None  # the word is no way to shard
        if self.fsdp and int(os.environ.get("WORLD_SIZE", 1)) < 2:
            raise ValueError(
                f"`fsdp` = {self.fsdp} shards a model over several processes, and this is one: start the job "
                "with several processes by `accelerate launch`, or leave it out."
            )
        if self.deepspeed and find_spec("deepspeed") is None:
            raise ValueError(
                f"`deepspeed` = {self.deepspeed} needs the package: pip install deepspeed, or leave it out."
            )
        if self.weights == BF16:
            self._check_weights()
            self.bf16 = False  # which casts what is float32
        self.keeps_checkpoints = self.save_total_limit is not None
        if not self.keeps_checkpoints:
            self.save_total_limit = 2
        if self.dataloader_num_workers == -1:
            on_gpu = self.long and not self.use_cpu and torch.cuda.is_available()
            allowed = getattr(os, "sched_getaffinity", None)  # fewer than the machine has in a container
            cores = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
            self.dataloader_num_workers = min(cores // max(torch.cuda.device_count(), 1) // 4, 4) if on_gpu else 0
        super().__post_init__()

    def _check_schedule(self) -> None:
        """Refuse schedules that are none, and what does not go with them."""
        if self.lr_schedule not in SCHEDULES:
            raise ValueError(f"`lr_schedule` must be {' or '.join(SCHEDULES)}, got {self.lr_schedule!r}.")
        other = str(getattr(self.lr_scheduler_type, "value", self.lr_scheduler_type))
        if other != "linear":
            raise ValueError(
                f"`lr_schedule` = {self.lr_schedule} takes the place of `lr_scheduler_type` = {other}: leave one out."
            )
        if not self.warmup_steps > 0:
            raise ValueError(
                f"`lr_schedule` = {self.lr_schedule} rises in `warmup_steps`, got {self.warmup_steps} (ULMFiT: 0.1)."
            )

    def _check_weights(self) -> None:
        """Refuse what weights in bfloat16 do not go with."""
        other = next((name for name in ("fp16", "fp16_full_eval", "fsdp", "deepspeed") if getattr(self, name)), None)
        if other:
            raise ValueError(
                f"`weights` = {self.weights} does not go with `{other}` = {getattr(self, other)}: leave one out "
                "(--bf16 true computes in bfloat16 over float32 weights, sharded ones too)."
            )
        if self.optim not in ADAMW:
            raise ValueError(
                f"`weights` = {self.weights} is trained by torch's AdamW (`optim` = {' or '.join(ADAMW)}), got "
                f"`optim` = {self.optim}: leave one out."
            )


def points_of(args: Any) -> list[dict[str, Any]]:
    """The points of a `grid`, each as the training arguments that it sets; one that sets none without a grid."""
    axes: dict[str, list[Any]] = {}
    for axis in args.grid or ():
        name, _, given = axis.partition("=")
        if name not in IN_A_GRID or name in axes:
            told = f"names {name} twice" if name in axes else f"must name some of {', '.join(IN_A_GRID)}"
            raise ValueError(f"`grid` {told}, got {axis!r}.{did_you_mean(name, IN_A_GRID)}")
        try:
            axes[name] = [type(getattr(args, name))(value) for value in given.split(",")]
        except ValueError:
            raise ValueError(f"`grid` must give numbers, as {name}=VALUE,VALUE, got {axis!r}.") from None
        for value in axes[name]:
            check_ranges({name: value}, "`grid`: ")
    if "num_train_epochs" in axes and ("max_steps" in axes or args.max_steps > 0):
        raise ValueError(f"`grid` = {args.grid} tries num_train_epochs, which `max_steps` overrides: leave one out.")
    if axes and args.seeds is None:
        raise ValueError(f"`grid` = {args.grid} is tried by seeds: name them, as --seeds 0 1 2.")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


@dataclass
class SeededArguments(JobArguments):
    """Arguments of training by seeds, with defaults that suit fine-tuning."""

    output_dir: str = option("outputs/finetune", "Where results and the model go.")
    seeds: list[Seed] = option([0, 1, 2], "One run a seed; the first one's model is kept.")
    num_train_epochs: float = option(10.0, "Passes over the data.")
    learning_rate: float = option(2e-5, "Peak learning rate of AdamW.")
    per_device_train_batch_size: int = option(32, "Rows of a batch.")
    per_device_eval_batch_size: int = option(64, "Rows of an evaluation batch.")
    save_strategy: str = option("epoch", "When checkpoints are written; a run's are removed when it is through.")
    save_total_limit: int | None = option(1, "How many checkpoints of a run are kept.")
    resume_from_checkpoint: str | None = option(
        None, "auto: go on with the runs of the output folder, or start if there are none."
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


def parse_seeded(
    arguments: list[str], groups: Sequence[type], command: str, members: str | None = None
) -> tuple[Any, ...]:
    """Read the options of a job by seeds, and let each group `check` its own."""
    parsed = read_options(arguments, groups, command, members)
    training = parsed[-1]
    for group in parsed:
        if hasattr(group, "check"):
            group.check(training)
    return parsed


def check_best(args: TrainingArguments, produced: Sequence[str]) -> None:
    """Refuse to choose the best checkpoint by a score that no evaluation gives."""
    if not args.load_best_model_at_end and args.metric_for_best_model is None:
        return
    name = (args.metric_for_best_model or produced[0]).removeprefix("eval_")
    if name not in produced:
        advice = did_you_mean(name, produced) if len(produced) > 1 else " Name validation data: scores are of them."
        raise ValueError(
            f"`metric_for_best_model` must be one of {', '.join(produced)}, which an evaluation of this job gives, "
            f"got {args.metric_for_best_model!r}.{advice}"
        )
    args.metric_for_best_model = name


# ---- model and data ----


@dataclass
class CheckpointArguments:
    """Which model is trained."""

    model_name_or_path: str = option(
        REQUIRED, "Checkpoint of any encoder, of transformers or of this package: a folder or a hub id."
    )
    model_revision: str = option("main", "Branch, tag or commit of a hub id.")
    trust_remote_code: bool = option(False, "Run code that a checkpoint carries.")
    license: str | None = option(None, "Licence of the trained weights, as the Hub spells it, for the model card.")

    @property
    def source(self) -> dict[str, Any]:
        """What `from_pretrained` is told beside the name."""
        return {"revision": self.model_revision, "trust_remote_code": self.trust_remote_code}


@dataclass
class ModelArguments(CheckpointArguments):
    """Which model a text job trains: a checkpoint, or a new one."""

    model_name_or_path: str | None = option(  # type: ignore[assignment]
        None, "Checkpoint to continue from: a folder or a hub id. Default: start from a config."
    )
    family: str | None = option(None, "Architecture of a new model (default: the objective's own).")
    config_name: str | None = option(None, "Folder, hub id or config.json of a new model.")
    config_overrides: str | None = option(None, "Fields of the config, as hidden_size=128,num_hidden_layers=4.")
    dropout: Below1 | None = option(None, "Dropout of hidden states and attention (default: the config's).")
    tokenizer_name: str | None = option(
        None, "Folder or hub id of the tokenizer. Default: the model's, or a trained one."
    )
    attn_implementation: str | None = option(
        None, "eager, sdpa, flex_attention, flash_attention_2... (default: by the rows)."
    )
    chosen_family: str | None = field(default=None, init=False)
    default_family: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        # No options, which decide the result by what made them: new pieces of the checkpoint's vocabulary, and the
        # checkpoint's tokenizer where it gets another.
        self.extension: Any = None
        self.old_tokenizer: Any = None
        if self.family is not None and self.family not in CONFIG_MAPPING:
            raise ValueError(
                f"`family` must be an architecture of this package or of transformers, got {self.family!r}."
                f"{did_you_mean(self.family, CONFIG_MAPPING)}"
            )
        self.chosen_family, self.family = self.family, self.family or self.default_family


@dataclass
class TrainingDataArguments:
    """Where training and evaluation data are: files, or splits of a data set."""

    train_file: list[str] | None = option(
        None,
        "Files or glob patterns: .jsonl, .csv, .tsv, .parquet, CoNLL, SQuAD's .json (text also .gz), or brat's "
        "folders.",
    )
    validation_file: list[str] | None = option(None, "Files for evaluation.")
    dataset_name: str | None = option(None, "Hub id or folder for datasets.load_dataset.")
    dataset_config_name: str | None = option(None, "Its configuration.")
    train_split: str = option("train", "Its training split.")
    validation_split: str | None = option(None, "Its evaluation split.")


@dataclass
class SplitArguments(TrainingDataArguments):
    """Where the examples of every split are."""

    test_file: list[str] | None = option(
        None, "Files for the final test; without labels they are predicted, not scored."
    )
    test_split: str | None = option(None, "Its test split.")

    def check_source(self) -> None:
        """Refuse two sources of training data, or none."""
        if bool(self.train_file) == bool(self.dataset_name):
            got = "both" if self.train_file else "neither"
            raise ValueError(f"Name one source of training data, `train_file` or `dataset_name`; got {got}.")


@dataclass
class ReadArguments:
    """How files are read, and how much of them."""

    encoding: str = option("utf-8", "Encoding of text files.")
    on_bad_rows: str = option(ERROR, **BAD_ROWS)
    max_train_rows: Size | None = option(None, "Use only the first rows.")
    max_eval_rows: Size | None = option(None, "Evaluate and test on the first rows only.")
    drop_overlap: str | None = option(
        None,
        "Leave out rows that training and another split share: of train, or of evaluation.",
        choices=DROPS,
    )
    data_license: str | None = option(None, "Licence of the data, for the model card.")


@dataclass
class TextArguments(ReadArguments):
    """What a text job (pretrain, finetune-seq2seq) is told of its data beside."""

    train_tokenizer: bool = option(
        False, "Train a WordPiece tokenizer on the training data (default without a model)."
    )
    vocab_size: Size = option(8000, "Pieces of a trained tokenizer.")
    lowercase: bool = option(True, "Whether a trained tokenizer lower-cases.")
    language: str | None = option(None, "Language of the text, for the model card: en, zh... (default: undetermined).")

    def check_tokenizer(self, model: ModelArguments) -> None:
        """Refuse to train a tokenizer where one is named."""
        if self.train_tokenizer and model.tokenizer_name:
            raise ValueError(
                f"`train_tokenizer` and `tokenizer_name` exclude each other, got {model.tokenizer_name}: leave one "
                "out."
            )


@dataclass
class RowArguments(ReadArguments):
    """Which rows a job by seeds makes of them."""

    max_seq_length: RowLength = option(128, "Most tokens of a row, special tokens included.")
    language: str = option("und", "Language of the text, for the model card: en, zh...")
    train_sample: Size | None = option(
        None,
        "Train each seed on so many rows, drawn by it in the proportion of the classes; the same for all variants.",
    )


QUESTIONS = (
    *("question_column", "context_column", "answers_column", "doc_stride", "max_question_length", "max_answer_length"),
    *("n_best_size", "null_score_diff_threshold", "best_null_threshold", "answer_metric"),
    *("concepts", "concept_vectors", "max_concepts", "freeze_encoder"),
)
TRIPLES = (
    "triple_task",
    "entity_text_file",
    "relation_text_file",
    "num_negatives",
    "ranking_candidates",
    "ranking_ties",
)


@dataclass
class TaskDataArguments(RowArguments, SplitArguments):
    """What it is fine-tuned on, and for which task."""

    task: str = option(REQUIRED, "What is learnt.", choices=TASK_NAMES)
    text_column: str = option("text", "Classification: column with the text.")
    pair_column: str | None = option(None, "Classification, tagging: column with a second text.")
    label_column: str = option("label", "Classification, regression: column with the class or the score.")
    group_column: str | None = option(
        None, "Classification of answers: column with the question; also scores the mean reciprocal rank."
    )
    words_column: str = option(
        "tokens", "Tagging: column with the words, a list or separated by one blank; of CoNLL its number."
    )
    tags_column: str = option(
        "tags", "Tagging: column with their tags, or with spans of characters; of CoNLL its number, from 1."
    )
    tag_scheme: str = option(
        AUTO, "Tagging: plain is for tags without spans (parts of speech).", choices=(AUTO, *SCHEMES, PLAIN)
    )
    parity_metric: str | None = option(
        None,
        "Tagging: also give the score of K-BERT's script, which does not compare types.",
        choices=PARITY_METRICS,
    )
    question_column: str = option("question", "Questions: column with the question.")
    context_column: str = option("context", "Questions: column with the passage.")
    answers_column: str = option(
        "answers", "Questions: column with SQuAD's answers; none for a question without an answer."
    )
    doc_stride: Count = option(128, "Questions: tokens that two windows of a long passage share.")
    max_question_length: Size = option(64, "Questions: longer ones are cut to so many tokens.")
    max_answer_length: Size = option(30, "Questions: most tokens of an answer.")
    n_best_size: Size = option(20, "Questions: answers of each in the predictions' file.")
    null_score_diff_threshold: AnyNumber = option(
        0.0, "Questions that may have no answer: by how much 'no answer' must beat the best answer."
    )
    best_null_threshold: bool = option(
        False,
        "Questions that may have no answer: take the threshold that is best (F1) on the validation data; results and "
        "predictions name it.",
    )
    answer_metric: str = option(
        AUTO, "Questions: cmrc is for Chinese, and auto's if `language` is zh.", choices=(AUTO, *ANSWER_METRICS)
    )
    triple_task: str = option(TRIPLE, "Triples: what is asked (KG-BERT).", choices=TRIPLE_TASKS)
    entity_text_file: list[str] | None = option(
        None, "Triples: name<TAB>text of every entity; of several files the last counts. Default: the names."
    )
    relation_text_file: list[str] | None = option(None, "Triples: the same of every relation, in order.")
    num_negatives: Size | None = option(
        None, "Triples: false ones of each true training triple (KG-BERT: 1, for link prediction 5)."
    )
    ranking_candidates: str = option(
        "all",
        "Link prediction: rank among all entities, among those that the relation has on this side elsewhere (type), "
        "or among so many drawn ones (a number).",
    )
    ranking_ties: str = option(
        "realistic", "Ranks: what counts of entities that score like the true one, half, none or all.", choices=TIES
    )
    linear_baseline: bool = option(
        False, "Also a linear model, of n-grams or of words in their windows, on the very same rows (scikit-learn)."
    )
    file_format: str | None = option(
        None, "For files whose names do not tell.", choices=(*TABLES, "conll", "brat", "squad")
    )

    # The help of a job tells of options of one task where that task is named.
    asked: ClassVar[str] = "task"
    of: ClassVar[dict[str, tuple[str, ...]]] = {
        "question-answering": QUESTIONS,
        "extraction": QUESTIONS,
        "triples": TRIPLES,
        "classification": ("linear_baseline",),
        "tagging": ("linear_baseline",),
    }

    def check_rows(self) -> None:
        """Refuse samples and baselines that a task does not have."""
        if self.linear_baseline and self.task not in ("classification", "tagging"):
            raise ValueError(f"`linear_baseline` is none of `task` = {self.task}: leave it out.")
        if self.linear_baseline and find_spec("sklearn") is None:
            raise ValueError(
                f"`linear_baseline` = {self.linear_baseline} needs scikit-learn: pip install "
                "'hf-ptm-ext[metrics]', or leave it out."
            )
        if self.train_sample and self.task == "masked-lm":
            raise ValueError(f"`train_sample` = {self.train_sample} draws examples, and masked-lm packs text.")

    def check(self, training: Any) -> None:
        """Refuse values that contradict each other, before anything is read."""
        self.check_source()
        if not any((self.validation_file, self.test_file, self.validation_split, self.test_split)):
            raise ValueError(
                "`validation_file` or `test_file` (or a split) must be named: without it nothing is measured."
            )
        self.check_rows()
        among = self.ranking_candidates
        if among not in ("all", "type") and not (among.isdecimal() and int(among)):
            raise ValueError(
                f"`ranking_candidates` must be all, type or a number from 1, got {among!r}: among whom the true "
                "entity is ranked."
            )
        if self.task in ("question-answering", "extraction") and self.doc_stride >= self.max_seq_length:
            raise ValueError(
                f"`doc_stride` must be less than `max_seq_length` = {self.max_seq_length}, got {self.doc_stride}: "
                "windows would not move on. Common are 128 and 384."
            )
        validation = self.validation_file or self.validation_split
        if self.best_null_threshold and not validation:
            raise ValueError(
                "`best_null_threshold` needs `validation_file` or `validation_split`: the test data must not choose "
                "it."
            )
        if training.eval_strategy != "no" and not validation:
            raise ValueError(
                f"`eval_strategy` = {training.eval_strategy.value} needs `validation_file` or `validation_split`: the "
                "test data must not choose the model."
            )


def data_name(data: Any, split: str = "train") -> str:
    """What a card calls the data of a split: names of files, or of the data set."""
    files = getattr(data, f"{split}_file") or ()
    names = [Path(file).name for file in ([files] if isinstance(files, str) else files)]
    return ", ".join(names) or data.dataset_name


def hub_data(data: Any) -> dict[str, str]:
    """The id of a data set of the Hub, for a card."""
    name = getattr(data, "dataset_name", None)
    return {"hub_id": name} if name and is_hub_id(name) else {}
