"""New pieces of a domain for a trained tokenizer, learnt by going on where it stopped.

    words of the text, cut by the tokenizer -> the two neighbouring pieces that are most frequent become one, again and
    again -> pieces behind all old ones -> the tokenizer's own file, loaded again

A word in which no new piece stands is cut as before: WordPiece takes the longest piece at each place, which is an old
one; merges of BPE are made behind all old ones; of a unigram model the best way without a new piece is the old one.

The domain models of the literature either kept BERT's vocabulary (BioBERT, https://arxiv.org/abs/1901.08746;
ClinicalBERT, https://arxiv.org/abs/1904.03323) or trained another from nothing (SciBERT,
https://arxiv.org/abs/1903.10676). New pieces beside the old ones keep the trained encoder and shorten the text; they
begin as the mean of the pieces that they replace (`hf_ptm_ext.weights.extend_embeddings`).
"""

import heapq
import json
import math
import tempfile
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MODELS = ("WordPiece", "BPE", "Unigram")
FILE = "tokenizer.json"


@dataclass(frozen=True)
class VocabularyExtension:
    """A tokenizer with new pieces, and what each of them was before.

    Its attributes: `tokenizer`, the extended one; `first_id`, the id of the first new piece, all later ones follow;
    `sources`, for each new piece the ids of the old pieces that it was cut into.
    """

    tokenizer: "PreTrainedTokenizerBase"
    first_id: int
    sources: tuple[tuple[int, ...], ...]

    @property
    def pieces(self) -> list[str]:
        """The new pieces, in the order of their ids."""
        return list(
            self.tokenizer.convert_ids_to_tokens(list(range(self.first_id, self.first_id + len(self.sources))))
        )


def extend_vocabulary(
    tokenizer: "PreTrainedTokenizerBase", documents: Iterable[Sequence[str]], size: int, *, min_frequency: int = 2
) -> VocabularyExtension:
    """Learn new pieces from a text and add them to a copy of a tokenizer.

    Args:
        tokenizer: A fast one whose model is WordPiece (BERT), BPE (RoBERTa) or Unigram (SentencePiece: CamemBERT,
            XLM-RoBERTa, T5) and which cuts a text into words first.
        documents: Documents of sentences, read once. About half a second per MB.
        size: Most new pieces; less where no further one occurs `min_frequency` times.
        min_frequency: How often a piece must occur in the text.

    Returns:
        The extended tokenizer has the class and the files of the old one. Ids of old pieces stay.

    Raises:
        ValueError: If the tokenizer is slow, of another model, or does not cut texts into words.

    Examples:
        >>> from hf_ptm_ext.data import train_wordpiece
        >>> old = train_wordpiece([["a cell wall sun bug urus"]] * 2, 40)
        >>> extension = extend_vocabulary(old, [["cells cellular"]] * 5, 4)
        >>> old.tokenize("cellular wall"), extension.tokenizer.tokenize("cellular wall")
        (['cell', '##u', '##l', '##a', '##r', 'wall'], ['cellular', 'wall'])
    """
    if size < 1:
        raise ValueError(f"`size` must be at least 1, got {size}.")
    backend, known = _backend_of(tokenizer), tokenizer.get_vocab()
    counts = _count_words(backend, documents)
    whole = type(backend.model).__name__ == "BPE"  # which needs all steps on the way to a piece
    prefix = getattr(backend.model, "continuing_subword_prefix", None) or ""
    merges = _Merges(_cut(backend.model, counts, known), prefix, max(min_frequency, 1))
    while len(learnt := merges.pieces(known, whole)) < size and merges.step():
        pass
    if not learnt:
        raise ValueError(
            f"`documents` must have words of several pieces that occur {min_frequency} times, got none: the tokenizer "
            "knows this text. Leave the extension out."
        )
    first = max(known.values()) + 1
    new = {piece: first + number for number, piece in enumerate(learnt)}
    total = sum(counts.values())
    scores = {piece: math.log(max(merges.standing[piece], 1) / total) for piece in learnt}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        file = Path(folder, FILE)
        state = json.loads(file.read_text(encoding="utf-8"))
        _add_pieces(state["model"], known, new, merges, scores)
        file.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
        extended = type(tokenizer).from_pretrained(folder)
    extended.name_or_path = extended.init_kwargs["name_or_path"] = tokenizer.name_or_path
    if extended.get_vocab() != known | new:
        raise ValueError(f"`tokenizer` must keep its ids when it is loaded again, got {type(tokenizer).__name__}.")
    return VocabularyExtension(
        extended, first, tuple(tuple(known[part] for part in merges.parts[piece]) for piece in learnt)
    )


