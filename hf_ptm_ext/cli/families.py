"""The models of the text jobs (pretrain, finetune-seq2seq): a checkpoint, or a new one that fits the tokenizer."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from transformers import AutoConfig

from ..registration import FAMILIES
from ..weights import transfer_vocabulary
from .loading import load_model
from .recipes import parse_overrides

OWN_FAMILIES = tuple(family.model_type for family in FAMILIES)
# Architectures whose checkpoints the families on BERT's names read.
READ_AS_BERT = ("bert",)
# Beside RoBERTa's, whose first position is behind that of padding.
BEHIND_PADDING = ("camembert", "ibert", "longformer", "luke", "mpnet", "xmod")
# What configs call the dropout of hidden states, attention and activations; that of heads is another.
DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "activation_dropout"),
    *("dropout_rate", "embedding_dropout", "mlp_dropout"),
)


def family_class(name: str | None, auto_class: str) -> Any:
    """A family's class for an auto class."""
    for family in FAMILIES:
        if family.model_type == name:
            kind = "configuration" if auto_class == "AutoConfig" else "modeling"
            if kind == "modeling" and auto_class not in family.models:
                raise ValueError(
                    f"`family` = {name} has no {auto_class}, which this objective trains. `hf-ptm-ext systems {name}` "
                    "says what trains it."
                )
            return family.load(kind, family.config if auto_class == "AutoConfig" else family.models[auto_class])
    names = ", ".join(family.model_type for family in FAMILIES)
    raise ValueError(f"`family` must be one of {names}, got {name!r}.")


def takes(model: Any, name: str) -> bool:
    """Whether a model's forward has an argument of this name."""
    return name in inspect.signature(model.forward).parameters


def attention(model: Any) -> dict[str, str]:
    """The attention implementation, if one is named."""
    return {} if model.attn_implementation is None else {"attn_implementation": model.attn_implementation}


def named_config(model: Any) -> Any:
    """The configuration that `config_name` names."""
    source = {"revision": model.model_revision, "trust_remote_code": model.trust_remote_code}
    return AutoConfig.from_pretrained(model.config_name, **source)


def load_checkpoint(
    model: Any, cls: Any, tokenizer: Any, check: Callable[[Any], None] = lambda config: None, **fields: Any
) -> Any:
    """Load the named checkpoint under a class, of a family or of transformers; `check` looks at its config first."""
    source = {"revision": model.model_revision}
    config_class = getattr(cls, "config_class", None)
    if config_class is None:  # an auto class
        config_class, source["trust_remote_code"] = AutoConfig, model.trust_remote_code
    config = config_class.from_pretrained(model.model_name_or_path, **source)
    check(config)
    old = getattr(model, "old_tokenizer", None)
    loaded = load_model(
        cls,
        model.model_name_or_path,
        tokenizer=tokenizer if old is None else old,
        tokenizer_option="tokenizer_name",
        extension=getattr(model, "extension", None),
        **source,
        **{**attention(model), **fields, **checkpoint_overrides(model, config)},
    )
    if old is not None:
        if not hasattr(loaded.get_input_embeddings(), "weight"):
            raise ValueError(
                f"`transfer_vocabulary` needs a table of embeddings, and {type(loaded).__name__} has none."
            )
        transfer_vocabulary(loaded, old, tokenizer)
        for name, value in fitted_fields(loaded.config, tokenizer).items():
            setattr(loaded.config, name, value)
    return loaded


def upstream_model(
    model: Any, cls: Any, tokenizer: Any, positions: int, check: Callable[[Any], None], **fields: Any
) -> Any:
    """The named checkpoint under an auto class of transformers, or a new model; `check` looks at its config first.

    The new one is of `config_name` or of the architecture `family`; its config is told `fields`.
    """
    if model.model_name_or_path is not None:
        return load_checkpoint(model, cls, tokenizer, check)
    config = named_config(model) if model.config_name else architecture_config(model, "a model type of transformers")
    check(config)
    return cls.from_config(new_config(model, config, tokenizer, positions, **fields), **attention(model))


def checkpoint_overrides(model: Any, config: Any) -> dict[str, Any]:
    """What a checkpoint's config is told to be instead; refuses options that make a new model."""
    made_new = None
    if model.config_name is not None:
        made_new = f"`config_name` = {model.config_name}", "names a trained one"
    elif model.chosen_family is not None and config.model_type not in (model.chosen_family, *READ_AS_BERT):
        made_new = f"`family` = {model.chosen_family}", f"is a trained {config.model_type}"
    if made_new is not None:
        raise ValueError(
            f"{made_new[0]} makes a new model, and `model_name_or_path` = {model.model_name_or_path} {made_new[1]}: "
            "leave one out."
        )
    return overrides(model, config.to_dict(), type(config).__name__)


def overrides(model: Any, known: Mapping[str, Any], config_class: str) -> dict[str, Any]:
    """Fields of a config that are asked for: `dropout`, under the names that it has there, and `config_overrides`."""
    found = {} if model.dropout is None else {name: model.dropout for name in DROPOUTS if name in known}
    if model.dropout is not None and not found:
        raise ValueError(f"`dropout` = {model.dropout} is nothing that {config_class} has: leave it out.")
    return found | parse_overrides(model.config_overrides, known, config_class)


def architecture_config(model: Any, wanted: str) -> Any:
    """The default configuration of the architecture that `family` names."""
    try:
        return AutoConfig.for_model(model.family)
    except (KeyError, ValueError) as error:
        raise ValueError(f"`family` must be {wanted}, got {model.family!r}.") from error


def new_config(model: Any, config: Any, tokenizer: Any, positions: int, **more: Any) -> Any:
    """Configuration of a new model: a given one or the architecture's defaults, fitted and overridden."""
    cls, known = type(config), config.to_dict()
    # Of a new config only what is asked for: some defaults follow from others.
    fields = {} if model.config_name is None else {name: known[name] for name in known if name != "model_type"}
    fields |= fitted_fields(config, tokenizer)
    if model.config_name is None and "max_position_embeddings" in known:
        behind = "roberta" in config.model_type or config.model_type in BEHIND_PADDING
        before = max(int(fields.get("pad_token_id") or 0) + 1, 2) if behind else 0
        fields["max_position_embeddings"] = max(positions, 512) + before
    return cls(**{**fields, **more, **overrides(model, known, cls.__name__)})


def fitted_fields(config: Any, tokenizer: Any) -> dict[str, Any]:
    """Fields that a new model's config takes from the tokenizer: size of the vocabulary and special tokens."""
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
