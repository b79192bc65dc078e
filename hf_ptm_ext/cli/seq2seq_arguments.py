"""What `hf-ptm-ext finetune-seq2seq` can be told: dataclasses, a recipe file, a decoding preset, and flags."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from transformers import Seq2SeqTrainingArguments

from ..data.bad_rows import ERROR
from ..resources import resource
from .job_arguments import BAD_ROWS, JobArguments
from .options import checked, read_options, with_recipe
from .pretrain_arguments import ModelArguments
from .recipes import as_flags, read_mapping

SEARCHES = ("stock", "unilm", "mass", "mass_nmt")
METRICS = ("rouge", "sacrebleu")


@dataclass
class Seq2SeqModelArguments(ModelArguments):
    """Which model is fine-tuned."""

    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Checkpoint to fine-tune: a folder or a hub id. Default: start from a config."},
    )
    default_family: ClassVar[str] = "unilm"
    family: str | None = field(
        default=None,
        metadata={"help": "Architecture of a new model: unilm, or any encoder-decoder (bart, t5...)."},
    )


@dataclass
class Seq2SeqDataArguments:
    """What it is fine-tuned on."""

    train_file: list[str] | None = field(
        default=None, metadata={"help": "Files or glob patterns: .jsonl, .csv, .tsv (also .gz), .parquet."}
    )
    validation_file: list[str] | None = field(default=None, metadata={"help": "Files for evaluation."})
    test_file: list[str] | None = field(default=None, metadata={"help": "Files for the final test."})
    dataset_name: str | None = field(default=None, metadata={"help": "Hub id or folder for datasets.load_dataset."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Its configuration."})
    train_split: str = field(default="train", metadata={"help": "Its training split."})
    validation_split: str | None = field(default=None, metadata={"help": "Its evaluation split."})
    test_split: str | None = field(default=None, metadata={"help": "Its test split."})
    source_column: str = field(default="source", metadata={"help": "Column or JSON field with the source text."})
    target_column: str = field(
        default="target", metadata={"help": "Column with the target: a text, or a list of equally right ones."}
    )
    source_pair_column: str | None = field(
        default=None, metadata={"help": "Column with a second source text; the first one is cut if both are too long."}
    )
    source_prefix: str = field(default="", metadata={"help": "Put before every source (T5: 'summarize: ')."})
    file_format: str | None = field(
        default=None,
        metadata={
            "help": "jsonl, csv, tsv, parquet (default: from the name), or squad: question answering files, turned "
            "round into question generation."
        },
    )
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of text files."})
    on_bad_rows: str = field(default=ERROR, metadata=BAD_ROWS)
    max_context_characters: int | None = field(
        default=None, metadata={"help": "With squad: cut passages to so many characters around the answer."}
    )
    max_source_length: int = field(default=384, metadata={"help": "Most source tokens, special tokens included."})
    max_target_length: int = field(
        default=128, metadata={"help": "Most target tokens, the final one included; never counts the source."}
    )
    max_train_rows: int | None = field(default=None, metadata={"help": "Use only the first rows."})
    max_eval_rows: int | None = field(default=None, metadata={"help": "Evaluate on the first rows only."})
    max_test_rows: int | None = field(default=None, metadata={"help": "Test on the first rows only."})
    train_tokenizer: bool = field(
        default=False, metadata={"help": "Train a WordPiece tokenizer on the training data (default without a model)."}
    )
    vocab_size: int = field(default=8000, metadata={"help": "Pieces of a trained tokenizer."})
    lowercase: bool = field(default=True, metadata={"help": "Whether a trained tokenizer lower-cases."})
    language: str | None = field(
        default=None, metadata={"help": "Language of the text, for the model card: en, zh... (default: undetermined)."}
    )
    source_lang: str | None = field(
        default=None,
        metadata={"help": "Code of the sources' language, for multilingual models (mBART, NLLB, MASS-NMT...)."},
    )
    target_lang: str | None = field(default=None, metadata={"help": "Code of the targets' language, likewise."})
    data_license: str | None = field(default=None, metadata={"help": "Licence of the data, for the model card."})
    task: str = field(
        default="text-generation",
        metadata={"help": "Task of the Hub, for the model card: summarization, translation, text-generation."},
    )


@dataclass
class Seq2SeqObjectiveArguments:
    """How UniLM's targets are masked; encoder-decoders predict every token. Defaults are the collator's."""

    mlm_probability: float = field(default=0.7, metadata={"help": "Share of target tokens to mask (UniLM)."})
    max_predictions: int | None = field(
        default=48,
        metadata={"help": "Most masked tokens of a row (UniLM: 48, CNN/DM 140); 0 = no limit."},
    )
    pseudo_masked: bool = field(
        default=False, metadata={"help": "s2s-ft's input: every target token is predicted, by a pseudo token (UniLM)."}
    )
    target_mask_prob: float = field(
        default=0.5, metadata={"help": "With pseudo_masked: share of target tokens that are corrupted too."}
    )


@dataclass
class DecodingArguments:
    """How texts are generated for the metrics, and by the saved model."""

    decoding: str | None = field(
        default=None, metadata={"help": "A preset, by name or as a YAML file; flags override it."}
    )
    search: str = field(
        default="stock",
        metadata={"help": "stock (transformers' own), or a family's name (unilm, mass, mass_nmt): its reference's."},
    )
    num_beams: int = field(default=1, metadata={"help": "Beams; 1 is greedy."})
    length_penalty: float | None = field(
        default=None, metadata={"help": "Exponent of the length (default 1); search unilm: alpha (default 0)."}
    )
    no_repeat_ngram_size: int = field(
        default=0, metadata={"help": "No n-gram of this size twice in the generated text; the source has no say."}
    )
    forbid_ignore_set: list[str] | None = field(
        default=None, metadata={"help": "Words that may complete a repeated n-gram, such as '.'."}
    )
    not_predict: list[str] | None = field(default=None, metadata={"help": "Words that are never generated."})
    min_new_tokens: int = field(default=0, metadata={"help": "Fewest generated tokens."})
    max_new_tokens: int | None = field(
        default=None, metadata={"help": "Most generated tokens (default: max_target_length)."}
    )
    early_stopping: bool = field(
        default=False, metadata={"help": "Stop when as many beams have ended (stock, mass_nmt)."}
    )
    metric: str = field(default="rouge", metadata={"help": "rouge or sacrebleu."})
    metric_tokenizer: str | None = field(
        default=None,
        metadata={
            "help": "rouge: word (ASCII) or character (any script); sacrebleu: 13a, zh, char... Default: what the "
            "references' script asks for."
        },
    )
    use_stemmer: bool = field(default=False, metadata={"help": "rouge: strip English endings."})
    lowercase_metric: bool = field(default=False, metadata={"help": "sacrebleu: compare without case."})


@dataclass
class FineTuningArguments(JobArguments, Seq2SeqTrainingArguments):
    """transformers' Seq2SeqTrainingArguments with defaults that suit fine-tuning."""

    output_dir: str = field(default="outputs/finetune", metadata={"help": "Where checkpoints and the model go."})
    num_train_epochs: float = field(default=10.0, metadata={"help": "Rounds over the training data."})
    learning_rate: float = field(default=3e-5, metadata={"help": "Peak learning rate of AdamW (UniLM: 1e-5 to 3e-5)."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay (UniLM: 0.01)."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Warm-up updates, or their share if below 1."})
    label_smoothing_factor: float = field(
        default=0.1, metadata={"help": "Label smoothing, applied once: by the model if it has its own (UniLM)."}
    )
    predict_with_generate: bool = field(default=True, metadata={"help": "Evaluate generated texts, not losses only."})
    eval_strategy: str = field(default="no", metadata={"help": "Also evaluated after training."})
    save_strategy: str = field(default="epoch", metadata={"help": "When checkpoints are written."})
    save_total_limit: int | None = field(default=2, metadata={"help": "How many checkpoints are kept."})
    logging_steps: float = field(default=50, metadata={"help": "Updates between log lines."})


