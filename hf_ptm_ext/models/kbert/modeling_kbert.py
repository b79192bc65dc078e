"""K-BERT (Liu et al. 2020, https://arxiv.org/abs/1909.07606; reference code autoliuweijie/K-BERT).

BERT whose input is a tree: objects of a knowledge graph hang as branches on the words they belong to. Soft positions
number the trunk as if there were no branches, and a visible matrix lets a branch be seen by its own word alone (see
`visibility_kbert.py`). There is no new weight, so any BERT checkpoint is a K-BERT; without `word_index` and
`branch_id` the model is BERT, bit for bit. Where paper and released code differ, the code is followed: all tokens of a
word see its branches, not the last one alone; branches of one word do not see each other.

The sequence heads pool in one of four ways (`config.pooling`, see `pooling_kbert.py`) and go through BERT's pooler, a
dense layer with tanh, as the reference's two output layers do.

What differs from upstream's BERT: rows may be packed (`sequence_ids`); positions start at the first real token, so
left padding changes nothing; a row of nothing but padding sees itself (see `inputs_kbert.py`); vocabulary logits are
computed only where a label is while training; keyword arguments that nothing reads are refused; no buffers. What the
original does otherwise, in LayerNorm and on padding, are switches of the configuration.
"""

import inspect
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .base_kbert import KBertPreTrainedModel
from .configuration_kbert import KBertConfig
from .encoder_kbert import KBertEncoder, KBertPooler, refuse_unknown_arguments
from .heads_kbert import (
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
from .inputs_kbert import KBertEmbeddings, check_position_ids
from .mask_contract_kbert import read_attention_mask
from .pooling_kbert import pooled_states
from .pretraining_kbert import (
    KBertForPreTrainingOutput,
    KBertPredictionHead,
    KBertPreTrainingHeads,
    KBertVocabularyModel,
    pretraining_losses,
    pretraining_sums,
)
from .visibility_kbert import (
    build_visibility_mask,
    check_knowledge,
    check_token_types,
    computes_plainly,
    default_token_types,
    kbert_visible_matrix,
    knowledge_of,
    knowledge_position_ids,
    real_tokens,
    visible_tree,
)


class KBertModel(KBertPreTrainedModel):
    """The bare encoder: BERT's, with knowledge as branches and packed rows.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler; `None` (default) reads `config.add_pooling_layer`.
        pooling: what the pooler is fed with; `None` (default) reads `config.pooling`.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import KBertConfig, KBertModel
        >>> config = KBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = KBertModel(config).eval()
        >>> output = model(
        ...     torch.tensor([[2, 7, 20, 21, 8, 3]]),  # 20 21 is what a graph knows about 7
        ...     word_index=torch.tensor([[0, 1, 1, 1, 2, 3]]),
        ...     branch_id=torch.tensor([[0, 0, 1, 1, 0, 0]]),
        ... )
        >>> output.last_hidden_state.shape
        torch.Size([1, 6, 32])
    """

    def __init__(self, config: KBertConfig, add_pooling_layer: bool | None = None, pooling: str | None = None):
        super().__init__(config)
        self.embeddings = KBertEmbeddings(config)
        self.encoder = KBertEncoder(config)
        with_pooler = config.add_pooling_layer if add_pooling_layer is None else add_pooling_layer
        self.pooler = KBertPooler(config) if with_pooler else None
        self._pooling = pooling
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
        word_index: torch.Tensor | None = None,
        branch_id: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_sequences: int | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding; may be left out with knowledge, whose -1 says the
                same. Other forms in `mask_contract_kbert.py`.
            token_type_ids: `(batch, seq_len)`; `config.first_token_type_id` if left out.
            position_ids: `(batch, seq_len)`; if left out, counted along the tree with knowledge, else from the first
                real token, per sequence.
            word_index: `(batch, seq_len)` word of the trunk that each token belongs to or hangs on, -1 on padding.
            branch_id: `(batch, seq_len)` 0 on the trunk, another number for each branch of a word, -1 on padding.
            sequence_ids: `(batch, seq_len)` of packed rows: runs of equal ids 1..S are sequences, 0 = padding.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            num_sequences: S of packed rows, for the pooled output (default: the largest id).
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, hidden)` and `pooler_output` `(batch, hidden)` or, packed,
            `(batch, S, hidden)`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, positions or token types that the tables do
                not have, or knowledge that does not fit the text.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, ENCODER_ARGUMENTS)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Exactly one of `input_ids` and `inputs_embeds` must be given.")
        if inputs_embeds is None:
            inputs_embeds = self.embeddings.word_embeddings(input_ids)
        attention_mask = read_attention_mask(self.config, attention_mask, inputs_embeds)
        input_shape, device = inputs_embeds.shape[:2], inputs_embeds.device
        check_knowledge(input_shape, word_index, branch_id)
        knowledge = knowledge_of(word_index, branch_id, attention_mask, sequence_ids)
        real = real_tokens(attention_mask, sequence_ids, knowledge)
        position_ids = knowledge_position_ids(
            self.config, input_shape, device, position_ids, attention_mask, sequence_ids, knowledge
        )
        check_position_ids(position_ids, sequence_ids, self.config)
        if token_type_ids is None:
            token_type_ids = default_token_types(self.config, input_shape, device, real)
        check_token_types(self.config, token_type_ids)

        tree = visible_tree(self.config, attention_mask, knowledge, real)
        padding = attention_mask if knowledge is None else real.long()
        # Rounds as the reference does, see the tops of `visibility_kbert.py` and `inputs_kbert.py`.
        plain = computes_plainly(self.config, padding, sequence_ids, tree)
        if plain:
            kwargs["plain_attention"] = True
        embeddings = self.embeddings(inputs_embeds, position_ids, token_type_ids, types_last=plain)
        mask = build_visibility_mask(self.config, embeddings, padding, sequence_ids, tree)
        hidden_states, _ = self.encoder(embeddings, mask, **kwargs)
        pooled = None
        if self.pooler is not None:
            pooling = self.config.pooling if self._pooling is None else self._pooling
            pooled = self.pooler(
                pooled_states(pooling, self.config, hidden_states, real, knowledge, sequence_ids, num_sequences)
            )
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


ENCODER_ARGUMENTS = tuple(inspect.signature(KBertModel.forward).parameters)


@with_optional_labels("next_sentence_label", "label_positions")
class KBertForPreTraining(KBertVocabularyModel, KBertPreTrainedModel):
    """K-BERT with the pre-training heads of its encoder: masked tokens and the next sentence.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import KBertConfig, KBertForPreTraining
        >>> config = KBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = KBertForPreTraining(config)
        >>> output = model(
        ...     torch.tensor([[2, 7, 4, 9, 3]]),
        ...     labels=torch.tensor([[-100, -100, 8, -100, -100]]),
        ...     next_sentence_label=torch.tensor([1]),
        ... )
        >>> bool(torch.isclose(output.loss, output.mlm_loss + output.nsp_loss))
        True
    """

    _prediction_heads = {
        "cls.predictions": "masked-language-model head",
        "cls.seq_relationship": "next-sentence head",
    }

    def __init__(self, config: KBertConfig):
        super().__init__(config)
        # The next-sentence head is trained on the first token, whatever a classifier pools.
        self.bert = KBertModel(config, add_pooling_layer=True, pooling="first")
        self.cls = KBertPreTrainingHeads(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        word_index: torch.Tensor | None = None,
        branch_id: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> KBertForPreTrainingOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
            input_ids: `(batch, seq_len)`; this and the next seven as in `KBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            word_index: `(batch, seq_len)`.
            branch_id: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            labels: `(batch, seq_len)` original ids at selected tokens, -100 elsewhere.
            next_sentence_label: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored.
            label_positions: `(batch, budget)` positions that cover `labels`; keeps all shapes fixed.
            return_logits: whether to compute full vocabulary logits; `None` (default) means yes, except in training
                with labels.
            num_items_in_batch: number of labels over all micro-batches of one update; the token term is divided by it.
            target_counts: the same number for the other term, under `"next_sentence_label"`. Without it that term is a
                mean over the micro-batch, weighted by its share of the update's labels.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `KBertForPreTrainingOutput`.
        """
        if next_sentence_label is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(next_sentence_label)
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            word_index,
            branch_id,
            sequence_ids,
            inputs_embeds,
            **kwargs,
        )
        states = outputs.last_hidden_state
        if return_logits is None:
            return_logits = not (self.training and labels is not None)
        logits = {
            "prediction_logits": self.cls.predictions(states) if return_logits else None,
            "seq_relationship_logits": self.cls.seq_relationship(outputs.pooler_output),
        }
        targets = {
            "labels": labels,
            "label_positions": label_positions,
            "next_sentence_label": next_sentence_label,
        }
        losses = pretraining_losses(self, states, logits, targets, num_items_in_batch, target_counts)
        return KBertForPreTrainingOutput(
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
        targets = {
            "labels": labels,
            "label_positions": label_positions,
            "next_sentence_label": next_sentence_label,
        }
        return pretraining_sums(self, outputs.last_hidden_state, outputs.pooler_output, targets)


@with_optional_labels("label_positions")
class KBertForMaskedLM(KBertVocabularyModel, KBertPreTrainedModel):
    """K-BERT with the masked-language-model head alone.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import KBertConfig, KBertForMaskedLM
        >>> config = KBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = KBertForMaskedLM(config).train()
        >>> input_ids = torch.tensor([[2, 7, 4, 9, 3]])
        >>> output = model(input_ids, labels=torch.tensor([[-100, -100, 8, -100, -100]]))
        >>> output.loss.dim(), output.logits is None  # in training, logits are computed at labels alone
        (0, True)
        >>> model.eval()(input_ids).logits.shape
        torch.Size([1, 5, 60])
    """

    def __init__(self, config: KBertConfig):
        super().__init__(config)
        self.bert = KBertModel(config, add_pooling_layer=False)
        self.cls = KBertPredictionHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        word_index: torch.Tensor | None = None,
        branch_id: torch.Tensor | None = None,
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
            input_ids: `(batch, seq_len)`; this and the next seven as in `KBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            word_index: `(batch, seq_len)`.
            branch_id: `(batch, seq_len)`.
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
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            word_index,
            branch_id,
            sequence_ids,
            inputs_embeds,
            **kwargs,
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
        """Sums of the `mlm` term for evaluation, see `KBertForPreTraining.evaluation_sums`.

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


