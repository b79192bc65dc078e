"""Readers: every format gives documents, can go on anywhere, and names the place of bad input."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_ptm_ext.data import FileDocuments, read_documents
from hf_ptm_ext.data.lines import MAX_LINE_BYTES

DOCUMENTS = [["One sentence.", "第二句。"], ["Third."], ["Vierte, größer.", "Fifth.", "Sixth."]]


def text_of(documents):
    return "\n\n".join("\n".join(document) for document in documents) + "\n"


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def write_as(folder, kind):
    text = text_of(DOCUMENTS)
    lines = "".join(json.dumps({"id": 1, "text": "\n".join(document)}) + "\n" for document in DOCUMENTS)
    if kind == "txt":
        return write(folder / "c.txt", text)
    if kind == "txt.gz":
        return write(folder / "c.txt.gz", gzip.compress(text.encode("utf-8")))
    if kind == "jsonl":
        return write(folder / "c.jsonl", lines)
    if kind == "jsonl.gz":
        return write(folder / "c.jsonl.gz", gzip.compress(lines.encode("utf-8")))
    table = pa.table({"text": DOCUMENTS if kind == "parquet-lists" else ["\n".join(d) for d in DOCUMENTS]})
    pq.write_table(table, folder / "c.parquet", row_group_size=2)
    return folder / "c.parquet"


KINDS = ["txt", "txt.gz", "jsonl", "jsonl.gz", "parquet", "parquet-lists"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_documents(tmp_path, kind):
    assert list(read_documents(write_as(tmp_path, kind))) == DOCUMENTS


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_goes_on_behind_any_document(tmp_path, kind):
    write_as(tmp_path, kind)
    (tmp_path / "more").mkdir()
    write(tmp_path / "more" / "d.txt", "Last one.\n")
    files = [str(tmp_path / "c.*"), tmp_path / "more" / "*.txt"]
    everything = [*DOCUMENTS, ["Last one."]]
    for stop in range(1, len(everything) + 1):
        reader = FileDocuments(files)
        iterator = iter(reader)
        before = [next(iterator) for _ in range(stop)]
        resumed = FileDocuments(files)
        resumed.load_state_dict(json.loads(json.dumps(reader.state_dict())))
        assert before + list(resumed) == everything
        assert list(resumed) == everything  # the next iteration starts from the beginning


def test_reading_is_lazy(tmp_path):
    path = write(tmp_path / "a.txt", b"Fine.\n\nFine.\n\n\xff\n")
    documents = read_documents(path)
    assert next(documents) == ["Fine."]


def test_line_ends_byte_order_mark_and_runs_of_blank_lines(tmp_path):
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbf\r\n \t\r\n One. \r\nTwo.\r\n\r\n\r\n\r\nThree.")
    assert list(read_documents(path)) == [["One.", "Two."], ["Three."]]


def test_a_file_without_blank_lines_comes_in_pieces_or_as_one_document_a_line(tmp_path):
    path = write(tmp_path / "a.txt", "".join(f"Line {number}.\n" for number in range(300)))
    assert [len(document) for document in read_documents(path)] == [128, 128, 44]
    assert len(list(read_documents(path, max_document_lines=300))) == 1
    assert len(list(read_documents(path, document_separator="line"))) == 300


def test_a_line_of_one_megabyte_is_read_whole_and_one_of_more_than_16_is_refused(tmp_path):
    path = write(tmp_path / "a.txt", b"word " * 200_000 + b"\nshort\n")
    assert [len(line) for line in next(read_documents(path))] == [999_999, 5]
    path = write(tmp_path / "b.txt", b"fine\n" + b"x" * (MAX_LINE_BYTES + 1))
    with pytest.raises(ValueError, match=r"b\.txt, line 2: the line has more than 16 MiB"):
        list(read_documents(path))


BAD_FILES = {
    "empty": ("a.txt", b"", r"a\.txt: the file is empty"),
    "blank": ("a.txt", b" \n\n\t\n", r"a\.txt: the file has no text"),
    "binary": ("a.txt", b"fine\nmore\0\1\2", r"a\.txt, line 2: byte 9 is 0, so this is a binary file or UTF-16/32"),
    "utf-16": ("a.txt", "Fine.\n".encode("utf-16"), r"a\.txt, line 1: byte \d+ is 0, .*UTF-16"),
    "latin-1": (
        "a.txt",
        b"fine\n\nM\xfcller\n",
        r"a\.txt, line 3: byte 7 \(0xfc\) is not utf-8 text\. Set `encod",
    ),
    "gzip without .gz": ("a.txt", gzip.compress(b"Fine."), r"a\.txt: the file is compressed.*\.gz"),
    "cut gzip": (
        "a.txt.gz",
        gzip.compress(bytes(range(32, 120)) * 99)[:-9],
        r"a\.txt\.gz: the compressed file is broken",
    ),
    "no gzip": ("a.txt.gz", b"Fine.\n", r"a\.txt\.gz: the compressed file is broken"),
    "no json": ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a\.jsonl, line 2: not a JSON object"),
    "json list": ("a.jsonl", b"[1]\n", r"a\.jsonl, line 1: must be a JSON object, got list"),
    "no field": (
        "a.jsonl",
        b'{"content": "a"}\n',
        r"no column 'text', only \['content'\]\. Set `text_column`",
    ),
    "no text at all": ("a.jsonl", b'{"text": null}\n{"text": ""}\n', r"a\.jsonl: the file has no text"),
    "no parquet": ("a.parquet", b"PAR1 and so on", r"a\.parquet: cannot be read as Parquet"),
    "unknown ending": ("a.csv", b"a,b\n", r"a\.csv: cannot tell the format from the ending '\.csv'.*`file_format`"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_named_with_the_place(tmp_path, case):
    name, content, message = BAD_FILES[case]
    with pytest.raises(ValueError, match=message):
        list(read_documents(write(tmp_path / name, content)))


def test_the_encoding_can_be_given(tmp_path):
    path = write(tmp_path / "a.txt", "第一句。\n\n第二句。\n".encode("gb18030"))
    assert list(read_documents(path, encoding="gb18030")) == [["第一句。"], ["第二句。"]]
    with pytest.raises(ValueError, match=r"`encoding` must be a text encoding that Python knows, got 'utf8mb4'"):
        read_documents(path, encoding="utf8mb4")


def test_a_field_that_is_no_text_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"line 1, field 'text': the text must be a string or a list .*, got int"):
        list(read_documents(write(tmp_path / "a.jsonl", '{"text": 3}\n')))
    pq.write_table(pa.table({"number": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: no column 'text', only \['number'\]"):
        list(read_documents(tmp_path / "a.parquet"))
    with pytest.raises(ValueError, match=r"row 1, column 'number'"):
        list(read_documents(tmp_path / "a.parquet", text_column="number"))


def test_missing_files_and_folders_are_named(tmp_path):
    for files in (tmp_path / "no.txt", str(tmp_path / "*.txt")):
        with pytest.raises(FileNotFoundError, match=r"`files`: nothing matches .*txt"):
            read_documents(files)
    with pytest.raises(ValueError, match=r"is a folder\. Name its files"):
        read_documents(tmp_path)
    with pytest.raises(ValueError, match=r"`files` must name at least one file"):
        read_documents([])


def test_a_state_of_other_files_is_refused(tmp_path):
    reader = FileDocuments(write(tmp_path / "a.txt", "One.\n"))
    next(iter(reader))
    write(tmp_path / "a.txt", "One.\nTwo.\n")
    with pytest.raises(ValueError, match=r"`files`: the names or sizes of the files are not those of the saved state"):
        FileDocuments(tmp_path / "a.txt").load_state_dict({**reader.state_dict(), "files": "other"})
