"""KT-NET (Yang et al., ACL 2019, https://aclanthology.org/P19-1226; reference code PaddlePaddle/models).

An encoder whose tokens take what they need of the concepts of knowledge bases, match each other, and find an answer
(see `knowledge_ktnet.py`). Padding is left out of the matching; the loss runs over all positions, as in the reference.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple
from transformers.utils.hub import cached_file

from .base_core import FamilyPreTrainedModel, arguments_of
from .composite_core import CompositeModel, EncoderUser, kept_states
from .concepts_ktnet import CONCEPTS_FILE, ConceptFinder, padded_concepts
from .configuration_ktnet import AUTO_MAP, HF_PTM_EXT_VERSION, KtNetConfig
from .encoder_core import refuse_unknown_arguments
from .knowledge_ktnet import KnowledgeMemoryLayer, SelfMatchingLayer
from .losses_core import value_outside
from .mask_contract_core import read_attention_mask, two_dimensional
from .task_heads_core import QuestionAnsweringHead

WHERE = ("subfolder", "revision", "token", "cache_dir", "local_files_only", "force_download")  # a file of a repository


class KtNetPreTrainedModel(CompositeModel, FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all KT-NET classes."""

    config: KtNetConfig
    config_class = KtNetConfig
    base_model_prefix = "ktnet"
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, KnowledgeMemoryLayer):
            init.zeros_(module.sentinel)
        elif isinstance(module, SelfMatchingLayer):
            bound = (6 / (1 + module.weight1.shape[0])) ** 0.5  # Xavier's of a column
            for weight in (module.weight1, module.weight2, module.weightmul):
                init.uniform_(weight, -bound, bound)
            init.zeros_(module.bias)

    def set_concept_table(self, name: str, table: Any) -> None:
        """Take the vectors of a knowledge base's concepts from a table.

        Args:
            name: of the knowledge base.
            table: `EntityTable`, or a matrix `(rows, width)` whose row 0 is padding.

        Raises:
            ValueError: there is no such knowledge base, or the sizes differ.
        """
        memories = self.base_model.memories
        if name not in memories:
            raise ValueError(f"`name` must be one of the knowledge bases {list(memories)}, got {name!r}.")
        own = memories[name].concept_embeddings.weight
        given: torch.Tensor = table if torch.is_tensor(table) else table.weight()
        if given.shape != own.shape:
            raise ValueError(f"`table` must have the shape {tuple(own.shape)} for `{name}`, got {tuple(given.shape)}.")
        with torch.no_grad():
            own.copy_(given)


class KtNetModel(KtNetPreTrainedModel):
    """Encoder, what tokens take of concepts, and the matching.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KtNetConfig, KtNetModel
        >>> tiny = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
        ...         "num_attention_heads": 4, "intermediate_size": 64}
        >>> model = KtNetModel(KtNetConfig(encoder_config=tiny, knowledge_bases={"wn": [10, 8]})).eval()
        >>> concepts = torch.tensor([[[0, 0], [4, 9], [4, 0], [0, 0]]])
        >>> model(torch.tensor([[2, 7, 8, 3]]), concept_ids=concepts).last_hidden_state.shape
        torch.Size([1, 4, 240])
    """

    def __init__(self, config: KtNetConfig):
        super().__init__(config)
        self.encoder = EncoderUser(config)
        bases: dict[str, Any] = config.knowledge_bases or {}
        self.memories = nn.ModuleDict(
            {name: KnowledgeMemoryLayer(config.hidden_size, *sizes) for name, sizes in bases.items()}
        )
        self.matching = SelfMatchingLayer(config.knowledge_size)
        self.freeze()
        self.post_init()

    def freeze(self) -> None:
        """Take the gradient from encoder and tables as the configuration says."""
        self.encoder.freeze()
        if self.config.freeze_concept_embeddings:
            for memory in self.memories.values():
                memory.concept_embeddings.requires_grad_(False)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        concept_ids: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
        inputs_embeds: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode, take and match.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding.
            token_type_ids: `(batch, seq_len)`; left out for encoders that have none.
            position_ids: `(batch, seq_len)`.
            concept_ids: rows of each table, 0 behind the last of a token, `(batch, seq_len, K, concepts)` for K
                knowledge bases in the config's order, `(batch, seq_len, concepts)` for a single one, or a mapping of
                names to these. Left out: no token has any.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            encoder_hidden_states: the encoder's last states, if they are known already, `(batch, seq_len, hidden)`.
            output_hidden_states: whether the encoder's states are returned, or which (default: the configuration's).
            output_attentions: whether the encoder's attention weights are returned, with eager attention.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state`, `(batch, seq_len, 6 * config.knowledge_size)`.

        Raises:
            ValueError: not exactly one of the inputs is given, or concepts do not fit the text or the tables.
            TypeError: a keyword argument that nothing reads.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, arguments_of(type(self)))
        text = next((one for one in (input_ids, inputs_embeds, encoder_hidden_states) if one is not None), None)
        if text is not None:
            attention_mask = read_attention_mask(self.config, attention_mask, text)
        states: tuple[torch.Tensor, ...] = ()
        attentions = None
        if encoder_hidden_states is None:
            states, attentions = self.encoder(
                bool(self.asked("output_attentions", output_attentions)),
                input_ids=input_ids,
                attention_mask=attention_mask,
                token_type_ids=token_type_ids,
                position_ids=position_ids,
                inputs_embeds=inputs_embeds,
            )
            encoder_hidden_states = states[-1]
        elif input_ids is not None or inputs_embeds is not None:
            raise ValueError(
                f"`encoder_hidden_states` {tuple(encoder_hidden_states.shape)} stand for the text: leave "
                "`input_ids` and `inputs_embeds` out."
            )
        concepts = self.concepts_of(concept_ids, encoder_hidden_states)
        taken = [memory(encoder_hidden_states, concepts[name]) for name, memory in self.memories.items()]
        joined = torch.cat([encoder_hidden_states, *taken], dim=-1)
        tokens = attention_mask if two_dimensional(attention_mask) else None
        return BaseModelOutput(
            last_hidden_state=self.matching(joined, tokens),
            hidden_states=kept_states(states, self.asked("output_hidden_states", output_hidden_states)),
            attentions=attentions,
        )

    def concepts_of(self, given: Any, states: torch.Tensor) -> dict[str, torch.Tensor]:
        """The concepts of each knowledge base, checked."""
        names, shape = list(self.memories), states.shape[:2]
        if given is None:
            given = dict.fromkeys(names, torch.zeros(*shape, 1, dtype=torch.long, device=states.device))
        elif torch.is_tensor(given):
            split = given.unbind(2) if given.dim() == 4 else [given]
            given = dict(zip(names, split, strict=False)) if len(split) == len(names) else {"": given}
        if set(given) != set(names) or any(one.dim() != 3 or one.shape[:2] != shape for one in given.values()):
            raise ValueError(
                f"`concept_ids` must be (batch, seq_len, {len(names)}, concepts) with (batch, seq_len) = "
                f"{tuple(shape)} and the knowledge bases {names}, or a mapping of them, got "
                f"{[(name, tuple(one.shape)) for name, one in given.items()]}."
            )
        for name, ids in given.items():
            memory: Any = self.memories[name]
            rows = memory.concept_embeddings.num_embeddings
            outside = value_outside(ids, rows)
            if outside is not None:
                raise ValueError(f"`concept_ids` of {name} must be 0 to {rows - 1}, rows of its table, got {outside}.")
        return {name: ids.to(states.device) for name, ids in given.items()}


