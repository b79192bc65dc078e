"""Several tasks on one encoder: MT-DNN's model, its mixing of batches, its options."""

from .mixing import MixedBatchSampler, Mixing
from .model import MultiTaskModel, Smart
from .san import StochasticAnswerClassifier, StochasticAnswerHead
from .tasks import Task, TaskCollator, TaskRows
from .trainer import MultiTaskTrainer

__all__ = [
    "MixedBatchSampler",
    "Mixing",
    "MultiTaskModel",
    "MultiTaskTrainer",
    "Smart",
    "StochasticAnswerClassifier",
    "StochasticAnswerHead",
    "Task",
    "TaskCollator",
    "TaskRows",
]
