"""Who sees whom in a text with knowledge: K-BERT's visible matrix and soft positions, from two numbers per token.

A text is a tree: its own tokens are the trunk, and behind each word hang the branches that were injected for it, token
after token in the row. Two integers tell all of it:

    word_index  which word of the trunk a token belongs to: its own, or the one its branch hangs on; -1 = padding
    branch_id   0 on the trunk, another number for each branch of a word; -1 = padding

Trunk tokens see each other. A branch sees itself and the tokens of its word, and they see it; it sees no other branch
and no other word:

    visible(i, j) = (b_i = b_j = 0) or (w_i = w_j and (b_i = b_j or b_i = 0 or b_j = 0))

This is a mask function, so eager, sdpa and flex attention agree and no batch carries a (length, length) tensor.
Padding sees padding, so that no query is without a key. Soft positions number the trunk as if there were no branches,
and each branch on from the last token of its word.

In the reference the matrix is added to the scores as (visible - 1) * 10000. For padding, which sees nothing, the
constant cancels in the softmax: it attends everywhere, with scores rounded to about 1e-3. `reference_padding`
reproduces both, for poolings that take padding in; nothing else depends on the states of padding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from transformers.masking_utils import create_bidirectional_mask

from .heads_kbert import values_can_be_read
from .inputs_kbert import (
    REFERENCE_PADDING_BIAS,
    build_attention_mask,
    has_empty_row,
    position_ids_of,
)
from .mask_contract_kbert import flex_mask, two_dimensional

MaskFunction = Callable[[Any, Any, Any, Any], torch.Tensor]


class Knowledge(NamedTuple):
    """Where each token hangs in the tree.

    Args:
        words: `(batch, seq_len)` word of the trunk, -1 on padding.
        branches: `(batch, seq_len)` 0 on the trunk, else the branch, -1 on padding.
    """

    words: torch.Tensor
    branches: torch.Tensor


def check_knowledge(input_shape: torch.Size, word_index: torch.Tensor | None, branch_id: torch.Tensor | None) -> None:
    """Refuse knowledge inputs that do not fit the text or each other.

    Args:
        input_shape: `(batch, seq_len)`.
        word_index: as given to the model.
        branch_id: as given to the model.

    Raises:
        ValueError: one of the two is missing, has another shape than the text, or a number that means nothing.
    """
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


def knowledge_of(
    word_index: torch.Tensor | None,
    branch_id: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    sequence_ids: torch.Tensor | None,
) -> Knowledge | None:
    """The two numbers of each token, -1 wherever anything says that a token is padding.

    Args:
        word_index: `(batch, seq_len)`, or `None` without knowledge.
        branch_id: `(batch, seq_len)`, or `None` without knowledge.
        attention_mask: `(batch, seq_len)`, or `None`; other forms say nothing about padding.
        sequence_ids: `(batch, seq_len)` of packed rows, 0 = padding, or `None`.

    Returns:
        The tree, or `None` without knowledge.
    """
    if word_index is None or branch_id is None:
        return None
    padding = (word_index < 0) | (branch_id < 0)
    if two_dimensional(attention_mask):
        padding = padding | (attention_mask == 0)
    if sequence_ids is not None:
        padding = padding | (sequence_ids == 0)
    return Knowledge(word_index.masked_fill(padding, -1), branch_id.masked_fill(padding, -1))


def real_tokens(
    attention_mask: torch.Tensor | None, sequence_ids: torch.Tensor | None, knowledge: Knowledge | None
) -> torch.Tensor | None:
    """Which tokens are not padding.

    Args:
        attention_mask: `(batch, seq_len)`, or anything else that a model takes.
        sequence_ids: `(batch, seq_len)` of packed rows, or `None`.
        knowledge: the tree, or `None`.

    Returns:
        `(batch, seq_len)` boolean, or `None` if nothing says that there is padding.
    """
    if knowledge is not None:
        return knowledge.branches >= 0
    real = None if sequence_ids is None else sequence_ids > 0
    if two_dimensional(attention_mask):
        mask = attention_mask.to(torch.bool)
        real = mask if real is None else real & mask
    return real


def starts_of(*columns: torch.Tensor) -> torch.Tensor:
    """Index, for each token, of the first token of the run with its values.

    Args:
        columns: `(batch, seq_len)` each; a run ends where any of them changes.

    Returns:
        `(batch, seq_len)`.
    """
    first = columns[0]
    begins = torch.ones_like(first, dtype=torch.bool)
    begins[:, 1:] = False
    for column in columns:
        changes = torch.zeros_like(begins)
        changes[:, 1:] = column[:, 1:] != column[:, :-1]
        begins = begins | changes
    runs = begins.cumsum(dim=1) - 1  # not cummax, which ONNX lacks
    places = torch.arange(first.shape[1], device=first.device)[None]
    return torch.zeros_like(runs).scatter_add(1, runs, torch.where(begins, places, 0)).gather(1, runs)


def soft_position_ids(knowledge: Knowledge, sequence_ids: torch.Tensor | None = None) -> torch.Tensor:
    """Positions in the tree: the trunk counts as if it stood alone, a branch goes on from its word's last token.

    Args:
        knowledge: the tree; branches follow their word.
        sequence_ids: `(batch, seq_len)` of packed rows, each of which counts from 0.

    Returns:
        `(batch, seq_len)`; padding has 0.

    Example:
        >>> words = torch.tensor([[0, 1, 1, 1, 1, 2, -1]])  # [CLS] word(branch of 2)(branch of 1) word
        >>> branches = torch.tensor([[0, 0, 1, 1, 2, 0, -1]])
        >>> soft_position_ids(Knowledge(words, branches)).tolist()
        [[0, 1, 2, 3, 2, 2, 0]]
    """
    words, branches = knowledge
    on_trunk = branches == 0
    trunk = on_trunk.long().cumsum(dim=1)
    before = trunk - on_trunk.long()
    columns = (words, branches) if sequence_ids is None else (words, branches, sequence_ids)
    within = torch.arange(words.shape[1], device=words.device)[None] - starts_of(*columns)
    # Of a branch token, `before` counts the trunk up to its word's last token.
    positions = torch.where(on_trunk, before, before + within)
    if sequence_ids is not None:
        positions = positions - before.gather(1, starts_of(sequence_ids))
    return torch.where(branches < 0, 0, positions)


def knowledge_position_ids(
    config: Any,
    input_shape: torch.Size,
    device: torch.device,
    position_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    sequence_ids: torch.Tensor | None,
    knowledge: Knowledge | None,
) -> torch.Tensor:
    """The positions that count: given ones, those of the tree, or those of the row.

    Args:
        config: has `use_soft_positions` and the size of the table.
        input_shape: `(batch, seq_len)`.
        device: where positions are made.
        position_ids: `(batch, seq_len)`, or `None`.
        attention_mask: `(batch, seq_len)`, or `None`.
        sequence_ids: `(batch, seq_len)` of packed rows, or `None`.
        knowledge: the tree, or `None`.

    Returns:
        `(batch, seq_len)`, or `(1, seq_len)` if all rows are alike.

    Raises:
        ValueError: a row that is counted token by token is longer than the table.
    """
    if knowledge is None or config.use_soft_positions:
        if position_ids is not None:
            return position_ids
        if knowledge is not None:
            return soft_position_ids(knowledge, sequence_ids)
    if sequence_ids is None and input_shape[1] > config.max_position_embeddings:
        raise ValueError(
            f"The input has {input_shape[1]} tokens and `max_position_embeddings` is "
            f"{config.max_position_embeddings}: truncate it or split it into windows."
        )
    padding = attention_mask if knowledge is None else (knowledge.branches >= 0).long()
    return position_ids_of(input_shape, device, padding, sequence_ids)


def check_token_types(config: Any, token_type_ids: torch.Tensor | None) -> None:
    """Refuse token types that the table does not have, where looking costs nothing.

    Args:
        config: has the size of the table.
        token_type_ids: `(batch, seq_len)`, or `None`.

    Raises:
        ValueError: a type is negative or not below `type_vocab_size`.
    """
    if token_type_ids is None or not values_can_be_read(token_type_ids) or not token_type_ids.numel():
        return
    lowest, highest = int(token_type_ids.min()), int(token_type_ids.max())
    if lowest < 0 or highest >= config.type_vocab_size:
        raise ValueError(
            f"`token_type_ids` must be in [0, `type_vocab_size` = {config.type_vocab_size}), got "
            f"{lowest if lowest < 0 else highest}. The reference's 1 and 2 (0 = padding) need its table of three "
            "rows; BERT's two rows are 0 and 1."
        )


def default_token_types(
    config: Any, input_shape: torch.Size, device: torch.device, real: torch.Tensor | None
) -> torch.Tensor | None:
    """Token types of a text for which none are given.

    Args:
        config: has `first_token_type_id`.
        input_shape: `(batch, seq_len)`.
        device: where they are made.
        real: `(batch, seq_len)`, or `None` without padding.

    Returns:
        `(batch, seq_len)`, type 0 on padding; `None` for type 0 everywhere.
    """
    first = config.first_token_type_id
    if first == 0:
        return None
    return torch.full(input_shape, first, device=device) if real is None else real.long() * first


def visible_function(knowledge: Knowledge, sequence_ids: torch.Tensor | None = None) -> MaskFunction:
    """Mask function: whether query `q` may look at key `kv`.

    Args:
        knowledge: the tree.
        sequence_ids: `(batch, seq_len)` of packed rows, which do not see each other.

    Returns:
        A function of (batch, head, query, key) indices.
    """
    words, branches = knowledge

    def visible(batch: Any, head: Any, q: Any, kv: Any) -> torch.Tensor:
        q_branch, kv_branch = branches[batch, q], branches[batch, kv]
        q_trunk, kv_trunk = q_branch == 0, kv_branch == 0
        same_word = words[batch, q] == words[batch, kv]
        return (q_trunk & kv_trunk) | (same_word & (q_trunk | kv_trunk | (q_branch == kv_branch)))

    if sequence_ids is None:
        return visible
    return lambda batch, head, q, kv: (sequence_ids[batch, q] == sequence_ids[batch, kv]) & visible(batch, head, q, kv)


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

    Example:
        >>> words, branches = torch.tensor([[0, 1, 1, 2, -1]]), torch.tensor([[0, 0, 1, 0, -1]])
        >>> kbert_visible_matrix(words, branches)[0].int().tolist()
        [[1, 1, 0, 1, 0], [1, 1, 1, 1, 0], [0, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 0]]
    """
    check_knowledge(word_index.shape, word_index, branch_id)
    knowledge = knowledge_of(word_index, branch_id, None, None)
    return visible_pairs(knowledge, None)