class KtNetForQuestionAnswering(QuestionAnsweringHead, KtNetPreTrainedModel, encoder=KtNetModel):
    """KT-NET with start and end logits for extractive question answering.

    `from_encoder(CHECKPOINT, knowledge_bases=...)` begins with a trained encoder; concept tables are set by
    `set_concept_table`. `concepts`, knowledge base -> name -> rows of its table, are saved with it: by them the
    question-answering pipeline finds the concepts of a text.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KtNetConfig, KtNetForQuestionAnswering
        >>> tiny = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
        ...         "num_attention_heads": 4, "intermediate_size": 64}
        >>> model = KtNetForQuestionAnswering(KtNetConfig(encoder_config=tiny, knowledge_bases={"wn": [10, 8]}))
        >>> model.eval()(torch.tensor([[2, 7, 8, 3, 9, 3]])).start_logits.shape
        torch.Size([1, 6])
    """

    def __init__(self, config: KtNetConfig):
        super(QuestionAnsweringHead, self).__init__(config)
        self.add_encoder(pooled=False)
        self.qa_outputs = nn.Linear(config.output_size, 2)
        self.concepts: dict[str, dict[str, Sequence[int]]] | None = None
        self._finder: ConceptFinder | None = None
        self.post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Load as upstream does, with the concepts that were saved."""
        found = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        if pretrained_model_name_or_path is not None:
            where = {name: kwargs[name] for name in WHERE if name in kwargs}
            missing = dict.fromkeys(("missing_entries", "connection_errors", "gated_repo"), False)
            missing = {f"_raise_exceptions_for_{name}": value for name, value in missing.items()}
            file = cached_file(pretrained_model_name_or_path, CONCEPTS_FILE, **where, **missing)
            if file is not None:
                model = found[0] if isinstance(found, tuple) else found
                model.concepts = json.loads(Path(file).read_text(encoding="utf-8"))
        return found

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Save as upstream does, with the concepts."""
        super().save_pretrained(save_directory, *args, **kwargs)
        if self.concepts is not None and kwargs.get("is_main_process", True):
            text = json.dumps(self.concepts, ensure_ascii=False)
            Path(save_directory, CONCEPTS_FILE).write_text(text, encoding="utf-8")

    def inputs_beside(self, input_ids: torch.Tensor, tokenizer: Any) -> dict[str, torch.Tensor]:
        """What a pipeline gives beside the text: the concepts of each token."""
        if self.concepts is None:
            return {}
        if self._finder is None or self._finder.tokenizer is not tokenizer:
            self._finder = ConceptFinder(tokenizer, self.concepts)
        found = [self._finder.of_row(ids) for ids in input_ids.tolist()]
        return {"concept_ids": padded_concepts(found, input_ids.shape[1])}
