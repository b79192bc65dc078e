"""What `hf-ptm-ext pretrain` can be told: dataclasses, a recipe file, and flags that override it."""

from dataclasses import dataclass, field
from typing import ClassVar

from .job_arguments import JobArguments
from .options import read_options

# Objectives that restore a text -> the family of a new model, and what the loss is called in metrics.
DENOISING = {"mass": "mass", "text_infilling": "bart", "span_corruption": "t5", "tlm": "xlm"}
LABEL_TERMS = {"mass": "mass", "text_infilling": "denoising", "span_corruption": "denoising"}
MASS_VARIANT_NAMES = ("summarization", "paper", "unsupervised_nmt", "supervised_nmt")
# Objectives that draw second segments from all documents, and the family that they train.
PAIR_FAMILIES = {"unilm": "unilm", "ernie_thu": "ernie_thu"}
OBJECTIVES = ("span", "mlm", "wwm", *PAIR_FAMILIES, *DENOISING)
DEFAULT_FAMILY = "spanbert"


@dataclass
class ModelArguments:
    """Which model is trained."""

    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Checkpoint to continue from: a folder or a hub id. Default: start from a config."},
    )
    family: str | None = field(
        default=None,
        metadata={"help": "Model family of a new model; by default the objective's own, spanbert for span and mlm."},
    )
    config_name: str | None = field(default=None, metadata={"help": "Folder, hub id or config.json of a new model."})
    config_overrides: str | None = field(
        default=None, metadata={"help": "Fields of the config, as hidden_size=128,num_hidden_layers=4."}
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "Folder or hub id of the tokenizer. Default: the model's, or a trained one."}
    )
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of a hub id."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run code that a checkpoint carries."})
    license: str | None = field(
        default=None, metadata={"help": "Licence of the trained weights, as the Hub spells it, for the model card."}
    )
    attn_implementation: str | None = field(default=None, metadata={"help": "eager, sdpa or flex_attention."})
    chosen_family: str | None = field(default=None, init=False)
    default_family: ClassVar[str] = DEFAULT_FAMILY

    def __post_init__(self) -> None:
        self.chosen_family, self.family = self.family, self.family or self.default_family


