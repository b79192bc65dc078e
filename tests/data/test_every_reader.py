"""What holds for every reader of text: one base reads them all, and tells what is no text by file and line."""

import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_ptm_ext.conversion.entity_tables import EntityVocabulary, read_titles, read_word2vec
from hf_ptm_ext.data import (
    NounLinker,
    read_documents,
    read_entity_documents,
    read_labelled_texts,
    read_parallel,
    read_question_examples,
    read_relation_examples,
    read_source_target,
    read_tagged_words,
    read_triples,
    read_typing_examples,
)
from hf_ptm_ext.data.augmentation import load_word_vectors
from hf_ptm_ext.data.name_graphs import wikidata_names
from hf_ptm_ext.models.knowledge_graph_kbert import KnowledgeGraph
from hf_ptm_ext.models.lexicon_zen import read_lexicon

RELATION = {
    "tokens": ["Rome", "is", "in", "Italy"],
    "head": {"pos": [0, 1]},
    "tail": {"pos": [3, 4]},
    "relation": "in",
}
ANSWER = {"id": "1", "question": "Who?", "context": "Jane did.", "answers": {"text": ["Jane"], "answer_start": [0]}}
# name of a file -> how it is read, and a sound row of it
READERS: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "texts.jsonl": (lambda path: list(read_labelled_texts(path)), {"text": "a", "label": "x"}),
    "texts.tsv": (lambda path: list(read_labelled_texts(path)), "text\tlabel\na word\tx"),
    "texts.csv": (lambda path: list(read_labelled_texts(path)), "text,label\na word,x"),
    "tagged.conll": (lambda path: list(read_tagged_words(path)), "Anna B-PER\nsings O\n"),
    "questions.jsonl": (lambda path: list(read_question_examples(path)), ANSWER),
    "questions.json": (lambda path: list(read_question_examples(path)), [ANSWER]),
    "pairs.jsonl": (lambda path: list(read_source_target(path)), {"source": "a", "target": "b"}),
    "squad.json": (lambda path: list(read_source_target(path, file_format="squad")), [ANSWER]),
    "corpus.txt": (lambda path: list(read_documents(path)), "a sentence\n"),
    "corpus.jsonl": (lambda path: list(read_documents(path)), {"text": "a sentence"}),
    "left.txt": (lambda path: list(read_parallel(path, path)), "a sentence"),
    "relations.jsonl": (read_relation_examples, RELATION),
    "relations.json": (read_relation_examples, [RELATION]),
    "semeval.txt": (read_relation_examples, '1\t"<e1>Rome</e1> is in <e2>Italy</e2>."\nOther\nComment:\n'),
    "types.jsonl": (read_typing_examples, {"tokens": ["Rome"], "pos": [0, 1], "labels": ["city"]}),
    "triples.tsv": (read_triples, "a\tb\tc"),
    "senses.tsv": (NounLinker, "story\tn\t06369829"),
    "vectors.txt": (load_word_vectors, "good 1.0 2.0"),
    "entities.jsonl": (
        lambda path: list(wikidata_names(path, path)),
        {"id": "Q1", "name": "a", "types": [], "label": "b"},
    ),
    "shard_token": (lambda path: list(read_entity_documents(path, path, lambda ids: [0] * len(ids))), "1\t1\t7"),
}
JSON = [name for name in READERS if ".json" in name]
PACKED = [name for name in READERS if name != "shard_token"]


def sound(name: str) -> str:
    row = READERS[name][1]
    return (row if isinstance(row, str) else json.dumps(row)) + "\n"


def refused(name: str, path: Path, match: str) -> None:
    with pytest.raises(ValueError, match=match) as told:
        READERS[name][0](path)
    assert path.name in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", READERS)
def test_sound_files_are_read_with_a_byte_order_mark_and_windows_line_ends(name: str, tmp_path: Path) -> None:
    read, path = READERS[name][0], tmp_path / name
    path.write_text(sound(name), encoding="utf-8")
    expected = repr(read(path))
    path.write_bytes(b"\xef\xbb\xbf" + sound(name).encode().replace(b"\n", b"\r\n"))
    assert " at 0x" in expected or repr(read(path)) == expected


