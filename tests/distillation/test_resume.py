"""Checkpoints: a resumed run is the uninterrupted one, the best model comes back, the student loads by itself."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from hf_ptm_ext.distillation import PRESET_NAMES
from tests.distillation.pairs import pair, rows, trainer
from tests.trainers.runs import StopAfter

RUN = {
    "max_steps": 4,
    "optim": "adamw_torch",
    "learning_rate": 1e-2,
    "save_strategy": "steps",
    "save_steps": 2,
    "warmup_steps": 1,
    "lr_scheduler_type": "linear",
}


def build(folder, preset, **more):
    """A run with dropout in the student, two micro-batches an update."""
    models = pair(preset, hidden_dropout_prob=0.1)
    return trainer(folder, preset, 2, 2, models=models, **{**RUN, **more})


def assert_resumes(folder, preset):
    whole = build(folder / "whole", preset)
    whole.train()
    build(folder / "pieces", preset, callbacks=[StopAfter(2)]).train()
    again = build(folder / "pieces", preset)
    again.train(resume_from_checkpoint=str(folder / "pieces" / "checkpoint-2"))
    expected = whole.wrapper.state_dict()
    for name, value in again.wrapper.state_dict().items():
        assert torch.equal(value, expected[name]), name
    terms = [{name: entry[name] for name in entry if name.endswith("loss")} for entry in whole.state.log_history]
    assert [entry for entry in terms if "loss" in entry] == [
        {name: entry[name] for name in entry if name.endswith("loss")}
        for entry in again.state.log_history
        if "loss" in entry
    ]


@pytest.mark.parametrize("preset", ["tinybert-intermediate", "mobilebert"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, preset):
    assert_resumes(tmp_path, preset)


@pytest.mark.slow
@pytest.mark.parametrize("preset", sorted(set(PRESET_NAMES) - {"tinybert-intermediate", "mobilebert"}))
def test_every_preset_resumes_exactly(tmp_path, preset):
    assert_resumes(tmp_path, preset)


def test_a_checkpoint_is_the_plain_student_and_its_projections(tmp_path):
    run = build(tmp_path, "tinybert-intermediate")
    run.train()
    folder = tmp_path / "checkpoint-4"
    loaded, missing = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not missing["missing_keys"]
    assert not missing["unexpected_keys"]
    for name, value in run.student.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert {
        name: tuple(value.shape) for name, value in load_file(folder / "distill_projections.safetensors").items()
    } == {
        "terms.hidden.fit_dense.weight": (24, 16),
        "terms.hidden.fit_dense.bias": (24,),
    }
    build(tmp_path / "none", "tinybert-prediction").train()
    assert not list((tmp_path / "none").rglob("distill_projections*")), "nothing to save, nothing saved"


def test_a_checkpoint_without_its_projections_is_refused(tmp_path):
    build(tmp_path, "tinybert-intermediate").train()
    (tmp_path / "checkpoint-2" / "distill_projections.safetensors").unlink()
    with pytest.raises(ValueError, match="distill_projections"):
        build(tmp_path, "tinybert-intermediate").train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_a_second_stage_starts_from_the_first_ones_projections(tmp_path):
    """TinyBERT: general distillation, then the task's, with one `fit_dense`."""
    first = build(tmp_path / "general", "tinybert-general")
    first.train()
    first.save_model()
    second = trainer(tmp_path / "task", "tinybert-intermediate", projections_from=str(tmp_path / "general"))
    own = second.wrapper.auxiliary_state_dict()
    for name, value in first.wrapper.auxiliary_state_dict().items():
        assert torch.equal(own[name], value), name
    with pytest.raises(ValueError, match="`projections_from` must be a folder with distill_projections"):
        trainer(tmp_path / "task", "tinybert-intermediate", projections_from=str(tmp_path / "task"))
    with pytest.raises(ValueError, match="exactly the auxiliary parameters"):
        trainer(tmp_path / "task", "tinybert-prediction", projections_from=str(tmp_path / "general"))


@pytest.mark.parametrize("greater_is_better", [False, True])
def test_the_best_model_comes_back_with_its_projections(tmp_path, greater_is_better):
    """By the lowest or the highest loss, so that one of both is not the last."""
    best = build(
        tmp_path,
        "tinybert-intermediate",
        eval_strategy="steps",
        eval_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=greater_is_better,
        eval_dataset=rows("tinybert-intermediate"),
    )
    best.train()
    losses = {entry["step"]: entry["eval_loss"] for entry in best.state.log_history if "eval_loss" in entry}
    step = (max if greater_is_better else min)(losses, key=losses.get)
    assert len(set(losses.values())) == 2
    folder = tmp_path / f"checkpoint-{step}"
    saved = {f"model.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    saved |= load_file(folder / "distill_projections.safetensors")
    for name, value in best.wrapper.state_dict().items():
        assert torch.equal(value, saved[name]), name
