"""Distillation: a student learns from one or several teachers, by presets or by objectives of one's own."""

from .arguments import DistillationArguments
from .capture import Capture
from .layouts import Layout
from .presets import PRESETS, preset_objectives
from .registry import OBJECTIVES, build_terms
from .teachers import Teachers
from .tinybert import rectify_classifier_input
from .trainer import DistillationTrainer
from .wrapper import DistillationModel

__all__ = [
    "OBJECTIVES",
    "PRESETS",
    "Capture",
    "DistillationArguments",
    "DistillationModel",
    "DistillationTrainer",
    "Layout",
    "Teachers",
    "build_terms",
    "preset_objectives",
    "rectify_classifier_input",
]
