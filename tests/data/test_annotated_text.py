"""Files with mentions, as the data sets and the reference have them, give the same examples."""

import gzip
import json

import pytest

from hf_ptm_ext.data.annotated_text import mark_mentions, read_relation_examples, read_typing_examples
from hf_ptm_ext.data.name_graphs import NounLinker

TEXT = "Rome is in Italy ."


def words(example, mention):
    return example.text[slice(*mention.span)]


def write(folder, name, content):
    path = folder / name
    if name.endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(content)
    else:
        path.write_text(content, encoding="utf-8")
    return path


FEWREL = {
    "tokens": TEXT.split(),
    "head": {"id": "Q220", "pos": [0, 1], "name": "rome"},
    "tail": {"id": "Q38", "pos": [3, 4], "name": "italy"},
    "relation": "P17",
}
ORIGINAL = {"text": TEXT, "ents": [["Q220", 0, 4, 0.9], ["Q38", 11, 16, 0.2]], "label": "P17"}
TACRED = {
    "token": TEXT.split(),
    "subj_start": 0,
    "subj_end": 0,
    "obj_start": 3,
    "obj_end": 3,
    "relation": "P17",
}
SEMEVAL = (
    '1\t"<e1>Rome</e1> is in <e2>Italy</e2> ."\nP17\nComment: none\n\n2\t"a <e2>b</e2> <e1>c</e1>"\nOther\nComment:\n'
)


OWN = {"tokens": TEXT.split(), "h": ["rome", "Q220", [[0], [3]]], "t": ["italy", "Q38", [[3]]]}
OPENNRE = {
    "token": TEXT.split(),
    "h": {"name": "rome", "id": "Q220", "pos": [0, 1]},
    "t": {"name": "italy", "id": "Q38", "pos": [3, 4]},
    "relation": "P17",
}
CHARACTERS = {"text": TEXT, "h": {"pos": [0, 4]}, "t": {"pos": [11, 16]}, "relation": "P17"}
HUB = {"tokens": TEXT.split(), "head": {"indices": [[0]]}, "tail": {"indices": [[3]]}, "relation": "P17"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps({"P17": [OWN], "P36": []})),
        ("a.txt", json.dumps(OPENNRE) + "\n"),
        ("a.jsonl", json.dumps(OPENNRE) + "\n"),
        ("a.txt", json.dumps(CHARACTERS) + "\n"),
        ("a.jsonl", json.dumps(HUB) + "\n"),
        ("a.json", json.dumps(CHARACTERS) + "\n" + json.dumps(CHARACTERS) + "\n"),
        ("a.jsonl", json.dumps(FEWREL) + "\n\n"),
        ("a.jsonl.gz", json.dumps(FEWREL)),
        ("a.json", json.dumps([ORIGINAL])),
        ("a.json", json.dumps([TACRED])),
        ("a.txt", SEMEVAL),
    ],
    ids=[
        *("fewrel's own", "opennre.txt", "opennre.jsonl", "opennre of characters", "fewrel of the hub"),
        *("lines in a .json file", "fewrel", "fewrel.gz", "ernie-thu", "tacred", "semeval"),
    ],
)
def test_relations_of_every_form(tmp_path, name, content):
    example = read_relation_examples(write(tmp_path, name, content))[0]
    assert example.text == TEXT
    assert words(example, example.head) == "Rome"
    assert words(example, example.tail) == "Italy"
    assert example.label == "P17"


def test_semevals_second_mention_may_come_first(tmp_path):
    example = read_relation_examples(write(tmp_path, "a.txt", SEMEVAL))[1]
    assert (words(example, example.head), words(example, example.tail), example.label) == ("c", "b", "Other")


