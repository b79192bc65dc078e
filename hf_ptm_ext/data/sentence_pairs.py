"""Sentence pairs for next sentence, sentence order and three-way prediction, from documents of token ids.

BERT (section 3.1; `create_instances_from_document` of google-research/bert): sentences of a document gather until a
target length is reached. The chunk is cut behind a random sentence; what stands before is A. With probability 1/2, and
always if the chunk is one sentence, B comes from another document (label 1) and the unused sentences of the chunk go
back; otherwise B is the rest of the chunk (label 0). While both are too long, the longer one (B on ties) loses a token
at its front or back. Because of chunks of one sentence more than half of the labels are 1: 0.55 in the statistics of
the reference.

SpanBERT's two-segment baseline (`BlockPairDataset`) cuts behind sentence 1 to n - 2 of n > 2, so that B has at least
two of them, where BERT takes 1 to n - 1.

ALBERT's sentence order (google-research/albert, the same file): the coin exchanges A and B (label 1) in the place of
drawing B elsewhere. In the released code a chunk of one sentence still has a B from another document, with label 1: a
tenth of all pairs is told by its topic. Here such a sentence is cut in two; `single_sentences="elsewhere"` is the
released rule. StructBERT's three classes (Wang et al. 2020, https://arxiv.org/abs/1908.04577): B follows A, B precedes
A, B is from another document, a third each. ERNIE 2.0's sentence distance (Sun et al. 2020,
https://arxiv.org/abs/1907.12412): B follows A, B is elsewhere in A's document, B is from another document.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .tokenization import SpecialTokens

TokenDocument = Sequence[Sequence[int]]
"""The token ids of a document's sentences, without special tokens."""

PAIR_KINDS = NEXT_SENTENCE, SENTENCE_ORDER, STRUCTURE, DISTANCE = "next", "order", "structure", "distance"
VARIANTS = ("bert", "spanbert")
NEXT, SWAPPED, ELSEWHERE, APART = range(4)
DISTANCES = ("adjacent", "same document", "other document")
SINGLE_SENTENCES = SPLIT, OTHER_DOCUMENT = "split", "elsewhere"


class SentencePair(NamedTuple):
    """Token ids of two segments without special tokens, and a label: 0 if B follows A, 1 if it is from elsewhere.

    Of `sentence_order_pairs` 1 if A and B were exchanged, of `structural_pairs` 1 likewise and 2 from elsewhere; of
    `sentence_distance_pairs` 0 to 2 from near to far.

    Examples:
        >>> pair = SentencePair([7], [8, 9], next_sentence_label=0)
        >>> pair.features(SpecialTokens([2], [3], [2], [3], [3]))["input_ids"]
        [2, 7, 3, 8, 9, 3]
    """

    first: list[int]
    second: list[int]
    next_sentence_label: int

    def features(self, special_tokens: SpecialTokens, label: str = "next_sentence_label") -> dict[str, Any]:
        """Return `input_ids`, `token_type_ids` and the label, ready for a collator or a `RowPacker`.

        Args:
            special_tokens: those of the tokenizer (`special_tokens_of`).
            label: its column, of ALBERT's order "sentence_order_label".
        """
        return {**special_tokens.pair(self.first, self.second), label: self.next_sentence_label}


