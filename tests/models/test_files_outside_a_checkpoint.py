"""A checkpoint's JSON names files inside the checkpoint alone, and its links out of it are not followed.

What a stranger's checkpoint could otherwise do: have a file of the reader's disk read, saved again and pushed. Only
the caller's own arguments name files elsewhere.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoProcessor, AutoTokenizer, BertTokenizer

import hf_ptm_ext
from hf_ptm_ext import (
    DictionaryLinker,
    EntityTable,
    EntityVocabulary,
    ErnieThuConfig,
    ErnieThuModel,
    ErnieThuProcessor,
    KBertTokenizer,
    KnowledgeGraph,
    ZenTokenizer,
)
from hf_ptm_ext.files import check_shard_index, check_tokenizer_config, path_inside
from hf_ptm_ext.hub import verify
from hf_ptm_ext.hub.export import families, full_auto_map

VOCAB = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"北京首都"])}
OUTSIDE = "is no file inside its folder"


def save_kbert(folder):
    KBertTokenizer(VOCAB, kg=KnowledgeGraph([("北京", "是", "首都")])).save_pretrained(folder)


def save_zen(folder):
    ZenTokenizer(VOCAB, ngrams=["北京", "首都"]).save_pretrained(folder)


def save_processor(folder):
    vocabulary = EntityVocabulary.from_ids(["Q956"], titles={"北京": "Q956"})
    ErnieThuProcessor(BertTokenizer(VOCAB), vocabulary, DictionaryLinker({"北京": "Q956"})).save_pretrained(folder)


# Family -> how its text side is saved, loaded by its class and by an auto class.
KINDS = {
    "kbert": (save_kbert, KBertTokenizer, AutoTokenizer),
    "zen": (save_zen, ZenTokenizer, AutoTokenizer),
    "ernie_thu": (save_processor, ErnieThuProcessor, AutoProcessor),
}
# Field of tokenizer_config.json that a file may be named in, and what such a file holds.
FILES = {"kbert": ("kg", "北京\t是\t古都\n"), "zen": ("ngrams", "都北,7\n")}


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return request.param


def saved(kind, folder):
    KINDS[kind][0](folder)
    return folder


def change(folder, **fields):
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **fields}), encoding="utf-8")


def text_of(folder):
    """Everything that a folder holds, as bytes."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("family", sorted(FILES))
@pytest.mark.parametrize("form", ["absolute", "parent", "inner_parent", "home", "windows", "link", "linked_folder"])
def test_a_tokenizer_follows_no_path_out_of_its_checkpoint(tmp_path, family, form):
    field, content = FILES[family]
    outside = tmp_path / "outside.txt"
    outside.write_text(content, encoding="utf-8")
    folder = saved(family, tmp_path / "checkpoint")
    (folder / "inner").mkdir()
    (folder / "link.txt").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    name = {
        "absolute": str(outside),
        "parent": "../outside.txt",
        "inner_parent": "inner/../../outside.txt",
        "home": f"~/../..{outside}",
        "windows": "..\\outside.txt",
        "link": "link.txt",
        "linked_folder": "linked/outside.txt",
    }[form]
    change(folder, **{field: name})
    for loader in KINDS[family][1:]:
        with pytest.raises(ValueError, match=OUTSIDE):
            loader.from_pretrained(folder)
    if family == "kbert":
        change(folder, **{field: ["here.txt", name]})
        with pytest.raises(ValueError, match=OUTSIDE):
            AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("family", sorted(FILES))
