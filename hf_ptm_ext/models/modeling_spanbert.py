"""SpanBERT (Joshi et al. 2020, https://arxiv.org/abs/1907.10529; reference code facebookresearch/SpanBERT).

BERT, bit for bit, and the span boundary objective: a masked span is predicted from the states of the two tokens around
it and from the position within the span (E: the word embeddings, tied; c: a bias of its own),

    y_i = LN(gelu(W2 LN(gelu(W1 [h_left; h_right; p_i] + b1)) + b2)),    logits_i = y_i E^T + c
    loss = sum CE(mlm) / N_mlm + w * sum CE(sbo) / (N_sbo + 1) [+ mean CE(nsp)]        (the + 1 is the reference's)
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .base_core import FamilyPreTrainedModel, encoder_forward
from .boundary_spanbert import SpanBertBoundaryHead, check_targets, fill_masked_spans
from .configuration_spanbert import AUTO_MAP, HF_PTM_EXT_VERSION, SpanBertConfig
from .encoder_core import Encoder, Pooler
from .inputs_core import Embeddings, build_attention_mask, checked_positions, has_empty_row
from .losses_core import LMPredictionHead, target_sums
from .mask_contract_core import read_attention_mask, refuse_learnt_tokens
from .pretraining_core import PreTrainingOutput, PreTrainingTerms, pretraining_sums
from .task_heads_core import (
    MaskedLMHead,
    MultipleChoiceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
    VocabularyHead,
    VocabularyModel,
)


@dataclass
class SpanBertModelOutput(BaseModelOutputWithPooling):
    """Output of `SpanBertModel`: upstream's, and the output of `inner_layer` if one was asked for."""

    inner_hidden_state: torch.Tensor | None = None


