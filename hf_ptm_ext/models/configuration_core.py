"""What the configurations of all families check and read alike, and the fields of those that are BERT's."""

from typing import Any, ClassVar

from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)


class FamilyConfig(PreTrainedConfig):
    """Base of every configuration: fields in their ranges, and a word about checkpoints of other versions.

    A family sets the names below. Its file has `AUTO_MAP`, every auto class and the class that serves it, which each
    checkpoint carries as a whole; and `HF_PTM_EXT_VERSION`, the version of the code beside a checkpoint.

    Args:
        hf_ptm_ext_version: version of the code that wrote the checkpoint.

    Raises:
        ValueError: a field is out of its range, an activation is none, or the config asks for what the family is not.
    """

    _probabilities: ClassVar[tuple[str, ...]] = (
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
    )
    _activation = "hidden_act"
    _called = "a model of this kind"
    # What other models' configurations may say: name -> the only value that is the family's.
    _fixed: ClassVar[dict[str, Any]] = {}

    hf_ptm_ext_version: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        for name in self._probabilities:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"`{name}` must be a probability in [0, 1], got {value}.")
        for name, wanted in self._fixed.items():
            found = getattr(self, name, None)
            if found is not None and found != wanted:
                raise ValueError(
                    f"`{name}` must be {wanted!r} in {self._called}, got {found!r}: that is "
                    "another model, and what it has of its own would be lost. Load it with its own class."
                )
        if self._activation:
            check_activation(self._activation, getattr(self, self._activation))
        written_by, own = self.hf_ptm_ext_version, type(self).hf_ptm_ext_version
        if written_by and own and written_by.split(".")[:2] != own.split(".")[:2]:
            logger.warning_once(
                f"This checkpoint was written by hf_ptm_ext {written_by} and is read by {own}; if outputs differ, "
                "load it with the code it carries (trust_remote_code=True, package not imported)."
            )

    def to_dict(self) -> dict[str, Any]:
        """As upstream; a file sorts its dictionaries, so it has the order of knowledge bases beside them."""
        found = super().to_dict()
        if "knowledge_base_names" in found:
            found["knowledge_base_names"] = list(found["knowledge_bases"] or ())
        return found

    def check_end(self) -> None:
        """Refuse an end token that is the padding token: labels hide padding, and the end would never be learnt."""
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        if self.pad_token_id is not None and self.pad_token_id in ends:
            raise ValueError(
                f"`pad_token_id` must not be `eos_token_id`, got {self.pad_token_id} for both: the end of a text "
                "would be hidden as padding and never be learnt. Give the tokenizer a padding token of its own."
            )


