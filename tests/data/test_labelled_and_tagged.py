"""Reading labelled texts and tagged words: every form that people have, and errors that say where."""

import gzip
import itertools
import json
from functools import partial
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from datasets import Sequence as SequenceFeature
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB1, IOB2, IOBES, Entities

from hf_ptm_ext.data import (
    LabelledText,
    TaggedWords,
    TextColumns,
    dataset_labelled_texts,
    dataset_tagged_words,
    detect_scheme,
    read_labelled_texts,
    read_tagged_words,
    spans_of,
    tags_of,
    to_iob2,
)
from hf_ptm_ext.data.name_graphs import wikidata_names, wordnet_names, write_triples

SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from("XY")), max_size=4)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


# ---- labelled texts ----


def test_labelled_texts_are_the_same_in_every_format(tmp_path):
    expected = [LabelledText("很好", "1", "是吗", "q1"), LabelledText('a "b", c', "0", "d", "q2")]
    rows = [{"q": one.group, "label": int(one.label), "a": one.text, "b": one.pair} for one in expected]
    columns = TextColumns("a", "label", "b", "q")
    jsonl = write(tmp_path / "x.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    tsv = write(tmp_path / "x.tsv", "q\tlabel\ta\tb\n" + "".join("\t".join(map(str, r.values())) + "\n" for r in rows))
    csv = write(tmp_path / "x.csv", 'q,label,a,b\nq1,1,很好,是吗\nq2,0,"a ""b"", c",d\n')
    parquet = tmp_path / "x.parquet"
    Dataset.from_list(rows).to_parquet(parquet)
    zipped = tmp_path / "y.jsonl.gz"
    zipped.write_bytes(gzip.compress(jsonl.read_bytes()))
    for file in (jsonl, tsv, csv, parquet, zipped):
        assert list(read_labelled_texts(file, columns)) == expected, file.name
    names = Features({"a": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    Dataset.from_dict({"a": ["很好"], "label": [1]}, features=names).save_to_disk(tmp_path / "hub")
    (read,) = dataset_labelled_texts(tmp_path / "hub", split="train", columns=TextColumns("a"))
    assert read == LabelledText("很好", "good")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"}', r"line 2: no column 'label', only \['text'\]. Set `label_column`"),
        ('{"text": " ", "label": 1}', r"line 2: column 'text' is empty"),
        ('{"text": ["a"], "label": 1}', r"line 2: column 'text' must be a text, got list"),
        ('{"text": "a", "label": [1]}', r"line 2: column 'label' must hold a label \(a word or a number\), got list"),
        ('{"text": "a", "label": null}', r"line 2: column 'label' is empty"),
        ('{"text": "a", "label": -1}', r"line 2: column 'label' has no label \(-1\)"),
        ("{", r"line 2: not a JSON object"),
    ],
)
def test_a_bad_row_is_named(tmp_path, line, message):
    file = write(tmp_path / "x.jsonl", '{"text": "a", "label": 1}\n' + line + "\n")
    with pytest.raises(ValueError, match=message):
        list(read_labelled_texts(file))


def test_hidden_labels_of_a_test_split_are_refused(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    Dataset.from_dict({"text": ["a"], "label": [-1]}, features=features).save_to_disk(tmp_path / "d")
    with pytest.raises(ValueError, match=r"has no label \(-1\). Take another split"):
        list(dataset_labelled_texts(tmp_path / "d", split="train"))


# ---- tagged words ----


def test_tagged_words_are_the_same_in_every_format(tmp_path):
    expected = [TaggedWords(("Anna", "Lee", "sings"), ("B-PER", "I-PER", "O")), TaggedWords(("Bo",), ("B-PER",))]
    lines = "".join(json.dumps({"tokens": one.words, "tags": one.tags}) + "\n" for one in expected)
    tsv = "tokens\ttags\n" + "".join(f"{' '.join(one.words)}\t{' '.join(one.tags)}\n" for one in expected)
    conll = "-DOCSTART- -X- O\n\nAnna NNP B-PER\nLee NNP I-PER\nsings VBZ O\n\n\nBo NNP B-PER\n"
    tabs = "Anna\tB-PER\nLee\tI-PER\nsings\tO\n\nBo\tB-PER\n"
    for name, text in (("a.jsonl", lines), ("b.tsv", tsv), ("c.conll", conll), ("d.txt", tabs)):
        assert list(read_tagged_words(write(tmp_path / name, text))) == expected, name
    names = ["O", "B-PER", "I-PER"]
    features = Features({"tokens": SequenceFeature(Value("string")), "t": SequenceFeature(ClassLabel(names=names))})
    numbers = [[names.index(tag) for tag in one.tags] for one in expected]
    data = Dataset.from_dict({"tokens": [list(one.words) for one in expected], "t": numbers}, features=features)
    data.save_to_disk(tmp_path / "hub")
    assert list(dataset_tagged_words(tmp_path / "hub", split="train", tags_column="t")) == expected


def test_white_space_that_is_a_word_keeps_its_tag(tmp_path):
    # K-BERT's files have ideographic spaces as characters; split at any white space, all later tags would shift.
    file = write(tmp_path / "x.tsv", "text_a\tlabel\n北 \u3000 京\tB-LOC O B-LOC\n")
    (read,) = read_tagged_words(file, "text_a", "label")
    assert read.words == ("北", "\u3000", "京")
    (read,) = read_tagged_words(write(tmp_path / "x.conll", "a O\n\u00a0 B-X\nb I-X\n"))
    assert read == TaggedWords(("a", "\u00a0", "b"), ("O", "B-X", "I-X"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.tsv", "tokens\ttags\na b\tO\n", "line 2: must have a tag for each word, got 2 words and 1 tags"),
        ("x.tsv", "tokens\ttags\na  b\tO O O\n", "line 2: has an empty word or tag"),
        ("x.jsonl", '{"tokens": [1], "tags": ["O"]}\n', "column 'tokens' must be a list of strings"),
        ("x.jsonl", '{"tokens": [], "tags": []}\n', "has no word"),
        ("x.jsonl", '{"words": [], "tags": []}\n', "no column 'tokens'.*Set `words_column`"),
        ("x.conll", "Anna B-PER\nLee\n", "line 2: must have a word and, in the last column, its tag; got 'Lee'"),
        ("x.xml", "<a/>", "cannot tell the format from the ending '.xml'"),
    ],
)
def test_a_bad_sentence_is_named(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        list(read_tagged_words(write(tmp_path / name, text)))


# ---- schemes ----


@settings(max_examples=100, deadline=None)
@given(SPANS, st.sampled_from(["iob2", "iob1", "bioes"]), st.integers(0, 2))
def test_every_scheme_says_the_same(pieces, scheme, rest):
    spans, place = [], 0
    for gap, length, kind in pieces:
        spans.append((kind, place + gap, place + gap + length))
        place += gap + length
    tags = tags_of(spans, place + rest, scheme)
    assert spans_of(tags, scheme) == spans_of(tags, scheme, strict=True) == spans
    assert spans_of(to_iob2(tags, scheme)) == spans


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_breaks_a_scheme_is_left_out_as_seqeval_does(data):
    for scheme, library, marks in (("iob2", IOB2, "BI"), ("iob1", IOB1, "BI"), ("bioes", IOBES, "BIES")):
        choices = ["O", *(f"{mark}-{kind}" for mark in marks for kind in "XY")]
        tags = data.draw(st.lists(st.sampled_from(choices), min_size=1, max_size=7))
        expected = [(one.tag, one.start, one.end) for found in Entities([tags], library).entities for one in found]
        assert spans_of(tags, scheme, strict=True) == expected
        assert spans_of(tags, scheme) == [(kind, first, last + 1) for kind, first, last in get_entities(tags)]


@pytest.mark.parametrize("length", range(1, 6))
def test_every_malformed_iob1_is_read_as_seqeval_does(length):
    for tags in itertools.product(["O", "B-X", "I-X", "B-Y", "I-Y"], repeat=length):
        expected = [(one.tag, one.start, one.end) for one in Entities([list(tags)], IOB1).entities[0]]
        assert spans_of(tags, "iob1", strict=True) == expected, tags


def test_schemes_are_told_from_the_tags():
    assert detect_scheme([["B-PER", "I-PER", "O"], ["B-LOC", "B-LOC"]]) == "iob2"
    assert detect_scheme([["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]]) == "iob1"
    assert detect_scheme([["B-PER", "E-PER", "S-LOC", "O"]]) == "bioes"
    assert detect_scheme([["B-PER", "L-PER", "U-LOC"]]) == "bioes"
    assert to_iob2(["B-PER", "M-PER", "E-PER", "S-LOC"], "bioes") == ["B-PER", "I-PER", "I-PER", "B-LOC"]
    assert detect_scheme([["B", "I", "O"]]) == "iob2"
    assert detect_scheme([["DT", "NN", "O"]]) == "plain"
    with pytest.raises(ValueError, match=r"must all mark spans .* or none may; got \['B-PER'\] beside \['NN'\]"):
        detect_scheme([["B-PER", "NN"]])


# ---- graphs of names ----


def test_names_of_wordnet_and_wikidata_become_triples(tmp_path):
    relations = "1\t_instance_hypernym\t2\n2\t_hypernym\t3\n4\t_hypernym\t3\n"
    relations = write(tmp_path / "r.tsv", relations)
    senses = write(tmp_path / "s.tsv", "new york\tn\t1 9\ncity\tn\t2\ntown\tn\t9 1\n")
    glosses = write(tmp_path / "g.tsv", "1\tnew york, a city\n2\tcity, a large place\n3\tplace, somewhere\n")
    names = list(wordnet_names(relations, senses, glosses))
    assert names == [("New York", "is a", "city"), ("New York", "is a", "place")]  # town: not its first sense
    assert list(wordnet_names(relations, senses, glosses, depth=1)) == names[:1]
    entities = '{"id": "Q1", "types": ["T1", "T3", "T2"], "name": "boston"}\n{"id": "Q2", "types": ["T1"]}\n'
    entities = write(tmp_path / "e.jsonl", entities)
    labels = write(tmp_path / "l.jsonl", '{"id": "T1", "label": "city"}\n{"id": "T2", "label": "port"}\n')
    more = list(wikidata_names(entities, labels))
    assert more == [("Boston", "is a", "city"), ("Boston", "is a", "port")]
    assert write_triples(tmp_path / "names.spo", [*names, *names, *more]) == 4
    assert (tmp_path / "names.spo").read_text(encoding="utf-8").splitlines()[0] == "New York\tis a\tcity"
    with pytest.raises(ValueError, match=r"s.tsv, line 1, must have 2 fields"):
        list(wordnet_names(relations, senses, tmp_path / "s.tsv"))
    with pytest.raises(ValueError, match="at least one triple"):
        write_triples(tmp_path / "names.spo", [])


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "datasets"])
def test_rows_without_a_label_are_such_in_every_source(tmp_path, kind):
    """Missing, empty and -1 are no label; -1 is a score."""
    rows = [{"guid": f"g{number}", "text": "a", "label": label} for number, label in enumerate((1, 0, -1))]
    folder, read = tmp_path, read_labelled_texts
    if kind in ("csv", "tsv"):
        mark = {"csv": ",", "tsv": "\t"}[kind]
        lines = [mark.join(map(str, line)) for line in (rows[0].keys(), *(row.values() for row in rows))]
        file = write(folder / f"x.{kind}", "\n".join(lines))
    elif kind == "jsonl":
        file = write(folder / "x.jsonl", "\n".join(map(json.dumps, rows)))
    else:
        data = Dataset.from_list(rows)
        data.save_to_disk(folder / "saved")
        data.to_parquet(folder / "x.parquet")
        file = folder / "x.parquet"
        if kind == "datasets":
            file, read = folder / "saved", partial(dataset_labelled_texts, split="train")
    with pytest.raises(ValueError, match="has no label"):
        list(read(file))
    found = list(read(file, unlabelled=True))
    assert [(one.id, one.label) for one in found] == [("g0", "1"), ("g1", "0"), ("g2", None)]
    assert [one.label for one in read(file, scores=True)] == ["1", "0", "-1"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.conll", "Anna\nsings\n"),
        ("x.tsv", "tokens\nAnna sings\n"),
        ("x.tsv", "tokens\ttags\nAnna sings\t\n"),
        ("x.jsonl", '{"tokens": ["Anna", "sings"]}\n'),
        ("x.jsonl", '{"tokens": ["Anna", "sings"], "tags": [-1, -1]}\n'),
    ],
)
def test_words_without_tags(tmp_path, name, text):
    file = write(tmp_path / name, text)
    with pytest.raises(ValueError, match=r"no column|must have|must be a list"):
        list(read_tagged_words(file))
    (found,) = read_tagged_words(file, unlabelled=True)
    assert found == TaggedWords(("Anna", "sings"), None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '[{"text": "a", "label": true},\n {"text": "b", "label": 1}]'),
        ("a.jsonl", '{"text": "a", "label": true}\n{"text": "b", "label": 1}\n'),
        ("a.csv", "text,label\na,True\nb,1\n"),
        ("a.tsv", "\ufefftext\tlabel\na\tTrue\nb\t1\n"),
    ],
)
def test_labels_are_the_same_in_every_format(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    for encoding in ("utf-8", "utf-8-sig"):
        assert [one.label for one in read_labelled_texts(file, encoding=encoding)] == ["True", "1"]


def test_a_list_of_objects_names_its_records(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('\n[{"text": "a", "label": 1},\n 7,\n {"text": ""}]', encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"record 2: must be a JSON object, got int.*record 3: column 'text' is empty"
    ):
        list(read_labelled_texts(file))
