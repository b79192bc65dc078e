"""Publishing: complete folders, model cards, and proof that a checkpoint works without this package."""

from .adapter_card import write_adapter_card
from .export import add_question_answering_pipeline, code_files, families, finish_folder, full_auto_map
from .folders import check_target, written_whole
from .model_card import card_problems, check_card_fields, validate_model_card, write_model_card
from .verify import AutoClassResult, Verification, verify

__all__ = [
    "AutoClassResult",
    "Verification",
    "add_question_answering_pipeline",
    "card_problems",
    "check_card_fields",
    "check_target",
    "code_files",
    "families",
    "finish_folder",
    "full_auto_map",
    "validate_model_card",
    "verify",
    "write_adapter_card",
    "write_model_card",
    "written_whole",
]
