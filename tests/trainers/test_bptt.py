"""The state of a batch goes on in the next one: in training, in evaluations between, and behind a checkpoint."""

import pytest
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, TrainerCallback, TrainingArguments
from transformers.modeling_outputs import ModelOutput

from hf_ptm_ext import BpttTrainer, ContiguousStreams, DataCollatorForBackpropagationThroughTime
from hf_ptm_ext.objectives.token_losses import label_smoothed_loss
from hf_ptm_ext.trainers import last_complete_checkpoint

GENERATOR = torch.Generator().manual_seed(0)
TEXT = [torch.randint(1, 20, (40,), generator=GENERATOR).tolist() for _ in range(8)]


class Reader(PreTrainedModel):
    """An LSTM whose state is a tuple of pairs."""

    config_class = PreTrainedConfig
    carried_state = "state"

    def __init__(self, config):
        super().__init__(config)
        self.embed, self.rnn, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 20)
        self.seen = []
        self.post_init()

    def forward(self, input_ids, labels=None, shift_labels=None, state=None, num_items_in_batch=None):
        self.seen.append((self.training, None if state is None else state[0][0].clone(), input_ids.shape[1]))
        out, state = self.rnn(self.embed(input_ids), None if state is None else state[0])
        logits, loss = self.head(out), None
        if shift_labels is not None:
            loss = label_smoothed_loss(logits, shift_labels, num_items_in_batch)
        return ModelOutput(loss=loss, logits=logits, state=(state,))


class Stop(TrainerCallback):
    """Stops training behind a checkpoint."""

    def __init__(self, step):
        self.step = step

    def on_save(self, args, state, control, **kwargs):
        control.should_training_stop = control.should_training_stop or state.global_step == self.step


def run(folder, *, stop=None, cls=Reader, streams=None, options=None, **arguments):
    """A Trainer of new data and a new model."""
    torch.manual_seed(0)
    arguments = {"num_train_epochs": 2, "save_steps": 1, "learning_rate": 0.05, **arguments}
    args = TrainingArguments(
        str(folder),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=2,
        report_to="none",
        use_cpu=True,
        logging_steps=1,
        disable_tqdm=True,
        **arguments,
    )
    return BpttTrainer(
        cls(PreTrainedConfig()),
        args,
        train_dataset=ContiguousStreams(TEXT, 4, 16, variable=True, shuffle=True) if streams is None else streams,
        eval_dataset=ContiguousStreams(TEXT[:2], 2, 16),
        data_collator=DataCollatorForBackpropagationThroughTime(),
        callbacks=[Stop(stop)] if stop else [],
        **(options or {}),
    )


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_state_goes_on_within_an_epoch_and_evaluations_have_their_own(tmp_path, accumulation):
    trainer = run(tmp_path, eval_strategy="steps", eval_steps=1, gradient_accumulation_steps=accumulation)
    trainer.train()
    training = [state for train, state, _ in trainer.model.seen if train]
    batches = len(trainer.train_dataset) // 4
    assert batches == 6
    assert len(training) == 2 * batches
    assert [state is None for state in training] == 2 * [True, *[False] * (batches - 1)]
    assert not any(state is not None and state.requires_grad for state in training)
    evaluating = [state is None for train, state, _ in trainer.model.seen if not train]
    assert evaluating == [True, False, False] * (len(evaluating) // 3)  # 39 targets of each stream in 16 + 16 + 8
    # What one call over the whole evaluation streams says.
    metrics, rows = trainer.evaluate(), trainer.eval_dataset
    ids = torch.tensor([[t for s in range(0, len(rows), 2) for t in rows[s + i]["input_ids"]] for i in range(2)])
    labels = torch.tensor([[t for s in range(0, len(rows), 2) for t in rows[s + i]["labels"]] for i in range(2)])
    whole = trainer.model.eval()(ids, shift_labels=labels).loss.item()
    assert metrics["eval_lm_loss"] == pytest.approx(whole, rel=1e-5)
    assert metrics["eval_lm_targets"] == 79
    assert metrics["eval_loss"] == metrics["eval_lm_loss"]


@pytest.mark.parametrize("stop", [3, 6, 9])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, stop):
    whole = run(tmp_path / "whole")
    whole.train()
    assert whole.state.max_steps == 12
    run(tmp_path / "pieces", stop=stop).train()
    last = run(tmp_path / "pieces")
    last.train(resume_from_checkpoint=True)
    for (name, value), other in zip(whole.model.state_dict().items(), last.model.state_dict().values(), strict=True):
        torch.testing.assert_close(other, value, rtol=0, atol=0, msg=name)
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert [entry["loss"] for entry in last.state.log_history if "loss" in entry] == losses


def test_a_checkpoint_without_the_state_and_other_misfits_are_refused(tmp_path):
    run(tmp_path, stop=1).train()
    checkpoint = last_complete_checkpoint(tmp_path)
    (checkpoint / "carried_state_0.pt").unlink()
    with pytest.raises(ValueError, match=r"carried_state_0\.pt"):
        run(tmp_path).train(resume_from_checkpoint=str(checkpoint))
    (checkpoint / "checkpoint_manifest.json").unlink()
    with pytest.raises(ValueError, match=r"of 3"):
        run(tmp_path, streams=ContiguousStreams(TEXT, 3, 16))
    with pytest.raises(ValueError, match="carries no state"):
        run(tmp_path, cls=type("Other", (Reader,), {"carried_state": None}))


def test_rates_follow_the_lengths(tmp_path):
    """Plain SGD: an update's size is proportional to its length."""
    trainer = run(
        tmp_path, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0, options={"scale_learning_rate": True}
    )
    rates, lengths = [], []

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, *args, **kwargs):
            rates.append(trainer.optimizer.param_groups[0]["lr"])
            lengths.append(trainer.model.seen[-1][2])

    trainer.add_callback(Watch())
    trainer.train()
    assert rates == pytest.approx([0.05 * length / 16 for length in lengths])
    assert len(set(lengths)) > 3
    assert trainer.optimizer.param_groups[0]["lr"] == 0.05
