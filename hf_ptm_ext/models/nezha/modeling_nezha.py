"""NEZHA (Wei et al. 2019, https://arxiv.org/abs/1909.00204; reference code huawei-noah/Pretrained-Language-Model).

BERT without a table of positions: fixed sinusoids of the distance between two tokens go into every attention score and
into every value (see `relative_nezha.py`). Pre-training is BERT's, masked tokens (whole words) and next sentence.

What differs from upstream's models, of which transformers 4 had one of this name: rows may be packed (`sequence_ids`)
and longer than any table; a row of nothing but padding sees itself (see `masks_nezha.py`); vocabulary logits are
computed only where a label is while training; keyword arguments that nothing reads are refused; no buffers.
"""

import functools
import inspect
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_nezha import AUTO_MAP, HF_PTM_EXT_VERSION, NezhaConfig
from .encoder_nezha import NezhaEncoder, NezhaLayer, NezhaPooler, NezhaSelfAttention, refuse_unknown_arguments
from .heads_nezha import (
    NezhaLMPredictionHead,
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
from .loading_nezha import NezhaLoading
from .mask_contract_nezha import read_attention_mask, two_dimensional
from .masks_nezha import build_attention_mask, first_token_states
from .pretraining_nezha import (
    NezhaForPreTrainingOutput,
    NezhaNextSentenceHead,
    NezhaPredictionHead,
    NezhaPreTrainingHeads,
    NezhaVocabularyModel,
    pretraining_losses,
    pretraining_sums,
)
from .relative_nezha import check_consecutive, relative_attention_forward, relative_encodings


class NezhaEmbeddings(nn.Module):
    """Word and token-type embeddings, LayerNorm and dropout."""

    def __init__(self, config: NezhaConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, inputs_embeds: torch.Tensor, token_type_ids: torch.Tensor | None = None) -> torch.Tensor:
        """`(batch, seq_len, hidden)` word embeddings and `(batch, seq_len)` types (`None`: 0) to the first states."""
        types = self.token_type_embeddings
        added = types.weight[0] if token_type_ids is None else types(token_type_ids)
        return self.dropout(self.LayerNorm(inputs_embeds + added))


class NezhaPreTrainedModel(NezhaLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all NEZHA classes."""

    config: NezhaConfig
    config_class = NezhaConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = False  # the values depend on the distance, which no kernel of upstream's knows
    _supports_flash_attn = False
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules = ["NezhaEmbeddings", "NezhaLayer"]
    _can_record_outputs = {"hidden_states": NezhaLayer, "attentions": NezhaSelfAttention}
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    # A DataParallel wrapper's prefix, transformers 4's prefix.
    _legacy_keys = {r"^module\.": "", r"^nezha\.": "bert."}
    # transformers 4 stored the fixed encodings in every layer, and default token types.
    _keys_to_ignore_on_load_unexpected = [
        r"relative_positions_encoding\.positions_encoding$",
        r"embeddings\.(position_ids|token_type_ids)$",
    ]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, NezhaLMPredictionHead):
            init.zeros_(module.bias)

    def encode(self, *inputs: torch.Tensor | None, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Run a head's encoder.

        Args:
            inputs: the six inputs in the order in which every `forward` names them.
            kwargs: as in `NezhaModel`.

        Returns:
            The encoder's output object.
        """
        return self.bert(*inputs, return_dict=True, **kwargs)


class NezhaModel(NezhaPreTrainedModel):
    """The bare encoder.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler (default True).

    Example:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaModel
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = NezhaModel(config).eval()
        >>> model(torch.tensor([[2, 7, 8, 3]])).last_hidden_state.shape
        torch.Size([1, 4, 32])
    """

    def __init__(self, config: NezhaConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = NezhaEmbeddings(config)
        self.encoder = NezhaEncoder(config)
        self.pooler = NezhaPooler(config) if add_pooling_layer else None
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
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding; other forms in `mask_contract_nezha.py`.
            token_type_ids: `(batch, seq_len)`; type 0 if left out.
            position_ids: `(batch, seq_len)`; not read, as distances are counted in the row, but refused if they would
                give other distances.
            sequence_ids: `(batch, seq_len)` of packed rows: runs of equal ids 1..S are sequences, 0 = padding.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            num_sequences: S of packed rows, for the pooled output (default: the largest id).
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, hidden)` and `pooler_output` `(batch, hidden)` or, packed,
            `(batch, S, hidden)`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, or `position_ids` that skip places.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, ENCODER_ARGUMENTS)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Exactly one of `input_ids` and `inputs_embeds` must be given.")
        if inputs_embeds is None:
            inputs_embeds = self.embeddings.word_embeddings(input_ids)
        attention_mask = read_attention_mask(self.config, attention_mask, inputs_embeds)
        if position_ids is not None:
            padding = attention_mask if two_dimensional(attention_mask) else None
            check_consecutive(position_ids, padding if sequence_ids is None else sequence_ids)
        embeddings = self.embeddings(inputs_embeds, token_type_ids)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)
        encodings = relative_encodings(
            embeddings.shape[1],
            self.config.max_relative_position,
            self.config.hidden_size // self.config.num_attention_heads,
            embeddings.dtype,
            embeddings.device,
        )
        attention = functools.partial(relative_attention_forward, relative_encodings=encodings)
        hidden_states, _ = self.encoder(embeddings, mask, attention_function=attention, **kwargs)
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(first_token_states(hidden_states, attention_mask, sequence_ids, num_sequences))
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


ENCODER_ARGUMENTS = tuple(inspect.signature(NezhaModel.forward).parameters)


@with_optional_labels("next_sentence_label", "label_positions")
class NezhaForPreTraining(NezhaVocabularyModel, NezhaPreTrainedModel):
    """NEZHA with its pre-training heads: masked tokens and next sentence.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaForPreTraining
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = NezhaForPreTraining(config)
        >>> output = model(
        ...     torch.tensor([[2, 7, 4, 3, 9, 3]]),
        ...     labels=torch.tensor([[-100, -100, 8, -100, -100, -100]]),
        ...     next_sentence_label=torch.tensor([0]),
        ... )
        >>> bool(torch.isclose(output.loss, output.mlm_loss + output.nsp_loss))
        True
    """

    _prediction_heads = {
        "cls.predictions": "masked-language-model head",
        "cls.seq_relationship": "next-sentence head",
    }

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.bert = NezhaModel(config)
        self.cls = NezhaPreTrainingHeads(config)
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
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> NezhaForPreTrainingOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
            input_ids: `(batch, seq_len)`; this and the next five as in `NezhaModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            labels: `(batch, seq_len)` original ids at selected tokens, -100 elsewhere.
            next_sentence_label: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored.
            label_positions: `(batch, budget)` positions that cover `labels`; keeps all shapes fixed.
            return_logits: whether to compute full token logits; `None` (default) means yes, except in training with
                labels.
            num_items_in_batch: number of labels over all micro-batches of one update; the token term is divided by it.
            target_counts: the same number for the other term, under `"next_sentence_label"`. Without it that term is
                the mean over the micro-batch, weighted by its share of the update's labels.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `NezhaForPreTrainingOutput`.
        """
        if next_sentence_label is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(next_sentence_label)
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, sequence_ids, inputs_embeds, **kwargs
        )
        if return_logits is None:
            return_logits = not (self.training and labels is not None)
        logits = {
            "prediction_logits": self.cls.predictions(outputs.last_hidden_state) if return_logits else None,
            "seq_relationship_logits": self.cls.seq_relationship(outputs.pooler_output),
        }
        targets = {"labels": labels, "label_positions": label_positions, "next_sentence_label": next_sentence_label}
        losses = pretraining_losses(
            self, outputs.last_hidden_state, logits, targets, num_items_in_batch, target_counts
        )
        return NezhaForPreTrainingOutput(
            **losses, **logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    @torch.no_grad()
    def evaluation_sums(
        self,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        **inputs: Any,
    ) -> dict[str, torch.Tensor]:
        """Sums from which evaluation metrics are made, without ever holding full logits.

        Args:
            labels: as in `forward`, like the next two.
            next_sentence_label: `(batch,)` or `(batch, S)`.
            label_positions: `(batch, budget)`.
            inputs: the encoder's inputs.

        Returns:
            Per term with labels (`mlm`, `nsp`) a float64 tensor `[sum of cross entropies, correct, number of
            targets]`.

        Raises:
            ValueError: `label_positions` do not cover the labels.
        """
        if next_sentence_label is not None and inputs.get("sequence_ids") is not None:
            inputs["num_sequences"] = number_of_sequences(next_sentence_label)
        outputs = self.bert(**inputs, return_dict=True)
        targets = {"labels": labels, "label_positions": label_positions, "next_sentence_label": next_sentence_label}
        return pretraining_sums(self, outputs.last_hidden_state, outputs.pooler_output, targets)


@with_optional_labels("label_positions")
class NezhaForMaskedLM(NezhaVocabularyModel, NezhaPreTrainedModel):
    """NEZHA with the masked-language-model head alone.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaForMaskedLM
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = NezhaForMaskedLM(config).train()
        >>> input_ids = torch.tensor([[2, 7, 4, 9, 3]])
        >>> output = model(input_ids, labels=torch.tensor([[-100, -100, 8, -100, -100]]))
        >>> output.loss.dim(), output.logits is None  # in training, logits are computed at labels alone
        (0, True)
        >>> model.eval()(input_ids).logits.shape
        torch.Size([1, 5, 60])
    """

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.bert = NezhaModel(config, add_pooling_layer=False)
        self.cls = NezhaPredictionHead(config)
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
            input_ids: `(batch, seq_len)`; this and the next five as in `NezhaModel`.
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
        """Sums of the `mlm` term for evaluation, see `NezhaForPreTraining.evaluation_sums`.

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


class NezhaForNextSentencePrediction(NezhaPreTrainedModel):
    """NEZHA with the next-sentence head alone.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaForNextSentencePrediction
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = NezhaForNextSentencePrediction(config)
        >>> model(torch.tensor([[2, 7, 3, 9, 3]]), labels=torch.tensor([0])).logits.shape
        torch.Size([1, 2])
    """

    _prediction_heads = {"cls.seq_relationship": "next-sentence head"}

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.bert = NezhaModel(config)
        self.cls = NezhaNextSentenceHead(config)
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
    ) -> NextSentencePredictorOutput:
        """Say whether the second segment follows the first.

        Args:
            input_ids: `(batch, seq_len)`; this and the next five as in `NezhaModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            labels: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, 2)` or, packed, `(batch, S, 2)`.
        """
        if labels is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(labels)
        outputs = self.encode(
            input_ids, attention_mask, token_type_ids, position_ids, sequence_ids, inputs_embeds, **kwargs
        )
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return NextSentencePredictorOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class NezhaForSequenceClassification(NezhaPreTrainedModel):
    """NEZHA with a classification or regression head on the pooled output.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaForSequenceClassification
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     num_labels=3,
        ... )
        >>> model = NezhaForSequenceClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), labels=torch.tensor([2, 0]))
        >>> output.logits.shape, config.problem_type
        (torch.Size([2, 3]), 'single_label_classification')
    """

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = NezhaModel(config)
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
            input_ids: `(batch, seq_len)`; this and the next five as in `NezhaModel`.
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


class NezhaForTokenClassification(NezhaPreTrainedModel):
    """NEZHA with a classification head on every token.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaForTokenClassification
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     num_labels=5,
        ... )
        >>> model = NezhaForTokenClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3]]), labels=torch.tensor([[-100, 0, 4, -100]]))
        >>> output.logits.shape
        torch.Size([1, 4, 5])
    """

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = NezhaModel(config, add_pooling_layer=False)
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
            input_ids: `(batch, seq_len)`; this and the next five as in `NezhaModel`.
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


class NezhaForQuestionAnswering(NezhaPreTrainedModel):
    """NEZHA with start and end logits for extractive question answering.

    Rows hold one sequence each: the softmax runs over the row, so packed rows would let sequences compete.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaForQuestionAnswering
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = NezhaForQuestionAnswering(config)
        >>> output = model(
        ...     torch.tensor([[2, 7, 8, 3, 9, 10, 3]]),
        ...     start_positions=torch.tensor([4]),
        ...     end_positions=torch.tensor([5]),
        ... )
        >>> output.start_logits.shape, output.loss.dim()
        (torch.Size([1, 7]), 0)
    """

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.bert = NezhaModel(config, add_pooling_layer=False)
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
            input_ids: `(batch, seq_len)`; this and the next five as in `NezhaModel`.
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


class NezhaForMultipleChoice(NezhaPreTrainedModel):
    """NEZHA with one score per choice on the pooled output.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import NezhaConfig, NezhaForMultipleChoice
        >>> config = NezhaConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = NezhaForMultipleChoice(config)
        >>> choices = torch.tensor([[[2, 7, 8, 3], [2, 7, 9, 3]]])  # one question, two choices
        >>> model(choices, labels=torch.tensor([1])).logits.shape
        torch.Size([1, 2])
    """

    def __init__(self, config: NezhaConfig):
        super().__init__(config)
        self.bert = NezhaModel(config)
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


def _classifier_dropout(config: NezhaConfig) -> float:
    """The classifier's own dropout, or the hidden one."""
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


__all__ = [
    "NezhaForMaskedLM",
    "NezhaForMultipleChoice",
    "NezhaForNextSentencePrediction",
    "NezhaForPreTraining",
    "NezhaForPreTrainingOutput",
    "NezhaForQuestionAnswering",
    "NezhaForSequenceClassification",
    "NezhaForTokenClassification",
    "NezhaModel",
    "NezhaPreTrainedModel",
]
