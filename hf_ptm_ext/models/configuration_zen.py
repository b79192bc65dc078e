"""ZEN configuration: BERT's fields, and those of the n-gram encoder."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

RELEASED_WORD_LAYERS = 6

AUTO_MAP = {
    "AutoConfig": "configuration_zen.ZenConfig",
    "AutoModel": "modeling_zen.ZenModel",
    "AutoModelForPreTraining": "modeling_zen.ZenForPreTraining",
    "AutoModelForMaskedLM": "modeling_zen.ZenForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_zen.ZenForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_zen.ZenForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_zen.ZenForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_zen.ZenForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_zen.ZenForMultipleChoice",
}


@strict
class ZenConfig(BertFamilyConfig):
    """Configuration of the ZEN family (Diao et al. 2019, https://arxiv.org/abs/1911.00720).

    Reads the original project's config.json, whose `word_size` is taken for `word_vocab_size`, and that of any BERT
    with absolute positions. Fields not listed are BERT's, with BERT's defaults.

    Args:
        vocab_size: size of the vocabulary of tokens (default 21128: BERT's Chinese one).
        word_vocab_size: rows of the n-gram table, the lexicon's lines and one for padding (default 104089: the
            released models).
        num_hidden_word_layers: layers of the n-gram encoder, not more than `num_hidden_layers` (default `None`: 6, as
            in the released models, or all if there are fewer). Layers of the text beyond them still get the last
            n-gram states.

    Examples:
        >>> from hf_ptm_ext import ZenConfig
        >>> ZenConfig(hidden_size=32, num_attention_heads=4).num_hidden_word_layers
        6
    """

    model_type = "zen"

    vocab_size: int = 21128
    word_vocab_size: int = 104089
    num_hidden_word_layers: int | None = None
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.word_vocab_size < 1:
            raise ValueError(f"`word_vocab_size` must be at least 1 (the padding row), got {self.word_vocab_size}.")
        if self.num_hidden_word_layers is None:
            self.num_hidden_word_layers = min(RELEASED_WORD_LAYERS, self.num_hidden_layers)
        if not 0 <= self.num_hidden_word_layers <= self.num_hidden_layers:
            raise ValueError(
                f"`num_hidden_word_layers` must be in [0, `num_hidden_layers` = {self.num_hidden_layers}], got "
                f"{self.num_hidden_word_layers}: no layer of the text would read the others."
            )

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As the base class; the original's `word_size` is `word_vocab_size`."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if "word_size" in config_dict:
            config_dict = {"word_vocab_size": config_dict["word_size"], **config_dict}
            config_dict.pop("word_size")
        return config_dict, kwargs
