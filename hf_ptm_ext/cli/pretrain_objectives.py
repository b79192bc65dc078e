"""What each objective needs: a model class and a collator."""

import math
from typing import Any

from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedConfig

from ..collators import (
    DataCollatorForDenoisingEntities,
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForSpanMasking,
    DataCollatorForUniLMPreTraining,
    DataCollatorForWholeWordMasking,
    DataCollatorWithNgrams,
)
from . import pretrain_denoising as denoising
from .families import checkpoint_overrides, family_class
from .loading import load_model
from .pretrain_arguments import DENOISING, PAIR_FAMILIES, DataArguments, ModelArguments, ObjectiveArguments
from .recipes import parse_overrides

# Most sequences of a packed row (the row packer's default): each rounds its budget up.
MAX_SEQUENCES = 16


def build_model(
    model: ModelArguments, data: DataArguments, objective: ObjectiveArguments, tokenizer: Any, entities: Any = None
) -> Any:
    """Load or make the model of an objective.

    The span, unilm and ernie_thu objectives need the family's pre-training class, which takes any BERT checkpoint;
    token and whole-word masking train any masked language model under its own class.

    Args:
        model: which model.
        data: for the length of the rows.
        objective: for the class and the config fields of its terms.
        tokenizer: decides the vocabulary size.
        entities: table of objective ernie_thu, which the model gets (default: none).

    Raises:
        ValueError: the model has fewer positions than `max_seq_length`, or the config has unknown fields.
    """
    if objective.objective in DENOISING:
        return checked_positions(denoising.build_model(model, data, objective, tokenizer), data)
    spans = objective.objective == "span"
    own = spans or objective.objective in PAIR_FAMILIES
    fields: dict[str, Any] = {}
    if model.attn_implementation is not None:
        fields["attn_implementation"] = model.attn_implementation
    if spans:
        fields |= {
            name: value
            for name in ("max_pair_targets", "sbo_loss_weight")
            if (value := getattr(objective, name)) is not None
        }
        # Without next-sentence prediction nothing trains a pooler: the encoder has none, as the published ones.
        fields["next_sentence_prediction"] = objective.next_sentence_prediction
        fields["add_pooling_layer"] = objective.next_sentence_prediction
    if objective.objective == "unilm":
        fields["mask_token_id"], fields["eos_token_id"] = tokenizer.mask_token_id, tokenizer.sep_token_id
    if entities is not None:
        fields["entity_hidden_size"] = entities.table.dim
    if model.model_name_or_path is not None:
        source = {"revision": model.model_revision}
        if own:
            cls = family_class(model, "AutoModelForPreTraining")
            check_readable(model)
        else:
            cls = AutoModelForMaskedLM
            source["trust_remote_code"] = model.trust_remote_code
        config = getattr(cls, "config_class", None) or AutoConfig
        fields |= checkpoint_overrides(model, config.from_pretrained(model.model_name_or_path, **source))
        built = load_model(
            cls, model.model_name_or_path, tokenizer=tokenizer, tokenizer_option="tokenizer_name", **source, **fields
        )
    else:
        auto_class = "AutoModelForPreTraining" if own else "AutoModelForMaskedLM"
        config = new_config(model, data, tokenizer, fields)
        built = family_class(model, auto_class)._from_config(config)
    checked_positions(built, data)
    if entities is not None:
        entities.place_in(built)
    return built


def checked_positions(built: Any, data: DataArguments) -> Any:
    """The model, if it has positions for the rows."""
    positions = getattr(built.config, "max_position_embeddings", None)
    if positions is not None and data.max_seq_length > positions:
        raise ValueError(
            f"`max_seq_length` must not exceed the model's {positions} positions, got {data.max_seq_length}."
        )
    return built


def check_readable(model: ModelArguments) -> None:
    """Refuse a checkpoint of another architecture for the span objective, before its weights are looked at."""
    config, _ = PreTrainedConfig.get_config_dict(model.model_name_or_path, revision=model.model_revision)
    model_type = config.get("model_type", "bert")
    if model_type not in ("bert", model.family):
        raise ValueError(
            f"`model_name_or_path` is a {model_type} model; this objective trains {model.family}, which reads "
            "BERT checkpoints. Use --objective mlm or --objective wwm for this one."
        )