def test_a_file_inside_is_read_and_one_of_the_callers_anywhere(tmp_path, family):
    """And no path of either is saved."""
    field, content = FILES[family]
    outside = tmp_path / "outside.txt"
    outside.write_text(content, encoding="utf-8")
    folder = saved(family, tmp_path / "checkpoint")
    shutil.copy(outside, folder / "inside.txt")
    old = AutoTokenizer.from_pretrained(folder)
    theirs = AutoTokenizer.from_pretrained(folder, **{field: str(outside)})
    change(folder, **{field: "inside.txt"})
    for tokenizer in (AutoTokenizer.from_pretrained(folder), theirs):
        assert tokenizer("北京首都北京") != old("北京首都北京")
        assert tokenizer("北京首都北京") == theirs("北京首都北京")
        again = tmp_path / "again"
        tokenizer.save_pretrained(again)
        assert AutoTokenizer.from_pretrained(again)("北京首都北京") == theirs("北京首都北京")
        assert str(tmp_path).encode() not in text_of(again)
        assert b"inside.txt" not in text_of(again)
        shutil.rmtree(again)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab", "{}"),
        ("merges", "{}"),
        ("init_inputs", ["{}"]),
        ("fast_tokenizer_files", ["../tokenizer.4.0.0.json"]),
    ],
)
def test_no_other_field_of_a_tokenizers_configuration_names_a_file(tmp_path, kind, field, value):
    outside = tmp_path / "tokenizer.4.0.0.json"
    outside.write_text("\n".join([*VOCAB, "secret"]), encoding="utf-8")
    folder = saved(kind, tmp_path / "checkpoint")
    change(folder, **{field: json.loads(json.dumps(value).replace("{}", str(outside)))})
    for loader in KINDS[kind][1:]:
        with pytest.raises(ValueError, match=f"`{field}` of .*tokenizer_config.json"):
            loader.from_pretrained(folder)
    with pytest.raises(ValueError, match=f"`{field}` of .*tokenizer_config.json"):
        check_tokenizer_config(folder)


def test_links_out_of_the_folder_are_not_followed(tmp_path, kind):
    folder = saved(kind, tmp_path / "checkpoint")
    names = [path.name for path in folder.iterdir() if path.suffix in (".safetensors", ".txt")]
    assert names
    for name in names:
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
        for loader in KINDS[kind][1:]:
            with pytest.raises(ValueError, match="Links out of a checkpoint are not followed"):
                loader.from_pretrained(folder)
        (folder / name).unlink()
        (tmp_path / name).rename(folder / name)
        (folder / name).rename(folder / f"real_{name}")
        (folder / name).symlink_to(f"real_{name}")
        KINDS[kind][1].from_pretrained(folder)


@pytest.mark.parametrize("subfolder", ["", "text"])
def test_a_hub_snapshot_is_made_of_links_and_is_read(tmp_path, kind, subfolder):
    plain = saved(kind, tmp_path / "plain")
    repository = tmp_path / "models--someone--tiny"
    snapshot = repository / "snapshots" / ("0" * 40) / subfolder
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(plain.iterdir())):
        shutil.copy(path, repository / "blobs" / str(number))
        (snapshot / path.name).symlink_to(os.path.relpath(repository / "blobs" / str(number), snapshot))
    loader = KINDS[kind][1]
    expected = loader.from_pretrained(plain)("北京首都")
    assert loader.from_pretrained(snapshot)("北京首都") == expected
    assert (
        loader.from_pretrained(snapshot.parent if subfolder else snapshot, subfolder=subfolder)("北京首都") == expected
    )


# ---- entity tables ----

TINY = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
    "entity_hidden_size": 4,
    "entity_num_attention_heads": 2,
    "entity_intermediate_size": 8,
    "layer_types": ["sim", "mix"],
}


def table():
    return EntityTable.from_arrays(np.eye(4, dtype=np.float32), ids=["Q1", "Q2", "Q3", "Q4"])


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "./model.safetensors",
        "MODEL.SAFETENSORS",
        "model.fp16.safetensors",
        "model-00001-of-00002.safetensors",
        "adapter_model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "processor_config.json",
        "vocab.txt",
        "modeling_ernie_thu.py",
        "README.md",
        "entity_vocab.safetensors",
        "entity_linker.safetensors",
        "knowledge_graph.safetensors",
    ],
)
def test_an_entity_table_takes_no_name_of_another_file(tmp_path, name):
    model = ErnieThuModel(ErnieThuConfig(**TINY))
    with pytest.raises(ValueError, match=r"`entity_embeddings_source` must name a .*file of its own"):
        model.set_entity_table(table(), source={"path": name})
    assert model.entity_table is None
    model.set_entity_table(table())
    model.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model.config.entity_embeddings_source = {"path": name}  # as a checkpoint's config.json may have it
    with pytest.raises(ValueError, match=r"`entity_embeddings_source` must name a .*file of its own"):
        model.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_entity_table_that_is_a_link_out_of_the_checkpoint_is_neither_read_nor_copied(tmp_path):
    model = ErnieThuModel(ErnieThuConfig(**TINY))
    model.set_entity_table(table(), source={"path": "entities.safetensors"})
    folder, again = tmp_path / "model", tmp_path / "again"
    model.save_pretrained(folder)
    (folder / "entities.safetensors").rename(tmp_path / "outside.safetensors")
    (folder / "entities.safetensors").symlink_to(tmp_path / "outside.safetensors")
    loaded = ErnieThuModel.from_pretrained(folder)
    ids = torch.tensor([[2, 5, 3]])
    for use in (
        lambda: loaded(ids, entity_ids=ids - 2),
        loaded.load_entity_table,
        lambda: loaded.save_pretrained(again),
    ):
        with pytest.raises(ValueError, match="Links out of a checkpoint are not followed"):
            use()
    assert not (again / "entities.safetensors").exists()


