"""The heads of the usual tasks, written once for every encoder.

    class SpanBertForTokenClassification(TokenClassificationHead, SpanBertPreTrainedModel, encoder=SpanBertModel):

`forward` then has the encoder's inputs and the head's own arguments for its signature, in this order. Trainers keep
the columns that a signature names, so those that only one family has (`entity_ids`, `word_index`) reach every head.
"""

import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from .losses_core import (
    NotALabelName,
    classification_loss,
    mean_over_targets,
    number_of_sequences,
    problem_type_loss,
    select_labelled,
    span_extraction_loss,
    target_sums,
    vocabulary_loss_sum,
)

if TYPE_CHECKING:
    from .base_core import FamilyPreTrainedModel
else:
    FamilyPreTrainedModel = object

# Arguments of encoders that are no columns of a batch: heads hand them on with the other keyword arguments.
NO_COLUMNS = frozenset(
    {
        "self",
        "kwargs",
        "num_sequences",
        "inner_layer",
        "keep_boundaries",
        "initial_state",
        "encoder_hidden_states",
        "output_hidden_states",
        "output_attentions",
        "cache",
    }
)


class TaskHead(FamilyPreTrainedModel):
    """Mixin in front of a family's base class: a head on the encoder that its class names.

    `encoder` is the class of the bare encoder, `columns` its inputs that the signature names (default: all columns).
    """

    # Arguments with "label" in their name that a batch may lack, see `NotALabelName`.
    _optional_labels: tuple[str, ...] = ()
    _columns: tuple[str, ...] = ()
    # Of which a class that shows none of its own gets its example.
    _example = ""

    def __init_subclass__(
        cls, encoder: type[nn.Module] | None = None, columns: tuple[str, ...] | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if encoder is not None:
            cls._encoder_class = encoder
            cls._columns = cls.columns_of(encoder) if columns is None else columns
            cls.forward = with_columns(cls.forward, encoder, cls._columns, cls._optional_labels)
            if cls._example and cls.__doc__ and "Examples:" not in cls.__doc__:
                cls.__doc__ = with_example(cls)

    @classmethod
    def columns_of(cls, encoder: type[nn.Module]) -> tuple[str, ...]:
        """The encoder's inputs that are columns of a batch."""
        return tuple(name for name in inspect.signature(encoder.forward).parameters if name not in NO_COLUMNS)

    def add_encoder(self: Any, pooled: bool) -> None:
        """Make the encoder, under the name that the family's checkpoints have for it."""
        setattr(self, self.base_model_prefix, self.new_encoder(self.config, pooled))

    def encode_sequences(self: Any, labels: torch.Tensor | None, inputs: dict[str, Any]) -> Any:
        """Run the encoder; labels per sequence say how many sequences packed rows have."""
        if labels is not None and inputs.get("sequence_ids") is not None:
            inputs["num_sequences"] = number_of_sequences(labels)
        return self.encode(**inputs)


def with_example(cls: Any) -> str:
    """The docstring of a head's class, with the head's example on a small model of the family."""
    config, model = cls.config_class.__name__, cls.__name__
    example = f"""
>>> import torch
>>> from hf_ptm_ext import {config}, {model}
>>> config = {config}({cls._example_sizes}, num_labels=3)
>>> model = {model}(config)
{inspect.cleandoc(cls._example)}
"""
    return f"{inspect.cleandoc(cls.__doc__)}\n\nExamples:{textwrap.indent(example, ' ' * 4)}"


def with_columns(
    forward: Callable[..., Any], encoder: type[nn.Module], columns: tuple[str, ...], optional_labels: tuple[str, ...]
) -> Callable[..., Any]:
    """A head's `forward` that names the encoder's inputs, also takes them by position, and may return a tuple."""
    own = list(inspect.signature(forward).parameters.values())
    inputs = inspect.signature(encoder.forward).parameters
    named = [*(inputs[name] for name in columns), *own[1:-1]]
    names = tuple(parameter.name for parameter in named)
    shown = [
        parameter.replace(name=NotALabelName(parameter.name)) if parameter.name in optional_labels else parameter
        for parameter in named
    ]

    @functools.wraps(forward)
    def by_name(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > len(names):
            raise TypeError(f"forward() takes at most {len(names)} arguments without a name, got {len(args)}.")
        return forward(self, **dict(zip(names[: len(args)], args, strict=True)), **kwargs)

    bound = can_return_tuple(by_name)
    bound.__signature__ = inspect.signature(forward).replace(
        parameters=[own[0], *shown, inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation=Any)]
    )
    return bound


class SequenceClassificationHead(TaskHead):
    """Classification or regression on the pooled state of each sequence."""

    _example = """
        >>> model(torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), labels=torch.tensor([2, 0])).logits.shape
        torch.Size([2, 3])
    """

    def __init__(self: Any, config: Any):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.add_encoder(pooled=True)
        self.dropout = nn.Dropout(self.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self: Any,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels or, with
                `problem_type="single_label_classification"`, probabilities; packed rows add a dimension S after the
                batch. -100 is ignored.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: the encoder's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, num_labels)` or, packed, `(batch, S, num_labels)`.
        """
        outputs = self.encode_sequences(labels, inputs)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return self.head_output(SequenceClassifierOutput, outputs, loss=loss, logits=logits)


class TokenClassificationHead(TaskHead):
    """A class for every token."""

    _example = """
        >>> model(torch.tensor([[2, 7, 8, 3]]), labels=torch.tensor([[-100, 0, 2, -100]])).logits.shape
        torch.Size([1, 4, 3])
    """

    def __init__(self: Any, config: Any):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.add_encoder(pooled=False)
        self.dropout = nn.Dropout(self.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self: Any,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> TokenClassifierOutput:
        """Tag tokens.

        Args:
            labels: `(batch, seq_len)` classes, -100 ignored.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: the encoder's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, seq_len, num_labels)`.
        """
        outputs = self.encode(**inputs)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None if labels is None else self.tagging_loss(logits, labels, num_items_in_batch)
        return self.head_output(TokenClassifierOutput, outputs, loss=loss, logits=logits)

    def tagging_loss(
        self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor:
        """Mean cross entropy over labelled tokens."""
        return classification_loss(logits, labels, num_items_in_batch)


class QuestionAnsweringHead(TaskHead):
    """Start and end logits for question answering; the softmax runs over the row, so rows are not packed."""

    _example = """
        >>> model(torch.tensor([[2, 7, 8, 3, 9, 3]])).start_logits.shape
        torch.Size([1, 6])
    """

    def __init__(self: Any, config: Any):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self: Any,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **inputs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Extract an answer span.

        Args:
            start_positions: `(batch,)` first token of the answer; positions outside the input are ignored.
            end_positions: `(batch,)` last token of the answer, likewise.
            inputs: the encoder's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss`, `start_logits` and `end_logits` `(batch, seq_len)`.
        """
        outputs = self.encode(**inputs)
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_extraction_loss(start_logits, end_logits, start_positions, end_positions)
        return self.head_output(
            QuestionAnsweringModelOutput,
            outputs,
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
        )


class MultipleChoiceHead(TaskHead):
    """One score per choice, on the pooled state; all inputs have a dimension for the choices after the batch."""

    _example = """
        >>> model(torch.tensor([[[2, 7, 8, 3], [2, 7, 9, 3]]]), labels=torch.tensor([1])).logits.shape
        torch.Size([1, 2])
    """

    @classmethod
    def columns_of(cls, encoder: type[nn.Module]) -> tuple[str, ...]:
        """As for other heads; rows of choices are not packed."""
        return tuple(name for name in super().columns_of(encoder) if name != "sequence_ids")

    def __init__(self: Any, config: Any):
        super().__init__(config)
        self.add_encoder(pooled=True)
        self.dropout = nn.Dropout(self.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(
        self: Any,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> MultipleChoiceModelOutput:
        """Score choices.

        Args:
            labels: `(batch,)` index of the right choice.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: the encoder's inputs with a dimension for the choices, `(batch, choices, seq_len)` for instance,
                and `output_hidden_states`, `output_attentions`, `return_dict` as upstream. One of `(batch,)` holds
                for all choices of its row.

        Returns:
            `loss` and `logits` `(batch, choices)`.
        """
        given = inputs["inputs_embeds"] if inputs.get("input_ids") is None else inputs["input_ids"]
        choices = given.shape[1]
        flat = {
            name: value.flatten(0, 1) if value.dim() > 1 else value.repeat_interleave(choices)
            for name, value in inputs.items()
            if name in self._columns and value is not None
        }
        flat = {**inputs, **flat}
        outputs = self.encode(**flat)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, choices)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return self.head_output(MultipleChoiceModelOutput, outputs, loss=loss, logits=logits)


class VocabularyHead(nn.Module):
    """Container of the vocabulary head (`cls.predictions` in the state dict)."""

    def __init__(self, predictions: nn.Module):
        super().__init__()
        self.predictions = predictions


class VocabularyModel(TaskHead):
    """What models with `cls.predictions` share: the tied decoder and resizing."""

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    _prediction_heads = {"cls.predictions": "masked-language-model head"}

    def get_output_embeddings(self: Any) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self: Any, new_embeddings: nn.Module) -> None:
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def _get_resized_lm_head(self: Any, old_lm_head: nn.Linear, *args: Any, **kwargs: Any) -> nn.Linear:
        size = old_lm_head.weight.shape[0]
        new = super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
        if new.bias is not None:
            with torch.no_grad():
                new.bias[size:] = 0.0  # a token never seen has no frequency to lean on
        return new

    def wants_logits(self: Any, return_logits: bool | None, *targets: torch.Tensor | None) -> bool:
        """Whether full logits are computed: as asked, by default except in training with targets."""
        if return_logits is not None:
            return return_logits
        return not (self.training and any(target is not None for target in targets))


class MaskedLMHead(VocabularyModel):
    """The masked-language-model head alone; in training, logits are computed at labels alone."""

    _example = """
        >>> model.eval()(torch.tensor([[2, 7, 4, 3]])).logits.shape
        torch.Size([1, 4, 60])
    """

    _optional_labels = ("label_positions",)

    def __init__(self: Any, config: Any):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.cls = VocabularyHead(self._vocabulary_head(config))
        self.post_init()

    def forward(
        self: Any,
        labels: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> MaskedLMOutput:
        """Encode and, with labels, compute the loss.

        Args:
            labels: `(batch, seq_len)` original ids at selected tokens, -100 elsewhere.
            label_positions: `(batch, budget)` positions that cover the labels; keeps all shapes fixed.
            return_logits: whether to compute full logits; `None` (default) means yes, except in training with labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: the encoder's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, seq_len, vocab_size)`, `None` in training with labels unless asked for.
        """
        outputs = self.encode(**inputs)
        states = outputs.last_hidden_state
        logits = self.cls.predictions(states) if self.wants_logits(return_logits, labels) else None
        loss = None
        if labels is not None:
            loss_sum, targets = vocabulary_loss_sum(self.cls.predictions, states, labels, label_positions, logits)
            loss = mean_over_targets(loss_sum, targets, num_items_in_batch)
        return self.head_output(MaskedLMOutput, outputs, loss=loss, logits=logits)

    @torch.no_grad()
    def evaluation_sums(
        self: Any, labels: torch.Tensor, label_positions: torch.Tensor | None = None, **inputs: Any
    ) -> dict[str, torch.Tensor]:
        """`{"mlm": [sum of cross entropies, correct, number of targets]}`, float64, without full logits."""
        states = self.encode(**inputs).last_hidden_state
        return {"mlm": target_sums(self.cls.predictions, *select_labelled(states, labels, label_positions))}


class SentencePairHead(nn.Module):
    """Container of the next-sentence head (`cls.seq_relationship` in the state dict)."""

    def __init__(self, config: Any):
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class NextSentenceHead(TaskHead):
    """The next-sentence head alone."""

    _example = """
        >>> model(torch.tensor([[2, 7, 3, 9, 3]]), labels=torch.tensor([0])).logits.shape
        torch.Size([1, 2])
    """

    _prediction_heads = {"cls.seq_relationship": "next-sentence head"}

    def __init__(self: Any, config: Any):
        super().__init__(config)
        self.add_encoder(pooled=True)
        self.cls = SentencePairHead(config)
        self.post_init()

    def forward(
        self: Any,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> NextSentencePredictorOutput:
        """Say whether the second segment follows the first.

        Args:
            labels: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: the encoder's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, 2)` or, packed, `(batch, S, 2)`.
        """
        outputs = self.encode_sequences(labels, inputs)
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return self.head_output(NextSentencePredictorOutput, outputs, loss=loss, logits=logits)