def test_entities_are_the_mentions_or_the_linkers(tmp_path):
    (gold,) = read_relation_examples(write(tmp_path, "a.json", json.dumps([ORIGINAL])))
    assert [(m.id, m.score) for m in gold.entities] == [("Q220", 0.9), ("Q38", 0.2)]
    linked = {**ORIGINAL, "ann": [["Q38", 11, 16, 0.7]]}
    (tagme,) = read_relation_examples(write(tmp_path, "a.json", json.dumps([linked])))
    assert [m.id for m in tagme.entities] == ["Q38"]
    (none,) = read_relation_examples(write(tmp_path, "a.json", json.dumps([TACRED])))
    assert none.entities == ()


def test_types_of_both_forms(tmp_path):
    tokens = {"tokens": TEXT.split(), "pos": [0, 1], "id": "Q220", "coarse": ["city"], "types": ["city", "capital"]}
    original = {"sent": TEXT, "start": 0, "end": 4, "ents": [["Q38", 11, 16, 0.8]], "labels": ["city", "capital"]}
    (first,) = read_typing_examples(write(tmp_path, "a.jsonl", json.dumps(tokens)))
    assert (words(first, first.mention), first.labels, first.entities[0].id) == ("Rome", ("city",), "Q220")
    (fine,) = read_typing_examples(write(tmp_path, "a.jsonl", json.dumps(tokens)), "types")
    assert fine.labels == ("city", "capital")
    (second,) = read_typing_examples(write(tmp_path, "a.json", json.dumps([original])))
    assert (words(second, second.mention), second.labels) == ("Rome", ("city", "capital"))
    assert words(second, second.entities[0]) == "Italy"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({**FEWREL, "head": {"pos": [4, 9]}}, "record 1: the tokens 4 to 9 are not among its 5 tokens"),
        (
            {**ORIGINAL, "ents": [["Q1", 0, 99, 1.0], ["Q2", 1, 2, 1.0]]},
            r"the span \(0, 99\) is not in its text of 18",
        ),
        ({"tokens": ["a"]}, "record 1: is of no known form, with the fields .'tokens'.*Known are FewRel's"),
    ],
)
def test_faulty_records_are_named(tmp_path, record, message):
    with pytest.raises(ValueError, match=message):
        read_relation_examples(write(tmp_path, "a.jsonl", json.dumps(record)))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({**OWN, "h": ["rome", "Q220", [[0, 2]]]}, r"positions of `h` must be neighbours, got \[0, 2\]"),
        ({**OWN, "h": ["rome", "Q220", []]}, "positions of `h` must be a list of whole numbers"),
        ({**OWN, "h": ["rome", "Q220", [["0"]]]}, "positions of `h` must be a list of whole numbers"),
        ({**OWN, "h": "rome"}, "`h` must be an object, got 'rome'"),
        ({**OPENNRE, "h": {"pos": [0, 1.5]}}, "`pos` of `h` must be two whole numbers"),
        (
            {**OPENNRE, "h": {"pos": [3, 5]}},
            r"the mentions \(11, 18\) and \(11, 16\) overlap \('Italy .' and 'Italy'\)",
        ),
        ({**CHARACTERS, "t": {"pos": [11, 19]}}, r"the span \(11, 19\) is not in its text of 18 characters"),
        ({**CHARACTERS, "relation": None}, "`relation` must be a text, got None"),
        ({**CHARACTERS, "h": {"pos": [0, 4], "id": ["Q1"]}}, "id and name of a mention must be texts"),
        ({**TACRED, "subj_end": "0"}, "`subj_end` must be a whole number, got '0'"),
        ({**ORIGINAL, "ents": [["Q1", 0, 4, "0.9"], ["Q2", 11, 16]]}, "the score of an entity must be a number"),
        ({**ORIGINAL, "ents": ["Q1"]}, r"an entity must be \[id, begin, end, score\], got 'Q1'"),
        ({**ORIGINAL, "ents": [["Q1", 0, 4, 0.9]]}, "`ents` must have a head and a tail, got 1"),
        ({"sents": [["a"]], "vertexSet": []}, "is of no known form.*Known are FewRel's.*OpenNRE's.*TACRED's"),
    ],
)
def test_records_that_do_not_fit_are_told_with_file_and_record(tmp_path, record, message):
    with pytest.raises(ValueError, match=f"a.jsonl, record 2: {message}"):
        read_relation_examples(write(tmp_path, "a.jsonl", json.dumps(FEWREL) + "\n" + json.dumps(record)))


