"""UniLM's attention modes: which tokens may see which, and the token types that tell the modes apart.

Query i may look at key j of the same sequence [CLS] source [SEP] target [SEP] (`source_lengths`: [CLS] source [SEP])
in

    mode 0, bidirectional:  always          mode 2, right-to-left:  j >= i
    mode 1, left-to-right:  j <= i          mode 3, seq2seq:        j is in the source, or j <= i

Padding sees padding. Pseudo-masked fine-tuning (UniLMv2, Bao et al. 2020, https://arxiv.org/abs/2002.12804; s2s-ft)
appends one pseudo token for each of the m target tokens, `pseudo_lengths` = m. That of target token t has its position
and its type, sees the source, the target before t, and itself; no other token sees it: a target in one pass.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask

from .configuration_unilm import UniLMConfig
from .inputs_core import position_ids_of, run_starts
from .losses_core import value_outside, values_can_be_read
from .mask_contract_core import flex_mask, two_dimensional

BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEQ2SEQ = range(4)


class TokenModes:
    """Sequence, mode, segment and place of every token of a batch, each `(batch, seq_len)`."""

    def __init__(
        self,
        shape: torch.Size,
        device: torch.device,
        attention_mask: torch.Tensor | None,
        sequence_ids: torch.Tensor | None,
    ):
        self.shape, self.device = shape, device
        self.ids = sequence_ids_of(attention_mask, sequence_ids)
        # Number within the sequence, from 0; of a pseudo token that of its target token.
        self.index = index_in_sequence(shape, device, self.ids, packed=sequence_ids is not None)
        self.modes: torch.Tensor | None = None  # `None` for bidirectional attention alone
        self.is_source: torch.Tensor | None = None  # the first segment, with `modes`
        self.is_pseudo: torch.Tensor | None = None

    def read_modes(
        self,
        config: Any,
        lm_mode: torch.Tensor,
        source_lengths: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Spread modes over tokens and find the sources; gives the token types, made if left out."""
        check_modes(lm_mode, self.ids)
        modes = self.modes = per_token(lm_mode, self.ids, self.shape[1])
        if source_lengths is not None:
            self.is_source = self.index.expand(self.shape) < per_token(source_lengths, self.ids, self.shape[1])
        elif token_type_ids is not None:
            token_type_ids = own_token_types(config, modes, token_type_ids)
            self.is_source = token_type_ids.eq(config.source_type_id)
        elif values_can_be_read(lm_mode) and not bool((lm_mode == SEQ2SEQ).any()):
            self.is_source = torch.zeros(self.shape, dtype=torch.bool, device=self.device)
        else:
            raise ValueError(
                "`lm_mode` 3 (seq2seq) needs `source_lengths`, the number of tokens of [CLS] source [SEP] in each "
                f"sequence, or `token_type_ids` that tell source from target, got {source_lengths}. Give one of them."
            )
        if token_type_ids is not None or config is None:
            return token_type_ids
        return default_token_types(config, modes, self.is_source, self.ids)

    def read_pseudo(
        self, lm_mode: torch.Tensor | None, source_lengths: torch.Tensor | None, pseudo_lengths: torch.Tensor
    ) -> None:
        """Find the tokens behind source and target that stand for the target's, which are as many; 0 = none."""
        if source_lengths is None or lm_mode is None:
            raise ValueError(
                "`pseudo_lengths` needs `source_lengths` and `lm_mode` 3: pseudo tokens stand behind source and "
                f"target, got {source_lengths} and {lm_mode}."
            )
        index, seq_len = self.index.expand(self.shape), self.shape[1]
        count = per_token(pseudo_lengths, self.ids, seq_len)
        self.is_pseudo = (count > 0) & (index >= per_token(source_lengths, self.ids, seq_len) + count)
        if values_can_be_read(pseudo_lengths):
            check_pseudo(self.is_pseudo, lm_mode, pseudo_lengths)
        self.index = torch.where(self.is_pseudo, index - count, index)

    def visible_function(self) -> Callable[[Any, Any, Any, Any], torch.Tensor]:
        """Mask function of the four modes, and of pseudo tokens."""
        shape, device = self.shape, self.device
        ids = torch.ones(shape, dtype=torch.long, device=device) if self.ids is None else self.ids
        modes = torch.zeros(shape, dtype=torch.long, device=device) if self.modes is None else self.modes
        is_source = torch.zeros(shape, dtype=torch.bool, device=device) if self.is_source is None else self.is_source
        is_pseudo, index = self.is_pseudo, self.index

        def visible(batch: Any, head: Any, q: Any, kv: Any) -> torch.Tensor:
            mode = modes[batch, q]
            allowed = (
                (mode == BIDIRECTIONAL)
                | ((mode == LEFT_TO_RIGHT) & (kv <= q))
                | ((mode == RIGHT_TO_LEFT) & (kv >= q))
                | ((mode == SEQ2SEQ) & (is_source[batch, kv] | (kv <= q)))
            )
            return (ids[batch, q] == ids[batch, kv]) & allowed

        if is_pseudo is None:
            return visible

        def visible_beside_pseudo(batch: Any, head: Any, q: Any, kv: Any) -> torch.Tensor:
            left_of_it = index[batch, kv] < index[batch, q]
            seen = visible(batch, head, q, kv) & ~is_pseudo[batch, kv] & (~is_pseudo[batch, q] | left_of_it)
            return seen | (q == kv)

        return visible_beside_pseudo

    def attention_mask(self, config: UniLMConfig, embeddings: torch.Tensor, prefix: int = 0) -> Any:
        """What the configured attention implementation takes; a learnt prefix of so many keys is seen by all."""
        if self.ids is None and self.modes is None:
            return None
        if config._attn_implementation == "flex_attention":
            return flex_mask(self.visible_function(), embeddings, self.shape[1])
        mask = create_bidirectional_mask(config, embeddings, None, and_mask_function=self.visible_function())
        return nn.functional.pad(mask, (prefix, 0), value=mask.dtype == torch.bool) if prefix else mask