# Readers with the encoding of their files, and what each makes of a file that has text beyond ASCII.
ENCODED: dict[str, tuple[Callable[..., Any], Any]] = {
    "texts.jsonl": (
        lambda path, **options: list(read_labelled_texts(path, **options)),
        {"text": "北京", "label": "x"},
    ),
    "tagged.conll": (lambda path, **options: list(read_tagged_words(path, **options)), "北 B-LOC\n京 I-LOC\n"),
    "marked.jsonl": (
        lambda path, **options: list(read_tagged_words(path, **options)),
        {"text": "北京", "label": [[0, 2, "LOC"]]},
    ),
    "questions.json": (
        lambda path, **options: list(read_question_examples(path, **options)),
        [{**ANSWER, "question": "北京"}],
    ),
    "pairs.tsv": (lambda path, **options: list(read_source_target(path, **options)), "source\ttarget\n北京\tb"),
    "corpus.txt": (lambda path, **options: list(read_documents(path, **options)), "北京\n"),
    "left.txt": (lambda path, **options: list(read_parallel(path, path, **options)), "北京"),
    "relations.jsonl": (read_relation_examples, {**RELATION, "relation": "北京"}),
    "fewrel.json": (read_relation_examples, {"北京": [RELATION]}),
    "semeval.txt": (read_relation_examples, '1\t"<e1>北京</e1> is in <e2>Italy</e2>."\nOther\n'),
    "types.jsonl": (read_typing_examples, {"tokens": ["北京"], "pos": [0, 1], "labels": ["city"]}),
    "triples.tsv": (lambda path, **options: read_triples(path, **options)[0].entities, "北京\tb\tc"),
    "senses.tsv": (lambda path, **options: NounLinker(path, **options)("北京"), "北京\tn\t06369829"),
    "vectors.txt": (lambda path, **options: load_word_vectors(path, **options).words, "北京 1.0 2.0"),
    "entities.jsonl": (
        lambda path, **options: list(wikidata_names(path, path, **options)),
        {"id": "Q1", "name": "北京", "types": ["Q1"], "label": "b"},
    ),
    "graph.spo": (lambda path, **options: KnowledgeGraph.from_files(path, **options).lookup("北京"), "北京\t是\t首都"),
    "word2vec.txt": (lambda path, **options: read_word2vec(path, **options)[0], "北京 1 2\n"),
    "titles.txt": (read_titles, "北京\tQ1\n"),
    "entity2id.txt": (
        lambda path, **options: EntityVocabulary.from_entity2id(path, **options).rows(["北京"]).tolist(),
        "1\n北京\t0\n",
    ),
    "ngram.txt": (read_lexicon, "北京,3\n"),
}


@pytest.mark.parametrize("name", ENCODED)
def test_every_reader_takes_the_encoding_and_names_it_where_it_is_another(name: str, tmp_path: Path) -> None:
    (read, row), path = ENCODED[name], tmp_path / name
    text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    expected = repr(read(path))
    assert "北" in expected or expected in ("[1]", "['首都']", "'06369829'")
    path.write_bytes(text.encode("gb18030"))
    assert repr(read(path, encoding="gb18030")) == expected
    with pytest.raises(
        ValueError, match=r"(line 1.*Set `encoding`|in line [12]. Set `encoding`|line 2: byte)"
    ) as told:
        read(path)
    assert name in str(told.value)
    with pytest.raises(ValueError, match="`encoding` must"):
        read(path, encoding="utf-16")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"\0", r"line 2: byte \d+ is 0"),
        (b"caf\xe9", r"line 2: byte \d+ \(0xe9\) is not utf-8 text"),
        (b"\xed\xa0\x80", r"line 2: byte \d+ \(0xed\)"),
    ],
    ids=["NUL", "another encoding", "half a character in bytes"],
)
def test_what_is_no_text_is_told_with_its_line(name: str, content: bytes, match: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(sound(name).partition("\n")[0].encode() + b"\n" + content + b"\n")
    refused(name, path, match)


@pytest.mark.parametrize("name", READERS)
def test_what_stands_in_the_place_of_a_file_is_told(name: str, tmp_path: Path) -> None:
    for number, (content, match) in enumerate(
        (
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "pointer of Git LFS"),
            (b"<!DOCTYPE html>\n<html></html>\n", "page of HTML"),
            (gzip.compress(b"x"), "file is compressed"),
            (sound(name).encode("utf-16"), "is not utf-8 text|is 0, so"),
        )
    ):
        path = tmp_path / f"{number}_{name}"
        path.write_bytes(content)
        refused(name, path, match)
    path = tmp_path / f"pipe_{name}"
    os.mkfifo(path)
    refused(name, path, "is no regular file")
    path = tmp_path / f"device_{name}"
    path.symlink_to("/dev/zero")
    refused(name, path, "is no regular file")
    (tmp_path / name).mkdir()
    refused(name, tmp_path / name, "is a folder")


