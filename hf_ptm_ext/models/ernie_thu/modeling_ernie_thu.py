"""ERNIE-THU (Zhang et al. 2019, https://arxiv.org/abs/1905.07129; reference code thunlp/ERNIE).

BERT with a second stream of entity vectors (TransE, from a knowledge graph) that is fused into the text position by
position in the upper layers (see `fusion_ernie_thu.py`), pre-trained with masked tokens, next sentences and a
denoising entity objective (see `losses_ernie_thu.py`). Not to be confused with Baidu's ERNIE, which has no entities.

What differs from BERT: layers of three kinds; an entity vector, and a mask, per token; a text without entities is no
special case, but not the BERT of the same weights either, since the bias of the fusion still acts. Where paper and
released code differ, the code is followed: its layers are five `sim`, one `mix` and six `norm`, tokens without an
entity get the fusion's bias, and candidates are the distinct entities of a batch.

What differs from upstream's models: rows may be packed (`sequence_ids`); positions start at the first real token; a
row of nothing but padding sees itself (see `inputs_ernie_thu.py`); vocabulary logits are computed only where a label
is while training; keyword arguments that nothing reads are refused; no buffers.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_ernie_thu import AUTO_MAP, HF_PTM_EXT_VERSION, ErnieThuConfig
from .encoder_ernie_thu import ErnieThuPooler, ErnieThuSelfAttention, refuse_unknown_arguments
from .entities_ernie_thu import (
    ErnieThuEntityInput,
    build_entity_attention_mask,
    check_entities,
    default_entity_mask,
)
from .fusion_ernie_thu import ErnieThuMixLayer, ErnieThuSimLayer, ErnieThuTwoStreamEncoder, unread_weights
from .heads_ernie_thu import (
    ErnieThuLMPredictionHead,
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
from .inputs_ernie_thu import (
    ErnieThuEmbeddings,
    build_attention_mask,
    check_position_ids,
    first_token_states,
    has_empty_row,
    position_ids_of,
)
from .knowledge_ernie_thu import ErnieThuKnowledge
from .loading_ernie_thu import ErnieThuLoading
from .losses_ernie_thu import (
    ErnieThuEntityPredictionHead,
    candidates_and_labels,
    pretraining_losses,
    pretraining_sums,
)
from .mask_contract_ernie_thu import read_attention_mask
from .outputs_ernie_thu import (
    ErnieThuForPreTrainingOutput,
    ErnieThuMaskedLMOutput,
    ErnieThuModelOutput,
    ErnieThuMultipleChoiceOutput,
    ErnieThuNextSentencePredictorOutput,
    ErnieThuQuestionAnsweringOutput,
    ErnieThuSequenceClassifierOutput,
    ErnieThuTokenClassifierOutput,
)

# The two streams of one layer, and the two attentions, are recorded together.
STREAMS = ("hidden_states", "attentions")


class ErnieThuPredictionHead(nn.Module):
    """Container of the vocabulary head (`cls.predictions` in the state dict)."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__()
        self.predictions = ErnieThuLMPredictionHead(config)


