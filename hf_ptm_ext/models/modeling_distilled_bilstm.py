"""Distilled BiLSTM (Tang et al. 2019, https://arxiv.org/abs/1903.12136; the authors' code is castorini/d-bert).

    h = [last forward state; last backward state]         logits = W2 relu(W1 h + b1) + b2

For a pair of texts, in one row by `token_type_ids` or in two, both are read by the same LSTM and W1 reads [h1; h2;
h1*h2; |h1-h2|] (the paper's order; the code has the last two the other way round). Dropout is behind the ReLU, as in
the code, for pairs too (there: none). The two directions are LSTMs of their own and read real tokens first: a padded
row equals the row alone, without packing and without a look at the lengths from the host.
"""

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from .composite_core import kept_states
from .configuration_distilled_bilstm import AUTO_MAP, HF_PTM_EXT_VERSION, DistilledBiLstmConfig
from .losses_core import problem_type_loss
from .recurrent_core import RecurrentPreTrainedModel, read_both_ways
from .task_heads_core import TaskHead


class DistilledBiLstmEmbeddings(nn.Module):
    """Word vectors: trained ones and, in multichannel mode, as many that stay as they were set."""

    def __init__(self, config: DistilledBiLstmConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.static_embeddings = None
        if config.multichannel:
            static = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
            self.static_embeddings = static.requires_grad_(False)
        self.dropout = nn.Dropout(config.embedding_dropout)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len)` ids to `(batch, seq_len, width)`, both channels side by side."""
        words = self.word_embeddings(input_ids)
        if self.static_embeddings is not None:
            words = torch.cat([words, self.static_embeddings(input_ids)], dim=-1)
        return self.dropout(words)


class DistilledBiLstmEncoder(nn.Module):
    """One LSTM for each direction."""

    def __init__(self, config: DistilledBiLstmConfig):
        super().__init__()
        width = config.embedding_size * (2 if config.multichannel else 1)
        self.forward_lstm = nn.LSTM(width, config.lstm_size, batch_first=True)
        self.backward_lstm = nn.LSTM(width, config.lstm_size, batch_first=True)

    def forward(self, words: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the chosen tokens of each row, as if they were alone."""
        return read_both_ways(self.forward_lstm, self.backward_lstm, words, chosen)


class DistilledBiLstmPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation shared by both classes."""

    config: DistilledBiLstmConfig
    config_class = DistilledBiLstmConfig
    base_model_prefix = "bilstm"
    _no_split_modules = ["DistilledBiLstmEncoder"]
    _auto_map = AUTO_MAP
    _has_converter = False
    _code_version = HF_PTM_EXT_VERSION


class DistilledBiLstmModel(DistilledBiLstmPreTrainedModel):
    """The encoder of one text or of a pair.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import DistilledBiLstmConfig, DistilledBiLstmModel
        >>> model = DistilledBiLstmModel(DistilledBiLstmConfig(vocab_size=60, embedding_size=8, lstm_size=5))
        >>> output = model(torch.tensor([[2, 7, 8, 3]]))
        >>> output.last_hidden_state.shape, output.pooler_output.shape
        (torch.Size([1, 4, 10]), torch.Size([1, 10]))
    """

    def __init__(self, config: DistilledBiLstmConfig):
        super().__init__(config)
        self.embeddings = DistilledBiLstmEmbeddings(config)
        self.encoder = DistilledBiLstmEncoder(config)
        self.post_init()

    def freeze(self) -> None:
        """Take the gradient from the static word vectors."""
        if self.embeddings.static_embeddings is not None:
            self.embeddings.static_embeddings.requires_grad_(False)

    def word_tables(self) -> list[tuple[nn.Module, str]]:
        """The static word vectors."""
        return [(self.embeddings, "static_embeddings")] if self.config.multichannel else []

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        second_input_ids: torch.Tensor | None = None,
        second_attention_mask: torch.Tensor | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding, on either side (default: no padding).
            token_type_ids: `(batch, seq_len)`; with `config.pairs` 0 and 1 are the first and the second text, without
                they are not read.
            second_input_ids: `(batch, second_len)`: the second text in a row of its own, with `config.pairs`.
            second_attention_mask: `(batch, second_len)`.
            output_hidden_states: whether the word vectors and the states are returned, or which of the two (default:
                the configuration's).
            output_attentions: refused: nothing attends here.
            kwargs: `return_dict` and the like as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len [+ second_len], 2 * lstm_size)`, 0 at padding, and `pooler_output`:
            the last states `(batch, 2 * lstm_size)` or, for pairs, their comparison `(batch, 8 * lstm_size)`.

        Raises:
            ValueError: no `input_ids`, a second text without `config.pairs`, or a pair without its second text, or
                attentions are asked for.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        real = self.checked(input_ids, attention_mask, output_attentions, kwargs)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        words = self.embeddings(input_ids)
        if not self.config.pairs:
            if second_input_ids is not None:
                raise ValueError(
                    f"`second_input_ids` needs `config.pairs` = True, got {self.config.pairs}: it is not read."
                )
            states, final = self.encoder(words, real)
            kept = kept_states((words, states), output_hidden_states)
            return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=final, hidden_states=kept)
        if second_input_ids is not None:
            states, first = self.encoder(words, real)
            second_real = self.real_tokens(second_input_ids, second_attention_mask, "second_attention_mask")
            second_words = self.embeddings(second_input_ids)
            second_states, second = self.encoder(second_words, second_real)
            words, states = torch.cat([words, second_words], dim=1), torch.cat([states, second_states], dim=1)
        elif token_type_ids is not None:
            states, first = self.encoder(words, real & (token_type_ids == 0))
            second_states, second = self.encoder(words, real & (token_type_ids == 1))
            states = states + second_states
        else:
            raise ValueError(
                "A pair needs its second text: pass `token_type_ids` (0 and 1) or `second_input_ids`, or set "
                "`config.pairs` to False."
            )
        compared = torch.cat([first, second, first * second, (first - second).abs()], dim=-1)
        kept = kept_states((words, states), output_hidden_states)
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=compared, hidden_states=kept)


class DistilledBiLstmForSequenceClassification(TaskHead, DistilledBiLstmPreTrainedModel, encoder=DistilledBiLstmModel):
    """Classification or regression of texts or pairs of texts.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import DistilledBiLstmConfig, DistilledBiLstmForSequenceClassification
        >>> config = DistilledBiLstmConfig(vocab_size=60, embedding_size=8, lstm_size=5, pairs=True, num_labels=3)
        >>> model = DistilledBiLstmForSequenceClassification(config)
        >>> ids, types = torch.tensor([[2, 7, 8, 3, 9, 3]]), torch.tensor([[0, 0, 0, 0, 1, 1]])
        >>> model(ids, token_type_ids=types, labels=torch.tensor([2])).logits.shape
        torch.Size([1, 3])
    """

    def __init__(self, config: DistilledBiLstmConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.add_encoder(pooled=True)
        self.dense = nn.Linear(config.hidden_size * (4 if config.pairs else 1), config.classifier_size)
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.classifier_size, config.num_labels)  # type: ignore[arg-type]
        self.post_init()

    def forward(
        self, labels: torch.Tensor | None = None, num_items_in_batch: torch.Tensor | int | None = None, **inputs: Any
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            inputs: as in `DistilledBiLstmModel`.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.
        """
        outputs = self.encode(**inputs)
        states = self.activation(self.dense(outputs.pooler_output))
        logits = self.classifier(self.dropout(states))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return self.head_output(SequenceClassifierOutput, outputs, loss=loss, logits=logits)
