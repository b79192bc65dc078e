"""What jobs ask of a model family: its classes, and what its config takes from a tokenizer."""

from typing import Any

from ..registration import FAMILIES


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
    return fitted
