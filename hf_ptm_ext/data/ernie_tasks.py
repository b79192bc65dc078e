"""Rows of ERNIE 2.0's pre-training tasks, from documents (Sun et al. 2020, https://arxiv.org/abs/1907.12412).

No code of the tasks was released; where the paper leaves something open, the function says what is done here.

| task | made by | what is told |
| --- | --- | --- |
| capitalization | `capitalization_rows` | of each token whether its word begins with a capital |
| token-document relation | `token_document_rows` | of each token whether other segments of the document have it too |
| sentence reordering | `reordering_rows` | how the segments of a paragraph were exchanged |
| sentence distance | `sentence_pairs.sentence_distance_pairs` | whether two texts are neighbours, or of one document |
| discourse relation | `discourse_pairs` | what the marker between two sentences said |
| relevance of a title | `relevance_pairs` | whether it was clicked, shown or drawn at random |

Pairs of texts become rows by `text_pair_rows`. Everything is lazy, one row at a time: for `datasets`, give a generator
function to `Dataset.from_generator`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise, permutations
from math import factorial
from typing import Any

import numpy as np

from .sentence_pairs import TokenDocument, gather, joined, shortened
from .tokenization import SpecialTokens, encode_batch, special_tokens_of

CLICKED, SHOWN, RANDOM = range(3)
RELEVANCES = ("clicked", "shown", "random")
DISCOURSE_RELATIONS = ("contrast", "cause", "result", "addition", "example", "time", "restatement", "comparison")
# Language -> relation -> markers, lower case. A marker that ends in a comma needs one behind it in the text.
_MARKERS = {
    "en": {
        "contrast": "however,|nevertheless,|nonetheless,|on the other hand,|in contrast,|by contrast,|conversely,"
        "|on the contrary,|instead,|still,|but|yet|although|whereas|even so,|despite this,",
        "cause": "because|this is because|the reason is that",
        "result": "therefore,|thus,|hence,|for this reason,|consequently,|as a result,|accordingly,|as a consequence,"
        "|so|thereby",
        "addition": "moreover,|furthermore,|in addition,|additionally,|besides,|also,|what is more,",
        "example": "for example,|for instance,|specifically,|in particular,|particularly,|e.g.,",
        "time": "then,|finally,|subsequently,|afterwards,|later,|meanwhile,|at the same time,|after that,"
        "|next,|eventually,",
        "restatement": "in other words,|that is,|i.e.,|indeed,|in fact,|in short,|in summary,|overall,|to summarize,",
        "comparison": "similarly,|likewise,|in the same way,|equally,",
    },
    "zh": {
        "contrast": "但是|但|然而|不过|可是|尽管如此|相反|反之|却",
        "cause": "因为|由于|这是因为|原因是",
        "result": "因此|所以|于是|因而|从而|结果|故此",
        "addition": "此外|另外|而且|并且|除此之外|再者",
        "example": "例如|比如|譬如|举例来说",
        "time": "随后|然后|接着|后来|最后|最终|不久|之后|与此同时",
        "restatement": "也就是说|换言之|换句话说|总之|事实上|实际上|即",
        "comparison": "同样地|同样|类似地|同理",
    },
}
DISCOURSE_MARKERS: dict[str, dict[str, str]] = {
    language: {marker: relation for relation, markers in table.items() for marker in markers.split("|")}
    for language, table in _MARKERS.items()
}
"""Language ("en", "zh") -> marker -> one of `DISCOURSE_RELATIONS`."""


def capitalization_rows(
    documents: Iterable[Sequence[str]], tokenizer: Any, max_seq_length: int = 512, batch_size: int = 64
) -> Iterator[dict[str, Any]]:
    """Yield rows whose labels say which words began with a capital, for a tokenizer that lower-cases.

    Labels are 1 and 0 for every piece of a word, by the first letter of the word in the text; -100 where that is no
    letter with a case (numbers, signs, Chinese). Rows without a label are left out.

    Args:
        documents: Documents of sentences, in their own case.
        tokenizer: A fast one that lower-cases.
        max_seq_length: Most tokens of a row, special tokens included.
        batch_size: Number of documents that are tokenised in one call.

    Returns:
        `input_ids`, `token_type_ids` and `labels`; a document is cut behind every `max_seq_length` tokens.

    Raises:
        ValueError: the tokenizer has no offsets, or tells capitals apart.

    Examples:
        >>> from hf_ptm_ext.data import train_wordpiece
        >>> tokenizer = train_wordpiece([["anna met paul 3"]] * 2, 60)
        >>> row = next(capitalization_rows([["Anna met Paul 3"]], tokenizer))
        >>> tokenizer.decode(row["input_ids"]), row["labels"]
        ('[CLS] anna met paul 3 [SEP]', [-100, 1, 0, 1, -100, -100])
    """
    if not tokenizer.is_fast or tokenizer("Aa")["input_ids"] != tokenizer("aa")["input_ids"]:
        raise ValueError(
            f"`tokenizer` must be a fast one that lower-cases, so that its ids do not show the capitals, got "
            f"{type(tokenizer).__name__} {tokenizer.name_or_path!r}. Leave capitalization out for cased text."
        )
    specials = special_tokens_of(tokenizer)
    size = _room(max_seq_length, specials)
    for batch in _batches(documents, batch_size):
        sentences = [sentence for document in batch for sentence in document]
        if not sentences:
            continue
        encodings = iter(tokenizer(sentences, add_special_tokens=False, verbose=False).encodings)
        for document in batch:
            ids: list[int] = []
            labels: list[int] = []
            for sentence in document:
                encoding = next(encodings)
                ids += encoding.ids
                labels += _cases(sentence, encoding)
            for start in range(0, len(ids), size):
                part = labels[start : start + size]
                if max(part) >= 0:
                    yield _tagged(specials, ids[start : start + size], part)


def token_document_rows(
    documents: Iterable[TokenDocument], special_tokens: SpecialTokens, max_seq_length: int = 512
) -> Iterator[dict[str, Any]]:
    """Yield the segments of documents, whose labels say of each token whether another segment has it too.

    A document is cut into segments of one length, at least two and as few as fit `max_seq_length`.

    Args:
        documents: Token ids of sentences of documents, such as `encode_documents(...)`.
        special_tokens: Those of the tokenizer (`special_tokens_of`).
        max_seq_length: Most tokens of a row, special tokens included.

    Returns:
        `input_ids`, `token_type_ids` and `labels`, 1, 0, and -100 on special tokens.

    Examples:
        >>> rows = token_document_rows([[[5, 6, 5], [7, 6]]], SpecialTokens([2], [3], [2], [3], [3]), 5)
        >>> [(row["input_ids"], row["labels"]) for row in rows]
        [([2, 5, 6, 5, 3], [-100, 0, 1, 0, -100]), ([2, 7, 6, 3], [-100, 0, 1, -100])]
    """
    size = _room(max_seq_length, special_tokens)
    for document in documents:
        ids = np.array(joined(document), dtype=np.int64)
        if len(ids) < 2:
            continue
        count = max(2, -(-len(ids) // size))
        bounds = -(-np.arange(count + 1) * len(ids) // count)
        segment = np.repeat(np.arange(count), np.diff(bounds))
        # Sorted by id, places of one id stand in their order: the first and the last tell whether one segment has all.
        order = np.argsort(ids, kind="stable")
        opens = np.flatnonzero(np.diff(ids[order], prepend=-1))
        several = segment[order[opens]] != segment[order[np.append(opens[1:], len(ids)) - 1]]
        labels = np.empty(len(ids), dtype=np.int64)
        labels[order] = np.repeat(several, np.diff(np.append(opens, len(ids))))
        for start, stop in pairwise(bounds):
            yield _tagged(special_tokens, ids[start:stop].tolist(), labels[start:stop].tolist())


def reordering_classes(max_segments: int = 3) -> int:
    """Number of classes of `reordering_rows`: the orders of 1, 2 ... `max_segments` segments together (paper).

    Examples:
        >>> reordering_classes(3)
        9
    """
    if not 2 <= max_segments <= 7:
        raise ValueError(f"`max_segments` must be 2 to 7, of 5,913 orders, got {max_segments}.")
    return sum(factorial(number) for number in range(1, max_segments + 1))


def reordering_class(order: Sequence[int]) -> int:
    """The class of an order: those of fewer segments first, those of one number in lexicographic order.

    Args:
        order: Which segment of the paragraph, from 0, stands at each place of the row.

    Raises:
        ValueError: the numbers are not 0 to n - 1, each once.

    Examples:
        >>> [reordering_class(order) for order in ((0,), (0, 1), (1, 0), (0, 1, 2), (0, 2, 1), (2, 1, 0))]
        [0, 1, 2, 3, 4, 8]
    """
    if sorted(order) != list(range(len(order))) or not order:
        raise ValueError(f"`order` must hold each of 0, 1, ... once, got {tuple(order)}.")
    return _orders(len(order)).index(tuple(order)) + sum(factorial(number) for number in range(1, len(order)))


def reordering_order(number: int) -> tuple[int, ...]:
    """The order that `reordering_class` gives a number.

    Examples:
        >>> reordering_order(4), reordering_class((0, 2, 1))
        ((0, 2, 1), 4)
    """
    if number < 0:
        raise ValueError(f"`number` must not be negative, got {number}.")
    segments = 1
    while number >= factorial(segments):
        number -= factorial(segments)
        segments += 1
    return _orders(segments)[number]


def reordering_rows(
    documents: Iterable[TokenDocument],
    special_tokens: SpecialTokens,
    max_seq_length: int,
    generator: np.random.Generator,
    *,
    max_segments: int = 3,
    separators: bool = True,
) -> Iterator[dict[str, Any]]:
    """Yield paragraphs cut into 1 to `max_segments` segments that are exchanged; the class says in which order.

    Sentences of a document gather until a row is full. It is cut between sentences, the number of segments and their
    order drawn uniformly. What has fewer sentences than `max_segments` is left out, so that the number tells nothing.

    Args:
        documents: Token ids of sentences of documents, such as `encode_documents(...)`.
        special_tokens: Those of the tokenizer (`special_tokens_of`).
        max_seq_length: Most tokens of a row, special tokens included.
        generator: Draws everything; another pass with it gives other rows.
        max_segments: Most segments (paper: m, its example of 9 classes has 3).
        separators: Whether the tokens between the two texts of a pair stand between segments. Without them the orders
            (0,), (0, 1) and (0, 1, 2) look alike, and are three classes all the same; the paper does not say.

    Returns:
        `input_ids`, `token_type_ids` and `labels`, a number of `reordering_class`.

    Examples:
        >>> specials = SpecialTokens([2], [3], [2], [3], [3])
        >>> row = next(reordering_rows([[[5], [6], [7, 8]]], specials, 9, np.random.default_rng(17)))
        >>> row["input_ids"], reordering_order(row["labels"])
        ([2, 6, 3, 5, 3, 7, 8, 3], (1, 0, 2))
    """
    reordering_classes(max_segments)
    between = special_tokens.pair_middle if separators else []
    size = _room(max_seq_length - len(between) * (max_segments - 1), special_tokens)
    for document in documents:
        at = 0
        while at < len(document):
            chunk = gather(document, at, size)
            at += len(chunk)
            if len(chunk) < max_segments:
                continue
            chunk[-1] = chunk[-1][: size - sum(map(len, chunk[:-1]))]
            count = int(generator.integers(1, max_segments, endpoint=True))
            cuts = np.sort(generator.permutation(len(chunk) - 1)[: count - 1]) + 1
            edges = [0, *cuts.tolist(), len(chunk)]
            order = generator.permutation(count).tolist()
            ids: list[int] = []
            for place, number in enumerate(order):
                ids += [*between * (place > 0), *joined(chunk[edges[number] : edges[number + 1]])]
            yield {**special_tokens.single(ids), "labels": reordering_class(order)}


def discourse_pairs(
    documents: Iterable[Sequence[str]], markers: Mapping[str, str], relations: Sequence[str] = DISCOURSE_RELATIONS
) -> Iterator[tuple[str, str, int]]:
    """Yield two texts and what the marker between them, which is taken out, says of them.

    A marker counts at the beginning of a sentence, whose other text is the sentence before (Sileo et al. 2019,
    https://arxiv.org/abs/1903.11850), and behind a comma or semicolon inside of one. The first of a sentence counts.

    Args:
        documents: Documents of sentences.
        markers: Marker in lower case -> its relation, such as `DISCOURSE_MARKERS["en"]`. One that ends in a comma
            needs a comma behind it in the text; the longest that fits is taken.
        relations: The classes in their order.

    Raises:
        ValueError: a marker has another relation, or there are none.

    Examples:
        >>> document = ["It rained.", "However, we went out.", "雨停了，所以他走了。"]
        >>> list(discourse_pairs([document], {"however,": "contrast", "所以": "result"}))
        [('It rained.', 'we went out.', 0), ('雨停了', '他走了。', 2)]
    """
    unknown = sorted(set(markers.values()) - set(relations))
    if unknown or not markers:
        raise ValueError(f"`markers` must give relations among {', '.join(relations)}, got {unknown or markers}.")
    classes = {marker: relations.index(relation) for marker, relation in markers.items()}
    known = "|".join(re.escape(m) + r"(?![a-z])" * m[-1].isascii() for m in sorted(markers, key=len, reverse=True))
    found = re.compile(rf"(?:^|[,;，；])\s*({known.replace(',', '[,，]')})[\s,，:：]*", re.IGNORECASE)
    for document in documents:
        before = ""
        for sentence in document:
            match = found.search(sentence)
            if match:
                first = sentence[: match.start()] if match.start() else before
                second = sentence[match.end() :]
                if any(map(str.isalnum, first)) and any(map(str.isalnum, second)):
                    yield first, second, classes[match.group(1).lower().replace("，", ",")]
            before = sentence


def relevance_pairs(
    judged: Sequence[tuple[str, str, int]], generator: np.random.Generator, *, random_share: float = 1 / 3
) -> Iterator[tuple[str, str, int]]:
    """Yield queries and titles with their class: clicked (0), shown but not clicked (1), drawn at random (2).

    Args:
        judged: Query, title, and 0 if it was clicked or 1 if not; both are given as they are.
        generator: Draws the random titles, which are none of the query's own.
        random_share: Share of random titles among all pairs (a third: as many as of each other class where those are
            even; the paper does not say).

    Raises:
        ValueError: a class is neither 0 nor 1, or `random_share` is out of range.

    Examples:
        >>> judged = [("cats", "All about cats", 0), ("cats", "Dog food", 1), ("rain", "The weather", 0)]
        >>> [label for _, _, label in relevance_pairs(judged, np.random.default_rng(0), random_share=0.5)]
        [0, 2, 1, 2, 0, 2]
    """
    if not 0 <= random_share < 1:
        raise ValueError(f"`random_share` must be in [0, 1), got {random_share}.")
    own: dict[str, set[str]] = {}
    for query, title, label in judged:
        if label not in (CLICKED, SHOWN):
            raise ValueError(f"`judged` must have 0 (clicked) or 1 (shown), got {label!r} for {query!r}, {title!r}.")
        own.setdefault(query, set()).add(title)
    owed = 0.0
    for query, title, label in judged:
        yield query, title, label
        owed += random_share / (1 - random_share)
        while owed > 1 - 1e-9:
            owed -= 1
            # Ten tries to hit a title of another query, as BERT's to hit another document.
            for place in generator.integers(len(judged), size=10):
                if judged[place][1] not in own[query]:
                    yield query, judged[place][1], RANDOM
                    break


def text_pair_rows(
    pairs: Iterable[tuple[str, str, int]], tokenizer: Any, max_seq_length: int = 512, batch_size: int = 500
) -> Iterator[dict[str, Any]]:
    """Yield rows of two texts and a class; while they are too long, the longer one loses its last token.

    Args:
        pairs: First text, second text, class.
        tokenizer: Fast or slow.
        max_seq_length: Most tokens of a row, special tokens included.
        batch_size: Number of pairs that are tokenised in one call.

    Returns:
        `input_ids`, `token_type_ids` and `labels`; pairs of which one text has no token are left out.

    Examples:
        >>> from hf_ptm_ext.data import train_wordpiece
        >>> tokenizer = train_wordpiece([["it rained"]] * 2, 30)
        >>> row = next(text_pair_rows([("rained rained", "it", 2)], tokenizer, 5))
        >>> tokenizer.decode(row["input_ids"]), row["labels"]
        ('[CLS] rained [SEP] it [SEP]', 2)
    """
    specials = special_tokens_of(tokenizer)
    room = max_seq_length - specials.pair_count
    if room < 2:
        raise ValueError(f"`max_seq_length` must leave room for two texts, got {max_seq_length}.")
    for batch in _batches(pairs, batch_size):
        encoded = encode_batch([[first] for first, *_ in batch] + [[second] for _, second, _ in batch], tokenizer)
        for (*_, label), first, second in zip(batch, encoded, encoded[len(batch) :], strict=False):
            if first and second:
                lengths = [len(first[0]), len(second[0])]
                lengths = shortened(lengths, max(sum(lengths) - room, 0))
                yield {**specials.pair(first[0][: lengths[0]], second[0][: lengths[1]]), "labels": label}


@cache
def _orders(count: int) -> tuple[tuple[int, ...], ...]:
    """All orders of so many segments, lexicographically."""
    return tuple(permutations(range(count)))


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _room(max_seq_length: int, specials: SpecialTokens) -> int:
    """Tokens of text that fit a row."""
    room = max_seq_length - specials.single_count
    if room < 2:
        raise ValueError(f"`max_seq_length` must leave room for 2 tokens of text, got {max_seq_length}.")
    return room


def _tagged(specials: SpecialTokens, ids: list[int], labels: list[int]) -> dict[str, Any]:
    """A row with a label for each token of its text."""
    outside = [-100] * len(specials.prefix), [-100] * len(specials.suffix)
    return {**specials.single(ids), "labels": [*outside[0], *labels, *outside[1]]}


def _cases(text: str, encoding: Any) -> list[int]:
    """Of each token whether its word begins with a capital; -100 where that has no case."""
    labels: list[int] = []
    before, label = -1, -100
    for word, (start, stop) in zip(encoding.word_ids, encoding.offsets, strict=True):
        if word != before:
            letter = text[start:stop].lstrip()[:1]
            before, label = word, 1 if letter.isupper() or letter.istitle() else 0 if letter.islower() else -100
        labels.append(label)
    return labels
