"""Trainers: transformers' own, with loss terms, exact resume and complete Hub pushes."""

from .base import PtmTrainer, checkpoints, last_complete_checkpoint
from .pretraining import PreTrainingTrainer

__all__ = ["PreTrainingTrainer", "PtmTrainer", "checkpoints", "last_complete_checkpoint"]
