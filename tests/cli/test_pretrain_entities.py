"""`hf-ptm-ext pretrain --objective ernie_thu`: entities found by name are denoised, the folder is whole."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import AutoModelForPreTraining, AutoProcessor

from hf_ptm_ext import EntityTable
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.pretrain import Pretrain, parse
from hf_ptm_ext.data import embedded_corpus
from tests.cli.jobs import flags, read_metrics

NAMES = (
    "model",
    "models",
    "language",
    "data",
    "network",
    "networks",
    "method",
    "methods",
    "task",
    "tasks",
    "training",
)
SETTINGS = {
    "objective": "ernie_thu",
    "vocab_size": 600,
    "max_seq_length": 96,
    "min_entities": 2,
    "save_strategy": "no",
    "config_overrides": "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64,"
    "entity_num_attention_heads=4",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A text of papers, and vectors of names in it; singular and plural are one entity."""
    folder = tmp_path_factory.mktemp("table")
    ids = sorted({name.rstrip("s") for name in NAMES})
    titles = [(name, name.rstrip("s")) for name in NAMES]
    vectors = np.random.default_rng(0).normal(size=(len(ids), 16)).astype(np.float32)
    EntityTable.from_arrays(vectors, ids, titles).save(folder / "with.safetensors")
    EntityTable.from_arrays(vectors, ids).save(folder / "without.safetensors")
    text = "\n\n".join("\n".join(document) for document in embedded_corpus("en")[:150])
    (folder / "text.txt").write_text(text, encoding="utf-8")
    (folder / "titles.tsv").write_text("".join(f"{name}\t{one}\n" for name, one in titles), encoding="utf-8")
    return folder


def run(output, table, **options):
    files = {"entity_table": table / "with.safetensors", "train_file": table / "text.txt"}
    values = {**SETTINGS, **files, **options}
    return main(["pretrain", *flags(output_dir=output, **values)])


def test_a_run_measures_all_terms_and_its_folder_links_and_reads_text(tmp_path, table, capsys):
    assert run(tmp_path / "out", table) == 0
    assert "entities" in capsys.readouterr().out
    metrics = read_metrics(tmp_path / "out")
    for term in ("mlm", "nsp", "entity"):
        assert metrics[f"eval_{term}_targets"] > 0
        assert np.isfinite(metrics[f"eval_{term}_loss"])
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "ernie_thu"
    assert config["entity_hidden_size"] == 16
    assert config["entity_embeddings_source"]["path"] == "entity_table.safetensors"

    processor = AutoProcessor.from_pretrained(tmp_path / "out")
    model = AutoModelForPreTraining.from_pretrained(tmp_path / "out").eval()
    inputs = processor(["we propose a model of language"], return_tensors="pt")
    assert (inputs["entity_ids"] != 0).sum() == 2  # found by the dictionary in the folder
    with torch.no_grad():
        seen, unseen = model(**inputs), model(inputs["input_ids"])  # the table in the folder is opened by itself
    assert not torch.equal(seen.prediction_logits, unseen.prediction_logits)


def test_packed_rows_hold_the_same_pairs_and_measure_all_terms(tmp_path, table):
    found = {}
    for name, packed in (("apart", "false"), ("packed", "true")):
        files = {"entity_table": table / "with.safetensors", "train_file": table / "text.txt"}
        values = {**SETTINGS, **files, "pack_rows": packed, "row_length": 192 if packed == "true" else None}
        values = {key: value for key, value in values.items() if value is not None}
        job = Pretrain(*parse(flags(output_dir=tmp_path / name, max_steps=2, max_train_rows=5000, **values)))
        job.prepare()
        trainer, _ = job.build(*job.variants, job.training_args)
        found[name] = trainer.train_dataset, trainer.eval_dataset
        assert trainer.train().training_loss > 0
    pairs = Counter((tuple(row["input_ids"]), tuple(row["entity_ids"])) for rows in found["apart"] for row in rows)
    inside: Counter = Counter()
    for row in (row for rows in found["packed"] for row in rows):
        owners = np.array(row["sequence_ids"])
        assert len(owners) == 192
        assert sum(label != -100 for label in row["next_sentence_label"]) == owners.max()
        for number in range(1, owners.max() + 1):
            inside[tuple(tuple(np.array(row[name])[owners == number]) for name in ("input_ids", "entity_ids"))] += 1
    assert sum(inside.values()) == sum(pairs.values()) > len(found["packed"][0])
    assert inside == pairs


def test_titles_may_come_in_a_file_and_the_rows_of_a_resumed_run_are_the_same(tmp_path, table):
    options = {
        "entity_table": table / "without.safetensors",
        "entity_titles": table / "titles.tsv",
        "save_strategy": "steps",
        "max_steps": 4,
    }
    assert run(tmp_path / "through", table, **options) == 0
    assert run(tmp_path / "resumed", table, **options) == 0
    (tmp_path / "resumed" / "model.safetensors").unlink()
    checkpoint = tmp_path / "resumed" / "checkpoint-2"
    assert run(tmp_path / "resumed", table, **options, resume_from_checkpoint=checkpoint) == 0
    first, second = (
        AutoModelForPreTraining.from_pretrained(tmp_path / name).state_dict() for name in ("through", "resumed")
    )
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, msg=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"entity_table": None}, "`entity_table` goes with objective ernie_thu"),
        ({"objective": "mlm"}, "`entity_table` goes with objective ernie_thu"),
        ({"min_entities": 500}, "`min_entities` = 500 leaves no row"),
        ({"streaming": True}, "set streaming off"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, table, capsys, options, message):
    assert run(tmp_path / "out", table, **options) == 2
    assert message in capsys.readouterr().err


def test_a_table_without_titles_asks_for_them(tmp_path, table, capsys):
    assert run(tmp_path / "out", table, entity_table=table / "without.safetensors") == 2
    assert "`entity_titles` must be named" in capsys.readouterr().err


def test_the_recipe_parses():
    _, _, objective, training = parse(["ernie_thu.yaml", "--entity_table", "table.safetensors"])
    assert objective.objective == "ernie_thu"
    assert objective.min_entities == 5
    assert training.lr_scheduler_type == "constant_with_warmup"


@pytest.mark.slow
def test_entities_are_learnt(tmp_path, table):
    """Which of the batch's entities stood here: far better after training, and not from the entity itself alone."""
    options = {"train_file": None, "max_train_rows": None, "max_eval_rows": 200, "max_steps": 100}
    options |= {"learning_rate": 2e-3, "per_device_train_batch_size": 16}
    assert run(tmp_path / "out", table, **options) == 0
    metrics = read_metrics(tmp_path / "out")
    assert metrics["eval_entity_loss"] < metrics["before_entity_loss"] - 0.5
    assert metrics["eval_entity_accuracy"] > metrics["before_entity_accuracy"] + 0.3
    assert run(tmp_path / "masked", table, **options, entity_mask_prob=1.0, entity_replace_prob=0.0) == 0
    masked = read_metrics(tmp_path / "masked")
    assert masked["eval_entity_loss"] > 1.3 * metrics["eval_entity_loss"], "the given entities tell too"