def test_entities_that_overlap_are_told_with_file_and_record(tmp_path, caplog):
    linked = {**ORIGINAL, "ann": [["Q1", 0, 7, 0.7], ["Q2", 5, 10, 0.7], ["Q3", 10, 16, 0.7]]}
    read_relation_examples(write(tmp_path, "a.json", json.dumps([ORIGINAL, linked])))
    assert "1 records have entities whose mentions overlap" in caplog.text
    assert "a.json, record 2." in caplog.text


def test_faulty_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="not valid JSON"):
        read_relation_examples(write(tmp_path, "a.json", "{"))
    with pytest.raises(ValueError, match="has no rows"):
        read_relation_examples(write(tmp_path, "a.json", "[]"))
    with pytest.raises(ValueError, match="numbered, quoted sentence"):
        read_relation_examples(write(tmp_path, "a.txt", "nothing here\n"))
    with pytest.raises(ValueError, match=r"line 1: the sentence has no <e2>"):
        read_relation_examples(write(tmp_path, "a.txt", '1\t"<e1>a</e1>"\nOther\n'))
    with pytest.raises(ValueError, match="line 2: the relation is missing"):
        read_relation_examples(write(tmp_path, "a.txt", '1\t"<e1>a</e1> <e2>b</e2>"\n\n'))
    with pytest.raises(ValueError, match="lacks labels or coarse or types"):
        read_typing_examples(write(tmp_path, "a.jsonl", json.dumps({"sent": "a", "start": 0, "end": 1})))


def test_markers_stand_around_mentions_in_the_order_of_the_text():
    assert mark_mentions(TEXT, [((11, 16), "#"), ((0, 4), "$")]) == "$ Rome $ is in # Italy # ."
    with pytest.raises(ValueError, match="without overlap"):
        mark_mentions(TEXT, [((0, 4), "#"), ((2, 6), "$")])


def test_nouns_are_linked_to_their_first_sense(tmp_path):
    senses = "class\tn\t07997703 08238463\nclass\tv\t00654885\nbox\tn\t02883344\n"
    senses += "woman\tn\t10787470\nice cream\tn\t07614500\n"
    link = NounLinker(write(tmp_path, "senses.tsv", senses))
    found = {phrase: link(phrase) for phrase in ("Class", "classes", "boxes", "old women", "ice cream", "the", "")}
    assert found == {
        "Class": "07997703",
        "classes": "07997703",
        "boxes": "02883344",
        "old women": "10787470",
        "ice cream": "07614500",
        "the": None,
        "": None,
    }
    with pytest.raises(ValueError, match="line 1, must be a lemma"):
        NounLinker(write(tmp_path, "bad.tsv", "class n 1\n"))
    with pytest.raises(ValueError, match="must have nouns"):
        NounLinker(write(tmp_path, "verbs.tsv", "run\tv\t1\n"))


def test_relations_and_types_that_are_not_told(tmp_path):
    """Read only where they may be missing; a record keeps its own id."""
    row = {"id": 7, "tokens": ["Rome", "is"], "head": {"pos": [0, 1]}, "tail": {"pos": [1, 2]}, "pos": [0, 1]}
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps(row), encoding="utf-8")
    for read in (read_relation_examples, read_typing_examples):
        with pytest.raises(ValueError, match="record 1: lacks"):
            read(file)
    (relation,), (typing,) = read_relation_examples(file, True), read_typing_examples(file, unlabelled=True)
    assert (relation.id, relation.label, typing.id, typing.labels) == (7, None, 7, None)
    semeval = tmp_path / "test.txt"
    semeval.write_text('8001\t"A <e1>cat</e1> in a <e2>box</e2>."\n\n', encoding="utf-8")
    (example,) = read_relation_examples(semeval, True)
    assert (example.id, example.label) == (8001, None)
