"""What is checked of weights wherever they come in (converted, loaded, about to be saved), and how tables grow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open


def not_finite(tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    """Names of the tensors that hold NaN or infinity."""
    pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
    return [
        name
        for name, value in pairs
        if (value.is_floating_point() or value.is_complex()) and not value.is_meta and not bool(value.isfinite().all())
    ]


def not_real(path: Path) -> list[str]:
    """Names of the matrices of a checkpoint that hold integers, booleans or complex numbers."""
    found = []
    safe = sorted(path.glob("model*.safetensors"))
    for file in safe:
        with safe_open(file, "pt") as opened:
            kinds = ((name, opened.get_slice(name).get_dtype()) for name in opened.keys())  # noqa: SIM118
            found += [name for name, kind in kinds if not kind.startswith(("F", "BF"))]
    for file in () if safe else sorted(path.glob("pytorch_model*.bin")):  # as loading prefers them
        state = torch.load(file, map_location="meta", weights_only=True)
        tensors = {name: one for name, one in state.items() if torch.is_tensor(one)} if isinstance(state, dict) else {}
        found += [name for name, one in tensors.items() if not one.is_floating_point()]
    return [name for name in found if name.endswith("weight")]


def embedding_rows(model: Any) -> int:
    """How many tokens a model has embeddings for, in one table or in several."""
    embeddings = model.get_input_embeddings()
    return embeddings.weight.shape[0] if hasattr(embeddings, "weight") else embeddings.num_embeddings


def extend_embeddings(model: Any, first_id: int, sources: Sequence[Sequence[int]]) -> None:
    """Give new pieces of a vocabulary the mean of the pieces that they replace, wherever a model has one row for each.

    Input and output embeddings, biases of heads and what else `resize_token_embeddings` makes longer.

    Args:
        model: A model of transformers with the embeddings of the old vocabulary.
        first_id: Id of the first new piece; rows from there on, which no old piece has, are made anew.
        sources: For each new piece the ids of the old ones, as `VocabularyExtension.sources`.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = BertForMaskedLM(BertConfig(vocab_size=20, **sizes))
        >>> extend_embeddings(model, 20, [(6, 7), (8, 9, 9)])
        >>> rows = model.get_input_embeddings().weight
        >>> rows.shape[0], bool(torch.allclose(rows[20], (rows[6] + rows[7]) / 2))
        (22, True)
    """
    largest = max(max(parts) for parts in sources)
    if largest >= first_id:
        raise ValueError(f"`sources` must be ids of old pieces, below `first_id` = {first_id}, got {largest}.")
    if not hasattr(model.get_input_embeddings(), "weight"):
        raise ValueError(f"`model` must have one table of embeddings, {type(model).__name__} has several clusters.")
    if embedding_rows(model) != first_id:
        model.resize_token_embeddings(first_id)
    before = {name: value.shape for name, value in _tables(model)}
    model.resize_token_embeddings(first_id + len(sources), mean_resizing=False)
    flat = torch.tensor([part for parts in sources for part in parts])
    piece = torch.repeat_interleave(torch.tensor([len(parts) for parts in sources]))
    share = 1 / torch.tensor([len(parts) for parts in sources], dtype=torch.float64)
    with torch.no_grad():
        for name, value in _tables(model):
            longer = [dim for dim, size in enumerate(value.shape) if before.get(name, value.shape)[dim] != size]
            for dim in longer:
                rows = value.movedim(dim, 0)
                parts = rows[flat.to(value.device)].cpu().double()  # not every device has float64
                new = parts.new_zeros(len(sources), *rows.shape[1:])
                new.index_add_(0, piece, parts * share[piece].view(-1, *[1] * (rows.dim() - 1)))
                rows[first_id:] = new.to(value)


# Words of fastai 0.7 -> the same of later vocabularies.
LATER_WORDS = {"_unk_": "xxunk", "_pad_": "xxpad"}


def transfer_vocabulary(model: Any, old: Any, new: Any) -> list[str]:
    """Give a model the vocabulary of another text: known words keep their rows, all others begin with the mean row.

    As ULMFiT does between its first stage and its second (fastai's `match_embeds`): embeddings, decoder and its bias.

    Args:
        model: A model of transformers with the old vocabulary; it is changed.
        old: Its tokenizer, or its words by their ids.
        new: The same of the new vocabulary. `_unk_` and `_pad_` are `xxunk` and `xxpad`.

    Returns:
        The words that the old vocabulary does not have.

    Raises:
        ValueError: the old vocabulary has more words than the model has rows.

    Examples:
        >>> from hf_ptm_ext import AwdLstmConfig, AwdLstmForCausalLM
        >>> model = AwdLstmForCausalLM(AwdLstmConfig(vocab_size=4, embedding_size=6, lstm_size=8))
        >>> transfer_vocabulary(model, ["xxunk", "xxpad", "a", "b"], ["xxunk", "xxpad", "b", "new", "other"])
        ['new', 'other']
        >>> model.config.vocab_size
        5
    """
    before, after = _words_of(old), _words_of(new)
    number = {LATER_WORDS.get(word, word): row for row, word in reversed([*enumerate(before)])}
    rows = torch.tensor([number.get(LATER_WORDS.get(word, word), -1) for word in after])
    parts = [model.get_input_embeddings(), model.get_output_embeddings()]
    if len(before) > parts[0].weight.shape[0]:
        raise ValueError(f"`old` has {len(before)} words and the model {parts[0].weight.shape[0]} rows.")

    def tables() -> list[torch.Tensor]:
        found = (getattr(part, name, None) for part in parts if part is not None for name in ("weight", "bias"))
        return [table for table in found if table is not None]

    kept = [table.detach().clone() for table in tables()]
    model.resize_token_embeddings(len(after), mean_resizing=False)
    parts[:] = [model.get_input_embeddings(), model.get_output_embeddings()]
    with torch.no_grad():
        for table, values in zip(tables(), kept, strict=True):
            chosen = values[rows.clamp(min=0).to(values.device)]
            chosen[(rows < 0).to(values.device)] = values.mean(0)
            table.copy_(chosen)
    return [word for word, row in zip(after, rows.tolist(), strict=True) if row < 0]


def _words_of(vocabulary: Any) -> list[str]:
    """Words by their ids, of a tokenizer or a list."""
    if hasattr(vocabulary, "get_vocab"):
        words = vocabulary.get_vocab()
        return sorted(words, key=words.__getitem__)
    return list(vocabulary)


def _tables(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
