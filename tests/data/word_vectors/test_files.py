"""Every file of word vectors is read as the program that wrote it reads it, and told where it is damaged."""

import bz2
import gzip
import json
import lzma
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gensim.models import FastText, KeyedVectors, Word2Vec
from safetensors.numpy import load_file

from hf_ptm_ext.data.word_vectors import WordVectors

GOLDENS = Path(__file__).parents[2] / "goldens"
FILES = GOLDENS / "word2vec-formats-a.files"
GOLDEN = json.loads((GOLDENS / "word2vec-formats-a.json").read_text())
TENSORS = load_file(GOLDENS / "word2vec-formats-a.safetensors")
WORDS = ["the", "北京", "étude", "a b"]
TABLE = np.random.default_rng(3).normal(size=(4, 10)).astype(np.float32)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "words", "expected", "tolerance"),
    [
        *((name, "word2vec_words", "word2vec.vectors", 0) for name in ("vectors.bin", "vectors-c.bin", "vectors.kv")),
        ("word2vec.model", "word2vec_words", "word2vec.vectors", 0),
        *(
            (name, "word2vec_words", "word2vec.vectors", 5e-6)
            for name in ("vectors.txt", "vectors.txt.gz", "glove.txt")
        ),
        *((name, "fasttext_words", "fasttext.vectors", 1e-6) for name in ("fasttext-gensim.bin", "fasttext.model")),
        ("fasttext-facebook.bin", "facebook_words", "facebook.vectors", 1e-6),
        ("fasttext-facebook.vec", "facebook_words", "facebook.vectors", 5e-6),
    ],
)
def test_files_of_gensim_and_fasttext(name, words, expected, tolerance):
    vectors = WordVectors.load(FILES / name)
    assert vectors.words == GOLDEN[words]
    np.testing.assert_allclose(vectors.table, TENSORS[expected], rtol=0, atol=tolerance)
    one_by_one = np.stack([WordVectors.load(FILES / name).vector(word) for word in vectors.words[:3]])
    np.testing.assert_array_equal(one_by_one, vectors.table[:3])


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("fasttext-gensim.bin", "oov", "fasttext.oov"),
        ("fasttext-gensim.bin", "oov", "fasttext.oov_facebook"),
        ("fasttext.model", "oov", "fasttext.oov"),
        ("fasttext-facebook.bin", "facebook_oov", "facebook.oov"),
    ],
)
def test_words_that_fasttext_never_saw(name, asked, expected):
    vectors = WordVectors.load(FILES / name)
    np.testing.assert_allclose(vectors.vectors(GOLDEN[asked]), TENSORS[expected], rtol=0, atol=1e-6)


@pytest.mark.golden
def test_ngrams_and_their_rows():
    vectors = WordVectors.load(FILES / "fasttext-facebook.bin")
    for word, (ngrams, rows) in GOLDEN["facebook_subwords"].items():
        own = int(word in vectors)
        assert vectors.subwords.ngrams(word) == ngrams[own:]
        assert [len(vectors) + row for row in vectors.subwords.rows(word)] == rows[own:]
    assert vectors.subwords.ngrams("</s>") == []


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin", "fasttext-facebook.bin", "vectors.kv"])
def test_some_words_are_read_alone(name):
    whole = WordVectors.load(FILES / name)
    assert WordVectors.load(FILES / name, limit=5).words == whole.words[:5]
    few = WordVectors.load(FILES / name, restrict_to={"king", "berlin", "unknown"})
    assert few.words == [word for word in whole.words if word in ("king", "berlin")]
    np.testing.assert_array_equal(few["king"], whole["king"])
    with pytest.raises(ValueError, match="no word that was asked for"):
        WordVectors.load(FILES / name, restrict_to={"unknown"})


def packed(path, data):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("inside", data)
    else:
        path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[path.suffix].compress(data))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zip"])
