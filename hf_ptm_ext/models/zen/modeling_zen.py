"""ZEN (Diao et al. 2019, https://arxiv.org/abs/1911.00720; reference code sinovation/ZEN).

A character BERT beside a second, smaller encoder of the n-grams that a lexicon finds in the text; after each layer a
token gets the states of the n-grams around it (see `ngrams_zen.py`; `ZenTokenizer` finds them). Pre-training is that
of BERT, masked tokens and next sentence; n-grams are those of the text after masking.

What differs from BERT: the n-gram inputs. A text without any, or a call without these inputs, is BERT of the same
weights. What differs from upstream's models: rows may be packed (`sequence_ids`); positions start at the first real
token; a row of nothing but padding sees itself (see `inputs_zen.py`); vocabulary logits are computed only where a
label is while training; keyword arguments that nothing reads are refused; no buffers.
"""

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
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_zen import AUTO_MAP, HF_PTM_EXT_VERSION, ZenConfig
from .encoder_zen import ZenPooler, ZenSelfAttention, refuse_unknown_arguments
from .heads_zen import (
    ZenLMPredictionHead,
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
from .inputs_zen import (
    ZenEmbeddings,
    build_attention_mask,
    check_position_ids,
    first_token_states,
    has_empty_row,
    position_ids_of,
)
from .loading_zen import ZenLoading
from .mask_contract_zen import read_attention_mask, refuse_learnt_tokens
from .ngrams_zen import (
    ZenNgramEmbeddings,
    ZenNgramEncoder,
    ZenTextLayer,
    build_ngram_mask,
    check_ngrams,
    ngram_membership,
)
from .pretraining_zen import (
    ZenForPreTrainingOutput,
    ZenNextSentenceHead,
    ZenPredictionHead,
    ZenPreTrainingHeads,
    ZenVocabularyModel,
    pretraining_losses,
    pretraining_sums,
)


def _ask_for_gradient(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
    output.requires_grad_(True)


class ZenPreTrainedModel(ZenLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all ZEN classes."""

    config: ZenConfig
    config_class = ZenConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # flash ignores mask functions: packed rows would see each other
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules = ["ZenEmbeddings", "ZenNgramEmbeddings", "ZenLayer", "ZenTextLayer"]
    _can_record_outputs = {
        "hidden_states": OutputRecorder(ZenTextLayer),
        "attentions": OutputRecorder(ZenSelfAttention, index=1, layer_name="layer"),
    }
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _legacy_keys = {r"^module\.": ""}
    _layer_stacks = ("encoder.layer", "encoder.word_layers")
    _input_parts = ("embeddings.", "word_embeddings.")
    _added_parts = {r"^(bert\.)?(encoder\.word_layers|word_embeddings)\.": "n-gram encoder"}

    def enable_input_require_grads(self) -> None:
        """Of the n-grams too: a reentrant checkpoint has no gradient if nothing that goes in asks for one."""
        super().enable_input_require_grads()
        for module in self.modules():
            if isinstance(module, ZenNgramEmbeddings):
                self._require_grads_hooks.append(module.register_forward_hook(_ask_for_gradient))

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ZenLMPredictionHead):
            init.zeros_(module.bias)

    def encode(self, *inputs: torch.Tensor | None, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Run a head's encoder.

        Args:
            inputs: the twelve inputs in the order in which every `forward` names them.
            kwargs: as in `ZenModel`.

        Returns:
            The encoder's output object.
        """
        return self.bert(*inputs, return_dict=True, **kwargs)


class ZenModel(ZenPreTrainedModel):
    """The bare encoder of text and n-grams.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler (default True).

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenModel
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = ZenModel(config).eval()
        >>> output = model(
        ...     torch.tensor([[2, 7, 8, 9, 3]]),
        ...     ngram_ids=torch.tensor([[5, 6]]),  # of the tokens 7 8, and of 7 8 9
        ...     ngram_positions=torch.tensor([[1, 1]]),
        ...     ngram_lengths=torch.tensor([[2, 3]]),
        ... )
        >>> output.last_hidden_state.shape
        torch.Size([1, 5, 32])
    """

    def __init__(self, config: ZenConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = ZenEmbeddings(config)
        self.word_embeddings = ZenNgramEmbeddings(config)
        self.encoder = ZenNgramEncoder(config)
        self.pooler = ZenPooler(config) if add_pooling_layer else None
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
        num_sequences: int | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding; other forms in `mask_contract_zen.py`.
            token_type_ids: `(batch, seq_len)`; type 0 if left out.
            position_ids: `(batch, seq_len)`; counted from the first real token, per sequence, if left out.
            sequence_ids: `(batch, seq_len)` of packed rows: runs of equal ids 1..S are sequences, 0 = padding.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            ngram_ids: `(batch, ngrams)` lines of the lexicon, 0 = padding; without it a text has no n-grams.
            ngram_positions: `(batch, ngrams)` place in the row of each n-gram's first token.
            ngram_lengths: `(batch, ngrams)` number of tokens of each n-gram, 0 = padding.
            ngram_attention_mask: `(batch, ngrams)`, 0 where other n-grams do not see it; 0 on padding if left out.
            ngram_token_type_ids: `(batch, ngrams)`; type 0 if left out.
            ngram_position_matrix: `(batch, seq_len, ngrams)`, the reference's form of the places: 1 where a token is
                part of an n-gram. Instead of `ngram_positions` and `ngram_lengths`.
            num_sequences: S of packed rows, for the pooled output (default: the largest id).
            kwargs: `output_hidden_states`, `output_attentions` (of the text), `return_dict` as upstream; others are
                refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, hidden)` and `pooler_output` `(batch, hidden)` or, packed,
            `(batch, S, hidden)`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, more tokens than positions, or n-grams that
                do not fit the text.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, ENCODER_ARGUMENTS)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Exactly one of `input_ids` and `inputs_embeds` must be given.")
        refuse_learnt_tokens(self, attention_mask, inputs_embeds, ngram_positions=ngram_positions)
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
        check_ngrams(
            self.config,
            input_shape,
            ngram_ids,
            ngram_positions,
            ngram_lengths,
            ngram_attention_mask,
            ngram_token_type_ids,
            ngram_position_matrix,
        )
        # Rounds as the reference does, see the top of `inputs_zen.py`.
        empty_row = has_empty_row(self.config, attention_mask, sequence_ids)
        embeddings = self.embeddings(inputs_embeds, position_ids, token_type_ids, types_last=empty_row)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)

        if ngram_ids is None or not ngram_ids.shape[1]:
            # One n-gram of padding, of which no token is part: the graph is the same, and so are distributed steps.
            ngram_ids = ngram_positions = ngram_lengths = position_ids.new_zeros(input_shape[0], 1)
            ngram_attention_mask = ngram_token_type_ids = ngram_position_matrix = None
        ngram_states = self.word_embeddings(ngram_ids, ngram_token_type_ids)
        membership = ngram_membership(
            input_shape[1], ngram_positions, ngram_lengths, ngram_position_matrix, ngram_states.dtype
        )
        ngram_mask = build_ngram_mask(ngram_states, ngram_ids, ngram_attention_mask, membership, sequence_ids)

        hidden_states = self.encoder(
            embeddings, ngram_states, membership, mask, ngram_mask, plain_attention=empty_row, **kwargs
        )
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(first_token_states(hidden_states, attention_mask, sequence_ids, num_sequences))
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


ENCODER_ARGUMENTS = tuple(inspect.signature(ZenModel.forward).parameters)


@with_optional_labels("next_sentence_label", "label_positions")
class ZenForPreTraining(ZenVocabularyModel, ZenPreTrainedModel):
    """ZEN with its pre-training heads: masked tokens and next sentence.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenForPreTraining
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64,
        ... )
        >>> model = ZenForPreTraining(config)
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

    def __init__(self, config: ZenConfig):
        super().__init__(config)
        self.bert = ZenModel(config)
        self.cls = ZenPreTrainingHeads(config)
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> ZenForPreTrainingOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eleven as in `ZenModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            ngram_ids: `(batch, ngrams)`.
            ngram_positions: `(batch, ngrams)`.
            ngram_lengths: `(batch, ngrams)`.
            ngram_attention_mask: `(batch, ngrams)`.
            ngram_token_type_ids: `(batch, ngrams)`.
            ngram_position_matrix: `(batch, seq_len, ngrams)`.
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
            `ZenForPreTrainingOutput`.
        """
        if next_sentence_label is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(next_sentence_label)
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            sequence_ids,
            inputs_embeds,
            ngram_ids,
            ngram_positions,
            ngram_lengths,
            ngram_attention_mask,
            ngram_token_type_ids,
            ngram_position_matrix,
            **kwargs,
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
        return ZenForPreTrainingOutput(
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
class ZenForMaskedLM(ZenVocabularyModel, ZenPreTrainedModel):
    """ZEN with the masked-language-model head alone.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenForMaskedLM
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64,
        ... )
        >>> model = ZenForMaskedLM(config).train()
        >>> input_ids = torch.tensor([[2, 7, 4, 9, 3]])
        >>> output = model(input_ids, labels=torch.tensor([[-100, -100, 8, -100, -100]]))
        >>> output.loss.dim(), output.logits is None  # in training, logits are computed at labels alone
        (0, True)
        >>> model.eval()(input_ids).logits.shape
        torch.Size([1, 5, 60])
    """

    def __init__(self, config: ZenConfig):
        super().__init__(config)
        self.bert = ZenModel(config, add_pooling_layer=False)
        self.cls = ZenPredictionHead(config)
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Encode and, with labels, compute the loss.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eleven as in `ZenModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            ngram_ids: `(batch, ngrams)`.
            ngram_positions: `(batch, ngrams)`.
            ngram_lengths: `(batch, ngrams)`.
            ngram_attention_mask: `(batch, ngrams)`.
            ngram_token_type_ids: `(batch, ngrams)`.
            ngram_position_matrix: `(batch, seq_len, ngrams)`.
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
            sequence_ids,
            inputs_embeds,
            ngram_ids,
            ngram_positions,
            ngram_lengths,
            ngram_attention_mask,
            ngram_token_type_ids,
            ngram_position_matrix,
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
        """Sums of the `mlm` term for evaluation, see `ZenForPreTraining.evaluation_sums`.

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


class ZenForNextSentencePrediction(ZenPreTrainedModel):
    """ZEN with the next-sentence head alone.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenForNextSentencePrediction
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64,
        ... )
        >>> model = ZenForNextSentencePrediction(config)
        >>> model(torch.tensor([[2, 7, 3, 9, 3]]), labels=torch.tensor([0])).logits.shape
        torch.Size([1, 2])
    """

    _prediction_heads = {"cls.seq_relationship": "next-sentence head"}

    def __init__(self, config: ZenConfig):
        super().__init__(config)
        self.bert = ZenModel(config)
        self.cls = ZenNextSentenceHead(config)
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> NextSentencePredictorOutput:
        """Say whether the second segment follows the first.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eleven as in `ZenModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            ngram_ids: `(batch, ngrams)`.
            ngram_positions: `(batch, ngrams)`.
            ngram_lengths: `(batch, ngrams)`.
            ngram_attention_mask: `(batch, ngrams)`.
            ngram_token_type_ids: `(batch, ngrams)`.
            ngram_position_matrix: `(batch, seq_len, ngrams)`.
            labels: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, 2)` or, packed, `(batch, S, 2)`.
        """
        if labels is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(labels)
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            sequence_ids,
            inputs_embeds,
            ngram_ids,
            ngram_positions,
            ngram_lengths,
            ngram_attention_mask,
            ngram_token_type_ids,
            ngram_position_matrix,
            **kwargs,
        )
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return NextSentencePredictorOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ZenForSequenceClassification(ZenPreTrainedModel):
    """ZEN with a classification or regression head on the pooled output.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenForSequenceClassification
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64, num_labels=3,
        ... )
        >>> model = ZenForSequenceClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), labels=torch.tensor([2, 0]))
        >>> output.logits.shape, config.problem_type
        (torch.Size([2, 3]), 'single_label_classification')
    """

    def __init__(self, config: ZenConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = ZenModel(config)
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eleven as in `ZenModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            ngram_ids: `(batch, ngrams)`.
            ngram_positions: `(batch, ngrams)`.
            ngram_lengths: `(batch, ngrams)`.
            ngram_attention_mask: `(batch, ngrams)`.
            ngram_token_type_ids: `(batch, ngrams)`.
            ngram_position_matrix: `(batch, seq_len, ngrams)`.
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
            sequence_ids,
            inputs_embeds,
            ngram_ids,
            ngram_positions,
            ngram_lengths,
            ngram_attention_mask,
            ngram_token_type_ids,
            ngram_position_matrix,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ZenForTokenClassification(ZenPreTrainedModel):
    """ZEN with a classification head on every token.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenForTokenClassification
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64, num_labels=5,
        ... )
        >>> model = ZenForTokenClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3]]), labels=torch.tensor([[-100, 0, 4, -100]]))
        >>> output.logits.shape
        torch.Size([1, 4, 5])
    """

    def __init__(self, config: ZenConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = ZenModel(config, add_pooling_layer=False)
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Tag tokens.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eleven as in `ZenModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            ngram_ids: `(batch, ngrams)`.
            ngram_positions: `(batch, ngrams)`.
            ngram_lengths: `(batch, ngrams)`.
            ngram_attention_mask: `(batch, ngrams)`.
            ngram_token_type_ids: `(batch, ngrams)`.
            ngram_position_matrix: `(batch, seq_len, ngrams)`.
            labels: `(batch, seq_len)` classes, -100 ignored.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, seq_len, num_labels)`.
        """
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            sequence_ids,
            inputs_embeds,
            ngram_ids,
            ngram_positions,
            ngram_lengths,
            ngram_attention_mask,
            ngram_token_type_ids,
            ngram_position_matrix,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ZenForQuestionAnswering(ZenPreTrainedModel):
    """ZEN with start and end logits for extractive question answering.

    Rows hold one sequence each: the softmax runs over the row, so packed rows would let sequences compete.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenForQuestionAnswering
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64,
        ... )
        >>> model = ZenForQuestionAnswering(config)
        >>> output = model(
        ...     torch.tensor([[2, 7, 8, 3, 9, 10, 3]]),
        ...     start_positions=torch.tensor([4]),
        ...     end_positions=torch.tensor([5]),
        ... )
        >>> output.start_logits.shape, output.loss.dim()
        (torch.Size([1, 7]), 0)
    """

    def __init__(self, config: ZenConfig):
        super().__init__(config)
        self.bert = ZenModel(config, add_pooling_layer=False)
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Extract an answer span.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eleven as in `ZenModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            sequence_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            ngram_ids: `(batch, ngrams)`.
            ngram_positions: `(batch, ngrams)`.
            ngram_lengths: `(batch, ngrams)`.
            ngram_attention_mask: `(batch, ngrams)`.
            ngram_token_type_ids: `(batch, ngrams)`.
            ngram_position_matrix: `(batch, seq_len, ngrams)`.
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
            sequence_ids,
            inputs_embeds,
            ngram_ids,
            ngram_positions,
            ngram_lengths,
            ngram_attention_mask,
            ngram_token_type_ids,
            ngram_position_matrix,
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


class ZenForMultipleChoice(ZenPreTrainedModel):
    """ZEN with one score per choice on the pooled output.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ZenConfig, ZenForMultipleChoice
        >>> config = ZenConfig(
        ...     vocab_size=60, word_vocab_size=9, hidden_size=32, num_hidden_layers=2, num_hidden_word_layers=1,
        ...     num_attention_heads=4, intermediate_size=64,
        ... )
        >>> model = ZenForMultipleChoice(config)
        >>> choices = torch.tensor([[[2, 7, 8, 3], [2, 7, 9, 3]]])  # one question, two choices
        >>> model(choices, labels=torch.tensor([1])).logits.shape
        torch.Size([1, 2])
    """

    def __init__(self, config: ZenConfig):
        super().__init__(config)
        self.bert = ZenModel(config)
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
        ngram_ids: torch.Tensor | None = None,
        ngram_positions: torch.Tensor | None = None,
        ngram_lengths: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_token_type_ids: torch.Tensor | None = None,
        ngram_position_matrix: torch.Tensor | None = None,
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
            ngram_ids: `(batch, choices, ngrams)`.
            ngram_positions: `(batch, choices, ngrams)`.
            ngram_lengths: `(batch, choices, ngrams)`.
            ngram_attention_mask: `(batch, choices, ngrams)`.
            ngram_token_type_ids: `(batch, choices, ngrams)`.
            ngram_position_matrix: `(batch, choices, seq_len, ngrams)`.
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
            "ngram_ids": ngram_ids,
            "ngram_positions": ngram_positions,
            "ngram_lengths": ngram_lengths,
            "ngram_attention_mask": ngram_attention_mask,
            "ngram_token_type_ids": ngram_token_type_ids,
            "ngram_position_matrix": ngram_position_matrix,
        }
        flat = {name: value.flatten(0, 1) if value is not None else None for name, value in inputs.items()}
        outputs = self.bert(**flat, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, num_choices)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def _classifier_dropout(config: ZenConfig) -> float:
    """The classifier's own dropout, or the hidden one."""
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


__all__ = [
    "ZenForMaskedLM",
    "ZenForMultipleChoice",
    "ZenForNextSentencePrediction",
    "ZenForPreTraining",
    "ZenForPreTrainingOutput",
    "ZenForQuestionAnswering",
    "ZenForSequenceClassification",
    "ZenForTokenClassification",
    "ZenModel",
    "ZenPreTrainedModel",
]
