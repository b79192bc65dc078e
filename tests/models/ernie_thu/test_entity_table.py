"""The entity table: what people have goes in, ids find their rows, and the file stays a file."""

import json
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from hf_ptm_ext import EntityTable, EntityVocabulary
from hf_ptm_ext.models import entity_vocab_ernie_thu
from hf_ptm_ext.models.knowledge_ernie_thu import look_up

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) / 4 - 1
QIDS = ["Q392", "Q1322", "Q90", "Q7"]
TITLES = [("Bob Dylan", "Q392"), ("Paris", "Q90"), ("Robert Zimmerman", "Q392"), ("Atlantis", "Q999")]


@pytest.fixture
def table():
    return EntityTable.from_arrays(VECTORS, QIDS, TITLES)


@pytest.fixture
def path(table, tmp_path):
    return table.save(tmp_path / "table.safetensors")


# ---- look-up ----


def test_row_zero_is_no_entity_and_entity_i_is_row_i_plus_1(table):
    assert len(table) == 5
    vectors = table.lookup(torch.tensor([[0, 1], [4, 0]]))
    assert vectors.dtype == torch.float32
    assert vectors.shape == (2, 2, 3)
    assert torch.equal(vectors[0, 0], torch.zeros(3))
    assert torch.equal(vectors[0, 1], torch.from_numpy(VECTORS[0]))
    assert torch.equal(vectors[1, 0], torch.from_numpy(VECTORS[3]))


@pytest.mark.parametrize("ids", [[], [[]], torch.zeros(2, 0, dtype=torch.long), np.zeros((3, 0), dtype=int)])
def test_nothing_looked_up_is_nothing(table, ids):
    shape = ids.shape if hasattr(ids, "shape") else np.asarray(ids).shape
    assert table.lookup(ids).shape == (*shape, 3)


@given(ids=st.lists(st.integers(0, 4), max_size=30))
def test_look_up_is_indexing(ids):
    table = EntityTable.from_arrays(VECTORS)
    assert torch.equal(table.lookup(ids), table.weight()[torch.tensor(ids, dtype=torch.long)])


def test_ids_outside_the_table_follow_the_policy(table):
    with pytest.raises(ValueError, match=r"`entity_ids` must be 0 to 4.*\[-1, 5\].*3 positions"):
        table.lookup([5, -1, 1, 5])
    vectors = table.lookup([5, -1, 1], on_unknown="ignore")
    assert torch.equal(vectors[:2], torch.zeros(2, 3))
    assert torch.equal(vectors[2], torch.from_numpy(VECTORS[0]))
    with pytest.raises(ValueError, match="`on_unknown`"):
        table.lookup([1], on_unknown="maybe")


def test_vectors_are_not_taken_for_ids(table):
    with pytest.raises(TypeError, match="entity_embeds"):
        table.lookup(torch.zeros(2, 3))
    for dtype in ("bfloat16", "torch.bfloat16", torch.bfloat16):
        assert table.lookup([1], dtype=dtype).dtype == torch.bfloat16
    for dtype in ("fp16", "int64", "nn", torch.int64, np.float16):
        with pytest.raises(ValueError, match=r"`dtype` must be a floating point type such as 'float32'"):
            table.lookup([1], dtype=dtype)


def test_an_accelerator_has_a_copy_of_a_table_that_is_small(table, monkeypatch):
    assert table.copy_on(torch.device("cpu")) is None
    device = torch.device("meta")  # has shapes alone, as no other device here
    copy = table.copy_on(device)
    assert copy.device == device
    assert copy.shape == (5, 3)
    assert table.copy_on(device) is copy
    ids = torch.zeros(2, 4, dtype=torch.long, device=device)
    assert look_up(table, ids).shape == (2, 4, 3)
    assert not pickle.loads(pickle.dumps(table))._copies
    monkeypatch.setattr("hf_ptm_ext.models.entity_table_ernie_thu.LARGEST_COPY", 10)
    assert table.copy_on(device) is None


# ---- ids ----


def test_external_ids_find_their_rows(table):
    assert table.rows(["Q90", 392, "Q7", "Q1", "P90", "90", "Q090", "Q", ""]).tolist() == [3, 1, 4, 0, 0, 0, 0, 0, 0]
    assert [table.vocabulary.id_of(row) for row in range(5)] == [None, *QIDS]


def test_integer_ids_are_ids():
    vocabulary = EntityVocabulary.from_ids(np.array([30, 10, 20]))
    assert vocabulary.rows([10, 20, 30, 1, "20", -5]).tolist() == [2, 3, 1, 0, 3, 0]