@pytest.mark.parametrize("name", ["vectors.txt", "vectors-c.bin", "fasttext-facebook.bin"])
def test_packed_files_are_the_same(tmp_path, name, suffix):
    path = tmp_path / f"{name}{suffix}"
    packed(path, (FILES / name).read_bytes())
    np.testing.assert_array_equal(WordVectors.load(path).table, WordVectors.load(FILES / name).table)
    if suffix != ".zip":
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(ValueError, match=r"broken or cut off|ends in|is there|ends behind"):
            WordVectors.load(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".txt", ".bin"])
@pytest.mark.parametrize("name", ["vectors.bin", "fasttext-facebook.bin"])
def test_what_is_written_is_read_again(tmp_path, name, suffix):
    vectors, path = WordVectors.load(FILES / name), tmp_path / f"out{suffix}"
    vectors.save(path) if suffix == ".safetensors" else vectors.to_word2vec(path, binary=suffix == ".bin")
    again = WordVectors.load(path)
    assert again.words == vectors.words
    np.testing.assert_array_equal(again.table, vectors.table)
    if suffix == ".safetensors":
        np.testing.assert_array_equal(
            again.vectors(["zzz"], oov="zero" if again.subwords is None else None),
            vectors.vectors(["zzz"], oov="zero" if vectors.subwords is None else None),
        )
    else:
        theirs = KeyedVectors.load_word2vec_format(str(path), binary=suffix == ".bin")
        np.testing.assert_array_equal(theirs.vectors, vectors.table)


def test_blanks_in_words_bytes_of_blanks_in_numbers_and_other_alphabets(tmp_path):
    table = np.frombuffer(b" \n  " * 40, "<f4").reshape(4, 10)  # floats whose bytes are blanks and line breaks
    raw = b"4 10\n" + b"".join(
        word.encode() + b" " + row.tobytes() for word, row in zip(["x", "北京", "\u2028", "é"], table, strict=True)
    )
    (tmp_path / "v.bin").write_bytes(raw)
    vectors = WordVectors.load(tmp_path / "v.bin")
    assert vectors.words == ["x", "北京", "\u2028", "é"]
    np.testing.assert_array_equal(vectors.table, table)
    lines = [f"{word} {' '.join(map(str, row))} \r\n" for word, row in zip(WORDS, TABLE, strict=True)]
    (tmp_path / "g.txt").write_bytes("".join(lines).encode("utf-8-sig"))
    vectors = WordVectors.load(tmp_path / "g.txt")
    assert vectors.words == WORDS
    np.testing.assert_array_equal(vectors.table, TABLE)


def test_other_encodings(tmp_path):
    raw = b"2 2\n" + "kähmäinen".encode("latin-1") + b" " + struct.pack("<2f", 1, 2) + b"b " + struct.pack("<2f", 3, 4)
    (tmp_path / "v.bin").write_bytes(raw)
    with pytest.raises(ValueError, match=r"v\.bin, word 1: .* is not utf-8"):
        WordVectors.load(tmp_path / "v.bin")
    assert WordVectors.load(tmp_path / "v.bin", encoding="latin-1").words == ["kähmäinen", "b"]
    assert WordVectors.load(tmp_path / "v.bin", errors="ignore").words == ["khminen", "b"]


def test_a_word_that_is_there_twice_is_told_and_the_first_taken(tmp_path, caplog):
    (tmp_path / "v.txt").write_text("3 2\na 1 2\nb 3 4\na 5 6\n")
    vectors = WordVectors.load(tmp_path / "v.txt")
    assert vectors.words == ["a", "b"]
    assert vectors["a"].tolist() == [1, 2]
    assert "v.txt, line 4" in caplog.text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("3 2\na 1 2\nb 3 4\n", "line 3: the file ends behind 2 words, and its first line says 3"),
        ("a 1 2\nb 3\n", "line 2: a word and 2 numbers expected"),
        ("a 1 2\nb 3 x\n", "line 2: a word and 2 numbers expected, got '3 x'"),
        ("a 1 2\nb 3  4\n", r"line 2: a word and 2 numbers expected"),
        ("a 1 2\nb nan 4\n", "line 2: the vector has a number that is NaN or infinite"),
        ("a 1 2\nb 1e99 4\n", "line 2: the vector has a number that is NaN or infinite"),
        ("2 3\na 1 2\nb 3 4\n", "line 2: a word and 3 numbers expected"),
        ("2 1\na 1 2\nb 3 4\n", "line 2: a word and its numbers expected.* and line 1 says 1 numbers"),
        ("a\t1\t2\nb\t3\t4\n", "line 2: a word and its numbers expected, split by single blanks"),
        ("a\n", "line 1: a word and its numbers expected"),
        ("<!DOCTYPE html>\n", "is a page of HTML"),
        ("version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
        ("", "is empty"),
    ],
)
def test_damaged_text_is_told_by_its_line(tmp_path, content, told):
    (tmp_path / "v.txt").write_text(content)
    with pytest.raises(ValueError, match=rf"v\.txt.*{told}"):
        WordVectors.load(tmp_path / "v.txt")


