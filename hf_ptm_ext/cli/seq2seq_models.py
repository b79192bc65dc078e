"""The model and the collators of sequence-to-sequence fine-tuning, chosen by the architecture."""

from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq, PreTrainedConfig

from ..collators import DataCollatorForUniLMGeneration, DataCollatorForUniLMSeq2Seq
from .families import checkpoint_overrides, family_class, fitted_fields
from .loading import load_model
from .recipes import parse_overrides
from .seq2seq_arguments import (
    DecodingArguments,
    Seq2SeqDataArguments,
    Seq2SeqModelArguments,
    Seq2SeqObjectiveArguments,
)
from .seq2seq_languages import language_inputs

UNILM = "unilm"
# Token types 4 and 5 tell source and target.
UNILM_TYPES = 6


def build_model(model: Seq2SeqModelArguments, data: Seq2SeqDataArguments, tokenizer: Any) -> Any:
    """Load or make the model.

    Args:
        model: which model.
        data: for the lengths.
        tokenizer: decides the vocabulary and the special tokens.

    Returns:
        UniLM, or an encoder-decoder.

    Raises:
        ValueError: another architecture, or one that source, target or vocabulary do not fit into.
    """
    if model.model_name_or_path is not None:
        built = trained_model(model, tokenizer)
    else:
        config = new_config(model, data, tokenizer)
        built = AutoModelForSeq2SeqLM.from_config(config, **attention(model))
    check_lengths(built.config, data)
    return built


def check_model(
    model: Seq2SeqModelArguments, data: Seq2SeqDataArguments, decoding: DecodingArguments
) -> dict[str, int]:
    """Refuse what the model cannot do, before anything is read, where a config says what it is.

    Args:
        model: which model.
        data: has lengths and languages.
        decoding: has the search.

    Returns:
        What `language_inputs` says, nothing without a config.
    """
    name = model.model_name_or_path or model.config_name
    source: dict[str, Any] = {"revision": model.model_revision}
    cls: Any = AutoConfig
    try:
        if name is None:
            config = family_config(model)
        elif "model_type" not in PreTrainedConfig.get_config_dict(name, **source)[0]:  # the original's file
            cls = family_class(Seq2SeqModelArguments(family=UNILM), "AutoModelForSeq2SeqLM").config_class
            config = cls.from_pretrained(name, **source)
        else:
            config = cls.from_pretrained(name, **source, trust_remote_code=model.trust_remote_code)
    except OSError:  # there is none, which loading says; mistakes in the data come first
        return {}
    overrides = parse_overrides(model.config_overrides, config.to_dict(), type(config).__name__)
    for field, value in overrides.items():
        setattr(config, field, value)
    if decoding.search not in ("stock", config.model_type):
        raise ValueError(
            f"`search` = {decoding.search} is the beam search of that family, and this is a {config.model_type} "
            "model. Use stock, or the model's own."
        )
    if name is not None and (config.is_encoder_decoder or config.model_type == UNILM):
        check_lengths(config, data)
    return language_inputs(config, data)


def family_config(model: Seq2SeqModelArguments) -> Any:
    """The default configuration of the architecture."""
    try:
        return AutoConfig.for_model(model.family)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"`family` must be unilm or an encoder-decoder of transformers (bart, t5...), got {model.family!r}."
        ) from error


def check_architecture(config: Any) -> None:
    """Refuse what is neither UniLM nor an encoder-decoder."""
    if not config.is_encoder_decoder and config.model_type != UNILM:
        raise ValueError(
            f"`model_type` = {config.model_type} is neither UniLM nor an encoder-decoder, which is what this job "
            "fine-tunes."
        )


def trained_model(model: Seq2SeqModelArguments, tokenizer: Any) -> Any:
    """Load a checkpoint, that of a BERT converted to UniLM included."""
    source = {"revision": model.model_revision}
    values, _ = PreTrainedConfig.get_config_dict(model.model_name_or_path, **source)
    # The original's config.json names no model type.
    model_type = values.get("model_type", UNILM if model.family == UNILM else None)
    if model_type == "bert":
        raise ValueError(
            f"`model_name_or_path` = {model.model_name_or_path} is a BERT, which has 2 token types and no attention "
            f"modes: convert it with `hf-ptm-ext convert unilm {model.model_name_or_path} FOLDER`."
        )
    cls: Any = AutoModelForSeq2SeqLM
    if model_type == UNILM:
        cls = family_class(Seq2SeqModelArguments(family=UNILM), "AutoModelForSeq2SeqLM")
        if values.get("type_vocab_size", UNILM_TYPES) < UNILM_TYPES:
            raise ValueError(
                f"`type_vocab_size` of {model.model_name_or_path} must be at least {UNILM_TYPES} for source and "
                f"target, got {values['type_vocab_size']}: extend it with `hf-ptm-ext convert unilm`."
            )
    else:
        source["trust_remote_code"] = model.trust_remote_code
    config_class = cls.config_class if model_type == UNILM else AutoConfig
    config = config_class.from_pretrained(model.model_name_or_path, **source)
    check_architecture(config)
    return load_model(
        cls,
        model.model_name_or_path,
        **source,
        **attention(model),
        tokenizer=tokenizer,
        tokenizer_option="tokenizer_name",
        **special_tokens(model_type or "", tokenizer),
        **checkpoint_overrides(model, config),
    )


