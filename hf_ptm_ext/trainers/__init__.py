"""Trainers: transformers' own, with loss terms, exact resume and complete Hub pushes."""

from .base import PtmTrainer, checkpoints, last_complete_checkpoint
from .entity_replacement import EntityReplacementModel, EntityReplacementTrainer
from .knowledge_embedding import KnowledgeEmbeddingModel, KnowledgeEmbeddingTrainer
from .pretraining import PreTrainingTrainer
from .resume import ResumableTrainer
from .seq2seq import PtmSeq2SeqTrainer
from .transe import TransEOptions, TransEVectors, train_transe

__all__ = [
    "EntityReplacementModel",
    "EntityReplacementTrainer",
    "KnowledgeEmbeddingModel",
    "KnowledgeEmbeddingTrainer",
    "PreTrainingTrainer",
    "PtmSeq2SeqTrainer",
    "PtmTrainer",
    "ResumableTrainer",
    "TransEOptions",
    "TransEVectors",
    "checkpoints",
    "last_complete_checkpoint",
    "train_transe",
]
