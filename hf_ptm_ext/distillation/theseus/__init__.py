"""BERT-of-Theseus: compression by replacing the modules of a fine-tuned encoder, for any encoder and divisor."""

from .arguments import (
    SCHEDULES,
    TheseusArguments,
    constant_rate,
    draw_replacements,
    generator_of_step,
    linear_rate,
    reference_constant_rate,
)
from .layers import find_layers, make_successor
from .model import TheseusModel, TheseusModule
from .trainer import TheseusTrainer

__all__ = [
    "SCHEDULES",
    "TheseusArguments",
    "TheseusModel",
    "TheseusModule",
    "TheseusTrainer",
    "constant_rate",
    "draw_replacements",
    "find_layers",
    "generator_of_step",
    "linear_rate",
    "make_successor",
    "reference_constant_rate",
]