# ---- shards ----


@pytest.mark.parametrize(
    "name",
    ["../outside/model.safetensors", "/etc/passwd", "a/../../b.safetensors", "C:\\weights", "..\\b", "", 7, None],
)
@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json", "w.index.json"])
def test_an_index_of_shards_names_files_inside_its_folder(tmp_path, name, index):
    content = {"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": name}}
    (tmp_path / index).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=OUTSIDE):
        check_shard_index(tmp_path)


@pytest.mark.parametrize("family", families())
def test_no_model_of_ours_reads_shards_outside_its_folder(tmp_path, family):
    weight_map = {"weight": "../outside/model.safetensors"}
    content = json.dumps({"metadata": {}, "weight_map": weight_map})
    for folder in (tmp_path, tmp_path / "sub"):
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors.index.json").write_text(content, encoding="utf-8")
    for auto_class, target in full_auto_map(family).items():
        if auto_class.startswith("AutoModel"):
            model_class = getattr(hf_ptm_ext, target.split(".")[1])
            with pytest.raises(ValueError, match=OUTSIDE):
                model_class.from_pretrained(tmp_path)
            (tmp_path / "model.safetensors.index.json").unlink()
            with pytest.raises(ValueError, match=OUTSIDE):
                model_class.from_pretrained(str(tmp_path), subfolder="sub")
            shutil.copy(tmp_path / "sub" / "model.safetensors.index.json", tmp_path)


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"metadata": {}}', '{"weight_map": {}}', '{"metadata": {}, "weight_map": []}']
)
def test_a_damaged_index_is_named(tmp_path, content):
    (tmp_path / "model.safetensors.index.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json must"):
        check_shard_index(tmp_path)


def test_sharded_models_load(tmp_path):
    model = ErnieThuModel(ErnieThuConfig(**TINY))
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    loaded = ErnieThuModel.from_pretrained(tmp_path)
    assert torch.equal(loaded.pooler.dense.weight, model.pooler.dense.weight)


# ---- verify ----


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "checkpoint"
    ErnieThuModel(ErnieThuConfig(**TINY)).save_pretrained(folder)
    save_processor(folder)
    return folder


@pytest.mark.parametrize("what", ["shards", "tokenizer", "table", "link", "deep_link"])
def test_verify_names_what_leads_out_before_anything_is_run(whole, tmp_path, monkeypatch, what):
    monkeypatch.setattr("subprocess.run", None)
    folder = shutil.copytree(whole, tmp_path / "checkpoint")
    outside = shutil.copy(whole / "model.safetensors", tmp_path / "outside.safetensors")
    if what == "shards":
        index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(outside), "../outside.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    elif what == "tokenizer":
        change(folder, kg="/etc/passwd")
    elif what == "table":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["entity_embeddings_source"] = {"path": "../outside.safetensors"}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    else:
        place = folder / ("link.safetensors" if what == "link" else "custom_generate/deep/link.txt")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(outside)
    problems = verify(folder).problems
    assert [problem for problem in problems if OUTSIDE in problem], problems


@pytest.mark.parametrize("name", ["", " ", ".", None, 3, "a\0b"])
def test_a_name_must_be_one(tmp_path, name):
    with pytest.raises(ValueError, match=OUTSIDE):
        path_inside(tmp_path, name, "config.json")


def test_names_inside_are_paths(tmp_path):
    assert path_inside(tmp_path, "a/b.txt", "config.json") == tmp_path / "a" / "b.txt"
    assert path_inside(tmp_path, "./a..b", "config.json") == Path(tmp_path) / "a..b"