def new_config(model: ModelArguments, data: DataArguments, tokenizer: Any, fields: dict[str, Any]) -> Any:
    """Configuration of a new model: a given one or the family's defaults, overridden, fitted to the tokenizer."""
    cls = family_class(model, "AutoConfig")
    known = cls().to_dict()
    values: dict[str, Any] = {}
    if model.config_name is not None:
        values = AutoConfig.from_pretrained(
            model.config_name, revision=model.model_revision, trust_remote_code=model.trust_remote_code
        ).to_dict()
        values.pop("model_type", None)
    values |= parse_overrides(model.config_overrides, known, cls.__name__)
    values["vocab_size"] = len(tokenizer)
    values["pad_token_id"] = tokenizer.pad_token_id
    if hasattr(tokenizer, "lexicon"):  # ZEN's: a row for each n-gram, and one for padding
        values["word_vocab_size"] = len(tokenizer.lexicon) + 1
    values.setdefault("max_position_embeddings", max(data.max_seq_length, 512))
    return cls(**{**values, **fields})


def build_collator(
    data: DataArguments,
    objective: ObjectiveArguments,
    tokenizer: Any,
    model: Any,
    seed: int,
    baseline_counts: Any,
    fixed_shapes: bool,
) -> Any:
    """The collator of an objective.

    Args:
        data: for the length of the rows.
        objective: which collator, and its probabilities.
        tokenizer: any tokenizer with a mask token.
        model: its config gives `max_pair_targets`.
        seed: of the masks.
        baseline_counts: token counts of the training text; random tokens of the span objective follow them, as in
            SpanBERT.
        fixed_shapes: pad to `max_seq_length` and fix the number of labels, for compiled models.
    """
    collator = _masking_collator(data, objective, tokenizer, model, seed, baseline_counts, fixed_shapes)
    if not hasattr(tokenizer, "ngram_inputs"):
        return collator
    # ZEN: n-grams are those of the masked text.
    return DataCollatorWithNgrams(collator, tokenizer, data.max_seq_length, fixed_width=fixed_shapes)


def _masking_collator(
    data: DataArguments,
    objective: ObjectiveArguments,
    tokenizer: Any,
    model: Any,
    seed: int,
    baseline_counts: Any,
    fixed_shapes: bool,
) -> Any:
    """What masks the text of an objective, see `build_collator`."""
    if objective.objective in DENOISING:
        return denoising.build_collator(data, objective, tokenizer, model, seed, fixed_shapes)
    options: dict[str, Any] = {
        "tokenizer": tokenizer,
        "mlm_probability": objective.mlm_probability,
        "mask_replace_prob": objective.mask_replace_prob,
        "random_replace_prob": objective.random_replace_prob,
        "seed": seed,
    }
    if fixed_shapes:
        # Each content block of a row rounds its number of labels up.
        blocks = (MAX_SEQUENCES if data.pack_rows else 1) * (2 if objective.next_sentence_prediction else 1)
        labels = objective.mlm_probability * data.max_seq_length + blocks
        options["label_budget"] = 8 * math.ceil(labels / 8)
        options["pad_to_multiple_of"] = data.max_seq_length
    if objective.objective == "mlm":
        return DataCollatorForMaskedLanguageModeling(budget="exact", **options)
    if objective.objective == "unilm":
        return DataCollatorForUniLMPreTraining(**options)
    if objective.objective == "ernie_thu":
        return DataCollatorForDenoisingEntities(
            tokenizer,
            replace_prob=objective.entity_replace_prob,
            mask_prob=objective.entity_mask_prob,
            mlm=DataCollatorForMaskedLanguageModeling(budget="exact", **options),
            seed=seed,
        )
    options["word_boundaries"] = "column" if objective.segmenter is not None else objective.word_boundaries
    if objective.objective == "wwm":
        return DataCollatorForWholeWordMasking(**options)
    if fixed_shapes:
        options["pair_budget"] = options["label_budget"]
    return DataCollatorForSpanMasking(
        geometric_p=objective.geometric_p,
        max_span_length=objective.max_span_length,
        max_pair_targets=model.config.max_pair_targets,
        random_token_counts=baseline_counts,
        **options,
    )
