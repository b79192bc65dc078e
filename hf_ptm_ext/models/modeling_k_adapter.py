"""K-Adapter (Wang et al., Findings of ACL 2021, https://arxiv.org/abs/2002.01808; reference code microsoft/K-Adapter).

Adapters beside a frozen encoder, each trained alone and kept in a file of its own; a task reads them together:

    concat:  u_a = W_a [encoder; adapter_a],   u = W [u_1; u_2; ...]      (one adapter: u = u_1)
    add:     u = encoder + adapter_1 + adapter_2 + ...

Other than in the released code, padding is left out of the adapters' attention unless `respect_padding=False`, and a
frozen encoder runs without dropout.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .adapters_k_adapter import AdapterProjection, AdapterSizes, KnowledgeAdapter
from .base_core import FamilyPreTrainedModel, arguments_of
from .composite_core import CompositeModel, EncoderUser, kept_states
from .configuration_k_adapter import AUTO_MAP, HF_PTM_EXT_VERSION, KAdapterConfig
from .encoder_core import Attention, refuse_unknown_arguments
from .inputs_core import build_attention_mask
from .losses_core import classification_loss, problem_type_loss
from .mask_contract_core import read_attention_mask, refuse_learnt_tokens, two_dimensional
from .task_heads_core import QuestionAnsweringHead, TaskHead, TokenClassificationHead

ADAPTER_FILE = "k_adapter_{name}.safetensors"
# What an adapter's file says of itself, and a model must agree with.
ADAPTER_SIZES = (
    "hidden_size",
    "adapter_layers",
    "adapter_hidden_size",
    "adapter_num_hidden_layers",
    "adapter_num_attention_heads",
    "adapter_intermediate_size",
    "adapter_skip_layers",
    "respect_padding",
)


@dataclass
class KAdapterModelOutput(ModelOutput):
    """Output of `KAdapterModel`.

    `output.adapter_features` are the stacked features one by one. It is no field: generic code splits every field by
    rows.

    Args:
        last_hidden_state: encoder and adapters joined, `(batch, seq_len, hidden)`.
        stacked_features: `(batch, adapters, seq_len, hidden)`, in the order of `config.adapters`.
        hidden_states: the encoder's, if asked for, as `attentions`.
    """

    last_hidden_state: torch.Tensor | None = None
    stacked_features: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None

    def __getitem__(self, key: Any) -> Any:
        return self.adapter_features if key == "adapter_features" else super().__getitem__(key)

    @property
    def adapter_features(self) -> tuple[torch.Tensor, ...]:
        """Each adapter's features, `(batch, seq_len, hidden)`."""
        return self["stacked_features"].unbind(1)


