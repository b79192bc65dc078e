"""KnowBERT (Peters et al., EMNLP 2019, https://arxiv.org/abs/1909.04164; reference code allenai/kb).

BERT with a layer for each knowledge base between two of its own (see `knowledge_knowbert.py`): candidate entities of
mentions are told apart by the text, and what they are is put back into the text. Pre-trained with masked tokens, next
sentences and, where entities are known, the linking itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils.output_capturing import OutputRecorder

from .base_core import FamilyPreTrainedModel, by_depth, encoder_forward
from .candidates_knowbert import Entities, decode_links, linking_sums, read_candidates
from .configuration_knowbert import AUTO_MAP, HF_PTM_EXT_VERSION, KnowBertConfig
from .encoder_core import Encoder, EncoderLayer, Pooler, SelfAttention
from .inputs_core import Embeddings, build_attention_mask, checked_positions
from .knowledge_knowbert import KnowledgeAttention, PartOfSpeechEntityEmbeddings, PriorScorer
from .mask_contract_core import read_attention_mask
from .pretraining_core import MlmAndNspHead, MlmAndNspOutput, PreTrainingTerms
from .task_heads_core import (
    MaskedLMHead,
    MultipleChoiceHead,
    NextSentenceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)


@dataclass
class KnowBertModelOutput(BaseModelOutputWithPooling):
    """Output of `KnowBertModel`.

    Args:
        last_hidden_state: `(batch, seq_len, hidden)`.
        pooler_output: `(batch, hidden)` or, packed, `(batch, S, hidden)`.
        linking_scores: scores of the candidates, `(batch, spans, candidates)`, in the form in which these were given:
            by name, with a dimension for the knowledge bases behind the batch, or without.
        entity_attentions: how much each token took of each span, `(batch, heads, seq_len, spans)`, in the same form,
            or by name where numbers of heads differ.
        hidden_states: embeddings and the output of each layer, with the knowledge that is added behind it.
        attentions: weights of each of BERT's layers, `(batch, heads, seq_len, seq_len)` each.
    """

    linking_scores: Any = None
    entity_attentions: Any = None


@dataclass
class KnowBertForPreTrainingOutput(MlmAndNspOutput):
    """Output of `KnowBertForPreTraining`; `logits` is another name of `prediction_logits`.

    Args:
        loss: sum of the terms.
        mlm_loss: masked-language-model term, mean over labelled tokens.
        nsp_loss: next-sentence term, mean over labelled sequences.
        linking_loss: sum over the knowledge bases of the linking term, mean over candidates or mentions.
        prediction_logits: `(batch, seq_len, vocab_size)`; `None` in training unless asked for.
        seq_relationship_logits: `(batch, 2)` or, packed, `(batch, S, 2)`.
        linking_scores: as in `KnowBertModelOutput`.
        hidden_states: embeddings and the output of each layer, `(batch, seq_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, seq_len, seq_len)` each.
    """

    linking_loss: torch.Tensor | None = None
    linking_scores: Any = None


class KnowBertLayer(EncoderLayer):
    """A layer of BERT's, and what knowledge bases add behind it."""

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: Any = None, knowledge: Any = (), **kwargs: Any
    ) -> Any:
        """The states; with knowledge in front of what each `knowledge` (layer, its further arguments) returns."""
        states, found = super().forward(hidden_states, attention_mask, **kwargs), []
        for layer, arguments in knowledge:
            states, *more = layer(states, *arguments)
            found += more
        return (states, *found) if knowledge else states


