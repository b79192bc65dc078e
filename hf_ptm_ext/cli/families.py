"""What jobs ask of a model family: its classes, and what its config takes from a tokenizer."""

from typing import Any

from ..registration import FAMILIES
from .recipes import parse_overrides

# Architectures whose checkpoints the families on BERT's names read.
READ_AS_BERT = ("bert",)


def family_class(model: Any, auto_class: str) -> Any:
    """The family's class for an auto class.

    Args:
        model: has the family's name.
        auto_class: such as `"AutoModelForPreTraining"`, or `"AutoConfig"`.

    Raises:
        ValueError: there is no such family.
    """
    for family in FAMILIES:
        if family.model_type == model.family:
            kind = "configuration" if auto_class == "AutoConfig" else "modeling"
            return family.load(kind, family.config if auto_class == "AutoConfig" else family.models[auto_class])
    names = ", ".join(family.model_type for family in FAMILIES)
    raise ValueError(f"`family` must be one of {names}, got {model.family!r}.")


def checkpoint_overrides(model: Any, config: Any) -> dict[str, Any]:
    """What a checkpoint's config is told to be instead; refuses options that make a new model.

    Args:
        model: arguments with `config_overrides`, `config_name` and `family`.
        config: of the checkpoint.

    Raises:
        ValueError: an option that only a new model can follow, or a field that the config does not have.
    """
    if model.config_name is not None:
        raise ValueError(
            f"`config_name` = {model.config_name} makes a new model, and `model_name_or_path` = "
            f"{model.model_name_or_path} names a trained one: leave one out."
        )
    if model.chosen_family is not None and config.model_type not in (model.chosen_family, *READ_AS_BERT):
        raise ValueError(
            f"`family` = {model.chosen_family} makes a new model, and `model_name_or_path` = "
            f"{model.model_name_or_path} is a trained {config.model_type}: leave one out."
        )
    return parse_overrides(model.config_overrides, config.to_dict(), type(config).__name__)


def fitted_fields(config: Any, tokenizer: Any) -> dict[str, Any]:
    """Fields that a new model's config takes from the tokenizer: size of the vocabulary and special tokens.

    Args:
        config: the architecture's, as it is.
        tokenizer: any tokenizer.

    Returns:
        Field name -> value.
    """
    known = config.to_dict()
    pad = tokenizer.pad_token_id
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id
    start = known.get("decoder_start_token_id")
    starts_with_end = start is not None and start == known.get("eos_token_id")
    fitted = {"vocab_size": len(tokenizer), "pad_token_id": pad, "eos_token_id": end}
    if config.is_encoder_decoder:
        # BART starts its decoder with the token that ends a text, T5 with padding.
        fitted |= {"bos_token_id": begin, "decoder_start_token_id": end if starts_with_end else pad}
        if known.get("forced_eos_token_id") is not None:
            fitted["forced_eos_token_id"] = end
    if "mask_token_id" in known:
        fitted["mask_token_id"] = tokenizer.mask_token_id
    return fitted