GROUPS = (
    Seq2SeqModelArguments,
    Seq2SeqDataArguments,
    Seq2SeqObjectiveArguments,
    DecodingArguments,
    FineTuningArguments,
)


def read_preset(name: str) -> dict[str, Any]:
    """Read a decoding preset.

    Args:
        name: a YAML file, or the name of a preset that comes with the package.

    Returns:
        Fields of `DecodingArguments`.

    Raises:
        ValueError: not a mapping, or a key that is no decoding argument.
        FileNotFoundError: no such file and no such preset.

    Example:
        >>> read_preset("unilm_gigaword")["length_penalty"]
        0.6
    """
    file = Path(name)
    if not file.is_file():
        file = resource("decoding", name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    preset = read_mapping(file)
    known = {f.name for f in fields(DecodingArguments)} - {"decoding"}
    if set(preset) - known:
        raise ValueError(f"`decoding`: {file} must map decoding arguments to values; they are {sorted(known)}.")
    return checked(preset, (DecodingArguments,), f"{file}: ")


def parse(
    arguments: list[str],
) -> tuple[
    Seq2SeqModelArguments, Seq2SeqDataArguments, Seq2SeqObjectiveArguments, DecodingArguments, FineTuningArguments
]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win, presets come first.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The five groups of arguments.

    Raises:
        ValueError: an unknown recipe key or preset, or values that contradict each other.
    """
    arguments = with_recipe(arguments, GROUPS, "finetune-seq2seq")
    presets = [value for value in values_of("--decoding", arguments) if value]
    if presets:
        arguments = as_flags(read_preset(presets[-1])) + arguments
    description = "Fine-tune UniLM or an encoder-decoder on pairs of texts, and score what it writes."
    model, data, objective, decoding, training = read_options(arguments, GROUPS, "finetune-seq2seq", description)
    check(model, data, objective, decoding, training)
    return model, data, objective, decoding, training


def values_of(flag: str, arguments: list[str]) -> list[str]:
    """What a flag is given, in either spelling.

    Args:
        flag: with its dashes.
        arguments: the command line.

    Example:
        >>> values_of("--decoding", ["--decoding", "a", "--decoding=b"])
        ['a', 'b']
    """
    spaced = [(at, arguments[at + 1]) for at, word in enumerate(arguments[:-1]) if word == flag]
    joined = [(at, word.partition("=")[2]) for at, word in enumerate(arguments) if word.startswith(f"{flag}=")]
    return [value for _, value in sorted(spaced + joined)]


def check(
    model: Seq2SeqModelArguments,
    data: Seq2SeqDataArguments,
    objective: Seq2SeqObjectiveArguments,
    decoding: DecodingArguments,
    training: FineTuningArguments,
) -> None:
    """Refuse values that contradict each other, before anything is read.

    Args:
        model: which model.
        data: what it is fine-tuned on.
        objective: how targets are masked.
        decoding: how texts are generated.
        training: how it is trained.

    Raises:
        ValueError: see the messages.
    """
    if bool(data.train_file) == bool(data.dataset_name):
        got = "both" if data.train_file else "neither"
        raise ValueError(f"Name one source of training data, `train_file` or `dataset_name`; got {got}.")
    for name, value, known in (("search", decoding.search, SEARCHES), ("metric", decoding.metric, METRICS)):
        if value not in known:
            raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {value!r}.")
    if data.train_tokenizer and model.tokenizer_name:
        raise ValueError("`train_tokenizer` and `tokenizer_name` exclude each other: leave one out.")
    if data.file_format == "squad" and (data.source_prefix or data.source_pair_column):
        raise ValueError("`file_format` = squad makes its own source; leave out the prefix and the pair column.")
    for name, instead in (("generation_max_length", "max_new_tokens"), ("generation_num_beams", "num_beams")):
        if getattr(training, name) is not None:
            raise ValueError(f"`{name}` is not read here: use `{instead}`, which never counts the source.")
