"""Knowledge graphs: files as people have them, looking words up, and the file that travels with a tokenizer."""

import copy
import gzip
import json
import logging
import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.models.knowledge_graph_kbert import KNOWLEDGE_GRAPH_FILE, KnowledgeGraph

# From a Windows editor: byte-order mark, CRLF, a repeated triple, blanks for tabs in line 6, four fields in line 8.
MESSY = (
    "\ufeff北京\t是\t首都\r\n北京\t人口\t万\r\n北京\t是\t首都\r\n高血压\t类别\t疾病\r\n\r\n厄贝沙坦 类别 药物\r\n"
    "厄贝沙坦\t类别\t药物\r\na\tb\tc\td\r\n new york \t is\t city \r\n"
).encode()


@pytest.fixture
def messy(tmp_path):
    path = tmp_path / "messy.spo"
    path.write_bytes(MESSY)
    return path


@pytest.fixture
def log(caplog):
    """The log, which transformers keeps from spreading."""
    logger = logging.getLogger("transformers")
    logger.propagate, before = True, logger.propagate
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("hf_ptm_ext"):
            logging.getLogger(name).propagate = True
    yield caplog
    logger.propagate = before


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# ---- files ----


def test_a_hand_made_file_is_read_as_its_author_meant_it(messy, log):
    graph = KnowledgeGraph.from_files(messy)
    assert graph.subjects == ["北京", "高血压", "厄贝沙坦", "new york"]
    assert graph.lookup("北京") == ["首都", "万"]
    assert graph.lookup("new york") == ["city"]
    assert all("\r" not in text and "\ufeff" not in text for triple in graph for text in triple)
    (report,) = graph.reports
    assert (report.lines, report.kept, report.duplicates, report.empty) == (9, 5, 1, 1)
    assert report.malformed == ((6, "1 field"), (8, "4 fields"))
    assert "9 lines, 5 kept, 1 duplicate, 2 malformed (line 6: 1 field; line 8: 4 fields), 1 empty" in str(report)
    warnings = [record for record in log.records if "malformed" in record.getMessage()]
    assert len(warnings) == 1, "one warning for the file, not one a line"
    assert "line 6" in warnings[0].getMessage()
    assert "line 8" in warnings[0].getMessage()


def test_malformed_lines_stop_the_reader_if_asked_to(messy):
    with pytest.raises(ValueError, match=r"2 lines are malformed: line 6: 1 field; line 8: 4 fields"):
        KnowledgeGraph.from_files(messy, on_malformed="error")
    with pytest.raises(ValueError, match="`on_malformed` must be one of"):
        KnowledgeGraph.from_files(messy, on_malformed="ignore")


def test_a_malformed_first_line_repeats_nothing(tmp_path):
    assert list(KnowledgeGraph.from_files(write(tmp_path, "a.spo", "only\na\tb\tc\n"))) == [("a", "b", "c")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.spo", "北京\t是\t首都\n北京\t\t古城\nNew York\tin\tthe USA\n"),
        ("a.tsv", "北京\t是\t首都\n\n北京\t\t古城\nNew York\tin\tthe USA"),
        ("a.csv", '北京,是,首都\n北京,,"古城"\n"New York", in, the USA\n'),
        (
            "a.jsonl",
            '{"subject": "北京", "predicate": "是", "object": "首都"}\n{"subject": "北京", "object": ["古城"]}\n'
            '["New York", "in", "the USA"]\n',
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_forms_of_files(tmp_path, name, text, packed):
    path = write(tmp_path, name, text)
    if packed:
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(text.encode()))
    graph = KnowledgeGraph.from_files(path, on_malformed="error")
    assert list(graph) == [("北京", "是", "首都"), ("北京", "", "古城"), ("New York", "in", "the USA")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "no JSON"),
        ('{"subject": "a"}', "no object"),
        ('{"subject": "a", "object": 3}', "object 3 is not text"),
        ('["a", "b"]', "2 fields"),
        ("3", "int"),
        ('["a", "b", []]', "no object"),
    ],
)
def test_malformed_json_says_why(tmp_path, line, reason):
    path = write(tmp_path, "a.jsonl", f'["a", "b", "c"]\n{line}\n')
    with pytest.raises(ValueError, match=f"line 2: .*{reason}"):
        KnowledgeGraph.from_files(path, on_malformed="error")


def test_other_line_ends_are_no_line_ends(tmp_path):
    """U+2028 and the like may stand in a name; only a newline ends a line."""
    graph = KnowledgeGraph.from_files(write(tmp_path, "a.spo", "a\u2028b\tis\tc\x85d\n"))
    assert list(graph) == [("a\u2028b", "is", "c\x85d")]


def test_another_encoding_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "a.spo"
    path.write_bytes(b"a\tb\tc\n" + "北京\t是\t首都\n".encode("gb18030"))
    with pytest.raises(ValueError, match=r"UTF-8, got byte 0xb1 in line 2"):
        KnowledgeGraph.from_files(path)


