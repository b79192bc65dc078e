"""A checkpoint that is not as it was written is told and never resumed from; a resumed run is the same to the bit."""

import json
import logging
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.trainers import PtmTrainer, checkpoints, last_complete_checkpoint, manifest
from hf_ptm_ext.trainers.manifest import MANIFEST, damage_of, write_manifest
from tests.trainers.every_trainer import BUILDERS, CLASSES, bert, plain, rows, slow_but
from tests.trainers.runs import StopAfter


def weights(run):
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def losses(run):
    terms = [{key: value for key, value in entry.items() if key.endswith("loss")} for entry in run.state.log_history]
    return [entry for entry in terms if "loss" in entry]


def assert_same(one, other):
    expected = weights(other)
    for name, value in weights(one).items():
        assert torch.equal(value, expected[name]), name
    assert losses(one) == losses(other)


# ---- exact resume of every Trainer ----


class Entropy:
    """Gives the collators of two runs the same fresh entropy; a third Trainer has its own, and must restore it."""

    def __init__(self, monkeypatch, first):
        import numpy as np

        self.first, self.np = first, np
        self.number = 0
        real = np.random.SeedSequence

        def sequence(entropy=None, **options):
            if entropy is None:
                self.number += 1
                entropy = self.first + self.number
            return real(entropy, **options)

        monkeypatch.setattr(np.random, "SeedSequence", sequence)

    def restart(self, first):
        self.first, self.number = first, 0


@pytest.mark.parametrize("name", slow_but("upstream_collator", "multi_task", "kepler"))
def test_a_killed_run_ends_with_the_bits_and_masks_of_a_whole_one(tmp_path, monkeypatch, name):
    """Collators with fresh entropy, dropout, accumulation, a loader that reads ahead; killed after step 2."""
    entropy = Entropy(monkeypatch, 100)
    whole = BUILDERS[name](tmp_path / "whole")
    whole.train()
    entropy.restart(100)
    BUILDERS[name](tmp_path / "pieces", callbacks=[StopAfter(2)]).train()
    entropy.restart(900)
    again = BUILDERS[name](tmp_path / "pieces")
    again.train(resume_from_checkpoint=True)
    assert_same(again, whole)


