"""Questions from files: SQuAD's nested form, flat records, datasets; what is wrong is named with its place."""

import gzip
import json

import pytest
from datasets import Dataset

from hf_ptm_ext.data import QuestionColumns, QuestionExample, dataset_question_examples, read_question_examples
from tests.pipelines.models import xquad

EXAMPLE = QuestionExample("7", "Who?", "Jane did.", (("Jane", 0), ("Jane did", 0)))
NESTED = {
    "version": "v2.0",
    "data": [
        {
            "title": "Novels",
            "paragraphs": [
                {
                    "context": "Jane did.",
                    "qas": [
                        {
                            "id": 7,
                            "question": "Who?",
                            "answers": [
                                {"text": "Jane", "answer_start": 0},
                                {"text": "Jane did", "answer_start": 0},
                            ],
                        },
                        {
                            "id": "8",
                            "question": "When?",
                            "is_impossible": True,
                            "plausible_answers": [{"text": "did", "answer_start": 5}],
                            "answers": [],
                        },
                    ],
                }
            ],
        }
    ],
}


def test_an_impossible_question_has_no_answer_in_flat_records_too(tmp_path):
    row = {**EXAMPLE.row(), "is_impossible": True}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row), encoding="utf-8")
    (found,) = read_question_examples(tmp_path / "rows.jsonl")
    assert found.answers == ()


def test_every_form_gives_the_same(tmp_path):
    (tmp_path / "nested.json").write_text(json.dumps(NESTED), encoding="utf-8")
    nested = list(read_question_examples(tmp_path / "nested.json"))
    assert nested == [EXAMPLE, QuestionExample("8", "When?", "Jane did.", ())]
    rows = [example.row() for example in nested]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "lines.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "lines.json").write_text(lines, encoding="utf-8")
    (tmp_path / "list.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "flat.json").write_text(json.dumps({"version": 1, "data": rows}), encoding="utf-8")
    with gzip.open(tmp_path / "nested.json.gz", "wt", encoding="utf-8") as file:
        json.dump(NESTED, file)
    Dataset.from_list(rows).to_parquet(tmp_path / "rows.parquet")
    for name in ("lines.jsonl", "lines.json", "list.json", "flat.json", "nested.json.gz", "rows.parquet"):
        assert list(read_question_examples(tmp_path / name)) == nested, name
    assert list(read_question_examples(tmp_path / "nested.json", file_format="squad")) == nested
    Dataset.from_list(rows).save_to_disk(tmp_path / "data")
    assert list(dataset_question_examples(tmp_path / "data", split="train")) == nested


def test_columns_may_have_other_names(tmp_path):
    row = {"q": "Who?", "passage": "Jane did.", "gold": [{"text": "Jane", "answer_start": 0}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (found,) = read_question_examples(tmp_path / "rows.jsonl", QuestionColumns("q", "passage", "gold"))
    assert (found.question, found.context, found.answers) == ("Who?", "Jane did.", (("Jane", 0),))
    assert "rows.jsonl" in found.id  # its place, for want of a name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": {"text": ["Anne"], "answer_start": [0]}}, "the passage has 'Jane' at character 0"),
        ({"answers": {"text": ["Jane"], "answer_start": [-1]}}, "`answer_start` must be 0 or more, got -1"),
        ({"answers": {"text": ["Jane"], "answer_start": [None]}}, "an answer must have a text and an `answer_start`"),
        ({"answers": "Jane"}, "must hold SQuAD's answers"),
        ({"context": " "}, "column 'context' must be a text"),
        ({"question": None}, "column 'question' must be a text, got None. Set `question_column`"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, change, message):
    rows = [EXAMPLE.row(), {**EXAMPLE.row(), **change}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"rows.jsonl, line 2: .*{message}"):
        list(read_question_examples(tmp_path / "rows.jsonl"))


def test_a_missing_column_says_what_to_set(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "Who?", "text": "Jane."}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"no column 'context', only .* Set `context_column`"):
        list(read_question_examples(tmp_path / "rows.jsonl"))


def test_real_questions_are_read(tmp_path):
    rows = xquad()
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    assert [example.row()["answers"] for example in read_question_examples(tmp_path / "rows.jsonl")] == [
        row["answers"] for row in rows
    ]


@pytest.mark.parametrize("answers", [{}, {"answers": [{"text": "FAKE", "answer_start": -1}]}])
def test_answers_that_are_not_told(tmp_path, answers):
    """No field of answers, or CMRC's public test set: no answer is made of them, and none is right."""
    question = {"id": "q-77", "question": "Who?", **answers}
    file = tmp_path / "test.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Jane did.", "qas": [question]}]}]}))
    with pytest.raises(ValueError, match=r"no column 'answers'|`answer_start` must be 0 or more"):
        list(read_question_examples(file))
    assert list(read_question_examples(file, unlabelled=True)) == [QuestionExample("q-77", "Who?", "Jane did.", None)]
