"""Rows that cannot be used: every reader tells all of them at once, or leaves them out with a count."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_ptm_ext.data import (
    BadRows,
    QuestionExample,
    read_labelled_texts,
    read_parallel,
    read_question_examples,
    read_relation_examples,
    read_source_target,
    read_tagged_words,
    read_typing_examples,
)

ANSWER = {"id": "1", "question": "Who?", "context": "Jane did.", "answers": {"text": ["Jane"], "answer_start": [0]}}
RELATION = {"tokens": ["a", "b"], "h": {"pos": [0, 1]}, "t": {"pos": [1, 2]}, "relation": "r"}


def lines(*rows: Any) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


# name of a file -> its reader, its text (one sound row at each end), and the places and reasons of two bad rows
CASES: dict[str, tuple[Callable[[Path], Any], str, tuple[str, str]]] = {
    "a.tsv": (
        read_labelled_texts,
        "text\tlabel\nfine\tx\n\tx\nfine\ny\tx\n",
        ("line 3: column 'text' is empty", "line 4: must have the 2 columns"),
    ),
    "a.jsonl": (
        read_labelled_texts,
        lines({"text": "a", "label": "x"}, '{"text": ', {"text": ["a"], "label": "x"}, {"text": "b", "label": "y"}),
        ("line 2: not a JSON object", r"line 3: column 'text' must be a text, got list \['a'\]"),
    ),
    "b.jsonl": (
        read_tagged_words,
        lines(
            {"tokens": ["a"], "tags": ["O"]},
            {"tokens": ["a"], "tags": ["O", "O"]},
            {"tokens": [1], "tags": ["O"]},
            {"tokens": "b", "tags": "O"},
        ),
        ("line 2: must have a tag for each word", "line 3: column 'tokens' must be a list of strings"),
    ),
    "c.conll": (
        read_tagged_words,
        "a O\n\nb\n\nc O\nd B-X extra\n\ne O\nf O\n",
        ("line 3: must have a word and, in the last column, its tag", "line 6: must have 2 columns, as most lines"),
    ),
    "d.json": (
        read_question_examples,
        json.dumps(
            [
                ANSWER,
                {**ANSWER, "id": "2", "answers": {"text": ["Jane"], "answer_start": []}},
                {**ANSWER, "id": "3", "answers": {"text": ["Jane"], "answer_start": [-1]}},
                {**ANSWER, "id": "4"},
            ]
        ),
        (
            "record 2: column 'answers' must have an `answer_start` for each `text`, got 0 for 1",
            "record 3: `answer_st",
        ),
    ),
    "e.jsonl": (
        read_source_target,
        lines(
            {"source": "a", "target": "b"},
            {"source": "a"},
            {"source": 3, "target": "b"},
            {"source": "c", "target": "d"},
        ),
        ("line 2: no column 'target'", "line 3: column 'source' must be a text or a list of texts, got 3"),
    ),
    "f.json": (
        lambda path: read_source_target(path, file_format="squad"),
        json.dumps([ANSWER, {**ANSWER, "context": None}, {**ANSWER, "answers": "Jane"}, ANSWER]),
        ("record 2: `context` must be a text, got None", "record 3: column 'answers' must hold SQuAD's answers"),
    ),
    "g.jsonl": (
        read_relation_examples,
        lines(
            RELATION, {**RELATION, "tokens": "a b"}, {**RELATION, "t": {"pos": [0, 2]}}, {**RELATION, "relation": "s"}
        ),
        ("record 2: `tokens` must be a list of strings", r"record 3: the mentions \(0, 1\) and \(0, 3\) overlap"),
    ),
    "h.jsonl": (
        read_typing_examples,
        lines(
            {"tokens": ["a"], "pos": [0, 1], "labels": ["x"]},
            {"tokens": ["a"], "pos": [0, 1], "labels": "x"},
            {"tokens": ["a"], "pos": [0, True], "labels": ["x"]},
            {"tokens": ["b"], "pos": [0, 1], "labels": []},
        ),
        ("record 2: `labels` must be a list of strings, got 'x'", "record 3: `pos` must be two whole numbers"),
    ),
    "i.txt": (
        read_relation_examples,
        '1 "<e1>a</e1> <e2>b</e2>"\nr\n\n2 "<e1>a</e1> b"\nr\n\n3 "<e1>a</e1> <e2></e2>"\nr\n\n'
        '4 "<e1>c</e1> <e2>b</e2>"\ns\n',
        ("line 4: the sentence has no <e2>", "line 7: the sentence has no <e2>"),
    ),
    "j.txt": (
        lambda path: read_parallel(path, path.with_name("k.txt")),
        "a\n\nb\nc\n",
        ("line 2: is blank, and its translation is not", "line 3: is blank, and its translation is not"),
    ),
}


def written(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).write_text(CASES[name][1], encoding="utf-8")
    (tmp_path / "k.txt").write_text("a\nb\n\nc\n", encoding="utf-8")
    return tmp_path / name


@pytest.mark.parametrize("name", CASES)
def test_all_bad_rows_are_told_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 of 4 rows cannot be used") as told:
        list(CASES[name][0](written(tmp_path, name)))
    message = str(told.value)
    assert "\n" not in message
    assert f"/{name}, " in message or name == "j.txt"
    assert "`on_bad_rows` = skip" in message
    for place in CASES[name][2]:
        where, reason = place.split(": ", 1)
        assert where in message
        assert re.search(reason, message), message


@pytest.mark.parametrize("name", CASES)
def test_bad_rows_are_left_out_with_a_count(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, name)
    with BadRows("skip") as bad:
        assert len(list(CASES[name][0](path))) == 2
    assert sum(bad.left_out.values()) == 2
    assert "2 of 4 rows are left out" in caplog.text


def test_rows_of_several_files_are_told_together_and_a_thousand_in_one_line(tmp_path: Path) -> None:
    for name in ("train.tsv", "test.tsv"):
        (tmp_path / name).write_text("text\tlabel\nfine\tx\n" + "\tx\n" * 500, encoding="utf-8")

    def read() -> None:
        with BadRows():
            for name in ("train.tsv", "test.tsv"):
                list(read_labelled_texts(tmp_path / name))

    with pytest.raises(ValueError, match=r"1000 of 1002 rows .*train.tsv, line 3, .*test.tsv, line 3, ") as told:
        read()
    assert len(str(told.value)) < 1200
    with pytest.raises(ValueError, match="must be one of error, skip"):
        BadRows("ignore")


def test_no_row_behind_a_bad_one_is_handed_on_without_a_context(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tlabel\na\tx\n\tx\nb\ty\n", encoding="utf-8")
    examples = read_labelled_texts(tmp_path / "a.tsv")
    assert next(examples).text == "a"
    with pytest.raises(ValueError, match="line 3: column 'text' is empty"):
        next(examples)


def test_an_id_that_stands_twice_in_a_file_is_told_with_both_places(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.json").write_text(json.dumps([ANSWER, {**ANSWER, "id": "2"}, ANSWER]), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        found = list(read_question_examples(tmp_path / "a.json"))
    assert len(found) == 3
    assert "a.json, record 1 and record 3)" in caplog.text
    caplog.clear()
    # Translations of one set share their ids.
    (tmp_path / "b.json").write_text(json.dumps([ANSWER]), encoding="utf-8")
    (tmp_path / "c.json").write_text(json.dumps([ANSWER]), encoding="utf-8")
    list(read_question_examples([tmp_path / "b.json", tmp_path / "c.json"]))
    assert not caplog.text


def test_answers_of_cmrcs_own_form_are_looked_up(tmp_path: Path) -> None:
    question = {"query_text": "守塔人叫什么？", "query_id": "T_0", "answers": ["林一", "林"]}
    data = [{"context_id": "T", "context_text": "守塔人叫林一。", "title": "灯塔", "qas": [question]}]
    (tmp_path / "a.json").write_text(json.dumps(data), encoding="utf-8")
    (found,) = read_question_examples(tmp_path / "a.json")
    assert found == QuestionExample("T_0", "守塔人叫什么？", "守塔人叫林一。", (("林一", 4), ("林", 4)), True)
    data[0]["qas"][0]["answers"] = ["北"]
    (tmp_path / "a.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match=r"question 1 \(T_0\): .*the passage lacks the answer '北'"):
        list(read_question_examples(tmp_path / "a.json"))
    (hidden,) = read_question_examples(tmp_path / "a.json", unlabelled=True)
    assert hidden.answers is None
