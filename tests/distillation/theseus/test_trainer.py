"""A run: accumulation, resume, checkpoints, phases, evaluation, and that compression works."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from hf_ptm_ext.distillation import TheseusTrainer
from hf_ptm_ext.distillation.teachers import weights_digest
from hf_ptm_ext.distillation.theseus import draw_replacements, generator_of_step
from tests.distillation.pairs import rows
from tests.distillation.theseus.runs import ROWS, one_update, predecessor, trainer
from tests.trainers.runs import StopAfter

RUN = {
    "max_steps": 6,
    "optim": "adamw_torch",
    "learning_rate": 1e-2,
    "weight_decay": 0.01,
    "save_strategy": "steps",
    "save_steps": 3,
    "warmup_steps": 1,
    "lr_scheduler_type": "linear",
    "steps_for_replacing": 4,
}


def build(folder, **more):
    return trainer(folder, 2, 2, **{"old": predecessor(hidden_dropout_prob=0.1), **RUN, **more})


@pytest.mark.parametrize("head", [False, True])
def test_how_an_update_is_cut_changes_nothing(tmp_path, head):
    before, whole = one_update(tmp_path / "whole", 8, 1, max_steps=2, train_head=head)
    for batch, accumulation in ((2, 4), (1, 8)):
        _, pieces = one_update(tmp_path / f"{batch}", batch, accumulation, max_steps=2, train_head=head)
        moved = 0.0
        for name, value in pieces.wrapper.state_dict().items():
            expected = whole.wrapper.state_dict()[name]
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=3e-7)
            moved = max(moved, (expected - before[name]).abs().max().item())
        assert moved > 3e-5, "a hundred times what may differ"
        losses = [[e["loss"] for e in run.state.log_history if "loss" in e] for run in (whole, pieces)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("kind", ["regression", "multi_label_classification", "labels of tokens"])
def test_accumulation_is_exact_for_every_kind_of_label(tmp_path, kind):
    old = predecessor()
    data = rows(ROWS)
    if kind == "labels of tokens":
        from transformers import BertForTokenClassification

        from tests.distillation.pairs import model

        old = model(BertForTokenClassification, 1, 4, 16)
        for row in data:  # another number of labels in every row
            row["labels"] = torch.where(row["attention_mask"] == 1, row["input_ids"] % 3, -100)
    else:
        old = predecessor(problem_type=kind, num_labels=1 if kind == "regression" else 3)
        for number, row in enumerate(data):
            row["labels"] = torch.tensor(number / 4) if kind == "regression" else torch.eye(3)[number % 3]
    results = []
    for batch, accumulation in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        _, run = one_update(tmp_path / f"{batch}", batch, accumulation, old=old, data=data)
        results.append((run.wrapper.state_dict(), run.state.log_history[0]["loss"]))
    for name, value in results[0][0].items():
        torch.testing.assert_close(results[1][0][name], value, rtol=1e-5, atol=3e-7)
    assert results[1][1] == pytest.approx(results[0][1], rel=1e-4)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    whole = build(tmp_path / "whole")
    whole.train()
    build(tmp_path / "pieces", callbacks=[StopAfter(3)]).train()
    again = build(tmp_path / "pieces")
    again.train(resume_from_checkpoint=True)
    for name, value in whole.wrapper.state_dict().items():
        assert torch.equal(value, again.wrapper.state_dict()[name]), name
    for name in ("loss", "replacing_rate"):
        logged = [[e[name] for e in run.state.log_history if name in e] for run in (whole, again)]
        assert logged[0] == logged[1]


def test_a_checkpoint_is_the_plain_successor(tmp_path):
    run = build(tmp_path)
    run.train()
    folder = tmp_path / "checkpoint-6"
    loaded, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(loaded).__name__ == "BertForSequenceClassification"
    assert loaded.config.num_hidden_layers == 2
    for name, value in run.successor.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    inputs = torch.utils.data.default_collate(rows(ROWS))
    logits = run.wrapper.eval()(**inputs).logits
    assert torch.equal(loaded.eval()(**inputs).logits, logits)
    assert not any("predecessor" in name for name in load_file(folder / "model.safetensors")), (
        "the predecessor is not saved"
    )


def test_a_run_resumes_with_its_own_predecessor_only(tmp_path):
    build(tmp_path).train()
    checkpoint = str(tmp_path / "checkpoint-3")
    other = predecessor(hidden_dropout_prob=0.1)
    other.bert.encoder.layer[3].output.dense.weight.data[0, 0] += 1e-3
    with pytest.raises(ValueError, match="another predecessor"):
        build(tmp_path, old=other).train(resume_from_checkpoint=checkpoint)
    with pytest.raises(ValueError, match="`successor_layers` is 2 there and 1 here"):
        build(tmp_path, successor_layers=1).train(resume_from_checkpoint=checkpoint)
    (tmp_path / "checkpoint-3" / "theseus.json").unlink()
    with pytest.raises(ValueError, match=r"has no theseus\.json"):
        build(tmp_path).train(resume_from_checkpoint=checkpoint)


@pytest.mark.parametrize("greater_is_better", [False, True])
def test_the_best_successor_comes_back(tmp_path, greater_is_better):
    run = build(
        tmp_path,
        eval_strategy="steps",
        eval_steps=3,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=greater_is_better,
        eval_dataset=rows(ROWS),
    )
    run.train()
    losses = {e["step"]: e["eval_loss"] for e in run.state.log_history if "eval_loss" in e}
    step = (max if greater_is_better else min)(losses, key=losses.get)
    assert len(set(losses.values())) == 2
    saved = load_file(tmp_path / f"checkpoint-{step}" / "model.safetensors")
    for name, value in run.successor.state_dict().items():
        assert torch.equal(value, saved[name]), name
    assert run.evaluate()["eval_loss"] == pytest.approx(losses[step], rel=1e-6)


def test_the_predecessor_is_untouched_and_only_layers_move(tmp_path):
    old = predecessor()
    digest = weights_digest(old)
    run = build(tmp_path, old=old)
    before = {name: value.clone() for name, value in run.successor.state_dict().items()}
    run.train()
    assert weights_digest(old) == digest
    moved = {n for n, v in run.successor.state_dict().items() if not torch.equal(v, before[n])}
    assert moved
    assert all(".layer." in name for name in moved)


class Watch(TheseusTrainer):
    """Writes down the choices of every micro-batch."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if not hasattr(self, "seen"):
            self.seen = []
        chosen = [block.replaced for block in self.wrapper.blocks] if model.training else None
        self.seen.append((self.state.global_step, chosen))
        return (loss, outputs) if return_outputs else loss