@dataclass
class DataArguments:
    """What it is trained on."""

    corpus: str | None = field(
        default=None, metadata={"help": "Embedded corpus, en or zh (default en, if no other data are named)."}
    )
    train_file: list[str] | None = field(
        default=None, metadata={"help": "Files or glob patterns: .txt, .txt.gz, .jsonl, .jsonl.gz, .parquet."}
    )
    corpus_weights: list[float] | None = field(
        default=None,
        metadata={
            "help": "Shares of the rows that come from each entry of train_file, as 0.7 0.3; an epoch then has every "
            "row at least once (default: all rows once)."
        },
    )
    validation_file: list[str] | None = field(default=None, metadata={"help": "Files for evaluation."})
    dataset_name: str | None = field(default=None, metadata={"help": "Hub id or folder for datasets.load_dataset."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Its configuration."})
    train_split: str = field(default="train", metadata={"help": "Its training split."})
    validation_split: str | None = field(default=None, metadata={"help": "Its evaluation split."})
    source_column: str | None = field(
        default=None, metadata={"help": "Parallel text (tlm): column of the first sentence (default: the language)."}
    )
    target_column: str | None = field(default=None, metadata={"help": "Parallel text: column of the second one."})
    target_train_file: list[str] | None = field(
        default=None, metadata={"help": "Parallel text: translations of train_file, line by line."}
    )
    target_validation_file: list[str] | None = field(
        default=None, metadata={"help": "Parallel text: translations of validation_file, line by line."}
    )
    text_column: str = field(default="text", metadata={"help": "Column or JSON field with the text."})
    file_format: str | None = field(
        default=None, metadata={"help": "text, jsonl or parquet, for files whose names do not tell."}
    )
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of text files."})
    document_separator: str = field(
        default="blank_line", metadata={"help": "What ends a document of a text file: blank_line or line."}
    )
    validation_fraction: float = field(
        default=0.05, metadata={"help": "Share of documents held out when no validation data are named; 0 = none."}
    )
    max_seq_length: int = field(default=128, metadata={"help": "Tokens of a block, special tokens included."})
    pack_rows: bool = field(
        default=False, metadata={"help": "Put several blocks into each row; worth it on a GPU (see the README)."}
    )
    streaming: bool = field(default=False, metadata={"help": "Read, tokenise and pack while training."})
    shuffle_buffer_size: int = field(default=1000, metadata={"help": "Documents among which a stream draws the next."})
    max_train_rows: int | None = field(default=None, metadata={"help": "Use only the first rows (not streaming)."})
    max_eval_rows: int | None = field(default=1000, metadata={"help": "Evaluate on the first rows only."})
    train_tokenizer: bool = field(
        default=False, metadata={"help": "Train a WordPiece tokenizer on the training data (default without a model)."}
    )
    vocab_size: int = field(default=8000, metadata={"help": "Pieces of a trained tokenizer."})
    lowercase: bool = field(default=True, metadata={"help": "Whether a trained tokenizer lower-cases."})
    language: str | None = field(
        default=None, metadata={"help": "Language of the text, for the model card: en, zh... (default: undetermined)."}
    )
    data_license: str | None = field(default=None, metadata={"help": "Licence of the data, for the model card."})


@dataclass
class ObjectiveArguments:
    """What is predicted. Defaults are the collators' and so the papers'."""

    objective: str = field(
        default="span",
        metadata={
            "help": "span (SpanBERT: spans and their boundaries), mlm (tokens), wwm (whole words), unilm (pairs in "
            "four attention modes, with next-sentence prediction), ernie_thu (tokens, next sentences and denoised "
            "entities); of encoder-decoders mass, text_infilling (BART), span_corruption (T5); of sentence pairs tlm "
            "(XLM)."
        },
    )
    mlm_probability: float = field(default=0.15, metadata={"help": "Share of tokens to predict."})
    mask_replace_prob: float = field(default=0.8, metadata={"help": "Share of those that become [MASK]."})
    random_replace_prob: float = field(default=0.1, metadata={"help": "Share of those that become random tokens."})
    geometric_p: float = field(default=0.2, metadata={"help": "Parameter of the span length law."})
    max_span_length: int = field(default=10, metadata={"help": "Longest drawn span, in words."})
    max_pair_targets: int | None = field(
        default=None, metadata={"help": "Tokens of a span with a boundary loss (default: the model's config)."}
    )
    sbo_loss_weight: float | None = field(
        default=None, metadata={"help": "Weight of the span boundary term (default: the model's config)."}
    )
    next_sentence_prediction: bool = field(
        default=False, metadata={"help": "The two-segment variant with next-sentence prediction (span objective)."}
    )
    entity_table: str | None = field(
        default=None, metadata={"help": "Entity vectors of objective ernie_thu (`train-entity-vectors`)."}
    )
    entity_titles: str | None = field(
        default=None,
        metadata={"help": "title<TAB>entity lines, by which entities are found (default: the titles of the table)."},
    )
    ignore_title_case: bool = field(default=False, metadata={"help": "Find titles in any case."})
    entity_replace_prob: float = field(default=0.05, metadata={"help": "Share of entities that become others."})
    entity_mask_prob: float = field(default=0.15, metadata={"help": "Share of entities that are taken away."})
    min_entities: int = field(default=5, metadata={"help": "Rows with fewer entities are dropped (ernie_thu)."})
    segmenter: str | None = field(
        default=None,
        metadata={"help": "Words of unspaced text: jieba (needs the extra zh). Default: the tokenizer's."},
    )
    word_boundaries: str = field(
        default="auto", metadata={"help": "auto, column, tokenizer, or token (every token is a word)."}
    )
    mass_variant: str = field(
        default="summarization",
        metadata={"help": "Rule of MASS: summarization, paper, unsupervised_nmt or supervised_nmt."},
    )
    mask_prob: float | None = field(default=None, metadata={"help": "mass: share of tokens to predict."})
    mask_ratio: float | None = field(default=None, metadata={"help": "text_infilling: share of words to mask (0.3)."})
    poisson_lambda: float | None = field(
        default=None, metadata={"help": "text_infilling: mean words of a masked span (3.5)."}
    )
    permute_sentence_ratio: float | None = field(
        default=None, metadata={"help": "text_infilling: share of sentences that are permuted (1)."}
    )
    rotate_ratio: float | None = field(
        default=None, metadata={"help": "text_infilling: share of rows that are rotated (0)."}
    )
    noise_density: float | None = field(
        default=None, metadata={"help": "span_corruption: share of tokens to predict (0.15)."}
    )
    mean_noise_span_length: float | None = field(
        default=None, metadata={"help": "span_corruption: mean tokens of a span (3)."}
    )
    languages: list[str] | None = field(
        default=None, metadata={"help": "tlm: codes of the two languages, first the source's."}
    )


@dataclass
class PretrainingArguments(JobArguments):
    """transformers' TrainingArguments with defaults that suit pre-training."""

    output_dir: str = field(default="outputs/pretrain", metadata={"help": "Where checkpoints and the model go."})
    max_steps: int = field(default=1000, metadata={"help": "Number of updates; -1 trains num_train_epochs instead."})
    learning_rate: float = field(default=1e-4, metadata={"help": "Peak learning rate of AdamW (SpanBERT: 1e-4)."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay (SpanBERT's command: 0.01)."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Warm-up updates, or their share if below 1."})
    eval_strategy: str = field(default="no", metadata={"help": "Also evaluated before and after training."})
    save_strategy: str = field(default="steps", metadata={"help": "When checkpoints are written."})
    save_steps: float = field(default=500, metadata={"help": "Updates between checkpoints."})
    save_total_limit: int | None = field(default=2, metadata={"help": "How many checkpoints are kept."})
    logging_steps: float = field(default=50, metadata={"help": "Updates between log lines."})


GROUPS = (ModelArguments, DataArguments, ObjectiveArguments, PretrainingArguments)


def parse(
    arguments: list[str],
) -> tuple[ModelArguments, DataArguments, ObjectiveArguments, PretrainingArguments]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The four groups of arguments.

    Raises:
        ValueError: an unknown recipe key or a value that no objective knows.
    """
    description = "Continue the pre-training of a checkpoint, or start from a config, on real text."
    model, data, objective, training = read_options(arguments, GROUPS, "pretrain", description)
    if objective.objective not in OBJECTIVES:
        raise ValueError(f"`objective` must be one of {', '.join(OBJECTIVES)}, got {objective.objective!r}.")
    shares = objective.mask_replace_prob + objective.random_replace_prob
    if not shares <= 1 + 1e-9:
        raise ValueError(
            f"`mask_replace_prob` and `random_replace_prob` must be 1 at most together, got {shares}: the rest stays."
        )
    sources = [name for name in ("corpus", "train_file", "dataset_name") if getattr(data, name)]
    if len(sources) > 1:
        raise ValueError(f"Name one source of training data, got {' and '.join(f'`{name}`' for name in sources)}.")
    if not sources:
        data.corpus = "en"
    if data.corpus_weights is not None:
        check_corpus_weights(data)
    if data.train_tokenizer and model.tokenizer_name:
        raise ValueError("`train_tokenizer` and `tokenizer_name` exclude each other: leave one out.")
    if data.streaming and training.max_steps <= 0:
        raise ValueError("`streaming` needs `max_steps`: a stream has no length. Set --max_steps.")
    if data.streaming and objective.next_sentence_prediction:
        raise ValueError("`next_sentence_prediction` draws second segments from all documents: set streaming off.")
    if objective.objective in DENOISING:
        check_denoising(model, data, objective)
    parallel = ("source_column", "target_column", "target_train_file", "target_validation_file")
    if objective.objective != "tlm" and any(getattr(data, name) is not None for name in parallel):
        raise ValueError(f"{', '.join(f'`{name}`' for name in parallel)} name parallel text: set --objective tlm.")
    if objective.objective in PAIR_FAMILIES:
        if data.streaming:
            raise ValueError(
                f"Objective {objective.objective} draws second segments from all documents: set streaming off."
            )
        model.family = PAIR_FAMILIES[objective.objective]
        objective.next_sentence_prediction = True
    elif objective.next_sentence_prediction and objective.objective != "span":
        raise ValueError(f"`next_sentence_prediction` goes with objective span, got {objective.objective}.")
    if objective.objective == "ernie_thu" and data.pack_rows:
        raise ValueError("`pack_rows` must be off with objective ernie_thu, whose rows are pairs with entities.")
    if (objective.objective == "ernie_thu") != (objective.entity_table is not None):
        raise ValueError(
            f"`entity_table` goes with objective ernie_thu, which needs one, got {objective.entity_table} with "
            f"{objective.objective}. Make one with `hf-ptm-ext train-entity-vectors`."
        )
    return model, data, objective, training


def check_corpus_weights(data: DataArguments) -> None:
    """Refuse weights that do not go with the training files."""
    weights, files = data.corpus_weights or [], data.train_file or []
    if len(files) < 2 or len(weights) != len(files):
        raise ValueError(
            f"`corpus_weights` needs one weight for each of several entries of `train_file`, got {len(weights)} "
            f"weights and {len(files)} entries."
        )
    if data.target_train_file and len(data.target_train_file) != len(files):
        raise ValueError(
            f"`target_train_file` must name a file for each of the {len(files)} of `train_file` under "
            f"`corpus_weights`, got {len(data.target_train_file)}."
        )


def check_denoising(model: ModelArguments, data: DataArguments, objective: ObjectiveArguments) -> None:
    """Complete the arguments of a denoising objective and refuse those that do not go with it.

    Args:
        model: gets the objective's family.
        data: gets the columns of parallel text.
        objective: which objective.

    Raises:
        ValueError: rows would be packed, or a language, a file or a variant is missing or unknown.
    """
    name = objective.objective
    if model.family == DEFAULT_FAMILY:
        model.family = DENOISING[name]
    if data.pack_rows:
        raise ValueError(f"Objective {name} makes a target of each row: leave `pack_rows` out.")
    if name == "mass" and objective.mass_variant not in MASS_VARIANT_NAMES:
        raise ValueError(
            f"`mass_variant` must be one of {', '.join(MASS_VARIANT_NAMES)}, got {objective.mass_variant!r}."
        )
    if name != "tlm":
        return
    if len(objective.languages or ()) != 2 or len(set(objective.languages or ())) != 2:
        raise ValueError(f"`languages` must be two languages for objective tlm, got {objective.languages}.")
    if data.corpus is not None:
        raise ValueError("Objective tlm needs parallel text: name `train_file` or `dataset_name`.")
    if data.streaming:
        raise ValueError("Objective tlm reads all pairs at once: set streaming off.")
    if bool(data.validation_file) != bool(data.target_validation_file) and data.target_train_file:
        raise ValueError("`validation_file` and `target_validation_file` go together: name both or none.")
    source, target = objective.languages or ("", "")
    data.source_column = data.source_column or source
    data.target_column = data.target_column or target
