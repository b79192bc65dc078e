"""AWD-LSTM configuration: sizes, the five rates of dropout, the two regularisers, ULMFiT's classifier."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .configuration_core import FamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_awd_lstm.AwdLstmConfig",
    "AutoModel": "modeling_awd_lstm.AwdLstmModel",
    "AutoModelForCausalLM": "modeling_awd_lstm.AwdLstmForCausalLM",
    "AutoModelForSequenceClassification": "modeling_awd_lstm.AwdLstmForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_awd_lstm.AwdLstmForTokenClassification",
}
# What ULMFiT's classifiers are trained with: `from_pretrained(folder, **CLASSIFIER_RATES)`.
CLASSIFIER_RATES = {"output_p": 0.4, "hidden_p": 0.3, "input_p": 0.4, "embed_p": 0.05, "weight_p": 0.5}


@strict
class AwdLstmConfig(FamilyConfig):
    """Configuration of AWD-LSTM (Merity et al. 2018, https://arxiv.org/abs/1708.02182) and of ULMFiT's classifier.

    The latter is Howard and Ruder's (2018, https://arxiv.org/abs/1801.06146). Defaults are those of fastai's language
    models.

    Args:
        vocab_size: size of the vocabulary (default 60000).
        embedding_size: width of the embeddings and, tied to them, of the last layer (default 400).
        lstm_size: units of the other layers (default 1152; the paper and the first WikiText-103 weights 1150).
        num_hidden_layers: number of LSTMs (default 3).
        output_size: units of the last layer (default: `embedding_size`, the only one with tied embeddings).
        bidirectional: whether each layer reads in both directions, with half of its units in each (default False; a
            language model then sees what it predicts).
        output_p: rate of dropout before the decoder, one mask for all positions of a row (default 0.1).
        hidden_p: the same between layers (default 0.15).
        input_p: the same on the embeddings (default 0.25).
        embed_p: rate at which whole words are dropped wherever they are in the batch (default 0.02).
        weight_p: rate at which recurrent weights are dropped for a call (default 0.2).
        drop_mult: what these five are multiplied by (default 1).
        alpha: weight of activation regularisation, the mean square of the dropped output (default 2).
        beta: weight of temporal activation regularisation, of the change from position to position (default 1).
        decoder_bias: whether the decoder has a bias (default True; fastai 0.7: False).
        bptt: tokens of a chunk in which the classifier reads a text; gradients end at its edges (default 72).
        max_len: the classifier pools over the last chunks of about so many tokens (default 1440; None: over all).
        classifier_sizes: widths of the classifier's hidden layers (default 50).
        classifier_dropout: rate of dropout before its last layers (default 0.1); before the first it is `output_p`.
        classifier_bias: whether its layers have biases (default False: fastai 2; fastai 1: True).
        fastai_compatible_pooling: whether the classifier reads a batch as fastai 2 does, where short texts lose some
            of their last positions, or are not read at all (default False).
        initializer_range: embeddings are uniform in +- this (default 0.1).
        pad_token_id: the padding token, which gets no gradient as an input (default 1; None: Salesforce's code).

    Examples:
        >>> from hf_ptm_ext import AwdLstmConfig
        >>> AwdLstmConfig(embedding_size=20, lstm_size=28).layer_sizes
        [28, 28, 20]
    """

    model_type = "awd_lstm"
    _probabilities: ClassVar[tuple[str, ...]] = (*CLASSIFIER_RATES, "classifier_dropout")
    _activation = ""
    keys_to_ignore_at_inference = ["past_state", "hidden_states", "lm_loss", "ar_loss", "tar_loss"]

    vocab_size: int = 60000
    embedding_size: int = 400
    lstm_size: int = 1152
    num_hidden_layers: int = 3
    output_size: int | None = None
    bidirectional: bool = False
    output_p: float | int = 0.1
    hidden_p: float | int = 0.15
    input_p: float | int = 0.25
    embed_p: float | int = 0.02
    weight_p: float | int = 0.2
    drop_mult: float | int = 1.0
    alpha: float | int = 2.0
    beta: float | int = 1.0
    decoder_bias: bool = True
    bptt: int = 72
    max_len: int | None = 1440
    classifier_sizes: list[int] | tuple[int, ...] = (50,)
    classifier_dropout: float | int = 0.1
    classifier_bias: bool = False
    fastai_compatible_pooling: bool = False
    initializer_range: float | int = 0.1
    pad_token_id: int | None = 1
    bos_token_id: int | None = 2
    eos_token_id: int | list[int] | None = None
    tie_word_embeddings: bool = True
    use_cache: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.classifier_sizes = list(self.classifier_sizes)
        for name in ("vocab_size", "embedding_size", "lstm_size", "num_hidden_layers", "bptt"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        if self.tie_word_embeddings and self.hidden_size != self.embedding_size:
            raise ValueError(
                f"`output_size` must be `embedding_size` = {self.embedding_size} with tied embeddings, got "
                f"{self.output_size}: set `tie_word_embeddings` to False."
            )
        if not 0 <= self.rate("output_p") <= 1 or not 0 <= max(self.rate(name) for name in CLASSIFIER_RATES) <= 1:
            raise ValueError(f"`drop_mult` must leave every rate in [0, 1], got {self.drop_mult}.")
        odd = [size for size in self.layer_sizes if size % 2]
        if self.bidirectional and odd:
            raise ValueError(f"Sizes of bidirectional layers must be even, got {odd[0]}.")

    @property
    def hidden_size(self) -> int:
        """Width of the last layer."""
        return self.embedding_size if self.output_size is None else self.output_size

    @property
    def layer_sizes(self) -> list[int]:
        """Units of each layer."""
        return [self.lstm_size] * (self.num_hidden_layers - 1) + [self.hidden_size]

    def rate(self, name: str) -> float:
        """One of the five rates of dropout, times `drop_mult`."""
        return getattr(self, name) * self.drop_mult