class KBertForSequenceClassification(KBertPreTrainedModel):
    """K-BERT with a classification or regression head on the pooled output (`config.pooling`).

    As in BERT the pooled state goes through the pooler, which a BERT checkpoint brings along trained; in the reference
    that layer is new, and there is no dropout behind it (`classifier_dropout=0.0`).

    Example:
        >>> import torch
        >>> from hf_ptm_ext import KBertConfig, KBertForSequenceClassification
        >>> config = KBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     num_labels=3,
        ... )
        >>> model = KBertForSequenceClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), labels=torch.tensor([2, 0]))
        >>> output.logits.shape, config.problem_type
        (torch.Size([2, 3]), 'single_label_classification')
    """

    def __init__(self, config: KBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = KBertModel(config, add_pooling_layer=True)
        self.dropout = nn.Dropout(self._classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        word_index: torch.Tensor | None = None,
        branch_id: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: `(batch, seq_len)`; this and the next seven as in `KBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            word_index: `(batch, seq_len)`.
            branch_id: `(batch, seq_len)`.
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
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            word_index,
            branch_id,
            sequence_ids,
            inputs_embeds,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class KBertForTokenClassification(KBertPreTrainedModel):
    """K-BERT with a classification head on every token; label tokens of knowledge -100, or with a class of their own.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import KBertConfig, KBertForTokenClassification
        >>> config = KBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     num_labels=5,
        ... )
        >>> model = KBertForTokenClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3]]), labels=torch.tensor([[-100, 0, 4, -100]]))
        >>> output.logits.shape
        torch.Size([1, 4, 5])
    """

    def __init__(self, config: KBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = KBertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(self._classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        word_index: torch.Tensor | None = None,
        branch_id: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Tag tokens.

        Args:
            input_ids: `(batch, seq_len)`; this and the next seven as in `KBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            word_index: `(batch, seq_len)`.
            branch_id: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            labels: `(batch, seq_len)` classes, -100 ignored.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, seq_len, num_labels)`.

        Raises:
            ValueError: there is not a label for each token.
        """
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            word_index,
            branch_id,
            sequence_ids,
            inputs_embeds,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        if labels is not None and labels.shape != logits.shape[:-1]:
            raise ValueError(
                f"`labels` must have a class for each token, those of knowledge too, {tuple(logits.shape[:-1])}, got "
                f"{tuple(labels.shape)}. Let the tokenizer make them (`word_labels`), or place them by `word_ids()`."
            )
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class KBertForQuestionAnswering(KBertPreTrainedModel):
    """K-BERT with start and end logits for extractive question answering.

    Rows hold one sequence each: the softmax runs over the row, so packed rows would let sequences compete. Tokens of
    knowledge have logits like all others: an answer is to be looked for on the trunk, where `branch_id` is 0.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import KBertConfig, KBertForQuestionAnswering
        >>> config = KBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = KBertForQuestionAnswering(config)
        >>> output = model(
        ...     torch.tensor([[2, 7, 8, 3, 9, 10, 3]]),
        ...     start_positions=torch.tensor([4]),
        ...     end_positions=torch.tensor([5]),
        ... )
        >>> output.start_logits.shape, output.loss.dim()
        (torch.Size([1, 7]), 0)
    """

    def __init__(self, config: KBertConfig):
        super().__init__(config)
        self.bert = KBertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        word_index: torch.Tensor | None = None,
        branch_id: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Extract an answer span.

        Args:
            input_ids: `(batch, seq_len)`; this and the next seven as in `KBertModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            word_index: `(batch, seq_len)`.
            branch_id: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            start_positions: `(batch,)` first token of the answer; positions outside the input are ignored.
            end_positions: `(batch,)` last token of the answer, likewise.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss`, `start_logits` and `end_logits` `(batch, seq_len)`.
        """
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            word_index,
            branch_id,
            sequence_ids,
            inputs_embeds,
            **kwargs,
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


class KBertForMultipleChoice(KBertPreTrainedModel):
    """K-BERT with one score per choice on the pooled output.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import KBertConfig, KBertForMultipleChoice
        >>> config = KBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = KBertForMultipleChoice(config)
        >>> choices = torch.tensor([[[2, 7, 8, 3], [2, 7, 9, 3]]])  # one question, two choices
        >>> model(choices, labels=torch.tensor([1])).logits.shape
        torch.Size([1, 2])
    """

    def __init__(self, config: KBertConfig):
        super().__init__(config)
        self.bert = KBertModel(config, add_pooling_layer=True)
        self.dropout = nn.Dropout(self._classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        word_index: torch.Tensor | None = None,
        branch_id: torch.Tensor | None = None,
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
            word_index: `(batch, choices, seq_len)`.
            branch_id: `(batch, choices, seq_len)`.
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
            "word_index": word_index,
            "branch_id": branch_id,
            "inputs_embeds": inputs_embeds,
        }
        flat = {name: value.flatten(0, 1) if value is not None else None for name, value in inputs.items()}
        outputs = self.bert(**flat, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, num_choices)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


__all__ = [
    "KBertForMaskedLM",
    "KBertForMultipleChoice",
    "KBertForPreTraining",
    "KBertForPreTrainingOutput",
    "KBertForQuestionAnswering",
    "KBertForSequenceClassification",
    "KBertForTokenClassification",
    "KBertModel",
    "KBertPreTrainedModel",
    "kbert_visible_matrix",
]