@given(ids=st.lists(st.text(max_size=8), unique=True, max_size=12), other=st.text(max_size=8))
def test_any_texts_are_ids(ids, other):
    vocabulary = EntityVocabulary.from_ids(ids)
    expected = {text: row for row, text in enumerate(ids, start=1)}
    assert vocabulary.rows([*ids, other]).tolist() == [*range(1, len(ids) + 1), expected.get(other, 0)]
    assert [vocabulary.id_of(row) for row in range(1, len(ids) + 1)] == ids


def test_texts_of_one_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(entity_vocab_ernie_thu, "hash_text", lambda text: len(text))
    vocabulary = EntityVocabulary.from_ids(["m.a", "m.b", "m.cd"])
    assert vocabulary.rows(["m.b", "m.a", "m.x", "m.cd"]).tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize("ids", [["Q1", "Q2", "Q1"], ["m.a", "m.b", "m.a"], [3, 3]])
def test_an_id_twice_is_refused(ids):
    with pytest.raises(ValueError, match="once each"):
        EntityVocabulary.from_ids(ids)


@pytest.mark.parametrize("value", [1.5, None, True, b"Q1"])
def test_an_id_is_text_or_integer(table, value):
    with pytest.raises(TypeError, match="`id`"):
        table.rows([value])


def test_unknown_ids_follow_the_policy(table):
    with pytest.raises(ValueError, match=r"1 of 2 entity ids.*'Q5'"):
        table.rows(["Q5", "Q90"], on_unknown="error")
    with pytest.raises(ValueError, match="`on_unknown`"):
        table.rows(["Q5"], on_unknown="drop")


def test_titles_name_rows_and_are_found(table):
    vocabulary = table.vocabulary
    assert [vocabulary.title_of(row) for row in range(5)] == [None, "Bob Dylan", None, "Paris", None]
    assert vocabulary.rows_of_title("Robert Zimmerman") == [1]
    assert vocabulary.rows_of_title("Atlantis") == []
    assert list(vocabulary.titles()) == [("Bob Dylan", 1), ("Robert Zimmerman", 1), ("Paris", 3)]


# ---- files ----


def test_a_saved_table_is_the_same_table(table, path):
    again = EntityTable.from_file(path)
    assert torch.equal(again.weight(), table.weight())
    assert again.rows(QIDS).tolist() == [1, 2, 3, 4]
    assert list(again.vocabulary.titles()) == list(table.vocabulary.titles())
    assert again.sha256 == table.sha256
    assert set(load_file(path)) >= {"vectors", "id_numbers", "id_rows", "title_blob"}


def test_the_vocabulary_of_a_table_file_opens_alone(path, table, tmp_path):
    vocabulary = EntityVocabulary.from_file(path)
    assert vocabulary.rows(QIDS).tolist() == [1, 2, 3, 4]
    first = vocabulary.save(tmp_path / "a.safetensors").read_bytes()
    assert first == table.vocabulary.save(tmp_path / "b.safetensors").read_bytes()


def test_half_precision_is_stored_as_such(table, tmp_path):
    half = EntityTable.from_file(table.save(tmp_path / "half.safetensors", dtype="float16"))
    assert half.dtype == torch.float16
    assert half.lookup([2]).dtype == torch.float32
    assert torch.equal(half.lookup([2]), torch.from_numpy(VECTORS[[1]]))


@pytest.mark.parametrize("dtype", ["float16", torch.float16, np.float16, np.dtype("float16")])
def test_types_go_by_any_of_their_names(dtype):
    assert EntityTable.from_arrays(VECTORS, dtype=dtype).dtype == torch.float16


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", torch.bfloat16, "fp16", np.float64])
def test_other_types_are_refused(dtype):
    with pytest.raises(ValueError, match="`dtype` must be"):
        EntityTable.from_arrays(VECTORS, dtype=dtype)


def test_a_table_travels_to_workers_by_its_file(path):
    data = pickle.dumps(EntityTable.from_file(path))
    assert len(data) < 1000
    assert pickle.loads(data).rows(["Q7"]).tolist() == [4]
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match="has gone or changed"):
        pickle.loads(data)


def test_a_table_in_memory_travels_whole(table):
    again = pickle.loads(pickle.dumps(table))
    assert torch.equal(again.lookup([1, 2]), table.lookup([1, 2]))
    assert again.rows(QIDS).tolist() == [1, 2, 3, 4]


def test_another_hash_or_dimension_is_refused(path, table):
    assert len(EntityTable.from_file(path, sha256=table.sha256.upper(), dim=3)) == 5
    with pytest.raises(ValueError, match="`sha256`"):
        EntityTable.from_file(path, sha256="0" * 64)
    with pytest.raises(ValueError, match="`entity_hidden_size` 3, and 100"):
        EntityTable.from_file(path, dim=100)


