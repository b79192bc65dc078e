"""Parallel text: aligned lines, columns of JSON lines, and what is wrong with them."""

import gzip
import json
from pathlib import Path

import pytest

from hf_ptm_ext.data import read_parallel

FIXTURE = Path(__file__).parents[1] / "fixtures" / "xquad_pairs_240.jsonl"


@pytest.fixture
def write(tmp_path):
    def build(name, text):
        path = tmp_path / name
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(text.encode("utf-8")))
        else:
            path.write_text(text, encoding="utf-8")
        return path

    return build


def test_columns_of_json_lines():
    pairs = list(read_parallel(FIXTURE, source_column="en", target_column="zh"))
    assert len(pairs) == 240
    assert pairs[0][0].isascii()
    assert not pairs[0][1].isascii()


def test_aligned_lines_plain_and_compressed(write):
    english, german = write("a.en", "One.\n\n Two. \n\n"), write("a.de.gz", "Eins.\n\nZwei.")
    assert list(read_parallel(english, german)) == [("One.", "Eins."), ("Two.", "Zwei.")]
    more = [write("b.en", "Three.\n"), write("b.de", "Drei.\n")]
    assert list(read_parallel([english, more[0]], [german, more[1]]))[-1] == ("Three.", "Drei.")


@pytest.mark.parametrize(
    ("english", "german", "message"),
    [
        ("One.\nTwo.\n", "Eins.\n", r"a\.de ends before line 2, and .*a\.en goes on"),
        ("One.\n", "Eins.\nZwei.\n", r"a\.en ends before line 2, and .*a\.de goes on"),
        ("One.\n\n", "Eins.\nZwei.\n", r"a\.en, line 2: is blank"),
        ("One.\nTwo.\n", "Eins.\n \n", r"a\.de, line 2: is blank"),
    ],
)
def test_lines_that_do_not_fit(write, english, german, message):
    with pytest.raises(ValueError, match=message):
        list(read_parallel(write("a.en", english), write("a.de", german)))


def test_numbers_of_files_and_columns(write, tmp_path):
    with pytest.raises(ValueError, match="`target_files` must be as many as `files`, got 1 for 2"):
        list(read_parallel([write("a.en", "x\n"), write("b.en", "x\n")], write("a.de", "x\n")))
    path = write("rows.jsonl", json.dumps({"en": "One.", "de": "Eins."}) + "\n")
    with pytest.raises(ValueError, match="no column 'zh'"):
        list(read_parallel(path, source_column="en", target_column="zh"))
    with pytest.raises(FileNotFoundError):
        list(read_parallel(tmp_path / "none.en", write("c.de", "x\n")))
