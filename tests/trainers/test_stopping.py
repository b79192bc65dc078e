"""What ends a training says so in one error, makes no update of it and saves nothing over the last good checkpoint."""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from transformers import TrainerCallback, TrainingArguments

from hf_ptm_ext.trainers import NotFinite, TrainingStopped, checkpoints, last_complete_checkpoint, stopping
from hf_ptm_ext.trainers.stopping import GuardedUpdates, kept_interruption
from hf_ptm_ext.weights import not_finite
from tests.hub.checkpoints import ROOT
from tests.trainers.every_trainer import BUILDERS, rows, slow_but

NAMES = ("plain", "pretraining", "seq2seq", "multi_task", "distillation", "theseus", "kepler", "wklm", "adapter")


class Spoil(TrainerCallback):
    """Makes the gradient of the update behind a step NaN or infinite, once."""

    def __init__(self, step, value):
        self.step, self.value, self.hook = step, value, None

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            parameter = next(one for one in model.parameters() if one.requires_grad)
            self.hook = parameter.register_hook(lambda gradient: torch.full_like(gradient, self.value))

    def on_step_end(self, args, state, control, **kwargs):
        if self.hook is not None:
            self.hook.remove()


def spoil_loss(trainer, micro_batch):
    """The loss of one micro-batch, counted over the run, is NaN."""
    real, seen = trainer.compute_loss, []

    def compute_loss(model, inputs, return_outputs=False, num_items_in_batch=None):
        found = real(model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch)
        seen.append(1)
        return found * float("nan") if len(seen) == micro_batch and not return_outputs else found

    trainer.compute_loss = compute_loss


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


@pytest.mark.parametrize("name", slow_but("plain", "multi_task", "distillation", names=NAMES))
def test_a_loss_that_is_not_finite_stops_every_trainer(tmp_path, name):
    trainer = BUILDERS[name](tmp_path)
    spoil_loss(trainer, 5)  # two make an update
    told = r"Update 3 of 4 is not finite: the loss is nan \(micro-batch 1 of [12], epoch 0\.\d+, batch 5 of"
    with pytest.raises(NotFinite, match=told) as caught:
        trainer.train()
    assert "input_ids (" in str(caught.value)
    assert "checkpoint-2" in str(caught.value)
    assert isinstance(caught.value, TrainingStopped)
    assert isinstance(caught.value, FloatingPointError)
    assert [folder.name for folder in checkpoints(tmp_path)] == ["checkpoint-2"]
    assert last_complete_checkpoint(tmp_path) is not None
    assert not not_finite(trainer.model.state_dict()), "no update was made of it"


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stops_training(tmp_path, value, max_grad_norm):
    trainer = BUILDERS["plain"](tmp_path, callbacks=[Spoil(2, value)], max_grad_norm=max_grad_norm)
    with pytest.raises(NotFinite, match=r"Update 3 of 4 is not finite: the gradient's norm is (nan|inf)"):
        trainer.train()
    assert not not_finite(trainer.model.state_dict())


