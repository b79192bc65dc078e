"""Words, word vectors, parts of speech."""

import gzip
import random
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_ptm_ext.data.augmentation import (
    WordClasses,
    WordSplitter,
    WordVectors,
    is_replaceable,
    join_words,
    load_word_vectors,
    rough_tags,
)


@pytest.mark.parametrize(
    ("text", "lowercase", "words"),
    [
        ("Don't panic, it's O.K.!", False, ["Don", "'", "t", "panic", ",", "it", "'", "s", "O", ".", "K", ".", "!"]),
        ("  A café\tin\n Zürich ", True, ["a", "cafe", "in", "zurich"]),
        ("我爱 NLP，真的。", False, ["我", "爱", "NLP", "，", "真", "的", "。"]),
        ("", False, []),
        ("   ", False, []),
    ],
)
def test_words_are_those_of_the_basic_tokenizer(text, lowercase, words):
    assert WordSplitter(lowercase)(text) == words


def test_a_segmenter_cuts_what_has_no_spaces():
    split = WordSplitter(segmenter=lambda text: ["我们", "喜欢", " ", "good", "电影", "。"])
    assert split("我们喜欢 good电影。") == ["我们", "喜欢", "good", "电影", "。"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["it", "'", "s", "fine", "."], "it ' s fine ."),
        (["我", "爱", "北", "京", "，", "真", "的", "！", "”"], "我爱北京，真的！”"),
        (["我", "爱", "NLP", "。"], "我爱 NLP 。"),
        ([], ""),
    ],
)
def test_words_are_joined_as_their_script_is_written(words, text):
    assert join_words(words) == text


@given(st.text(max_size=40))
def test_joined_words_split_into_the_same(text):
    split = WordSplitter()
    words = split(text)
    assert split(join_words(words)) == words


def test_function_words_numbers_and_punctuation_stay():
    text = "The film isn ' t 3d but very good , Mr . X2"
    assert [word for word in text.split() if is_replaceable(word)] == ["film", "good", "Mr"]
    assert [word for word in "这部电影不好看的" if is_replaceable(word)] == list("部电影好看")
    assert is_replaceable("very", frozenset())


def random_vectors(number=50, width=8):
    table = np.random.default_rng(0).normal(size=(number, width)).astype(np.float32)
    return [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(number)], table


def test_neighbours_are_those_of_the_cosine():
    words, table = random_vectors()
    vectors = WordVectors(words, table)
    cosine = table @ table[7] / np.linalg.norm(table, axis=1) / np.linalg.norm(table[7])
    expected = [words[n] for n in np.argsort(-cosine) if n != 7]
    assert vectors.nearest(words[7], 15) == expected[:15]
    assert vectors.nearest(words[7].title(), 3) == [], "as it is written"
    titled = WordVectors([word.title() for word in words[:8]] + words[8:], table)
    assert titled.nearest(words[7].title(), 3) == [word.title() for word in expected[:3]]
    assert vectors.nearest(words[7], 1000) == expected
    assert vectors.nearest("absent", 3) == []
    few = WordVectors(words, table, max_words=5)
    assert set(few.nearest(words[0], 9)) == set(words[1:5])
    assert few.nearest(words[7], 9) == []


def test_a_word_that_stands_twice_is_its_first():
    vectors = WordVectors(["a", "b", "a"], [[1, 0], [1, 0.1], [0, 1]])
    assert vectors.nearest("a", 1) == ["b"]


def test_keyed_vectors_serve_as_they_are():
    words, table = random_vectors()
    keyed = SimpleNamespace(index_to_key=words, vectors=table)  # gensim's attributes
    assert WordVectors.of(keyed).nearest(words[3], 5) == WordVectors(words, table).nearest(words[3], 5)
    with pytest.raises(TypeError, match="KeyedVectors, got dict"):
        WordVectors.of({})
    with pytest.raises(ValueError, match="must be"):
        WordVectors(words[:3], table)


def text_of(words, table, header=False):
    lines = [f"{len(words)} {table.shape[1]}"] if header else []
    lines += [f"{w} " + " ".join(repr(float(x)) for x in row) for w, row in zip(words, table, strict=True)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("name", "header"), [("glove.txt", False), ("model.vec", True), ("glove.txt.gz", False)])
def test_text_files_are_read_without_gensim(tmp_path, monkeypatch, name, header):
    monkeypatch.setitem(sys.modules, "gensim", None)
    words, table = random_vectors()
    words[4] = ". . ."  # GloVe 840B has such words
    content = text_of(words, table, header).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    loaded = load_word_vectors(tmp_path / name)
    assert loaded.words == words
    np.testing.assert_allclose(loaded.table, WordVectors(words, table).table, rtol=1e-6)
    assert load_word_vectors(tmp_path / name, max_words=6).words == words[:6]


def test_files_that_cannot_be_read_say_why(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"vectors\.bin: there is no such file"):
        load_word_vectors(tmp_path / "vectors.bin")
    for content in ("a 1 2\nb 1 x\n", "a 1 2\n1 2\n"):
        (tmp_path / "bad.txt").write_text(content)
        with pytest.raises(ValueError, match="line 2: a word and 2 numbers expected"):
            load_word_vectors(tmp_path / "bad.txt")
    (tmp_path / "none.txt").write_text("")
    with pytest.raises(ValueError, match="is empty"):
        load_word_vectors(tmp_path / "none.txt")


def test_words_are_drawn_by_tag_and_frequency():
    classes = WordClasses(lambda words: ["v" if word.isupper() else "n" for word in words])
    classes.add([["A", "b", "b", "b"], ["c"]])
    generator = random.Random(0)
    drawn = Counter(classes.draw("n", generator) for _ in range(4000))
    assert set(drawn) == {"b", "c"}
    assert abs(drawn["b"] / 4000 - 0.75) < 4 * (0.75 * 0.25 / 4000) ** 0.5
    assert classes.draw("v", generator) == "A"
    assert classes.draw("other", generator) is None
    with pytest.raises(ValueError, match="a tag for each word"):
        WordClasses(lambda words: []).add([["a"]])


def test_rough_tags_keep_like_with_like():
    text = "She quickly watched three boring movies , 3 glass of wine 电影 的 不"
    expected = "PRON ADV VERB-ED WORD VERB-ING PLURAL PUNCT NUM WORD ADP WORD HAN-2 PART PART"
    assert rough_tags(text.split()) == expected.split()
