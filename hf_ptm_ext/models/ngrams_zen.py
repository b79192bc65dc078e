"""ZEN's n-gram encoder, and how its states get into the text (Diao et al. 2019, section 2.2; sinovation/ZEN).

    text_i = layer_i(text_{i-1}) + sum of ngrams_i over the n-grams around the token
    ngrams_i = word_layer_i(ngrams_{i-1}), and the last ones again where there are no more layers of n-grams

The sum is raw: not divided by their number, and not normalised before it enters the next layer. A batch holds ids,
first places and lengths of n-grams, 0 on padding: who belongs to whom is worked out here.
"""

from typing import Any

import torch
from torch import nn

from .configuration_zen import ZenConfig
from .encoder_core import EncoderLayer, LayerStack
from .inputs_core import embedded_types
from .losses_core import value_outside, values_can_be_read


class ZenNgramEmbeddings(nn.Module):
    """The n-gram table and token types, LayerNorm and dropout (`word_embeddings` in the state dict)."""

    def __init__(self, config: ZenConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.word_vocab_size, config.hidden_size, padding_idx=0)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, ngram_ids: torch.Tensor, ngram_token_type_ids: torch.Tensor | None = None) -> torch.Tensor:
        """`(batch, ngrams)` ids and types (`None`: 0) to `(batch, ngrams, hidden)`."""
        types = self.token_type_embeddings
        words = self.word_embeddings(ngram_ids)
        return self.dropout(self.LayerNorm(words + embedded_types(types, ngram_token_type_ids, words)))


class ZenTextLayer(EncoderLayer):
    """A layer of the text, and the sum of n-gram states behind it."""

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        ngram_states: torch.Tensor,
        membership: torch.Tensor,
        attention_mask: Any = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """The layer, and the states of the n-grams `(batch, ngrams, hidden)` around each token, by `membership`."""
        output = super().forward(hidden_states, attention_mask, **kwargs)
        return output + torch.matmul(membership, ngram_states).to(output.dtype)