@pytest.mark.parametrize("spoilt", ["the loss is nan", "the gradient's norm is inf"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_host_that_looks_later_finds_the_weights_as_they_were_before(tmp_path, monkeypatch, spoilt, precision):
    """As on a GPU, whose host does not wait for an update: the optimizer leaves out this one and those behind it."""
    monkeypatch.setattr(TrainingArguments, "weights", precision, raising=False)
    monkeypatch.setattr(GuardedUpdates, "_defers", True)
    seen = []
    spoil = [Spoil(2, float("inf"))] if "gradient" in spoilt else []
    trainer = BUILDERS["plain"](
        tmp_path, max_steps=9, save_steps=2, logging_steps=100, callbacks=[Remember(seen), *spoil]
    )
    if not spoil:
        spoil_loss(trainer, 5)
    with pytest.raises(NotFinite, match=f"Update 3 of 9 is not finite: {spoilt}"):
        trainer.train()
    assert trainer.state.global_step == 4, "the save behind update 4 looks first"
    assert [folder.name for folder in checkpoints(tmp_path)] == ["checkpoint-2"]
    for name, value in trainer.model.named_parameters():
        assert torch.equal(value, seen[1][name]), "update 2 was the last"
    trainer.remove_callback(Spoil)
    trainer.nonfinite = "skip"
    trainer.train()
    assert any(not torch.equal(value, seen[1][name]) for name, value in trainer.model.named_parameters())


@pytest.mark.parametrize("filtered", [True, False])
def test_upstreams_filter_of_the_log_hides_nothing(tmp_path, filtered):
    trainer = BUILDERS["plain"](tmp_path, logging_nan_inf_filter=filtered)
    spoil_loss(trainer, 1)
    with pytest.raises(NotFinite, match=r"Update 1 of 4.*nothing was saved since the start"):
        trainer.train()


@pytest.mark.parametrize("name", ["plain", "multi_task"])
def test_such_an_update_can_be_left_out(tmp_path, caplog, name):
    trainer = BUILDERS[name](tmp_path, nonfinite="skip", callbacks=[Spoil(1, float("nan"))], logging_steps=2)
    seen = []
    trainer.add_callback(Remember(seen))
    trainer.train()
    assert trainer.state.global_step == 4
    assert trainer.skipped_updates == 1
    assert all(torch.equal(seen[1][one], seen[0][one]) for one in seen[0]), "update 2 changed nothing"
    assert any(not torch.equal(seen[2][one], seen[1][one]) for one in seen[0]), "update 3 did"
    logged = [value for entry in trainer.state.log_history for name, value in entry.items() if name.endswith("loss")]
    assert all(math.isfinite(value) for value in logged)
    assert "Update 2 of 4 is not finite" in caplog.text


def test_a_gradient_of_exactly_nothing_is_told_once(tmp_path, caplog):
    stopping.logger.warning_once.cache_clear()
    trainer = BUILDERS["plain"](tmp_path, logging_steps=1)
    for parameter in trainer.model.parameters():
        parameter.register_hook(torch.zeros_like)
    trainer.train()
    assert caplog.text.count("The gradient of an update is exactly 0") == 1


class Remember(TrainerCallback):
    """Keeps the weights behind every update."""

    def __init__(self, seen):
        self.seen = seen

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.seen.append({name: value.detach().clone() for name, value in model.named_parameters()})


def test_the_choice_comes_from_the_arguments_too(tmp_path):
    args = BUILDERS["plain"](tmp_path).args
    args.nonfinite = "skip"
    from hf_ptm_ext.trainers import PtmTrainer
    from tests.trainers.every_trainer import bert, masking

    assert PtmTrainer(bert(), args, data_collator=masking()).nonfinite == "skip"
    assert PtmTrainer(bert(), args, data_collator=masking(), nonfinite="stop").nonfinite == "stop"
    with pytest.raises(ValueError, match="`nonfinite` must be one of stop, skip, got 'ignore'"):
        PtmTrainer(bert(), args, data_collator=masking(), nonfinite="ignore")


class Ruin(TrainerCallback):
    """An update that makes a weight infinite, as far too large a learning rate does."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            next(one for one in model.parameters() if one.requires_grad).data.view(-1)[0] = float("inf")


def test_ruined_weights_are_not_saved_over_a_good_checkpoint(tmp_path):
    trainer = BUILDERS["plain"](tmp_path, callbacks=[Ruin(4)], save_total_limit=1)
    with pytest.raises(NotFinite, match=r"After update 4 weights are not finite: .*embeddings.*resumes from .*-2"):
        trainer.train()
    assert [folder.name for folder in checkpoints(tmp_path)] == ["checkpoint-2"]


def test_weights_that_the_last_update_ruined_are_told_without_any_checkpoint(tmp_path):
    trainer = BUILDERS["plain"](tmp_path, callbacks=[Ruin(4)], save_strategy="no")
    with pytest.raises(NotFinite, match="After training weights are not finite"):
        trainer.train()


def in_half_precision(monkeypatch, trainer, scale):
    """The real scaler of gradients, on the CPU, where accelerate would not make one."""
    accelerator = trainer.accelerator
    monkeypatch.setattr(accelerator, "native_amp", True)
    monkeypatch.setattr(accelerator.state, "_mixed_precision", "fp16")
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return trainer


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
def test_an_overflow_of_half_precisions_scale_is_the_scalers_own_business(tmp_path, monkeypatch, max_grad_norm):
    """As in the first updates of every such run: the update is left out and the scale halved."""
    trainer = in_half_precision(monkeypatch, BUILDERS["plain"](tmp_path, max_grad_norm=max_grad_norm), 2.0**127)
    trainer.train()
    assert trainer.state.global_step == 4
    assert trainer.accelerator.scaler.get_scale() == 2.0**123
    assert trainer.skipped_updates == 0


@pytest.mark.parametrize(("scale", "spoilt"), [(1.0, "the gradient"), (2.0**16, "the loss is nan")])
def test_what_no_scale_mends_stops_half_precision_too(tmp_path, monkeypatch, scale, spoilt):
    callbacks = [Spoil(2, float("inf"))] if spoilt == "the gradient" else []
    trainer = in_half_precision(monkeypatch, BUILDERS["plain"](tmp_path, callbacks=callbacks), scale)
    if not callbacks:
        spoil_loss(trainer, 5)
    with pytest.raises(NotFinite, match=f"Update 3 of 4 is not finite: {spoilt}"):
        trainer.train()


# ---- dead workers ----


class Deadly(torch.utils.data.Dataset):
    """Its eighteenth row ends the worker that reads it, as the system does for want of memory."""

    def __init__(self, kill):
        self.found, self.kill = rows(), kill

    def __len__(self):
        return len(self.found)

    def __getitem__(self, number):
        if number == 17 and torch.utils.data.get_worker_info() is not None:
            os.kill(os.getpid(), self.kill)
            time.sleep(5)
        return self.found[number]


def train_until_the_worker_dies(folder, kill):
    """In a process of its own: torch's handler raises wherever the interpreter is when a worker dies."""
    trainer = BUILDERS["plain"](
        folder,
        dataloader_num_workers=1,
        gradient_accumulation_steps=1,
        max_steps=20,
        save_steps=1,
        train_sampling_strategy="sequential",
    )
    trainer.train_dataset = Deadly(kill)
    try:
        trainer.train()
    except TrainingStopped as error:
        print(f"STOPPED {error}")


@pytest.mark.parametrize("kill", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_killed_worker_is_one_error_and_leaves_a_checkpoint(tmp_path, kill):
    call = f"train_until_the_worker_dies({str(tmp_path)!r}, {int(kill)})"
    words = [sys.executable, "-c", f"from tests.trainers.test_stopping import train_until_the_worker_dies; {call}"]
    process = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    # A line of the log may have been cut short by it.
    told = process.stdout.partition("STOPPED ")[2]
    assert told, process.stderr
    assert re.search(r"DataLoader worker \(pid.*resumes from .*checkpoint-\d", told)
    newest = last_complete_checkpoint(tmp_path)
    assert str(newest) in told
    again = BUILDERS["plain"](tmp_path, gradient_accumulation_steps=1, max_steps=6)
    again.args.train_sampling_strategy = "sequential"
    again.train_dataset = Deadly(kill)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 6


class Importing(TrainerCallback):
    """Torch's handler raised in an import: transformers makes another error of it."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            dead = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
            raise ModuleNotFoundError("Could not import module 'AutoModel'.") from dead


def test_a_dead_worker_is_told_whatever_error_was_made_of_it(tmp_path):
    trainer = BUILDERS["plain"](tmp_path, callbacks=[Importing()])
    with pytest.raises(TrainingStopped, match=r"DataLoader worker .* is killed.*resumes from the start"):
        trainer.train()


# ---- Ctrl-C ----


def test_an_interruption_that_somebody_swallowed_comes_again():
    def swallow():
        with kept_interruption() as pressed:
            with contextlib.suppress(KeyboardInterrupt):  # as in a destructor
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
            assert pressed

    with pytest.raises(KeyboardInterrupt):
        swallow()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Swallow(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)


def test_training_ends_at_the_next_step_then(tmp_path):
    trainer = BUILDERS["plain"](tmp_path, callbacks=[Swallow()])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.state.global_step == 1


INTERRUPTED = """
import sys, time
import torch
from tests.trainers.every_trainer import BUILDERS, rows
from transformers import TrainerCallback, TrainingArguments


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, number):
        time.sleep(0.01)
        return rows()[number]


class Say(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        print("STEP", state.global_step, flush=True)


trainer = BUILDERS["plain"](sys.argv[1], dataloader_num_workers=2, max_steps=100000, save_steps=3, callbacks=[Say()])
trainer.train_dataset = Rows()
try:
    trainer.train()
except KeyboardInterrupt:
    print("INTERRUPTED", flush=True)
    raise SystemExit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize("steps", [4, 5, 6, 7, 9])
def test_ctrl_c_reaches_a_run_with_workers(tmp_path, steps):
    """To the whole group of processes, as a terminal sends it, at several places of the run."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        for line in process.stdout:
            if line.startswith(f"STEP {steps}"):
                break
        time.sleep(0.013 * steps)
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(timeout=600) == 130
    finally:
        process.kill()
    assert "INTERRUPTED" in rest
    assert last_complete_checkpoint(tmp_path) is not None
