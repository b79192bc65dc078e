"""How a model gets at entity vectors: a table outside, named by the config, or a small one inside the checkpoint."""

import copy
import json
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainingArguments

from hf_ptm_ext import EntityTable
from hf_ptm_ext.models.configuration_ernie_thu import ErnieThuConfig
from hf_ptm_ext.models.modeling_ernie_thu import (
    ErnieThuForPreTraining,
    ErnieThuForSequenceClassification,
    ErnieThuModel,
)
from hf_ptm_ext.trainers import PtmTrainer
from hf_ptm_ext.trainers.pushes import TRAINING_STATE
from tests.conformance.family import assert_same, assert_same_outputs

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "entity_hidden_size": 8,
    "entity_num_attention_heads": 2,
}
IDS = torch.randint(5, 60, (2, 6), generator=torch.Generator().manual_seed(0))
ENTITY_IDS = torch.tensor([[0, 40, 0, 7, 0, 0], [0, 0, 3, 40, 0, 0]])
VECTORS = torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
NAMES = [f"Q{number}" for number in range(50)]


def model(cls=ErnieThuForSequenceClassification, **fields):
    torch.manual_seed(0)
    return cls(ErnieThuConfig(**SIZES, **fields)).eval()


@pytest.fixture
def table():
    return EntityTable.from_arrays(VECTORS, NAMES)


@pytest.fixture
def file(table, tmp_path):
    return table.save(tmp_path / "entities.safetensors")


def expected_outputs(which):
    """With vectors looked up by hand: row i + 1 is entity i."""
    vectors = torch.cat([torch.zeros(1, 8), VECTORS])[ENTITY_IDS]
    with torch.no_grad():
        return which(IDS, entity_embeds=vectors)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_table_from_a_file_serves_every_head(file, dtype):
    table = EntityTable.from_file(EntityTable.from_file(file).save(file.with_name(dtype), dtype=dtype))
    for cls in (ErnieThuModel, ErnieThuForSequenceClassification, ErnieThuForPreTraining):
        which = model(cls)
        which.set_entity_table(table)
        assert which.entity_table is table
        assert which.config.entity_vocab_size == 51
        got, expected = which(IDS, entity_ids=ENTITY_IDS), expected_outputs(which)
        for name in expected:
            assert_same(got[name], expected[name], 1e-6 if dtype == "float32" else 1e-2, name)


def test_the_table_is_neither_parameter_nor_buffer(table, tmp_path):
    which = model()
    before = set(which.state_dict())
    which.set_entity_table(table)
    assert set(which.state_dict()) == before
    assert not any("entity_embeddings" in name for name, _ in [*which.named_parameters(), *which.named_buffers()])
    which.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 100_000
    expected = expected_outputs(which)
    for twin in (copy.deepcopy(which), pickle.loads(pickle.dumps(which)), which.to(torch.float32)):
        assert_same_outputs(twin(IDS, entity_ids=ENTITY_IDS), expected)
    half = copy.deepcopy(which).to(torch.bfloat16)
    assert half(IDS, entity_ids=ENTITY_IDS).logits.dtype == torch.bfloat16


def test_a_missing_table_says_how_to_get_one():
    with pytest.raises(
        ValueError, match=r"this model has none.*EntityTable.from_file.*set_entity_table.*entity_embeds"
    ):
        model()(IDS, entity_ids=ENTITY_IDS)
    labels = torch.where(ENTITY_IDS > 0, ENTITY_IDS, -100)
    with pytest.raises(ValueError, match="this model has none"):
        model(ErnieThuForPreTraining)(IDS, entity_labels=labels)


def test_other_dimensions_and_unknown_ids_are_refused(table):
    wide = EntityTable.from_arrays(torch.zeros(3, 12))
    with pytest.raises(ValueError, match=r"`entity_hidden_size` = 8 numbers, got 12"):
        model().set_entity_table(wide)
    which = model()
    which.set_entity_table(table)
    with pytest.raises(ValueError, match=r"`entity_ids` must be 0 to 50.*got \[51\]"):
        which(IDS, entity_ids=torch.full_like(IDS, 51))
    which.set_entity_table(None)
    assert which.entity_table is None


# ---- named by the config ----


