"""The embedded corpora and the held-out split."""

import gzip
import re

import pytest

from hf_ptm_ext.data import (
    embedded_corpus,
    embedded_corpus_path,
    held_out_split,
    is_held_out,
    read_documents,
)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_reader_gives_the_embedded_documents(language):
    assert list(read_documents(embedded_corpus_path(language))) == embedded_corpus(language)


def test_both_corpora_together_are_under_one_megabyte_and_of_useful_size():
    assert sum(embedded_corpus_path(language).stat().st_size for language in ("en", "zh")) < 1_000_000
    words = sum(len(sentence.split()) for document in embedded_corpus("en") for sentence in document)
    characters = sum(len(re.findall(r"[\u4e00-\u9fff]", "".join(document))) for document in embedded_corpus("zh"))
    assert words > 300_000
    assert characters > 150_000


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_files_are_gzip_without_a_time_and_their_licence_is_beside(language):
    path = embedded_corpus_path(language)
    assert path.read_bytes()[4:8] == b"\0\0\0\0"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert file.readline().strip()
    notice = (path.parent / "NOTICE.md").read_text(encoding="utf-8")
    assert path.name in notice
    assert "Apache-2.0" in notice
    assert "CC BY-SA 4.0" in notice


def test_an_unknown_language_is_named():
    with pytest.raises(ValueError, match=r"`language` must be one of \['en', 'zh'\], got 'de'"):
        embedded_corpus("de")


def test_held_out_documents_are_the_same_in_any_order_and_disjoint():
    documents = embedded_corpus("en")[:200]
    train, held_out = held_out_split(documents, 0.1)
    again, held_out_again = held_out_split(documents[::-1], 0.1)
    assert len(held_out) == 20
    assert sorted(train + held_out) == sorted(documents)
    assert (sorted(again), sorted(held_out_again)) == (sorted(train), sorted(held_out))
    assert held_out_split(documents, 0.1, seed=1)[1] != held_out


def test_equal_documents_fall_on_the_same_side():
    train, held_out = held_out_split([["a"], ["b"], ["a"], ["c"], ["b"]], 0.3)
    assert not {tuple(document) for document in train} & {tuple(document) for document in held_out}


def test_both_sides_keep_a_document():
    assert [len(part) for part in held_out_split([["a"], ["b"]], 0.99)] == [1, 1]
    assert [len(part) for part in held_out_split([["a"]] * 3, 0.5)] == [2, 1]
    with pytest.raises(ValueError, match="at least 2 documents"):
        held_out_split([["a"]])


def test_a_document_of_a_stream_decides_for_itself():
    documents = embedded_corpus("en")
    share = sum(is_held_out(document, 0.05) for document in documents) / len(documents)
    assert abs(share - 0.05) < 4 * (0.05 * 0.95 / len(documents)) ** 0.5
