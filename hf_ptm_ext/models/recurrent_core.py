"""What models that read word by word share: loading, word vectors, and recurrent layers on rows with padding anywhere.

A recurrent network reads real tokens first, and backwards the real tokens in reverse: a padded row equals the row
alone, without packing and without a look at the lengths from the host.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import initialization as init

from .base_core import FamilyPreTrainedModel, arguments_of
from .encoder_core import refuse_unknown_arguments
from .mask_contract_core import read_attention_mask


class Reading(NamedTuple):
    """Where the chosen tokens of rows are: places of orders to `rearranged` by, all `(batch, seq_len)`."""

    first: torch.Tensor  # chosen tokens first, in their own order
    back: torch.Tensor  # from there to their own places
    turned: torch.Tensor  # chosen tokens that stand first in reverse, and back again
    lengths: torch.Tensor  # `(batch, 1)`

    @property
    def last(self) -> torch.Tensor:
        """Place of the last chosen token where they stand first, `(batch, 1)`."""
        return (self.lengths - 1).clamp(min=0)


def reading_of(chosen: torch.Tensor) -> Reading:
    """The orders of reading for a bool mask `(batch, seq_len)`."""
    first = (~chosen).to(torch.int8).argsort(dim=1, stable=True)
    lengths = chosen.sum(1, keepdim=True)
    places = torch.arange(chosen.shape[1], device=chosen.device)[None]
    turned = torch.where(places < lengths, lengths - 1 - places, places)
    return Reading(first, first.argsort(dim=1), turned, lengths)


def rearranged(states: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Take the positions of each row in another order."""
    return states.gather(1, order[..., None].expand(-1, -1, states.shape[-1]))


def read_both_ways(
    ahead: nn.Module, back: nn.Module | None, words: torch.Tensor, chosen: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """States of chosen tokens, 0 elsewhere, and the last state of each direction; forwards alone without `back`."""
    reading = reading_of(chosen)
    words = rearranged(words, reading.first)
    states = ahead(words)[0]
    final = rearranged(states, reading.last)
    if back is not None:
        backwards = back(rearranged(words, reading.turned))[0]
        final = torch.cat([final, rearranged(backwards, reading.last)], dim=-1)
        states = torch.cat([states, rearranged(backwards, reading.turned)], dim=-1)
    states = rearranged(states, reading.back)
    return states * chosen[..., None].to(states.dtype), final[:, 0] * (reading.lengths > 0).to(final.dtype)


class RecurrentPreTrainedModel(FamilyPreTrainedModel):
    """Base of a family's base class: words looked up in tables of vectors, nothing attends."""

    supports_gradient_checkpointing = False
    _supports_sdpa = False
    _supports_flex_attn = False
    _supports_attention_backend = False
    _can_compile_fullgraph = False
    _can_record_outputs: Any = None
    _no_split_modules: Any = None
    _layer_stacks: tuple[str, ...] = ()
    _input_parts: tuple[str, ...] = ("embeddings.", "encoder.")

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load as every family here does; what is frozen stays so, which upstream's loading forgets."""
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.base_model.freeze()
        model.freeze()
        return loaded

    def freeze(self) -> None:
        """Take the gradient from what the family does not train."""

    def word_tables(self) -> list[tuple[nn.Module, str]]:
        """Tables of word vectors besides the first, as a module and the name of the table in it."""
        return []

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.RNNBase | nn.LSTMCell):
            bound = module.hidden_size**-0.5
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Module:
        resized = super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        for module, name in self.base_model.word_tables():
            table = self._get_resized_embeddings(
                getattr(module, name), resized.weight.shape[0], mean_resizing=mean_resizing
            )
            setattr(module, name, table)
        self.base_model.freeze()
        return resized

    def new_encoder(self, config: Any, pooled: bool) -> nn.Module:
        """A head's encoder, which always has its pooled states."""
        return self._encoder_class(config)

    @torch.no_grad()
    def set_word_vectors(self, tokenizer: Any, vectors: Any) -> int:
        """Start from word vectors, in every table.

        Args:
            tokenizer: Its words are looked up as they are; special tokens keep their rows.
            vectors: `WordVectors`, gensim's `KeyedVectors` or a mapping, of `config.embedding_size` numbers.

        Returns:
            How many words have a vector.

        Raises:
            ValueError: no word has one, or the widths differ.
        """
        special = set(tokenizer.all_special_tokens)
        found = {
            number: torch.as_tensor(vectors[token], dtype=torch.float32)
            for token, number in tokenizer.get_vocab().items()
            if token not in special and token in vectors
        }
        if not found:
            raise ValueError(
                f"`vectors` must have a vector for some token of the tokenizer, got none of {len(vectors)}: are they "
                "of this language, and of words in the tokenizer's case?"
            )
        width = self.config.embedding_size
        wrong = {tuple(vector.shape) for vector in found.values()} - {(width,)}
        if wrong:
            raise ValueError(f"`vectors` must be of `embedding_size` = {width} numbers, got shape {min(wrong)}.")
        values, ids = torch.stack(list(found.values())), torch.tensor(list(found))
        others = (getattr(module, name) for module, name in self.base_model.word_tables())
        for table in (self.get_input_embeddings(), *others):
            table.weight[ids.to(table.weight.device)] = values.to(table.weight)
        return len(found)

    def checked(
        self, texts: torch.Tensor | None, mask: Any, output_attentions: bool | None, unnamed: dict[str, Any]
    ) -> torch.Tensor:
        """Refuse what a forward cannot read; which tokens of `texts` are real, as bool."""
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, unnamed, arguments_of(type(self)))
        if self.config.output_attentions if output_attentions is None else output_attentions:
            raise ValueError(
                f"`output_attentions` must be False, got {output_attentions}: nothing attends in a "
                f"{type(self).__name__}. Ask for hidden states."
            )
        if texts is None:
            raise ValueError(f"`input_ids` must be given, got {texts}: words are looked up in a table of vectors.")
        return self.real_tokens(texts, mask)

    def real_tokens(self, texts: torch.Tensor, mask: Any, name: str = "attention_mask") -> torch.Tensor:
        """Which positions are tokens, as bool `(batch, seq_len)`."""
        if mask is None:
            return torch.ones(texts.shape[:2], dtype=torch.bool, device=texts.device)
        if torch.is_tensor(mask) and mask.dim() != 2:
            raise ValueError(
                f"`{name}` must be (batch, seq_len): nothing attends here, got shape {tuple(mask.shape)}."
            )
        real: torch.Tensor = read_attention_mask(self.config, mask, texts, name=name)
        return real.bool()


def masked_mean(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean of `(batch, seq_len, width)` states, weighted by `(batch, seq_len)`; 0 where all weights are."""
    weights = weights.to(states.dtype)
    total = weights.sum(1, keepdim=True)
    return torch.einsum("bsh,bs->bh", states, weights) / torch.where(total == 0, 1, total)
