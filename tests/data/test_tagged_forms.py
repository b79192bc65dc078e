"""Forms of tagged sentences that people have: columns that count, comments, other writings, spans of characters."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from hf_ptm_ext.data import TaggedWords, detect_scheme, read_tagged_words

GERMEVAL = (
    "#\thttp://example.org/eins [2009-10-17]\n1\tAm\tO\tO\n2\tHafen\tO\tO\n3\tKielburg\tB-LOC\tO\n\n"
    "#\thttp://example.org/zwei [2009-10-18]\n1\tSV\tB-ORG\tO\n2\tKielburg\tI-ORG\tB-LOC\n"
)
UNIVERSAL = (
    "# newdoc\n# sent_id = 1\n# text = du b\n1-2\tdu\t_\t_\n1\tde\tADP\t_\n2\tle\tDET\t_\n2.1\tx\tX\t_\n\n"
    "# sent_id = 2\n1\tb\tNOUN\t_\n"
)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def records(path: Path, *rows: Any) -> Path:
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def found(path: Path, *columns: Any, **options: Any) -> list[tuple[str, str]]:
    return [(" ".join(one.words), " ".join(one.tags or ())) for one in read_tagged_words(path, *columns, **options)]


@pytest.mark.parametrize("name", ["a.tsv", "a.conll"])
def test_columns_are_named_by_their_numbers(name: str, tmp_path: Path) -> None:
    file = write(tmp_path / name, GERMEVAL)
    assert found(file, "2", "3") == [("Am Hafen Kielburg", "O O B-LOC"), ("SV Kielburg", "B-ORG I-ORG")]
    assert found(file, 2, 4) == [("Am Hafen Kielburg", "O O O"), ("SV Kielburg", "O B-LOC")]
    file = write(tmp_path / "u.conllu", UNIVERSAL)
    assert found(file, "2", "3") == [("de le", "ADP DET"), ("b", "NOUN")]
    with pytest.raises(ValueError, match=r"u.conllu, line 5: must have a word and, in column 7, its tag"):
        found(file, "2", "7")
    with pytest.raises(ValueError, match=r"`words_column` must be the number of a column, from 1, .* got .form."):
        found(file, "form", "3")


def test_a_column_that_counts_is_no_column_of_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "a.conll", "1 mara B-PER\n2 lives O\n\n1 ships O\n")
    assert found(file) == [("mara lives", "B-PER O"), ("ships", "O")]
    assert "the first column counts the words and is skipped; words are column 2, tags column 3" in caplog.text
    bare = "\n".join(line for line in GERMEVAL.split("\n") if "#" not in line)
    for text in (GERMEVAL, bare, UNIVERSAL, "1 O\n2 O\n\n1 O\n2 B-X\n"):
        with pytest.raises(ValueError, match=r"b.conll: the first column counts the words, .*`tags_column` = 3"):
            found(write(tmp_path / "b.conll", text))
    numbers = write(tmp_path / "c.conll", "1 B-NUM\n7 O\n\n2 B-NUM\n")
    assert found(numbers) == [("1 7", "B-NUM O"), ("2", "B-NUM")]
    assert found(write(tmp_path / "d.conll", "1\tde\n2\tle\n\n1\tb\n"), unlabelled=True) == [("de le", ""), ("b", "")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# id 1-aa\tdomain=xx\nmara _ _ B-PER\n\n# id 2\nships _ _ O\n", [("mara", "B-PER"), ("ships", "O")]),
        ("# text = a b O\n# more\na O\n", [("a", "O")]),
        ("# O\n1 O\nthe B-X\n\n#win B-X\nis O\n", [("# 1 the", "O O B-X"), ("#win is", "B-X O")]),
        ("the O\n# O\n5 O\n", [("the # 5", "O O O")]),
        ("#\tO\n# a = b\tO\n\n#\thttp://x\nthe\tO\n", [("# # a = b", "O O"), ("the", "O")]),
        ("# #\n5 CD\n", [("# 5", "# CD")]),
        ("# only a comment\n\na O\n", [("a", "O")]),
    ],
    ids=["ids", "properties", "the sign as a word", "inside", "by tabs", "its own tag", "alone"],
)
def test_comments_stand_at_the_head_of_a_sentence(text: str, expected: Any, tmp_path: Path) -> None:
    assert found(write(tmp_path / "a.conll", text)) == expected


def test_two_columns_of_the_same_types_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nested = write(tmp_path / "a.conll", "SV B-ORG O\nKiel I-ORG B-LOC\n\nKiel B-LOC O\n")
    assert found(nested)[0] == ("SV Kiel", "O B-LOC")
    assert "columns 2 and 3 have tags of the same types; the last one is read" in caplog.text
    caplog.clear()
    found(write(tmp_path / "b.conll", "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n"))
    assert not caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "1\tSV\tB-ORG\n2\twins\tO\n\n3\tKiel\tB-LOC\n4\tsings\tO\n",  # through the file
        "1-1\tSV\tB-ORG\n1-2\twins\tO\n\n2-1\tKiel\tB-LOC\n2-2\tsings\tO\n",  # of sentence and word
    ],
)
def test_numbers_that_count_in_other_ways_are_no_words_either(text: str, tmp_path: Path) -> None:
    assert found(write(tmp_path / "a.conll", text)) == [("SV wins", "B-ORG O"), ("Kiel sings", "B-LOC O")]


def test_columns_that_are_no_words_and_no_tags_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found(write(tmp_path / "a.conll", "B-ORG SV\nO wins\n"))
    assert "column 1 has tags of spans, and the last one, 2, which is read, has none" in caplog.text
    text = "doc/a 0 In IN -\ndoc/a 1 Kiel NNP -\n\ndoc/a 0 SV NN -\ndoc/a 1 wins VB -\n"
    documents = write(tmp_path / "b.conll", text)
    with pytest.raises(ValueError, match="the first column is the same in all lines of a sentence"):
        found(documents)
    caplog.clear()
    found(write(tmp_path / "c.tsv", "tokens\ttags\nSV\tB-ORG\nwins\tO\nKiel\tB-LOC\n"))
    assert "All 3 sentences have one word" in caplog.text


@pytest.mark.parametrize(
    ("tags", "name"),
    [
        (["PER-B", "PER-I", "O"], "type first"),
        (["PER_B", "LOC_I", "O"], "type first"),
        (["b-per", "i-per", "o"], "in lower case"),
        (["b", "i", "o"], "in lower case"),
        (["B:PER", "I:PER", "O"], "with another sign"),
        (["Begin-PER", "Inside-PER", "O"], "with whole words"),
        (["(PER*", "*)", "*"], "with brackets"),
    ],
)
def test_spans_of_another_writing_are_no_plain_tags(tags: list[str], name: str) -> None:
    with pytest.raises(ValueError, match=f"seem to mark spans {name}"):
        detect_scheme([tags])


def test_names_without_marks_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert detect_scheme([["PER", "O"]]) == "plain"
    assert "words are scored one by one, not entities" in caplog.text
    caplog.clear()
    assert detect_scheme([["NN", "-LRB-", "PRP$"]]) == "plain"
    assert not caplog.text


# ---- spans of characters ----


@pytest.mark.parametrize(
    "spans",
    [
        {"label": [[0, 8, "PER"], [23, 25, "LOC"]]},
        {"labels": [[23, 25, "LOC"], [0, 8, "PER"], [0, 8, "PER"]]},
        {
            "entities": [
                {"id": 1, "label": "PER", "start_offset": 0, "end_offset": 8},
                {"id": 2, "label": "LOC", "start_offset": 23, "end_offset": 25},
            ],
            "relations": [],
        },
        {"spans": [{"start": 0, "end": 8, "label": "PER"}, {"start": 23, "end": 25, "type": "LOC"}]},
        {"label": {"PER": {"Anna Lee": [[0, 7]]}, "LOC": {"北京": [[23, 24]]}}},
    ],
    ids=["doccano", "doccano, twice", "doccano's objects", "objects", "CLUENER"],
)
def test_spans_of_characters_become_tags(spans: Any, tmp_path: Path) -> None:
    file = records(tmp_path / "a.jsonl", {"text": "Anna Lee met Bo-Ann in 北京.", **spans})
    (read,) = read_tagged_words(file)
    assert read.words == ("Anna", "Lee", "met", "Bo", "-", "Ann", "in", "北", "京", ".")
    assert " ".join(read.tags or ()) == "B-PER I-PER O O O O O B-LOC I-LOC O"
    assert list(read_tagged_words(file, "text", next(iter(spans)))) == [read]


def test_a_text_without_spans_is_outside_and_one_without_the_field_has_no_tags(tmp_path: Path) -> None:
    file = records(tmp_path / "a.jsonl", {"text": "none", "label": []}, {"text": "cafe\u0301 x"})
    none, unknown = read_tagged_words(file, unlabelled=True)
    assert (none.tags, unknown) == (("O",), TaggedWords(("cafe\u0301", "x"), None))
    with pytest.raises(ValueError, match="line 2: no column 'tags'"):
        found(file)
    with pytest.raises(ValueError, match="line 1: must have a tag for each word"):
        found(records(tmp_path / "b.jsonl", {"tokens": "a b", "tags": []}))


def test_a_word_is_cut_where_a_span_ends_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert found(records(tmp_path / "a.jsonl", {"text": "3mg", "label": [[0, 1, "NUM"]]})) == [("3 mg", "B-NUM O")]
    assert "begin or end inside a word, such as 3mg" in caplog.text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"label": [[0, 8, "PER"], [0, 4, "X"]]},
            r"the spans \(0, 4, 'X'\) and \(0, 8, 'PER'\) overlap \('Anna', 'Anna ",
        ),
        ({"label": [[0, 9, "PER"]]}, "is not in its text of 8 characters"),
        ({"label": [[4, 5, "PER"]]}, "holds no word"),
        ({"label": [["0", 4, "PER"]]}, "start and end of a span must be two whole numbers"),
        ({"label": [[0, True, "PER"]]}, "start and end of a span must be two whole numbers"),
        ({"label": [[0, 4, None]]}, "the type of a span must be a text, got None"),
        ({"label": [[0, 4]]}, "a span must be a start, an end and a type, got .*Known are .*doccano.*CLUENER"),
        ({"label": "PER"}, "spans of characters have another form, got 'PER'. Known are"),
        ({"label": {"PER": {"Anna": [[0, 4]]}}}, "the text has 'Anna ' at characters 0 to 4"),
        ({"label": {"PER": [[0, 4]]}}, "`PER` must be an object"),
        ({"text": 7, "label": []}, "line 2"),
    ],
)
def test_spans_that_do_not_fit_are_named_with_file_and_record(row: Any, message: str, tmp_path: Path) -> None:
    file = records(tmp_path / "a.jsonl", {"text": "Bo", "label": []}, {"text": "Anna Lee", **row})
    with pytest.raises(ValueError, match=f"a.jsonl, line 2: .*{message}" if message != "line 2" else message):
        found(file)


def test_brats_folders_are_read_by_lines(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "Anna Lee lives in New\nYork.\nBo sings.\n")
    write(
        tmp_path / "a.ann", "T1\tPER 0 8\tAnna Lee\nT2\tLOC 18 26\tNew York\nR1\tx Arg1:T1 Arg2:T2\n#1\tNote T1\tno\n"
    )
    write(tmp_path / "sub" / "b.txt", "北京\n")
    write(tmp_path / "sub" / "b.ann", "T1\tLOC 0 2\t北京\n")
    expected = [("Anna Lee lives in New York .", "B-PER I-PER O O B-LOC I-LOC O"), ("Bo sings .", "O O O")]
    assert found(tmp_path) == [*expected, ("北 京", "B-LOC I-LOC")]
    assert found(tmp_path / "a.txt") == found(tmp_path / "a.ann") == expected
    assert [one.id for one in read_tagged_words(tmp_path / "a.ann")] == ["a:0", "a:28"]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("T1\tPER 0 4;9 14\tAnna lives", "a.ann, line 1: the span PER 0 4;9 14 is discontinuous"),
        ("T1\tPER 0 99\tAnna", r"a.ann, line 1: the span \(0, 99, 'PER'\) is not in its text of 15 characters"),
        ("T1\tPER 1 5\tAnna", "a.ann, line 1: the text has 'nna ' at characters 1 to 5, where 'Anna' should be"),
        ("T1\tPER", "a.ann, line 1: must be an id, a tab"),
        ("T1\tPER 0 8\tAnna Lee\nT2\tX 5 8\tLee", r"a.txt, line 1: the spans .* overlap \('Anna Lee', 'Lee'\)"),
    ],
)
def test_annotations_of_brats_that_do_not_fit_are_told(annotation: str, message: str, tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "Anna Lee lives\n")
    write(tmp_path / "a.ann", annotation + "\n")
    with pytest.raises(ValueError, match=message):
        found(tmp_path)


def test_a_text_of_brats_without_annotations_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "Anna sings\n")
    with pytest.raises(ValueError, match=r"a.txt, line 1: there is no a.ann beside it"):
        found(tmp_path)
    assert found(tmp_path, unlabelled=True) == [("Anna sings", "")]


@pytest.mark.parametrize(
    ("text", "annotations"),
    [
        ("Anna Lee\r\nin Rome\r\n", "T1\tPER 0 8\tAnna Lee\r\nT2\tLOC 13 17\tRome\r\n"),
        ("Anna Lee\r\nin Rome\r\n", "T1\tPER 0 8\tAnna Lee\r\nT2\tLOC 12 16\tRome\r\n"),
        ("Anna Lee\nin Rome\n", "T1\tPER 0 4;5 8\tAnna Lee\n#1\tAnnotatorNotes T1\tno\nT2\tLOC 12 16\tRome\n"),
    ],
)
def test_brats_offsets_count_line_ends_either_way_and_parts_beside_each_other_are_one(
    text: str, annotations: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "a.ann").write_bytes(annotations.encode())
    assert found(tmp_path) == [("Anna Lee", "B-PER I-PER"), ("in Rome", "O B-LOC")]


def test_a_field_of_spans_may_be_empty_beside_another_and_null_without_labels(tmp_path: Path) -> None:
    rows = [{"text": "Anna", "label": [], "entities": [{"start_offset": 0, "end_offset": 4, "label": "PER"}]}]
    assert found(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))) == [("Anna", "B-PER")]
    hidden = write(tmp_path / "b.jsonl", json.dumps({"text": "Anna", "label": None}))
    assert [one.tags for one in read_tagged_words(hidden, unlabelled=True)] == [None]