def test_a_missing_table_says_how_to_get_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"from_arrays.*save"):
        EntityTable.from_file(tmp_path / "none.safetensors")


def test_files_of_other_things_are_refused(path, tmp_path):
    other = tmp_path / "other.safetensors"
    save_file({"entity_embeddings.weight": VECTORS}, other)
    with pytest.raises(ValueError, match=r"entity_embeddings\.weight.*from_arrays"):
        EntityTable.from_file(other)
    for damaged in (b"", b"not a table", path.read_bytes()[:-5], b"\xff" * 64):
        other.write_bytes(damaged)
        with pytest.raises(ValueError, match="not a readable safetensors file"):
            EntityTable.from_file(other)


def test_a_first_row_with_numbers_is_refused():
    with pytest.raises(ValueError, match="row 0"):
        EntityTable(VECTORS)


@pytest.mark.parametrize("vectors", [np.zeros(3), np.zeros((2, 0)), [["a", "b"]], [[1.0, float("nan")]]])
def test_what_is_no_matrix_of_numbers_is_refused(vectors):
    with pytest.raises(ValueError, match="`vectors` must be"):
        EntityTable.from_arrays(vectors)


def test_numbers_too_big_for_half_precision_are_refused():
    with pytest.raises(ValueError, match="finite as float16"):
        EntityTable.from_arrays([[1e6]], dtype="float16")


# ---- pruning ----


def test_pruning_keeps_vectors_ids_and_titles(table, tmp_path):
    kept = torch.tensor([[3, 0, 1], [3, 3, 0]])
    small = table.prune(kept)
    assert len(small) == 3
    assert small.rows(["Q392", "Q90", "Q7"]).tolist() == [1, 2, 0]
    assert [small.vocabulary.title_of(row) for row in (1, 2)] == ["Bob Dylan", "Paris"]
    assert torch.equal(small.lookup(table.renumber(kept, kept)), table.lookup(kept))
    again = EntityTable.from_file(small.save(tmp_path / "small.safetensors"))
    assert torch.equal(again.weight(), small.weight())


@given(kept=st.lists(st.integers(0, 4)), ids=st.lists(st.integers(0, 4), min_size=1))
def test_renumbered_ids_mean_the_same_entities(kept, ids):
    table = EntityTable.from_arrays(VECTORS, ["m.a", "m.b", "m.c", "m.d"])
    small = table.prune(kept)
    vectors = small.lookup(table.renumber(ids, kept))
    expected = table.lookup([row if row in kept else 0 for row in ids])
    assert torch.equal(vectors, expected)
    for row in set(kept) - {0}:
        name = table.vocabulary.id_of(row)
        assert torch.equal(small.lookup(small.rows([name])), table.lookup([row]))


def test_pruning_to_rows_that_are_not_there_is_refused(table):
    with pytest.raises(ValueError, match="0 to 4"):
        table.prune([9])


# ---- what people have ----


@pytest.fixture
def kg_embed(tmp_path):
    folder = tmp_path / "kg_embed"
    folder.mkdir()
    order = [2, 0, 3, 1]
    lines = "".join(f"{QIDS[index]}\t{index}\n" for index in order)
    (folder / "entity2id.txt").write_text(f"4\n{lines}", encoding="utf-8")
    rows = "".join("\t".join(f"{value:.6f}" for value in row) + "\t\n" for row in VECTORS)
    (folder / "entity2vec.vec").write_text(rows, encoding="utf-8")
    (folder / "entity_map.txt").write_text("".join(f"{title}\t{qid}\n" for title, qid in TITLES), encoding="utf-8")
    return folder


def test_the_original_folder_is_read(kg_embed, table):
    read = EntityTable.from_kg_embed(kg_embed)
    assert torch.equal(read.weight(), table.weight())
    assert read.rows(QIDS).tolist() == [1, 2, 3, 4]
    assert read.vocabulary.title_of(3) == "Paris"