@pytest.mark.parametrize("text", ["", "\n \n", "one field\n"])
def test_a_file_without_triples_is_an_error(tmp_path, text):
    with pytest.raises(ValueError, match="at least one triple"):
        KnowledgeGraph.from_files(write(tmp_path, "a.spo", text))


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("a.spo", "北京,是,首都\n", "separated by commas: rename it to .csv"),
        ("a.csv", "北京\t是\t首都\n", "separated by tabs: rename it to .tsv"),
        ("a.spo", "北京 是 首都\n", "separated by blanks: put tabs in their place"),
        ("a.csv", "Berlin;is;a city\n", "separated by semicolons: put commas in their place"),
        ("a.json", '[{"subject": "北京", "predicate": "是", "object": "首都"}]', "one triple a line, not one array"),
        ("a.json", '[\n  {"subject": "北京"}\n]', "one triple a line, not one array"),
    ],
)
def test_files_in_another_form_say_what_to_do(tmp_path, name, text, advice):
    with pytest.raises(ValueError, match=f"at least one triple.*{advice}"):
        KnowledgeGraph.from_files(write(tmp_path, name, text))


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_header_is_no_triple(tmp_path, name, log):
    lines = [["Subject", "Predicate", "Object"], ["北京", "是", "首都"], ["subject", "predicate", "object"]]
    mark = "," if name == "a.csv" else "\t"
    graph = KnowledgeGraph.from_files(write(tmp_path, name, "\n".join(mark.join(line) for line in lines)))
    assert graph.subjects == ["北京", "subject"], "further down it is a triple"
    assert "line 1: a header" in log.text


def test_a_file_that_is_not_packed_as_it_says(tmp_path):
    with pytest.raises(ValueError, match=r"a\.spo\.gz must be packed by gzip"):
        KnowledgeGraph.from_files(write(tmp_path, "a.spo.gz", "a\tb\tc\n"))
    (tmp_path / "a.spo.gz").write_bytes(gzip.compress(b"a\tb\tc\n" * 99)[:-12])
    with pytest.raises(ValueError, match=r"a\.spo\.gz must be packed by gzip"):
        KnowledgeGraph.from_files(tmp_path / "a.spo.gz")


def test_a_folder_stands_for_the_graph_in_it(tmp_path):
    graph = KnowledgeGraph([("a", "b", "c")])
    graph.save(tmp_path)
    assert KnowledgeGraph.from_files(tmp_path) == graph
    with pytest.raises(FileNotFoundError, match="There is no knowledge graph"):
        KnowledgeGraph.from_files(tmp_path.parent)


def test_missing_and_unknown_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no triple file"):
        KnowledgeGraph.from_files(tmp_path / "a.spo")
    with pytest.raises(ValueError, match=r"must end in one of \.spo"):
        KnowledgeGraph.from_files(write(tmp_path, "a.xml", "a"))
    with pytest.raises(ValueError, match="`paths`"):
        KnowledgeGraph.from_files()


def test_several_graphs_are_one(tmp_path):
    first = write(tmp_path, "a.spo", "a\tis\tb\na\tis\tc\n")
    second = write(tmp_path, "b.jsonl", '["a", "is", "d"]\n["a", "is", "b"]\n["e", "is", "f"]\n')
    third = KnowledgeGraph([("e", "is", "g")]).save(tmp_path / "c.safetensors")
    graph = KnowledgeGraph.from_files(first, second, third)
    assert graph.lookup("a") == ["b", "c", "d"]
    assert graph.lookup("e") == ["f", "g"]
    assert [report.kept for report in graph.reports] == [2, 3]


# ---- looking up ----


def test_objects_come_in_order_each_once():
    graph = KnowledgeGraph([("a", "p", "x"), ("a", "q", "x"), ("a", "p", "y"), ("a", "q", "z")])
    assert graph.lookup("a") == ["x", "y", "z"]
    assert graph.lookup("a", 2) == ["x", "y"]
    assert graph.lookup("a", 0) == []
    assert graph.lookup("a", use_predicate=True) == ["p x", "q x", "p y", "q z"]
    assert graph.lookup("a", use_predicate=True, separator="") == ["px", "qx", "py", "qz"]
    assert graph.lookup("a", use_predicate=["q"]) == ["x", "q x", "y", "q z"]
    assert graph.lookup("a", 1, predicates=["q"]) == ["x"]
    assert graph.lookup("a", predicates=["q"]) == ["x", "z"]
    assert graph.lookup("A") == []


def test_predicate_and_object_are_joined_as_their_script_is_written():
    graph = KnowledgeGraph([("北京", "是", "首都"), ("Paris", "capital of", "France"), ("a", "", "b")])
    assert graph.lookup("北京", use_predicate=True) == ["是首都"]
    assert graph.lookup("Paris", use_predicate=True) == ["capital of France"]
    assert graph.lookup("a", use_predicate=True) == ["b"]