def test_evaluation_in_between_takes_no_masks_from_training(tmp_path, monkeypatch):
    entropy = Entropy(monkeypatch, 100)
    build = plain(PtmTrainer, model=lambda: bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    whole = build(tmp_path / "whole")
    whole.train()
    entropy.restart(100)
    evaluated = build(tmp_path / "evaluated", eval_strategy="steps", eval_steps=1, eval_dataset=rows(8))
    evaluated.train()
    assert losses(evaluated) == losses(whole)
    found = [entry["eval_loss"] for entry in evaluated.state.log_history if "eval_loss" in entry]
    evaluated.model.load_state_dict(weights(whole))
    assert evaluated.evaluate()["eval_loss"] == found[-1]


# ---- damage ----


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    BUILDERS["kepler"](folder).train()
    return folder


@pytest.fixture
def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


FILES = (
    *("model.safetensors", "auxiliary_heads.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"),
    *("data_state_0.json", "trainer_state.json", "config.json"),
)


def remove(path):
    path.unlink()


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


def alter(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {remove: "it has no", cut: "bytes", empty: "has 0 bytes", alter: "content differs"}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("file", FILES)
def test_damage_is_told_and_the_newest_intact_checkpoint_is_taken(copied, caplog, file, damage):
    damage(copied / "checkpoint-4" / file)
    caplog.set_level(logging.WARNING, logger="hf_ptm_ext")
    assert last_complete_checkpoint(copied) == copied / "checkpoint-2"
    assert "checkpoint-4 is passed over" in caplog.text
    assert file in caplog.text
    assert DAMAGES[damage] in caplog.text


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("file", ["optimizer.pt", "rng_state.pth", "data_state_0.json"])
def test_a_damaged_checkpoint_that_is_named_is_refused(copied, file, damage):
    damage(copied / "checkpoint-2" / file)
    with pytest.raises(
        ValueError, match=rf"`resume_from_checkpoint` = .*checkpoint-2 is damaged: (it has no )?{file}"
    ):
        BUILDERS["kepler"](copied).train(resume_from_checkpoint=str(copied / "checkpoint-2"))


def test_a_resumed_run_after_damage_is_the_whole_run(tmp_path):
    whole = BUILDERS["pretraining"](tmp_path / "whole")
    whole.train()
    shutil.copytree(tmp_path / "whole", tmp_path / "pieces")
    alter(tmp_path / "pieces" / "checkpoint-4" / "optimizer.pt")
    again = BUILDERS["pretraining"](tmp_path / "pieces")
    again.train(resume_from_checkpoint=True)
    saved = load_file(tmp_path / "whole" / "checkpoint-4" / "model.safetensors")
    for name, value in load_file(tmp_path / "pieces" / "checkpoint-4" / "model.safetensors").items():
        assert torch.equal(value, saved[name])
    assert damage_of(tmp_path / "pieces" / "checkpoint-4") is None, "written again, whole again"


def test_no_intact_checkpoint_is_none(copied, caplog):
    for folder in checkpoints(copied):
        (folder / "scheduler.pt").unlink()
    assert last_complete_checkpoint(copied) is None
    with pytest.raises(ValueError, match="no complete checkpoint"):
        BUILDERS["kepler"](copied).train(resume_from_checkpoint=True)


@pytest.mark.parametrize("content", ["", "{}", '{"files": 3}', '{"files": {"../x": {"size": 1, "sha256": ""}}}', "[]"])
def test_a_damaged_manifest_is_damage(copied, content):
    (copied / "checkpoint-4" / MANIFEST).write_text(content, encoding="utf-8")
    assert MANIFEST in damage_of(copied / "checkpoint-4")


def test_a_checkpoint_without_a_manifest_was_interrupted(copied):
    (copied / "checkpoint-4" / MANIFEST).unlink()
    assert last_complete_checkpoint(copied).name == "checkpoint-2"


def test_cards_and_pickled_arguments_may_change(copied):
    (copied / "checkpoint-4" / "README.md").write_text("written later", encoding="utf-8")
    (copied / "checkpoint-4" / "training_args.bin").unlink()
    assert last_complete_checkpoint(copied).name == "checkpoint-4"


@pytest.mark.parametrize("name", slow_but("adapter", "theseus", names=CLASSES))
def test_every_trainer_lists_every_file_that_it_resumes_from(tmp_path, name):
    BUILDERS[name](tmp_path, max_steps=2).train()
    folder = tmp_path / "checkpoint-2"
    listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there - set(listed) <= {MANIFEST, "training_args.bin", "README.md"}
    assert damage_of(folder) is None


class Killed(BaseException):
    """As a signal that ends the process."""


def test_the_last_intact_checkpoint_is_there_until_the_next_one_is_complete(tmp_path, monkeypatch):
    """`save_total_limit=1`: upstream removes the old one before anything says that the new one is complete."""

    def write(folder):
        if folder.name == "checkpoint-4":
            raise Killed
        write_manifest(folder)

    monkeypatch.setattr(manifest, "write_manifest", write)
    with pytest.raises(Killed):
        BUILDERS["plain"](tmp_path, save_total_limit=1).train()
    assert last_complete_checkpoint(tmp_path).name == "checkpoint-2"


def test_old_checkpoints_are_removed_and_arguments_kept(tmp_path):
    run = BUILDERS["plain"](tmp_path, save_total_limit=1)
    run.train()
    assert [folder.name for folder in checkpoints(tmp_path)] == ["checkpoint-4"]
    assert run.args.save_total_limit == 1
    saved = torch.load(tmp_path / "checkpoint-4" / "training_args.bin", weights_only=False)
    assert saved.save_total_limit == 1


def test_weights_alone_cannot_be_resumed_from(tmp_path):
    BUILDERS["plain"](tmp_path, save_only_model=True).train()
    assert last_complete_checkpoint(tmp_path).name == "checkpoint-4"
    with pytest.raises(ValueError, match=r"has no data_state_0\.json: it was saved with `save_only_model`"):
        BUILDERS["plain"](tmp_path, max_steps=6).train(resume_from_checkpoint=True)


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/dev/full"), reason="needs a full device")
def test_a_full_disk_is_one_error_that_names_the_checkpoint(tmp_path, monkeypatch):
    """The optimiser's file is the device that is always full."""
    run = BUILDERS["plain"](tmp_path)
    real = run._save_optimizer_and_scheduler

    def save(folder):
        if folder.endswith("checkpoint-4"):
            os.symlink("/dev/full", os.path.join(folder, "optimizer.pt"))
        real(folder)

    monkeypatch.setattr(run, "_save_optimizer_and_scheduler", save)
    with pytest.raises(OSError, match=r"The checkpoint .*checkpoint-4 could not be written"):
        run.train()
    assert last_complete_checkpoint(tmp_path).name == "checkpoint-2"
