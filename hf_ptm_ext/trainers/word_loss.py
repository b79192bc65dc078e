"""The loss of whole hidden words, which models of different vocabularies can be compared by.

A loss per token falls when tokens become shorter, whatever the model knows. Here whole words are hidden, the same for
every tokenizer that cuts a text into the same words, and a word costs what all of its pieces cost, one after the
other: `-sum_i log p(piece i | the text, pieces < i)`, pieces i and later hidden (the left-to-right pseudo-likelihood
within words of Kauf and Ivanova 2023, https://arxiv.org/abs/2305.10588).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from .pretraining import logits_at

WORDS_AT_ONCE = 48  # of a text: few enough that its tokens have room


def hidden_word_loss(
    model: Any,
    tokenizer: Any,
    texts: Iterable[str],
    *,
    share: float = 0.15,
    max_words: int = WORDS_AT_ONCE,
    batch_size: int = 16,
    seed: int = 0,
) -> dict[str, float]:
    """Measure a masked language model by the words of a text.

    Args:
        model: A masked language model; it is put into evaluation mode and back.
        tokenizer: A fast one. Logits of ids that it does not have are left out, so a model can be measured with the
            tokenizer that it had before its vocabulary was extended.
        texts: Sentences or short paragraphs; words behind the `max_words`-th are left out.
        share: Of the words of a text that are hidden at once, at least one.
        max_words: Words of a text.
        batch_size: Texts of a batch.
        seed: Says which words are hidden, by the number of the text and that of the word.

    Returns:
        `loss` in nats and `accuracy` (all pieces right) per hidden word, `words` their number, `tokens_per_word` of
        the texts. How many pieces a word has is told by its masks, so a vocabulary of short pieces is helped a little.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM, BertTokenizer
        >>> tokenizer = BertTokenizer({w: n for n, w in enumerate("[PAD] [UNK] [CLS] [SEP] [MASK] a ##b c".split())})
        >>> config = BertConfig(vocab_size=8, hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
        >>> found = hidden_word_loss(BertForMaskedLM(config), tokenizer, ["ab c ab", "c"])
        >>> found["words"], found["tokens_per_word"]
        (2, 1.5)
    """
    if not getattr(tokenizer, "is_fast", False) or tokenizer.mask_token_id is None:
        raise ValueError(f"`tokenizer` must be a fast one with a mask token, got {type(tokenizer).__name__}.")
    training, device = model.training, next(model.parameters()).device
    model.eval()
    loss = right = words = 0.0
    counts = np.zeros(2)
    rows = _rows(tokenizer, texts, share, max_words, seed, counts)
    try:
        while batch := list(islice(rows, batch_size)):
            with torch.no_grad():
                found = _batch_sums(model, tokenizer, [row for row, _ in batch], [spans for _, spans in batch], device)
            loss, right, words = loss + found[0], right + found[1], words + found[2]
    finally:
        model.train(training)
    if not words:
        raise ValueError(f"`texts` must have at least one word, got {int(counts[0])} words.")
    return {
        "loss": loss / words,
        "accuracy": right / words,
        "words": int(words),
        "tokens_per_word": float(counts[1] / counts[0]),
    }


def tokens_per_word(tokenizer: Any, texts: Iterable[str]) -> float:
    """Tokens of a text for each of its words, as a fast tokenizer cuts both."""
    tokens = words = 0
    for text in texts:
        ids = [
            word for word in tokenizer(text, add_special_tokens=False, verbose=False).word_ids() if word is not None
        ]
        tokens, words = tokens + len(ids), words + len(set(ids))
    return tokens / max(words, 1)


def _rows(
    tokenizer: Any, texts: Iterable[str], share: float, max_words: int, seed: int, counts: np.ndarray
) -> Iterator[tuple[list[int], list[list[int]]]]:
    """Token ids of each text, and the places of its hidden words; adds its words and tokens to the counts."""
    for number, text in enumerate(texts):
        places = _places(tokenizer(text, add_special_tokens=False, verbose=False).word_ids())
        if len(places) > max_words:
            encoded = tokenizer(text, add_special_tokens=False, verbose=False, return_offsets_mapping=True)
            text = text[: encoded["offset_mapping"][places[max_words - 1][-1]][1]]
        encoded = tokenizer(text, verbose=False)
        places = _places(encoded.word_ids())
        if not places:
            continue
        counts += len(places), sum(map(len, places))
        drawn = np.random.default_rng([seed, number]).permutation(len(places))
        hidden = sorted(drawn[: max(round(share * len(places)), 1)].tolist())
        yield encoded["input_ids"], [places[word] for word in hidden]


def _places(word_ids: Sequence[int | None]) -> list[list[int]]:
    """Places of the tokens of each word."""
    found: dict[int, list[int]] = {}
    for place, word in enumerate(word_ids):
        if word is not None:
            found.setdefault(word, []).append(place)
    return list(found.values())


def _batch_sums(
    model: Any, tokenizer: Any, rows: list[list[int]], spans: list[list[list[int]]], device: torch.device
) -> tuple[float, float, int]:
    """Sums of the losses and of right words, and the number of words, of a batch of texts with hidden words."""
    width = max(map(len, rows))
    pad = tokenizer.pad_token_id or 0
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    flat = [[row * width + place for place in word] for row, of_row in enumerate(spans) for word in of_row]
    right, loss = torch.ones(len(flat), dtype=torch.bool), 0.0
    for step in range(max(map(len, flat))):
        shown = ids.clone().view(-1)
        shown[[place for word in flat for place in word[step:]]] = tokenizer.mask_token_id
        numbers = [number for number, word in enumerate(flat) if len(word) > step]
        index = torch.tensor([flat[number][step] for number in numbers])
        inputs = {"input_ids": shown.view(ids.shape).to(device), "attention_mask": mask}
        logits = logits_at(model, index.to(device), inputs)[:, : len(tokenizer)].float().cpu()
        targets = ids.view(-1)[index]
        loss += float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
        right[torch.tensor(numbers)] &= logits.argmax(-1) == targets
    return loss, float(right.sum()), len(flat)