class KnowBertEncoder(Encoder):
    """The stack of layers, with knowledge behind some of them."""

    _layer_class = KnowBertLayer

    def forward(  # type: ignore[override]
        self, hidden_states: torch.Tensor, attention_mask: Any, knowledge: Mapping[int, Any], **kwargs: Any
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Run the stack."""
        hidden_states = self.mapped(hidden_states)
        found: list[torch.Tensor] = []
        for index, layer in enumerate(self.in_order()):
            if index in knowledge:
                hidden_states, *more = layer(hidden_states, attention_mask, knowledge=knowledge[index], **kwargs)
                found += more
            else:
                hidden_states = layer(hidden_states, attention_mask, **kwargs)
        return hidden_states, found


class KnowBertPreTrainedModel(FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all KnowBERT classes."""

    config: KnowBertConfig
    config_class = KnowBertConfig
    _no_split_modules = ["Embeddings", "KnowBertLayer", "KnowledgeAttention"]
    _can_record_outputs = {
        "hidden_states": by_depth(KnowBertLayer),
        "attentions": OutputRecorder(SelfAttention, index=1, layer_name="encoder.layer"),
    }
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _added_parts = {r"^(bert\.)?knowledge\.": "knowledge bases"}

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, PriorScorer) and module.null_embedding is not None:
            init.zeros_(module.null_embedding)  # type: ignore[arg-type]
        if isinstance(module, PartOfSpeechEntityEmbeddings):
            init.zeros_(module.entity_id_to_pos_index)  # type: ignore[arg-type]

    def post_init(self) -> None:
        """As upstream; a projection back begins as an inverse, and tables are frozen as the config says."""
        super().post_init()
        if self.base_model is self:
            self._begin_from_others(None)
        self._freeze_tables()

    @torch.no_grad()
    def _begin_from_others(self, missing: set[str] | None) -> None:
        """Let new projections back undo the ones into their knowledge base, and new null embeddings be the table's.

        A weight that is in a file, quantised, sharded or without memory is left alone (`missing`: `None` for all new).
        """
        for path, layer in self.named_modules():
            if not isinstance(layer, KnowledgeAttention):
                continue
            into, back = layer.bert_to_kg_projector, layer.kg_to_bert_projection
            null, table = layer.dot_attention_with_prior.null_embedding, layer.table.weight

            def is_new(name: str, *used: torch.Tensor, path: str = path) -> bool:
                return (missing is None or f"{path}.{name}" in missing) and all(map(is_plain, used))

            if is_new("kg_to_bert_projection.weight", back.weight, into.weight):
                inverse = torch.linalg.pinv(into.weight.float())
                back.weight.copy_(inverse)
                if is_new("kg_to_bert_projection.bias", back.bias, into.bias):
                    back.bias.copy_((-inverse if self.config.inverse_bias else inverse) @ into.bias.float())
            if null is not None and is_new("dot_attention_with_prior.null_embedding", null, table):  # type: ignore[arg-type]
                null.copy_(table[layer.base["null_entity_id"]])  # type: ignore[operator]

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Any:
        """As `CheckedLoading.from_pretrained`; what was in no file and follows from other weights is made of them."""
        model, info = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        model._begin_from_others(set(info["missing_keys"]))
        model._freeze_tables()
        return (model, info) if output_loading_info else model

    def _freeze_tables(self) -> None:
        for layer in getattr(self.base_model, "knowledge", {}).values():
            if layer.base["freeze_entity_embeddings"]:
                layer.table.weight.requires_grad_(False)

    def set_entity_table(self, name: str, table: Any) -> None:
        """Take the vectors of a knowledge base's entities from a table.

        Args:
            name: of the knowledge base.
            table: `EntityTable`, whose row i is our row i + 3: the special rows stand in front and are made anew; or
                a matrix `(entity_vocab_size, raw_entity_size)` with all rows.

        Raises:
            ValueError: there is no such knowledge base, or the sizes differ.
        """
        layer = self._knowledge_base(name)
        own, special = layer.table.weight, special_rows(layer.base)
        given: torch.Tensor = table if torch.is_tensor(table) else table.weight()
        wanted = tuple(own.shape) if torch.is_tensor(table) else (own.shape[0] - special + 1, own.shape[1])
        if tuple(given.shape) != wanted:
            raise ValueError(f"`table` must have the shape {wanted} for `{name}`, got {tuple(given.shape)}.")
        if not torch.is_tensor(table):
            spread = float(given[1:].float().std()) if len(given) > 2 else self.config.initializer_range
            rows = torch.randn(special, own.shape[1], generator=torch.Generator().manual_seed(0)) * spread
            rows[0] = 0.0
            given = torch.cat([rows, given[1:].float()])
        with torch.no_grad():
            own.copy_(given)
            null = layer.dot_attention_with_prior.null_embedding
            if null is not None:
                null.copy_(given[layer.base["null_entity_id"]])  # type: ignore[operator]

    def train_linkers_only(self) -> None:
        """Freeze everything but what links (the first phase of training: learning rate 1e-3, BERT as it is)."""
        self.requires_grad_(False)
        for layer in self.base_model.knowledge.values():
            for part in LINKER_PARTS:
                getattr(layer, part).requires_grad_(True)
        self._freeze_tables()

    def decode_links(self, linking_scores: Any, candidate_spans: Any, candidate_entities: Any) -> dict[str, list[Any]]:
        """The links that scores say, for each knowledge base.

        Args:
            linking_scores: as the model returned them.
            candidate_spans: as they were given.
            candidate_entities: as they were given.

        Returns:
            By name: `(row, (first token, last token), entity id)` of each mention whose best candidate reaches the
            threshold and is not the null entity.
        """
        return decode_links(self.config, linking_scores, candidate_spans, candidate_entities)

    def _knowledge_base(self, name: str) -> KnowledgeAttention:
        found = self.base_model.knowledge
        if name not in found:
            raise ValueError(f"`name` must be one of the knowledge bases {list(found)}, got {name!r}.")
        return found[name]


