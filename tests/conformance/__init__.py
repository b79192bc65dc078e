"""The conformance suite: what every encoder family of ours passes.

    class TestSpanBert(EncoderConformance):
        config_class = SpanBertConfig
        base_class = SpanBertModel
        heads = (Head(SpanBertModel, "AutoModel", None, ("last_hidden_state",), "encoder"), ...)
        config_kwargs = {"vocab_size": 99, "hidden_size": 32, ...}

See `tests/models/spanbert` for a family with special inputs.
"""

from .attention import AttentionChecks
from .embeddings import EmbeddingChecks
from .forward import ForwardChecks
from .loading import ConfigChecks, LoadingChecks
from .masks import MaskChecks
from .parts import PeftChecks, RemoteChecks
from .trainer import TrainerChecks
from .training import TrainingChecks


class EncoderConformance(
    ConfigChecks,
    LoadingChecks,
    ForwardChecks,
    AttentionChecks,
    MaskChecks,
    EmbeddingChecks,
    TrainingChecks,
    TrainerChecks,
    PeftChecks,
    RemoteChecks,
):
    """All checks that apply to an encoder family."""


__all__ = ["EncoderConformance"]
