"""The search as pkuseg's dictionary does it, against its definition: a trie that is walked character by character."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hf_ptm_ext.models.matcher_core import LongestMatcher, is_spaced

NAMES = st.lists(st.text("ab 巴", min_size=1, max_size=5), max_size=8)
TEXTS = st.text("ab 巴\u3000", max_size=25)


def walked(names, text):
    """Chunks between white space; in each, the walk that forgets the last complete name unless the chunk is over."""
    numbers = {}
    for number, name in enumerate(names):
        numbers.setdefault(name, number)
    prefixes = {name[:size] for name in names for size in range(1, len(name) + 1)}
    found, begin = [], 0
    while begin < len(text):
        if text[begin].isspace():
            begin += 1
            continue
        limit = begin
        while limit < len(text) and not text[limit].isspace():
            limit += 1
        while begin < limit:
            reached, complete = begin, None
            while reached < limit and text[begin : reached + 1] in prefixes:
                reached += 1
                if text[begin:reached] in numbers:
                    complete = reached
            if complete is None:
                begin += 1
                continue
            end = complete if reached == limit else reached
            if text[begin:end] in numbers:
                found.append((begin, end, numbers[text[begin:end]]))
            begin = end
    return found


@pytest.mark.parametrize("backend", ["rust", "python"])
@settings(deadline=None)
@given(names=NAMES, text=TEXTS)
@example(names=["ab", "abba"], text="abb abb")
@example(names=["a", "a b"], text="a b")
@example(names=["a b"], text="a b")
def test_names_are_lost_as_by_pkuseg(backend, names, text):
    matcher = LongestMatcher(names, whole_words=False, pkuseg_compat=True, backend=backend)
    assert matcher.find(text) == walked(names, text)


@pytest.mark.parametrize("backend", ["rust", "python"])
def test_the_known_case(backend):
    names = ["苹果", "苹果公司"]
    assert LongestMatcher(names, backend=backend).find("苹果公园") == [(0, 2, 0)]
    compat = LongestMatcher(names, whole_words=False, pkuseg_compat=True, backend=backend)
    assert compat.find("苹果公园") == []
    assert compat.find("苹果公") == [(0, 2, 0)]  # at the end, the last complete name
    assert compat.find("苹果公 司") == [(0, 2, 0)]
    assert compat.find("苹果公司") == [(0, 4, 1)]


def test_pkuseg_knows_no_options():
    for options in ({"ignore_case": True, "whole_words": False}, {"whole_words": True}):
        with pytest.raises(ValueError, match="`pkuseg_compat`"):
            LongestMatcher(["a"], pkuseg_compat=True, **options)


def test_scripts_with_spaces():
    assert [is_spaced(char) for char in "aÉ9ж京トค-"] == [True, True, True, True, False, False, False, False]


@pytest.mark.parametrize("backend", ["rust", "python"])
def test_numbered_names_are_as_quick_to_index_as_others(backend):
    """Item 1, item 2, ... item 100000: without care the index of such names takes half a minute to build."""
    matcher = LongestMatcher([f"a{number}" for number in range(100_000)], backend=backend)
    started = time.process_time()
    assert matcher.find("of a7 and a99999, a100000") == [(3, 5, 7), (10, 16, 99999)]
    assert matcher.find("\uffff" * 1001) == [], "what is put in front of the names is no name"
    assert time.process_time() - started < 5


@pytest.mark.parametrize("pkuseg_compat", [False, True])
@pytest.mark.parametrize("backend", ["rust", "python"])
def test_a_name_as_long_as_a_chapter_is_built_and_found_in_its_length(backend, pkuseg_compat):
    """By the square of its length this would take an hour."""
    name = "a" * 150_000
    matcher = LongestMatcher([name, "a"], whole_words=False, pkuseg_compat=pkuseg_compat, backend=backend)
    assert matcher.find(name) == [(0, len(name), 0)]
