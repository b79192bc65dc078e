"""Configurations with that of an encoder of another kind inside."""

from typing import Any

from transformers.configuration_utils import PreTrainedConfig

# Sizes that are the encoder's, under the names by which generic code reads and sets them.
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def encoder_config_of(value: Any) -> PreTrainedConfig:
    """The configuration of the encoder inside, from what a config.json or a caller has.

    Args:
        value: a configuration, or its dictionary with a `model_type`.

    Returns:
        The configuration.

    Raises:
        ValueError: there is none, or its kind is unknown here.

    Example:
        >>> encoder_config_of({"model_type": "bert", "hidden_size": 32}).hidden_size
        32
    """
    from transformers import AutoConfig  # which registers this family's class: not while its module is imported

    if isinstance(value, PreTrainedConfig):
        return value
    if not isinstance(value, dict) or "model_type" not in value:
        raise ValueError(
            "`encoder_config` must be the configuration of an encoder or its dictionary with a `model_type`, got "
            f"{value!r}. `from_encoder` takes it from a checkpoint."
        )
    fields = dict(value)
    model_type = fields.pop("model_type")
    try:
        return AutoConfig.for_model(model_type, **fields)
    except ValueError as error:
        raise ValueError(
            f"`encoder_config` is a {model_type}, which transformers does not know. If it is a family of hf_ptm_ext, "
            "`pip install hf-ptm-ext` and `import hf_ptm_ext` first."
        ) from error


def _of_encoder(name: str) -> property:
    """A field of the encoder's configuration, read and set through the outer one."""

    def read(config: Any) -> Any:
        return getattr(config.encoder_config, name)

    def write(config: Any, value: Any) -> None:
        setattr(config.encoder_config, name, value)

    return property(read, write, doc=f"The encoder's `{name}`.")


class CanonicalEncoderInside:
    """Mixin in front of a configuration with an `encoder_config`: its sizes are the encoder's, also to set.

    `resize_token_embeddings` sets `vocab_size`, PEFT reads the sizes from `to_dict()`. A config.json has them once,
    in `encoder_config`.
    """

    hidden_size = _of_encoder("hidden_size")
    num_hidden_layers = _of_encoder("num_hidden_layers")
    num_attention_heads = _of_encoder("num_attention_heads")
    vocab_size = _of_encoder("vocab_size")

    def to_dict(self: Any) -> dict[str, Any]:
        """As upstream, with the encoder's configuration as a dictionary and the sizes that it has.

        Returns:
            The fields.
        """
        found = super().to_dict()
        if hasattr(found.get("encoder_config"), "to_dict"):
            found["encoder_config"] = found["encoder_config"].to_dict()
        return {**found, **{name: getattr(self, name) for name in SIZES if hasattr(self, name)}}

    def to_diff_dict(self: Any) -> dict[str, Any]:
        """As upstream, for the file: without the sizes.

        Returns:
            The fields.
        """
        return {name: value for name, value in super().to_diff_dict().items() if name not in SIZES}