def attention(model: Seq2SeqModelArguments) -> dict[str, str]:
    """The attention implementation, if one is named."""
    return {} if model.attn_implementation is None else {"attn_implementation": model.attn_implementation}


def special_tokens(model_type: str, tokenizer: Any) -> dict[str, int]:
    """What UniLM generates with: the tokenizer's [MASK] and [SEP]."""
    if model_type != UNILM or tokenizer.mask_token_id is None or tokenizer.sep_token_id is None:
        return {}
    return {"mask_token_id": tokenizer.mask_token_id, "eos_token_id": tokenizer.sep_token_id}


def new_config(model: Seq2SeqModelArguments, data: Seq2SeqDataArguments, tokenizer: Any) -> Any:
    """Configuration of a new model: a given one or the architecture's, overridden, fitted to the tokenizer."""
    if model.config_name is not None:
        config = AutoConfig.from_pretrained(
            model.config_name, revision=model.model_revision, trust_remote_code=model.trust_remote_code
        )
    else:
        config = family_config(model)
    check_architecture(config)
    cls, known = type(config), config.to_dict()
    fitted = fitted_fields(config, tokenizer)
    if model.config_name is None and "max_position_embeddings" in known:
        needed = data.max_source_length + data.max_target_length
        fitted["max_position_embeddings"] = max(needed, 512)
    fitted |= special_tokens(config.model_type, tokenizer)
    # Of a new config only what is asked for: some defaults follow from others.
    given = {} if model.config_name is None else {name: known[name] for name in known if name != "model_type"}
    return cls(**{**given, **fitted, **parse_overrides(model.config_overrides, known, cls.__name__)})


def check_lengths(config: Any, data: Seq2SeqDataArguments) -> None:
    """Refuse lengths that the position table does not have, before anything is trained.

    Args:
        config: the model's.
        data: has the lengths.

    Raises:
        ValueError: too long, with the numbers.
    """
    positions = getattr(config, "max_position_embeddings", None)
    # MASS may have tables of two lengths.
    tables = {
        "max_source_length": getattr(config, "max_source_positions", None) or positions,
        "max_target_length": getattr(config, "max_target_positions", None) or positions,
    }
    needed = {"max_source_length": data.max_source_length, "max_target_length": data.max_target_length}
    if not config.is_encoder_decoder:
        needed = {"max_source_length + max_target_length": sum(needed.values())}
    for names, tokens in needed.items():
        limit = tables.get(names, positions)
        if limit is not None and tokens > limit:
            raise ValueError(
                f"`{names}` = {tokens} must not exceed the model's `max_position_embeddings` = {limit}. Lower it, or "
                "give the model more positions (`hf-ptm-ext convert unilm` extends a table by copying)."
            )


class DecoderInputCollator(DataCollatorForSeq2Seq):
    """Upstream's, also for models that make the decoder's input in `forward` alone (M2M100, NLLB).

    The Trainer takes the labels out of the batch for a smoothed loss, and these would be fed nothing then.
    """

    def __call__(self, features: Any, return_tensors: str | None = None) -> Any:
        batch = super().__call__(features, return_tensors)
        if "decoder_input_ids" not in batch:
            config = self.model.config
            fed = batch["labels"].roll(1, dims=1)
            fed[:, 0] = config.decoder_start_token_id
            batch["decoder_input_ids"] = fed.masked_fill(fed == -100, config.pad_token_id)
        return batch


def build_collators(
    data: Seq2SeqDataArguments, objective: Seq2SeqObjectiveArguments, tokenizer: Any, model: Any, seed: int
) -> tuple[Any, Any]:
    """The collators of training and of evaluation.

    Args:
        data: for the lengths.
        objective: how UniLM masks targets.
        tokenizer: any tokenizer.
        model: decides the kind; encoder-decoders make their decoder's input from the labels.
        seed: of the masks.

    Returns:
        Both collators.

    Raises:
        ValueError: the tokenizer lacks [MASK], [CLS] or [SEP], for UniLM.
    """
    if model.config.is_encoder_decoder:
        collator = DecoderInputCollator(tokenizer, model=model)
        return collator, collator
    options: dict[str, Any] = {
        "mlm_probability": objective.mlm_probability,
        "max_predictions": objective.max_predictions or None,
        "pseudo_masked": objective.pseudo_masked,
        "target_mask_prob": objective.target_mask_prob,
        "max_len": data.max_source_length + data.max_target_length,
        "source_type_id": model.config.source_type_id,
        "target_type_id": model.config.target_type_id,
    }
    training = DataCollatorForUniLMSeq2Seq(tokenizer, seed=seed, **options)
    evaluation = DataCollatorForUniLMSeq2Seq(tokenizer, seed=seed + 1, **options)
    return training, DataCollatorForUniLMGeneration(evaluation)
