"""Transformer-XL (Dai et al. 2019, https://arxiv.org/abs/1901.02860; code kimiyoung/transformer-xl, transformers 4).

A language model over segments of a text: the states of the segment before are a memory that each layer attends to,

    score(i, j) = ((q_i + u) k_j + (q_i + v) r_{i-j}) / sqrt(d_head)

with r of the distance, so that positions mean the same in every segment. Names of weights are those of transformers 4.
Other than there: padding on either side changes nothing, token losses are in the order of the tokens, and a memory may
begin empty as in the paper (`config.initial_memory`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .adaptive_transfo_xl import AdaptiveEmbedding, AdaptiveSoftmax
from .base_core import FamilyPreTrainedModel, arguments_of
from .carried_state_core import CarriedStateGeneration
from .configuration_transfo_xl import AUTO_MAP, HF_PTM_EXT_VERSION, TransfoXLConfig
from .encoder_core import refuse_unknown_arguments
from .layers_transfo_xl import TransfoXLAttention, TransfoXLLayer, TransfoXLPositions
from .losses_core import problem_type_loss
from .task_heads_core import TaskHead

Memory = Sequence[torch.Tensor]


@dataclass
class TransfoXLModelOutput(ModelOutput):
    """States of the last layer, and the memory for the next segment.

    Args:
        last_hidden_state: `(batch, seq_len, d_model)`, 0 at padding.
        mems: inputs of each layer at the last `mem_len` places, `(mem_len, batch, d_model)`, detached; empty with
            `mem_len` 0, None with `use_cache=False`.
        mem_lengths: `(batch,)`, how many of them are real, from the end; None if no mask was ever given: all are.
        hidden_states: embeddings and states behind each layer.
        attentions: `(batch, n_head, seq_len, memory + seq_len)` of each layer.
    """

    last_hidden_state: torch.Tensor | None = None
    mems: list[torch.Tensor] | None = None
    mem_lengths: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class TransfoXLLMHeadModelOutput(ModelOutput):
    """Predictions of the next words, and the memory for the next segment.

    Args:
        loss: mean of `losses` over the labels.
        logits: LOG-probabilities of all words, `(batch, seq_len, vocab_size)`; None with labels while training.
        losses: of each label, in the order of the text, `(batch, seq_len - 1)` or as `shift_labels`; 0 without one.
        mems, mem_lengths, hidden_states, attentions: as in `TransfoXLModelOutput`.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    losses: torch.Tensor | None = None
    mems: list[torch.Tensor] | None = None
    mem_lengths: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None

    @property
    def prediction_scores(self) -> torch.Tensor | None:
        """The name of `logits` in transformers 4."""
        return self.logits


