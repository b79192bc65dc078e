"""The dictionary search: what it finds by definition, and the same with and without the optional package."""

import pickle
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hf_ptm_ext.models import matcher_core
from hf_ptm_ext.models.matcher_core import LongestMatcher, fold_case

LETTERS = "abAB 9_-巴黎คéİß."
# All letters, or few of them, so that names share beginnings.
NAMES = st.sampled_from([LETTERS, "aB 巴"]).flatmap(
    lambda letters: st.lists(st.text(letters, min_size=1, max_size=9), max_size=12)
)
TEXTS = st.sampled_from([LETTERS, "aB 巴"]).flatmap(lambda letters: st.text(letters, max_size=40))


def is_letter(char):
    return (char.isalnum() or char == "_") and char not in "巴黎ค"


def by_definition(names, text, ignore_case, whole_words):
    """Leftmost, longest, no overlap; no word is cut."""
    fold = fold_case if ignore_case else str
    numbers = {}
    for number, name in enumerate(names):
        numbers.setdefault(fold(name), number)
    folded = fold(text)

    def cuts(place):
        return 0 < place < len(text) and is_letter(text[place - 1]) and is_letter(text[place])

    found, begin = [], 0
    while begin < len(text):
        ends = [
            end
            for end in range(len(text), begin, -1)
            if folded[begin:end] in numbers and not (whole_words and (cuts(begin) or cuts(end)))
        ]
        if ends:
            found.append((begin, ends[0], numbers[folded[begin : ends[0]]]))
        begin = ends[0] if ends else begin + 1
    return found


@pytest.mark.parametrize("backend", ["rust", "python"])
@given(names=NAMES, text=TEXTS, ignore_case=st.booleans(), whole_words=st.booleans())
@example(names=["a", "ab"], text="abb ab a", ignore_case=False, whole_words=True)
@example(names=["a b", "b A-"], text="a b a-", ignore_case=True, whole_words=True)
@example(names=["aaaa", "aaaab"], text="aaaa", ignore_case=False, whole_words=True)
@example(names=["abaaab", "ab", "abaa"], text="abaaaa", ignore_case=False, whole_words=False)
def test_both_searches_find_what_the_definition_says(backend, names, text, ignore_case, whole_words):
    matcher = LongestMatcher(names, ignore_case=ignore_case, whole_words=whole_words, backend=backend)
    assert matcher.find(text) == by_definition(names, text, ignore_case, whole_words)


@pytest.mark.parametrize("backend", ["rust", "python"])
def test_names_in_words_are_found_only_if_asked_for(backend):
    names = ["art", "New York", "York"]
    text = "party art New Yorkers in New York"
    assert LongestMatcher(names, backend=backend).find(text) == [(6, 9, 0), (25, 33, 1)]
    anywhere = LongestMatcher(names, whole_words=False, backend=backend).find(text)
    assert anywhere == [(1, 4, 0), (6, 9, 0), (10, 18, 1), (25, 33, 1)]


@pytest.mark.parametrize("backend", ["rust", "python"])
def test_chinese_names_are_found_without_spaces(backend):
    matcher = LongestMatcher(["巴黎", "巴黎圣母院", "IBM"], backend=backend)
    assert matcher.find("他在巴黎圣母院和巴黎的IBM工作") == [(2, 7, 1), (8, 10, 0), (11, 14, 2)]


@pytest.mark.parametrize("backend", ["rust", "python"])
def test_case_folds_without_moving_places(backend):
    matcher = LongestMatcher(["paris"], ignore_case=True, backend=backend)
    assert matcher.find("İİİ PARIS, Paris") == [(4, 9, 0), (11, 16, 0)]
    assert LongestMatcher(["paris"], backend=backend).find("PARIS paris") == [(6, 11, 0)]


def test_a_dictionary_may_be_empty_and_its_names_not():
    assert LongestMatcher([]).find("text") == []
    with pytest.raises(ValueError, match="empty"):
        LongestMatcher(["a", ""])
    with pytest.raises(TypeError, match="texts"):
        LongestMatcher([3])
    with pytest.raises(ValueError, match="`backend`"):
        LongestMatcher(["a"], backend="c")


@pytest.mark.parametrize("backend", ["rust", "python"])
def test_a_matcher_travels_to_workers(backend):
    matcher = LongestMatcher(["Paris"], backend=backend)
    matcher.find("Paris")
    assert pickle.loads(pickle.dumps(matcher)).find("in Paris") == [(3, 8, 0)]


def test_without_the_package_the_search_is_in_python(monkeypatch):
    monkeypatch.setattr(matcher_core, "ahocorasick_rs", None)
    assert LongestMatcher(["Paris"]).backend == "python"
    with pytest.raises(ImportError, match="pip install ahocorasick-rs"):
        LongestMatcher(["Paris"], backend="rust")


def test_the_file_works_where_the_package_is_missing():
    script = (
        "import sys; sys.modules['ahocorasick_rs'] = None\n"
        "from hf_ptm_ext.models.matcher_core import LongestMatcher\n"
        "matcher = LongestMatcher(['Paris'])\n"
        "print(matcher.backend, matcher.find('in Paris'))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, encoding="utf-8")
    assert result.stdout.strip() == "python [(3, 8, 0)]", result.stderr
