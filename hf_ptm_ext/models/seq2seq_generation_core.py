"""The head with which MASS and MASS-NMT are pre-trained and fine-tuned and generate: loss, decoder's input, limits."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils import ModelOutput

from .base_core import arguments_of
from .encoder_core import refuse_unknown_arguments
from .losses_core import labelled_logits, mean_over_targets, select_labelled, target_sums, values_can_be_read
from .mask_contract_core import takes_past_key_values
from .search_core import GenerationSettings, own_search, refuse_guidance
from .seq2seq_core import position_limit, real_tokens
from .task_heads_core import with_columns

# The classes behind the mixin in the order of bases, whose types upstream does not give.
Behind: Any = object

RECORDED = (
    "decoder_hidden_states",
    "decoder_attentions",
    "cross_attentions",
    "encoder_last_hidden_state",
    "encoder_hidden_states",
    "encoder_attentions",
)


def head_output(output_class: type[ModelOutput], outputs: ModelOutput, **fields: Any) -> Any:
    """What a head returns: fields of its own, and what was recorded of the model."""
    return output_class(**fields, **{name: getattr(outputs, name) for name in RECORDED})


def with_inputs_of(model: Any, without: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Decorator of a head's `forward`: its signature names the model's inputs, up to some."""
    columns = tuple(name for name in arguments_of(model) if name not in ("self", "kwargs", *without))
    return lambda forward: with_columns(forward, model, columns, ())


