"""SpanBERT configuration: BERT's fields and those of the span boundary objective."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_spanbert.SpanBertConfig",
    "AutoModel": "modeling_spanbert.SpanBertModel",
    "AutoModelForPreTraining": "modeling_spanbert.SpanBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_spanbert.SpanBertForMaskedLM",
    "AutoModelForSequenceClassification": "modeling_spanbert.SpanBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_spanbert.SpanBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_spanbert.SpanBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_spanbert.SpanBertForMultipleChoice",
}


@strict
class SpanBertConfig(BertFamilyConfig):
    """Configuration of the SpanBERT family (Joshi et al. 2020, https://arxiv.org/abs/1907.10529).

    Reads the config.json of any absolute-position BERT encoder as it is. Fields not listed are BERT's, with BERT's
    defaults.

    Args:
        max_pair_targets: tokens of a span that have a boundary loss, and the size of the head's table of relative
            positions (default 15: the released recipe; the code's own default was 20).
        pair_positional_embedding_size: width of that table (default 200: the reference always uses 200).
        pair_target_layer: encoder layer that feeds the boundary head, 0 the first and -1 the last (default -1:
            the reference).
        sbo_loss_weight: weight of the span boundary term (default 1.0: the released recipe; 0 switches it off).
        next_sentence_prediction: whether the pre-training model has the next-sentence head of the two-segment variant
            (default False: SpanBERT trains on single segments).
        add_pooling_layer: whether the bare encoder has BERT's pooler (default True: BERT; set False for the published
            SpanBERT encoders, which have none).

    Examples:
        >>> from hf_ptm_ext import SpanBertConfig
        >>> SpanBertConfig(hidden_size=32, num_attention_heads=4, max_pair_targets=6).max_pair_targets
        6
    """

    model_type = "spanbert"
    keys_to_ignore_at_inference = [*BertFamilyConfig.keys_to_ignore_at_inference, "sbo_loss", "boundary_logits"]

    max_pair_targets: int = 15
    pair_positional_embedding_size: int = 200
    pair_target_layer: int = -1
    sbo_loss_weight: float | int = 1.0
    next_sentence_prediction: bool = False
    add_pooling_layer: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if not -self.depth <= self.pair_target_layer < self.depth:
            raise ValueError(
                f"`pair_target_layer` must be in [-{self.depth}, {self.depth}), the layers of "
                f"the encoder, got {self.pair_target_layer}."
            )
        for name in ("max_pair_targets", "pair_positional_embedding_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        if self.sbo_loss_weight < 0:
            raise ValueError(f"`sbo_loss_weight` must not be negative, got {self.sbo_loss_weight}.")
