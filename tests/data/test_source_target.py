"""Rows of source and target: every format says the same, and a bad row is named with file and place."""

import gzip
import json
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from hf_ptm_ext.data import SourceTarget, dataset_source_target, question_generation_rows, read_source_target

ROWS = [{"text": 'A "quoted", long text.', "short": "Kurz."}, {"text": "第二行", "short": "二"}]
EXPECTED = [SourceTarget(row["text"], (row["short"],)) for row in ROWS]
XQUAD = Path(__file__).parents[1] / "fixtures" / "xquad_24.jsonl"


def jsonl(path):
    path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8")


def gzipped(path):
    path.write_bytes(gzip.compress("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode("utf-8")))


def comma_separated(path):
    path.write_text('\ufefftext,short\r\n"A ""quoted"", long text.",Kurz.\r\n第二行,二\r\n', encoding="utf-8")


def tab_separated(path):
    path.write_text('text\tshort\nA "quoted", long text.\tKurz.\n第二行\t二\n', encoding="utf-8")


def parquet(path):
    Dataset.from_list(ROWS).to_parquet(path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.jsonl", jsonl),
        ("a.jsonl.gz", gzipped),
        ("a.csv", comma_separated),
        ("a.tsv", tab_separated),
        ("a.parquet", parquet),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path, name, write):
    write(tmp_path / name)
    assert list(read_source_target(tmp_path / name, "text", "short")) == EXPECTED


def test_quoted_line_breaks_of_csv_stay_in_their_field(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('source,target\n"one\ntwo",three\n', encoding="utf-8")
    assert next(read_source_target(file)).source == "one\ntwo"


def test_datasets_of_folders(tmp_path):
    DatasetDict({"test": Dataset.from_list(ROWS)}).save_to_disk(tmp_path)
    options = {"source_column": "text", "target_column": "short"}
    assert list(dataset_source_target(tmp_path, split="test", **options)) == EXPECTED
    with pytest.raises(ValueError, match="`split` must be one of \\['test'\\]"):
        list(dataset_source_target(tmp_path, split="train", **options))


def test_several_right_targets_are_all_kept(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"source": "s", "target": ["a", "", "b"]}\n', encoding="utf-8")
    assert next(read_source_target(file)).targets == ("a", "b")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"source": "s"}', r"a.jsonl, line 1: no column 'target', only \['source'\]. Set `target_column`"),
        (
            "a.jsonl",
            '{"source": "s", "target": "t"}\n{"source": "s", "target": " "}',
            "line 2: column 'target' is",
        ),
        ("a.jsonl", '{"source": "s", "target": null}', "column 'target' is empty"),
        ("a.jsonl", '{"source": 3, "target": "t"}', "column 'source' must be a text or a list of texts, got 3"),
        ("a.jsonl", "[1]", "must be a JSON object"),
        ("a.csv", "source,target\na,b,c\n", "line 2: must have the 2 columns"),
        ("a.csv", "source,target\na\n", "line 2: must have the 2 columns"),
        ("a.xml", "<a/>", "cannot tell the format"),
        ("a.parquet", "no", "cannot be read as Parquet"),
    ],
)
def test_bad_rows_are_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        list(read_source_target(tmp_path / name))


def test_text_in_another_encoding_is_named(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes("source,target\nschön,gut\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.csv, line 2: byte 17"):
        list(read_source_target(file))
    assert next(read_source_target(file, encoding="latin-1")).source == "schön"


# ---- question generation ----


def test_real_questions_in_two_languages_are_asked_from_passage_and_answer():
    rows = list(read_source_target(XQUAD, file_format="squad"))
    assert len(rows) == 24
    for row in rows:
        assert row.source_pair in row.source
        assert row.targets[0].endswith(("?", "？"))


@pytest.mark.parametrize("size", [20, 60, 200])
def test_a_cut_passage_holds_the_answer(size):
    for row in read_source_target(XQUAD, file_format="squad", max_context_characters=size):
        assert len(row.source) <= size
        assert row.source_pair[:size].strip() in row.source


def test_nested_and_flat_records_are_the_same():
    flat = {
        "id": "q",
        "context": "Bern is here.",
        "question": "What is here?",
        "answers": {"text": ["Bern"], "answer_start": [0]},
    }
    nested = {
        "version": "2.0",
        "data": [
            {
                "title": "t",
                "paragraphs": [
                    {
                        "context": "Bern is here.",
                        "qas": [
                            {"id": "q", "question": "What is here?", "answers": [{"text": "Bern", "answer_start": 0}]},
                            {"id": "none", "question": "Why?", "answers": [], "is_impossible": True},
                        ],
                    }
                ],
            }
        ],
    }
    assert list(question_generation_rows(nested)) == list(question_generation_rows([flat]))


def test_an_answer_that_is_elsewhere_is_named(tmp_path):
    file = tmp_path / "squad.json"
    record = {"id": "q7", "context": "Bern", "question": "?", "answers": {"text": ["Rome"], "answer_start": [0]}}
    file.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=r"squad.json, record 1: the passage has 'Bern' at character 0"):
        list(read_source_target(file, file_format="squad"))
    with pytest.raises(ValueError, match="lacks `answers`"):
        list(question_generation_rows([{"context": "a", "question": "b"}]))
