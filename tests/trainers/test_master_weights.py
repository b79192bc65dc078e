"""Weights in bfloat16 learn as float32 ones do, since their optimizer keeps float32 copies."""

import pytest
import torch
from transformers import TrainingArguments

from hf_ptm_ext.cli.pretrain_arguments import PretrainingArguments
from hf_ptm_ext.data import pretraining_dataset
from hf_ptm_ext.trainers import MasterAdamW, last_complete_checkpoint, layerwise_parameter_groups
from hf_ptm_ext.trainers.master_weights import round_weights
from tests.trainers.every_trainer import BUILDERS, bert, slow_but
from tests.trainers.runs import trainer

NAMES = ("plain", "pretraining", "seq2seq", "multi_task", "distillation", "theseus", "kepler", "wklm", "adapter")


def batch():
    ids = torch.arange(5, 37).reshape(4, 8)
    return {"input_ids": ids, "labels": ids}


def half_bert():
    model = bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    round_weights(model)
    return model


def test_masters_are_float32_and_the_very_weights_that_were_rounded():
    whole, model = bert(), half_bert()
    optimizer = MasterAdamW(model.parameters(), lr=0.1, fused=True)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert len(optimizer.masters) == len(list(model.parameters())), "one of tied weights"
    for master, weight in zip(optimizer.masters, whole.parameters(), strict=True):
        assert master.dtype == torch.float32
        assert torch.equal(master, weight)
    for weight in (other := half_bert()).parameters():
        weight.data.mul_(2.0)  # read from a file, say
    for master, weight in zip(MasterAdamW(other.parameters()).masters, other.parameters(), strict=True):
        assert torch.equal(master, weight.float())


def test_updates_too_small_for_bfloat16_add_up():
    weights = [torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16)) for _ in range(2)]
    ours = MasterAdamW(weights[:1], lr=1e-4, weight_decay=0.0)
    plain = torch.optim.AdamW(weights[1:], lr=1e-4, weight_decay=0.0)
    for _ in range(100):
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        ours.step()
        plain.step()
    assert torch.equal(weights[1], torch.ones(8)), "each is lost"
    assert torch.allclose(ours.masters[0], torch.tensor(0.99), atol=1e-6)
    assert torch.equal(weights[0], ours.masters[0].bfloat16())
    assert weights[0][0] < 1


@pytest.mark.parametrize("fused", [True, False])
def test_an_update_is_that_of_float32_weights_with_the_same_gradient(fused):
    """In groups of their own rates, without one that is frozen, with a float32 one, and after a reload."""
    whole, model = bert(), half_bert()
    kept, frozen = model.cls.predictions.bias, model.bert.embeddings.position_embeddings.weight
    kept.data = kept.data.float()
    before = frozen.clone()

    def optimizer(of, cls):
        groups = layerwise_parameter_groups(of, 1e-2, factor=2.0, weight_decay=0.1)
        return cls(groups, betas=(0.8, 0.9), fused=fused), [weight for group in groups for weight in group["params"]]

    (ours, halves), (theirs, wholes) = optimizer(model, MasterAdamW), optimizer(whole, torch.optim.AdamW)
    for number in range(6):
        for half, one in zip(halves, wholes, strict=True):
            half.grad = None if half is frozen else torch.randn_like(half)
            one.grad = None if half is frozen else half.grad.float()
        ours.step()
        theirs.step()
        ours.zero_grad()
        assert all(weight.grad is None for weight in halves)
        if number == 2:
            state, (ours, _) = ours.state_dict(), optimizer(model, MasterAdamW)
            ours.load_state_dict(state)
    for half, master, one in zip(halves, ours.masters, wholes, strict=True):
        assert torch.equal(master, one)
        assert torch.equal(half, one.to(half.dtype))
    assert {one.dtype for state in ours.state.values() for one in state.values()} == {torch.float32}
    assert torch.equal(frozen, before)
    assert kept.dtype == torch.float32
    assert kept.any(), "it began as zeros"


def test_an_update_that_the_device_found_wrong_is_left_out():
    model = half_bert()
    optimizer = MasterAdamW(model.parameters(), lr=1e-2, fused=True)
    model(**batch()).loss.backward()
    optimizer.step()
    before = [one.clone() for one in (*model.parameters(), *optimizer.masters)]
    optimizer.grad_scale, optimizer.found_inf = None, torch.ones(())
    next(model.parameters()).grad.fill_(float("nan"))
    optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(before, (*model.parameters(), *optimizer.masters), strict=True))
    assert {int(state["step"]) for state in optimizer.state.values()} == {1}


def test_it_learns_what_float32_weights_learn(tmp_path, documents, tokenizer):
    losses = {}
    for weights in ("fp32", "bf16"):
        rows = pretraining_dataset(documents, tokenizer, max_seq_length=32)
        run = trainer(tmp_path / weights, rows, tokenizer, max_steps=60, weights=weights, save_strategy="no")
        run.args.logging_steps = 20
        run.train()
        losses[weights] = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.01)
    assert losses["bf16"][-1] < losses["bf16"][0] - 0.5


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, documents, tokenizer):
    def run(name, **options):
        rows = pretraining_dataset(documents, tokenizer, max_seq_length=32)
        return trainer(tmp_path / name, rows, tokenizer, weights="bf16", gradient_accumulation_steps=2, **options)

    whole = run("whole")
    whole.train()
    run("pieces", stop=2).train()
    last = run("pieces")
    last.train(resume_from_checkpoint=str(last_complete_checkpoint(tmp_path / "pieces")))
    for one, other in ((whole.optimizer.optimizer, last.optimizer.optimizer),):
        assert all(torch.equal(*pair) for pair in zip(one.masters, other.masters, strict=True))
        assert any(not torch.equal(master, master.bfloat16()) for master in other.masters)
        assert {value.dtype for state in other.state.values() for value in state.values()} == {torch.float32}
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, last.model.state_dict()[name])


@pytest.mark.parametrize("name", slow_but("plain", "adapter", names=NAMES))
def test_every_trainer_trains_them(tmp_path, monkeypatch, name):
    monkeypatch.setattr(TrainingArguments, "weights", "bf16", raising=False)
    run = BUILDERS[name](tmp_path)
    before = {name: weight.clone() for name, weight in run.model.named_parameters() if weight.requires_grad}
    run.train()
    assert isinstance(run.optimizer.optimizer, MasterAdamW)
    trained = dict(run.model.named_parameters())
    assert {weight.dtype for weight in trained.values()} == {torch.bfloat16}
    assert any(not torch.equal(trained[name], weight) for name, weight in before.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fp16": True}, "`weights` = bf16 does not go with `fp16` = True"),
        ({"deepspeed": "x.json"}, "`weights` = bf16 does not go with `deepspeed` = x.json"),
        ({"optim": "adafactor"}, "torch's AdamW .*, got `optim` = adafactor"),
        ({"use_cpu": False}, "`weights` = bf16 needs a GPU that has bf16"),
    ],
)
def test_what_does_not_go_with_them_is_named(tmp_path, monkeypatch, options, message):
    monkeypatch.setattr("hf_ptm_ext.cli.arguments.find_spec", lambda name: name)
    monkeypatch.setattr("hf_ptm_ext.cli.arguments.is_torch_bf16_gpu_available", lambda: False)
    with pytest.raises(ValueError, match=message):
        PretrainingArguments(**{"output_dir": str(tmp_path), "weights": "bf16", "use_cpu": True, **options})
    given = PretrainingArguments(output_dir=str(tmp_path), weights="bf16", bf16=True, use_cpu=True)
    assert not given.bf16, "nothing is cast, all is bfloat16"
