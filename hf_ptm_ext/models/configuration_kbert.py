"""K-BERT configuration: BERT's fields, the switches of knowledge, and the habits of the original's framework."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_kbert.KBertConfig",
    "AutoModel": "modeling_kbert.KBertModel",
    "AutoModelForPreTraining": "modeling_kbert.KBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_kbert.KBertForMaskedLM",
    "AutoModelForSequenceClassification": "modeling_kbert.KBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_kbert.KBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_kbert.KBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_kbert.KBertForMultipleChoice",
}

POOLINGS = ("first", "mean", "max", "last")
LAYER_NORM_STYLES = ("hf", "uer")


@strict
class KBertConfig(BertFamilyConfig):
    """Configuration of the K-BERT family (Liu et al. 2020, https://arxiv.org/abs/1909.07606).

    Reads the config.json of any absolute-position BERT encoder as it is. Fields not listed are BERT's, with BERT's
    defaults.

    Args:
        pooling: what the sequence and choice heads pool: the state of the `"first"` token (default), the `"mean"` or
            `"max"` over all tokens, knowledge included, or the state of the `"last"` token of the text (the options
            of the reference code). Padding takes no part unless `reference_padding` is set.
        use_visible_matrix: whether `word_index` and `branch_id` restrict attention (default True; False is the
            reference's `--no_vm`, in which knowledge is read as text).
        use_soft_positions: whether tokens of a text with knowledge have tree positions (default True; False is the
            paper's ablation: they are numbered in the order in which they stand, whatever `position_ids` say).
        layer_norm_style: `"hf"` (default), or `"uer"` for (x - mean) / (s + 1e-6) with the unbiased standard deviation
            s, with which UER-py and K-BERT train; `layer_norm_eps` has no part in it.
        reference_padding: whether padding is as in the reference (default False): it attends everywhere, by an
            additive -10000, and `"mean"`, `"max"` and `"last"` pool over it. Results then depend on the length of the
            batch, and attention is computed without a fused kernel.
        first_token_type_id: token type of a text for which none is given (default 0; 1 in checkpoints with UER's
            three segment rows, where 0 is padding).
        add_pooling_layer: whether the bare encoder has BERT's pooler (default True).

    Examples:
        >>> from hf_ptm_ext import KBertConfig
        >>> KBertConfig(hidden_size=32, num_attention_heads=4, pooling="mean").pooling
        'mean'
    """

    model_type = "kbert"

    pooling: str = "first"
    use_visible_matrix: bool = True
    use_soft_positions: bool = True
    layer_norm_style: str = "hf"
    reference_padding: bool = False
    first_token_type_id: int = 0
    add_pooling_layer: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.check_choices()
        if not 0 <= self.first_token_type_id < self.type_vocab_size:
            raise ValueError(
                f"`first_token_type_id` must be in [0, `type_vocab_size` = {self.type_vocab_size}), got "
                f"{self.first_token_type_id}."
            )

    def check_choices(self) -> None:
        """Refuse a value that is none of a field's.

        Models ask again, because `from_pretrained(..., pooling=...)` sets the field of a finished config.
        """
        for name, choices in (("pooling", POOLINGS), ("layer_norm_style", LAYER_NORM_STYLES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")