@dataclass(frozen=True)
class PairRule:
    """What pairs are made of documents: of all of them at once (`pairs`), or one after the other (`PairPacker`).

    Args:
        kind: "next" (`next_sentence_pairs`), "order" (`sentence_order_pairs`), "structure" (`structural_pairs`) or
            "distance" (`sentence_distance_pairs`).
        short_seq_prob: Probability that a document aims at a length drawn uniformly from 2 to the most.
        variant: Of "next", see `next_sentence_pairs`.
        single_sentences: Of "order", see `sentence_order_pairs`.
        buffer_size: Documents before it out of which a stream draws the second segment from elsewhere.

    Raises:
        ValueError: one of them is none of these.

    Examples:
        >>> documents = [[[1, 1], [2, 2], [3]], [[7], [8, 8]]]
        >>> len(list(PairRule("order").pairs(documents, 6, np.random.default_rng(0))))
        2
    """

    kind: str = NEXT_SENTENCE
    short_seq_prob: float = 0.1
    variant: str = "bert"
    single_sentences: str = SPLIT
    buffer_size: int = 100

    def __post_init__(self) -> None:
        for name, allowed in (("kind", PAIR_KINDS), ("variant", VARIANTS), ("single_sentences", SINGLE_SENTENCES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")
        if not 0 <= self.short_seq_prob <= 1:
            raise ValueError(f"`short_seq_prob` must be in [0, 1], got {self.short_seq_prob}.")
        if self.buffer_size < 1:
            raise ValueError(f"`buffer_size` must be at least 1, got {self.buffer_size}.")

    @property
    def classes(self) -> int:
        """Number of different labels."""
        return len(self._thirds) or 2

    @property
    def _thirds(self) -> tuple[int, ...]:
        """What a draw of three gives."""
        return {STRUCTURE: (NEXT, SWAPPED, ELSEWHERE), DISTANCE: (NEXT, APART, ELSEWHERE)}.get(self.kind, ())

    def pairs(
        self, documents: Sequence[TokenDocument], max_tokens: int, generator: np.random.Generator
    ) -> Iterator[SentencePair]:
        """Yield the pairs of one pass over the documents; arguments as of `next_sentence_pairs`."""
        _check_length(max_tokens)
        kept = [_with_tokens(document) for document in documents]
        kept = [document for document in kept if document]
        _check_number(len(kept))
        for index, document in enumerate(kept):

            def another(index: int = index) -> TokenDocument:
                # The references try ten times to hit another document; here it is one of the others at once.
                return kept[(index + int(generator.integers(1, len(kept)))) % len(kept)]

            yield from self._pairs_of(document, another, max_tokens, generator)

    def _kind_of(self, single: bool, generator: np.random.Generator) -> int:
        """What a chunk becomes, which may be a single sentence."""
        if self._thirds:
            return self._thirds[generator.integers(3)]
        if self.kind == NEXT_SENTENCE:
            return ELSEWHERE if single or bool(generator.random() < 0.5) else NEXT
        if single and self.single_sentences == OTHER_DOCUMENT:
            return ELSEWHERE
        return SWAPPED if generator.random() < 0.5 else NEXT

    def _pairs_of(
        self,
        document: TokenDocument,
        another: Callable[[], TokenDocument],
        max_tokens: int,
        generator: np.random.Generator,
    ) -> Iterator[SentencePair]:
        """Cut pairs out of a document; `another` draws one of the others."""
        spared = 2 if self.kind == NEXT_SENTENCE and self.variant == "spanbert" else 1
        target = max_tokens
        if generator.random() < self.short_seq_prob:
            target = int(generator.integers(2, max_tokens, endpoint=True))
        at = 0
        while at < len(document):
            chunk = gather(document, at, target)
            cut = int(generator.integers(1, max(len(chunk) - spared, 1), endpoint=True))
            first = joined(chunk[:cut])
            kind = self._kind_of(len(chunk) == 1, generator)
            if kind == ELSEWHERE:
                other = another()
                start = int(generator.integers(len(other)))
                second = joined(gather(other, start, target - len(first)))
            elif kind == APART:
                second = self._apart(document, at, at + cut, target - len(first), generator)
            elif len(chunk) == 1:
                middle = len(first) // 2
                first, second = first[:middle], first[middle:]
            else:
                second = joined(chunk[cut:])
            at += cut if kind in (ELSEWHERE, APART) else len(chunk)
            if kind == SWAPPED:
                first, second = second, first
            if first and second:
                label = self._thirds.index(kind) if self._thirds else int(kind != NEXT)
                yield SentencePair(*truncate_pair(first, second, max_tokens, generator), label)

    @staticmethod
    def _apart(
        document: TokenDocument, begin: int, end: int, target: int, generator: np.random.Generator
    ) -> list[int]:
        """What begins behind the neighbour of sentences, or ends before that on the other side; else nothing."""
        before, behind = max(begin - 1, 0), end + 1
        places = before + max(len(document) - behind, 0)
        if not places:
            return []
        place = int(generator.integers(places))
        part, start = (document[:before], place) if place < before else (document, place - before + behind)
        return joined(gather(part, start, target))


class PairPacker:
    """Makes pairs of documents that come one after the other; the second segment from elsewhere is of one before it.

    Args:
        rule: Which pairs.
        max_tokens: As of `next_sentence_pairs`.
        generator: Draws everything.

    Examples:
        >>> packer = PairPacker(PairRule("order"), 6, np.random.default_rng(0))
        >>> len([*packer.add([[1, 1], [2, 2], [3]]), *packer.add([[7], [8, 8]])])
        2
    """

    def __init__(self, rule: PairRule, max_tokens: int, generator: np.random.Generator):
        _check_length(max_tokens)
        self.rule, self.max_tokens, self.generator = rule, max_tokens, generator
        self._before: list[TokenDocument] = []
        self._first = True  # of the documents before, one waits for another

    def add(self, document: TokenDocument) -> list[SentencePair]:
        """Give the pairs of a document, of the first one together with the second's."""
        pairs: list[SentencePair] = []
        document = _with_tokens(document)
        if not document:
            return pairs
        if self._before and self._first:
            self._first = False
            pairs += self._pairs_of(self._before[0], [document])
        if self._before:
            pairs += self._pairs_of(document, self._before)
        if len(self._before) < self.rule.buffer_size:
            self._before.append(document)
        else:
            self._before[int(self.generator.integers(len(self._before)))] = document
        return pairs

    def flush(self) -> list[SentencePair]:
        """Refuse a single document, which has no other."""
        if self._before and self._first:
            _check_number(len(self._before))
        return []

    def state_dict(self) -> dict[str, Any]:
        """Return the documents that are remembered: plain ints, lists and dicts."""
        return {"before": [[list(part) for part in document] for document in self._before], "first": self._first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set what is remembered, from `state_dict()` of a packer of the same rule."""
        self._before = [[list(part) for part in document] for document in state["before"]]
        self._first = bool(state["first"])

    def _pairs_of(self, document: TokenDocument, others: Sequence[TokenDocument]) -> list[SentencePair]:
        def another() -> TokenDocument:
            return others[int(self.generator.integers(len(others)))]

        return list(self.rule._pairs_of(document, another, self.max_tokens, self.generator))


def next_sentence_pairs(
    documents: Sequence[TokenDocument],
    max_tokens: int,
    generator: np.random.Generator,
    *,
    short_seq_prob: float = 0.1,
    variant: str = "bert",
) -> Iterator[SentencePair]:
    """Yield the pairs of one pass over the documents.

    Args:
        documents: Token ids of sentences of documents, such as `list(encode_documents(...))`. At least two, for B from
            elsewhere. Documents without tokens are skipped.
        max_tokens: Most tokens of A and B together: the sequence length less `SpecialTokens.pair_count` (3).
        generator: Draws everything; another pass with it gives other pairs.
        short_seq_prob: Probability that a document aims at a length drawn uniformly from 2 to `max_tokens`.
        variant: `"bert"` or `"spanbert"`, see above.

    Returns:
        In the order of the documents. For `datasets`, give a generator function of their `features` to
        `Dataset.from_generator`.

    Examples:
        >>> documents = [[[1, 1], [2, 2], [3]], [[7], [8, 8]]]
        >>> pairs = list(next_sentence_pairs(documents, 6, np.random.default_rng(3), short_seq_prob=0))
        >>> pairs[0]
        SentencePair(first=[1, 1], second=[2, 2, 3], next_sentence_label=0)
    """
    yield from PairRule(NEXT_SENTENCE, short_seq_prob, variant).pairs(documents, max_tokens, generator)


def sentence_order_pairs(
    documents: Sequence[TokenDocument],
    max_tokens: int,
    generator: np.random.Generator,
    *,
    short_seq_prob: float = 0.1,
    single_sentences: str = SPLIT,
) -> Iterator[SentencePair]:
    """Yield pairs in their order (label 0) and exchanged (label 1), as ALBERT's sentence order prediction asks for.

    Args:
        documents: As of `next_sentence_pairs`.
        max_tokens: Likewise.
        generator: Likewise.
        short_seq_prob: Likewise.
        single_sentences: What becomes of a chunk of one sentence: "split" cuts it in two (a sentence of one token is
            left out), "elsewhere" pairs it with another document under label 1, as the released code does.

    Examples:
        >>> documents = [[[1, 1], [2, 2], [3]], [[7], [8, 8]]]
        >>> pairs = list(sentence_order_pairs(documents, 6, np.random.default_rng(0), short_seq_prob=0))
        >>> pairs[0].features(SpecialTokens([0], [9], [0], [9], [9]), "sentence_order_label")["sentence_order_label"]
        1
    """
    rule = PairRule(SENTENCE_ORDER, short_seq_prob, single_sentences=single_sentences)
    yield from rule.pairs(documents, max_tokens, generator)


def structural_pairs(
    documents: Sequence[TokenDocument],
    max_tokens: int,
    generator: np.random.Generator,
    *,
    short_seq_prob: float = 0.1,
) -> Iterator[SentencePair]:
    """Yield StructBERT's pairs: B follows A (0), precedes it (1), is from another document (2), a third each.

    Arguments as of `next_sentence_pairs`; a chunk of one sentence is cut in two where B is of the same document.

    Examples:
        >>> documents = [[[1, 1], [2, 2], [3]], [[7], [8, 8]]] * 20
        >>> labels = [pair.next_sentence_label for pair in structural_pairs(documents, 6, np.random.default_rng(0))]
        >>> sorted(set(labels))
        [0, 1, 2]
    """
    yield from PairRule(STRUCTURE, short_seq_prob).pairs(documents, max_tokens, generator)


def sentence_distance_pairs(
    documents: Sequence[TokenDocument],
    max_tokens: int,
    generator: np.random.Generator,
    *,
    short_seq_prob: float = 0.1,
) -> Iterator[SentencePair]:
    """Yield ERNIE 2.0's pairs: B follows A (0), is of the same document but not beside A (1), of another (2).

    A third each as they are drawn. Where a document is too short for the second, the place is left out.

    Args:
        documents: As of `next_sentence_pairs`.
        max_tokens: Likewise.
        generator: Likewise.
        short_seq_prob: Likewise.

    Examples:
        >>> documents = [[[1, 1], [2, 2], [3], [4]], [[7], [8, 8]]] * 20
        >>> pairs = list(sentence_distance_pairs(documents, 4, np.random.default_rng(0)))
        >>> sorted({pair.next_sentence_label for pair in pairs})
        [0, 1, 2]
    """
    yield from PairRule(DISTANCE, short_seq_prob).pairs(documents, max_tokens, generator)


def truncate_pair(
    first: Sequence[int], second: Sequence[int], max_tokens: int, generator: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Cut two segments to a total length: always the longer one, the second on ties, each token at a random end.

    Examples:
        >>> first, second = truncate_pair([1] * 9, [2, 3], 6, np.random.default_rng(0))
        >>> first, second
        ([1, 1, 1, 1], [2, 3])
    """
    lengths = [len(first), len(second)]
    lengths = shortened(lengths, max(sum(lengths) - max_tokens, 0))
    return cut_at_ends(first, lengths[0], generator), cut_at_ends(second, lengths[1], generator)


def shortened(lengths: Sequence[int], excess: int) -> list[int]:
    """Two lengths less an excess: the longer one loses alone until both are equal, then in turns, the second first."""
    first, second = lengths
    alone = min(excess, abs(first - second))
    first, second = (first - alone, second) if first > second else (first, second - alone)
    return [first - (excess - alone) // 2, second - (excess - alone + 1) // 2]


def cut_at_ends(ids: Sequence[int], length: int, generator: np.random.Generator | None) -> list[int]:
    """A part of `length` ids; of those cut, binomial(n, 1/2) go at the front where ends are drawn."""
    front = 0
    if generator is not None and len(ids) > length:
        front = int(generator.binomial(len(ids) - length, 0.5))
    return list(ids[front : front + length])


def gather(document: TokenDocument, start: int, target: int) -> list[Sequence[int]]:
    """Sentences from `start` on until `target` tokens are reached: at least one."""
    total, end = 0, start
    while end < len(document) and (end == start or total < target):
        total += len(document[end])
        end += 1
    return list(document[start:end])


def _with_tokens(document: TokenDocument) -> TokenDocument:
    """A document's sentences that have tokens."""
    return [sentence for sentence in document if len(sentence)]


def _check_number(documents: int) -> None:
    if documents < 2:
        raise ValueError(
            f"`documents` must hold at least 2 documents with tokens, got {documents}: segments of others are drawn. "
            "Text that is held out must too (`validation_fraction`)."
        )


def _check_length(max_tokens: int) -> None:
    if max_tokens < 2:
        raise ValueError(f"`max_tokens` must be at least 2, one for each segment, got {max_tokens}.")


def joined(sentences: Sequence[Sequence[int]]) -> list[int]:
    """The tokens of sentences one behind the other."""
    return [token for sentence in sentences for token in sentence]
