"""Objectives: pure loss functions on tensors."""

from .attention import (
    attention_scores,
    mobilebert_attention_loss,
    mobilebert_attention_loss_from_projections,
    tinybert_attention_loss,
    tinybert_attention_loss_from_projections,
)
from .contrastive import contrastive_scores, gather_keys, info_nce_loss
from .entity_replacement import boundary_states, entity_replacement_loss
from .hidden_states import (
    cosine_loss,
    feature_map_loss,
    hidden_mse_loss,
    mean_transfer_loss,
    patience_loss,
    variance_transfer_loss,
)
from .knowledge_embedding import knowledge_embedding_loss, knowledge_embedding_scores, transe_score
from .relations import minilm_loss, minilm_v2_loss, relation_loss
from .replaced_tokens import replaced_token_loss, sample_tokens
from .score_chunks import split_heads
from .shared_projection import shared_projection_loss
from .smart import mean_squares, smoothness_loss, stable_kl, symmetric_kl
from .soft_labels import SOFT_LABEL_LOSSES, mlm_distillation_loss, soft_label_loss
from .supersenses import allowed_senses, supersense_loss
from .token_losses import annealed_weight, label_smoothed_loss, masked_lm_loss, next_token_loss

__all__ = [
    "SOFT_LABEL_LOSSES",
    "allowed_senses",
    "annealed_weight",
    "attention_scores",
    "boundary_states",
    "contrastive_scores",
    "cosine_loss",
    "entity_replacement_loss",
    "feature_map_loss",
    "gather_keys",
    "hidden_mse_loss",
    "info_nce_loss",
    "knowledge_embedding_loss",
    "knowledge_embedding_scores",
    "label_smoothed_loss",
    "masked_lm_loss",
    "mean_squares",
    "mean_transfer_loss",
    "minilm_loss",
    "minilm_v2_loss",
    "mlm_distillation_loss",
    "mobilebert_attention_loss",
    "mobilebert_attention_loss_from_projections",
    "next_token_loss",
    "patience_loss",
    "relation_loss",
    "replaced_token_loss",
    "sample_tokens",
    "shared_projection_loss",
    "smoothness_loss",
    "soft_label_loss",
    "split_heads",
    "stable_kl",
    "supersense_loss",
    "symmetric_kl",
    "tinybert_attention_loss",
    "tinybert_attention_loss_from_projections",
    "transe_score",
    "variance_transfer_loss",
]
