"""ELMo configuration: sizes of the character network and of the language models of both directions."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .characters_elmo import CHARACTERS
from .configuration_core import FamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_elmo.ElmoConfig",
    "AutoModel": "modeling_elmo.ElmoModel",
    "AutoModelForPreTraining": "modeling_elmo.ElmoForPreTraining",
    "AutoModelForSequenceClassification": "modeling_elmo.ElmoForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_elmo.ElmoForTokenClassification",
}
# What has a size.
SIZES = ("vocab_size", "char_embedding_dim", "cell_size", "projection_dim", "n_layers")


@strict
class ElmoConfig(FamilyConfig):
    """Configuration of ELMo (Peters et al., NAACL 2018, https://arxiv.org/abs/1802.05365).

    Defaults are those of the published model ("original", 93.6 million weights).

    Args:
        vocab_size: words of the softmax, in pre-training alone (default 793471: the 1 Billion Word Benchmark).
        n_characters: 262, or 261 as an options.json has it while it is trained; the table has 262 rows in both cases.
        max_characters_per_token: ids of a word, with those that begin and end it (default 50).
        char_embedding_dim: width of a character's vector (default 16).
        filters: pairs of width and number of the convolutions over a word's characters.
        activation: behind the convolutions (default `relu`; or `tanh`).
        n_highway: highway layers (default 2).
        cell_size: width of an LSTM's memory (`dim` in options.json; default 4096).
        projection_dim: width of a word's vector and of a direction's state (default 512).
        n_layers: LSTM layers (default 2).
        cell_clip: largest value of a memory (default 3; 0 = any).
        proj_clip: largest value of a state (default 3; 0 = any).
        use_skip_connections: whether layers behind the first add their input (default True).
        stateful: whether each batch goes on from the states of the one before, as AllenNLP's does (default False).
        dropout: before each LSTM layer and before the softmax, in pre-training and fine-tuning (default 0.1).
        classifier_dropout: before the classifiers (default 0.5).
        n_negative_samples_batch: words of the sampled softmax that trains (default 8192; 0 = all words).
        initializer_range: of the classifiers' new weights.
        pad_token_id: words' padding.
        bos_token_id: `<S>` in the vocabulary of words.
        eos_token_id: `</S>` in the vocabulary of words.

    Examples:
        >>> from hf_ptm_ext import ElmoConfig
        >>> ElmoConfig(projection_dim=128, cell_size=1024).hidden_size
        256
    """

    model_type = "elmo"
    attribute_map = {"num_hidden_layers": "n_layers"}
    _probabilities = ("dropout", "classifier_dropout")
    _activation = "activation"
    keys_to_ignore_at_inference = ["hidden_states", "pooler_output", "forward_loss", "backward_loss"]

    vocab_size: int = 793471
    n_characters: int = CHARACTERS
    max_characters_per_token: int = 50
    char_embedding_dim: int = 16
    filters: Any = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    activation: str = "relu"
    n_highway: int = 2
    cell_size: int = 4096
    projection_dim: int = 512
    n_layers: int = 2
    cell_clip: float | int | None = 3.0
    proj_clip: float | int | None = 3.0
    use_skip_connections: bool = True
    stateful: bool = False
    dropout: float | int = 0.1
    classifier_dropout: float | int = 0.5
    n_negative_samples_batch: int = 8192
    initializer_range: float | int = 0.02
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        for name in SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        for name in ("n_highway", "n_negative_samples_batch", "cell_clip", "proj_clip"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"`{name}` must not be negative, got {getattr(self, name)}.")
        if self.n_characters not in (CHARACTERS - 1, CHARACTERS):
            raise ValueError(f"`n_characters` must be 261 or 262, bytes and marks, got {self.n_characters}.")
        pairs = self.filters if isinstance(self.filters, list | tuple) else []
        self.filters = [list(pair) if isinstance(pair, list | tuple) else pair for pair in pairs]
        longest, most = self.max_characters_per_token, 10**6
        good = all(
            isinstance(pair, list)
            and len(pair) == 2
            and all(type(number) is int and 1 <= number <= most for number in pair)
            and pair[0] <= longest
            for pair in self.filters
        )
        if not self.filters or not good or longest < 3:
            raise ValueError(
                "`filters` must be pairs of a width, up to `max_characters_per_token` (at least 3), and a number, got "
                f"{str(self.filters)[:80]} and {longest}."
            )

    @property
    def hidden_size(self) -> int:
        """Width of a token's state: both directions."""
        return 2 * self.projection_dim
