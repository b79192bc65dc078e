"""Magnitude pruning: masks, schedules, training under masks, resuming, plain checkpoints."""

import pytest
import torch
from torch.nn.utils import prune
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, Trainer, TrainingArguments

from hf_ptm_ext import PruningCallback, prune_model, sparsity_report
from hf_ptm_ext.compression import apply_masks, magnitude_masks, prunable_matrices, sparsity_at

SIZES = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
SIZES |= {"num_hidden_layers": 2, "max_position_embeddings": 16}


def model_of(seed=0):
    torch.manual_seed(seed)
    return BertForMaskedLM(BertConfig(**SIZES))


def rows():
    generator = torch.Generator().manual_seed(1)
    found = [torch.randint(5, 40, (8,), generator=generator) for _ in range(24)]
    return [{"input_ids": row, "labels": row} for row in found]


def train(folder, *callbacks, resume=None, **fields):
    args = {"output_dir": str(folder), "max_steps": 10, "per_device_train_batch_size": 4, "learning_rate": 1e-2}
    args |= {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "seed": 3}
    args |= {"logging_steps": 1, "weight_decay": 0.1}
    trainer = Trainer(
        model=model_of(),
        args=TrainingArguments(**{**args, **fields}),
        train_dataset=rows(),
        callbacks=list(callbacks),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.9])
def test_masks_are_those_of_torchs_pruning(sparsity):
    model = model_of()
    matrices = prunable_matrices(model)
    assert not [name for name in matrices if "LayerNorm" in name or "bias" in name]
    assert "cls.predictions.decoder.weight" not in matrices, "tied to the embeddings, which are there"
    for scope in ("matrix", "global"):
        masks = magnitude_masks(matrices, sparsity, scope)
        twin = model_of()
        theirs = [(twin.get_submodule(name.removesuffix(".weight")), "weight") for name in matrices]
        if scope == "global":
            prune.global_unstructured(theirs, prune.L1Unstructured, amount=sparsity)
        else:
            for module, name in theirs:
                prune.l1_unstructured(module, name, amount=sparsity)
        for (module, _), name in zip(theirs, matrices, strict=True):
            assert torch.equal(masks[name], module.weight_mask.bool())


def test_global_pruning_takes_more_of_small_matrices():
    layer = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Linear(10, 10))
    with torch.no_grad():
        layer[1].weight.mul_(100)
    found = sparsity_report(prune_model(layer, 0.5, "global"))
    assert found["0.weight"]["sparsity"] > 0.9
    assert found["total"]["sparsity"] == 0.5


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ("cubic", [0, 1 - 0.75**3, 0.875, 1]),
        ("linear", [0, 0.25, 0.5, 1]),
        ("stepwise", [0, 0.2, 0.4, 1]),
        ("constant", [1, 1, 1, 1]),
    ],
)
def test_schedules(schedule, values):
    found = [sparsity_at(part, 0.8, schedule) for part in (0, 0.25, 0.5, 1)]
    assert found == pytest.approx([0.8 * value for value in values])
    assert sparsity_at(0, 0.8, "cubic", initial=0.2) == pytest.approx(0.2)


@pytest.mark.parametrize("scope", ["matrix", "global"])
def test_training_prunes_by_the_schedule_and_saves_a_plain_checkpoint(tmp_path, scope):
    callback = PruningCallback(0.6, scope, begin=0.2, end=0.8, every=2, exclude=["^cls"])
    trainer = train(tmp_path, callback)
    logged = [log["sparsity"] for log in trainer.state.log_history if "sparsity" in log]
    assert logged == sorted(logged)
    assert (logged[0], logged[-1]) == (0, 0.6)
    report = sparsity_report(trainer.model)
    body = {name: one for name, one in report.items() if name.startswith("bert")}
    size, zeros = (sum(one[key] for one in body.values()) for key in ("size", "zeros"))
    assert zeros / size == pytest.approx(0.6, abs=0.01)
    assert report["cls.predictions.transform.dense.weight"]["zeros"] == 0
    trainer.save_model(str(tmp_path))
    loaded, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert sparsity_report(loaded) == report


def test_pruned_weights_stay_pruned_and_others_move(tmp_path):
    before = prune_model(model_of(), 0.5)
    trainer = train(tmp_path, PruningCallback(0.5, schedule="constant"))
    for name, value in prunable_matrices(trainer.model).items():
        start = before.get_parameter(name)
        assert torch.equal(value == 0, start == 0)
        assert not torch.equal(value, start)


@pytest.mark.parametrize("step", [2, 4, 8])
@pytest.mark.parametrize("scope", ["matrix", "global"])
def test_a_resumed_run_is_the_whole_run(tmp_path, step, scope):
    options = {"save_strategy": "steps", "save_steps": 2}
    whole = train(tmp_path, PruningCallback(0.6, scope, end=0.7, every=3), **options)
    again = train(
        tmp_path, PruningCallback(0.6, scope, end=0.7, every=3), resume=str(tmp_path / f"checkpoint-{step}"), **options
    )
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[name], value, rtol=0, atol=0)


def test_a_checkpoint_of_another_schedule_is_refused(tmp_path):
    train(tmp_path, save_strategy="steps", save_steps=8)
    with pytest.raises(ValueError, match=r"after 8 updates 60.0% of .* must be zero, got"):
        train(tmp_path, PruningCallback(0.6), resume=str(tmp_path / "checkpoint-8"))


def test_masks_of_torchs_pruning_are_applied(tmp_path):
    model = model_of()
    prune.l1_unstructured(model.bert.encoder.layer[0].output.dense, "weight", 0.5)
    names = list(model_of().state_dict())
    assert set(apply_masks(model).state_dict()) == set(names)
    assert sparsity_report(model)["bert.encoder.layer.0.output.dense.weight"]["sparsity"] == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PruningCallback(1.0), r"`sparsity` must be a share in \[0, 1\), got 1.0"),
        (lambda: PruningCallback(0.5, "rows"), "`scope` must be one of matrix, global, got 'rows'"),
        (lambda: PruningCallback(0.5, schedule="slow"), "`schedule` must be one of"),
        (lambda: PruningCallback(0.5, begin=0.9, end=0.1), "rising shares"),
        (lambda: PruningCallback(0.5, initial=0.7), "`initial` must be in"),
        (lambda: PruningCallback(0.5, every=0), "`every` must be at least 1"),
        (lambda: prunable_matrices(model_of(), ["."]), "names them all"),
    ],
)
def test_impossible_options_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_gradual_pruning_keeps_more_than_pruning_at_the_end(tmp_path):
    gradual = train(tmp_path, PruningCallback(0.7, every=5), max_steps=200)
    plain = prune_model(train(tmp_path, max_steps=200).model, 0.7)
    batch = {name: torch.stack([row[name] for row in rows()]) for name in ("input_ids", "labels")}
    with torch.inference_mode():
        losses = [float(model.eval()(**batch).loss) for model in (gradual.model, plain)]
    assert losses[0] < losses[1]