@pytest.mark.parametrize("name", READERS)
def test_a_file_without_rows_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match=name):
        READERS[name][0](tmp_path / name)


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize(
    ("value", "match"),
    [
        (r'"a \ud800"', "half a character"),
        ("NaN", "NaN is no number"),
        ("1e400", "1e400 is beyond all numbers"),
        ("9" * 9999, r"Exceeds the limit \(4300 digits\)"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ],
    ids=["half a character", "NaN", "1e400", "many digits", "deep nesting"],
)
def test_json_that_nothing_can_write_again_is_refused(name: str, value: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / name
    row = json.dumps(READERS[name][1]).replace("{", '{"more": WHAT, ', 1).replace("WHAT", value)
    path.write_text(row + "\n", encoding="utf-8")
    refused(name, path, match)


@pytest.mark.parametrize("name", PACKED)
def test_packed_files_that_are_cut_or_unpack_without_end_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(sound(name).encode() * 20)[:-12])
    refused(name, path, "compressed file is broken or cut off")
    path.write_bytes(gzip.compress(sound(name).encode()) + gzip.compress(b" " * 2**24) * 4)
    tracemalloc.start()
    refused(name, path, "more than 200 times its size|more than 16 MiB|line 2")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**27


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("relations.jsonl", {"tokens": "Rome is in Italy"}, "`tokens` must be a list of strings"),
        ("relations.jsonl", {"relation": 7}, "`relation` must be a text"),
        ("relations.jsonl", {"head": "Rome"}, "record 1"),
        ("types.jsonl", {"labels": "city"}, "`labels` must be a list of strings"),
        ("entities.jsonl", {"types": "Q1"}, "`types` of Q1 must be a list"),
        ("questions.json", {"answers": "Jane"}, "must hold SQuAD's answers"),
        ("squad.json", {"context": ["Jane"]}, "`context` must be a text"),
    ],
)
def test_a_string_is_no_list_and_a_number_no_text(name: str, change: Any, match: str, tmp_path: Path) -> None:
    row = READERS[name][1]
    changed = [{**row[0], **change}] if isinstance(row, list) else {**row, **change}
    (tmp_path / name).write_text(json.dumps(changed) + "\n", encoding="utf-8")
    refused(name, tmp_path / name, match)


@pytest.mark.parametrize("data", [7, "x", [7], [{"paragraphs": 7}], [{"paragraphs": [{"qas": "x"}]}]])
def test_a_nested_file_of_another_form_is_told(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": data}), encoding="utf-8")
    refused("squad.json", path, "must be (a list|an object)")


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "relations.jsonl"
    row = {**RELATION, "tokens": ["Rome\u2028", "is\u0085", "in\x1c", "Italy"]}
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    (example,) = read_relation_examples(path)
    assert example.text.split(" ")[0] == "Rome\u2028"


@pytest.mark.parametrize("name", [name for name in READERS if not name.endswith(".json")])
def test_lines_that_end_in_carriage_returns_alone_are_told(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes((sound(name) * 2).replace("\n", "\r").encode())
    refused(name, path, "its lines end in carriage returns alone")


@pytest.mark.parametrize("name", ["texts.csv", "texts.tsv"])
def test_a_long_cell_is_read_and_a_column_named_twice_is_not(name: str, tmp_path: Path) -> None:
    path, mark = tmp_path / name, "," if name.endswith("csv") else "\t"
    path.write_text(f"text{mark}label\n{'word ' * 60_000}{mark}x\n", encoding="utf-8")
    (example,) = READERS[name][0](path)
    assert len(example.text) == 5 * 60_000 - 1
    path.write_text(f"text{mark}label{mark}label\na{mark}x{mark}y\n", encoding="utf-8")
    refused(name, path, "line 1: must name different columns")