class ErnieThuNextSentenceHead(nn.Module):
    """Container of the next-sentence head (`cls.seq_relationship` in the state dict)."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class ErnieThuPreTrainingHeads(ErnieThuPredictionHead):
    """The heads of pre-training: vocabulary, entities, next sentence."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.predictions_ent = ErnieThuEntityPredictionHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class ErnieThuPreTrainedModel(ErnieThuKnowledge, ErnieThuLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all ERNIE-THU classes."""

    config: ErnieThuConfig
    config_class = ErnieThuConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # flash ignores mask functions: packed rows would see each other
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules = ["ErnieThuEmbeddings", "ErnieThuSimLayer", "ErnieThuMixLayer", "ErnieThuNormLayer"]
    _can_record_outputs = {
        "hidden_states": [OutputRecorder(ErnieThuSimLayer), OutputRecorder(ErnieThuMixLayer)],
        "attentions": OutputRecorder(ErnieThuSelfAttention, index=1, layer_name="self"),
        "entity_hidden_states": [
            OutputRecorder(ErnieThuEntityInput),
            OutputRecorder(ErnieThuSimLayer, index=1),
            OutputRecorder(ErnieThuMixLayer, index=1),
        ],
        "entity_attentions": OutputRecorder(ErnieThuSelfAttention, index=1, layer_name="self_ent"),
    }
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    # A DataParallel wrapper's prefix, TensorFlow's LayerNorm names on the entity side (upstream renames the others).
    _legacy_keys = {
        r"^module\.": "",
        r"LayerNorm_ent\.gamma$": "LayerNorm_ent.weight",
        r"LayerNorm_ent\.beta$": "LayerNorm_ent.bias",
    }

    _added_parts = {r"encoder\.layer\.\d+\..*_ent\.": "entity side"}

    def post_init(self) -> None:
        """As upstream; what no output depends on is frozen."""
        super().post_init()
        self._freeze_unread()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As `ErnieThuLoading.from_pretrained`; what no output depends on is frozen.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The model or, with `output_loading_info=True`, the model and the loading information.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        # Loading puts trainable parameters into place.
        (loaded[0] if isinstance(loaded, tuple) else loaded)._freeze_unread()
        return loaded

    def _freeze_unread(self) -> None:
        """Freeze four weights of the entity side that no head reads, and the entity table if the config says so.

        The heads read the text alone, so the last fusion's entity output never gets a gradient; distributed training
        would wait for it. In the bare encoder it is an output, and stays trainable.
        """
        base = self.base_model
        if base is not self:
            unread = set(unread_weights(base.config))
            for name, parameter in base.named_parameters():
                if name in unread:
                    parameter.requires_grad_(False)
        if base.entity_embeddings is not None and base.config.freeze_entity_embeddings:
            base.entity_embeddings.weight.requires_grad_(False)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ErnieThuLMPredictionHead):
            init.zeros_(module.bias)

    def encode(self, *inputs: torch.Tensor | None, **kwargs: Any) -> ErnieThuModelOutput:
        """Run a head's encoder.

        Args:
            inputs: the nine inputs in the order in which every `forward` names them.
            kwargs: as in `ErnieThuModel`.

        Returns:
            The encoder's output object.
        """
        return self.bert(*inputs, return_dict=True, **kwargs)


