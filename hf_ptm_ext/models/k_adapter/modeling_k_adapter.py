"""K-Adapter (Wang et al., Findings of ACL 2021, https://arxiv.org/abs/2002.01808; reference code microsoft/K-Adapter).

Knowledge is put into small networks beside an encoder that stays as it is. Each adapter is trained alone with an
objective of its own, relations between entities (`KAdapterForRelationClassification`) or syntactic heads
(`KAdapterForDependencyHeads`), and kept in a file of its own; a task then reads encoder and adapters together:

    concat:  u_a = W_a [encoder; adapter_a],   u = W [u_1; u_2; ...]      (one adapter: u = u_1)
    add:     u = encoder + adapter_1 + adapter_2 + ...

Any encoder of transformers will do; the released weights stand on RoBERTa-large. What differs from the released code:
padding is left out of the adapters' attention unless `respect_padding=False`; a frozen encoder runs without dropout.
"""

import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import (
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .adapters_k_adapter import AdapterProjection, KnowledgeAdapter
from .composite_k_adapter import KAdapterComposite, KAdapterEncoderUser, kept_states, recorded
from .configuration_k_adapter import AUTO_MAP, HF_PTM_EXT_VERSION, KAdapterConfig
from .encoder_k_adapter import KAdapterSelfAttention, KAdapterSelfOutput, refuse_unknown_arguments
from .heads_k_adapter import classification_loss, problem_type_loss, span_extraction_loss
from .loading_k_adapter import KAdapterLoading
from .mask_contract_k_adapter import read_attention_mask, refuse_learnt_tokens, two_dimensional
from .masks_k_adapter import build_attention_mask

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

    `output.adapter_features` are the stacked features one by one, `(batch, seq_len, hidden)` each. It is no field:
    generic code splits every field by rows.

    Args:
        last_hidden_state: encoder and adapters joined, `(batch, seq_len, hidden)`.
        stacked_features: each adapter's features, `(batch, adapters, seq_len, hidden)`, in the order of
            `config.adapters`.
        hidden_states: the encoder's, if asked for.
        attentions: the encoder's, if asked for.
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
        return self.stacked_features.unbind(1)


class KAdapterPreTrainedModel(KAdapterComposite, KAdapterLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all K-Adapter classes."""

    config: KAdapterConfig
    config_class = KAdapterConfig
    base_model_prefix = "k_adapter"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = False
    _supports_flex_attn = False
    _supports_attention_backend = True
    _no_split_modules = ["KAdapterLayer"]
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
        """Write one adapter alone.

        Args:
            folder: where to.
            name: one of `config.adapters`.

        Returns:
            Path of the file.

        Raises:
            ValueError: there is no adapter of this name.
        """
        adapter = self._adapter(name)
        path = Path(folder) / ADAPTER_FILE.format(name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        state = {key: value.detach().cpu().contiguous() for key, value in adapter.state_dict().items()}
        save_file(state, str(partial), metadata={"sizes": json.dumps(self._adapter_sizes())})
        partial.replace(path)
        return str(path)

    def load_adapter_weights(self, folder: Any, name: str) -> None:
        """Read one adapter that `save_adapter` wrote; the rest of the model stays as it is.

        Args:
            folder: where from.
            name: one of `config.adapters`.

        Raises:
            ValueError: there is no adapter or file of this name, or the file's adapter has other sizes.
        """
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

    Args:
        config: the configuration.

    Example:
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
        self.encoder = KAdapterEncoderUser(config)
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

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.model.set_input_embeddings(value)

    def train(self, mode: bool = True) -> "KAdapterModel":
        """As torch's; what is frozen stays in evaluation mode.

        Args:
            mode: whether to train.

        Returns:
            Itself.
        """
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
            refuse_unknown_arguments(type(self).__name__, kwargs, MODEL_ARGUMENTS)
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
            raise ValueError("`output_attentions` needs the text: `encoder_hidden_states` come without attentions.")
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
        """Join the encoder's last states with the adapters' features.

        Args:
            encoded: `(batch, seq_len, hidden)`.
            features: each adapter's, in the order of `config.adapters`.

        Returns:
            `(batch, seq_len, hidden)`.
        """
        if self.config.fusion == "add":
            return encoded + sum(features)
        joined = [
            layer(torch.cat([encoded, one], dim=-1)) for layer, one in zip(self.fusion.values(), features, strict=True)
        ]
        return joined[0] if len(joined) == 1 else self.fusion_of_all(torch.cat(joined, dim=-1))


MODEL_ARGUMENTS = tuple(inspect.signature(KAdapterModel.forward).parameters)


class _Classifier(nn.Module):
    """A linear layer, dropout, and the classes, without an activation between, as released.

    Args:
        config: the configuration.
        input_size: width of what is read.
        classes: number of classes.
    """

    def __init__(self, config: KAdapterConfig, input_size: int, classes: int):
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.out_proj = nn.Linear(config.hidden_size, classes)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(..., input_size)` to `(..., classes)`."""
        return self.out_proj(self.dropout(self.dense(states)))


def rows_at(states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The state of one token of each text.

    Args:
        states: `(batch, seq_len, hidden)`.
        positions: `(batch,)`.

    Returns:
        `(batch, hidden)`.
    """
    return states[torch.arange(states.shape[0], device=states.device), positions]


class KAdapterForRelationClassification(KAdapterPreTrainedModel):
    """The "fac" adapter's objective: which relation holds between two marked entities.

    Args:
        config: the configuration; `num_labels` relations.

    Example:
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
        self.k_adapter = KAdapterModel(config)
        self.classifier = _Classifier(config, 2 * config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        subject_positions: torch.Tensor | None = None,
        object_positions: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: as in `KAdapterModel`.
            attention_mask: as in `KAdapterModel`.
            token_type_ids: as in `KAdapterModel`.
            position_ids: as in `KAdapterModel`.
            inputs_embeds: as in `KAdapterModel`.
            subject_positions: place of the subject's marker, `(batch,)` (default: the first token that is
                `config.relation_markers[0]`).
            object_positions: place of the object's marker, `(batch,)`.
            labels: relations, `(batch,)`, or `(batch, num_labels)` numbers for several at once; -100 ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            kwargs: as in `KAdapterModel`.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.

        Raises:
            ValueError: the places are neither given nor marked.
        """
        refuse_learnt_tokens(
            self,
            attention_mask,
            inputs_embeds,
            subject_positions=subject_positions,
            object_positions=object_positions,
        )
        output = self.k_adapter(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        markers = self.config.relation_markers or (None, None)
        places = [
            marked_positions(given, input_ids, marker, name)
            for given, marker, name in zip(
                (subject_positions, object_positions), markers, ("subject_positions", "object_positions"), strict=True
            )
        ]
        pair = torch.cat([rows_at(output.last_hidden_state, place) for place in places], dim=-1)
        logits = self.classifier(pair)
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, **recorded(output))


def marked_positions(
    given: torch.Tensor | None, input_ids: torch.Tensor | None, marker: int | None, name: str
) -> torch.Tensor:
    """Where the first marker of each text is.

    Args:
        given: the places, if they are known.
        input_ids: `(batch, seq_len)`.
        marker: the marker's id.
        name: of the argument, for the message.

    Returns:
        `(batch,)`.

    Raises:
        ValueError: neither places nor a marker in every text.
    """
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


class _SyntacticBlock(nn.Module):
    """One attention block over the whole width, in BERT's names.

    Args:
        config: the configuration.
    """

    def __init__(self, config: KAdapterConfig):
        super().__init__()
        sizes = _HeadSizes(config)
        self.self = KAdapterSelfAttention(sizes, 0)
        self.output = KAdapterSelfOutput(sizes, config.hidden_size)

    def forward(self, states: torch.Tensor, mask: Any) -> torch.Tensor:
        """`(batch, seq_len, hidden)` to the same shape."""
        context, _ = self.self(states, mask)
        return self.output(context, states)


class _HeadSizes:
    """Sizes of that block: one head as wide as the encoder."""

    def __init__(self, config: KAdapterConfig):
        self.whole = config
        self.hidden_size = config.hidden_size
        self.num_attention_heads = 1
        self.attention_probs_dropout_prob = config.adapter_dropout
        self.hidden_dropout_prob = config.adapter_dropout
        self.layer_norm_eps = config.layer_norm_eps

    @property
    def _attn_implementation(self) -> str:
        return str(self.whole._attn_implementation)


class KAdapterForDependencyHeads(KAdapterPreTrainedModel):
    """The "lin" adapter's objective: the place of each token's syntactic head, a class for each place.

    Args:
        config: the configuration; `max_head_positions` classes.

    Example:
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
        self.k_adapter = KAdapterModel(config)
        self.attention = _SyntacticBlock(config)
        self.classifier = _Classifier(config, config.hidden_size, config.max_head_positions)
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
    ) -> TokenClassifierOutput:
        """Predict heads.

        Args:
            input_ids: as in `KAdapterModel`.
            attention_mask: as in `KAdapterModel`.
            token_type_ids: as in `KAdapterModel`.
            position_ids: as in `KAdapterModel`.
            inputs_embeds: as in `KAdapterModel`.
            labels: place of each token's head, `(batch, seq_len)`; -100 and padding are ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            kwargs: as in `KAdapterModel`.

        Returns:
            `loss` and `logits` `(batch, seq_len, max_head_positions)`.
        """
        output = self.k_adapter(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        states = output.last_hidden_state
        attention_mask = read_attention_mask(self.config, attention_mask, states)
        mask = build_attention_mask(self.config, states, attention_mask, None)
        logits = self.classifier(self.attention(states, mask))
        loss = None
        if labels is not None:
            real = labels.masked_fill(~attention_mask, -100) if two_dimensional(attention_mask) else labels
            loss = classification_loss(logits, real, num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits, **recorded(output))


class KAdapterForSequenceClassification(KAdapterPreTrainedModel):
    """A class for a text, or for the entity that is marked in it (entity typing: `problem_type` multi-label).

    Args:
        config: the configuration.
    """

    def __init__(self, config: KAdapterConfig):
        super().__init__(config)
        self.k_adapter = KAdapterModel(config)
        self.classifier = _Classifier(config, config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        entity_positions: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: as in `KAdapterModel`.
            attention_mask: as in `KAdapterModel`.
            token_type_ids: as in `KAdapterModel`.
            position_ids: as in `KAdapterModel`.
            inputs_embeds: as in `KAdapterModel`.
            entity_positions: place of the entity's marker, `(batch,)` (default: each text's first token).
            labels: classes `(batch,)`, or `(batch, num_labels)` numbers for several at once; -100 ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            kwargs: as in `KAdapterModel`.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.
        """
        refuse_learnt_tokens(self, attention_mask, inputs_embeds, entity_positions=entity_positions)
        output = self.k_adapter(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        states = output.last_hidden_state
        if entity_positions is None:
            entity_positions = (
                (attention_mask != 0).long().argmax(dim=1)
                if two_dimensional(attention_mask)
                else torch.zeros(states.shape[0], dtype=torch.long, device=states.device)
            )
        logits = self.classifier(rows_at(states, entity_positions))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, **recorded(output))


class KAdapterForTokenClassification(KAdapterPreTrainedModel):
    """A class for every token.

    Args:
        config: the configuration.
    """

    def __init__(self, config: KAdapterConfig):
        super().__init__(config)
        self.k_adapter = KAdapterModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
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
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Classify tokens.

        Args:
            input_ids: as in `KAdapterModel`.
            attention_mask: as in `KAdapterModel`.
            token_type_ids: as in `KAdapterModel`.
            position_ids: as in `KAdapterModel`.
            inputs_embeds: as in `KAdapterModel`.
            labels: `(batch, seq_len)`, -100 ignored.
            num_items_in_batch: labels over all micro-batches of an update.
            kwargs: as in `KAdapterModel`.

        Returns:
            `loss` and `logits` `(batch, seq_len, num_labels)`.
        """
        output = self.k_adapter(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(self.dropout(output.last_hidden_state))
        loss = None if labels is None else classification_loss(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits, **recorded(output))


class KAdapterForQuestionAnswering(KAdapterPreTrainedModel):
    """First and last token of an answer.

    Args:
        config: the configuration.
    """

    def __init__(self, config: KAdapterConfig):
        super().__init__(config)
        self.k_adapter = KAdapterModel(config)
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
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Find answers.

        Args:
            input_ids: as in `KAdapterModel`.
            attention_mask: as in `KAdapterModel`.
            token_type_ids: as in `KAdapterModel`.
            position_ids: as in `KAdapterModel`.
            inputs_embeds: as in `KAdapterModel`.
            start_positions: `(batch,)`; places outside the row are ignored.
            end_positions: `(batch,)`.
            num_items_in_batch: labels over all micro-batches of an update.
            kwargs: as in `KAdapterModel`.

        Returns:
            `loss`, `start_logits` and `end_logits` `(batch, seq_len)`.
        """
        output = self.k_adapter(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        start_logits, end_logits = self.qa_outputs(output.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_extraction_loss(start_logits, end_logits, start_positions, end_positions)
        return QuestionAnsweringModelOutput(
            loss=loss, start_logits=start_logits, end_logits=end_logits, **recorded(output)
        )


__all__ = [
    "KAdapterForDependencyHeads",
    "KAdapterForQuestionAnswering",
    "KAdapterForRelationClassification",
    "KAdapterForSequenceClassification",
    "KAdapterForTokenClassification",
    "KAdapterModel",
    "KAdapterPreTrainedModel",
]
