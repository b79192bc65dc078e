"""Files of gensim's `KeyedVectors.save`, written by gensim 4.4, are read without it; and none of them runs code."""

import builtins
import gzip
import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from hf_ptm_ext.data.word_vectors import load_word_vectors

FILES = Path(__file__).parents[2] / "fixtures" / "word_vectors"
WORDS = ["good", "fine", "table"]
TABLE = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@pytest.mark.parametrize("name", ["whole.kv", "protocol_2.kv", "split.kv", "split.kv.gz"])
def test_vectors_are_those_that_gensim_saved(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim", None)
    vectors = load_word_vectors(FILES / name)
    assert vectors.words == WORDS
    np.testing.assert_allclose(vectors.table, TABLE, rtol=1e-6)
    assert load_word_vectors(FILES / name, max_words=2).words == WORDS[:2]


def test_fasttext_vectors_are_composed_of_their_pieces():
    vectors = load_word_vectors(FILES / "fasttext.kv")
    assert vectors.words == ["cd 北京", "bé", "abc"]
    np.testing.assert_allclose(vectors.table, np.load(FILES / "fasttext_expected.npy"), rtol=1e-5, atol=1e-7)


class Calls:
    """Pickles to a call of a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def canaries(path):
    """Objects whose pickles would write a file if anything in them were called."""
    return {
        "system": Calls(os.system, f"touch {path}"),
        "open": Calls(builtins.open, str(path), "w"),
        "exec": Calls(builtins.exec, f"open({str(path)!r}, 'w')"),
        "numpy_save": Calls(np.save, str(path), [1]),
        "inside": {"vectors": Calls(os.mkdir, str(path)), "index_to_key": ["a"]},
        "nested_pickle": Calls(pickle.loads, pickle.dumps(Calls(os.mkdir, str(path)))),
    }


@pytest.mark.parametrize("suffix", [".kv", ".model", ".pkl", ""])
@pytest.mark.parametrize("kind", sorted(canaries("")))
def test_a_pickle_that_would_run_code_is_refused_and_does_not(tmp_path, kind, suffix):
    canary = tmp_path / "canary"
    for protocol in (0, 2, 4, 5):
        (tmp_path / f"vectors{suffix}").write_bytes(pickle.dumps(canaries(canary)[kind], protocol=protocol))
        with pytest.raises(ValueError, match="no file of word vectors"):
            load_word_vectors(tmp_path / f"vectors{suffix}")
    assert not canary.exists()
    pickle.loads(pickle.dumps(canaries(canary)["open"]))
    assert canary.exists()  # the bare loader does run it


def test_an_array_beside_the_file_is_no_pickle_either(tmp_path):
    shutil.copy(FILES / "split.kv", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"split\.kv\.vectors\.npy, which must lie beside it"):
        load_word_vectors(tmp_path / "split.kv")
    canary = tmp_path / "canary"
    np.save(tmp_path / "split.kv.vectors.npy", np.array([Calls(os.mkdir, str(canary))], dtype=object))
    with pytest.raises(ValueError, match=r"vectors\.npy is damaged, or no array of numbers"):
        load_word_vectors(tmp_path / "split.kv")
    assert not canary.exists()


def test_a_file_that_unpacks_without_end_is_refused(tmp_path):
    (tmp_path / "bomb.kv.gz").write_bytes(
        gzip.compress(b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x" * (200 << 20))
    )
    with pytest.raises(ValueError, match=r"bomb\.kv\.gz"):
        load_word_vectors(tmp_path / "bomb.kv.gz")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_word_vectors(tmp_path / "nowhere.kv")


@pytest.mark.parametrize("keep", [0, 1, 40, 300, 700])
def test_a_file_that_is_cut_short_is_said_to_be_damaged(tmp_path, keep):
    (tmp_path / "cut.kv").write_bytes((FILES / "whole.kv").read_bytes()[:keep])
    with pytest.raises(ValueError, match="damaged, or no file of word vectors"):
        load_word_vectors(tmp_path / "cut.kv")