def _backend_of(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` of a fast tokenizer of a known model."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    name = type(tokenizer).__name__
    if backend is None or type(backend.model).__name__ not in MODELS:
        got = "a slow one" if backend is None else type(backend.model).__name__
        raise ValueError(f"`tokenizer` must be a fast one of {', '.join(MODELS)}, got {name} ({got}).")
    if backend.pre_tokenizer is None:
        raise ValueError(f"`tokenizer` must cut texts into words before pieces, got {name}, which does not.")
    return backend


def _count_words(backend: Any, documents: Iterable[Sequence[str]]) -> Counter[str]:
    """Each distinct word of the documents with its count, as the model will see them."""
    counts: Counter[str] = Counter()
    for document in documents:
        for sentence in document:
            text = sentence if backend.normalizer is None else backend.normalizer.normalize_str(sentence)
            counts.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
    return counts


def _cut(model: Any, counts: Counter[str], known: dict[str, int]) -> dict[tuple[str, ...], int]:
    """Words of several pieces with their counts; those that the pieces do not spell are left out."""
    marks = ("continuing_subword_prefix", "end_of_word_suffix")
    prefix, suffix = (getattr(model, name, None) or "" for name in marks)
    found = {}
    for word, count in counts.items():
        pieces = tuple(token.value for token in model.tokenize(word))
        spelt = "".join([*pieces[:1], *(piece.removeprefix(prefix) for piece in pieces[1:])])
        if len(pieces) > 1 and spelt == word + suffix and all(piece in known for piece in pieces):
            found[pieces] = count
    return found


def _add_pieces(
    model: dict[str, Any], known: dict[str, int], new: dict[str, int], merges: "_Merges", scores: dict[str, float]
) -> None:
    """Add pieces to the model of a `tokenizer.json`, behind all ids; tokens that were added become pieces there."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        vocabulary.update(known | new)
    else:
        names, of_piece = {index: token for token, index in known.items()}, dict(map(tuple, vocabulary))
        least = min(of_piece.values())
        first = min(new.values())
        vocabulary += [[names.get(index, f"<unused{index}>"), least] for index in range(len(vocabulary), first)]
        for piece, score in scores.items():
            split = sum(of_piece.get(part, least) for part in merges.parts[piece])
            vocabulary.append([piece, max(score, split + 1e-3)])
    if "merges" in model:
        spelt = model["merges"] and isinstance(model["merges"][0], str)
        model["merges"] += [" ".join(pair) if spelt else list(pair) for pair in merges.pairs]


class _Merges:
    """Joins the most frequent pair of neighbouring pieces, in all words at once.

    `parts` has each piece that was joined -> the old pieces in it; `pairs` what was joined, in order; `standing` how
    often each piece stands in the words as they are cut now.
    """

    def __init__(self, words: dict[tuple[str, ...], int], prefix: str, min_frequency: int):
        self.prefix, self.min_frequency = prefix, min_frequency
        self.words, self.counts = [list(word) for word in words], list(words.values())
        self.parts: dict[str, tuple[str, ...]] = {}
        self.pairs: list[tuple[str, str]] = []
        self.standing: Counter[str] = Counter()
        self._frequency: Counter[tuple[str, str]] = Counter()
        self._places: dict[tuple[str, str], set[int]] = {}
        for number in range(len(self.words)):
            self._count(number, 1)
        self._heap = [(-count, pair) for pair, count in self._frequency.items()]
        heapq.heapify(self._heap)

    def pieces(self, known: Container[str], whole: bool) -> list[str]:
        """The new pieces, all (`whole`) or those that stand in the words often enough."""
        fresh = (piece for piece in self.parts if piece not in known)
        return [piece for piece in fresh if whole or self.standing[piece] >= self.min_frequency]

    def step(self) -> bool:
        """Join the most frequent pair; False if none is frequent enough."""
        while self._heap:
            count, pair = heapq.heappop(self._heap)
            if -count == self._frequency[pair] >= self.min_frequency:  # else it has another entry, or is too rare
                self._join(pair)
                return True
        return False

    def _join(self, pair: tuple[str, str]) -> None:
        left, right = pair
        joined = left + right.removeprefix(self.prefix)
        self.parts.setdefault(joined, (*self.parts.get(left, (left,)), *self.parts.get(right, (right,))))
        self.pairs.append(pair)
        changed: set[tuple[str, str]] = set()
        for number in self._places.pop(pair):
            changed |= self._count(number, -1)
            word = self.words[number]
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == pair:
                    word[at : at + 2] = [joined]
                at += 1
            changed |= self._count(number, 1)
        for one in changed:
            if self._frequency[one]:
                heapq.heappush(self._heap, (-self._frequency[one], one))

    def _count(self, number: int, sign: int) -> set[tuple[str, str]]:
        """Add a word's pieces and pairs to the counts, or take them away; gives the pairs."""
        word, count = self.words[number], sign * self.counts[number]
        for piece in word:
            self.standing[piece] += count
        pairs = list(pairwise(word))
        for pair in pairs:
            self._frequency[pair] += count
            self._places.setdefault(pair, set()).add(number)
        return set(pairs)