def test_one_choice_an_update_until_the_successor_trains_alone(tmp_path):
    run = build(tmp_path)
    run.__class__ = Watch
    run.train()
    for step in range(6):
        choices = [chosen for at, chosen in run.seen if at == step]
        rate = 0.5 if step < 4 else 1.0
        assert choices == [draw_replacements(rate, 2, generator_of_step(2, step))] * 2
    rates = [e["replacing_rate"] for e in run.state.log_history if "replacing_rate" in e]
    assert rates == [0.5] * 4 + [1.0] * 2


def test_evaluation_is_of_the_successor_alone(tmp_path):
    run = build(tmp_path, eval_dataset=rows(ROWS))
    run.train()
    inputs = torch.utils.data.default_collate(rows(ROWS))
    with torch.no_grad():
        expected = run.successor.eval()(**inputs)
    found = run.predict(rows(ROWS))
    assert torch.equal(torch.tensor(found.predictions), expected.logits)
    assert found.metrics["test_loss"] == pytest.approx(expected.loss.item(), rel=1e-5)


def test_columns_of_the_successor_are_kept(tmp_path):
    from datasets import Dataset

    data = Dataset.from_list([{n: v.tolist() for n, v in row.items()} | {"text": "x"} for row in rows(ROWS)])
    run = build(tmp_path, data=data.with_format("torch", output_all_columns=False))
    assert set(next(iter(run.get_train_dataloader()))) == {"input_ids", "attention_mask", "token_type_ids", "labels"}


def test_a_trained_predecessor_is_compressed(tmp_path, caplog):
    """Which of two marks comes first: cut to half the layers the model has forgotten it, and learns it back."""
    generator = torch.Generator().manual_seed(0)
    data = []
    for _ in range(256):
        ids = torch.randint(10, 40, (12,), generator=generator)
        places = torch.randperm(12, generator=generator)[:2]
        ids[places] = torch.tensor([5, 6])
        label = int((ids == 5).nonzero() < (ids == 6).nonzero())
        data.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor(label)})
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    old = predecessor(num_labels=2)
    common = {"per_device_train_batch_size": 32, "report_to": "none", "use_cpu": True, "save_strategy": "no",
              "disable_tqdm": True, "learning_rate": 5e-3}  # fmt: skip
    taught = Trainer(old, TrainingArguments(str(tmp_path / "old"), max_steps=300, **common), train_dataset=data)
    taught.train()
    accuracy = (taught.predict(data).predictions.argmax(-1) == torch.stack([r["labels"] for r in data]).numpy()).mean()
    assert accuracy > 0.95
    caplog.clear()
    run = trainer(
        tmp_path / "new", 32, old=old, data=data, max_steps=120, optim="adamw_torch", learning_rate=3e-3,
        steps_for_replacing=0.5, predecessor_check_rows=64, eval_dataset=data, logging_steps=20,
    )  # fmt: skip
    before = run.evaluate()["eval_loss"]
    run.train()
    assert "near chance" not in caplog.text
    after = run.evaluate()["eval_loss"]
    assert after < 0.3 * before
    run.save_model(tmp_path / "successor")
    assert json.loads((tmp_path / "successor" / "config.json").read_text())["num_hidden_layers"] == 2


def test_a_predecessor_that_never_learned_the_task_is_reported(tmp_path, caplog):
    run = build(tmp_path, predecessor_check_rows=8, max_steps=1)
    run.train()
    assert "predecessor is near chance: its accuracy on 8 labels" in caplog.text


def test_a_model_can_be_made_by_a_function(tmp_path):
    run = TheseusTrainer(
        model_init=lambda: predecessor(), args=trainer(tmp_path).args, train_dataset=rows(ROWS),
        data_collator=torch.utils.data.default_collate,
    )  # fmt: skip
    run.train()
    assert run.successor.config.num_hidden_layers == 2


def test_wrong_arguments_are_refused(tmp_path):
    from transformers import TrainingArguments

    with pytest.raises(TypeError, match="must be TheseusArguments"):
        TheseusTrainer(predecessor(), TrainingArguments(str(tmp_path), report_to="none"))
    with pytest.raises(ValueError, match="must divide"):
        trainer(tmp_path, successor_layers=3)
    with pytest.raises(ValueError, match="use_reentrant"):
        trainer(tmp_path, activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": True})


def test_half_of_the_layers_by_default(tmp_path):
    assert trainer(tmp_path, successor_layers=None).successor.config.num_hidden_layers == 2