def record_both_streams(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: whoever asks for hidden states or attentions gets those of the entity stream beside them.

    Args:
        forward: the base model's, decorated with `capture_outputs`.

    Returns:
        The decorated function.
    """

    @functools.wraps(forward)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return_dict = kwargs.pop("return_dict", None)
        for name in STREAMS:
            wanted = kwargs.get(f"output_{name}", getattr(self.config, f"output_{name}", False))
            kwargs.setdefault(f"output_entity_{name}", wanted is not False and wanted is not None and wanted != 0)
        outputs = forward(self, *args, return_dict=True, **kwargs)
        states = outputs.get("hidden_states")
        if states is not None and outputs.get("entity_hidden_states") is not None:
            # A selection of layers holds for both streams.
            outputs["entity_hidden_states"] = tuple(
                None if state is None else entity
                for state, entity in zip(states, outputs["entity_hidden_states"], strict=True)
            )
        if return_dict is None:
            return_dict = getattr(self.config, "return_dict", True)
        return outputs if return_dict else outputs.to_tuple()

    return wrapper


class ErnieThuModel(ErnieThuPreTrainedModel):
    """The bare encoder of two streams.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler (default True).

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuModel
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20
        ... )
        >>> model = ErnieThuModel(config).eval()
        >>> input_ids, vectors = torch.tensor([[2, 7, 8, 3]]), torch.zeros(1, 4, 20)
        >>> vectors[0, 1] = 0.5  # an entity at the second token
        >>> output = model(input_ids, entity_embeds=vectors)
        >>> output.last_hidden_state.shape, output.entity_last_hidden_state.shape
        (torch.Size([1, 4, 32]), torch.Size([1, 4, 20]))
    """

    def __init__(self, config: ErnieThuConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = ErnieThuEmbeddings(config)
        self.entity_embeddings = None
        if config.entity_embeddings_in_checkpoint:
            self.entity_embeddings = nn.Embedding(config.entity_vocab_size, config.entity_hidden_size, padding_idx=0)
        self.entity_input = ErnieThuEntityInput()
        self.encoder = ErnieThuTwoStreamEncoder(config)
        self.pooler = ErnieThuPooler(config) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.word_embeddings = value

    @record_both_streams
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        num_sequences: int | None = None,
        **kwargs: Any,
    ) -> ErnieThuModelOutput:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding; other forms in `mask_contract_ernie_thu.py`.
            token_type_ids: `(batch, seq_len)`; type 0 if left out.
            position_ids: `(batch, seq_len)`; counted from the first real token, per sequence, if left out.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            entity_ids: `(batch, seq_len)` rows of the entity table, 0 = no entity.
            entity_mask: `(batch, seq_len)`, 1 where an entity is, used as it is given. If left out: where `entity_ids`
                are not 0 or `entity_embeds` not zero, and at each sequence's first token.
            entity_embeds: `(batch, seq_len, entity_hidden)` vectors instead of `entity_ids`. Without either a text has
                no entities.
            sequence_ids: `(batch, seq_len)` of packed rows: runs of equal ids 1..S are sequences, 0 = padding.
            num_sequences: S of packed rows, for the pooled output (default: the largest id).
            kwargs: `output_hidden_states`, `output_attentions` (of both streams), `return_dict` as upstream; others
                are refused.

        Returns:
            `ErnieThuModelOutput`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, more tokens than positions, entity inputs
                that do not fit the text, or ids without a table.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        for name in STREAMS:
            kwargs.pop(f"output_entity_{name}", None)
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
        check_entities(self.config, input_shape, entity_ids, entity_mask, entity_embeds)
        # Rounds as the reference does, see the top of `inputs_ernie_thu.py`.
        empty_row = has_empty_row(self.config, attention_mask, sequence_ids)
        if empty_row:
            kwargs["plain_attention"] = True
        embeddings = self.embeddings(inputs_embeds, position_ids, token_type_ids, types_last=empty_row)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)

        if entity_mask is None:
            entity_mask = default_entity_mask(
                input_shape, embeddings.device, entity_ids, entity_embeds, attention_mask, sequence_ids
            )
        if entity_ids is not None:
            entity_embeds = self.entity_vectors(entity_ids)
        elif entity_embeds is None:
            entity_embeds = embeddings.new_zeros(*input_shape, self.config.entity_hidden_size)
        entity_states = self.entity_input(entity_embeds, embeddings)
        entity_mask = entity_mask.to(device=embeddings.device, dtype=torch.bool)
        entity_attention_mask = build_entity_attention_mask(self.config, entity_states, entity_mask, sequence_ids)

        hidden_states, entity_states = self.encoder(
            embeddings, entity_states, mask, entity_attention_mask, entity_mask, **kwargs
        )
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(first_token_states(hidden_states, attention_mask, sequence_ids, num_sequences))
        return ErnieThuModelOutput(
            last_hidden_state=hidden_states, pooler_output=pooled, entity_last_hidden_state=entity_states
        )


ENCODER_ARGUMENTS = tuple(inspect.signature(ErnieThuModel.forward).parameters)


def recorded(outputs: ErnieThuModelOutput) -> dict[str, Any]:
    """What a head passes on of the encoder's output: states and attentions of both streams, if they were asked for."""
    names = ("hidden_states", "attentions", "entity_hidden_states", "entity_attentions")
    return {name: getattr(outputs, name) for name in names}


class ErnieThuWithVocabularyHead(ErnieThuPreTrainedModel):
    """What the classes with `cls.predictions` share: the tied decoder and resizing."""

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
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