def sequence_ids_of(attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor | None) -> torch.Tensor | None:
    """One id per sequence and 0 for padding, from whichever of the two says where sequences are."""
    if sequence_ids is None:
        return None if attention_mask is None else attention_mask.to(torch.bool).long()
    return sequence_ids if attention_mask is None else sequence_ids * attention_mask.to(torch.bool).long()


def index_in_sequence(
    shape: torch.Size, device: torch.device, ids: torch.Tensor | None = None, packed: bool = True
) -> torch.Tensor:
    """Number of each token within its run of equal ids (`packed`) or within its row, where holes are not counted."""
    if ids is None or packed:
        return position_ids_of(shape, device, sequence_ids=ids)
    return torch.where(ids == 0, 0, (ids > 0).long().cumsum(dim=1) - 1)


def mask_of_text(mask: Any, prefix: int, past: int, length: int) -> Any:
    """A mask without the columns of a learnt prefix, or, a finished one, with them: they are seen by all."""
    if mask is None:
        return None
    if two_dimensional(mask):
        return mask[:, -length:]
    missing = prefix if mask.shape[-1] == past + length - prefix else 0
    return nn.functional.pad(mask, (missing, 0), value=mask.dtype == torch.bool)


def check_modes(lm_mode: torch.Tensor, ids: torch.Tensor | None) -> None:
    """Refuse modes that do not exist, where looking costs nothing: such a token would see nothing at all."""
    if not torch.is_tensor(lm_mode):
        raise TypeError(
            f"`lm_mode` must be a tensor `(batch,)` with one mode per row, got {lm_mode!r}: use "
            "`torch.full((batch,), mode)`."
        )
    if lm_mode.dim() > 1 and ids is None:
        raise ValueError(
            f"`lm_mode` must be `(batch,)` without `sequence_ids`, got {tuple(lm_mode.shape)}: pass `sequence_ids` of "
            "the packed rows, or one mode per row."
        )
    if (
        values_can_be_read(lm_mode)
        and lm_mode.numel()
        and not 0 <= int(lm_mode.min()) <= int(lm_mode.max()) <= SEQ2SEQ
    ):
        raise ValueError(
            "`lm_mode` must be 0 (bidirectional), 1 (left-to-right), 2 (right-to-left) or 3 (seq2seq), got "
            f"{sorted(set(lm_mode.flatten().tolist()))}."
        )


