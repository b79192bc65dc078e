"""Who sees whom in a text with knowledge: K-BERT's visible matrix and soft positions, from two numbers per token.

    word_index  which word of the trunk a token belongs to: its own, or the one its branch hangs on; -1 = padding
    branch_id   0 on the trunk, another number for each branch of a word; -1 = padding
    visible(i, j) = (b_i = b_j = 0) or (w_i = w_j and (b_i = b_j or b_i = 0 or b_j = 0))

This is a mask function, so no batch carries a (length, length) tensor. Padding sees padding. The reference adds
(visible - 1) * 10000 to the scores; for padding, which sees nothing, that cancels in the softmax but rounds the scores
to about 1e-3. `reference_padding` reproduces it, for poolings that take padding in.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers.masking_utils import create_bidirectional_mask

from .inputs_core import (
    REFERENCE_PADDING_BIAS,
    build_attention_mask,
    check_length,
    check_position_ids,
    has_empty_row,
    position_ids_of,
    run_starts,
)
from .losses_core import value_outside, values_can_be_read
from .mask_contract_core import flex_mask, two_dimensional

MaskFunction = Callable[[Any, Any, Any, Any], torch.Tensor]


def kbert_visible_matrix(word_index: torch.Tensor, branch_id: torch.Tensor) -> torch.Tensor:
    """The visible matrix itself, for looking at it and for use with another model.

    Boolean masks (true = may attend) are what `torch.nn.functional.scaled_dot_product_attention` takes once an axis
    for heads is put in; the models of this family need no matrix.

    Args:
        word_index: `(batch, seq_len)` word of the trunk of each token, -1 = padding.
        branch_id: `(batch, seq_len)` 0 on the trunk, another number for each branch of a word, -1 = padding.

    Returns:
        `(batch, seq_len, seq_len)` boolean, query by key, symmetric; padding sees nothing and is seen by nothing, as
        in the reference.

    Raises:
        ValueError: the two do not fit each other.

    Examples:
        >>> words, branches = torch.tensor([[0, 1, 1, 2, -1]]), torch.tensor([[0, 0, 1, 0, -1]])
        >>> kbert_visible_matrix(words, branches)[0].int().tolist()
        [[1, 1, 0, 1, 0], [1, 1, 1, 1, 0], [0, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 0]]
    """
    return SentenceTree(word_index.shape, word_index, branch_id).visible_pairs()


class SentenceTree:
    """Where each token hangs and what is padding, `(batch, seq_len)`: read once from all that says so, then asked."""

    def __init__(
        self,
        shape: torch.Size,
        word_index: torch.Tensor | None,
        branch_id: torch.Tensor | None,
        attention_mask: Any = None,
        sequence_ids: torch.Tensor | None = None,
    ):
        check_knowledge(shape, word_index, branch_id)
        self.attention_mask, self.sequence_ids = attention_mask, sequence_ids
        real = None if sequence_ids is None else sequence_ids > 0
        if two_dimensional(attention_mask):
            mask = attention_mask.to(torch.bool)
            real = mask if real is None else real & mask
        self.words: Any = None
        self.branches: Any = None
        if word_index is not None and branch_id is not None:
            knowledge = (word_index >= 0) & (branch_id >= 0)
            real = knowledge if real is None else real & knowledge
            self.words, self.branches = word_index.masked_fill(~real, -1), branch_id.masked_fill(~real, -1)
        # `(batch, seq_len)` bool, or `None` if nothing says what is padding.
        self.real: Any = real

    @property
    def padding_mask(self) -> Any:
        """The attention mask, or 1 and 0 of a text with knowledge, whose -1 says the same."""
        return self.attention_mask if self.branches is None or self.real is None else self.real.long()

    def position_ids(self, config: Any, states: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor:
        """The positions that count: given ones, those of the tree, or those of the row."""
        if self.words is not None and not config.use_soft_positions:
            given = None
        if given is None and self.words is not None and config.use_soft_positions:
            given = self.soft_positions()
        if given is None:
            if self.sequence_ids is None:
                check_length(config, states.shape[1])
            given = position_ids_of(states.shape[:2], states.device, self.padding_mask, self.sequence_ids)
        check_position_ids(given, self.sequence_ids, config)
        return given

    def soft_positions(self) -> torch.Tensor:
        """Positions in the tree: the trunk counts as if alone, a branch goes on from its word's last token."""
        on_trunk = self.branches == 0
        before = on_trunk.long().cumsum(dim=1) - on_trunk.long()
        columns = [self.words, self.branches] + ([] if self.sequence_ids is None else [self.sequence_ids])
        within = torch.arange(on_trunk.shape[1], device=on_trunk.device)[None] - run_starts(*columns)
        # Of a branch token, `before` counts the trunk up to its word's last token.
        positions = torch.where(on_trunk, before, before + within)
        if self.sequence_ids is not None:
            positions = positions - before.gather(1, run_starts(self.sequence_ids))
        return torch.where(self.branches < 0, 0, positions)

    def token_types(self, config: Any, states: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor | None:
        """Given token types, or the config's for a text; `None` for 0 everywhere."""
        first = config.first_token_type_id
        if given is None:
            if first == 0:
                return None
            shape = states.shape[:2]
            return torch.full(shape, first, device=states.device) if self.real is None else self.real.long() * first
        got = value_outside(given, config.type_vocab_size)
        if got is not None:
            raise ValueError(
                f"`token_type_ids` must be in [0, `type_vocab_size` = {config.type_vocab_size}), got {got}. The "
                "reference's 1 and 2 (0 = padding) need its table of three rows; BERT's two rows are 0 and 1."
            )
        return given

    def restricting(self, config: Any) -> "SentenceTree | None":
        """The tree that restricts attention, if any does: itself, or a trunk whose padding the reference treats so."""
        if not config.use_visible_matrix:
            return None
        if self.attention_mask is not None and not two_dimensional(self.attention_mask):
            if self.words is not None:
                raise ValueError(
                    "`attention_mask` must be `(batch, seq_len)` with `word_index` and `branch_id`, got "
                    f"{type(self.attention_mask).__name__}: a finished mask leaves no room for visibility. Put it "
                    "into that mask, or set `config.use_visible_matrix = False`."
                )
            return None
        if self.words is not None:
            return self
        if config.reference_padding and self.real is not None:
            trunk = self.real.long() - 1
            return SentenceTree(trunk.shape, trunk, trunk, self.attention_mask, self.sequence_ids)
        return None

    def attention(self, config: Any) -> tuple["SentenceTree | None", bool]:
        """The restricting tree, and whether scores must be rounded as the reference does: no fused kernel does."""
        tree = self.restricting(config)
        if tree is None:
            return None, has_empty_row(config, self.padding_mask, self.sequence_ids)
        return tree, config.reference_padding and config._attn_implementation != "flex_attention"

    def mask(self, config: Any, states: torch.Tensor, tree: "SentenceTree | None") -> Any:
        """What the configured attention implementation takes, for the restricting tree or `None`."""
        if tree is None:
            return build_attention_mask(config, states, self.padding_mask, self.sequence_ids)
        function = tree.visible_function()
        if config._attn_implementation == "flex_attention":
            if config.reference_padding:
                function = _with_padding_that_sees(function, tree.branches)
            return flex_mask(function, states, states.shape[1])
        if config.reference_padding:
            return (~tree.visible_pairs())[:, None].to(states.dtype) * REFERENCE_PADDING_BIAS
        return create_bidirectional_mask(config, states, None, and_mask_function=function)

    def visible_function(self) -> MaskFunction:
        """Mask function: whether query `q` may look at key `kv`."""
        words, branches, sequence_ids = self.words, self.branches, self.sequence_ids

        def visible(batch: Any, head: Any, q: Any, kv: Any) -> torch.Tensor:
            q_branch, kv_branch = branches[batch, q], branches[batch, kv]
            q_trunk, kv_trunk = q_branch == 0, kv_branch == 0
            same_word = words[batch, q] == words[batch, kv]
            return (q_trunk & kv_trunk) | (same_word & (q_trunk | kv_trunk | (q_branch == kv_branch)))

        if sequence_ids is None:
            return visible
        return lambda batch, head, q, kv: (
            (sequence_ids[batch, q] == sequence_ids[batch, kv]) & visible(batch, head, q, kv)
        )

    def visible_pairs(self) -> torch.Tensor:
        """`(batch, seq_len, seq_len)` boolean: real queries and the real keys that they see."""
        batch, seq_len = self.words.shape
        rows = torch.arange(batch, device=self.words.device)[:, None, None]
        places = torch.arange(seq_len, device=self.words.device)
        visible = self.visible_function()(rows, None, places[None, :, None], places[None, None])
        return visible & self.real[:, :, None] & self.real[:, None]


def _with_padding_that_sees(function: MaskFunction, branches: torch.Tensor) -> MaskFunction:
    return lambda batch, head, q, kv: (branches[batch, q] < 0) | function(batch, head, q, kv)


def check_knowledge(input_shape: torch.Size, word_index: torch.Tensor | None, branch_id: torch.Tensor | None) -> None:
    """Refuse knowledge inputs that do not fit the text or each other."""
    if (word_index is None) != (branch_id is None):
        given, missing = ("word_index", "branch_id") if branch_id is None else ("branch_id", "word_index")
        raise ValueError(
            f"`{missing}` must be given with `{given}`: both together say where a branch hangs. The tokenizer makes "
            "both."
        )
    if word_index is None or branch_id is None:
        return
    for name, value in (("word_index", word_index), ("branch_id", branch_id)):
        if value.shape != input_shape:
            raise ValueError(
                f"`{name}` must have a number for every token, the shape {tuple(input_shape)}, got "
                f"{tuple(value.shape)}. Pad it with -1."
            )
    if not (values_can_be_read(word_index) and values_can_be_read(branch_id)) or not word_index.numel():
        return
    for name, value in (("word_index", word_index), ("branch_id", branch_id)):
        if int(value.min()) < -1:
            raise ValueError(f"`{name}` must be 0 or more, or -1 on padding, got {int(value.min())}.")
