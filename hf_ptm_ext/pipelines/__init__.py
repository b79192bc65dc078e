"""Pipelines that transformers no longer has, registered with it; their files travel with a checkpoint."""

import importlib
from typing import TYPE_CHECKING, Any

from .postprocessing import postprocess_qa_predictions
from .spans_question_answering import best_spans, reference_spans
from .windows_question_answering import question_windows

if TYPE_CHECKING:
    from .pipeline_question_answering import ExtractiveQuestionAnsweringPipeline

__all__ = [
    "ExtractiveQuestionAnsweringPipeline",
    "best_spans",
    "postprocess_qa_predictions",
    "question_windows",
    "reference_spans",
]


def __getattr__(name: str) -> Any:
    """Import the pipeline when it is asked for: it needs torch and transformers' models."""
    if name == "ExtractiveQuestionAnsweringPipeline":
        return importlib.import_module(f"{__name__}.pipeline_question_answering").ExtractiveQuestionAnsweringPipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
