"""Distillation: a student learns from one or several teachers, by presets or by objectives of one's own."""

from .arguments import DistillationArguments
from .capture import Capture
from .dual_training import DualTrainModel
from .layouts import Layout
from .presets import PRESET_NAMES, PRESETS, preset_objectives
from .registry import OBJECTIVES, build_terms
from .students import StudentReport, make_student, rectify_classifier_input
from .teachers import Teachers
from .theseus import TheseusArguments, TheseusModel, TheseusTrainer, make_successor
from .trainer import DistillationTrainer
from .wrapper import DistillationModel

__all__ = [
    "OBJECTIVES",
    "PRESETS",
    "PRESET_NAMES",
    "Capture",
    "DistillationArguments",
    "DistillationModel",
    "DistillationTrainer",
    "DualTrainModel",
    "Layout",
    "StudentReport",
    "Teachers",
    "TheseusArguments",
    "TheseusModel",
    "TheseusTrainer",
    "build_terms",
    "make_student",
    "make_successor",
    "preset_objectives",
    "rectify_classifier_input",
]
