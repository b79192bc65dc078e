"""Objectives: pure loss functions on tensors."""

from .masked_lm import masked_lm_loss

__all__ = ["masked_lm_loss"]