def test_a_table_in_the_checkpoints_folder_is_opened_on_first_use(table, tmp_path):
    which = model()
    which.set_entity_table(table, source={"path": "knowledge/entities.safetensors"})
    which.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["entity_embeddings_source"]
    assert stored == {
        "path": "knowledge/entities.safetensors",
        "sha256": table.sha256,
        "num_rows": 51,
        "dim": 8,
    }
    loaded = ErnieThuForSequenceClassification.from_pretrained(tmp_path)
    (tmp_path / "knowledge" / "entities.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"knowledge.entities\.safetensors.*EntityTable"):
        loaded(IDS, entity_ids=ENTITY_IDS)
    table.save(tmp_path / "knowledge" / "entities.safetensors")
    assert loaded.entity_table is None
    loaded(IDS)
    assert loaded.entity_table is None, "a text without entities needs no table"
    assert_same_outputs(loaded(IDS, entity_ids=ENTITY_IDS), expected_outputs(which))
    assert loaded.entity_table.path == str(tmp_path / "knowledge" / "entities.safetensors")


def test_another_table_than_the_config_names_is_refused(table, tmp_path):
    which = model()
    which.set_entity_table(table, source={"path": "entities.safetensors"})
    which.save_pretrained(tmp_path)
    EntityTable.from_arrays(VECTORS + 1, NAMES).save(tmp_path / "entities.safetensors")
    with pytest.raises(ValueError, match="sha256"):
        ErnieThuModel.from_pretrained(tmp_path)(IDS, entity_ids=ENTITY_IDS)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    config["entity_embeddings_source"] = {"path": "entities.safetensors", "num_rows": 9}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=r"must have 9 rows.*got 51"):
        ErnieThuModel.from_pretrained(tmp_path)(IDS, entity_ids=ENTITY_IDS)


@pytest.mark.parametrize("path", ["../entities.safetensors", "/etc/passwd", "a/../../b", "C:\\table", "c:table"])
def test_a_path_may_not_leave_the_checkpoint(path, tmp_path):
    which = model(entity_embeddings_source={"path": path})
    with pytest.raises(ValueError, match="inside the checkpoint"):
        which.save_pretrained(tmp_path)
    which.config.entity_embeddings_source = None
    which.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    config["entity_embeddings_source"] = {"path": path}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match="inside the checkpoint"):
        ErnieThuModel.from_pretrained(tmp_path)(IDS, entity_ids=ENTITY_IDS)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"repo_id": "someone/kg", "filename": "t.safetensors"}, "without revision, sha256"),
        (
            {"repo_id": "someone/kg", "filename": "t.safetensors", "revision": "0" * 40, "sha256": "0" * 64},
            r"someone/kg .*consent.*load_entity_table\(allow_external=True\)",
        ),
        ({"repo_id": "someone/kg", "path": "t.safetensors"}, "must have `path`"),
        ({}, "must have `path`"),
        ({"path": "t.safetensors", "url": "https://example.org"}, "must have `path`"),
        ({"path": "t.safetensors"}, "was not loaded from one"),
    ],
)
def test_sources_that_cannot_be_used_are_refused(source, message):
    with pytest.raises(ValueError, match=message):
        model(entity_embeddings_source=source)(IDS, entity_ids=ENTITY_IDS)


# ---- inside the checkpoint ----


def test_the_rows_that_are_used_go_into_the_checkpoint(table, tmp_path):
    which = model()
    which.set_entity_table(table, source={"path": "entities.safetensors"})
    expected = expected_outputs(which)
    small = which.prune_entity_table(ENTITY_IDS)
    assert len(small) == which.config.entity_vocab_size == 4
    assert which.config.entity_embeddings_source is None
    assert which.entity_table is None
    ids = table.renumber(ENTITY_IDS, ENTITY_IDS)
    assert ids.tolist() == [[0, 3, 0, 2, 0, 0], [0, 0, 1, 3, 0, 0]]
    assert small.rows(["Q39", "Q2"]).tolist() == [3, 1]
    which.save_pretrained(tmp_path)
    assert load_file(tmp_path / "model.safetensors")["bert.entity_embeddings.weight"].shape == (4, 8)
    loaded, info = ErnieThuForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    for each in (which, loaded):
        assert_same_outputs(each(IDS, entity_ids=ids), expected)
        assert not each.bert.entity_embeddings.weight.requires_grad
    with pytest.raises(ValueError, match=r"`entity_ids` must be 0 to 3"):
        loaded(IDS, entity_ids=ENTITY_IDS)
    # And smaller again, from the checkpoint's own table.
    smaller = loaded.prune_entity_table([3])
    assert len(smaller) == 2
    assert_same(loaded.bert.entity_embeddings.weight[1], VECTORS[39], 0.0)
    # An outside table takes its place.
    loaded.set_entity_table(table)
    assert_same_outputs(loaded(IDS, entity_ids=ENTITY_IDS), expected)
    assert not loaded.config.entity_embeddings_in_checkpoint


