"""Models that stand on an encoder of another kind: its configuration inside theirs, its weights under `encoder.`."""

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoModel
from transformers.configuration_utils import PreTrainedConfig

from .encoder_family_core import model_class
from .mask_contract_core import finished_mask, read_attention_mask, two_dimensional

if TYPE_CHECKING:
    from .base_core import FamilyPreTrainedModel
else:
    FamilyPreTrainedModel = object

# What a wrapped encoder may be asked with.
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")


class EncoderUser(nn.Module):
    """Holds the encoder, frozen or trained.

    A frozen one runs in evaluation mode and without a gradient graph, whatever the whole model's mode is, unless
    something in it or before it is trained all the same, such as PEFT's adapters and soft prompts.
    """

    def __init__(self, config: Any):
        super().__init__()
        self.model = without_pooler(config.encoder_config)
        self.frozen = bool(config.freeze_encoder)
        self.takes = _inputs_of(self.model)
        # ELMo's sentence boundaries take part in the statistics of layer normalisation.
        self.bounded = bool(getattr(config, "do_layer_norm", False)) and hasattr(self.model, "without_boundaries")
        self.freeze()

    def freeze(self) -> None:
        """Take the gradient from a frozen encoder; loading gives every parameter one again."""
        if self.frozen:
            self.model.requires_grad_(False)

    def train(self, mode: bool = True) -> "EncoderUser":
        """As torch's; a frozen encoder stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    def forward(self, output_attentions: bool | None = None, **inputs: Any) -> tuple[Any, ...]:
        """Hidden states of every layer, and attention weights if asked for."""
        if (inputs.get("input_ids") is None) == (inputs.get("inputs_embeds") is None):
            got = "neither" if inputs.get("input_ids") is None else "both"
            raise ValueError(f"Exactly one of `input_ids` and `inputs_embeds` must be given, got {got}.")
        given = {name: value for name, value in inputs.items() if value is not None and name in self.takes}
        if "attention_mask" in given:
            given["attention_mask"] = self._mask_for_encoder(**inputs)
        if output_attentions:
            given["output_attentions"] = True
        if self.bounded:
            given["keep_boundaries"] = True
        # Adapters inside, or soft prompts in front of the text.
        tensors = (*self.model.parameters(), *filter(torch.is_tensor, given.values()))
        trained = not self.frozen or any(value.requires_grad for value in tensors)
        with torch.set_grad_enabled(torch.is_grad_enabled() and trained):
            output = self.model(**given, output_hidden_states=True, return_dict=True)
        states = tuple(output.hidden_states)
        if output_attentions is None:
            return states
        return states, output.get("attentions") if output_attentions else None

    def _mask_for_encoder(self, attention_mask: Any, **inputs: Any) -> Any:
        """A mask as encoders of upstream take it: of tokens, in integers; or in the form of its attention."""
        config: Any = self.model.config
        text = inputs.get("input_ids")
        text = inputs["inputs_embeds"] if text is None else text
        mask = read_attention_mask(config, attention_mask, text)
        if two_dimensional(mask):
            return mask.long()
        like = next(self.model.parameters())
        return finished_mask(config, torch.empty(text.shape[:2], dtype=like.dtype, device="meta"), mask)


def kept_states(states: Sequence[torch.Tensor], wanted: bool | int | Iterable[int] | None) -> Any:
    """The hidden states that `output_hidden_states` asks for, as upstream's models read it."""
    if wanted is True or not wanted:
        return tuple(states) if wanted else None
    numbers, count = [wanted] if isinstance(wanted, int) else wanted, len(states)
    chosen = {number % count for number in numbers if -count <= number < count}
    return tuple(state if number in chosen else None for number, state in enumerate(states))


class AroundEncoder(FamilyPreTrainedModel):
    """Mixin in front of the family's loading: whatever is the encoder's, and a trained encoder to begin with."""

    _supports_flex_attn = False
    _can_compile_fullgraph = False
    _no_split_modules: Any = None
    _can_record_outputs: Any = None  # the encoder inside says what it records
    _example_sizes = (
        "encoder_config=dict(model_type='bert', hidden_size=32, num_hidden_layers=2, num_attention_heads=4)"
    )

    @property
    def encoder_inside(self: Any) -> Any:
        """The encoder."""
        return self.base_model

    def get_input_embeddings(self: Any) -> nn.Module:
        return self.encoder_inside.get_input_embeddings()

    def set_input_embeddings(self: Any, value: nn.Module) -> None:
        self.encoder_inside.set_input_embeddings(value)

    def asked(self: Any, name: str, given: Any) -> Any:
        """An output that a caller asks for or, if it does not say, the configuration."""
        return getattr(self.config, name, None) if given is None else given

    @classmethod
    def from_encoder(cls: Any, encoder: Any, *, encoder_kwargs: dict[str, Any] | None = None, **fields: Any) -> Any:
        """Begin with a trained encoder, from its checkpoint or as a model; everything else is new."""
        whole = isinstance(encoder, nn.Module)
        loaded: Any = encoder if whole else AutoModel.from_pretrained(encoder, **(encoder_kwargs or {}))
        model = cls(cls.config_class(encoder_config=loaded.config, **fields)).to(loaded.dtype)
        # All but a pooler, which nothing here reads.
        own = model.encoder_inside
        own.load_state_dict({name: value for name, value in loaded.state_dict().items() if name in own.state_dict()})
        return model.eval()


class CompositeModel(AroundEncoder):
    """Mixin for an encoder that may be frozen, also behind loading: the base model's `encoder` holds it."""

    @property
    def encoder_inside(self: Any) -> Any:
        """The encoder."""
        return self.base_model.encoder.model

    def new_encoder(self: Any, config: Any, pooled: bool) -> nn.Module:
        """A head's base model, which pools for itself."""
        return self._encoder_class(config)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load as upstream does, and freeze again what the configuration freezes."""
        found = super().from_pretrained(*args, **kwargs)
        (found[0] if isinstance(found, tuple) else found).base_model.freeze()
        return found


def without_pooler(config: PreTrainedConfig) -> nn.Module:
    """An encoder with new weights; a pooler, which nothing here reads, is left out where the class can do without."""
    carried = model_class(config.model_type)
    make: Any = AutoModel.from_config if carried is None else carried._from_config
    try:
        return make(config, add_pooling_layer=False)
    except TypeError:  # its class has no such option
        return make(config)


def _inputs_of(model: nn.Module) -> frozenset[str]:
    """Which of the text inputs a model's forward names; all, if a decorator hides the names."""
    named = frozenset(TEXT_INPUTS) & inspect.signature(model.forward).parameters.keys()
    return named or frozenset(TEXT_INPUTS)