LINKER_PARTS = (
    *("bert_to_kg_projector", "span_extractor", "projected_span_layer_norm", "entity_embeddings", "kg_layer_norm"),
    *("span_encoder", "dot_attention_with_prior"),
)


def special_rows(base: Mapping[str, Any]) -> int:
    """How many rows stand in front of a table's entities: padding and the special ones."""
    return 1 + max(int(base[f"{kind}_entity_id"]) for kind in ("unknown", "null", "mask"))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a weight is a matrix of numbers: not quantised, sharded or without memory."""
    plain = type(tensor) in (nn.Parameter, torch.Tensor) and tensor.is_floating_point()
    return plain and not tensor.is_meta and tensor.numel() > 0


class KnowBertModel(KnowBertPreTrainedModel):
    """The bare encoder.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler (default True).

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KnowBertConfig, KnowBertModel
        >>> wiki = {"entity_vocab_size": 20, "insert_after_layer": 0, "entity_size": 16, "intermediate_size": 24}
        >>> config = KnowBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     knowledge_bases={"wiki": wiki}
        ... )
        >>> model = KnowBertModel(config).eval()
        >>> spans, entities = torch.tensor([[[1, 2]]]), torch.tensor([[[7, 9]]])  # tokens 1 and 2: entity 7 or 9
        >>> output = model(torch.tensor([[2, 7, 8, 3]]), candidate_spans=spans, candidate_entities=entities)
        >>> output.last_hidden_state.shape, output.linking_scores.shape
        (torch.Size([1, 4, 32]), torch.Size([1, 1, 2]))
    """

    def __init__(self, config: KnowBertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = KnowBertEncoder(config)
        bases: dict[str, Any] = config.knowledge_bases or {}
        self.knowledge = nn.ModuleDict({name: KnowledgeAttention(config, base) for name, base in bases.items()})
        self.pooler = Pooler(config) if add_pooling_layer else None
        self.post_init()

    @encoder_forward
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        candidate_spans: Entities = None,
        candidate_entities: Entities = None,
        candidate_priors: Entities = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_sequences: int | None = None,
        **kwargs: Any,
    ) -> KnowBertModelOutput:
        """Encode.

        Of its own:
            candidate_spans: first and last token of each mention, -1 for padding, `(batch, K, spans, 2)` for K
                knowledge bases in the config's order, `(batch, spans, 2)` for a single one, or a mapping of names to
                these. Left out: a text without mentions.
            candidate_entities: rows of the entity table that a mention may stand for, 0 for padding,
                `(batch, K, spans, candidates)` and so on.
            candidate_priors: how likely each is without the text, in the shape of `candidate_entities`; left out,
                all candidates of a mention are equally likely.
        """
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        attention_mask = read_attention_mask(self.config, attention_mask, words)
        position_ids = checked_positions(self.config, words, position_ids, attention_mask, sequence_ids)
        candidates, formed = read_candidates(
            self.config, words, candidate_spans, candidate_entities, candidate_priors, sequence_ids
        )
        knowledge: dict[int, list[Any]] = {}
        for name, layer in self.knowledge.items():
            knowledge.setdefault(layer.base["insert_after_layer"], []).append(  # type: ignore[index, arg-type]
                (layer, (candidates[name], sequence_ids))
            )
        embeddings = self.embeddings(words, position_ids, token_type_ids)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)
        hidden_states, found = self.encoder(embeddings, mask, knowledge, **kwargs)
        # In the order in which the layers ran.
        ran = [layer for index in sorted(knowledge) for layer, _ in knowledge[index]]
        names = [name for one in ran for name, layer in self.knowledge.items() if layer is one]
        scores = dict(zip(names, found[::2], strict=True))
        weights = dict(zip(names, found[1::2], strict=True))
        return KnowBertModelOutput(
            last_hidden_state=hidden_states,
            pooler_output=self.pooled_first(hidden_states, attention_mask, sequence_ids, num_sequences),
            linking_scores=formed({name: scores[name] for name in self.knowledge}),
            entity_attentions=formed({name: weights[name] for name in self.knowledge}),
        )


class KnowBertForPreTraining(MlmAndNspHead, KnowBertPreTrainedModel, encoder=KnowBertModel):
    """KnowBERT with its pre-training heads: masked tokens, next sentence, and the linking of entities.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KnowBertConfig, KnowBertForPreTraining
        >>> wiki = {"entity_vocab_size": 20, "insert_after_layer": 0, "entity_size": 16, "intermediate_size": 24}
        >>> config = KnowBertConfig(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        ...     knowledge_bases={"wiki": wiki}
        ... )
        >>> output = KnowBertForPreTraining(config)(
        ...     torch.tensor([[2, 7, 4, 3]]),
        ...     candidate_spans=torch.tensor([[[1, 2]]]),
        ...     candidate_entities=torch.tensor([[[7, 9]]]),
        ...     gold_entities=torch.tensor([[9]]),
        ...     labels=torch.tensor([[-100, -100, 8, -100]]),
        ... )
        >>> bool(torch.isclose(output.loss, output.mlm_loss + output.linking_loss)), output.nsp_loss is None
        (True, True)
    """

    def forward(  # type: ignore[override]
        self,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        gold_entities: Entities = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **inputs: Any,
    ) -> KnowBertForPreTrainingOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
            labels: `(batch, seq_len)` original ids at selected tokens, -100 elsewhere.
            next_sentence_label: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored (the
                reference's -1 too).
            gold_entities: which candidate each mention stands for, an entity's row (the null entity's for none), in
                the form of `candidate_entities` without or with 1 for the candidates; -100 ignored.
            label_positions: `(batch, budget)` positions that cover `labels`; keeps all shapes fixed.
            return_logits: whether to compute full token logits; `None` (default) means yes, except in training with
                labels.
            num_items_in_batch: number of labels over all micro-batches of one update; the token term is divided by it.
            target_counts: the same number for the next sentences, under `"next_sentence_label"`.
            inputs: the encoder's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `KnowBertForPreTrainingOutput`.

        Raises:
            ValueError: with the softmax loss, a mention's gold entity is not among its candidates.
        """
        candidates = inputs.get("candidate_entities")
        if gold_entities is not None and candidates is None:
            raise ValueError(f"`gold_entities` need `candidate_entities`, among which they are, got {candidates}.")
        if next_sentence_label is not None:
            next_sentence_label = next_sentence_label.masked_fill(next_sentence_label == -1, -100)
        outputs = self.encode_sequences(next_sentence_label, inputs)
        states = outputs.last_hidden_state
        logits = {
            "prediction_logits": self.cls.predictions(states) if self.wants_logits(return_logits, labels) else None,
            "seq_relationship_logits": self.cls.seq_relationship(outputs.pooler_output),  # type: ignore[misc]
        }
        targets = {"labels": labels, "label_positions": label_positions, "next_sentence_label": next_sentence_label}
        terms = PreTrainingTerms(self, states, logits, targets, num_items_in_batch, target_counts)
        terms.terms["linking_loss"] = None
        if gold_entities is not None:
            sums = linking_sums(self.config, outputs.linking_scores, inputs["candidate_entities"], gold_entities)
            terms.terms["linking_loss"] = sum(
                (terms.mean("gold_entities", *one) for one in sums), states.new_zeros(())
            )
        return self.head_output(
            KnowBertForPreTrainingOutput,
            outputs,
            **terms.losses(),
            **logits,
            linking_scores=outputs.linking_scores,
        )


class KnowBertForMaskedLM(MaskedLMHead, KnowBertPreTrainedModel, encoder=KnowBertModel):
    """KnowBERT with the masked-language-model head alone."""


class KnowBertForNextSentencePrediction(NextSentenceHead, KnowBertPreTrainedModel, encoder=KnowBertModel):
    """KnowBERT with the next-sentence head alone."""


class KnowBertForSequenceClassification(SequenceClassificationHead, KnowBertPreTrainedModel, encoder=KnowBertModel):
    """KnowBERT with a classification or regression head on the pooled output."""


class KnowBertForTokenClassification(TokenClassificationHead, KnowBertPreTrainedModel, encoder=KnowBertModel):
    """KnowBERT with a classification head on every token."""


class KnowBertForQuestionAnswering(QuestionAnsweringHead, KnowBertPreTrainedModel, encoder=KnowBertModel):
    """KnowBERT with start and end logits for extractive question answering; rows hold one sequence each."""


class KnowBertForMultipleChoice(MultipleChoiceHead, KnowBertPreTrainedModel, encoder=KnowBertModel):
    """KnowBERT with one score per choice on the pooled output."""
