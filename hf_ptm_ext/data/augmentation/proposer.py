"""What a masked language model would put in place of words, for many words of many texts at once."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..segmentation import is_unspaced

WORD_MARKS = ("Ġ", "▁")


class MaskedWordProposer:
    """Proposes words for a place of a text, as TinyBERT's script asks BERT:

        [CLS] the text with the word masked [SEP] the text [SEP]

    so that the model knows what stood there, with segments 0 and 1 where the model has them. The masked words of all
    texts of a call go through the model together, in batches of equal length as far as there are, and predictions over
    the vocabulary are made at the masked positions only.

    Args:
        model: Any masked language model of upstream's or ours; it is put in evaluation mode and stays on its device.
        tokenizer: Its fast tokenizer.
        number: Candidates per place, before pieces of words are dropped (default: 15, as TinyBERT's script).
        tokens_per_batch: Padded tokens of a forward pass.
    """

    def __init__(self, model: Any, tokenizer: Any, number: int = 15, tokens_per_batch: int = 8192):
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"`tokenizer` must be a fast one, got {type(tokenizer).__name__}: words are found by the offsets of "
                "their pieces."
            )
        if tokenizer.mask_token_id is None:
            raise ValueError(
                f"`tokenizer` has no mask token, got {type(tokenizer).__name__}: the proposer must be a masked "
                "language model."
            )
        if number < 1 or tokens_per_batch < 1:
            raise ValueError(f"`number` and `tokens_per_batch` must be at least 1, got {number}, {tokens_per_batch}.")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.number = number
        self.tokens_per_batch = tokens_per_batch
        limits = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 512]
        # RoBERTa's positions begin behind the padding's.
        offset = (tokenizer.pad_token_id or 0) + 1 if "roberta" in model.config.model_type else 0
        self.max_length = min(limits[0], limits[1] - offset)
        self.pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self.special = set(tokenizer.all_special_ids)
        # What pieces that begin a word begin with, where pieces that continue one are not marked by "##".
        often = len(self.pieces) // 20
        marked = (mark for mark in WORD_MARKS if sum(str(p).startswith(mark) for p in self.pieces) > often)
        self.word_mark = next(marked, "")

    @property
    def lowercase(self) -> bool:
        """Whether the tokenizer reads no capitals."""
        return self.tokenizer.tokenize("A") == self.tokenizer.tokenize("a")

    def fingerprint(self) -> str:
        """A digest of what proposals depend on."""
        digest = hashlib.blake2b(digest_size=16)
        for name, value in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        digest.update(repr((self.model.config.to_json_string(), self.pieces, self.number, self.max_length)).encode())
        return digest.hexdigest()

    def pieces_of(self, words: Sequence[str]) -> tuple[dict[str, list[int]], list[list[int]]]:
        """Encode the pair of a text with itself."""
        text = " ".join(words)
        encoded = self.tokenizer(text, text, return_offsets_mapping=True, truncation=False, verbose=False)
        starts = [0]
        for word in words:
            starts.append(starts[-1] + len(word) + 1)
        places: list[list[int]] = [[] for _ in words]
        at = 0
        for position, (sequence, span) in enumerate(
            zip(encoded.sequence_ids(0), encoded["offset_mapping"], strict=True)
        ):
            if sequence != 0 or not text[span[0] : span[1]].strip():
                continue
            while span[1] > starts[at + 1]:
                at += 1
            places[at].append(position)
        columns = {
            name: values[: self.max_length]
            for name, values in encoded.items()
            if name in ("input_ids", "token_type_ids", "attention_mask")
        }
        return columns, places

    def __call__(self, texts: Sequence[tuple[Sequence[str], Sequence[int]]]) -> list[dict[int, list[str] | None]]:
        """Propose words."""
        answers: list[dict[int, list[str] | None]] = []
        asked: list[tuple[int, int, int, dict[str, list[int]]]] = []
        for number, (words, wanted) in enumerate(texts):
            answers.append(dict.fromkeys(wanted))
            if not wanted:
                continue
            columns, places = self.pieces_of(words)
            for word in wanted:
                if len(places[word]) == 1 and places[word][0] < len(columns["input_ids"]):
                    asked.append((number, word, places[word][0], columns))
        asked.sort(key=lambda each: len(each[3]["input_ids"]))  # stable, so batches are always the same
        for batch in self._batches(asked):
            for (number, word, _, _), found in zip(batch, self._predict(batch), strict=True):
                answers[number][word] = found
        return answers

    def _batches(self, asked: list[Any]) -> Iterator[list[Any]]:
        batch: list[Any] = []
        for each in asked:
            if batch and (len(batch) + 1) * len(each[3]["input_ids"]) > self.tokens_per_batch:
                yield batch
                batch = []
            batch.append(each)
        if batch:
            yield batch

    @torch.no_grad()
    def _predict(self, batch: list[tuple[int, int, int, dict[str, list[int]]]]) -> list[list[str]]:
        rows = []
        for _, _, place, columns in batch:
            ids = list(columns["input_ids"])
            ids[place] = self.tokenizer.mask_token_id
            rows.append({**columns, "input_ids": ids})
        device = next(self.model.parameters()).device
        length = len(rows[-1]["input_ids"])  # of the longest
        fill = {"input_ids": self.tokenizer.pad_token_id or 0}
        padded = {
            name: torch.tensor([row[name] + [fill.get(name, 0)] * (length - len(row[name])) for row in rows])
            for name in rows[0]
        }
        padded = {name: values.to(device) for name, values in padded.items()}
        places = torch.tensor([place for _, _, place, _ in batch], device=device)
        with _states_at(self.model, places):
            logits = self.model(**padded).logits
        if logits.shape[1] != 1:
            logits = logits[torch.arange(len(batch), device=device), places][:, None]
        logits = logits[:, 0, : len(self.pieces)]
        best = logits.topk(min(self.number, logits.shape[-1]), dim=-1).indices.tolist()
        return [[word for index in row if (word := self._word(index)) is not None] for row in best]

    def _word(self, index: int) -> str | None:
        """A piece as a word, or `None` if it continues one."""
        piece = self.pieces[index]
        if index in self.special or piece is None or piece.startswith("##"):
            return None
        if not piece.startswith(self.word_mark) and not is_unspaced(piece[:1]):
            return None
        return self.tokenizer.convert_tokens_to_string([piece]).strip() or None


@contextmanager
def _states_at(model: Any, places: torch.Tensor) -> Iterator[None]:
    """The head below sees one state a row: logits over the vocabulary are most of a small model's work."""
    base = getattr(model, model.base_model_prefix, None)
    if not isinstance(base, nn.Module):
        yield
        return

    def gather(module: nn.Module, args: Any, output: Any) -> Any:
        states = output[0]
        output[next(iter(output))] = states[torch.arange(len(states), device=states.device), places][:, None]
        return output

    handle = base.register_forward_hook(gather)
    try:
        yield
    finally:
        handle.remove()
