# Generated from models/canonical/composite_canonical.py by scripts/sync_copies.py; change that file.
"""Models that stand on an encoder of another kind: its configuration inside theirs, its weights under `encoder.`."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from transformers import AutoModel
from transformers.configuration_utils import PreTrainedConfig

from .mask_contract_k_adapter import finished_mask, read_attention_mask, two_dimensional

# What a wrapped encoder may be asked with.
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")


class KAdapterEncoderUser(nn.Module):
    """Holds the encoder, frozen or trained.

    A frozen encoder runs in evaluation mode and without a gradient graph, whatever the whole model's mode is: its
    features are the same in every epoch. It has a graph if something in it or before it is trained all the same, such
    as PEFT's adapters and soft prompts.

    Args:
        config: has `encoder_config` and `freeze_encoder`.
    """

    def __init__(self, config: Any):
        super().__init__()
        self.model = without_pooler(config.encoder_config)
        self.frozen = bool(config.freeze_encoder)
        self.takes = _inputs_of(self.model)
        self.freeze()

    def freeze(self) -> None:
        """Take the gradient from a frozen encoder; loading gives every parameter one again."""
        if self.frozen:
            self.model.requires_grad_(False)

    def train(self, mode: bool = True) -> "KAdapterEncoderUser":
        """As torch's; a frozen encoder stays in evaluation mode.

        Args:
            mode: whether to train.

        Returns:
            Itself.
        """
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    def forward(self, output_attentions: bool | None = None, **inputs: Any) -> tuple[Any, ...]:
        """Hidden states of every layer, and attention weights if asked for.

        Args:
            output_attentions: whether the weights are wanted.
            inputs: those of `TEXT_INPUTS` that are given; what the encoder does not take is left out.

        Returns:
            The embeddings and each layer's output, `(batch, seq_len, hidden)` each. With `output_attentions` (also
            False) this tuple and the weights, `(batch, heads, seq_len, seq_len)` each, as the encoder gives them (none
            but with eager attention), or `None`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds` is given.
        """
        if (inputs.get("input_ids") is None) == (inputs.get("inputs_embeds") is None):
            raise ValueError("Exactly one of `input_ids` and `inputs_embeds` must be given.")
        given = {name: value for name, value in inputs.items() if value is not None and name in self.takes}
        if "attention_mask" in given:
            given["attention_mask"] = self._mask_for_encoder(**inputs)
        if output_attentions:
            given["output_attentions"] = True
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
        config, text = self.model.config, inputs.get("input_ids")
        text = inputs["inputs_embeds"] if text is None else text
        mask = read_attention_mask(config, attention_mask, text)
        if two_dimensional(mask):
            return mask.long()
        return finished_mask(config, torch.empty(text.shape[:2], dtype=self.model.dtype, device="meta"), mask)


def kept_states(states: Sequence[torch.Tensor], wanted: bool | int | Iterable[int] | None) -> Any:
    """The hidden states that `output_hidden_states` asks for, as upstream's models read it.

    Args:
        states: all of them.
        wanted: all or none, or numbers of some, negative ones from the end.

    Returns:
        A tuple as long as `states`, `None` in the places of the others; `None` if none is asked for.
    """
    if wanted is True or not wanted:
        return tuple(states) if wanted else None
    numbers, count = [wanted] if isinstance(wanted, int) else wanted, len(states)
    chosen = {number % count for number in numbers if -count <= number < count}
    return tuple(state if number in chosen else None for number, state in enumerate(states))


def recorded(output: Any) -> dict[str, Any]:
    """What a head hands on of its encoder's output.

    Args:
        output: the base model's.

    Returns:
        `hidden_states` and `attentions`.
    """
    return {"hidden_states": output.hidden_states, "attentions": output.attentions}


class KAdapterComposite:
    """Mixin in front of the family's loading: trained encoders to begin with, and freezing that outlives loading.

    The base model has the encoder's holder as `encoder`, and `freeze()`, which takes the gradient from what the
    configuration freezes.
    """

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load as upstream does, and freeze again what the configuration freezes.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            As upstream.
        """
        found = super().from_pretrained(*args, **kwargs)
        (found[0] if isinstance(found, tuple) else found).base_model.freeze()
        return found

    def asked(self: Any, name: str, given: Any) -> Any:
        """An output that a caller asks for or, if it does not say, the configuration.

        Args:
            name: `output_hidden_states` or `output_attentions`.
            given: the argument.

        Returns:
            The answer.
        """
        return getattr(self.config, name, None) if given is None else given

    @classmethod
    def from_encoder(cls: Any, encoder: str, *, encoder_kwargs: dict[str, Any] | None = None, **fields: Any) -> Any:
        """Begin with a trained encoder; everything else is new.

        Args:
            encoder: folder or Hub id of any encoder.
            encoder_kwargs: for its `AutoModel.from_pretrained`.
            fields: of the family's configuration.

        Returns:
            The model, in evaluation mode.

        Raises:
            ValueError: see the configuration.
        """
        loaded = AutoModel.from_pretrained(encoder, **(encoder_kwargs or {}))
        model = cls(cls.config_class(encoder_config=loaded.config, **fields)).to(loaded.dtype)
        # All but a pooler, which nothing here reads.
        own = model.base_model.encoder.model
        own.load_state_dict({name: value for name, value in loaded.state_dict().items() if name in own.state_dict()})
        return model.eval()


def without_pooler(config: PreTrainedConfig) -> nn.Module:
    """An encoder with new weights; a pooler, which nothing here reads, is left out where the class can do without.

    Args:
        config: the encoder's.

    Returns:
        The model.
    """
    try:
        return AutoModel.from_config(config, add_pooling_layer=False)
    except TypeError:  # its class has no such option
        return AutoModel.from_config(config)


def _inputs_of(model: nn.Module) -> frozenset[str]:
    """Which of the text inputs a model's forward names; all, if a decorator hides the names."""
    named = frozenset(TEXT_INPUTS) & inspect.signature(model.forward).parameters.keys()
    return named or frozenset(TEXT_INPUTS)
