"""The processor with a checkpoint: saved whole, loaded by name, in a process that has nothing of ours."""

import json
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from hf_ptm_ext import DictionaryLinker, EntityTable, EntityVocabulary, ErnieThuProcessor
from hf_ptm_ext.hub import code_files
from hf_ptm_ext.models.entity_table_ernie_thu import EntityTable as TravellingTable

from .conftest import SPAN_PIECES, tokenizer_of

TEXT = "marketing in New York Times"
CODE = {path.name for path in code_files("ernie_thu", ["processing"])}


@pytest.fixture
def full():
    table = EntityTable.from_arrays(np.eye(3), ids=["Q60", "m.x1", "Q9684"], titles={"New York Times": "Q9684"})
    linker = DictionaryLinker({"New York": "Q60", "Times": "m.x1"}, whole_words=True)
    return ErnieThuProcessor(
        tokenizer_of(SPAN_PIECES),
        table,
        linker=linker,
        alignment="all",
        min_score=0.5,
        on_unknown_entity="error",
        on_dropped_entity="ignore",
        markers=("#", "$", "times"),
    )


@pytest.fixture
def folder(full, tmp_path):
    ErnieThuProcessor.register_for_auto_class("AutoProcessor")
    full.save_pretrained(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_folder_holds_everything(folder):
    names = {path.name for path in folder.iterdir()}
    assert names >= {"processor_config.json", "entity_vocab.safetensors", "entity_linker.safetensors"}
    assert names >= CODE
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".bin"))]
    config = json.loads((folder / "processor_config.json").read_text(encoding="utf-8"))
    assert config["auto_map"] == {"AutoProcessor": "processing_ernie_thu.ErnieThuProcessor"}


def test_a_loaded_processor_is_the_same(folder, full, tmp_path):
    again = ErnieThuProcessor.from_pretrained(folder)
    assert dict(again(TEXT)) == dict(full(TEXT))
    assert again.to_dict() == {name: value for name, value in full.to_dict().items() if name != "auto_map"}
    again.save_pretrained(tmp_path / "again")
    for path in folder.iterdir():
        if path.is_file() and path.name != "tokenizer_config.json":  # upstream's, which notes how it was loaded
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_arguments_take_the_place_of_what_was_saved(folder):
    again = ErnieThuProcessor.from_pretrained(folder, linker=None, alignment="first", entity_vocab=None)
    assert again.linker is None
    assert again.entity_vocab is None
    assert again.alignment == "first"
    assert not any(again(TEXT)["entity_ids"])


def test_what_a_checkpoint_opens_is_of_the_exported_classes(folder, full):
    """Though it opens the classes that travel, which lack the builders."""
    opened = ErnieThuProcessor.from_pretrained(folder).entity_vocab
    assert isinstance(opened, EntityVocabulary)
    assert not isinstance(opened, EntityTable)
    table = EntityTable.from_arrays(np.eye(2))
    table.save(folder / "table.safetensors")
    assert isinstance(TravellingTable.from_file(folder / "table.safetensors"), EntityTable)
    assert not isinstance(full.linker, EntityTable)


def test_a_tokenizer_alone_is_enough(tmp_path):
    tokenizer_of(SPAN_PIECES).save_pretrained(tmp_path)
    assert ErnieThuProcessor.from_pretrained(tmp_path).entity_vocab is None


def test_a_linker_of_the_users_is_named_as_not_saved(full, tmp_path, caplog):
    full.linker = lambda texts: [[] for _ in texts]
    full.save_pretrained(tmp_path)
    assert "is not saved" in caplog.text
    assert ErnieThuProcessor.from_pretrained(tmp_path).linker is None


def test_a_processor_travels_to_workers(folder):
    again = ErnieThuProcessor.from_pretrained(folder)
    copy = pickle.loads(pickle.dumps(again))
    assert dict(copy(TEXT)) == dict(again(TEXT))


def test_a_processor_maps_over_a_dataset(full):
    from datasets import Dataset

    rows = Dataset.from_dict(
        {"text": [TEXT, "new york"], "entities": [[{"start": 13, "end": 21, "id": "Q60", "score": 0.9}], []]}
    )
    mapped = rows.map(lambda batch: full(batch["text"], entities=batch["entities"]), batched=True, batch_size=2)
    assert mapped["entity_ids"][0] == [0, 0, 0, 0, 0, 0, 1, 1, 0, 0]
    linked = rows.map(lambda batch: full(batch["text"]), batched=True)
    assert linked["entity_ids"][0] == [0, 0, 0, 0, 0, 0, 1, 1, 2, 0]


@pytest.mark.slow
def test_a_process_without_the_package_loads_it_from_the_folder(folder, full, tmp_path):
    script = """
        import json, sys
        sys.modules["ahocorasick_rs"] = sys.modules["hf_ptm_ext"] = None
        from transformers import AutoProcessor
        processor = AutoProcessor.from_pretrained(sys.argv[1], trust_remote_code=True)
        assert processor.linker.matcher.backend == "python"
        inputs = processor(sys.argv[3])
        processor.save_pretrained(sys.argv[2])
        again = AutoProcessor.from_pretrained(sys.argv[2], trust_remote_code=True)
        assert dict(again(sys.argv[3])) == dict(inputs)
        print(json.dumps(dict(inputs)))
    """
    environment = {**os.environ, "PYTHONPATH": "", "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(folder), str(tmp_path / "resaved"), TEXT],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == dict(full(TEXT))
    assert {path.name for path in (tmp_path / "resaved").iterdir()} >= CODE
