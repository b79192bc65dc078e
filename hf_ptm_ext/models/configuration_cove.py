"""CoVe configuration: sizes of the translation encoder, what its output is made of, and the translation model's."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import WordFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_cove.CoveConfig",
    "AutoModel": "modeling_cove.CoveModel",
    "AutoModelForPreTraining": "modeling_cove.CoveForPreTraining",
    "AutoModelForSequenceClassification": "modeling_cove.CoveForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_cove.CoveForTokenClassification",
}
ATTENTIONS = ("general", "dot")


@strict
class CoveConfig(WordFamilyConfig):
    """Configuration of CoVe, contextual vectors of a translation model's encoder (McCann et al. 2017,
    https://arxiv.org/abs/1708.00107).

    Args:
        vocab_size: number of words with a vector (default 30522; the paper: GloVe's 2.2 million).
        embedding_size: width of the word vectors (default 300: GloVe's).
        lstm_size: units of each direction (default 300).
        num_hidden_layers: LSTM layers (default 2).
        bidirectional: whether rows are read both ways (default True; the translation code can do without).
        output_layers: LSTM layers, from 0, whose states are the output, side by side (default None: the last one).
        concat_embeddings: whether the word vectors stand in front of them (default True: the paper's [GloVe; CoVe];
            the authors' class: False). False also for `WeightedLayersModel`, with `mixed_layers=[1, 2]`.
        freeze_embeddings: whether the word vectors stay as they are (default True, as in the paper).
        dropout: probability of dropping values of word vectors, between layers and of the output while training
            (default 0.2: the translation model's).
        target_vocab_size: words of the translation model's target language (default 30522).
        attention_type: how its decoder scores source words: `general` (default), with a matrix, or `dot`.
        input_feed: whether its decoder also reads the output of the step before (default True).
        mask_attention: whether source padding is hidden from its attention (default True; the authors' code: False).
        bos_token_id: the target's first token (default 2, as in the authors' code).
        eos_token_id: the target's last token (default 3).
        pad_token_id: the padding word (default 0).
        classifier_dropout: dropout in front of the heads of tasks (default 0.1).
        initializer_range: standard deviation of new vectors and heads (default 0.1).

    Examples:
        >>> from hf_ptm_ext import CoveConfig
        >>> CoveConfig().hidden_size, CoveConfig(concat_embeddings=False, output_layers=[0, 1]).hidden_size
        (900, 1200)
    """

    model_type = "cove"
    _probabilities = ("classifier_dropout", "dropout")
    _sizes = ("vocab_size", "embedding_size", "lstm_size", "num_hidden_layers", "target_vocab_size")

    lstm_size: int = 300
    num_hidden_layers: int = 2
    bidirectional: bool = True
    output_layers: list[int] | None = None
    concat_embeddings: bool = True
    freeze_embeddings: bool = True
    dropout: float | int = 0.2
    target_vocab_size: int = 30522
    attention_type: str = "general"
    input_feed: bool = True
    mask_attention: bool = True
    bos_token_id: int | None = 2
    eos_token_id: int | None = 3
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.output_layers is None:
            self.output_layers = [self.num_hidden_layers - 1]
        layers = self.output_layers
        if not layers or len({*layers}) < len(layers) or not {*layers} <= {*range(self.num_hidden_layers)}:
            raise ValueError(
                f"`output_layers` must be different LSTM layers, 0 to {self.num_hidden_layers - 1}, got {layers}."
            )
        if self.attention_type not in ATTENTIONS:
            raise ValueError(f"`attention_type` must be one of {', '.join(ATTENTIONS)}, got {self.attention_type!r}.")

    @property
    def layer_size(self) -> int:
        """Width of a layer's states: both directions."""
        return self.lstm_size * (1 + self.bidirectional)

    @property
    def hidden_size(self) -> int:
        """Width of the output."""
        return len(self.output_layers or ()) * self.layer_size + self.embedding_size * self.concat_embeddings
