"""ERNIE-THU (Zhang et al. 2019, https://arxiv.org/abs/1905.07129; reference code thunlp/ERNIE), not Baidu's ERNIE.

BERT with a second stream of entity vectors (TransE, from a knowledge graph) that is fused into the text in the upper
layers (see `fusion_ernie_thu.py`), pre-trained with masked tokens, next sentences and a denoising entity objective
(see `losses_ernie_thu.py`). A text without entities is no special case, but not the BERT of the same weights either:
the bias of the fusion still acts. Where paper and released code differ, the code is followed: its layers are five
`sim`, one `mix` and six `norm`, and candidates are the distinct entities of a batch.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput
from transformers.utils.output_capturing import OutputRecorder

from .base_core import FamilyPreTrainedModel, encoder_forward
from .configuration_ernie_thu import AUTO_MAP, HF_PTM_EXT_VERSION, ErnieThuConfig
from .encoder_core import Pooler, SelfAttention
from .entities_ernie_thu import ErnieThuEntityInput, build_entity_attention_mask, check_entities, default_entity_mask
from .fusion_ernie_thu import ErnieThuMixLayer, ErnieThuSimLayer, ErnieThuTwoStreamEncoder, unread_weights
from .inputs_core import Embeddings, build_attention_mask, checked_positions, has_empty_row
from .knowledge_ernie_thu import ErnieThuKnowledge
from .losses_core import LMPredictionHead, problem_type_loss, select_labelled, target_sums
from .losses_ernie_thu import ErnieThuEntityPredictionHead, add_entity_term, candidates_and_labels
from .mask_contract_core import read_attention_mask
from .outputs_ernie_thu import BOTH_STREAMS, ErnieThuForPreTrainingOutput, ErnieThuModelOutput
from .pretraining_core import PreTrainingTerms, pretraining_sums
from .task_heads_core import (
    MaskedLMHead,
    MultipleChoiceHead,
    NextSentenceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TaskHead,
    TokenClassificationHead,
    VocabularyHead,
    VocabularyModel,
)

# The two streams of one layer, and the two attentions, are recorded together.
STREAMS = ("hidden_states", "attentions")


class ErnieThuPreTrainedModel(ErnieThuKnowledge, FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all ERNIE-THU classes."""

    config: ErnieThuConfig
    config_class = ErnieThuConfig
    _no_split_modules = ["Embeddings", "ErnieThuSimLayer", "ErnieThuMixLayer", "ErnieThuNormLayer"]
    _can_record_outputs = {
        "hidden_states": [OutputRecorder(ErnieThuSimLayer), OutputRecorder(ErnieThuMixLayer)],
        "attentions": OutputRecorder(SelfAttention, index=1, layer_name="self"),
        "entity_hidden_states": [
            OutputRecorder(ErnieThuEntityInput),
            OutputRecorder(ErnieThuSimLayer, index=1),
            OutputRecorder(ErnieThuMixLayer, index=1),
        ],
        "entity_attentions": OutputRecorder(SelfAttention, index=1, layer_name="self_ent"),
    }
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _example_sizes = FamilyPreTrainedModel._example_sizes + ", entity_hidden_size=20"
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
        """As `CheckedLoading.from_pretrained`; what no output depends on is frozen."""
        loaded = super().from_pretrained(*args, **kwargs)
        # Loading puts trainable parameters into place.
        (loaded[0] if isinstance(loaded, tuple) else loaded)._freeze_unread()
        return loaded

    def _freeze_unread(self) -> None:
        """Freeze four weights of the entity side that no head reads, and the entity table if the config says so.

        The last fusion's entity output never gets a gradient under a head; distributed training would wait for it.
        """
        base = self.base_model
        if base is not self:
            unread = set(unread_weights(base.config))
            for name, parameter in base.named_parameters():
                if name in unread:
                    parameter.requires_grad_(False)
        if base.entity_embeddings is not None and base.config.freeze_entity_embeddings:
            base.entity_embeddings.weight.requires_grad_(False)

    def head_output(self, output_class: type[ModelOutput], encoded: Any, **fields: Any) -> Any:
        """What a head returns: fields of its own, and what was recorded of both streams."""
        entities = {f"entity_{name}": getattr(encoded, f"entity_{name}") for name in STREAMS}
        return super().head_output(BOTH_STREAMS.get(output_class, output_class), encoded, **fields, **entities)


