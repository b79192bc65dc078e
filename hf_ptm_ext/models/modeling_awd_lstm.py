"""AWD-LSTM (Merity et al. 2018, https://arxiv.org/abs/1708.02182; salesforce/awd-lstm-lm) and ULMFiT's classifier
(Howard and Ruder 2018, https://arxiv.org/abs/1801.06146; fastai/fastai).

    x = E[ids] -> LSTMs emb -> hid -> ... -> hid -> emb -> logits = h E^T + b

In training whole words are dropped, one mask serves all positions of a row, and each call drops recurrent weights.
The weights of a call are made of the parameters, not stored (fastai's `weight_hh_l0_raw`). The state goes in and out
as `past_state`; padding on either side changes neither states nor outputs.
"""

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .carried_state_core import CarriedStateGeneration
from .composite_core import kept_states
from .configuration_awd_lstm import AUTO_MAP, HF_PTM_EXT_VERSION, AwdLstmConfig
from .losses_core import count_targets, mean_over_targets, problem_type_loss, share_of_update, summed_cross_entropy
from .mask_contract_core import read_attention_mask
from .recurrent_core import RecurrentPreTrainedModel, reading_of, rearranged
from .task_heads_core import TaskHead, TokenClassificationHead

State = tuple[tuple[torch.Tensor, torch.Tensor], ...]


@dataclass
class AwdLstmModelOutput(ModelOutput):
    """What `AwdLstmModel` gives.

    Args:
        last_hidden_state: `(batch, seq_len, hidden_size)`, before dropout, 0 at padding.
        past_state: of each layer the pair h, c `(directions, batch, units)` behind the last token of each row.
        hidden_states: embeddings and outputs of each layer, if asked for.
    """

    last_hidden_state: torch.Tensor | None = None
    past_state: State | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: None = None


@dataclass
class AwdLstmCausalLMOutput(ModelOutput):
    """What `AwdLstmForCausalLM` gives.

    Args:
        loss: cross entropy and, in training, the two regularisers.
        lm_loss: cross entropy.
        ar_loss: alpha times the mean square of the last layer's dropped output.
        tar_loss: beta times the mean square of its change, before dropout, from position to position.
        logits: `(batch, seq_len, vocab_size)`.
        past_state: as in `AwdLstmModelOutput`.
        hidden_states: as in `AwdLstmModelOutput`.
    """

    loss: torch.Tensor | None = None
    lm_loss: torch.Tensor | None = None
    ar_loss: torch.Tensor | None = None
    tar_loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    past_state: State | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


def locked_dropout(states: torch.Tensor, rate: float, training: bool) -> torch.Tensor:
    """Dropout with one mask for all positions of a row."""
    if not training or not rate:
        return states
    return states * nn.functional.dropout(torch.ones_like(states[:, :1]), rate)


def fitted_state(state: State, batch: int) -> State:
    """A state for so many rows, as fastai 2 makes it: the first ones, or zeros behind them."""
    rows = state[0][0].shape[1]
    if rows == batch:
        return state
    if rows > batch:
        return tuple((h[:, :batch].contiguous(), c[:, :batch].contiguous()) for h, c in state)
    pad = (0, 0, 0, batch - rows)
    return tuple((nn.functional.pad(h, pad), nn.functional.pad(c, pad)) for h, c in state)


