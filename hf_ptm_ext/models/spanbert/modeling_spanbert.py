"""SpanBERT (Joshi et al. 2020, https://arxiv.org/abs/1907.10529; reference code facebookresearch/SpanBERT).

The encoder is BERT's, post-LayerNorm, bit for bit. What SpanBERT adds is the span boundary objective: a masked span is
predicted from the states of the two tokens around it and from the position within the span,

    y_i = LN(gelu(W2 LN(gelu(W1 [h_left; h_right; p_i] + b1)) + b2)),    logits_i = y_i E^T + c

with E the word embeddings (tied) and c a bias of its own. The pre-training loss is

    sum CE(mlm) / N_mlm + w * sum CE(sbo) / (N_sbo + 1) [+ mean CE(nsp)]

where the + 1 is the reference code's. Next-sentence prediction is off by default: SpanBERT trains on single segments.

What differs from upstream's BERT: rows may be packed (`sequence_ids`); positions start at the first real token, so
left padding changes nothing; a row of nothing but padding sees itself (see `inputs_spanbert.py`); vocabulary logits
are computed only where a label is while training; keyword arguments that nothing reads are refused; no buffers.
"""

import inspect
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .boundary_spanbert import SpanBertBoundaryHead, fill_masked_spans
from .configuration_spanbert import AUTO_MAP, HF_PTM_EXT_VERSION, SpanBertConfig
from .encoder_spanbert import (
    SpanBertEncoder,
    SpanBertLayer,
    SpanBertPooler,
    SpanBertSelfAttention,
    refuse_unknown_arguments,
)
from .heads_spanbert import (
    SpanBertLMPredictionHead,
    classification_loss,
    mean_over_targets,
    number_of_sequences,
    problem_type_loss,
    select_labelled,
    span_extraction_loss,
    target_sums,
    vocabulary_loss_sum,
    with_optional_labels,
)
from .inputs_spanbert import (
    SpanBertEmbeddings,
    build_attention_mask,
    check_position_ids,
    first_token_states,
    has_empty_row,
    position_ids_of,
)
from .loading_spanbert import SpanBertLoading
from .losses_spanbert import (
    boundary_states,
    check_targets,
    pretraining_losses,
    pretraining_sums,
)
from .mask_contract_spanbert import read_attention_mask, refuse_learnt_tokens
from .outputs_spanbert import SpanBertForPreTrainingOutput, SpanBertModelOutput


class SpanBertPredictionHead(nn.Module):
    """Container of the vocabulary head (`cls.predictions` in the state dict)."""

    def __init__(self, config: SpanBertConfig):
        super().__init__()
        self.predictions = SpanBertLMPredictionHead(config)


class SpanBertPreTrainingHeads(SpanBertPredictionHead):
    """The heads of pre-training: vocabulary, span boundaries, and the next sentence if the config asks for it."""

    def __init__(self, config: SpanBertConfig):
        super().__init__(config)
        self.pair_target_predictions = SpanBertBoundaryHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2) if config.next_sentence_prediction else None