def check_pseudo(is_pseudo: torch.Tensor, lm_mode: torch.Tensor, pseudo_lengths: torch.Tensor) -> None:
    """Refuse pseudo tokens outside seq2seq mode, and numbers of them that the rows do not have."""
    if bool(((pseudo_lengths > 0) & (lm_mode != SEQ2SEQ)).any()):
        raise ValueError(
            f"`pseudo_lengths` must be 0 where `lm_mode` is not 3 (seq2seq), got {pseudo_lengths.tolist()} for "
            f"the modes {lm_mode.tolist()}."
        )
    got, asked = is_pseudo.sum(dim=1), pseudo_lengths.reshape(pseudo_lengths.shape[0], -1).sum(dim=1)
    if bool((got != asked).any()):
        raise ValueError(
            "`pseudo_lengths` must be m in sequences of `source_lengths` + 2 m tokens, got "
            f"{pseudo_lengths.tolist()}, which leaves {got.tolist()} pseudo tokens in each row: append one to the "
            "target for each of its tokens, [SEP] included."
        )


def per_token(values: torch.Tensor, ids: torch.Tensor | None, seq_len: int) -> torch.Tensor:
    """Spread a value per sequence over its tokens."""
    if values.dim() == 1:
        spread = values[:, None].expand(-1, seq_len)
        return spread if ids is None else torch.where(ids == 0, 0, spread)
    if ids is None:
        raise ValueError(f"Values per packed sequence, {tuple(values.shape)}, need `sequence_ids`, got {ids}.")
    return torch.where(ids == 0, 0, values.gather(1, (ids - 1).clamp(min=0)))


def own_token_types(config: UniLMConfig, modes: torch.Tensor, token_type_ids: torch.Tensor) -> torch.Tensor:
    """Seq2seq types for the 0 and 1 with which a tokenizer tells two segments apart."""
    in_seq2seq = modes == SEQ2SEQ
    own = (token_type_ids == config.source_type_id) | (token_type_ids == config.target_type_id)
    foreign = in_seq2seq & ~(own & in_seq2seq).any(dim=1, keepdim=True)
    types = torch.where(foreign & (token_type_ids == 0), config.source_type_id, token_type_ids)
    return torch.where(foreign & (token_type_ids == 1), config.target_type_id, types)


def default_token_types(
    config: UniLMConfig, modes: torch.Tensor, is_source: torch.Tensor, ids: torch.Tensor | None
) -> torch.Tensor:
    """UniLM's token types; where lengths are unknown nothing is source, and all of mode 0 is type 0, as padding."""
    # No table of types: copying one to the device would wait for it.
    in_seq2seq = torch.where(is_source, config.source_type_id, config.target_type_id)
    bidirectional = (~is_source & is_source.any(dim=1, keepdim=True)).long()
    others = torch.where(modes.eq(SEQ2SEQ), in_seq2seq, modes + 1)
    types = torch.where(modes.eq(BIDIRECTIONAL), bidirectional, others)
    return types if ids is None else torch.where(ids.eq(0), 0, types)


