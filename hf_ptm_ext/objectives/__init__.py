"""Objectives: pure loss functions on tensors."""

from .auxiliary_lm import annealed_weight, next_token_loss
from .entity_replacement import boundary_states, entity_replacement_loss
from .knowledge_embedding import knowledge_embedding_loss, knowledge_embedding_scores, transe_score
from .masked_lm import masked_lm_loss
from .sequence_to_sequence import label_smoothed_loss
from .smart import mean_squares, smoothness_loss, stable_kl, symmetric_kl

__all__ = [
    "annealed_weight",
    "boundary_states",
    "entity_replacement_loss",
    "knowledge_embedding_loss",
    "knowledge_embedding_scores",
    "label_smoothed_loss",
    "masked_lm_loss",
    "mean_squares",
    "next_token_loss",
    "smoothness_loss",
    "stable_kl",
    "symmetric_kl",
    "transe_score",
]
