"""`hf-ptm-ext pretrain` with models and parameters beside the plain one: saved, resumed, gone on with, packed."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.pretrain import Pretrain, parse
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.trainers.auxiliary import AUXILIARY_FILE
from tests.cli.jobs import TINY, flags, read_metrics

ELECTRA = {"objective": "electra", "config_overrides": f"{TINY},embedding_size=16", "generator_size": 0.5}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job") / "electra"
    assert main(["pretrain", *flags(output_dir=folder, save_total_limit=3, save_steps=1, **ELECTRA)]) == 0
    return folder


def test_the_folder_is_the_plain_discriminator_with_its_generator_inside(finished, capsys):
    model = AutoModelForPreTraining.from_pretrained(finished)
    generator = AutoModelForMaskedLM.from_pretrained(finished / "generator")
    assert (type(model).__name__, generator.config.hidden_size) == ("ElectraForPreTraining", 16)
    ours, theirs = model.get_input_embeddings().weight, generator.get_input_embeddings().weight
    assert torch.equal(ours, theirs), "the generator's embeddings are the discriminator's"
    assert not any(name.startswith("model.") for name in load_file(finished / AUXILIARY_FILE))
    assert main(["verify", str(finished)]) == 0
    assert "OK" in capsys.readouterr().out


def test_the_terms_are_measured_and_told(finished):
    metrics = read_metrics(finished)
    assert metrics["before_loss"] == pytest.approx(metrics["before_mlm_loss"] + 50 * metrics["before_rtd_loss"])
    assert metrics["eval_rtd_targets"] > metrics["eval_mlm_targets"] > 0
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert "a head that tells replaced tokens" in card
    assert "masked-language-model head" not in card
    validate_model_card(finished)


def test_micro_batches_add_up_to_the_loss_of_the_update(tmp_path):
    asked = {**ELECTRA, "gradient_accumulation_steps": 4, "max_steps": 1, "per_device_train_batch_size": 2}
    assert main(["pretrain", *flags(output_dir=tmp_path, **asked)]) == 0
    log = json.loads((tmp_path / "trainer_state.json").read_text("utf-8"))["log_history"]
    first = next(entry for entry in log if "loss" in entry)
    assert first["loss"] == pytest.approx(first["mlm_loss"] + 50 * first["rtd_loss"], rel=1e-4)
    assert first["rtd_loss"] == pytest.approx(0.69, abs=0.05)  # log 2


def test_a_resumed_run_is_the_uninterrupted_one(finished, tmp_path):
    folder = tmp_path / "electra"
    shutil.copytree(finished / "checkpoint-1", folder / "checkpoint-1")
    asked = {"output_dir": folder, "resume_from_checkpoint": folder / "checkpoint-1", "overwrite": True, **ELECTRA}
    assert main(["pretrain", *flags(**asked)]) == 0
    for name in ("model.safetensors", AUXILIARY_FILE, "generator/model.safetensors"):
        ours, theirs = load_file(folder / name), load_file(finished / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_next_run_goes_on_with_what_lies_beside_the_checkpoint(finished, tmp_path, caplog):
    asked = {**ELECTRA, "config_overrides": None, "vocab_size": None, "model_name_or_path": finished}
    assert main(["pretrain", *flags(output_dir=tmp_path / "more", **asked)]) == 0
    assert "Parameters go on beside" in caplog.text
    before = read_metrics(tmp_path / "more")["before_mlm_loss"]
    assert before == pytest.approx(read_metrics(finished)["eval_mlm_loss"], rel=1e-4)
    # Packed, a generator of a folder of its own, and one that does not fit.
    asked |= {"pack_rows": True, "row_length": 96, "generator_name_or_path": finished / "generator"}
    assert main(["pretrain", *flags(output_dir=tmp_path / "packed", **asked)]) == 0
    assert read_metrics(tmp_path / "packed")["before_rtd_loss"] > 0


def test_what_is_no_electra_is_refused_by_name(finished, tmp_path, capsys):
    asked = {**ELECTRA, "config_overrides": TINY, "family": "bert", "output_dir": tmp_path / "no"}
    assert main(["pretrain", *flags(**asked)]) == 2
    assert "Objective electra trains ELECTRA models, got a bert model." in capsys.readouterr().err


def test_infoword_trains_any_masked_language_model(finished, tmp_path, capsys):
    asked = {"objective": "infoword", "max_ngram_length": 4, "ngrams_per_row": 2}
    assert main(["pretrain", *flags(output_dir=tmp_path / "bert", **asked)]) == 0
    metrics = read_metrics(tmp_path / "bert")
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_mlm_loss"] + metrics["eval_dim_loss"])
    assert metrics["before_dim_targets"] > 0
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "bert")
    assert type(model).__name__ == "BertForMaskedLM"
    assert not (tmp_path / "bert" / AUXILIARY_FILE).exists()
    validate_model_card(tmp_path / "bert")
    assert main(["pretrain", *flags(output_dir=tmp_path / "packed", pack_rows=True, **asked)]) == 2
    assert "`pack_rows` needs a model that keeps the sequences of a row apart" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("length", "share", "most"), [(128, 0.15, 19), (512, 0.15, 79), (64, 0.15, 9), (128, 0.25, 32)]
)
def test_the_most_draws_are_those_of_the_code(tmp_path, length, share, most):
    asked = {**ELECTRA, "max_seq_length": length, "mlm_probability": share, "output_dir": tmp_path}
    assert Pretrain(*parse(flags(**asked))).objective.collator_options(None)["max_predictions"] == most


def test_draws_with_replacement_are_those_of_the_code(tmp_path):
    asked = {**ELECTRA, "with_replacement": True, "mlm_probability": 0.4, "pack_rows": True}
    job = Pretrain(*parse(flags(output_dir=tmp_path, **asked)))
    job.prepare()
    trainer, _ = job.build("model", job.training_args)
    assert trainer.data_collator.budget == "electra"
    trainer.train()
    first = trainer.state.log_history[0]
    assert first["loss"] == pytest.approx(first["mlm_loss"] + 50 * first["rtd_loss"], rel=1e-4)
    assert first["mlm_loss"] == pytest.approx(6, abs=0.2)  # log 400


@pytest.mark.parametrize("recipe", ["electra.yaml", "electra_small.yaml"])
def test_recipes_run_on_real_text(recipe, tmp_path):
    asked = {"per_device_train_batch_size": 2, "max_train_rows": None, "bf16": False, "torch_compile": False}
    asked |= {"config_overrides": ELECTRA["config_overrides"], "max_seq_length": None, "warmup_steps": 0}
    assert main(["pretrain", recipe, *flags(output_dir=tmp_path / "out", **asked)]) == 0
    assert (tmp_path / "out" / "generator" / "config.json").is_file()