def types_by_separator(
    config: UniLMConfig, input_ids: torch.Tensor | None, ids: torch.Tensor | None, packed: bool
) -> torch.Tensor:
    """Seq2seq token types of sequences about which nothing else is said: the source ends with the first [SEP].

    A sequence of one [SEP] or none is all source, as a prompt is.
    """
    ends = config.eos_token_id
    if input_ids is None or ends is None:
        got = "no `input_ids`" if input_ids is None else f"`eos_token_id` = {ends}"
        raise ValueError(
            "Seq2seq mode, the default here, needs `source_lengths`, the number of tokens of [CLS] source [SEP] in "
            f"each sequence, or `token_type_ids` that tell source from target: with {got} no [SEP] tells. Give one of "
            "them, or another `lm_mode`."
        )
    is_end = torch.zeros_like(input_ids, dtype=torch.bool)
    for end in [ends] if isinstance(ends, int) else ends:
        is_end |= input_ids == end
    if ids is not None:
        is_end &= ids != 0
    before = is_end.long().cumsum(dim=1) - is_end.long()
    if packed and ids is not None:
        before = before - before.gather(1, run_starts(ids))
    if not torch.compiler.is_compiling() and bool(((before >= 2) & is_end).any()):
        raise ValueError(
            "`source_lengths` or `token_type_ids` must say where the source ends: a sequence has more than two [SEP] "
            f"(id {ends}), so [CLS] source [SEP] target [SEP] cannot be read off it. Give one of them."
        )
    types = torch.where(before == 0, config.source_type_id, config.target_type_id)
    return types if ids is None else torch.where(ids == 0, 0, types)


def check_token_types(config: UniLMConfig, token_type_ids: torch.Tensor | None) -> None:
    """Refuse types that the table does not have, where looking costs nothing."""
    got = None if token_type_ids is None else value_outside(token_type_ids, config.type_vocab_size)
    if got is not None:
        raise ValueError(
            f"Token types (`token_type_ids`, or those of the modes) must be in [0, {config.type_vocab_size}), got "
            f"{got}: `type_vocab_size` is {config.type_vocab_size}. Convert the "
            "checkpoint (`hf-ptm-ext convert unilm` extends a BERT table to 6 rows), set `source_type_id` and "
            "`target_type_id`, or pass `token_type_ids`."
        )


def unilm_attention_mask(
    lm_mode: torch.Tensor,
    lengths: torch.Tensor,
    source_lengths: torch.Tensor | None = None,
    pseudo_lengths: torch.Tensor | None = None,
) -> torch.Tensor:
    """The attention mask of UniLM's modes as a boolean tensor, for use with another model.

    Boolean masks (true = may attend) are what `torch.nn.functional.scaled_dot_product_attention` takes; for a model
    that adds its mask to the scores, use `torch.where(mask, 0.0, torch.finfo(dtype).min)`; for one that takes 1 and 0,
    `mask.long()`.

    Args:
        lm_mode: `(batch,)` 0 bidirectional, 1 left-to-right, 2 right-to-left, 3 seq2seq.
        lengths: `(batch,)` number of tokens of each row, padding on the right.
        source_lengths: `(batch,)` tokens of [CLS] source [SEP], needed for mode 3.
        pseudo_lengths: `(batch,)` target tokens of rows that have a pseudo token for each behind them, 0 elsewhere.

    Returns:
        `(batch, 1, seq_len, seq_len)` boolean, query by key; padding sees padding.

    Raises:
        TypeError: `lm_mode` is no tensor.
        ValueError: modes or lengths that cannot be.

    Examples:
        >>> mask = unilm_attention_mask(torch.tensor([3]), torch.tensor([4]), torch.tensor([2]))
        >>> mask[0, 0].int().tolist()
        [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    seq_len = int(lengths.max())
    real = torch.arange(seq_len, device=lengths.device)[None] < lengths[:, None]
    tokens = TokenModes(real.shape, lengths.device, real, None)
    tokens.read_modes(None, lm_mode, source_lengths, None)
    if pseudo_lengths is not None:
        tokens.read_pseudo(lm_mode, source_lengths, pseudo_lengths)
    batch = torch.arange(lengths.shape[0], device=lengths.device)[:, None, None]
    q, kv = torch.arange(seq_len, device=lengths.device)[:, None], torch.arange(seq_len, device=lengths.device)
    return tokens.visible_function()(batch, None, q[None], kv[None, None])[:, None]