@dataclass
class SpanBertForPreTrainingOutput(PreTrainingOutput):
    """As `MlmAndNspOutput`, with the span boundary term.

    Args:
        sbo_loss: span boundary term before its weight, sum over span targets / (their number + 1).
        boundary_logits: `(batch, pairs, max_pair_targets, vocab_size)`; `None` without pairs, and in training unless
            asked for.
    """

    loss: torch.Tensor | None = None
    mlm_loss: torch.Tensor | None = None
    sbo_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    boundary_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class SpanBertPreTrainedModel(FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all SpanBERT classes."""

    config: SpanBertConfig
    config_class = SpanBertConfig
    _supports_flash_attn = True
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


class SpanBertModel(SpanBertPreTrainedModel):
    """The bare encoder: BERT's, with packed rows.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler; `None` (default) reads `config.add_pooling_layer`.

    Examples:
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
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        with_pooler = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = Pooler(config) if with_pooler else None
        self.post_init()

    @encoder_forward
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

        Of its own:
            inner_layer: index of a layer whose output is wanted as `inner_hidden_state`.
        """
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        attention_mask = read_attention_mask(self.config, attention_mask, words)
        position_ids = checked_positions(self.config, words, position_ids, attention_mask, sequence_ids)
        # Rounds as the reference does, see the top of `inputs_core.py`.
        empty_row = has_empty_row(self.config, attention_mask, sequence_ids)
        if empty_row:
            kwargs["plain_attention"] = True
        embeddings = self.embeddings(words, position_ids, token_type_ids, types_last=empty_row)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)
        hidden_states, inner_states = self.encoder(embeddings, mask, inner_layer=inner_layer, **kwargs)
        return SpanBertModelOutput(
            last_hidden_state=hidden_states,
            pooler_output=self.pooled_first(hidden_states, attention_mask, sequence_ids, num_sequences),
            inner_hidden_state=inner_states,
        )


class SpanBertPreTrainingHeads(VocabularyHead):
    """The heads of pre-training: vocabulary, span boundaries, and the next sentence if the config asks for it."""

    def __init__(self, config: SpanBertConfig):
        super().__init__(LMPredictionHead(config))
        self.pair_target_predictions = SpanBertBoundaryHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2) if config.next_sentence_prediction else None


class SpanBertForPreTraining(VocabularyModel, SpanBertPreTrainedModel, encoder=SpanBertModel):
    """SpanBERT with its pre-training heads: masked language model, span boundaries and, optionally, next sentence.

    Examples:
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

    _optional_labels = ("span_labels", "next_sentence_label", "label_positions")
    _tied_weights_keys = {
        **VocabularyModel._tied_weights_keys,
        "cls.pair_target_predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.pair_target_predictions.decoder.bias": "cls.pair_target_predictions.bias",
    }
    _prediction_heads = {
        "cls.predictions": "masked-language-model head",
        "cls.pair_target_predictions": "span boundary head",
    }

    def __init__(self, config: SpanBertConfig):
        super().__init__(config)
        self.add_encoder(pooled=config.next_sentence_prediction)
        self.cls = SpanBertPreTrainingHeads(config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, SpanBertBoundaryHead):
            init.zeros_(module.bias)

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

    def forward(
        self,
        labels: torch.Tensor | None = None,
        span_boundaries: torch.Tensor | None = None,
        span_labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **inputs: Any,
    ) -> SpanBertForPreTrainingOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
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
            inputs: the inputs of `SpanBertModel`, and `output_hidden_states`, `output_attentions`, `return_dict` as
                upstream.

        Returns:
            `SpanBertForPreTrainingOutput`.

        Raises:
            ValueError: labels come without what they need (pairs, the next-sentence head), with wrong shapes, or with
                boundaries outside the row.
        """
        targets = {
            "labels": labels,
            "label_positions": label_positions,
            "span_boundaries": span_boundaries,
            "span_labels": span_labels,
            "next_sentence_label": next_sentence_label,
        }
        outputs = self._encode_with_boundaries(targets, inputs)
        states, inner = outputs.last_hidden_state, outputs.inner_hidden_state
        sbo, next_sentence = self.cls.pair_target_predictions, self.cls.seq_relationship
        sbo_states = states if inner is None else inner
        logits = {
            "prediction_logits": self.cls.predictions(states) if self.wants_logits(return_logits, labels) else None,
            "boundary_logits": None,
            "seq_relationship_logits": None if next_sentence is None else next_sentence(outputs.pooler_output),
        }
        if span_boundaries is not None and self.wants_logits(return_logits, labels, span_labels):
            logits["boundary_logits"] = sbo.all_logits(sbo_states, span_boundaries)
        terms = PreTrainingTerms(self, states, logits, targets, num_items_in_batch, target_counts)
        sbo.add_term(terms, sbo_states, targets, logits["boundary_logits"])
        losses = terms.losses({"sbo_loss": self.config.sbo_loss_weight})
        return self.head_output(SpanBertForPreTrainingOutput, outputs, **losses, **logits)

    def _encode_with_boundaries(self, targets: dict[str, Any], inputs: dict[str, Any]) -> Any:
        """Run the encoder on a text whose targets fit it."""
        boundaries = targets["span_boundaries"]
        text = inputs.get("input_ids") if inputs.get("inputs_embeds") is None else inputs["inputs_embeds"]
        refuse_learnt_tokens(
            self, inputs.get("attention_mask"), inputs.get("inputs_embeds"), span_boundaries=boundaries
        )
        check_targets(self, None if text is None else text.shape[1], targets)
        if boundaries is not None:
            layer = self.config.pair_target_layer % self.config.depth
            inputs["inner_layer"] = layer if layer < self.config.depth - 1 else None
        return self.encode_sequences(targets["next_sentence_label"], inputs)

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
        """Sums from which evaluation metrics are made, without ever holding full logits; arguments as in `forward`.

        Returns:
            Per term (`mlm`, `sbo`, `nsp`) a float64 tensor `[sum of cross entropies, correct, number of targets]`.
        """
        targets: dict[str, Any] = {
            "labels": labels,
            "label_positions": label_positions,
            "span_boundaries": span_boundaries,
            "span_labels": span_labels,
            "next_sentence_label": next_sentence_label,
        }
        outputs = self._encode_with_boundaries(targets, inputs)
        states, inner = outputs.last_hidden_state, outputs.inner_hidden_state
        sums = pretraining_sums(self, states, outputs.pooler_output, targets)
        if span_labels is not None:
            head = self.cls.pair_target_predictions
            selected = head.labelled(states if inner is None else inner, targets["span_boundaries"], span_labels)
            sums["sbo"] = target_sums(head, *selected)
        return sums

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


class SpanBertForMaskedLM(MaskedLMHead, SpanBertPreTrainedModel, encoder=SpanBertModel):
    """SpanBERT with the masked-language-model head alone."""


class SpanBertForSequenceClassification(SequenceClassificationHead, SpanBertPreTrainedModel, encoder=SpanBertModel):
    """SpanBERT with a classification or regression head on the pooled output."""


class SpanBertForTokenClassification(TokenClassificationHead, SpanBertPreTrainedModel, encoder=SpanBertModel):
    """SpanBERT with a classification head on every token."""


class SpanBertForQuestionAnswering(QuestionAnsweringHead, SpanBertPreTrainedModel, encoder=SpanBertModel):
    """SpanBERT with start and end logits for extractive question answering; rows hold one sequence each."""


class SpanBertForMultipleChoice(MultipleChoiceHead, SpanBertPreTrainedModel, encoder=SpanBertModel):
    """SpanBERT with one score per choice on the pooled output."""
