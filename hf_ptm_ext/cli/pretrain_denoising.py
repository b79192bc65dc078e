"""The denoising objectives of the pre-training job, MASS, BART, T5 and XLM: models, collators, baseline."""

import inspect
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from ..collators import (
    MASS_VARIANTS,
    DataCollatorForMassPreTraining,
    DataCollatorForSpanCorruption,
    DataCollatorForTextInfilling,
    DataCollatorForTranslationLanguageModeling,
)
from ..conversion.mass import wordpiece_tokenizer
from ..metrics import UnigramBaseline
from ..models.mass.configuration_mass import MassConfig
from .families import checkpoint_overrides, fitted_fields
from .loading import load_model
from .pretrain_arguments import DENOISING, DataArguments, ModelArguments, ObjectiveArguments
from .recipes import parse_overrides

SENTINELS = [f"<extra_id_{number}>" for number in range(100)]
# Rows whose targets are counted for the baseline.
BASELINE_ROWS, BASELINE_BATCH = 2000, 50
# Inputs of a model's forward without which an objective would not be what it says.
NEEDED_INPUTS = {"mass": "decoder_position_ids", "tlm": "langs"}


def fit_tokenizer(tokenizer: Any, objective: str, lowercase: bool) -> Any:
    """Give a tokenizer that was trained here what the objective needs.

    Args:
        tokenizer: WordPiece, as `train_wordpiece` makes it.
        objective: which objective.
        lowercase: whether it lower-cases.

    Returns:
        For MASS, one that writes "tokens [SEP]"; for T5, one with sentinels; else the same.
    """
    if objective == "mass":
        config = MassConfig(max_position_embeddings=tokenizer.model_max_length)
        return wordpiece_tokenizer(tokenizer.get_vocab(), config, lowercase)
    if objective == "span_corruption":
        tokenizer.add_tokens(SENTINELS, special_tokens=True)
    return tokenizer


def build_model(model: ModelArguments, data: DataArguments, objective: ObjectiveArguments, tokenizer: Any) -> Any:
    """Load or make the model of a denoising objective.

    Args:
        model: which model.
        data: for the length of the rows.
        objective: decides the auto class, and the family of a new model.
        tokenizer: decides the vocabulary and the special tokens.

    Returns:
        An encoder-decoder, or for `tlm` a masked language model with languages.

    Raises:
        ValueError: the model does not take the objective's inputs, or an unknown field.
    """
    auto_class: Any = AutoModelForMaskedLM if objective.objective == "tlm" else AutoModelForSeq2SeqLM
    attention = {} if model.attn_implementation is None else {"attn_implementation": model.attn_implementation}
    if model.model_name_or_path is not None:
        source = {"revision": model.model_revision, "trust_remote_code": model.trust_remote_code}
        config = AutoConfig.from_pretrained(model.model_name_or_path, **source)
        check_architecture(config, objective.objective)
        overrides = checkpoint_overrides(model, config)
        built = load_model(
            auto_class,
            model.model_name_or_path,
            tokenizer=tokenizer,
            tokenizer_option="tokenizer_name",
            **source,
            **attention,
            **overrides,
        )
    else:
        built = auto_class.from_config(new_config(model, data, objective, tokenizer), **attention)
    check_inputs(built, objective)
    return built


def check_architecture(config: Any, objective: str) -> None:
    """Refuse an encoder where an encoder-decoder is needed, and the reverse."""
    if config.is_encoder_decoder == (objective == "tlm"):
        kind = "a masked language model with languages, such as XLM" if objective == "tlm" else "an encoder-decoder"
        raise ValueError(f"Objective {objective} trains {kind}, got a {config.model_type} model. Choose another one.")


def check_inputs(model: Any, objective: ObjectiveArguments) -> None:
    """Refuse a model whose forward does not take what the objective gives."""
    needed = NEEDED_INPUTS.get(objective.objective)
    if needed is not None and needed not in inspect.signature(model.forward).parameters:
        raise ValueError(
            f"Objective {objective.objective} gives `{needed}`, which {type(model).__name__} does not take. Train a "
            f"{DENOISING[objective.objective]} model."
        )
    if objective.objective == "tlm" and max(language_ids(objective, model.config).values()) >= model.config.n_langs:
        raise ValueError(
            f"`languages` must be among the model's {model.config.n_langs}, got {objective.languages}. Name them as "
            f"its `lang2id` does: {sorted(getattr(model.config, 'lang2id', None) or {}) or 'none'}."
        )