class KAdapterPreTrainedModel(CompositeModel, FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all K-Adapter classes."""

    config: KAdapterConfig
    config_class = KAdapterConfig
    base_model_prefix = "k_adapter"
    _no_split_modules = ["EncoderLayer"]
    _auto_map = AUTO_MAP
    _has_converter = False
    _code_version = HF_PTM_EXT_VERSION

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, AdapterProjection):
            init.normal_(module.weight, mean=0.0, std=self.config.adapter_initializer_range)
            init.zeros_(module.bias)
        else:
            super()._init_weights(module)

    def save_adapter(self, folder: Any, name: str) -> str:
        """Write one adapter alone."""
        adapter = self._adapter(name)
        path = Path(folder) / ADAPTER_FILE.format(name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        state = {key: value.detach().cpu().contiguous() for key, value in adapter.state_dict().items()}
        save_file(state, str(partial), metadata={"sizes": json.dumps(self._adapter_sizes())})
        partial.replace(path)
        return str(path)

    def load_adapter_weights(self, folder: Any, name: str) -> None:
        """Read one adapter that `save_adapter` wrote; the rest of the model stays as it is."""
        adapter = self._adapter(name)
        path = Path(folder) / ADAPTER_FILE.format(name=name)
        if not path.is_file():
            raise ValueError(f"`folder` = {folder} has no {path.name}: `save_adapter` writes it.")
        with safe_open(str(path), framework="pt") as file:
            sizes = json.loads((file.metadata() or {}).get("sizes", "{}"))
        own = self._adapter_sizes()
        wrong = [field for field in ADAPTER_SIZES if sizes.get(field) != own[field]]
        if wrong:
            raise ValueError(
                f"The adapter in {path} does not fit this model: "
                + ", ".join(f"`{field}` is {sizes.get(field)} there and {own[field]} here" for field in wrong)
                + ". Build the configuration with the file's values."
            )
        adapter.load_state_dict(load_file(str(path)))

    def _adapter_sizes(self) -> dict[str, Any]:
        return {field: getattr(self.config, field) for field in ADAPTER_SIZES}

    def _adapter(self, name: str) -> nn.Module:
        adapters = self.base_model.adapters
        if name not in adapters:
            raise ValueError(f"`name` must be one of the adapters {list(adapters)}, got {name!r}.")
        return adapters[name]


class KAdapterModel(KAdapterPreTrainedModel):
    """Encoder, adapters and what joins them.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KAdapterConfig, KAdapterModel
        >>> tiny = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
        ...         "num_attention_heads": 4, "intermediate_size": 64}
        >>> config = KAdapterConfig(
        ...     encoder_config=tiny, adapters=["fac", "lin"], adapter_hidden_size=24, adapter_num_attention_heads=3,
        ...     adapter_intermediate_size=48,
        ... )
        >>> output = KAdapterModel(config).eval()(torch.tensor([[2, 7, 8, 3]]))
        >>> output.last_hidden_state.shape, len(output.adapter_features)
        (torch.Size([1, 4, 32]), 2)
    """

    def __init__(self, config: KAdapterConfig):
        super().__init__(config)
        width = config.hidden_size
        self.encoder = EncoderUser(config)
        self.adapters = nn.ModuleDict({name: KnowledgeAdapter(config) for name in config.adapters})
        if config.fusion == "concat":
            self.fusion = nn.ModuleDict({name: nn.Linear(2 * width, width) for name in config.adapters})
            if len(config.adapters) > 1:
                self.fusion_of_all = nn.Linear(len(config.adapters) * width, width)
        self.freeze()
        self.post_init()

    def freeze(self) -> None:
        """Take the gradient from encoder and adapters as the configuration says."""
        self.encoder.freeze()
        if self.config.freeze_adapters:
            self.adapters.requires_grad_(False)

    def train(self, mode: bool = True) -> "KAdapterModel":
        """As torch's; what is frozen stays in evaluation mode."""
        super().train(mode)
        if self.config.freeze_adapters:
            self.adapters.eval()
        return self

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        encoder_hidden_states: tuple[torch.Tensor, ...] | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> KAdapterModelOutput:
        """Encode, and read the states with every adapter.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding.
            token_type_ids: `(batch, seq_len)`; left out for encoders that have none.
            position_ids: `(batch, seq_len)`.
            inputs_embeds: `(batch, seq_len, hidden)` instead of `input_ids`.
            encoder_hidden_states: all hidden states of the encoder, if they are known already: embeddings and each
                layer's output, `(batch, seq_len, hidden)` each.
            output_hidden_states: whether the encoder's states are returned, or which (default: the configuration's).
            output_attentions: whether the encoder's attention weights are returned, with eager attention.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            See `KAdapterModelOutput`.

        Raises:
            ValueError: not exactly one of the inputs is given, or not all hidden states.
            TypeError: a keyword argument that nothing reads.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, arguments_of(type(self)))
        text = inputs_embeds if input_ids is None else input_ids
        if text is None and encoder_hidden_states:
            text = encoder_hidden_states[0]
        if text is not None:
            attention_mask = read_attention_mask(self.config, attention_mask, text)
        attentions = None
        if encoder_hidden_states is None:
            encoder_hidden_states, attentions = self.encoder(
                bool(self.asked("output_attentions", output_attentions)),
                input_ids=input_ids,
                attention_mask=attention_mask,
                token_type_ids=token_type_ids,
                position_ids=position_ids,
                inputs_embeds=inputs_embeds,
            )
        elif input_ids is not None or inputs_embeds is not None:
            raise ValueError("`encoder_hidden_states` stand for the text: leave `input_ids` and `inputs_embeds` out.")
        elif output_attentions:
            raise ValueError(
                f"`output_attentions` needs the text, got {output_attentions}: `encoder_hidden_states` come without."
            )
        if len(encoder_hidden_states) != self.config.num_hidden_layers + 1:
            raise ValueError(
                f"`encoder_hidden_states` must be {self.config.num_hidden_layers + 1}, the embeddings and every "
                f"layer's output, got {len(encoder_hidden_states)}."
            )
        features = tuple(adapter(encoder_hidden_states, attention_mask) for adapter in self.adapters.values())
        return KAdapterModelOutput(
            last_hidden_state=self.join(encoder_hidden_states[-1], features),
            stacked_features=torch.stack(features, dim=1),
            hidden_states=kept_states(encoder_hidden_states, self.asked("output_hidden_states", output_hidden_states)),
            attentions=attentions,
        )

    def join(self, encoded: torch.Tensor, features: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Join the encoder's last states with the adapters' features, in the order of `config.adapters`."""
        if self.config.fusion == "add":
            return encoded + sum(features)
        joined = [
            layer(torch.cat([encoded, one], dim=-1)) for layer, one in zip(self.fusion.values(), features, strict=True)
        ]
        return joined[0] if len(joined) == 1 else self.fusion_of_all(torch.cat(joined, dim=-1))