def test_a_table_of_ones_own_can_be_trained(table, tmp_path):
    which = model(ErnieThuForPreTraining)
    which.set_entity_table(table)
    which.prune_entity_table(freeze=False)
    assert which.config.entity_vocab_size == 51
    which.save_pretrained(tmp_path)
    loaded = ErnieThuForPreTraining.from_pretrained(tmp_path)
    for each in (which, loaded):
        each.train()(IDS, entity_ids=ENTITY_IDS, entity_labels=ENTITY_IDS).loss.backward()
        gradient = each.bert.entity_embeddings.weight.grad
        assert gradient[[3, 7, 40]].abs().sum(-1).all()
        assert not gradient[0].any(), "no entity stays zero"
        assert not gradient[[1, 2, 50]].any()


def test_a_table_inside_starts_from_random_vectors_without_one():
    which = model(entity_embeddings_in_checkpoint=True, entity_vocab_size=9)
    weight = which.bert.entity_embeddings.weight
    assert not weight[0].any()
    assert 0.01 < weight[1:].std() < 0.04


def test_a_model_is_saved_with_the_table_that_its_config_names(table, tmp_path, caplog):
    which = model()
    which.set_entity_table(table, source={"path": "knowledge/entities.safetensors"})
    which.save_pretrained(tmp_path / "one")
    expected = expected_outputs(which)
    unopened = ErnieThuForSequenceClassification.from_pretrained(tmp_path / "one")
    unopened.save_pretrained(tmp_path / "two")
    opened = ErnieThuForSequenceClassification.from_pretrained(tmp_path / "two")
    opened(IDS, entity_ids=ENTITY_IDS)
    opened.save_pretrained(tmp_path / "two")
    opened.save_pretrained(tmp_path / "three")
    for folder in ("two", "three"):
        again = ErnieThuForSequenceClassification.from_pretrained(tmp_path / folder)
        assert_same_outputs(again(IDS, entity_ids=ENTITY_IDS), expected)
    other = EntityTable.from_arrays(torch.ones(50, 8))
    opened.set_entity_table(other)  # the table in use is the one that is saved, and named
    opened.save_pretrained(tmp_path / "four")
    again = ErnieThuForSequenceClassification.from_pretrained(tmp_path / "four")
    assert again.load_entity_table().sha256 == other.sha256 == again.config.entity_embeddings_source["sha256"]
    (tmp_path / "one" / "knowledge" / "entities.safetensors").unlink()
    unopened.save_pretrained(tmp_path / "five")
    assert "there is no such table here to save" in caplog.text


def test_a_push_in_mid_training_has_the_table(table, tmp_path):
    which = model()
    which.set_entity_table(table, source={"path": "knowledge/entities.safetensors"})
    trainer = PtmTrainer(model=which, args=TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to=[]))
    which.save_pretrained(tmp_path / "out" / "checkpoint-1")
    pushed = trainer._snapshot(tmp_path / "out" / "checkpoint-1", TRAINING_STATE)
    assert EntityTable.from_file(pushed / "knowledge" / "entities.safetensors").sha256 == table.sha256
    assert (pushed / "modeling_ernie_thu.py").is_file()


def test_what_is_no_table_is_refused():
    for value in ("entities.safetensors", torch.zeros(3, 8)):
        with pytest.raises(TypeError, match=r"`table` must be an `EntityTable`.*from_file"):
            model().set_entity_table(value)
    with pytest.raises(TypeError, match=r"`entity_ids` must be a tensor, got list"):
        model()(IDS, entity_ids=ENTITY_IDS.tolist())


def test_a_table_travels_with_a_copied_folder(table, tmp_path):
    """Paths are relative: what was uploaded is what is opened."""
    which = model()
    which.set_entity_table(table, source={"path": "entities.safetensors"})
    which.save_pretrained(tmp_path / "one")
    shutil.move(tmp_path / "one", tmp_path / "two")
    loaded = ErnieThuForSequenceClassification.from_pretrained(tmp_path / "two")
    assert_same_outputs(loaded(IDS, entity_ids=ENTITY_IDS), expected_outputs(which))
