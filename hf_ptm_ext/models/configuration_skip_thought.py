"""Skip-thought configuration: which encoders there are, and their sizes."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import WordFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_skip_thought.SkipThoughtConfig",
    "AutoModel": "modeling_skip_thought.SkipThoughtModel",
    "AutoModelForPreTraining": "modeling_skip_thought.SkipThoughtForPreTraining",
    "AutoModelForSequenceClassification": "modeling_skip_thought.SkipThoughtForSequenceClassification",
}
ENCODERS = ("uni", "bi", "combine")


@strict
class SkipThoughtConfig(WordFamilyConfig):
    """Configuration of Skip-thought vectors (Kiros et al. 2015, https://arxiv.org/abs/1506.06726).

    Args:
        vocab_size: number of words that the encoder reads (default 20,000: the paper's; more once it is expanded).
        embedding_size: width of the word vectors (default 620).
        encoder_type: `uni` (default) reads forwards, `bi` both ways with one GRU each, `combine` is both side by side.
        gru_size: units of the forward encoder (default 2400).
        bi_gru_size: units of each direction of the bidirectional one (default 1200).
        normalize: whether each encoder's sentence vector has length 1 (default True, as the authors' `encode`).
        pad_token_id: the padding word (default 0: the end of a sentence, `<eos>`, in the authors' code).
        classifier_dropout: dropout in front of the classifier (default 0.1).
        initializer_range: standard deviation of new vectors and layers (default 0.1).

    Examples:
        >>> from hf_ptm_ext import SkipThoughtConfig
        >>> SkipThoughtConfig(encoder_type="combine").hidden_size
        4800
    """

    model_type = "skip_thought"
    _sizes = ("vocab_size", "embedding_size", "gru_size", "bi_gru_size")

    vocab_size: int = 20000
    embedding_size: int = 620
    encoder_type: str = "uni"
    gru_size: int = 2400
    bi_gru_size: int = 1200
    normalize: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.encoder_type not in ENCODERS:
            raise ValueError(f"`encoder_type` must be one of {', '.join(ENCODERS)}, got {self.encoder_type!r}.")

    @property
    def hidden_size(self) -> int:
        """Width of a sentence vector."""
        sizes = {"uni": self.gru_size, "bi": 2 * self.bi_gru_size}
        return sizes.get(self.encoder_type) or sum(sizes.values())
