"""Trainers: transformers' own, with loss terms, exact resume and complete Hub pushes."""

from .base import PtmTrainer, checkpoints, last_complete_checkpoint
from .entity_replacement import EntityReplacementModel, EntityReplacementTrainer
from .knowledge_embedding import KnowledgeEmbeddingModel, KnowledgeEmbeddingTrainer
from .pretraining import PreTrainingTrainer

__all__ = [
    "EntityReplacementModel",
    "EntityReplacementTrainer",
    "KnowledgeEmbeddingModel",
    "KnowledgeEmbeddingTrainer",
    "PreTrainingTrainer",
    "PtmTrainer",
    "checkpoints",
    "last_complete_checkpoint",
]