class TransfoXLPreTrainedModel(FamilyPreTrainedModel):
    """Loading, saving, initialisation and resizing shared by all Transformer-XL classes."""

    config: TransfoXLConfig
    config_class = TransfoXLConfig
    base_model_prefix = "transformer"
    # What `BpttTrainer` hands from segment to segment.
    carried_state = "mems"
    _supports_flex_attn = False
    _supports_attention_backend = False
    _can_compile_fullgraph = False
    _can_record_outputs = None
    _no_split_modules = ["TransfoXLLayer"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _layer_stacks = ("layers",)
    _input_parts = ("word_emb.",)
    _prediction_heads = {"crit": "adaptive softmax"}
    _keys_to_ignore_on_load_unexpected = [r"pos_emb\.inv_freq$"]
    _example_sizes = "vocab_size=60, cutoffs=[20], d_model=32, n_layer=2, n_head=4, d_inner=64, mem_len=8"

    def __init__(self, config: TransfoXLConfig, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        prefix = "" if isinstance(self, TransfoXLModel) else f"{self.base_model_prefix}."
        self._tied_weights_keys: Any = {}
        if not config.untie_r:
            self._tied_weights_keys = {
                f"{prefix}layers.{layer}.dec_attn.{name}": f"{prefix}{name}"
                for layer in range(config.n_layer)
                for name in ("r_w_bias", "r_r_bias")
            }

    def _init_weights(self, module: nn.Module) -> None:
        config = self.config
        if isinstance(module, nn.Linear | nn.Embedding):
            self._draw(module.weight)
            if isinstance(module, nn.Linear) and module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            init.normal_(module.weight, 1.0, config.init_std)
            init.zeros_(module.bias)
        elif isinstance(module, nn.ParameterList):  # of a cluster's projections
            for projection in module:
                init.normal_(projection, 0.0, config.proj_init_std)
        elif isinstance(module, AdaptiveSoftmax) and len(module.clusters) > 1:
            self._draw(module.cluster_weight)
            init.zeros_(module.cluster_bias)
        elif isinstance(module, TransfoXLAttention) or (isinstance(module, TransfoXLModel) and not config.untie_r):
            self._draw(module.r_w_bias)
            self._draw(module.r_r_bias)

    def _draw(self, weight: torch.Tensor) -> None:
        if self.config.init == "uniform":
            init.uniform_(weight, -self.config.init_range, self.config.init_range)
        else:
            init.normal_(weight, 0.0, self.config.init_std)

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels)
        # Projections and biases are shared whatever `tie_word_embeddings` is.
        words = self.config.tie_word_embeddings
        return {
            name: source for name, source in self._tied_weights_keys.items() if words or ".out_layers." not in name
        }

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.word_emb

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.word_emb = value

    def new_encoder(self, config: TransfoXLConfig, pooled: bool) -> nn.Module:
        """A head's model."""
        return self._encoder_class(config)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> Any:
        """As upstream; words come and go at the end of the last cluster."""
        multiple = pad_to_multiple_of or 1
        size = -(-(self.config.vocab_size if new_num_tokens is None else new_num_tokens) // multiple) * multiple
        first = self.config.clusters[-1][0]
        if size <= first:
            raise ValueError(f"`new_num_tokens` must leave words in the last cluster, more than {first}, got {size}.")
        softmax = getattr(self, "crit", None)
        embeddings = self.base_model.word_emb
        rows = size if self.config.div_val == 1 else size - first
        tables = [(embeddings.emb_layers, nn.Embedding)] + (
            [] if softmax is None else [(softmax.out_layers, nn.Linear)]
        )
        for layers, _ in tables:
            resize = self._get_resized_embeddings if layers is embeddings.emb_layers else self._get_resized_lm_head
            layers[-1] = resize(layers[-1], rows, mean_resizing=mean_resizing)
        self.config.vocab_size = size
        for part in (embeddings, softmax):
            if part is not None:
                part.clusters = self.config.clusters
        self.tie_weights()
        return embeddings


class TransfoXLModel(TransfoXLPreTrainedModel):
    """The layers without a head.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import TransfoXLConfig, TransfoXLModel
        >>> sizes = {"vocab_size": 60, "cutoffs": [20], "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}
        >>> model = TransfoXLModel(TransfoXLConfig(**sizes, mem_len=8)).eval()
        >>> first = model(torch.tensor([[2, 7, 8, 3]]))
        >>> second = model(torch.tensor([[5, 9]]), mems=first.mems)
        >>> second.last_hidden_state.shape, len(second.mems), second.mems[0].shape
        (torch.Size([1, 2, 32]), 2, torch.Size([8, 1, 32]))
    """

    def __init__(self, config: TransfoXLConfig):
        super().__init__(config)
        self.word_emb = AdaptiveEmbedding(config)
        self.pos_emb = TransfoXLPositions(config.d_model)
        self.drop = nn.Dropout(config.dropout)
        biases: Any = None
        if not config.untie_r:
            shape: Any = (config.n_head, config.d_head)
            biases = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape))
            self.r_w_bias, self.r_r_bias = biases
        self.layers = nn.ModuleList([TransfoXLLayer(config, biases) for _ in range(config.n_layer)])
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        mems: Memory | None = None,
        mem_lengths: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> TransfoXLModelOutput:
        """Read a segment of each text.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding, on either side (default: no padding).
            inputs_embeds: `(batch, seq_len, d_model)` instead of `input_ids`; they are not scaled.
            mems: `mems` of the segment before; left out, the text begins (`config.initial_memory`).
            mem_lengths: `mem_lengths` of the segment before.
            use_cache: False returns no memory (default: True).
            output_hidden_states: whether embeddings and every layer's states are returned (default: the config's).
            output_attentions: whether attention weights are (default: the config's).
            kwargs: `return_dict` and the like as upstream; others are refused.

        Returns:
            A `TransfoXLModelOutput`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, a mask that is none of tokens, or a memory
                of other layers, rows or width.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, arguments_of(type(self)))
        if (input_ids is None) == (inputs_embeds is None):
            got = "neither" if input_ids is None else "both"
            raise ValueError(f"Exactly one of `input_ids` and `inputs_embeds` must be given, got {got}.")
        with_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        with_weights = self.config.output_attentions if output_attentions is None else output_attentions
        states = self.drop(self.word_emb(input_ids) if inputs_embeds is None else inputs_embeds)
        order, lengths = self._order(states, attention_mask)
        if order is not None:
            states = moved(states, order)
        memories, mem_lengths = self._memory(states, mems, mem_lengths)
        before = 0 if memories is None else memories[0].shape[1]
        hidden, positions = self._distances(states, before, mem_lengths)
        positions = self.drop(positions)
        inputs, seen = [], []
        for number, layer in enumerate(self.layers):
            inputs.append(states)
            memory = None if memories is None else memories[number]
            states, weights = layer(states, memory, positions, hidden, with_weights)
            seen.append(weights)
        states = self.drop(states)
        inputs.append(states)
        new_mems, new_lengths = None, None
        if use_cache is not False:
            new_mems, new_lengths = self._updated(memories, inputs[:-1], mem_lengths, lengths)
            if new_lengths is None and new_mems and attention_mask is not None:
                new_lengths = torch.full_like(attention_mask[:, 0], len(new_mems[0]), dtype=torch.long)
        if order is not None and attention_mask is not None:
            back, real = order.argsort(dim=1), attention_mask[..., None].to(states.dtype)
            inputs = [moved(one, back) * real for one in inputs]
        return TransfoXLModelOutput(
            last_hidden_state=inputs[-1],
            mems=new_mems,
            mem_lengths=new_lengths,
            hidden_states=tuple(inputs) if with_states else None,
            attentions=tuple(seen) if with_weights else None,
        )

    def _order(self, states: torch.Tensor, mask: torch.Tensor | None) -> tuple[Any, Any]:
        """The order with padding at the end, where no token sees it, and how many tokens rows have."""
        if mask is None:
            return None, None
        if not torch.is_tensor(mask) or mask.shape != states.shape[:2]:
            shape = tuple(mask.shape) if torch.is_tensor(mask) else type(mask).__name__
            raise ValueError(f"`attention_mask` must be (batch, seq_len) = {tuple(states.shape[:2])}, got {shape}.")
        real = mask != 0
        if not torch.compiler.is_compiling() and real.device.type == "cpu" and bool(real.all()):
            return None, None
        return (~real).to(torch.int8).argsort(dim=1, stable=True), real.sum(dim=1)

    def _memory(self, states: torch.Tensor, mems: Memory | None, lengths: torch.Tensor | None) -> tuple[Any, Any]:
        """The memory of each layer, `(batch, memory, d_model)`, and how many of its places are real."""
        config = self.config
        if not mems:
            if config.initial_memory == "empty" or not config.mem_len:
                return None, None
            return [states.new_zeros(states.shape[0], config.mem_len, config.d_model)] * config.n_layer, None
        shapes = {(one.shape[0], states.shape[0], config.d_model) == tuple(one.shape) for one in mems}
        if len(mems) != config.n_layer or shapes != {True}:
            raise ValueError(
                f"`mems` must be {config.n_layer} tensors (memory, batch = {states.shape[0]}, {config.d_model}), got "
                f"{[tuple(one.shape) for one in mems]}. Begin anew (`mems=None`) where rows are other texts."
            )
        return [one.transpose(0, 1).to(states.dtype) for one in mems], lengths

    def _distances(
        self, states: torch.Tensor, before: int, mem_lengths: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Which keys each query does not see, and embeddings of distances, farthest first."""
        config, keys = self.config, before + states.shape[1]
        places = torch.arange(keys, device=states.device)
        distance = places[before:, None] - places
        hidden = distance < 0
        if config.same_length and config.mem_len:
            hidden = hidden | (distance >= config.mem_len)
        if mem_lengths is not None:
            hidden = hidden | (places < before - mem_lengths[:, None])[:, None, None]
        away = places.flip(0).float()
        if config.clamp_len > 0:
            away = away.clamp(max=config.clamp_len)
        return hidden, self.pos_emb(away).to(states.dtype)

    def _updated(
        self, memories: Any, inputs: list[torch.Tensor], mem_lengths: Any, lengths: Any
    ) -> tuple[list[torch.Tensor], Any]:
        """The last `mem_len` places of memory and segment; padding, at a segment's end, is left out."""
        if not self.config.mem_len:
            return [], None
        before = 0 if memories is None else memories[0].shape[1]
        batch, queries = inputs[0].shape[:2]
        size = min(self.config.mem_len, before + queries)
        mems = []
        for number, states in enumerate(inputs):
            together = states if memories is None else torch.cat([memories[number], states], dim=1)
            if lengths is None:
                together = together[:, -size:]
            else:
                ends = before + lengths[:, None]
                places = ends - size + torch.arange(size, device=states.device)
                together = moved(together, places.clamp(min=0))
            mems.append(together.detach().transpose(0, 1).contiguous())
        if lengths is None and mem_lengths is None:
            return mems, None
        held = torch.full((batch,), before, device=inputs[0].device) if mem_lengths is None else mem_lengths
        return mems, (held + (queries if lengths is None else lengths)).clamp(max=size)