@pytest.mark.parametrize("name", ["vectors.bin", "vectors-c.bin", "fasttext-facebook.bin", "fasttext-gensim.bin"])
def test_binary_files_that_are_cut_anywhere_are_told(tmp_path, name):
    data, path = (FILES / name).read_bytes(), tmp_path / "cut.bin"
    kept = WordVectors.load(FILES / name).own.nbytes  # what stands behind it (labels' matrix) is not needed
    for cut in range(1, min(len(data), kept), 37):
        path.write_bytes(data[:cut])
        with pytest.raises(ValueError, match=r"cut\.bin"):
            WordVectors.load(path, format="fasttext-bin" if name.startswith("fast") else "word2vec-binary")


def test_a_fasttext_file_that_promises_more_than_memory_is_refused(tmp_path):
    data = bytearray((FILES / "fasttext-facebook.bin").read_bytes())
    place = data.index(struct.pack("<2q", 173, 8))
    data[place : place + 16] = struct.pack("<2q", 1 << 40, 8)
    (tmp_path / "big.bin").write_bytes(bytes(data))
    with pytest.raises(ValueError, match="is damaged: its input matrix would have"):
        WordVectors.load(tmp_path / "big.bin")


@pytest.mark.parametrize("method", [Word2Vec, FastText])
@pytest.mark.parametrize("split", [False, True])
def test_models_and_vectors_that_gensim_saves(tmp_path, method, split):
    texts = [["the", "北京", "étude", "cat"], ["the", "cat", "sat"]] * 3
    options = {"bucket": 50} if method is FastText else {}
    model = method(texts, vector_size=6, min_count=1, epochs=1, **options)
    for name, saved in (("m.model", model), ("v.kv", model.wv)):
        saved.save(str(tmp_path / name), **({"sep_limit": 1} if split else {}))
        vectors = WordVectors.load(tmp_path / name)
        assert vectors.words == model.wv.index_to_key
        np.testing.assert_allclose(vectors.table, model.wv.vectors, atol=1e-6)
    taken = WordVectors.of(model.wv)
    np.testing.assert_allclose(taken.table, model.wv.vectors, atol=1e-6)
    if method is FastText:
        np.testing.assert_allclose(taken.vector("cats"), model.wv["cats"], atol=1e-6)


def test_a_table_is_the_same_before_and_after_use():
    vectors = WordVectors.load(FILES / "fasttext-facebook.bin")
    before = pickle.dumps(vectors)
    vectors.most_similar("king")
    assert pickle.dumps(vectors) == before
    assert pickle.loads(before).nearest("king", 3) == vectors.nearest("king", 3)


def test_the_format_can_be_named(tmp_path):
    (tmp_path / "odd").write_text("5 2\n1 2\n")  # words that are numbers
    assert WordVectors.load(tmp_path / "odd", format="glove-text").words == ["5", "1"]
    with pytest.raises(ValueError, match="`format` must be auto or one of word2vec-text"):
        WordVectors.load(tmp_path / "odd", format="glove")
    for limit in (0, 1.5, "3"):
        with pytest.raises(ValueError, match=f"`limit` must be a whole number, at least 1, got {limit!r}"):
            WordVectors.load(tmp_path / "odd", limit=limit)
    with pytest.raises(ValueError, match="`errors` must be strict, ignore or replace, got 'replce'"):
        WordVectors.load(tmp_path / "odd", errors="replce")