class AwdLstmEmbeddings(nn.Module):
    """Word embeddings; in training a dropped word is dropped wherever it stands in the batch."""

    def __init__(self, config: AwdLstmConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.rate = config.rate("embed_p")

    def forward(self, words: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings `(batch, seq_len, embedding_size)` without the words that are dropped."""
        if not self.training or not self.rate:
            return words
        kept = nn.functional.dropout(words.new_ones(self.word_embeddings.num_embeddings, 1), self.rate)
        return words * nn.functional.embedding(input_ids, kept)


class WeightDropLstm(nn.LSTM):
    """One layer; in training a call drops recurrent weights of the forward direction."""

    def __init__(self, input_size: int, units: int, bidirectional: bool, rate: float):
        units = units // 2 if bidirectional else units
        super().__init__(input_size, units, batch_first=True, bidirectional=bidirectional)
        self.rate = rate

    def forward(self, words: Any, state: Any, lengths: torch.Tensor | None = None) -> Any:  # type: ignore[override]
        """States of `(batch, seq_len, width)`, of whose rows the first `lengths` are read, and the last state."""
        if lengths is not None:
            total = words.shape[1]
            words = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        if self.training and self.rate:
            states, state = self._dropped(words, state)
        else:
            states, state = super().forward(words, state)
        if lengths is not None:
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=total)
        return states, state

    def _dropped(self, words: Any, state: Any) -> Any:
        kept = self._flat_weights
        weights = [getattr(self, name) for name in self._flat_weights_names]
        weights[1] = nn.functional.dropout(weights[1], self.rate)
        self._flat_weights = weights
        try:
            with warnings.catch_warnings():  # of weights that lie apart in the memory, as they must here
                warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
                return super().forward(words, state)
        finally:
            self._flat_weights = kept


class AwdLstmEncoder(nn.Module):
    """The LSTMs."""

    def __init__(self, config: AwdLstmConfig):
        super().__init__()
        sizes = [config.embedding_size, *config.layer_sizes]
        self.input_rate, self.hidden_rate = config.rate("input_p"), config.rate("hidden_p")
        self.rnns = nn.ModuleList(
            WeightDropLstm(width, units, config.bidirectional, config.rate("weight_p"))
            for width, units in pairwise(sizes)
        )

    def forward(
        self, words: torch.Tensor, past: State | None, lengths: torch.Tensor | None
    ) -> tuple[list[torch.Tensor], State]:
        """Outputs of each layer, and the state behind the last token."""
        states, outputs, last = locked_dropout(words, self.input_rate, self.training), [], []
        for number, rnn in enumerate(self.rnns):
            if number:
                states = locked_dropout(states, self.hidden_rate, self.training)
            states, state = rnn(states, None if past is None else past[number], lengths)
            outputs.append(states)
            last.append(state)
        return outputs, tuple(last)


class AwdLstmPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation shared by all AWD-LSTM classes."""

    config: AwdLstmConfig
    config_class = AwdLstmConfig
    base_model_prefix = "awd_lstm"
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _layer_stacks = ("encoder.rnns",)
    _input_parts = ("embeddings.",)
    _example_sizes = "vocab_size=60, embedding_size=20, lstm_size=28"

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -self.config.initializer_range, self.config.initializer_range)
        elif isinstance(module, nn.Linear) and module is not self.get_output_embeddings():
            bound = module.in_features**-0.5
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)