class _Classifier(nn.Module):
    """A linear layer, dropout, and the classes, without an activation between, as released."""

    def __init__(self, config: KAdapterConfig, input_size: int, classes: Any):
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.out_proj = nn.Linear(config.hidden_size, classes)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(..., input_size)` to `(..., classes)`."""
        return self.out_proj(self.dropout(self.dense(states)))


def rows_at(states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The state of one token of each text."""
    return states[torch.arange(states.shape[0], device=states.device), positions]


class KAdapterForRelationClassification(TaskHead, KAdapterPreTrainedModel, encoder=KAdapterModel):
    """The "fac" adapter's objective: which relation holds between two marked entities.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KAdapterConfig, KAdapterForRelationClassification
        >>> tiny = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
        ...         "num_attention_heads": 4, "intermediate_size": 64}
        >>> config = KAdapterConfig(
        ...     encoder_config=tiny, adapter_hidden_size=24, adapter_num_attention_heads=3,
        ...     adapter_intermediate_size=48, relation_markers=[50, 51], num_labels=5,
        ... )
        >>> ids = torch.tensor([[2, 50, 7, 51, 8, 3]])  # subject and object behind their markers
        >>> KAdapterForRelationClassification(config).eval()(ids, labels=torch.tensor([4])).logits.shape
        torch.Size([1, 5])
    """

    def __init__(self, config: KAdapterConfig):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.classifier = _Classifier(config, 2 * config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self,
        subject_positions: torch.Tensor | None = None,
        object_positions: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            subject_positions: place of the subject's marker, `(batch,)` (default: the first token that is
                `config.relation_markers[0]`).
            object_positions: place of the object's marker, `(batch,)`.
            labels: relations, `(batch,)`, or `(batch, num_labels)` numbers for several at once; -100 ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            inputs: as in `KAdapterModel`.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.

        Raises:
            ValueError: the places are neither given nor marked.
        """
        given = {"subject_positions": subject_positions, "object_positions": object_positions}
        refuse_learnt_tokens(self, inputs.get("attention_mask"), inputs.get("inputs_embeds"), **given)
        outputs = self.encode(**inputs)
        markers = self.config.relation_markers or (None, None)
        places = [
            marked_positions(positions, inputs.get("input_ids"), marker, name)
            for (name, positions), marker in zip(given.items(), markers, strict=True)
        ]
        pair = torch.cat([rows_at(outputs.last_hidden_state, place) for place in places], dim=-1)
        logits = self.classifier(pair)
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return self.head_output(SequenceClassifierOutput, outputs, loss=loss, logits=logits)


def marked_positions(
    given: torch.Tensor | None, input_ids: torch.Tensor | None, marker: int | None, name: str
) -> torch.Tensor:
    """Where the first marker of each text is."""
    if given is not None:
        return given
    if input_ids is None or marker is None:
        raise ValueError(
            f"`{name}` must be given, or `config.relation_markers` name the tokens before subject and object."
        )
    found = input_ids == marker
    if not torch.compiler.is_compiling() and not bool(found.any(dim=1).all()):
        raise ValueError(f"`{name}`: a text has no token {marker}, the marker of `config.relation_markers`.")
    return found.long().argmax(dim=1)


class KAdapterForDependencyHeads(TaskHead, KAdapterPreTrainedModel, encoder=KAdapterModel):
    """The "lin" adapter's objective: the place of each token's syntactic head, a class for each place.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KAdapterConfig, KAdapterForDependencyHeads
        >>> tiny = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
        ...         "num_attention_heads": 4, "intermediate_size": 64}
        >>> config = KAdapterConfig(
        ...     encoder_config=tiny, adapters=["lin"], adapter_hidden_size=24, adapter_num_attention_heads=3,
        ...     adapter_intermediate_size=48, max_head_positions=16,
        ... )
        >>> KAdapterForDependencyHeads(config).eval()(torch.tensor([[2, 7, 8, 3]])).logits.shape
        torch.Size([1, 4, 16])
    """

    def __init__(self, config: KAdapterConfig):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.attention = Attention(AdapterSizes(config, config.hidden_size, 1), 0)  # one head, as wide as the encoder
        self.classifier = _Classifier(config, config.hidden_size, config.max_head_positions)
        self.post_init()

    def forward(
        self, labels: torch.Tensor | None = None, num_items_in_batch: torch.Tensor | int | None = None, **inputs: Any
    ) -> TokenClassifierOutput:
        """Predict heads.

        Args:
            labels: place of each token's head, `(batch, seq_len)`; -100 and padding are ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            inputs: as in `KAdapterModel`.

        Returns:
            `loss` and `logits` `(batch, seq_len, max_head_positions)`.
        """
        outputs = self.encode(**inputs)
        states = outputs.last_hidden_state
        attention_mask = read_attention_mask(self.config, inputs.get("attention_mask"), states)
        mask = build_attention_mask(self.config, states, attention_mask, None)
        logits = self.classifier(self.attention(states, mask))
        loss = None
        if labels is not None:
            real = labels.masked_fill(~attention_mask, -100) if two_dimensional(attention_mask) else labels
            loss = classification_loss(logits, real, num_items_in_batch)
        return self.head_output(TokenClassifierOutput, outputs, loss=loss, logits=logits)


class KAdapterForSequenceClassification(TaskHead, KAdapterPreTrainedModel, encoder=KAdapterModel):
    """A class for a text, or for the entity that is marked in it (entity typing: `problem_type` multi-label).

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import KAdapterConfig, KAdapterForSequenceClassification
        >>> tiny = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        >>> model = KAdapterForSequenceClassification(KAdapterConfig(encoder_config=tiny))
        >>> model(torch.tensor([[2, 7, 8, 3]])).logits.shape
        torch.Size([1, 2])
    """

    def __init__(self, config: KAdapterConfig):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.classifier = _Classifier(config, config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self,
        entity_positions: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            entity_positions: place of the entity's marker, `(batch,)` (default: each text's first token).
            labels: classes `(batch,)`, or `(batch, num_labels)` numbers for several at once; -100 ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            inputs: as in `KAdapterModel`.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.
        """
        attention_mask = inputs.get("attention_mask")
        refuse_learnt_tokens(self, attention_mask, inputs.get("inputs_embeds"), entity_positions=entity_positions)
        outputs = self.encode(**inputs)
        states = outputs.last_hidden_state
        if entity_positions is None:
            entity_positions = (
                (attention_mask != 0).long().argmax(dim=1)
                if two_dimensional(attention_mask)
                else torch.zeros(states.shape[0], dtype=torch.long, device=states.device)
            )
        logits = self.classifier(rows_at(states, entity_positions))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return self.head_output(SequenceClassifierOutput, outputs, loss=loss, logits=logits)


class KAdapterForTokenClassification(TokenClassificationHead, KAdapterPreTrainedModel, encoder=KAdapterModel):
    """A class for every token."""


class KAdapterForQuestionAnswering(QuestionAnsweringHead, KAdapterPreTrainedModel, encoder=KAdapterModel):
    """First and last token of an answer."""
