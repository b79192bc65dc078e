"""The words of a graph in texts, and what hangs on them: subjects to find, branches as tokens to inject."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .knowledge_graph_kbert import KnowledgeGraph
from .matcher_kbert import KBertMatcher, Match, fold_case


@dataclass(frozen=True)
class LookupOptions:
    """Which objects of a word are injected, and how they are written.

    Args:
        max_entities: how many at most.
        use_predicate: whether the predicate stands before the object, or the predicates that do.
        predicates: allow-list, or `None` for all.
        separator: between predicate and object, as in `KnowledgeGraph.lookup`.
    """

    max_entities: int
    use_predicate: bool | frozenset[str]
    predicates: frozenset[str] | None
    separator: str | None


class Lexicon:
    """Finds the subjects of a graph, and tags, in texts.

    Args:
        graph: the graph, or `None` for tags alone.
        tags: texts that are one token each, found as they are written.
        ignore_case: whether subjects are found in upper and lower case alike.
        whole_words: whether a subject must not begin or end inside a word.
        pkuseg_compat: whether subjects are lost as the segmenter of the original project loses them.
        backend: as in `KBertMatcher`.

    Attributes:
        stores: branches of its words, by the options that they were made with; for whoever makes them to keep.

    Example:
        >>> lexicon = Lexicon(KnowledgeGraph.from_dict({"北京": "首都"}), ["[SEP]"])
        >>> lexicon.find(["[SEP]在北京"]), lexicon.names[1]
        ([[(0, 5, 0), (6, 8, 1)]], '北京')
    """

    def __init__(
        self,
        graph: KnowledgeGraph | None,
        tags: Sequence[str] = (),
        *,
        ignore_case: bool = False,
        whole_words: bool = True,
        pkuseg_compat: bool = False,
        backend: str = "auto",
    ):
        self.graph = graph
        self.num_tags = len(tags)
        subjects = graph.subjects if graph is not None else []
        self.names = [*tags, *subjects]
        self.ignore_case = ignore_case
        self.matcher = KBertMatcher(
            self.names,
            ignore_case=ignore_case,
            whole_words=whole_words,
            pkuseg_compat=pkuseg_compat,
            backend=backend,
        )
        self.stores: dict[Any, BranchStore] = {}
        self._spellings: dict[str, list[str]] = {}
        if ignore_case:
            for name in subjects:
                self._spellings.setdefault(fold_case(name), []).append(name)

    def find(self, texts: Sequence[str]) -> list[list[Match]]:
        """Find words.

        Args:
            texts: any texts.

        Returns:
            (begin, end, number in `names`) in each, from left to right; tags have numbers below `num_tags`.
        """
        found = self.matcher.find_all(texts)
        if not self.ignore_case or not self.num_tags:
            return found
        tags, names = self.num_tags, self.names
        return [
            [match for match in matches if match[2] >= tags or text[match[0] : match[1]] == names[match[2]]]
            for text, matches in zip(texts, found, strict=True)
        ]

    def lookup(self, number: int, options: LookupOptions) -> list[str]:
        """What is injected for a word.

        Args:
            number: in `names`.
            options: which objects, and how.

        Returns:
            The texts.
        """
        if self.graph is None:
            return []
        name = self.names[number]
        spellings = self._spellings.get(fold_case(name), [name]) if self.ignore_case else [name]
        found = (
            text
            for spelling in spellings
            for text in self.graph.lookup(
                spelling,
                options.max_entities,
                use_predicate=options.use_predicate,
                predicates=options.predicates,
                separator=options.separator,
            )
        )
        return list(dict.fromkeys(found))[: options.max_entities]


class BranchStore:
    """Branches of the words that were met so far, as tokens, in flat arrays that grow.

    Args:
        lexicon: knows the words.
        options: which objects, and how.
        tokenize: texts to the ids of their tokens, without special tokens.

    Attributes:
        word_bounds: branches `word_bounds[w]` to `word_bounds[w + 1]` hang on word `w`.
        branch_bounds: tokens `branch_bounds[b]` to `branch_bounds[b + 1]` are branch `b`.
        ids: the tokens.
    """

    def __init__(self, lexicon: Lexicon, options: LookupOptions, tokenize: Callable[[list[str]], list[Sequence[int]]]):
        if options.predicates is not None and lexicon.graph is not None:
            lexicon.graph.check_predicates(options.predicates)
        if isinstance(options.use_predicate, frozenset) and options.use_predicate and lexicon.graph is not None:
            lexicon.graph.check_predicates(options.use_predicate, "use_predicate")
        self.lexicon, self.options, self._tokenize = lexicon, options, tokenize
        self._rows: dict[int, int] = {}
        self.word_bounds = np.zeros(1, dtype=np.int64)
        self.branch_bounds = np.zeros(1, dtype=np.int64)
        self.ids = np.zeros(0, dtype=np.int64)
        self.texts: list[str] = []

    def rows(self, numbers: Collection[int]) -> np.ndarray:
        """Look words up.

        Args:
            numbers: of words in the lexicon.

        Returns:
            Their rows in `word_bounds`.
        """
        rows = self._rows
        new = [number for number in dict.fromkeys(numbers) if number not in rows]
        if new:
            self._add(new)
        return np.array([rows[number] for number in numbers], dtype=np.int64)

    def _add(self, numbers: list[int]) -> None:
        texts = [self.lexicon.lookup(number, self.options) for number in numbers]
        tokens = iter(self._tokenize([text for of_word in texts for text in of_word]))
        words, branches, ids = [], [], []
        for number, of_word in zip(numbers, texts, strict=True):
            count = 0
            for text in of_word:
                branch = next(tokens)
                if len(branch):
                    count += 1
                    branches.append(len(branch))
                    ids.extend(branch)
                    self.texts.append(text)
            self._rows[number] = len(self._rows)
            words.append(count)
        self.word_bounds = _extended(self.word_bounds, words)
        self.branch_bounds = _extended(self.branch_bounds, branches)
        self.ids = np.concatenate([self.ids, np.array(ids, dtype=np.int64)])


def _extended(bounds: np.ndarray, sizes: list[int]) -> np.ndarray:
    return np.concatenate([bounds, bounds[-1] + np.cumsum(np.array(sizes, dtype=np.int64))])


def frozen_predicates(value: Any) -> Any:
    """A collection of predicates as a frozen set; anything else as it is.

    Args:
        value: `None`, a truth value, or a collection of texts.

    Returns:
        The value, hashable.

    Raises:
        TypeError: it is one text, or nothing of these.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) or not isinstance(value, Collection):
        raise TypeError(
            f"`use_predicate` and `predicates` must be lists of predicates if they name some, got {value!r}."
        )
    return frozenset(value)


__all__ = ["BranchStore", "Lexicon", "LookupOptions", "frozen_predicates"]