def test_an_allow_list_of_predicates():
    graph = KnowledgeGraph([("a", "p", "x"), ("a", "q", "y"), ("b", "q", "z")])
    kept = graph.filter(["q"])
    assert list(kept) == [("a", "q", "y"), ("b", "q", "z")]
    assert KnowledgeGraph.from_triples(graph, predicates=["q"]) == kept
    with pytest.raises(ValueError, match=r"\['r'\]; it has 'p', 'q'"):
        graph.filter(["q", "r"])
    with pytest.raises(TypeError, match="collection"):
        graph.filter("q")
    with pytest.raises(ValueError, match="none"):
        graph.filter([])


def test_dictionaries():
    graph = KnowledgeGraph.from_dict({"a": "x", "b": ["y", "z"], "c": {"p": "x", "q": ["y"]}, "d": [("p", "x")]})
    assert list(graph) == [
        ("a", "", "x"), ("b", "", "y"), ("b", "", "z"), ("c", "p", "x"), ("c", "q", "y"), ("d", "p", "x"),
    ]  # fmt: skip


@pytest.mark.parametrize("triples", [[("a", "b")], [("a", "b", 3)], ["abcd"]])
def test_what_is_no_triple_is_refused(triples):
    with pytest.raises(TypeError, match="`triples`"):
        KnowledgeGraph(triples)


@pytest.mark.parametrize("triples", [[], [("", "b", "c")], [("a", "b", "  ")]])
def test_graphs_and_triples_are_not_empty(triples):
    with pytest.raises(ValueError, match="`triples`"):
        KnowledgeGraph(triples)


def test_what_a_graph_tells_of_itself():
    graph = KnowledgeGraph([("a", "p", "x"), ("b", "q", "a")])
    assert (len(graph), graph.subjects, sorted(graph.predicates)) == (2, ["a", "b"], ["p", "q"])
    assert ("a" in graph, "x" in graph) == (True, False)
    assert repr(graph) == "KnowledgeGraph(2 triples of 2 subjects)"
    assert copy.deepcopy(graph) is graph


# ---- the graph's own file ----

PARTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.strip())


@settings(deadline=None)
@given(st.lists(st.tuples(PARTS, st.text(max_size=3).filter(lambda t: "\ud800" not in t), PARTS), min_size=1))
def test_a_graph_survives_its_file(tmp_path_factory, triples):
    graph = KnowledgeGraph(triples)
    path = graph.save(tmp_path_factory.mktemp("graph") / "graph.safetensors")
    back = KnowledgeGraph.from_file(path, sha256=graph.sha256)
    assert list(back) == list(graph)
    assert back == graph
    assert back.to_bytes() == path.read_bytes() == KnowledgeGraph(triples).to_bytes()


def test_a_graph_survives_pickling(tmp_path):
    graph = KnowledgeGraph.from_files(write(tmp_path, "a.spo", "北京\t是\t首都\n\ud7ff\tis\tletter\n"))
    before = pickle.dumps(graph)
    copy = pickle.loads(before)
    assert copy == graph
    assert copy.lookup("北京") == ["首都"]
    assert copy.reports == graph.reports
    assert pickle.dumps(graph) == before, "whatever was asked of it"


def test_saving_into_a_folder(tmp_path):
    path = KnowledgeGraph([("a", "b", "c")]).save(tmp_path)
    assert path == tmp_path / KNOWLEDGE_GRAPH_FILE
    assert [file.name for file in tmp_path.iterdir()] == [KNOWLEDGE_GRAPH_FILE]


def test_another_content_is_refused(tmp_path):
    path = KnowledgeGraph([("a", "b", "c")]).save(tmp_path)
    with pytest.raises(ValueError, match="sha256"):
        KnowledgeGraph.from_file(path, sha256=KnowledgeGraph([("a", "b", "d")]).sha256)
    with pytest.raises(FileNotFoundError):
        KnowledgeGraph.from_file(tmp_path / "other.safetensors")


def damaged(data, change):
    """A file of the same arrays with one byte of one array changed."""
    (size,) = struct.unpack("<Q", data[:8])
    _, end = json.loads(data[8 : 8 + size])[change]["data_offsets"]
    place = 8 + size + end - 1
    return data[:place] + bytes([data[place] ^ 0x7F]) + data[place + 1 :]


@pytest.mark.parametrize("array", ["text_offsets", "subjects", "starts", "predicates", "objects"])
def test_damaged_files_are_refused(tmp_path, array):
    data = KnowledgeGraph([("a", "b", "c"), ("d", "b", "c")]).to_bytes()
    path = tmp_path / "graph.safetensors"
    for content in (damaged(data, array), data[:-4], b"", b"\x80\x04N.", data[:30]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a readable file"):
            KnowledgeGraph.from_file(path)