def record_both_streams(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: whoever asks for hidden states or attentions gets those of the entity stream beside them."""

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

    Examples:
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
        self.embeddings = Embeddings(config)
        self.entity_embeddings = None
        if config.entity_embeddings_in_checkpoint:
            rows = config.entity_vocab_size or 0
            self.entity_embeddings = nn.Embedding(rows, config.entity_hidden_size, padding_idx=0)
        self.entity_input = ErnieThuEntityInput()
        self.encoder = ErnieThuTwoStreamEncoder(config)
        self.pooler = Pooler(config) if add_pooling_layer else None
        self.post_init()

    @record_both_streams
    @encoder_forward
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

        Of its own:
            entity_ids: `(batch, seq_len)` rows of the entity table, 0 = no entity.
            entity_mask: `(batch, seq_len)`, 1 where an entity is, used as it is given. If left out: where `entity_ids`
                are not 0 or `entity_embeds` not zero, and at each sequence's first token.
            entity_embeds: `(batch, seq_len, entity_hidden)` vectors instead of `entity_ids`. Without either a text has
                no entities.
            kwargs: `output_hidden_states`, `output_attentions` (of both streams), `return_dict` as upstream; others
                are refused.
        """
        for name in STREAMS:
            kwargs.pop(f"output_entity_{name}", None)
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        attention_mask = read_attention_mask(self.config, attention_mask, words)
        position_ids = checked_positions(self.config, words, position_ids, attention_mask, sequence_ids)
        input_shape = words.shape[:2]
        check_entities(self.config, input_shape, entity_ids, entity_mask, entity_embeds)
        # Rounds as the reference does, see the top of `inputs_core.py`.
        empty_row = has_empty_row(self.config, attention_mask, sequence_ids)
        if empty_row:
            kwargs["plain_attention"] = True
        embeddings = self.embeddings(words, position_ids, token_type_ids, types_last=empty_row)
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
        return ErnieThuModelOutput(
            last_hidden_state=hidden_states,
            pooler_output=self.pooled_first(hidden_states, attention_mask, sequence_ids, num_sequences),
            entity_last_hidden_state=entity_states,
        )


class ErnieThuPreTrainingHeads(VocabularyHead):
    """The heads of pre-training: vocabulary, entities, next sentence."""

    def __init__(self, config: ErnieThuConfig):
        super().__init__(LMPredictionHead(config))
        self.predictions_ent = ErnieThuEntityPredictionHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class ErnieThuForPreTraining(VocabularyModel, ErnieThuPreTrainedModel, encoder=ErnieThuModel):
    """ERNIE-THU with its pre-training heads: masked tokens, next sentence, denoising entities.

    Examples:
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

    _optional_labels = ("next_sentence_label", "entity_labels", "label_positions")
    _prediction_heads = {
        "cls.predictions": "masked-language-model head",
        "cls.predictions_ent": "entity head",
        "cls.seq_relationship": "next-sentence head",
    }

    def __init__(self, config: ErnieThuConfig):
        super().__init__(config)
        self.add_encoder(pooled=True)
        self.cls = ErnieThuPreTrainingHeads(config)
        self.post_init()

    def forward(
        self,
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
        **inputs: Any,
    ) -> ErnieThuForPreTrainingOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
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
            inputs: the inputs of `ErnieThuModel`, and `output_hidden_states`, `output_attentions`, `return_dict` as
                upstream.

        Returns:
            `ErnieThuForPreTrainingOutput`.

        Raises:
            ValueError: labels or candidates that do not fit each other, or ids without a table.
        """
        outputs = self.encode_sequences(next_sentence_label, inputs)
        states = outputs.last_hidden_state
        candidates, entity_labels = candidates_and_labels(
            self, entity_labels, entity_candidates, entity_candidate_embeds, include_none_candidate
        )
        logits = {
            "prediction_logits": self.cls.predictions(states) if self.wants_logits(return_logits, labels) else None,
            "seq_relationship_logits": self.cls.seq_relationship(outputs.pooler_output),
            "entity_logits": None,
        }
        if candidates is not None and self.wants_logits(return_logits, entity_labels):
            logits["entity_logits"] = self.cls.predictions_ent(states, candidates)
        targets = {
            "labels": labels,
            "label_positions": label_positions,
            "next_sentence_label": next_sentence_label,
            "candidates": candidates,
            "entity_labels": entity_labels,
        }
        terms = PreTrainingTerms(self, states, logits, targets, num_items_in_batch, target_counts)
        add_entity_term(terms, states, targets, logits["entity_logits"])
        losses = terms.losses({"entity_loss": self.config.entity_loss_weight})
        return self.head_output(ErnieThuForPreTrainingOutput, outputs, **losses, **logits)

    @staticmethod
    def count_targets(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Number of a batch's targets of the terms other than that of the tokens: `target_counts` of `forward`."""
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
        """Sums from which evaluation metrics are made, without ever holding full logits; arguments as in `forward`.

        Returns:
            Per term with labels (`mlm`, `nsp`, `entity`) a float64 tensor `[sum of cross entropies, correct, number of
            targets]`.
        """
        outputs = self.encode_sequences(next_sentence_label, inputs)
        states = outputs.last_hidden_state
        targets = {"labels": labels, "label_positions": label_positions, "next_sentence_label": next_sentence_label}
        sums = pretraining_sums(self, states, outputs.pooler_output, targets)
        candidates, entity_labels = candidates_and_labels(
            self, entity_labels, entity_candidates, entity_candidate_embeds
        )
        if entity_labels is not None:
            head = functools.partial(self.cls.predictions_ent, candidates=candidates)
            sums["entity"] = target_sums(head, *select_labelled(states, entity_labels))
        return sums


class ErnieThuForEntityTyping(TaskHead, ErnieThuPreTrainedModel, encoder=ErnieThuModel):
    """ERNIE-THU with the reference's entity typing head: several labels, no bias, on the pooled output.

    The text marks the mention, `... \u3002 mention \u3002 ...` in the reference. A label holds if its logit is
    positive. `AutoModelForSequenceClassification` gives this class for a checkpoint that it has saved.

    Examples:
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
        self.add_encoder(pooled=True)
        self.dropout = nn.Dropout(self.classifier_dropout)
        self.typing = nn.Linear(config.hidden_size, self.config.num_labels, bias=False)  # type: ignore[arg-type]
        self.post_init()

    def forward(
        self, labels: torch.Tensor | None = None, num_items_in_batch: torch.Tensor | int | None = None, **inputs: Any
    ) -> SequenceClassifierOutput:
        """Classify a mention.

        Args:
            labels: `(batch, num_labels)` or, packed, `(batch, S, num_labels)`: 1 where a label holds, 0 elsewhere.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: the inputs of `ErnieThuModel`, and `output_hidden_states`, `output_attentions`, `return_dict` as
                upstream.

        Returns:
            `loss`, the mean over all cells, and `logits` `(batch, num_labels)` or, packed, `(batch, S, num_labels)`.
        """
        outputs = self.encode_sequences(labels, inputs)
        logits = self.typing(self.dropout(outputs.pooler_output))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return self.head_output(SequenceClassifierOutput, outputs, loss=loss, logits=logits)


class ErnieThuForMaskedLM(MaskedLMHead, ErnieThuPreTrainedModel, encoder=ErnieThuModel):
    """ERNIE-THU with the masked-language-model head alone."""


class ErnieThuForNextSentencePrediction(NextSentenceHead, ErnieThuPreTrainedModel, encoder=ErnieThuModel):
    """ERNIE-THU with the next-sentence head alone."""


class ErnieThuForSequenceClassification(SequenceClassificationHead, ErnieThuPreTrainedModel, encoder=ErnieThuModel):
    """ERNIE-THU with a classification or regression head on the pooled output; also relation classification.

    For relations the text marks its two mentions, `... # head # ... $ tail $ ...` in the reference, and the mentions'
    entities go in as `entity_ids`.
    """


class ErnieThuForTokenClassification(TokenClassificationHead, ErnieThuPreTrainedModel, encoder=ErnieThuModel):
    """ERNIE-THU with a classification head on every token."""


class ErnieThuForQuestionAnswering(QuestionAnsweringHead, ErnieThuPreTrainedModel, encoder=ErnieThuModel):
    """ERNIE-THU with start and end logits for extractive question answering; rows hold one sequence each."""


class ErnieThuForMultipleChoice(MultipleChoiceHead, ErnieThuPreTrainedModel, encoder=ErnieThuModel):
    """ERNIE-THU with one score per choice on the pooled output."""