def test_a_line_that_is_cut_off_is_an_error_not_zeros(kg_embed):
    vectors = kg_embed / "entity2vec.vec"
    text = vectors.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    vectors.write_text("".join([lines[0], "0.5\t0.5\n", *lines[2:]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"entity2vec\.vec, line 2, must have 3 numbers, got 2"):
        EntityTable.from_kg_embed(kg_embed)
    vectors.write_text("".join(lines[:3]), encoding="utf-8")
    with pytest.raises(ValueError, match="must hold 4 vectors, got 3"):
        EntityTable.from_kg_embed(kg_embed)
    vectors.write_text(text.replace("0.250000", "0.25oo00"), encoding="utf-8")
    with pytest.raises(ValueError, match="line 2, must hold numbers"):
        EntityTable.from_kg_embed(kg_embed)
    vectors.write_text(text + lines[0], encoding="utf-8")
    with pytest.raises(ValueError, match="got more"):
        EntityTable.from_kg_embed(kg_embed)
    vectors.unlink()
    with pytest.raises(FileNotFoundError, match=r"entity2vec\.vec"):
        EntityTable.from_kg_embed(kg_embed)


def test_a_list_of_ids_that_is_cut_off_is_an_error(kg_embed):
    ids = kg_embed / "entity2id.txt"
    ids.write_text("5\nQ1\t0\n", encoding="utf-8")
    with pytest.raises(ValueError, match="says 5 entities and has 1"):
        EntityTable.from_kg_embed(kg_embed)
    ids.write_text("Q1\t0\n", encoding="utf-8")
    with pytest.raises(ValueError, match="number of entities"):
        EntityTable.from_kg_embed(kg_embed)


@pytest.mark.parametrize("kind", ["vec", "bin", "json", "ckpt", "npy"])
def test_openke_output_is_read(kg_embed, table, kind):
    path = kg_embed / f"vectors.{kind}"
    if kind == "vec":
        path = kg_embed / "entity2vec.vec"
    elif kind == "bin":
        VECTORS.tofile(path)
    elif kind == "json":
        path.write_text(json.dumps({"ent_embeddings.weight": VECTORS.tolist()}), encoding="utf-8")
    elif kind == "ckpt":
        torch.save({"ent_embeddings.weight": torch.from_numpy(VECTORS)}, path)
    else:
        np.save(path, VECTORS)
    read = EntityTable.from_openke(kg_embed / "entity2id.txt", path)
    assert torch.equal(read.weight(), table.weight())


@pytest.mark.parametrize("header", ["4 3\n", ""])
def test_word2vec_text_is_read(tmp_path, table, header):
    path = tmp_path / "vectors.txt"
    names = ["Bob Dylan", "巴黎", "a", "ENTITY/Oslo"] if header else ["Bob", "巴黎", "a", "ENTITY/Oslo"]
    rows = (" ".join([name, *map(str, row)]) for name, row in zip(names, VECTORS, strict=True))
    path.write_text(header + "\n".join(rows) + "\n", encoding="utf-8")
    read = EntityTable.from_word2vec(path)
    assert torch.equal(read.weight(), table.weight())
    assert read.rows([*names, "b"]).tolist() == [1, 2, 3, 4, 0]
    path.write_text(path.read_text(encoding="utf-8") + "x 1 2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line [56], must be a name and 3 numbers"):
        EntityTable.from_word2vec(path)


# ---- size ----

MEASURE = """
    import sys, time
    import numpy as np, torch
    from hf_ptm_ext import EntityTable

    def anonymous():
        line = next(line for line in open("/proc/self/status", encoding="utf-8") if line.startswith("RssAnon"))
        return int(line.split()[1]) / 1024

    warm = EntityTable.from_arrays(np.ones((9, 100)), ids=[f"Q{i}" for i in range(9)])
    warm.lookup(torch.randint(0, 9, (32, 128)))
    before = anonymous()
    start = time.process_time()
    table = EntityTable.from_file(sys.argv[1], dim=100)
    found = table.rows(["Q77", 14_999_999, "Q3"]).tolist()
    opened = time.process_time() - start
    assert found == [26, 5_000_000, 0], found
    generator = torch.Generator().manual_seed(0)
    for _ in range(10_000):
        ids = torch.randint(0, len(table), (16,), generator=generator)
        vectors = table.lookup(ids)
        assert torch.equal(vectors[:, 7].half(), (ids % 2048).half())
        table.rows(ids.tolist())
    print(opened, anonymous() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RssAnon is a number of Linux")
def test_five_million_rows_open_in_a_second_and_stay_in_the_file(tmp_path):
    rows = 5_000_001
    vectors = np.broadcast_to((np.arange(rows) % 2048).astype(np.float16)[:, None], (rows, 100))
    vocabulary = EntityVocabulary.from_ids(np.arange(rows - 1) * 3 + 2)
    vocabulary.id_prefix = "Q"
    path = EntityTable(vectors, vocabulary).save(tmp_path / "big.safetensors")
    try:
        script = textwrap.dedent(MEASURE)
        result = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, encoding="utf-8"
        )
        assert result.returncode == 0, result.stderr
        seconds, megabytes = map(float, result.stdout.split())
        assert seconds < 1
        assert megabytes < 100
    finally:
        path.unlink()
