"""CoVe (McCann et al. 2017, https://arxiv.org/abs/1708.00107; the authors' code is salesforce/cove).

    output = [word vectors; states of the last layer of a biLSTM trained to translate]

The biLSTM reads packed rows, so that padding on either side changes nothing. `CoveForPreTraining` is the translation
model that it was trained in: a decoder of LSTM cells with attention and input feeding (the authors' OpenNMT-py).
"""

from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers.modeling_outputs import BaseModelOutputWithPooling, Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from .composite_core import kept_states
from .configuration_cove import AUTO_MAP, HF_PTM_EXT_VERSION, CoveConfig
from .losses_core import classification_loss
from .recurrent_core import RecurrentPreTrainedModel, masked_mean, reading_of, rearranged
from .task_heads_core import SequenceClassificationHead, TokenClassificationHead

States = tuple[torch.Tensor, torch.Tensor]


class CoveEmbeddings(nn.Module):
    """Word vectors."""

    def __init__(self, vocab_size: int, config: CoveConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, config.embedding_size, padding_idx=config.pad_token_id)


class CoveEncoder(nn.Module):
    """LSTM layers over rows of different lengths."""

    def __init__(self, config: CoveConfig):
        super().__init__()
        widths = [config.embedding_size, *[config.layer_size] * (config.num_hidden_layers - 1)]
        self.layers = nn.ModuleList(
            nn.LSTM(width, config.lstm_size, batch_first=True, bidirectional=config.bidirectional) for width in widths
        )
        self.bidirectional, self.dropout = config.bidirectional, nn.Dropout(config.dropout)

    def forward(
        self, words: torch.Tensor, chosen: torch.Tensor, initial: States | None = None
    ) -> tuple[list[torch.Tensor], States]:
        """States of every layer, 0 at padding, and the last hidden and cell states, `(layers * 2, batch, units)`."""
        reading = reading_of(chosen)
        lengths = reading.lengths[:, 0].clamp(min=1).cpu()
        states, found, last = rearranged(self.dropout(words), reading.first), [], []
        ways = 1 + self.bidirectional
        for number, layer in enumerate(self.layers):
            own = None if initial is None else tuple(part[ways * number : ways * (number + 1)] for part in initial)
            packed = pack_padded_sequence(
                self.dropout(states) if number else states, lengths, batch_first=True, enforce_sorted=False
            )
            read, final = layer(packed, own)
            states = pad_packed_sequence(read, batch_first=True, total_length=words.shape[1])[0]
            found.append(rearranged(states, reading.back) * chosen[..., None].to(states.dtype))
            last.append(final)
        hidden, cells = (torch.cat(parts) for parts in zip(*last, strict=True))
        return found, (hidden, cells)


class CovePreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation shared by all CoVe classes."""

    config: CoveConfig
    config_class = CoveConfig
    base_model_prefix = "cove"
    _no_split_modules = ["CoveEncoder"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _example_sizes = "vocab_size=60, embedding_size=8, lstm_size=5"


class CoveModel(CovePreTrainedModel):
    """The encoder: contextual vectors of words.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import CoveConfig, CoveModel
        >>> model = CoveModel(CoveConfig(vocab_size=60, embedding_size=8, lstm_size=5)).eval()
        >>> model(torch.tensor([[2, 7, 8, 3]])).last_hidden_state.shape
        torch.Size([1, 4, 18])
    """

    def __init__(self, config: CoveConfig):
        super().__init__(config)
        self.embeddings = CoveEmbeddings(config.vocab_size, config)
        self.encoder = CoveEncoder(config)
        self.post_init()
        self.freeze()

    def freeze(self) -> None:
        """Take the gradient from the word vectors if the configuration freezes them."""
        if self.config.freeze_embeddings:
            self.embeddings.requires_grad_(False)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        initial_state: States | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)` words.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding, on either side (default: no padding).
            inputs_embeds: `(batch, seq_len, embedding_size)` word vectors instead of `input_ids`.
            initial_state: hidden and cell states that the LSTMs begin with, each `(2 * layers, batch, lstm_size)`:
                forwards and backwards of the first layer, then of the next (default: 0).
            output_hidden_states: whether word vectors and the states of every layer are returned, or which of them.
            output_attentions: refused: nothing attends here.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, hidden_size)`: the word vectors, if `config.concat_embeddings`, and
            `config.output_layers`; states are 0 at padding. `pooler_output` is its mean over real tokens.

        Raises:
            ValueError: not exactly one of `input_ids` and `inputs_embeds`, or attentions are asked for.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        real = self.checked(words, attention_mask, output_attentions, kwargs)
        states, _ = self.encoder(words, real, initial_state)
        parts = [words] * self.config.concat_embeddings + [states[layer] for layer in self.config.output_layers or ()]
        output = self.encoder.dropout(torch.cat(parts, dim=-1))
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return BaseModelOutputWithPooling(
            last_hidden_state=output,
            pooler_output=masked_mean(output, real),
            hidden_states=kept_states((words, *states), wanted),
        )


class CoveAttention(nn.Module):
    """Attention of a decoder's state over the source: Luong's, with a tanh over both."""

    def __init__(self, config: CoveConfig):
        super().__init__()
        size = config.layer_size
        self.linear_in = nn.Linear(size, size, bias=False) if config.attention_type == "general" else nn.Identity()
        self.linear_out = nn.Linear(2 * size, size, bias=False)

    def forward(self, query: torch.Tensor, source: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """`(batch, size)` states to `(batch, size)` outputs."""
        scores = torch.einsum("bsh,bh->bs", source, self.linear_in(query))
        if visible is not None:
            scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        context = torch.einsum("bs,bsh->bh", scores.softmax(-1), source)
        return torch.tanh(self.linear_out(torch.cat([context, query], dim=-1)))


class CoveDecoder(nn.Module):
    """LSTM cells over target words, one step after another, since each reads the output of the one before."""

    def __init__(self, config: CoveConfig):
        super().__init__()
        self.embeddings = CoveEmbeddings(config.target_vocab_size, config)
        size, self.input_feed = config.layer_size, config.input_feed
        widths = [config.embedding_size + size * config.input_feed, *[size] * (config.num_hidden_layers - 1)]
        self.layers = nn.ModuleList(nn.LSTMCell(width, size) for width in widths)
        self.attention = CoveAttention(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, input_ids: torch.Tensor, source: torch.Tensor, visible: torch.Tensor | None, last: States
    ) -> torch.Tensor:
        """Outputs of all steps, `(batch, target_len, size)`."""
        states = [list(each) for each in zip(*(self._joined(part) for part in last), strict=True)]
        fed, outputs = torch.zeros_like(source[:, 0]), []
        for words in self.dropout(self.embeddings.word_embeddings(input_ids)).unbind(1):
            step = torch.cat([words, fed], dim=-1) if self.input_feed else words
            for number, cell in enumerate(self.layers):
                states[number] = list(cell(step, tuple(states[number])))
                step = states[number][0]
                if number + 1 < len(self.layers):
                    step = self.dropout(step)
            fed = self.dropout(self.attention(step, source, visible))
            outputs.append(fed)
        return torch.stack(outputs, dim=1)

    def _joined(self, state: torch.Tensor) -> torch.Tensor:
        """A layer's states of both directions side by side, `(layers, batch, size)`."""
        ways = state.shape[0] // len(self.layers)
        return state.unflatten(0, (-1, ways)).transpose(1, 2).flatten(2)