@with_optional_labels("next_sentence_label", "entity_labels", "label_positions")
class ErnieThuForPreTraining(ErnieThuWithVocabularyHead):
    """ERNIE-THU with its pre-training heads: masked tokens, next sentence, denoising entities.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuForPreTraining
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20,
        ...     entity_embeddings_in_checkpoint=True, entity_vocab_size=6
        ... )
        >>> model = ErnieThuForPreTraining(config)
        >>> output = model(
        ...     torch.tensor([[2, 7, 4, 9, 3]]),
        ...     entity_ids=torch.tensor([[0, 5, 0, 1, 0]]),
        ...     labels=torch.tensor([[-100, -100, 8, -100, -100]]),
        ...     entity_labels=torch.tensor([[-100, 5, -100, 2, -100]]),  # the clean entities
        ... )
        >>> bool(torch.isclose(output.loss, output.mlm_loss + output.entity_loss)), output.nsp_loss is None
        (True, True)
    """

    _prediction_heads = {
        "cls.predictions": "masked-language-model head",
        "cls.predictions_ent": "entity head",
        "cls.seq_relationship": "next-sentence head",
    }

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.bert = ErnieThuModel(config)
        self.cls = ErnieThuPreTrainingHeads(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        entity_labels: torch.Tensor | None = None,
        entity_candidates: torch.Tensor | None = None,
        entity_candidate_embeds: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        include_none_candidate: bool | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> ErnieThuForPreTrainingOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eight as in `ErnieThuModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            entity_ids: `(batch, seq_len)`.
            entity_mask: `(batch, seq_len)`.
            entity_embeds: `(batch, seq_len, entity_hidden)`.
            sequence_ids: `(batch, seq_len)`.
            labels: `(batch, seq_len)` original ids at selected tokens, -100 elsewhere.
            next_sentence_label: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored.
            entity_labels: `(batch, seq_len)` indices of the clean entities among the candidates, -100 elsewhere.
                Without candidates: ids of the clean entities, 0 or -100 elsewhere; the candidates are then the
                distinct ones of the batch in ascending order.
            entity_candidates: ids of the candidates, `(N,)` or `(1, N)`.
            entity_candidate_embeds: vectors of the candidates instead, `(N, entity_hidden)` or with a 1 in front.
            label_positions: `(batch, budget)` positions that cover `labels`; keeps all shapes fixed. The entity term
                is computed at all positions then.
            include_none_candidate: whether "no entity" (logit 0) is among the candidates that are made here; `None`
                (default) reads the config.
            return_logits: whether to compute full logits of tokens and entities; `None` (default) means yes, except in
                training with labels of the kind.
            num_items_in_batch: number of labels over all micro-batches of one update; the token term is divided by it.
            target_counts: the same number for the other terms, under `"next_sentence_label"` and `"entity_labels"`.
                Without it they are means over the micro-batch, weighted by its share of the update's labels.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `ErnieThuForPreTrainingOutput`.

        Raises:
            ValueError: labels or candidates that do not fit each other, or ids without a table.
        """
        if next_sentence_label is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(next_sentence_label)
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            entity_ids,
            entity_mask,
            entity_embeds,
            sequence_ids,
            **kwargs,
        )
        states = outputs.last_hidden_state
        candidates, entity_labels = candidates_and_labels(
            self, entity_labels, entity_candidates, entity_candidate_embeds, include_none_candidate
        )

        def wants_logits(targets: torch.Tensor | None) -> bool:
            return not (self.training and targets is not None) if return_logits is None else return_logits

        logits = {
            "prediction_logits": self.cls.predictions(states) if wants_logits(labels) else None,
            "seq_relationship_logits": self.cls.seq_relationship(outputs.pooler_output),
            "entity_logits": None,
        }
        if candidates is not None and wants_logits(entity_labels):
            logits["entity_logits"] = self.cls.predictions_ent(states, candidates)
        targets = {
            "labels": labels,
            "label_positions": label_positions,
            "next_sentence_label": next_sentence_label,
            "candidates": candidates,
            "entity_labels": entity_labels,
        }
        losses = pretraining_losses(self, states, logits, targets, num_items_in_batch, target_counts)
        return ErnieThuForPreTrainingOutput(**losses, **logits, **recorded(outputs))

    @staticmethod
    def count_targets(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Number of targets of the terms other than that of the tokens, for `target_counts` of `forward`.

        Args:
            batch: arguments of `forward`.

        Returns:
            Counts under `"next_sentence_label"` and `"entity_labels"`, as far as the batch has them.
        """
        counts = {}
        if batch.get("next_sentence_label") is not None:
            counts["next_sentence_label"] = (batch["next_sentence_label"] != -100).sum()
        if batch.get("entity_labels") is not None:
            given = any(batch.get(name) is not None for name in ("entity_candidates", "entity_candidate_embeds"))
            # Ids have a 0 for no entity, indices a 0 for the first candidate.
            counts["entity_labels"] = (batch["entity_labels"] > (-1 if given else 0)).sum()
        return counts

    @torch.no_grad()
    def evaluation_sums(
        self,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        entity_labels: torch.Tensor | None = None,
        entity_candidates: torch.Tensor | None = None,
        entity_candidate_embeds: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        **inputs: Any,
    ) -> dict[str, torch.Tensor]:
        """Sums from which evaluation metrics are made, without ever holding full logits.

        Args:
            labels: as in `forward`, like all that follow.
            next_sentence_label: `(batch,)` or `(batch, S)`.
            entity_labels: `(batch, seq_len)`.
            entity_candidates: `(N,)` or `(1, N)`.
            entity_candidate_embeds: `(N, entity_hidden)` or with a 1 in front.
            label_positions: `(batch, budget)`.
            inputs: the encoder's inputs.

        Returns:
            Per term with labels (`mlm`, `nsp`, `entity`) a float64 tensor `[sum of cross entropies, correct, number of
            targets]`.

        Raises:
            ValueError: as `forward`.
        """
        if next_sentence_label is not None and inputs.get("sequence_ids") is not None:
            inputs["num_sequences"] = number_of_sequences(next_sentence_label)
        outputs = self.bert(**inputs, return_dict=True)
        candidates, entity_labels = candidates_and_labels(
            self, entity_labels, entity_candidates, entity_candidate_embeds
        )
        targets = {
            "labels": labels,
            "label_positions": label_positions,
            "next_sentence_label": next_sentence_label,
            "candidates": candidates,
            "entity_labels": entity_labels,
        }
        return pretraining_sums(self, outputs.last_hidden_state, outputs.pooler_output, targets)


@with_optional_labels("label_positions")
class ErnieThuForMaskedLM(ErnieThuWithVocabularyHead):
    """ERNIE-THU with the masked-language-model head alone.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuForMaskedLM
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20
        ... )
        >>> model = ErnieThuForMaskedLM(config).train()
        >>> input_ids = torch.tensor([[2, 7, 4, 9, 3]])
        >>> output = model(input_ids, labels=torch.tensor([[-100, -100, 8, -100, -100]]))
        >>> output.loss.dim(), output.logits is None  # in training, logits are computed at labels alone
        (0, True)
        >>> model.eval()(input_ids).logits.shape
        torch.Size([1, 5, 60])
    """

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.bert = ErnieThuModel(config, add_pooling_layer=False)
        self.cls = ErnieThuPredictionHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> ErnieThuMaskedLMOutput:
        """Encode and, with labels, compute the loss.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eight as in `ErnieThuModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            entity_ids: `(batch, seq_len)`.
            entity_mask: `(batch, seq_len)`.
            entity_embeds: `(batch, seq_len, entity_hidden)`.
            sequence_ids: `(batch, seq_len)`.
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
            inputs_embeds,
            entity_ids,
            entity_mask,
            entity_embeds,
            sequence_ids,
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
        return ErnieThuMaskedLMOutput(loss=loss, logits=logits, **recorded(outputs))

    @torch.no_grad()
    def evaluation_sums(
        self, labels: torch.Tensor, label_positions: torch.Tensor | None = None, **inputs: Any
    ) -> dict[str, torch.Tensor]:
        """Sums of the `mlm` term for evaluation, see `ErnieThuForPreTraining.evaluation_sums`.

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


class ErnieThuForNextSentencePrediction(ErnieThuPreTrainedModel):
    """ERNIE-THU with the next-sentence head alone.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuForNextSentencePrediction
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20
        ... )
        >>> model = ErnieThuForNextSentencePrediction(config)
        >>> model(torch.tensor([[2, 7, 3, 9, 3]]), labels=torch.tensor([0])).logits.shape
        torch.Size([1, 2])
    """

    _prediction_heads = {"cls.seq_relationship": "next-sentence head"}

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.bert = ErnieThuModel(config)
        self.cls = ErnieThuNextSentenceHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> ErnieThuNextSentencePredictorOutput:
        """Say whether the second segment follows the first.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eight as in `ErnieThuModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            entity_ids: `(batch, seq_len)`.
            entity_mask: `(batch, seq_len)`.
            entity_embeds: `(batch, seq_len, entity_hidden)`.
            sequence_ids: `(batch, seq_len)`.
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
            inputs_embeds,
            entity_ids,
            entity_mask,
            entity_embeds,
            sequence_ids,
            **kwargs,
        )
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return ErnieThuNextSentencePredictorOutput(loss=loss, logits=logits, **recorded(outputs))


class ErnieThuForSequenceClassification(ErnieThuPreTrainedModel):
    """ERNIE-THU with a classification or regression head on the pooled output; also relation classification.

    For relations the text marks its two mentions, `... # head # ... $ tail $ ...` in the reference, and the mentions'
    entities go in as `entity_ids`.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuForSequenceClassification
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20, num_labels=3
        ... )
        >>> model = ErnieThuForSequenceClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), labels=torch.tensor([2, 0]))
        >>> output.logits.shape, config.problem_type
        (torch.Size([2, 3]), 'single_label_classification')
    """

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = ErnieThuModel(config)
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
        inputs_embeds: torch.Tensor | None = None,
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> ErnieThuSequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eight as in `ErnieThuModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            entity_ids: `(batch, seq_len)`.
            entity_mask: `(batch, seq_len)`.
            entity_embeds: `(batch, seq_len, entity_hidden)`.
            sequence_ids: `(batch, seq_len)`.
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels or, with
                `problem_type="single_label_classification"`, probabilities of the classes; packed rows add a
                dimension S after the batch.
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
            inputs_embeds,
            entity_ids,
            entity_mask,
            entity_embeds,
            sequence_ids,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return ErnieThuSequenceClassifierOutput(loss=loss, logits=logits, **recorded(outputs))


class ErnieThuForEntityTyping(ErnieThuPreTrainedModel):
    """ERNIE-THU with the reference's entity typing head: several labels, no bias, on the pooled output.

    The text marks the mention, `... \u3002 mention \u3002 ...` in the reference. A label holds if its logit is
    positive. `AutoModelForSequenceClassification` gives this class for a checkpoint that it has saved.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuForEntityTyping
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20, num_labels=3
        ... )
        >>> model = ErnieThuForEntityTyping(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3]]), labels=torch.tensor([[0.0, 1.0, 1.0]]))
        >>> output.logits.shape, config.problem_type
        (torch.Size([1, 3]), 'multi_label_classification')
    """

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        if config.problem_type is None:
            config.problem_type = "multi_label_classification"
        if config.problem_type != "multi_label_classification":
            raise ValueError(
                f"`problem_type` must be multi_label_classification for entity typing, got {config.problem_type!r}. "
                "Other problems are for ErnieThuForSequenceClassification."
            )
        self.num_labels = config.num_labels
        self.bert = ErnieThuModel(config)
        self.dropout = nn.Dropout(_classifier_dropout(config))
        self.typing = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> ErnieThuSequenceClassifierOutput:
        """Classify a mention.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eight as in `ErnieThuModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            entity_ids: `(batch, seq_len)`.
            entity_mask: `(batch, seq_len)`.
            entity_embeds: `(batch, seq_len, entity_hidden)`.
            sequence_ids: `(batch, seq_len)`.
            labels: `(batch, num_labels)` or, packed, `(batch, S, num_labels)`: 1 where a label holds, 0 elsewhere.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss`, the mean over all cells, and `logits` `(batch, num_labels)` or, packed, `(batch, S, num_labels)`.
        """
        if labels is not None and sequence_ids is not None:
            kwargs["num_sequences"] = number_of_sequences(labels)
        outputs = self.encode(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            entity_ids,
            entity_mask,
            entity_embeds,
            sequence_ids,
            **kwargs,
        )
        logits = self.typing(self.dropout(outputs.pooler_output))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return ErnieThuSequenceClassifierOutput(loss=loss, logits=logits, **recorded(outputs))


class ErnieThuForTokenClassification(ErnieThuPreTrainedModel):
    """ERNIE-THU with a classification head on every token.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuForTokenClassification
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20, num_labels=5
        ... )
        >>> model = ErnieThuForTokenClassification(config)
        >>> output = model(torch.tensor([[2, 7, 8, 3]]), labels=torch.tensor([[-100, 0, 4, -100]]))
        >>> output.logits.shape
        torch.Size([1, 4, 5])
    """

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = ErnieThuModel(config, add_pooling_layer=False)
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
        inputs_embeds: torch.Tensor | None = None,
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> ErnieThuTokenClassifierOutput:
        """Tag tokens.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eight as in `ErnieThuModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            entity_ids: `(batch, seq_len)`.
            entity_mask: `(batch, seq_len)`.
            entity_embeds: `(batch, seq_len, entity_hidden)`.
            sequence_ids: `(batch, seq_len)`.
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
            inputs_embeds,
            entity_ids,
            entity_mask,
            entity_embeds,
            sequence_ids,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return ErnieThuTokenClassifierOutput(loss=loss, logits=logits, **recorded(outputs))


class ErnieThuForQuestionAnswering(ErnieThuPreTrainedModel):
    """ERNIE-THU with start and end logits for extractive question answering.

    Rows hold one sequence each: the softmax runs over the row, so packed rows would let sequences compete.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuForQuestionAnswering
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20
        ... )
        >>> model = ErnieThuForQuestionAnswering(config)
        >>> output = model(
        ...     torch.tensor([[2, 7, 8, 3, 9, 10, 3]]),
        ...     start_positions=torch.tensor([4]),
        ...     end_positions=torch.tensor([5]),
        ... )
        >>> output.start_logits.shape, output.loss.dim()
        (torch.Size([1, 7]), 0)
    """

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.bert = ErnieThuModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> ErnieThuQuestionAnsweringOutput:
        """Extract an answer span.

        Args:
            input_ids: `(batch, seq_len)`; this and the next eight as in `ErnieThuModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)`.
            entity_ids: `(batch, seq_len)`.
            entity_mask: `(batch, seq_len)`.
            entity_embeds: `(batch, seq_len, entity_hidden)`.
            sequence_ids: `(batch, seq_len)`.
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
            inputs_embeds,
            entity_ids,
            entity_mask,
            entity_embeds,
            sequence_ids,
            **kwargs,
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_extraction_loss(start_logits, end_logits, start_positions, end_positions)
        return ErnieThuQuestionAnsweringOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            **recorded(outputs),
        )


class ErnieThuForMultipleChoice(ErnieThuPreTrainedModel):
    """ERNIE-THU with one score per choice on the pooled output.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import ErnieThuConfig, ErnieThuForMultipleChoice
        >>> config = ErnieThuConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     entity_hidden_size=20
        ... )
        >>> model = ErnieThuForMultipleChoice(config)
        >>> choices = torch.tensor([[[2, 7, 8, 3], [2, 7, 9, 3]]])  # one question, two choices
        >>> model(choices, labels=torch.tensor([1])).logits.shape
        torch.Size([1, 2])
    """

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.bert = ErnieThuModel(config)
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
        entity_ids: torch.Tensor | None = None,
        entity_mask: torch.Tensor | None = None,
        entity_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> ErnieThuMultipleChoiceOutput:
        """Score choices.

        Args:
            input_ids: `(batch, choices, seq_len)`; this and the next seven as in `ErnieThuModel`, with a dimension for
                the choices.
            attention_mask: `(batch, choices, seq_len)`.
            token_type_ids: `(batch, choices, seq_len)`.
            position_ids: `(batch, choices, seq_len)`.
            inputs_embeds: `(batch, choices, seq_len, hidden)`.
            entity_ids: `(batch, choices, seq_len)`.
            entity_mask: `(batch, choices, seq_len)`.
            entity_embeds: `(batch, choices, seq_len, entity_hidden)`.
            labels: `(batch,)` index of the right choice.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `loss` and `logits` `(batch, choices)`.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            "entity_ids": entity_ids,
            "entity_mask": entity_mask,
            "entity_embeds": entity_embeds,
        }
        num_choices = (input_ids if input_ids is not None else inputs_embeds).shape[1]
        flat = {name: value.flatten(0, 1) if value is not None else None for name, value in inputs.items()}
        outputs = self.bert(**flat, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, num_choices)
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return ErnieThuMultipleChoiceOutput(loss=loss, logits=logits, **recorded(outputs))


def _classifier_dropout(config: ErnieThuConfig) -> float:
    """The classifier's own dropout, or the hidden one."""
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


__all__ = [
    "ErnieThuForEntityTyping",
    "ErnieThuForMaskedLM",
    "ErnieThuForMultipleChoice",
    "ErnieThuForNextSentencePrediction",
    "ErnieThuForPreTraining",
    "ErnieThuForPreTrainingOutput",
    "ErnieThuForQuestionAnswering",
    "ErnieThuForSequenceClassification",
    "ErnieThuForTokenClassification",
    "ErnieThuModel",
    "ErnieThuModelOutput",
    "ErnieThuPreTrainedModel",
]
