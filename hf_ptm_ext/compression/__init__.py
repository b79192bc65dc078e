"""Compression of encoders: LayerDrop, magnitude pruning, quantisation."""

from .layer_drop import LayerDrop, LayerDropCallback, every_other, keep_layers
from .pruning import (
    PruningCallback,
    apply_masks,
    magnitude_masks,
    prunable_matrices,
    prune_model,
    sparsity_at,
    sparsity_report,
)

__all__ = [
    "LayerDrop",
    "LayerDropCallback",
    "PruningCallback",
    "apply_masks",
    "every_other",
    "keep_layers",
    "magnitude_masks",
    "prunable_matrices",
    "prune_model",
    "sparsity_at",
    "sparsity_report",
]