class AwdLstmModel(AwdLstmPreTrainedModel):
    """The LSTMs on word embeddings.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import AwdLstmConfig, AwdLstmModel
        >>> model = AwdLstmModel(AwdLstmConfig(vocab_size=60, embedding_size=20, lstm_size=28)).eval()
        >>> first = model(torch.tensor([[2, 7, 8]]))
        >>> model(torch.tensor([[9]]), past_state=first.past_state).last_hidden_state.shape
        torch.Size([1, 1, 20])
    """

    carried_state = "past_state"

    def __init__(self, config: AwdLstmConfig):
        super().__init__(config)
        self.embeddings = AwdLstmEmbeddings(config)
        self.encoder = AwdLstmEncoder(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        past_state: State | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> AwdLstmModelOutput:
        """Read.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding on any side (default: no padding); of a longer one
                the last columns are read.
            inputs_embeds: `(batch, seq_len, embedding_size)` in the place of `input_ids`.
            past_state: of an earlier call, from which every row goes on (default: zeros). Of one with more rows the
                first are taken; to one with fewer, rows of zeros are added.
            use_cache: whether `past_state` is returned (default True; `config.use_cache` is of generation alone).
            output_hidden_states: whether the embeddings and each layer's outputs are returned, or which of them.
            output_attentions: refused: nothing attends here.
            kwargs: `return_dict` and the like as upstream; others are refused.

        Returns:
            `AwdLstmModelOutput`.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, or attentions are asked for.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        if input_ids is not None:
            words = self.embeddings(words, input_ids)
        if self.config.output_attentions if output_attentions is None else output_attentions:
            raise ValueError(f"`output_attentions` must be False, got {output_attentions}: an LSTM has no attentions.")
        past = None if past_state is None else fitted_state(past_state, words.shape[0])
        real = None
        if attention_mask is not None:
            mask = attention_mask[:, -words.shape[1] :] if attention_mask.dim() == 2 else attention_mask
            real = read_attention_mask(self.config, mask, words) != 0
        if real is None or bool(real.all()):
            outputs, state = self.encoder(words, past, None)
        else:
            words, outputs, state = self._read_padded(words, past, real)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return AwdLstmModelOutput(
            last_hidden_state=outputs[-1],
            past_state=None if use_cache is False else state,
            hidden_states=kept_states((words, *outputs), wanted),
        )

    def _read_padded(
        self, words: torch.Tensor, past: State | None, real: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor], State]:
        """Rows as if each were alone: its real tokens are moved to the front and back again."""
        order, back, _, lengths = reading_of(real)
        outputs, state = self.encoder(rearranged(words, order), past, lengths[:, 0].clamp(min=1).cpu())
        empty = (lengths == 0)[None]
        outputs = [rearranged(states, back) * real[..., None].to(states.dtype) for states in outputs]
        before = past or [(torch.zeros_like(h), torch.zeros_like(c)) for h, c in state]
        pairs = zip(before, state, strict=True)
        kept = tuple(tuple(torch.where(empty, *two) for two in zip(old, new, strict=True)) for old, new in pairs)
        return words, outputs, kept  # type: ignore[return-value]


class AwdLstmForCausalLM(
    CarriedStateGeneration, TaskHead, AwdLstmPreTrainedModel, GenerationMixin, encoder=AwdLstmModel
):
    """The language model; its decoder is tied to the embeddings.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import AwdLstmConfig, AwdLstmForCausalLM
        >>> model = AwdLstmForCausalLM(AwdLstmConfig(vocab_size=60, embedding_size=20, lstm_size=28)).eval()
        >>> ids = torch.tensor([[2, 7, 8]])
        >>> model(ids, labels=ids).logits.shape
        torch.Size([1, 3, 60])
        >>> model.generate(ids, max_new_tokens=2, do_sample=False).shape
        torch.Size([1, 5])
    """

    carried_state = "past_state"
    _tied_weights_keys = {"lm_head.weight": "awd_lstm.embeddings.word_embeddings.weight"}
    _prediction_heads = {"lm_head": "language-model head"}
    _optional_labels = ("shift_labels",)

    def __init__(self, config: AwdLstmConfig):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.decoder_bias)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    def forward(
        self,
        labels: torch.Tensor | None = None,
        shift_labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        logits_to_keep: int = 0,
        **inputs: Any,
    ) -> AwdLstmCausalLMOutput:
        """Read and, with labels, compute the loss.

        Args:
            labels: `(batch, seq_len)`, the tokens themselves, which are shifted here; -100 is ignored.
            shift_labels: `(batch, seq_len)`, the token behind each, that of the last one included.
            num_items_in_batch: number of targets over all micro-batches of one update.
            logits_to_keep: logits of the last positions alone (default 0: of all).
            inputs: as in `AwdLstmModel`.

        Returns:
            `AwdLstmCausalLMOutput`; `ar_loss` and `tar_loss` are in `loss` in training alone.
        """
        encoded = self.encode(**inputs)
        raw = encoded.last_hidden_state
        output = locked_dropout(raw, self.config.rate("output_p"), self.training)
        logits = self.lm_head(output[:, -logits_to_keep:] if logits_to_keep else output)
        terms: dict[str, torch.Tensor] = {}
        targets = shift_labels
        if targets is None and labels is not None:
            targets = nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
        if targets is not None:
            loss_sum = summed_cross_entropy(logits.flatten(0, 1), targets.flatten())
            terms["lm_loss"] = mean_over_targets(loss_sum, targets, num_items_in_batch)
            share = 1.0 if num_items_in_batch is None else share_of_update(count_targets(targets), num_items_in_batch)
            terms["ar_loss"] = self.config.alpha * output.float().pow(2).mean() * share
            change = (raw[:, 1:] - raw[:, :-1]).float().pow(2)
            terms["tar_loss"] = self.config.beta * change.sum() / max(change.numel(), 1) * share
        loss = None
        if terms:
            loss = torch.stack([*terms.values()]).sum() if self.training else terms["lm_loss"]
        return AwdLstmCausalLMOutput(
            loss=loss, logits=logits, past_state=encoded.past_state, hidden_states=encoded.hidden_states, **terms
        )


class AwdLstmForTokenClassification(
    TokenClassificationHead,
    AwdLstmPreTrainedModel,
    encoder=AwdLstmModel,
    columns=("input_ids", "attention_mask", "inputs_embeds"),
):
    """A class for every token, from what was read up to it."""

    _optional_labels = ()


class RowNorm(nn.BatchNorm1d):
    """Batch normalisation that takes a single row in training, by the statistics that it has."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Normalise `(batch, width)`."""
        if self.training and rows.shape[0] > 1:
            return super().forward(rows)
        return nn.functional.batch_norm(
            rows, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )


class AwdLstmClassifierLayer(nn.Module):
    """Normalisation, dropout, linear layer."""

    def __init__(self, width: int, size: int, rate: float, bias: bool):
        super().__init__()
        self.norm, self.dropout, self.dense = RowNorm(width), nn.Dropout(rate), nn.Linear(width, size, bias=bias)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`(batch, width)` to `(batch, size)`."""
        return self.dense(self.dropout(self.norm(rows)))


class AwdLstmForSequenceClassification(
    TaskHead, AwdLstmPreTrainedModel, encoder=AwdLstmModel, columns=("input_ids", "attention_mask", "inputs_embeds")
):
    """ULMFiT's classifier: [last state; maximum; mean] over the text, which is read chunk by chunk.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import AwdLstmConfig, AwdLstmForSequenceClassification
        >>> config = AwdLstmConfig(vocab_size=60, embedding_size=20, lstm_size=28, num_labels=3)
        >>> model = AwdLstmForSequenceClassification(config).eval()
        >>> model(torch.tensor([[2, 7, 8], [2, 9, 1]]), labels=torch.tensor([2, 0])).logits.shape
        torch.Size([2, 3])
    """

    def __init__(self, config: AwdLstmConfig):
        super().__init__(config)
        self.num_labels: int = config.num_labels  # type: ignore[assignment]
        self.add_encoder(pooled=True)
        sizes = [3 * config.hidden_size, *config.classifier_sizes, self.num_labels]
        rates = [config.rate("output_p"), *[config.classifier_dropout] * len(config.classifier_sizes)]
        self.classifier = nn.ModuleList(
            AwdLstmClassifierLayer(width, size, rate, config.classifier_bias)
            for width, size, rate in zip(sizes[:-1], sizes[1:], rates, strict=True)
        )
        self.post_init()

    def forward(
        self, labels: torch.Tensor | None = None, num_items_in_batch: torch.Tensor | int | None = None, **inputs: Any
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: `input_ids` or `inputs_embeds`, and `attention_mask` (default: what is not `pad_token_id`);
                `output_hidden_states` as in `AwdLstmModel`, of texts that are not read as fastai does.

        Returns:
            `loss`, `logits` `(batch, num_labels)` and `hidden_states`.
        """
        rows, hidden_states = self._pooled(**inputs)
        for number, layer in enumerate(self.classifier):
            rows = layer(rows.relu() if number else rows)
        loss = None if labels is None else problem_type_loss(self.config, rows, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=rows, hidden_states=hidden_states)

    def pooled(self, *inputs: Any, **named: Any) -> torch.Tensor:
        """Last state, maximum and mean of each text, `(batch, 3 * hidden_size)`; inputs as for `forward`."""
        return self._pooled(*inputs, **named)[0]

    def _pooled(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, Any]:
        """What `pooled` gives, and hidden states if asked for."""
        if (input_ids is None) == (inputs_embeds is None):
            got = "neither" if input_ids is None else "both"
            raise ValueError(f"Exactly one of `input_ids` and `inputs_embeds` must be given, got {got}.")
        text: Any = inputs_embeds if input_ids is None else input_ids[..., None]
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if wanted and self.config.fastai_compatible_pooling:
            raise ValueError(
                f"`output_hidden_states` must be False with `fastai_compatible_pooling`, got {wanted}: texts are not "
                "read in their places."
            )
        real = torch.ones_like(text[..., 0], dtype=torch.bool)
        if attention_mask is not None:
            real = attention_mask != 0
        elif input_ids is not None and self.config.pad_token_id is not None:
            real = input_ids != self.config.pad_token_id
        lengths = real.sum(1)
        order, kwargs["output_hidden_states"] = reading_of(real), bool(wanted)
        text = rearranged(text, order.first)[:, : max(int(lengths.max()), 1)]
        if self.config.fastai_compatible_pooling:
            states, kept, last = self._read_as_fastai(text, lengths, kwargs)
        else:
            states, kept, last = self._read(text, lengths, kwargs)
        hidden_states = None
        if wanted:
            whole = nn.functional.pad(states, (0, 0, 0, real.shape[1] - states.shape[1]))
            whole = rearranged(whole, order.back) * real[..., None].to(states.dtype)
            parts = whole.split([self.config.embedding_size, *self.config.layer_sizes], dim=-1)
            hidden_states, states = kept_states(parts, wanted), states[..., -self.config.hidden_size :]
        final = rearranged(states, last.clamp(min=0)[:, None])[:, 0] * (last >= 0)[:, None]
        mean = (states * kept[..., None]).sum(1) / kept.sum(1, keepdim=True).clamp(min=1)
        lowest = torch.finfo(states.dtype).min
        most = states.masked_fill(~kept[..., None], lowest).amax(1) * kept.any(1, keepdim=True)
        return torch.cat([final, most, mean], dim=1), hidden_states

    def _chunk(self, text: torch.Tensor, past: State | None, kept: bool, **inputs: Any) -> tuple[torch.Tensor, State]:
        """States of a chunk, and what the next goes on from; one that is not pooled over has no gradient."""
        words = {"inputs_embeds": text} if text.is_floating_point() else {"input_ids": text[..., 0]}
        with torch.set_grad_enabled(torch.is_grad_enabled() and kept):
            read = self.encode(**words, past_state=past, use_cache=True, **inputs)
        states = read.last_hidden_state if read.hidden_states is None else torch.cat(read.hidden_states, dim=-1)
        return states, tuple((h.detach(), c.detach()) for h, c in read.past_state)

    def _first_kept(self, lengths: torch.Tensor) -> torch.Tensor:
        """Where the first chunk begins that is pooled over, in texts of these lengths; the last always is."""
        step, most = self.config.bptt, self.config.max_len
        if most is None:
            return torch.zeros_like(lengths)
        first = (lengths - most + step - 1).clamp(min=0) // step * step
        return torch.minimum(first, (lengths - 1).clamp(min=0) // step * step)

    def _read(self, text: torch.Tensor, lengths: torch.Tensor, kwargs: Any) -> tuple[torch.Tensor, ...]:
        """States of texts that begin in the first column, which of them are pooled over, and the last of each."""
        places, past, parts = torch.arange(text.shape[1], device=text.device)[None], None, []
        first = self._first_kept(lengths)[:, None]
        earliest = int(first.min())
        for start in range(0, text.shape[1], self.config.bptt):
            chunk = slice(start, start + self.config.bptt)
            mask = places[:, chunk] < lengths[:, None]
            states, past = self._chunk(text[:, chunk], past, start >= earliest, attention_mask=mask, **kwargs)
            parts.append(states)
        return torch.cat(parts, dim=1), (places >= first) & (places < lengths[:, None]), lengths - 1

    def _read_as_fastai(self, text: torch.Tensor, lengths: torch.Tensor, kwargs: Any) -> tuple[torch.Tensor, ...]:
        """As fastai 2 finds it: the longest row first, padded in front by whole chunks and behind by the rest.

        A chunk is read of as many rows as have text in its first column, from the top.
        """
        step, width, order = self.config.bptt, text.shape[1], lengths.argsort(descending=True, stable=True)
        text, lengths = text[order], lengths[order]
        front = (width - lengths) // step * step
        places = torch.arange(width, device=text.device)[None] - front[:, None]
        real = (places >= 0) & (places < lengths[:, None])
        pad = 0 if text.is_floating_point() else self.config.pad_token_id or 0
        text = rearranged(text, places.clamp(0, width - 1)).masked_fill(~real[..., None], pad)
        first, past, parts = int(self._first_kept(lengths.new_tensor([width]))), None, []
        for start in range(0, width, step):
            rows = int(real[:, start].sum())
            states, past = self._chunk(text[:rows, start : start + step], past, start >= first, **kwargs)
            parts.append(nn.functional.pad(states, (0, 0, 0, 0, 0, text.shape[0] - rows)))
        kept, back = real & (torch.arange(width, device=text.device) >= first), order.argsort()
        last = width - 1 - (~real[:, max(first, width - step) :]).sum(1)
        return torch.cat(parts, dim=1)[back], kept[back], last[back]
