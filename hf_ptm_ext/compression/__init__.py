"""Compression of encoders: LayerDrop, magnitude pruning, quantisation."""

from .fake_quant import calibrate, fake_quantize, group_wise_fake_quant, prepare_fake_quant, remove_fake_quant
from .int8 import save_int8, to_int8, to_torchao
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
from .sensitivity import hessian_sensitivity, mixed_precision, top_eigenvalues

__all__ = [
    "LayerDrop",
    "LayerDropCallback",
    "PruningCallback",
    "apply_masks",
    "calibrate",
    "every_other",
    "fake_quantize",
    "group_wise_fake_quant",
    "hessian_sensitivity",
    "keep_layers",
    "magnitude_masks",
    "mixed_precision",
    "prepare_fake_quant",
    "prunable_matrices",
    "prune_model",
    "remove_fake_quant",
    "save_int8",
    "sparsity_at",
    "sparsity_report",
    "to_int8",
    "to_torchao",
    "top_eigenvalues",
]
