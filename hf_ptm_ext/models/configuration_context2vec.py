"""Context2Vec configuration: sizes of words, LSTMs and target vectors, and how negatives are drawn."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import WordFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_context2vec.Context2VecConfig",
    "AutoModel": "modeling_context2vec.Context2VecModel",
    "AutoModelForMaskedLM": "modeling_context2vec.Context2VecForMaskedLM",
}


@strict
class Context2VecConfig(WordFamilyConfig):
    """Configuration of Context2Vec (Melamud et al. 2016, https://aclanthology.org/K16-1006).

    Args:
        vocab_size: number of words (default 30522).
        embedding_size: width of the word vectors that the LSTMs read (default 300).
        lstm_size: units of each LSTM (default 600).
        target_size: width of contexts and of target words' vectors (default 600).
        deep: whether a context is a multilayer perceptron of both states (default True); else one matrix for each,
            the halves side by side.
        negative_samples: words drawn for each target while training (default 10).
        ns_power: power of the words' counts that they are drawn by (default 0.75).
        dropout: probability of dropping values of word vectors and LSTM states while training (default 0).
        bos_token_id: what the left LSTM reads first (default 1, as in the authors' code).
        eos_token_id: what the right LSTM reads first (default 2).
        pad_token_id: the padding word (default None: the authors' rows have one length).
        initializer_range: standard deviation of new vectors and layers (default 0.1).

    Examples:
        >>> from hf_ptm_ext import Context2VecConfig
        >>> Context2VecConfig(target_size=100).hidden_size
        100
    """

    model_type = "context2vec"
    _probabilities = ("dropout",)
    _sizes = ("vocab_size", "embedding_size", "lstm_size", "target_size", "negative_samples")

    lstm_size: int = 600
    target_size: int = 600
    deep: bool = True
    negative_samples: int = 10
    ns_power: float | int = 0.75
    dropout: float | int = 0.0
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    pad_token_id: int | None = None
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if not self.deep and self.target_size % 2:
            raise ValueError(f"`target_size` must be even without `deep`, half of each LSTM, got {self.target_size}.")

    @property
    def hidden_size(self) -> int:
        """Width of a context."""
        return self.target_size