class ZenNgramEncoder(LayerStack):
    """Both stacks (`encoder.layer.i` and `encoder.word_layers.i` in the state dict)."""

    _layer_class = ZenTextLayer

    def __init__(self, config: ZenConfig):
        super().__init__(config)
        self.word_layers = nn.ModuleList(
            [EncoderLayer(config, index) for index in range(config.num_hidden_word_layers or 0)]
        )

    def forward(
        self,
        hidden_states: torch.Tensor,
        ngram_states: torch.Tensor,
        membership: torch.Tensor,
        attention_mask: Any = None,
        ngram_mask: Any = None,
        plain_attention: bool = False,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Run both stacks; `ngram_mask` is additive, as n-grams attend as eager attention does."""
        hidden_states = self.mapped(hidden_states)
        for index, layer in enumerate(self.in_order()):
            if index < len(self.word_layers):
                # A few dozen n-grams a row, another number in every batch: no case for a fused kernel.
                ngram_states = self.word_layers[index](ngram_states, ngram_mask, plain_attention=True, **kwargs)
            # Reentrant checkpointing gives gradients to positional arguments alone.
            hidden_states = layer(
                hidden_states, ngram_states, membership, attention_mask, plain_attention=plain_attention, **kwargs
            )
        return hidden_states


def check_ngrams(
    config: ZenConfig,
    input_shape: torch.Size,
    ngram_ids: torch.Tensor | None,
    ngram_positions: torch.Tensor | None,
    ngram_lengths: torch.Tensor | None,
    ngram_attention_mask: torch.Tensor | None,
    ngram_token_type_ids: torch.Tensor | None,
    ngram_position_matrix: torch.Tensor | None,
) -> None:
    """Refuse n-grams of `ZenModel.forward` that do not fit the text; their values only where looking costs nothing."""
    columns = {
        "ngram_positions": ngram_positions,
        "ngram_lengths": ngram_lengths,
        "ngram_attention_mask": ngram_attention_mask,
        "ngram_token_type_ids": ngram_token_type_ids,
    }
    if ngram_ids is None:
        given = [name for name, value in columns.items() if value is not None]
        given += ["ngram_position_matrix"] if ngram_position_matrix is not None else []
        if given:
            raise ValueError(f"`{given[0]}` needs `ngram_ids`: say which n-grams they are, or leave it out.")
        return
    by_pairs = ngram_positions is not None and ngram_lengths is not None
    one_of_them = (ngram_positions is None) != (ngram_lengths is None)
    if one_of_them or by_pairs == (ngram_position_matrix is not None):
        raise ValueError(
            "`ngram_ids` need either `ngram_positions` and `ngram_lengths`, or `ngram_position_matrix`. ZenTokenizer "
            "makes the first two."
        )
    if ngram_ids.dim() != 2 or ngram_ids.shape[0] != input_shape[0]:
        raise ValueError(f"`ngram_ids` must be (batch = {input_shape[0]}, ngrams), got {tuple(ngram_ids.shape)}.")
    for name, value in columns.items():
        if value is not None and value.shape != ngram_ids.shape:
            raise ValueError(
                f"`{name}` must have the shape of `ngram_ids`, {tuple(ngram_ids.shape)}, got {tuple(value.shape)}."
            )
    wanted = (*input_shape, ngram_ids.shape[1])
    if ngram_position_matrix is not None and tuple(ngram_position_matrix.shape) != wanted:
        raise ValueError(
            f"`ngram_position_matrix` must be (batch, seq_len, ngrams) = {wanted}, got "
            f"{tuple(ngram_position_matrix.shape)}."
        )
    got = value_outside(ngram_ids, config.word_vocab_size)
    if got is not None:
        raise ValueError(
            f"`ngram_ids` must be in [0, `word_vocab_size` = {config.word_vocab_size}), got {got}. Is it another "
            "model's ngram.txt?"
        )
    if ngram_positions is None or ngram_lengths is None:
        return
    if values_can_be_read(ngram_positions) and values_can_be_read(ngram_lengths):
        outside = (ngram_positions < 0) | (ngram_lengths < 0) | (ngram_positions + ngram_lengths > input_shape[1])
        if outside.any():
            row, place = outside.nonzero()[0].tolist()
            raise ValueError(
                f"`ngram_positions` and `ngram_lengths` must stay in the row of {input_shape[1]} tokens, got "
                f"{int(ngram_positions[row, place])} and {int(ngram_lengths[row, place])} in row {row}. Was the text "
                "cut after they were made?"
            )


def ngram_membership(
    seq_len: int,
    ngram_positions: Any,
    ngram_lengths: Any,
    ngram_position_matrix: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Which token is part of which n-gram, `(batch, seq_len, ngrams)`: from first tokens and lengths, or as given."""
    if ngram_position_matrix is not None:
        return ngram_position_matrix.to(dtype)
    first, behind = ngram_positions[:, None], (ngram_positions + ngram_lengths)[:, None]
    places = torch.arange(seq_len, device=ngram_positions.device)[None, :, None]
    return ((places >= first) & (places < behind)).to(dtype)


def build_ngram_mask(
    ngram_states: torch.Tensor,
    ngram_ids: torch.Tensor,
    ngram_attention_mask: torch.Tensor | None,
    membership: torch.Tensor,
    sequence_ids: torch.Tensor | None,
) -> torch.Tensor:
    """Who sees whom among n-grams: real ones, by `ngram_attention_mask` or their ids, all others of their sequence.

    The reference's code for tagging has no mask, so that padding takes part: a mask of ones gives that.
    """
    real = (ngram_ids if ngram_attention_mask is None else ngram_attention_mask) != 0
    if sequence_ids is None:
        visible = (real | ~real.any(dim=1, keepdim=True))[:, None, None]
    else:
        owner = ((membership != 0) * sequence_ids[..., None]).amax(dim=1) * real
        visible = owner[:, None, :, None] == owner[:, None, None, :]
    bias = torch.zeros(visible.shape, dtype=ngram_states.dtype, device=ngram_states.device)
    return bias.masked_fill(~visible, torch.finfo(bias.dtype).min)
