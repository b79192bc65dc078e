"""Trainers: transformers' own, with loss terms, exact resume and complete Hub pushes."""

from .base import PtmTrainer, last_complete_checkpoint
from .pretraining import PreTrainingTrainer

__all__ = ["PreTrainingTrainer", "PtmTrainer", "last_complete_checkpoint"]
