"""What `hf-ptm-ext finetune-seq2seq` can be told: dataclasses, a recipe file, a decoding preset, and flags."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from transformers import Seq2SeqTrainingArguments

from ..files import resource
from .arguments import TABLES, JobArguments, ModelArguments, SplitArguments, TextArguments
from .options import checked, option, read_options, with_recipe
from .ranges import AnyNumber, Count, Share, Size, TextLength
from .recipes import as_flags, read_mapping

SEARCHES = ("stock", "unilm", "mass", "mass_nmt")
METRICS = ("rouge", "sacrebleu")


@dataclass
class Seq2SeqModelArguments(ModelArguments):
    """Which model is fine-tuned."""

    family: str | None = option(None, "Architecture of a new model: unilm (default), or any encoder-decoder.")
    default_family: ClassVar[str | None] = "unilm"


@dataclass
class Seq2SeqDataArguments(TextArguments, SplitArguments):
    """What it is fine-tuned on."""

    train_file: list[str] | None = option(None, "Files or glob patterns: .jsonl, .csv, .tsv (also .gz), .parquet.")
    source_column: str = option("source", "Column or JSON field with the source text.")
    target_column: str = option("target", "Column with the target: a text, or a list of equally right ones.")
    source_pair_column: str | None = option(
        None, "Column with a second source text; the first one is cut if both are too long."
    )
    source_prefix: str = option("", "Put before every source (T5: 'summarize: ').")
    file_format: str | None = option(
        None,
        "For files whose names do not tell; squad: of answers, turned into question generation.",
        choices=(*TABLES, "squad"),
    )
    max_context_characters: Size | None = option(
        None, "With squad: cut passages to so many characters around the answer."
    )
    max_source_length: TextLength = option(384, "Most source tokens, special tokens included.")
    max_target_length: TextLength = option(128, "Most target tokens, the final one included; never counts the source.")
    max_eval_rows: Size | None = option(None, "Evaluate on the first rows only.")
    max_test_rows: Size | None = option(None, "Test on the first rows only.")
    source_lang: str | None = option(
        None, "Code of the sources' language, for multilingual models (mBART, NLLB, MASS-NMT...)."
    )
    target_lang: str | None = option(None, "Code of the targets' language, likewise.")
    task: str = option(
        "text-generation", "Task of the Hub, for the card: summarization, translation, text-generation."
    )


@dataclass
class Seq2SeqObjectiveArguments:
    """How UniLM's targets are masked; encoder-decoders predict every token. Defaults are the collator's."""

    mlm_probability: Share = option(0.7, "Share of target tokens to mask (UniLM).")
    max_predictions: Count | None = option(48, "Most masked tokens of a row (UniLM: 48, CNN/DM 140); 0 = no limit.")
    pseudo_masked: bool = option(False, "s2s-ft's input: every target token is predicted, by a pseudo token (UniLM).")
    target_mask_prob: Share = option(0.5, "With pseudo_masked: share of target tokens that are corrupted too.")


@dataclass
class DecodingArguments:
    """How texts are generated for the metrics, and by the saved model."""

    decoding: str | None = option(None, "A preset, by name or as a YAML file; flags override it.")
    search: str = option("stock", "stock: transformers' own; a family's name: its reference's.", choices=SEARCHES)
    num_beams: Size = option(1, "Beams; 1 is greedy.")
    length_penalty: AnyNumber | None = option(
        None, "Exponent of the length (default 1); search unilm: alpha (default 0)."
    )
    no_repeat_ngram_size: Count = option(
        0, "No n-gram of this size twice in the generated text; the source has no say."
    )
    forbid_ignore_set: list[str] | None = option(None, "Words that may complete a repeated n-gram, such as '.'.")
    not_predict: list[str] | None = option(None, "Words that are never generated.")
    min_new_tokens: Count = option(0, "Fewest generated tokens.")
    max_new_tokens: Size | None = option(None, "Most generated tokens (default: max_target_length).")
    early_stopping: bool = option(False, "Stop when as many beams have ended (stock, mass_nmt).")
    metric: str = option("rouge", "Score of the generated texts.", choices=METRICS)
    metric_tokenizer: str | None = option(
        None,
        "rouge: word, character; sacrebleu: 13a, zh... Default: what the references ask for.",
    )
    use_stemmer: bool = option(False, "rouge: strip English endings.")
    lowercase_metric: bool = option(False, "sacrebleu: compare without case.")


@dataclass
class FineTuningArguments(JobArguments, Seq2SeqTrainingArguments):
    """Arguments of training, with defaults that suit fine-tuning."""

    output_dir: str = option("outputs/finetune", "Where checkpoints and the model go.")
    num_train_epochs: float = option(10.0, "Rounds over the training data.")
    learning_rate: float = option(3e-5, "Peak learning rate of AdamW (UniLM: 1e-5 to 3e-5).")
    label_smoothing_factor: float = option(
        0.1, "Label smoothing, applied once: by the model if it has its own (UniLM)."
    )
    predict_with_generate: bool = option(True, "Evaluate generated texts, not losses only.")
    eval_strategy: str = option("no", "Also evaluated after training.")
    save_strategy: str = option("epoch", "When checkpoints are written.")

    long: ClassVar[bool] = True


GROUPS = (
    Seq2SeqModelArguments,
    Seq2SeqDataArguments,
    Seq2SeqObjectiveArguments,
    DecodingArguments,
    FineTuningArguments,
)


def read_preset(name: str) -> dict[str, Any]:
    """Read a decoding preset."""
    file = Path(name)
    if not file.is_file():
        file = resource("decoding", name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    preset = read_mapping(file)
    known = {f.name for f in fields(DecodingArguments)} - {"decoding"}
    if set(preset) - known:
        raise ValueError(f"`decoding`: {file} must map decoding arguments to values; they are {sorted(known)}.")
    return checked(preset, (DecodingArguments,), f"{file}: ")


def parse(arguments: list[str]) -> tuple[Any, ...]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win, presets come first."""
    arguments = with_recipe(arguments, GROUPS, "finetune-seq2seq")
    presets = [value for value in values_of("--decoding", arguments) if value]
    if presets:
        arguments = as_flags(read_preset(presets[-1])) + arguments
    model, data, objective, decoding, training = read_options(arguments, GROUPS, "finetune-seq2seq")
    data.check_source()
    data.check_tokenizer(model)
    if data.file_format == "squad" and (data.source_prefix or data.source_pair_column):
        raise ValueError(
            f"`file_format` = {data.file_format} makes its own source; leave out the prefix and the pair column."
        )
    for name, instead in (("generation_max_length", "max_new_tokens"), ("generation_num_beams", "num_beams")):
        if getattr(training, name) is not None:
            raise ValueError(f"`{name}` is not read here: use `{instead}`, which never counts the source.")
    return model, data, objective, decoding, training


def values_of(flag: str, arguments: list[str]) -> list[str]:
    """What a flag is given, in either spelling."""
    spaced = [(at, arguments[at + 1]) for at, word in enumerate(arguments[:-1]) if word == flag]
    joined = [(at, word.partition("=")[2]) for at, word in enumerate(arguments) if word.startswith(f"{flag}=")]
    return [value for _, value in sorted(spaced + joined)]
