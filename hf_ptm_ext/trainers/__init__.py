"""Trainers: transformers' own, with loss terms, exact resume and complete Hub pushes."""

from .auxiliary import AuxiliaryObjectiveTrainer
from .auxiliary_lm import AuxiliaryLanguageModelCallback
from .averaging import WeightAverageCallback
from .base import PtmTrainer, ResumableTrainer
from .bptt import BpttTrainer
from .entity_replacement import EntityReplacementModel, EntityReplacementTrainer
from .infoword import InfoWordModel, InfoWordTrainer
from .knowledge_embedding import KnowledgeEmbeddingModel, KnowledgeEmbeddingTrainer
from .lexical_inputs import LexicalInputModel, LexicalInputTrainer, SentimentEmbeddings, SupersenseEmbeddings
from .lexical_knowledge import SentiLareModel, SupersenseModel
from .lexical_relations import LexicalRelationModel, LexicalRelationTrainer
from .manifest import checkpoints, last_complete_checkpoint
from .master_weights import MasterAdamW
from .multi_task.continual import (
    ContinualBatchSampler,
    ContinualMultiTaskTrainer,
    ContinualSchedule,
    load_task_models,
)
from .multi_task.mixing import MixedBatchSampler, Mixing
from .multi_task.model import MultiTaskModel, Smart
from .multi_task.trainer import MultiTaskTrainer, Task, TaskCollator, TaskRows
from .parameter_groups import (
    discriminative_learning_rates,
    encoder_layers,
    layerwise_parameter_groups,
    parameter_depths,
)
from .pretraining import PreTrainingTrainer
from .pushes import PushFailed, check_hub, push_folder
from .replaced_token_detection import (
    ElectraForReplacedTokenDetection,
    ReplacedTokenDetectionTrainer,
    make_electra_generator,
)
from .schedules import get_slanted_triangular_schedule, number_of_updates, slanted_triangular_factor
from .sentence_pairs import SentencePairModel, SentencePairTrainer
from .seq2seq import PtmSeq2SeqTrainer
from .stopping import NotFinite, TrainingStopped
from .transe import TransEOptions, TransEVectors, train_transe
from .unfreezing import (
    GradualUnfreezingCallback,
    SequentialUnfreezingCallback,
    UnfreezingCallback,
    gradual_start_epochs,
    trainable_layers,
)
from .unicoder import UnicoderModel, UnicoderTrainer
from .word_loss import hidden_word_loss, tokens_per_word

__all__ = [
    "AuxiliaryLanguageModelCallback",
    "AuxiliaryObjectiveTrainer",
    "BpttTrainer",
    "ContinualBatchSampler",
    "ContinualMultiTaskTrainer",
    "ContinualSchedule",
    "ElectraForReplacedTokenDetection",
    "EntityReplacementModel",
    "EntityReplacementTrainer",
    "GradualUnfreezingCallback",
    "InfoWordModel",
    "InfoWordTrainer",
    "KnowledgeEmbeddingModel",
    "KnowledgeEmbeddingTrainer",
    "LexicalInputModel",
    "LexicalInputTrainer",
    "LexicalRelationModel",
    "LexicalRelationTrainer",
    "MasterAdamW",
    "MixedBatchSampler",
    "Mixing",
    "MultiTaskModel",
    "MultiTaskTrainer",
    "NotFinite",
    "PreTrainingTrainer",
    "PtmSeq2SeqTrainer",
    "PtmTrainer",
    "PushFailed",
    "ReplacedTokenDetectionTrainer",
    "ResumableTrainer",
    "SentencePairModel",
    "SentencePairTrainer",
    "SentiLareModel",
    "SentimentEmbeddings",
    "SequentialUnfreezingCallback",
    "Smart",
    "SupersenseEmbeddings",
    "SupersenseModel",
    "Task",
    "TaskCollator",
    "TaskRows",
    "TrainingStopped",
    "TransEOptions",
    "TransEVectors",
    "UnfreezingCallback",
    "UnicoderModel",
    "UnicoderTrainer",
    "WeightAverageCallback",
    "check_hub",
    "checkpoints",
    "discriminative_learning_rates",
    "encoder_layers",
    "get_slanted_triangular_schedule",
    "gradual_start_epochs",
    "hidden_word_loss",
    "last_complete_checkpoint",
    "layerwise_parameter_groups",
    "load_task_models",
    "make_electra_generator",
    "number_of_updates",
    "parameter_depths",
    "push_folder",
    "slanted_triangular_factor",
    "tokens_per_word",
    "train_transe",
    "trainable_layers",
]