def visible_pairs(knowledge: Knowledge, sequence_ids: torch.Tensor | None) -> torch.Tensor:
    """`(batch, seq_len, seq_len)` boolean: real queries and the real keys that they see."""
    batch, seq_len = knowledge.words.shape
    rows = torch.arange(batch, device=knowledge.words.device)[:, None, None]
    places = torch.arange(seq_len, device=knowledge.words.device)
    real = knowledge.branches >= 0
    visible = visible_function(knowledge, sequence_ids)(rows, None, places[None, :, None], places[None, None])
    return visible & real[:, :, None] & real[:, None]


def visible_tree(
    config: Any, attention_mask: Any, knowledge: Knowledge | None, real: torch.Tensor | None
) -> Knowledge | None:
    """The tree that restricts attention, if any does.

    Args:
        config: has `use_visible_matrix` and `reference_padding`.
        attention_mask: as given to the model.
        knowledge: the tree, or `None`.
        real: `(batch, seq_len)`, or `None` without padding.

    Returns:
        The tree; under `reference_padding` also that of a text without knowledge, which is all trunk; else `None`.

    Raises:
        ValueError: knowledge comes with a finished mask, which would hide it.
    """
    if not config.use_visible_matrix:
        return None
    finished = attention_mask is not None and not two_dimensional(attention_mask)
    if finished:
        if knowledge is not None:
            raise ValueError(
                "`attention_mask` must be `(batch, seq_len)` with `word_index` and `branch_id`: a finished mask "
                "leaves no room for visibility. Put it into that mask, or set `config.use_visible_matrix = False`."
            )
        return None
    if knowledge is None and config.reference_padding and real is not None:
        trunk = real.long() - 1
        return Knowledge(trunk, trunk)
    return knowledge


