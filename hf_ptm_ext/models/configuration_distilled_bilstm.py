"""Distilled BiLSTM configuration: sizes of the word vectors, the LSTM and the classifier, one text or two."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import FamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_distilled_bilstm.DistilledBiLstmConfig",
    "AutoModel": "modeling_distilled_bilstm.DistilledBiLstmModel",
    "AutoModelForSequenceClassification": "modeling_distilled_bilstm.DistilledBiLstmForSequenceClassification",
}


@strict
class DistilledBiLstmConfig(FamilyConfig):
    """Configuration of Distilled BiLSTM (Tang et al. 2019, https://arxiv.org/abs/1903.12136).

    Args:
        vocab_size: size of the vocabulary, words or pieces.
        embedding_size: width of the word vectors (default 300: word2vec's).
        lstm_size: units of each direction (default 150; the paper takes up to 300 for pairs of texts).
        classifier_size: width of the fully connected layer (default 200; the paper takes 200 to 400).
        multichannel: whether every word has two vectors, one that is trained and one that stays as it was set (default
            True: Kim 2014's multichannel mode, in the paper's model).
        pairs: whether rows are pairs of texts, compared by [h1; h2; h1*h2; |h1-h2|] (default False: one text, whatever
            its `token_type_ids`).
        hidden_act: activation of the fully connected layer (default `relu`).
        embedding_dropout: probability of dropping a value of a word vector (default 0).
        classifier_dropout: probability of dropping a value behind the ReLU (default 0; the authors' code: 0.1).
        initializer_range: standard deviation of new vectors and layers (default 0.1); the LSTM's weights are uniform
            in +-1/sqrt(lstm_size).
        pad_token_id: the padding token, whose vector is 0.

    Examples:
        >>> from hf_ptm_ext import DistilledBiLstmConfig
        >>> DistilledBiLstmConfig(lstm_size=100).hidden_size
        200
    """

    model_type = "distilled_bilstm"
    _probabilities = ("embedding_dropout", "classifier_dropout")
    keys_to_ignore_at_inference = ["hidden_states", "pooler_output"]

    vocab_size: int = 30522
    embedding_size: int = 300
    lstm_size: int = 150
    classifier_size: int = 200
    multichannel: bool = True
    pairs: bool = False
    hidden_act: str = "relu"
    embedding_dropout: float | int = 0.0
    classifier_dropout: float | int = 0.0
    initializer_range: float | int = 0.1
    pad_token_id: int | None = 0
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        for name in ("vocab_size", "embedding_size", "lstm_size", "classifier_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")

    @property
    def hidden_size(self) -> int:
        """Width of a token's state: both directions."""
        return 2 * self.lstm_size

    @hidden_size.setter
    def hidden_size(self, value: int) -> None:
        if value % 2:
            raise ValueError(f"`hidden_size` must be even, `lstm_size` units of each direction, got {value}.")
        self.lstm_size = value // 2

    @property
    def type_vocab_size(self) -> int:
        """Number of texts that `token_type_ids` tell apart."""
        return 2