def in_stated_order(values: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    """Knowledge bases in the order of a list of their names; others come last."""
    if unknown := [name for name in names or () if name not in values]:
        raise ValueError(f"`knowledge_base_names` must be those of `knowledge_bases`, {list(values)}, got {unknown}.")
    return {name: values[name] for name in dict.fromkeys((*(names or ()), *values)) if name in values}


def check_activation(name: str, value: str) -> None:
    """Refuse an activation that transformers does not have."""
    from transformers.activations import ACT2FN  # imports torch, which reading a config's class need not

    if value not in ACT2FN:
        raise ValueError(
            f"`{name}` must be one of {', '.join(sorted(ACT2FN))}, the names in transformers' `ACT2FN`; got {value!r}."
        )


class BertFamilyConfig(FamilyConfig):
    """Base of the encoders' configurations: BERT's fields with BERT's defaults, and ALBERT's that share weights.

    Args:
        num_hidden_groups: sets of layers, each of which stands for as many of the `num_hidden_layers`, one behind the
            other (ALBERT: 1); `None` (default): every layer has weights of its own.
        inner_group_num: layers of a set, which run one after another each time (default 1: ALBERT).
        embedding_size: width of the embeddings and of the vocabulary head, if it is not that of the layers (ALBERT:
            128); between them is `encoder.embedding_hidden_mapping_in`. `None` (default): `hidden_size`, no mapping.
    """

    # Whether a BERT's config.json is one of the family.
    _reads_bert = True
    _fixed = {"is_decoder": False, "position_embedding_type": "absolute"}
    keys_to_ignore_at_inference = [
        "hidden_states",
        "attentions",
        "pooler_output",
        "mlm_loss",
        "nsp_loss",
        "seq_relationship_logits",
    ]

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    num_hidden_groups: int | None = None
    inner_group_num: int = 1
    embedding_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        groups, inner = self.num_hidden_groups, self.inner_group_num
        if groups is not None and not 1 <= groups <= self.num_hidden_layers:
            raise ValueError(
                f"`num_hidden_groups` must be in [1, `num_hidden_layers` = {self.num_hidden_layers}], or None for "
                f"layers that share nothing, got {groups}."
            )
        if inner < 1 or (groups is None and inner != 1):
            raise ValueError(
                f"`inner_group_num` must be at least 1, and 1 without `num_hidden_groups`, got {inner}: set "
                "`num_hidden_groups` too."
            )
        if self.embedding_size is not None and self.embedding_size < 1:
            raise ValueError(
                f"`embedding_size` must be at least 1, or None for `hidden_size`, got {self.embedding_size}."
            )

    @property
    def depth(self) -> int:
        """How many layers a text goes through."""
        return self.num_hidden_layers * self.inner_group_num

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As upstream; a BERT's configuration is taken for one of the family, whose own parts are new then."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if cls._reads_bert and config_dict.get("model_type") == "bert":
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs


class Seq2SeqFamilyConfig(FamilyConfig):
    """Base of the encoder-decoders' configurations, whose fields have BART's names."""

    _probabilities: ClassVar[tuple[str, ...]] = ("dropout", "attention_dropout")
    _activation = "activation_function"
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "initializer_range": "init_std",
    }
    keys_to_ignore_at_inference = [
        "cache",
        "decoder_hidden_states",
        "decoder_attentions",
        "cross_attentions",
        "encoder_last_hidden_state",
        "encoder_hidden_states",
        "encoder_attentions",
    ]

    vocab_size: int = 30522
    d_model: int = 768
    encoder_layers: int = 6
    encoder_attention_heads: int = 12
    encoder_ffn_dim: int = 3072
    decoder_layers: int = 6
    decoder_attention_heads: int = 12
    decoder_ffn_dim: int = 3072
    activation_function: str = "gelu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    max_position_embeddings: int = 512
    init_std: float | int = 0.02
    layer_norm_eps: float | int = 1e-5
    tie_word_embeddings: bool = True
    use_cache: bool = True
    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            heads = getattr(self, name)
            if heads < 1 or self.d_model % heads:
                raise ValueError(f"`d_model` must be a multiple of `{name}`, got {self.d_model} and {heads}.")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"`pad_token_id` must be an id of the vocabulary, 0 <= id < {self.vocab_size}, got "
                f"{self.pad_token_id}: correct it or `vocab_size`."
            )
        if not self.is_encoder_decoder:
            raise ValueError(
                f"`is_encoder_decoder` must be True, got {self.is_encoder_decoder}: the family has no other model."
            )


class WordFamilyConfig(FamilyConfig):
    """Base of the configurations of models that read words from a table of vectors, one after another."""

    _probabilities: ClassVar[tuple[str, ...]] = ("classifier_dropout",)
    _activation = ""
    _sizes: ClassVar[tuple[str, ...]] = ("vocab_size", "embedding_size")
    keys_to_ignore_at_inference = ["hidden_states", "pooler_output"]

    vocab_size: int = 30522
    embedding_size: int = 300
    classifier_dropout: float | int = 0.1
    initializer_range: float | int = 0.1
    pad_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        for name in self._sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"`pad_token_id` must be an id of the vocabulary, 0 <= id < {self.vocab_size}, got "
                f"{self.pad_token_id}: correct it or `vocab_size`."
            )