def computes_plainly(
    config: Any, attention_mask: Any, sequence_ids: torch.Tensor | None, tree: Knowledge | None
) -> bool:
    """Whether scores must be rounded as the reference rounds them, which fused attention does not.

    Args:
        config: decides about padding and the attention implementation.
        attention_mask: `(batch, seq_len)`, or anything else that a model takes.
        sequence_ids: `(batch, seq_len)` of packed rows, or `None`.
        tree: what `visible_tree` gave.

    Returns:
        True under `reference_padding` (flex attention aside), and for rows of nothing but padding.
    """
    if tree is None:
        return has_empty_row(config, attention_mask, sequence_ids)
    return config.reference_padding and config._attn_implementation != "flex_attention"


def build_visibility_mask(
    config: Any,
    embeddings: torch.Tensor,
    attention_mask: Any,
    sequence_ids: torch.Tensor | None,
    tree: Knowledge | None,
) -> Any:
    """What the configured attention implementation takes for a text with knowledge, or without.

    Args:
        config: decides the implementation.
        embeddings: `(batch, seq_len, hidden)`, for shape, dtype and device.
        attention_mask: `(batch, seq_len)`, or a finished mask, which is all.
        sequence_ids: `(batch, seq_len)` of packed rows, 0 = padding, or `None`.
        tree: what `visible_tree` gave.

    Returns:
        An additive mask (eager, and under `reference_padding`), a boolean one (sdpa), a `BlockMask` (flex), or `None`
        when nothing is hidden.
    """
    if tree is None:
        return build_attention_mask(config, embeddings, attention_mask, sequence_ids)
    function = visible_function(tree, sequence_ids)
    if config._attn_implementation == "flex_attention":
        if config.reference_padding:
            function = _with_padding_that_sees(function, tree.branches)
        return flex_mask(function, embeddings, embeddings.shape[1])
    if config.reference_padding:
        hidden = ~visible_pairs(tree, sequence_ids)
        return hidden[:, None].to(embeddings.dtype) * REFERENCE_PADDING_BIAS
    return create_bidirectional_mask(config, embeddings, None, and_mask_function=function)


def _with_padding_that_sees(function: MaskFunction, branches: torch.Tensor) -> MaskFunction:
    return lambda batch, head, q, kv: (branches[batch, q] < 0) | function(batch, head, q, kv)
