"""Transformer-XL configuration, under the names of transformers 4, whose checkpoints it reads."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .configuration_core import FamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_transfo_xl.TransfoXLConfig",
    "AutoModel": "modeling_transfo_xl.TransfoXLModel",
    "AutoModelForCausalLM": "modeling_transfo_xl.TransfoXLLMHeadModel",
    "AutoModelForSequenceClassification": "modeling_transfo_xl.TransfoXLForSequenceClassification",
}
# `model_type` in the checkpoints of transformers 4.
MODEL_TYPE_BEFORE = "transfo-xl"
# They do not name their tokenizer; AutoTokenizer finds it by the configuration.
TOKENIZER = "TransfoXLTokenizer"
# Of WikiText-103's 267,735 words.
CUTOFFS = (20000, 40000, 200000)


@strict
class TransfoXLConfig(FamilyConfig):
    """Configuration of Transformer-XL (Dai et al. 2019, https://arxiv.org/abs/1901.02860).

    Names and defaults are those of transformers 4, the paper's large model of WikiText-103 (`transfo-xl-wt103`). A
    `config.json` of transformers 4 (`model_type` "transfo-xl") is read as it is.

    Args:
        vocab_size: number of words, by falling frequency (default 267,735).
        cutoffs: first id of each cluster but the first (default: 20,000, 40,000 and 200,000, those below
            `vocab_size`); none is a plain softmax.
        d_model: width of the states (default 1024).
        d_embed: width of the embeddings of the first cluster (default: `d_model`).
        n_layer: number of layers (default 18).
        n_head: number of heads (default 16).
        d_head: width of a head (default: `d_model // n_head`).
        d_inner: width of the feed-forward part (default 4096).
        div_val: the embeddings of cluster i have the width `d_embed // div_val**i` (default 4); 1 is one table.
        pre_lnorm: whether LayerNorms stand in front of the parts of a layer (default False: behind the sums).
        mem_len: states of each layer that are kept for the next segment (default 1600). It may be changed after
            training, as the paper does for evaluation.
        same_length: whether a token sees `mem_len` states, itself included (default True), instead of all before it.
        clamp_len: distance from which on all are the same (default 1000; 0 and less: no limit).
        initial_memory: what stands in front of the first segment: `"zeros"`, `mem_len` states of 0 that are attended
            to, as in transformers 4 (default), or `"empty"`, nothing, as in the paper and its code.
        untie_r: whether each layer has its own two biases of attention (default True).
        attn_type: 0, the paper's relative attention; the reference's others were baselines and are refused.
        tie_word_embeddings: whether the softmax has the embeddings' tables (default True).
        tie_projs: for each cluster, whether its projection is the embeddings' too, where there is one (default: by
            `proj_share_all_but_first`).
        proj_share_all_but_first: whether all clusters but the first share it (default True; False: none).
        adaptive: not read, as in transformers 4: `cutoffs` say it.
        sample_softmax: -1; a sampled softmax is refused, as in transformers 4.
        dropout: of embeddings, attention's and feed-forward part's outputs and of the last states (default 0.1).
        dropatt: of attention weights (default 0).
        init: distribution of new weights, `"normal"` (default) or `"uniform"`.
        init_range: bound of the uniform one (default 0.01).
        init_std: standard deviation of the normal one, and of LayerNorms' weights around 1 (default 0.02).
        proj_init_std: standard deviation of new projections (default 0.01).
        layer_norm_epsilon: epsilon of every LayerNorm (default 1e-5).
        eos_token_id: end of a line (default 0, `<eos>` of WikiText-103's vocabulary).

    Raises:
        ValueError: cutoffs that do not rise below `vocab_size`, a cluster without width, or an option outside these.

    Examples:
        >>> from hf_ptm_ext import TransfoXLConfig
        >>> TransfoXLConfig(vocab_size=120, cutoffs=[20, 60], d_model=32, n_head=4, div_val=2).clusters
        ((0, 20, 32), (20, 60, 16), (60, 120, 8))
    """

    model_type = "transfo_xl"
    keys_to_ignore_at_inference = ["mems", "mem_lengths", "losses", "hidden_states", "attentions"]
    attribute_map = {
        "n_token": "vocab_size",
        "hidden_size": "d_model",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "intermediate_size": "d_inner",
        "initializer_range": "init_std",
        "layer_norm_eps": "layer_norm_epsilon",
    }
    _probabilities: ClassVar[tuple[str, ...]] = ("dropout", "dropatt")
    _activation = ""
    _called = "Transformer-XL"
    _fixed: ClassVar[dict[str, Any]] = {"attn_type": 0}

    vocab_size: int = 267735
    cutoffs: list[int] | tuple[int, ...] | None = None
    d_model: int = 1024
    d_embed: int | None = None
    n_layer: int = 18
    n_head: int = 16
    d_head: int | None = None
    d_inner: int = 4096
    div_val: int = 4
    pre_lnorm: bool = False
    mem_len: int = 1600
    same_length: bool = True
    clamp_len: int = 1000
    initial_memory: str = "zeros"
    untie_r: bool = True
    attn_type: int = 0
    tie_word_embeddings: bool = True
    tie_projs: list[bool] | tuple[bool, ...] | None = None
    proj_share_all_but_first: bool = True
    adaptive: bool = True
    sample_softmax: int = -1
    dropout: float | int = 0.1
    dropatt: float | int = 0.0
    init: str = "normal"
    init_range: float | int = 0.01
    init_std: float | int = 0.02
    proj_init_std: float | int = 0.01
    layer_norm_epsilon: float | int = 1e-5
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 0
    pad_token_id: int | None = None
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        if kwargs.pop("model_type", None) == MODEL_TYPE_BEFORE:
            kwargs.setdefault("tokenizer_class", TOKENIZER)
        if (tied := kwargs.pop("tie_weight", None)) is not None:
            self.tie_word_embeddings = bool(tied)
        super().__post_init__(**kwargs)
        for name in ("vocab_size", "d_model", "n_layer", "n_head", "d_inner", "div_val"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        if self.mem_len < 0:
            raise ValueError(f"`mem_len` must be at least 0, got {self.mem_len}.")
        self.d_embed = self.d_model if self.d_embed is None else self.d_embed
        self.d_head = self.d_model // self.n_head if self.d_head is None else self.d_head
        if self.cutoffs is None:
            self.cutoffs = [cutoff for cutoff in CUTOFFS if cutoff < self.vocab_size]
        self.cutoffs = list(self.cutoffs)
        ends = [0, *self.cutoffs, self.vocab_size]
        if ends != sorted(set(ends)):
            raise ValueError(
                f"`cutoffs` must rise from 1 to less than `vocab_size` = {self.vocab_size}, got {self.cutoffs}."
            )
        if self.clusters[-1][2] < 1 or self.d_head < 1 or self.d_model % 2:
            raise ValueError(
                f"`d_model` must be even, and `d_head` and the last cluster's width `d_embed // div_val**"
                f"{len(self.cutoffs)}` at least 1, got {self.d_model}, {self.d_head} and {self.clusters[-1][2]}."
            )
        if self.tie_projs is None:
            self.tie_projs = [False, *[self.proj_share_all_but_first] * len(self.cutoffs)]
        if len(self.tie_projs) != len(self.clusters):
            raise ValueError(
                f"`tie_projs` must have a value for each of the clusters, {len(self.clusters)}, got {self.tie_projs}."
            )
        for name, choices in (("init", ("normal", "uniform")), ("initial_memory", ("zeros", "empty"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")
        if self.sample_softmax > 0:
            raise ValueError(
                f"`sample_softmax` must be -1, got {self.sample_softmax}: transformers 4 had no sampled softmax "
                "either. The adaptive softmax (`cutoffs`) is the cheap one."
            )

    @property
    def clusters(self) -> tuple[tuple[int, int, int], ...]:
        """First id, end and width of the embeddings of each cluster."""
        ends = [0, *(self.cutoffs or ()), self.vocab_size]
        return tuple(
            (ends[i], ends[i + 1], (self.d_embed or self.d_model) // self.div_val**i) for i in range(len(ends) - 1)
        )

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As upstream; a configuration of transformers 4 is one of ours."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if config_dict.get("model_type") == MODEL_TYPE_BEFORE:
            config_dict = {"tokenizer_class": TOKENIZER, **config_dict, "model_type": cls.model_type}
        return config_dict, kwargs