class ConditionalGenerationHead(Behind):
    """Mixin in front of a family's base class and `GenerationMixin`: the vocabulary projection, and generation.

    `forward` has the inputs of `model`, the bare model's class; `search` is the beam search of the reference.
    """

    _prediction_heads = {"lm_head": "vocabulary projection"}
    _model_class: Any
    _reference_search: Callable[..., Any]

    def __init_subclass__(cls, model: type[nn.Module] | None = None, search: Any = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if model is not None:
            cls._model_class, cls._reference_search = model, staticmethod(search)
            cls.forward = with_inputs_of(model)(cls.forward)  # type: ignore[method-assign]

    def __init__(self: Any, config: Any):
        super().__init__(config)
        self.model = self._model_class(config)
        self.add_projection(config)
        self.post_init()

    def add_projection(self: Any, config: Any) -> None:
        """Make `lm_head`."""
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def get_output_embeddings(self: Any) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self: Any, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    @takes_past_key_values
    def forward(
        self: Any,
        labels: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        logits_to_keep: int = 0,
        **inputs: Any,
    ) -> Seq2SeqLMOutput:
        """Encode, decode and, with labels, compute the loss.

        Args:
            labels: `(batch, target_len)`, the token that each decoder position predicts; -100 and, as in the
                reference, the padding token are ignored. The decoder is fed them, shifted right, where nothing says
                otherwise, and makes no cache.
            return_logits: whether to compute full logits; `None` (default) means yes, except in training with labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            logits_to_keep: compute logits of the last so many tokens only (default 0: all).
            inputs: the model's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss`, the mean cross entropy over labels, smoothed as fairseq does where `config.label_smoothing` says
            so: (1 - eps) times the cross entropy plus eps times the mean of -log p over the vocabulary; `logits`
            `(batch, target_len, vocab_size)`, `None` in training with labels unless asked for; the cache, and the
            encoder's states.

        Raises:
            ValueError: as the model; or nothing says what the decoder is fed in training.
        """
        if labels is not None:
            self.config.check_end()
            inputs["use_cache"] = False
            labels = self.feed_labels(labels, inputs)
        elif self.training and not decoder_is_fed(inputs):
            raise ValueError(
                f"`decoder_input_ids` must be given in training when `labels` is not, got {sorted(inputs)}. `Trainer` "
                "takes `labels` out of the batch for `label_smoothing_factor` and `compute_loss_func`: use "
                "`DataCollatorForSeq2Seq(tokenizer, model=model)`, or `config.label_smoothing` where a config has it."
            )
        outputs = self.model(**inputs, return_dict=True)
        states = outputs.last_hidden_state
        if return_logits is None:
            return_logits = not (self.training and labels is not None)
        logits = self.lm_head(states[:, -logits_to_keep:]) if return_logits else None
        loss = None
        if labels is not None:
            flat, targets = labelled_logits(self.lm_head, states, labels, None, None if logits_to_keep else logits)
            smoothing = getattr(self.config, "label_smoothing", 0.0)
            loss_sum = nn.functional.cross_entropy(flat.float(), targets, reduction="sum", label_smoothing=smoothing)
            loss = mean_over_targets(loss_sum, targets, num_items_in_batch)
        return head_output(Seq2SeqLMOutput, outputs, loss=loss, logits=logits, cache=outputs.cache)

    def feed_labels(self: Any, labels: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """Labels without padding, from which the decoder's input is made if there is none."""
        if self.config.pad_token_id is not None:
            labels = labels.masked_fill(labels == self.config.pad_token_id, -100)
        if not decoder_is_fed(inputs):
            inputs["decoder_input_ids"] = self.prepare_decoder_input_ids_from_labels(labels)
            if inputs.get("decoder_attention_mask") is None:
                inputs["decoder_attention_mask"] = self.mask_of_labels(labels)
        return labels

    def mask_of_labels(self, labels: torch.Tensor) -> torch.Tensor | None:
        """The decoder's mask for labels, `None` where they are seen to begin every row: then none is needed."""
        begun = (labels != -100).long().cumsum(dim=1) > 0
        begun = begun | ~begun[:, -1:]  # a row without labels hides nothing
        return None if values_can_be_read(labels) and begun.all() else begun

    def prepare_decoder_input_ids_from_labels(self: Any, labels: torch.Tensor) -> torch.Tensor:
        """The start token, then each label but the last, between the same padding, for `DataCollatorForSeq2Seq`."""
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            raise ValueError(
                "`decoder_input_ids` must be given, or `config.decoder_start_token_id` and `config.pad_token_id` be "
                f"set, got {start} and {pad}."
            )
        check_start(start, self.config.vocab_size)
        return shift_right(labels, (labels != -100) & (labels != pad), start, pad)

    @torch.no_grad()
    def evaluation_sums(self: Any, labels: torch.Tensor, **inputs: Any) -> dict[str, torch.Tensor]:
        """`{"mass": [sum of cross entropies, correct, number of targets]}`, float64, without full logits."""
        labels = self.feed_labels(labels, inputs)
        states = self.model(**{**inputs, "use_cache": False, "return_dict": True}).last_hidden_state
        return {"mass": target_sums(self.lm_head, *select_labelled(states, labels))}

    def checked_generation(
        self: Any, sources: torch.Tensor | None, search_beam_size: int | None, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Arguments of upstream's `generate`, refused before the first step if they cannot be followed."""
        settings = GenerationSettings(arguments, self.generation_config)
        start = settings["decoder_start_token_id"]
        check_start(start, self.config.vocab_size)
        fed, limit = target_length(settings, start) - 1, position_limit(self.config, "target")  # the last is not fed
        if fed > limit:
            raise ValueError(
                f"A target of {fed} tokens was asked for and the decoder has {limit} positions "
                "(`max_position_embeddings`, or `max_target_positions` of a config that has it): lower "
                "`max_new_tokens`."
            )
        if arguments.get("attention_mask") is None:
            mask = real_tokens(self.config, sources)
            arguments["attention_mask"] = None if mask is None else mask.long()
        refuse_guidance(settings)
        types = {"token_type_ids": arguments.pop("token_type_ids", None)}
        refuse_unknown_arguments(type(self).__name__, types, arguments_of(self._model_class))
        if search_beam_size is not None:
            return own_search(self._reference_search, {**arguments, "num_beams": search_beam_size})
        return arguments

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, next_sequence_length: int | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """As upstream; a learnt prefix is handed over once, so its cache goes on whatever `use_cache` says."""
        if hasattr(kwargs.get("cache"), "prefix_length"):
            next_sequence_length = 1
        return super().prepare_inputs_for_generation(input_ids, next_sequence_length, **kwargs)


def decoder_is_fed(inputs: Mapping[str, Any]) -> bool:
    """Whether something says what the decoder is fed."""
    return inputs.get("decoder_input_ids") is not None or inputs.get("decoder_inputs_embeds") is not None


def check_start(start: Any, vocab_size: int) -> None:
    """Refuse a start token that the vocabulary has not, as the published models' 102 in a smaller one."""
    if isinstance(start, int) and not 0 <= start < vocab_size:
        raise ValueError(
            f"`decoder_start_token_id` must be the tokenizer's end token ([SEP], </s>), below `vocab_size` = "
            f"{vocab_size}, got {start}: the decoder is fed it first. Set it and `eos_token_id`."
        )


def shift_right(ids: torch.Tensor, real: torch.Tensor, start: int, pad: int) -> torch.Tensor:
    """The start token, then each real token but the last, between the same padding, which is fed for holes too."""
    before, behind = real.cumsum(dim=1), real.flip(1).cumsum(dim=1).flip(1)
    shifted = ids.roll(1, dims=1).masked_fill(real & (before == 1), start)
    return shifted.masked_fill((shifted == -100) | (before == 0) | (behind == 0), pad)


def target_length(settings: GenerationSettings, start: int | None) -> int:
    """Tokens of a finished output, whatever the decoder is fed first included."""
    prompt = settings["decoder_input_ids"]
    width = 1 if prompt is None else prompt.shape[1]
    if prompt is not None and start is not None and not (prompt[:, 0] == start).any():
        width += 1  # upstream puts the start token in front
    new, total = settings["max_new_tokens"], settings["max_length"]
    if new is not None:
        return width + int(new)
    return 20 + width - 1 if total is None else int(total)  # upstream's own default