class SpanBertPreTrainedModel(SpanBertLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all SpanBERT classes."""

    config: SpanBertConfig
    config_class = SpanBertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # flash ignores mask functions: packed rows would see each other
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules = ["SpanBertEmbeddings", "SpanBertLayer"]
    _can_record_outputs = {"hidden_states": SpanBertLayer, "attentions": SpanBertSelfAttention}
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    # A DataParallel wrapper's prefix, the fairseq wrapper's, TensorFlow's LayerNorm names in the boundary head
    # (upstream renames those of the other LayerNorms itself).
    _legacy_keys = {
        r"^module\.": "",
        r"^decoder\.(bert\.|cls\.)": r"\1",
        r"(layer_norm[12])\.gamma$": r"\1.weight",
        r"(layer_norm[12])\.beta$": r"\1.bias",
    }

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, (SpanBertLMPredictionHead, SpanBertBoundaryHead)):
            init.zeros_(module.bias)

    def encode(self, *inputs: torch.Tensor | None, **kwargs: Any) -> SpanBertModelOutput:
        """Run a head's encoder.

        Args:
            inputs: the six inputs in the order in which every `forward` names them.
            kwargs: as in `SpanBertModel`.

        Returns:
            The encoder's output object.
        """
        return self.bert(*inputs, return_dict=True, **kwargs)


class SpanBertModel(SpanBertPreTrainedModel):
    """The bare encoder: BERT's, with packed rows.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler; `None` (default) reads `config.add_pooling_layer`.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertModel
        >>> config = SpanBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = SpanBertModel(config).eval()
        >>> model(torch.tensor([[2, 7, 8, 3]])).last_hidden_state.shape
        torch.Size([1, 4, 32])
    """

    def __init__(self, config: SpanBertConfig, add_pooling_layer: bool | None = None):
        super().__init__(config)
        self.embeddings = SpanBertEmbeddings(config)
        self.encoder = SpanBertEncoder(config)
        with_pooler = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = SpanBertPooler(config) if with_pooler else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.word_embeddings = value

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_sequences: int | None = None,
        inner_layer: int | None = None,
        **kwargs: Any,
    ) -> SpanBertModelOutput:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding; other forms in `mask_contract_spanbert.py`.
            token_type_ids: `(batch, seq_len)`; type 0 if left out.
            position_ids: `(batch, seq_len)`; counted from the first real token, per sequence, if left out.
            sequence_ids: `(batch, seq_len)` of packed rows: runs of equal ids 1..S are sequences, 0 = padding.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            num_sequences: S of packed rows, for the pooled output (default: the largest id).
            inner_layer: index of a layer whose output is wanted as `inner_hidden_state`.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, hidden)` and `pooler_output` `(batch, hidden)` or, packed,
            `(batch, S, hidden)`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, or more tokens than positions.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, ENCODER_ARGUMENTS)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Exactly one of `input_ids` and `inputs_embeds` must be given.")
        if inputs_embeds is None:
            inputs_embeds = self.embeddings.word_embeddings(input_ids)
        attention_mask = read_attention_mask(self.config, attention_mask, inputs_embeds)
        input_shape = inputs_embeds.shape[:2]
        if position_ids is None:
            if sequence_ids is None and input_shape[1] > self.config.max_position_embeddings:
                raise ValueError(
                    f"The input has {input_shape[1]} tokens and `max_position_embeddings` is "
                    f"{self.config.max_position_embeddings}: truncate it or split it into windows."
                )
            position_ids = position_ids_of(input_shape, inputs_embeds.device, attention_mask, sequence_ids)
        check_position_ids(position_ids, sequence_ids, self.config)
        # Rounds as the reference does, see the top of `inputs_spanbert.py`.
        empty_row = has_empty_row(self.config, attention_mask, sequence_ids)
        if empty_row:
            kwargs["plain_attention"] = True
        embeddings = self.embeddings(inputs_embeds, position_ids, token_type_ids, types_last=empty_row)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)
        hidden_states, inner_states = self.encoder(embeddings, mask, inner_layer=inner_layer, **kwargs)
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(first_token_states(hidden_states, attention_mask, sequence_ids, num_sequences))
        return SpanBertModelOutput(
            last_hidden_state=hidden_states, pooler_output=pooled, inner_hidden_state=inner_states
        )


ENCODER_ARGUMENTS = tuple(inspect.signature(SpanBertModel.forward).parameters)


class SpanBertWithVocabularyHead(SpanBertPreTrainedModel):
    """What the classes with `cls.predictions` share: the tied decoder and resizing."""

    _prediction_heads = {"cls.predictions": "masked-language-model head"}

    def get_output_embeddings(self) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def _get_resized_lm_head(self, old_lm_head: nn.Linear, *args: Any, **kwargs: Any) -> nn.Linear:
        size = old_lm_head.weight.shape[0]
        new = super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
        with torch.no_grad():
            new.bias[size:] = 0.0  # a token never seen has no frequency to lean on
        return new


@with_optional_labels("span_labels", "next_sentence_label", "label_positions")
class SpanBertForPreTraining(SpanBertWithVocabularyHead):
    """SpanBERT with its pre-training heads: masked language model, span boundaries and, optionally, next sentence.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining
        >>> config = SpanBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = SpanBertForPreTraining(config)
        >>> input_ids = torch.tensor([[2, 7, 4, 4, 9, 3]])
        >>> output = model(
        ...     input_ids,
        ...     labels=torch.tensor([[-100, -100, 8, 8, -100, -100]]),
        ...     span_boundaries=torch.tensor([[[1, 4]]]),
        ...     span_labels=torch.tensor([[[8, 8] + [-100] * 13]]),
        ... )
        >>> bool(torch.isclose(output.loss, output.mlm_loss + output.sbo_loss))
        True
    """

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.pair_target_predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.pair_target_predictions.decoder.bias": "cls.pair_target_predictions.bias",
    }
    _prediction_heads = {
        "cls.predictions": "masked-language-model head",
        "cls.pair_target_predictions": "span boundary head",
    }

    def __init__(self, config: SpanBertConfig):
        super().__init__(config)
        self.bert = SpanBertModel(config, add_pooling_layer=config.next_sentence_prediction)
        self.cls = SpanBertPreTrainingHeads(config)
        self.post_init()

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        head = self.cls.pair_target_predictions
        requires_grad = head.decoder.weight.requires_grad
        mean_resizing = kwargs.get("mean_resizing", args[2] if len(args) > 2 else True)
        head.decoder = self._get_resized_lm_head(
            head.decoder, embeddings.weight.shape[0], mean_resizing=mean_resizing
        ).requires_grad_(requires_grad)
        head.bias = head.decoder.bias
        return embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        span_boundaries: torch.Tensor | None = None,
        span_labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> SpanBertForPreTrainingOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
            input_ids: `(batch, seq_len)`; this and the next five as in `SpanBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            labels: `(batch, seq_len)` original ids at selected tokens, -100 elsewhere.
            span_boundaries: `(batch, pairs, 2)` positions in the row of the tokens left and right of each span;
                `(0, 0)` fills rows with fewer spans.
            span_labels: `(batch, pairs, max_pair_targets)` original ids of each span's tokens, -100 elsewhere.
            next_sentence_label: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored.
            label_positions: `(batch, budget)` positions that cover the labels; keeps all shapes fixed. No row may then
                have more than `budget` span targets.
            return_logits: whether to compute full logits; `None` (default) means yes, except in training with labels
                (for the boundary head also with `span_labels`).
            num_items_in_batch: number of labels over all micro-batches of one update; the token term is divided by it.
            target_counts: the same number for the other terms, under `"span_labels"` and `"next_sentence_label"`.
                Without it they are estimated from the share of labels that this micro-batch has, which is exact when
                every micro-batch has the same number of targets per label; with no label in the whole update they
                are means over the micro-batch.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `SpanBertForPreTrainingOutput`.

        Raises:
            ValueError: labels come without what they need (pairs, the next-sentence head), with wrong shapes, or with
                boundaries outside the row.
        """
        refuse_learnt_tokens(self, attention_mask, inputs_embeds, span_boundaries=span_boundaries)
        given = input_ids if input_ids is not None else inputs_embeds
        check_targets(
            self,
            None if given is None else given.shape[1],
            span_boundaries,
            span_labels,
            next_sentence_label,
        )
        if span_boundaries is not None:
            kwargs["inner_layer"] = self._inner_boundary_layer
        if self.cls.seq_relationship is not None and next_sentence_label is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(next_sentence_label)
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, sequence_ids, inputs_embeds, **kwargs
        )

        logits = dict.fromkeys(("prediction_logits", "boundary_logits", "seq_relationship_logits"))
        if return_logits or (return_logits is None and not (self.training and labels is not None)):
            logits["prediction_logits"] = self.cls.predictions(outputs.last_hidden_state)
        has_targets = labels is not None or span_labels is not None
        if span_boundaries is not None and (
            return_logits or (return_logits is None and not (self.training and has_targets))
        ):
            logits["boundary_logits"] = self.cls.pair_target_predictions.all_logits(
                boundary_states(outputs), span_boundaries
            )
        if self.cls.seq_relationship is not None:
            logits["seq_relationship_logits"] = self.cls.seq_relationship(outputs.pooler_output)
        targets = {
            "labels": labels,
            "label_positions": label_positions,
            "span_boundaries": span_boundaries,
            "span_labels": span_labels,
            "next_sentence_label": next_sentence_label,
        }
        losses = pretraining_losses(self, outputs, logits, targets, num_items_in_batch, target_counts)
        return SpanBertForPreTrainingOutput(
            **losses, **logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    @property
    def _inner_boundary_layer(self) -> int | None:
        """Index of the layer that feeds the boundary head, `None` for the last one."""
        layer = self.config.pair_target_layer % self.config.num_hidden_layers
        return layer if layer < self.config.num_hidden_layers - 1 else None

    @torch.no_grad()
    def evaluation_sums(
        self,
        labels: torch.Tensor,
        span_boundaries: torch.Tensor | None = None,
        span_labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        **inputs: Any,
    ) -> dict[str, torch.Tensor]:
        """Sums from which evaluation metrics are made, without ever holding full logits.

        Args:
            labels: as in `forward`.
            span_boundaries: as in `forward`.
            span_labels: as in `forward`.
            next_sentence_label: as in `forward`.
            label_positions: as in `forward`.
            inputs: the encoder's inputs.

        Returns:
            Per term (`mlm`, `sbo`, `nsp`) a float64 tensor `[sum of cross entropies, correct, number of targets]`.

        Raises:
            ValueError: as `forward`.
        """
        check_targets(self, labels.shape[1], span_boundaries, span_labels, next_sentence_label)
        if next_sentence_label is not None and inputs.get("sequence_ids") is not None:
            inputs["num_sequences"] = number_of_sequences(next_sentence_label)
        outputs = self.bert(**inputs, inner_layer=self._inner_boundary_layer, return_dict=True)
        targets = {
            "labels": labels,
            "label_positions": label_positions,
            "span_boundaries": span_boundaries,
            "span_labels": span_labels,
            "next_sentence_label": next_sentence_label,
        }
        return pretraining_sums(self, outputs, targets)

    def fill_span(self, text: str, tokenizer: Any, top_k: int = 5) -> list[dict[str, Any]]:
        """Predict masked spans from their boundaries, with the span boundary head.

        Args:
            text: text in which each run of mask tokens stands for one span, one mask token a piece:
                `"The capital of [MASK] [MASK] is Paris."`.
            tokenizer: the checkpoint's tokenizer.
            top_k: number of candidates per token (default 5).

        Returns:
            One dict per span: `start` and `end` (token positions, end exclusive), `text` (the best tokens joined),
            `tokens` (the best token of each position) and `candidates` (for each position, `top_k` pairs of token and
            probability).

        Raises:
            ValueError: no mask token in the text, or a span longer than `max_pair_targets`.
        """
        return fill_masked_spans(self, text, tokenizer, top_k)


@with_optional_labels("label_positions")
class SpanBertForMaskedLM(SpanBertWithVocabularyHead):
    """SpanBERT with the masked-language-model head alone.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertForMaskedLM
        >>> config = SpanBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = SpanBertForMaskedLM(config).train()
        >>> input_ids = torch.tensor([[2, 7, 4, 9, 3]])
        >>> output = model(input_ids, labels=torch.tensor([[-100, -100, 8, -100, -100]]))
        >>> output.loss.dim(), output.logits is None  # in training, logits are computed at labels alone
        (0, True)
        >>> model.eval()(input_ids).logits.shape
        torch.Size([1, 5, 60])
    """

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def __init__(self, config: SpanBertConfig):
        super().__init__(config)
        self.bert = SpanBertModel(config, add_pooling_layer=False)
        self.cls = SpanBertPredictionHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Encode and, with labels, compute the loss.

        Args:
            input_ids: `(batch, seq_len)`; this and the next five as in `SpanBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            labels: `(batch, seq_len)` original ids at selected tokens, -100 elsewhere.
            label_positions: `(batch, budget)` positions that cover the labels; keeps all shapes fixed.
            return_logits: whether to compute full logits; `None` (default) means yes, except in training with labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, seq_len, vocab_size)`, `None` in training with labels unless asked for.
        """
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, sequence_ids, inputs_embeds, **kwargs
        )
        if return_logits is None:
            return_logits = not (self.training and labels is not None)
        logits = self.cls.predictions(outputs.last_hidden_state) if return_logits else None
        loss = None
        if labels is not None:
            loss_sum, targets = vocabulary_loss_sum(
                self.cls.predictions, outputs.last_hidden_state, labels, label_positions, logits
            )
            loss = mean_over_targets(loss_sum, targets, num_items_in_batch)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    @torch.no_grad()
    def evaluation_sums(
        self, labels: torch.Tensor, label_positions: torch.Tensor | None = None, **inputs: Any
    ) -> dict[str, torch.Tensor]:
        """Sums of the `mlm` term for evaluation, see `SpanBertForPreTraining.evaluation_sums`.

        Args:
            labels: as in `forward`.
            label_positions: as in `forward`.
            inputs: the encoder's inputs.

        Returns:
            `{"mlm": [sum of cross entropies, correct, number of targets]}`, float64.

        Raises:
            ValueError: `label_positions` do not cover the labels.
        """
        states = self.bert(**inputs, return_dict=True).last_hidden_state
        return {"mlm": target_sums(self.cls.predictions, *select_labelled(states, labels, label_positions))}


class SpanBertForSequenceClassification(SpanBertPreTrainedModel):
    """SpanBERT with a classification or regression head on the pooled output.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertForSequenceClassification
        >>> config = SpanBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     num_labels=3,
        ... )
        >>> model = SpanBertForSequenceClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), labels=torch.tensor([2, 0]))
        >>> output.logits.shape, config.problem_type
        (torch.Size([2, 3]), 'single_label_classification')
    """

    def __init__(self, config: SpanBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = SpanBertModel(config, add_pooling_layer=True)
        self.dropout = nn.Dropout(_classifier_dropout(config))
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: `(batch, seq_len)`; this and the next five as in `SpanBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels; packed rows add
                a dimension S after the batch.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, num_labels)` or, packed, `(batch, S, num_labels)`.
        """
        if labels is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(labels)
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, sequence_ids, inputs_embeds, **kwargs
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class SpanBertForTokenClassification(SpanBertPreTrainedModel):
    """SpanBERT with a classification head on every token.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertForTokenClassification
        >>> config = SpanBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     num_labels=5,
        ... )
        >>> model = SpanBertForTokenClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3]]), labels=torch.tensor([[-100, 0, 4, -100]]))
        >>> output.logits.shape
        torch.Size([1, 4, 5])
    """

    def __init__(self, config: SpanBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = SpanBertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(_classifier_dropout(config))
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Tag tokens.

        Args:
            input_ids: `(batch, seq_len)`; this and the next five as in `SpanBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            labels: `(batch, seq_len)` classes, -100 ignored.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, seq_len, num_labels)`.
        """
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, sequence_ids, inputs_embeds, **kwargs
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class SpanBertForQuestionAnswering(SpanBertPreTrainedModel):
    """SpanBERT with start and end logits for extractive question answering.

    Rows hold one sequence each: the softmax runs over the row, so packed rows would let sequences compete.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertForQuestionAnswering
        >>> config = SpanBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = SpanBertForQuestionAnswering(config)
        >>> output = model(
        ...     torch.tensor([[2, 7, 8, 3, 9, 10, 3]]),
        ...     start_positions=torch.tensor([4]),
        ...     end_positions=torch.tensor([5]),
        ... )
        >>> output.start_logits.shape, output.loss.dim()
        (torch.Size([1, 7]), 0)
    """

    def __init__(self, config: SpanBertConfig):
        super().__init__(config)
        self.bert = SpanBertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Extract an answer span.

        Args:
            input_ids: `(batch, seq_len)`; this and the next five as in `SpanBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            start_positions: `(batch,)` first token of the answer; positions outside the input are ignored.
            end_positions: `(batch,)` last token of the answer, likewise.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss`, `start_logits` and `end_logits` `(batch, seq_len)`.
        """
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, sequence_ids, inputs_embeds, **kwargs
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_extraction_loss(start_logits, end_logits, start_positions, end_positions)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class SpanBertForMultipleChoice(SpanBertPreTrainedModel):
    """SpanBERT with one score per choice on the pooled output.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertForMultipleChoice
        >>> config = SpanBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = SpanBertForMultipleChoice(config)
        >>> choices = torch.tensor([[[2, 7, 8, 3], [2, 7, 9, 3]]])  # one question, two choices
        >>> model(choices, labels=torch.tensor([1])).logits.shape
        torch.Size([1, 2])
    """

    def __init__(self, config: SpanBertConfig):
        super().__init__(config)
        self.bert = SpanBertModel(config, add_pooling_layer=True)
        self.dropout = nn.Dropout(_classifier_dropout(config))
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> MultipleChoiceModelOutput:
        """Score choices.

        Args:
            input_ids: `(batch, choices, seq_len)`.
            attention_mask: `(batch, choices, seq_len)`.
            token_type_ids: `(batch, choices, seq_len)`.
            position_ids: `(batch, choices, seq_len)`.
            inputs_embeds: `(batch, choices, seq_len, hidden)` instead of `input_ids`.
            labels: `(batch,)` index of the right choice.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, choices)`.
        """
        given = input_ids if input_ids is not None else inputs_embeds
        num_choices = given.shape[1]
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        flat = {name: value.flatten(0, 1) if value is not None else None for name, value in inputs.items()}
        outputs = self.bert(**flat, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, num_choices)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def _classifier_dropout(config: SpanBertConfig) -> float:
    """The classifier's own dropout, or the hidden one."""
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


__all__ = [
    "SpanBertForMaskedLM",
    "SpanBertForMultipleChoice",
    "SpanBertForPreTraining",
    "SpanBertForPreTrainingOutput",
    "SpanBertForQuestionAnswering",
    "SpanBertForSequenceClassification",
    "SpanBertForTokenClassification",
    "SpanBertModel",
    "SpanBertModelOutput",
    "SpanBertPreTrainedModel",
]