def moved(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The states at other places of each row."""
    return states.gather(1, places[..., None].expand(-1, -1, states.shape[-1]))


class TransfoXLLMHeadModel(
    CarriedStateGeneration, TaskHead, TransfoXLPreTrainedModel, GenerationMixin, encoder=TransfoXLModel
):
    """A language model with the adaptive softmax.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import TransfoXLConfig, TransfoXLLMHeadModel
        >>> sizes = {"vocab_size": 60, "cutoffs": [20], "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}
        >>> model = TransfoXLLMHeadModel(TransfoXLConfig(**sizes, mem_len=8)).eval()
        >>> ids = torch.tensor([[2, 7, 8, 3]])
        >>> output = model(ids, labels=ids)
        >>> output.losses.shape, model(ids, mems=output.mems).logits.shape
        (torch.Size([1, 3]), torch.Size([1, 4, 60]))
        >>> model.generate(ids, max_new_tokens=3, do_sample=False).shape
        torch.Size([1, 7])
    """

    _optional_labels = ("shift_labels",)

    def __init__(self, config: TransfoXLConfig):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.crit = AdaptiveSoftmax(config)
        embeddings = "transformer.word_emb"
        self._tied_weights_keys |= {
            f"crit.out_layers.{number}.weight": f"{embeddings}.emb_layers.{number}.weight"
            for number in range(len(self.crit.out_layers))
        }
        self._tied_weights_keys |= {
            f"crit.out_projs.{number}": f"{embeddings}.emb_projs.{0 if config.div_val == 1 else number}"
            for number in range(len(self.crit.out_projs))
            if config.tie_projs[number]  # type: ignore[index]
        }
        self.post_init()

    def get_output_embeddings(self) -> None:
        """None: the softmax has a table for each cluster."""

    def forward(
        self,
        labels: torch.Tensor | None = None,
        shift_labels: torch.Tensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> TransfoXLLMHeadModelOutput:
        """Predict the next words.

        Args:
            labels: `(batch, seq_len)`, the words themselves, which are shifted here; -100 is ignored.
            shift_labels: `(batch, seq_len)`, the next word at each place, instead of `labels`.
            logits_to_keep: number of last places with logits, or their indices (default: all places).
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: as in `TransfoXLModel`.

        Returns:
            A `TransfoXLLMHeadModelOutput`, whose `logits` are log-probabilities.
        """
        outputs = self.encode(**inputs)
        states = outputs.last_hidden_state
        loss = losses = logits = None
        if labels is not None or shift_labels is not None:
            targets = labels[:, 1:] if shift_labels is None else shift_labels  # type: ignore[index]
            losses = self._losses(states[:, : targets.shape[1]], targets)
            count = (targets != -100).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
            loss = losses.sum() / count
        if losses is None or not self.training:
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.crit(states[:, kept])
        return TransfoXLLMHeadModelOutput(
            loss=loss,
            logits=logits,
            losses=losses,
            mems=outputs.mems,
            mem_lengths=outputs.mem_lengths,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _losses(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each target, 0 where there is none."""
        flat = targets.flatten()
        known = flat != -100
        logs = self.crit.of_words(states.flatten(0, 1), flat.masked_fill(~known, 0))
        return -logs.masked_fill(~known, 0.0).float().view_as(targets)


class TransfoXLForSequenceClassification(TaskHead, TransfoXLPreTrainedModel, encoder=TransfoXLModel):
    """Classification or regression of texts by the state of their last token.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import TransfoXLConfig, TransfoXLForSequenceClassification
        >>> sizes = {"vocab_size": 60, "cutoffs": [20], "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}
        >>> model = TransfoXLForSequenceClassification(TransfoXLConfig(**sizes, mem_len=8, num_labels=3))
        >>> ids, mask = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
        >>> model(ids, mask, labels=torch.tensor([2, 0])).logits.shape
        torch.Size([2, 3])
    """

    def __init__(self, config: TransfoXLConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.add_encoder(pooled=False)
        self.score = nn.Linear(config.d_model, config.num_labels, bias=False)  # type: ignore[arg-type]
        self.post_init()

    def forward(
        self, labels: torch.Tensor | None = None, num_items_in_batch: torch.Tensor | int | None = None, **inputs: Any
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: as in `TransfoXLModel`; without `attention_mask`, padding is `pad_token_id` at the end.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.
        """
        mask, ids = inputs.get("attention_mask"), inputs.get("input_ids")
        if mask is None and ids is not None and self.config.pad_token_id is not None:
            mask = ids != self.config.pad_token_id
        outputs = self.encode(**{**inputs, "use_cache": False})
        states = outputs.last_hidden_state
        last = torch.full((states.shape[0], 1), states.shape[1] - 1, device=states.device)
        if mask is not None:
            places = torch.arange(states.shape[1], device=states.device)
            last = torch.where(mask != 0, places, 0).amax(dim=1, keepdim=True)
        logits = self.score(moved(states, last)[:, 0])
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return self.head_output(SequenceClassifierOutput, outputs, loss=loss, logits=logits)