class CoveForPreTraining(CovePreTrainedModel):
    """The translation model whose encoder gives the vectors.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import CoveConfig, CoveForPreTraining
        >>> config = CoveConfig(vocab_size=60, target_vocab_size=50, embedding_size=8, lstm_size=5)
        >>> model = CoveForPreTraining(config).eval()
        >>> model(torch.tensor([[2, 7, 8, 3]]), labels=torch.tensor([[9, 8, 3]])).logits.shape
        torch.Size([1, 3, 50])
    """

    def __init__(self, config: CoveConfig):
        super().__init__(config)
        self.cove = CoveModel(config)
        self.decoder = CoveDecoder(config)
        self.generator = nn.Linear(config.layer_size, config.target_vocab_size)
        self.post_init()

    def resize_decoder_token_embeddings(self, new_num_tokens: int, mean_resizing: bool = True) -> nn.Embedding:
        """Add target words at the end or take them away, as `resize_token_embeddings` does the source's alone.

        The name is that of transformers' Marian, whose two vocabularies are apart too.
        """
        embeddings = self.decoder.embeddings
        table = self._get_resized_embeddings(embeddings.word_embeddings, new_num_tokens, mean_resizing=mean_resizing)
        embeddings.word_embeddings = table
        self.generator = self._get_resized_lm_head(self.generator, new_num_tokens, mean_resizing=mean_resizing)
        self.config.target_vocab_size = new_num_tokens
        return table

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Translate, target words given.

        Args:
            input_ids: `(batch, seq_len)` source words.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding (default: no padding).
            decoder_input_ids: `(batch, target_len)` target words in front of each that is predicted (default: the
                labels behind `config.bos_token_id`).
            labels: `(batch, target_len)` target words with `config.eos_token_id` last; -100 and padding are ignored.
            inputs_embeds: `(batch, seq_len, embedding_size)` source vectors instead of `input_ids`.
            num_items_in_batch: number of target words over all micro-batches of one update.
            output_hidden_states: whether the encoder's, as in `CoveModel`, are returned, or which of them.
            output_attentions: refused, as in `CoveModel`.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            `loss`, the mean over target words, `logits` `(batch, target_len, target_vocab_size)`,
            `decoder_hidden_states`, the decoder's outputs in front of the generator, `encoder_last_hidden_state` and
            `encoder_hidden_states`.

        Raises:
            ValueError: neither `labels` nor `decoder_input_ids`, or not one of `input_ids` and `inputs_embeds`.
            TypeError: a keyword argument that nothing reads.
        """
        encoder = self.cove
        words = encoder.word_states(input_ids, inputs_embeds, kwargs)
        real = encoder.checked(words, attention_mask, output_attentions, kwargs)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError(
                    f"`labels` or `decoder_input_ids` must be given, got {labels}: the decoder reads words."
                )
            before = labels.roll(1, dims=1)
            decoder_input_ids = before.masked_fill(before == -100, self.config.pad_token_id or 0)
            decoder_input_ids[:, 0] = self.config.bos_token_id or 0
        states, last = encoder.encoder(words, real)
        source = encoder.encoder.dropout(states[-1])
        outputs = self.decoder(decoder_input_ids, source, real if self.config.mask_attention else None, last)
        logits = self.generator(outputs)
        loss = None
        if labels is not None:
            padding = -100 if self.config.pad_token_id is None else self.config.pad_token_id
            targets = labels.masked_fill(labels == padding, -100)
            loss = classification_loss(logits, targets, num_items_in_batch)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            decoder_hidden_states=(outputs,),
            encoder_last_hidden_state=states[-1],
            encoder_hidden_states=kept_states((words, *states), wanted),
        )


class CoveForSequenceClassification(SequenceClassificationHead, CovePreTrainedModel, encoder=CoveModel):
    """CoVe with a classification or regression head on the mean of the words' vectors."""


class CoveForTokenClassification(TokenClassificationHead, CovePreTrainedModel, encoder=CoveModel):
    """CoVe with a classification head on every word."""
