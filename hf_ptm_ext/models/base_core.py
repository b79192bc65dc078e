"""What the model classes of a family have in common, and what the bare encoders of all families do alike.

What differs from upstream's models in every family: rows may be packed (`sequence_ids`); positions start at the first
real token, so left padding changes nothing; a row of nothing but padding sees itself (see `inputs_core.py`);
vocabulary logits are computed only where a label is while training; keyword arguments that nothing reads are refused.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import ModelOutput
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .encoder_core import EncoderLayer, SelfAttention, refuse_unknown_arguments
from .inputs_core import first_token_states
from .loading_core import CheckedLoading
from .losses_core import LMPredictionHead

# What every encoder takes. Its `forward` documents, as `Of its own`, what else it takes or reads in another way.
COMMON_ARGUMENTS = {
    "input_ids": "`(batch, seq_len)`.",
    "attention_mask": "`(batch, seq_len)`, 1 real and 0 padding; other forms in `mask_contract_core.py`.",
    "token_type_ids": "`(batch, seq_len)`; type 0 if left out.",
    "position_ids": "`(batch, seq_len)`; counted from the first real token, per sequence, if left out.",
    "sequence_ids": "`(batch, seq_len)` of packed rows: runs of equal ids 1..S are sequences, 0 = padding.",
    "inputs_embeds": "`(batch, seq_len, hidden)`, or `embedding_size` wide, instead of `input_ids`.",
    "num_sequences": "S of packed rows, for the pooled output (default: the largest id).",
    "kwargs": "`output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.",
}
COMMON_RESULT = """
Returns:
    `last_hidden_state` `(batch, seq_len, hidden)` and `pooler_output` `(batch, hidden)` or, packed,
    `(batch, S, hidden)`.

Raises:
    ValueError: not exactly one of `input_ids` and `inputs_embeds`, positions that the table does not have, or other
        inputs that do not fit the text.
    TypeError: a keyword argument that nothing reads, a misspelt name say.
"""


def encoder_forward(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a bare encoder's `forward`: records what upstream's models record, and completes the docstring."""
    if forward.__doc__:  # python -OO has none
        summary, _, own = inspect.cleandoc(forward.__doc__).partition("\n\nOf its own:\n")
        common = "".join(
            f"    {name}: {text}\n" for name, text in COMMON_ARGUMENTS.items() if f"    {name}: " not in own
        )
        forward.__doc__ = f"{summary}\n\nArgs:\n{common}{own}\n{COMMON_RESULT}"
    return merge_with_config_defaults(capture_outputs(forward))


def by_depth(layer: type[nn.Module]) -> OutputRecorder:
    """A recorder of states whose last one, -1, is that of the last layer that runs, however many share weights."""
    return OutputRecorder(layer, num_hidden_layers_key="depth")


class FamilyPreTrainedModel(CheckedLoading, PreTrainedModel):
    """Base of a family's base class: an encoder of BERT's kind unless the family says otherwise."""

    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # its kernels know padding and packed rows, but no other mask
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules: Any = ["Embeddings", "EncoderLayer"]
    _can_record_outputs: Any = {"hidden_states": by_depth(EncoderLayer), "attentions": SelfAttention}
    _legacy_keys = {r"^module\.": ""}  # a DataParallel wrapper's prefix
    # The class of `cls.predictions`, whose bias begins at 0.
    _vocabulary_head: type[nn.Module] = LMPredictionHead
    # Set by the heads' `encoder=`.
    _encoder_class: Any = None
    # Arguments of the small configuration in the heads' examples.
    _example_sizes = "vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4"

    if TYPE_CHECKING:  # torch says of every attribute that it may be a tensor or a module
        base_model: Any

        def __getattr__(self, name: str) -> Any: ...

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, self._vocabulary_head):
            init.zeros_(module.get_parameter("bias"))

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.embeddings.word_embeddings = value

    def new_encoder(self, config: Any, pooled: bool) -> nn.Module:
        """A head's encoder, with a pooler if the head reads pooled states."""
        return self._encoder_class(config, add_pooling_layer=pooled)

    def encode(self, **inputs: Any) -> Any:
        """Run a head's encoder."""
        return self.base_model(**inputs, return_dict=True)

    def head_output(self, output_class: type[ModelOutput], encoded: Any, **fields: Any) -> Any:
        """What a head returns: fields of its own, and what was recorded of the encoder."""
        return output_class(**fields, hidden_states=encoded.hidden_states, attentions=encoded.attentions)

    @property
    def classifier_dropout(self) -> float:
        """The classifier's own dropout, or the hidden one."""
        own = self.config.classifier_dropout
        return self.config.hidden_dropout_prob if own is None else own

    def word_states(
        self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, unnamed: dict[str, Any]
    ) -> torch.Tensor:
        """A text's word embeddings, looked up or given; keyword arguments that nothing reads are refused."""
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, unnamed, arguments_of(type(self)))
        if (input_ids is None) == (inputs_embeds is None):
            got = "neither" if input_ids is None else "both"
            raise ValueError(f"Exactly one of `input_ids` and `inputs_embeds` must be given, got {got}.")
        return self.embeddings.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds

    def pooled_first(self, hidden_states: torch.Tensor, *where: Any) -> torch.Tensor | None:
        """The pooler on each sequence's first token, see `first_token_states`; `None` without a pooler."""
        return None if self.pooler is None else self.pooler(first_token_states(hidden_states, *where))


def arguments_of(model_class: type[nn.Module]) -> tuple[str, ...]:
    """Names of the arguments of a class' `forward`, looked up once."""
    if model_class not in _ARGUMENTS:
        _ARGUMENTS[model_class] = tuple(inspect.signature(model_class.forward).parameters)
    return _ARGUMENTS[model_class]


_ARGUMENTS: dict[type[nn.Module], tuple[str, ...]] = {}