def new_config(model: ModelArguments, data: DataArguments, objective: ObjectiveArguments, tokenizer: Any) -> Any:
    """Configuration of a new model: a given one or the family's defaults, overridden, fitted to the tokenizer."""
    if model.config_name is not None:
        config = AutoConfig.from_pretrained(
            model.config_name, revision=model.model_revision, trust_remote_code=model.trust_remote_code
        )
    else:
        try:
            config = AutoConfig.for_model(model.family)
        except (KeyError, ValueError) as error:
            raise ValueError(f"`family` must be a model type of transformers, got {model.family!r}.") from error
    check_architecture(config, objective.objective)
    known = config.to_dict()
    fields = fitted_fields(config, tokenizer)
    if model.config_name is None and "max_position_embeddings" in known:
        fields["max_position_embeddings"] = max(data.max_seq_length, 512)
    if objective.objective == "tlm":
        languages = list(objective.languages or ())
        fields |= {
            "mask_token_id": tokenizer.mask_token_id,
            "mask_index": tokenizer.mask_token_id,
            "unk_index": tokenizer.unk_token_id,
            "n_langs": len(languages),
            "lang2id": {language: number for number, language in enumerate(languages)},
        }
    given = {} if model.config_name is None else {name: known[name] for name in known if name != "model_type"}
    overrides = parse_overrides(model.config_overrides, known, type(config).__name__)
    return type(config)(**{**given, **fields, **overrides})


def language_ids(objective: ObjectiveArguments, config: Any) -> dict[str, int]:
    """Ids of the two languages: those of the model's config, or their places in the argument."""
    known = getattr(config, "lang2id", None) or {}
    languages: Sequence[str] = objective.languages or ()
    if known and all(language in known for language in languages):
        return {language: known[language] for language in languages}
    return {language: number for number, language in enumerate(languages)}


def build_collator(
    data: DataArguments, objective: ObjectiveArguments, tokenizer: Any, model: Any, seed: int, fixed_shapes: bool
) -> Any:
    """The collator of a denoising objective.

    Args:
        data: for the length of the rows.
        objective: which collator, and its options; those left out are the collator's defaults.
        tokenizer: any tokenizer with what the objective needs.
        model: its config gives start tokens and language ids.
        seed: of the noise.
        fixed_shapes: pad to `max_seq_length`, for compiled models.
    """
    options: dict[str, Any] = {"tokenizer": tokenizer, "seed": seed}
    if fixed_shapes:
        options["pad_to_multiple_of"] = data.max_seq_length

    def given(*names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(objective, name)) is not None}

    fates = given("mask_replace_prob", "random_replace_prob")
    if objective.objective == "tlm":
        ids = language_ids(objective, model.config)
        return DataCollatorForTranslationLanguageModeling(
            languages=tuple(ids), language_ids=ids, mlm_probability=objective.mlm_probability, **fates, **options
        )
    if objective.objective == "mass":
        variant = {**MASS_VARIANTS[objective.mass_variant], **given("mask_prob")}
        return DataCollatorForMassPreTraining(**variant, **fates, **options)
    options["decoder_start_token_id"] = model.config.decoder_start_token_id
    if objective.objective == "span_corruption":
        return DataCollatorForSpanCorruption(**given("noise_density", "mean_noise_span_length"), **options)
    options["word_boundaries"] = "column" if objective.segmenter is not None else objective.word_boundaries
    names = ("mask_ratio", "poisson_lambda", "permute_sentence_ratio", "rotate_ratio")
    return DataCollatorForTextInfilling(**given(*names), **options)


def target_baseline(collator: Any, rows: Any, vocab_size: int) -> UnigramBaseline:
    """Frequencies of the training targets, sentinels and special tokens included.

    Args:
        collator: makes targets; its counter moves.
        rows: training rows.
        vocab_size: number of tokens.
    """
    counts = np.zeros(vocab_size, dtype=np.int64)
    iterator = iter(rows)
    seen = 0
    while seen < BASELINE_ROWS and (batch := list(islice(iterator, BASELINE_BATCH))):
        labels = collator(batch, return_tensors="np")["labels"]
        counts += np.bincount(labels[labels >= 0], minlength=vocab_size)
        seen += len(batch)
    return UnigramBaseline(counts)
