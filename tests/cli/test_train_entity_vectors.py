"""`hf-ptm-ext train-entity-vectors` on a real graph: a table that predicts links, the same for the same seed."""

import json
from pathlib import Path

import numpy as np
import pytest

from hf_ptm_ext import EntityTable
from hf_ptm_ext.cli import main

GRAPH = Path(__file__).parents[1] / "fixtures" / "wordnet" / "triples.tsv"


def run(folder, *more):
    words = ["train-entity-vectors", str(GRAPH), "--output_dir", str(folder), "--dimension", "16", *map(str, more)]
    return main(words)


def test_vectors_predict_links_and_the_table_knows_its_entities(tmp_path, capsys):
    titles = tmp_path / "titles.tsv"
    titles.write_text("ship\t04194289\nnot in the graph\t999\n", encoding="utf-8")
    options = ("--epochs", 60, "--batch_size", 64, "--test_file", GRAPH, "--titles", titles, "--seed", 3)
    assert run(tmp_path / "out", *options) == 0
    printed = capsys.readouterr().out
    assert "TransE" in printed
    assert "random order" in printed
    results = json.loads((tmp_path / "out" / "link_prediction.json").read_text(encoding="utf-8"))
    assert (tmp_path / "out" / "loss_curve.png").is_file()
    assert results["queries"] == 2 * 194
    assert results["transe"]["mrr"] > 5 * results["random"]["mrr"]
    assert results["losses"][-1] < results["losses"][0]
    assert results["options"]["seed"] == 3

    table = EntityTable.from_file(tmp_path / "out" / "entity_table.safetensors", dim=16)
    assert len(table) == 150 + 1
    (row,) = table.rows(["04194289"], on_unknown="error")
    vector = table.lookup([int(row), 0])
    assert np.linalg.norm(vector[0]) == pytest.approx(1.0, abs=1e-3)
    assert not vector[1].any()


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for name in ("first", "second"):
        assert run(tmp_path / name, "--epochs", 2) == 0
    first, second = (
        EntityTable.from_file(tmp_path / name / "entity_table.safetensors") for name in ("first", "second")
    )
    assert first.sha256 == second.sha256
    assert "transe" not in json.loads((tmp_path / "first" / "link_prediction.json").read_text(encoding="utf-8"))


def test_mistakes_are_told(tmp_path, capsys):
    assert run(tmp_path, "--epochs", 1) == 0
    assert run(tmp_path, "--epochs", 1) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run(tmp_path, "--epochs", 1, "--overwrite") == 0
    assert run(tmp_path / "new", "--epochs", 0) == 2
    assert "`epochs` must be at least 1" in capsys.readouterr().err
    bad = tmp_path / "bad.tsv"
    bad.write_text("a b c\n", encoding="utf-8")
    assert main(["train-entity-vectors", str(bad), "--output_dir", str(tmp_path / "new")]) == 2
    assert "1 line has not: 1" in capsys.readouterr().err


def test_entities_that_no_training_triple_has_are_marked_and_not_saved(tmp_path, caplog):
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text("a\tr\tb\nb\tr\tc\n", encoding="utf-8")
    test.write_text("a\tr\tc\na\tr\tnever\n", encoding="utf-8")
    titles = tmp_path / "titles.tsv"
    titles.write_text("A\ta\nNever\tnever\n", encoding="utf-8")
    words = [str(train), "--output_dir", str(tmp_path / "out"), "--test_file", str(test), "--titles", str(titles)]
    assert main(["train-entity-vectors", *words, "--dimension", "4", "--epochs", "1"]) == 0
    assert "1 of 4 entities are in no training triple, such as never" in caplog.text
    assert "1 of 2 test triples have such an entity" in caplog.text
    results = json.loads((tmp_path / "out" / "link_prediction.json").read_text(encoding="utf-8"))
    assert (results["untrained_entities"], results["entities"]) == (["never"], 3)
    assert results["queries_of_untrained_entities"] == 2
    table = EntityTable.from_file(tmp_path / "out" / "entity_table.safetensors")
    assert table.rows(["a", "never"]).tolist() == [1, 0]
