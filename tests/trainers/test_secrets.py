"""A token goes to the Hub's client and nowhere else: no file, no push, no log, no message has it."""

import copy
import logging
import os
import pickle
import subprocess
import sys

import pytest
import torch
from transformers import TrainingArguments

from tests.hub.checkpoints import ROOT, run_script
from tests.hub.loopback_hub import running
from tests.trainers.every_trainer import BUILDERS, CLASSES, TOKEN, slow_but

SECRETS = (TOKEN, "hf_loopback", "wandb-secret-key", "PASSWORD")


QUICK = ("plain", "multi_task", "adapter")


@pytest.fixture(scope="module")
def pushed(tmp_path_factory):
    """By a Trainer's name: the Hub to which it pushed at each save and at the end, its folder, what was printed."""
    done = {}
    with running() as hub:

        def of(name):
            names = QUICK if name in QUICK else tuple(other for other in CLASSES if other not in QUICK)
            if names not in done:
                folder = tmp_path_factory.mktemp("runs")
                run = subprocess.run(
                    [sys.executable, "-m", "tests.trainers.every_trainer", str(folder), *names],
                    env={
                        **os.environ,
                        **hub.environment(tmp_path_factory.mktemp("home")),
                        "WANDB_API_KEY": "wandb-secret-key",
                    },
                    cwd=ROOT,
                    capture_output=True,
                    text=True,
                    timeout=600,
                    check=False,
                )
                assert run.returncode == 0, run.stderr[-3000:]
                done[names] = folder, run.stdout + run.stderr
            folder, printed = done[names]
            return hub, folder / name, printed

        yield of


@pytest.mark.parametrize("name", slow_but(*QUICK, names=CLASSES))
def test_nothing_that_a_trainer_pushes_writes_or_prints_has_the_token(pushed, name):
    hub, folder, printed = pushed(name)
    assert not [secret for secret in SECRETS if secret in printed]
    commits = hub.state.repositories["model", f"tester/{name}"].commits
    titles = [commit.title for commit in commits]
    assert "End of training" in titles
    assert "Training in progress, step 2" in titles
    paths = {path for commit in commits for path in commit.files}
    assert {"checkpoint-2/optimizer.pt", "checkpoint-4/checkpoint_manifest.json"} <= paths
    assert not [path for path in paths if path.endswith("training_args.bin")]
    for commit in commits:
        for path, content in commit.files.items():
            assert not [secret for secret in SECRETS if secret.encode() in content], path
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "training_args.bin" for path in written)
    for path in written:
        assert not [secret for secret in SECRETS if secret.encode() in path.read_bytes()], path


def test_the_pickled_arguments_have_no_token_and_those_in_use_have_it(tmp_path):
    trainer = BUILDERS["plain"](tmp_path, hub_token=TOKEN, lr_scheduler_kwargs={"api_key": "sesame"})
    trainer.save_model(str(tmp_path / "saved"))
    saved = torch.load(tmp_path / "saved" / "training_args.bin", weights_only=False)
    assert saved.hub_token is None
    assert saved.lr_scheduler_kwargs == {"api_key": None}
    assert trainer.args.hub_token == TOKEN
    assert trainer.args.lr_scheduler_kwargs == {"api_key": "sesame"}
    for copied in (copy.copy(trainer.args), copy.deepcopy(trainer.args)):
        assert copied.hub_token == TOKEN
    assert TOKEN not in repr(trainer.args) + str(trainer.args)
    assert TOKEN.encode() not in pickle.dumps(trainer.args)


def test_a_token_that_is_set_later_is_not_pickled_either(tmp_path):
    trainer = BUILDERS["multi_task"](tmp_path)
    trainer.args.hub_token = TOKEN
    trainer.args.run_name = "https://me:PASSWORD@tracker.example/runs"
    trainer.save_model(str(tmp_path / "saved"))
    saved = torch.load(tmp_path / "saved" / "training_args.bin", weights_only=False)
    assert (saved.hub_token, saved.run_name) == (None, "https://***@tracker.example/runs")


def test_arguments_are_the_same_for_whoever_holds_them(tmp_path):
    args = TrainingArguments(str(tmp_path), hub_token=TOKEN, use_cpu=True)
    before = args.to_dict()
    BUILDERS["plain"](tmp_path)  # another Trainer's arguments are left alone
    assert type(args.hub_token) is str
    assert args.to_dict() == before


@pytest.mark.slow
def test_the_address_of_the_hub_is_shown_without_its_password(tmp_path):
    """Nobody listens there: the check before training, and the log, name the address."""
    script = (
        "from tests.trainers.every_trainer import BUILDERS\n"
        f"trainer = BUILDERS['plain']({str(tmp_path)!r}, push_to_hub=True)\n"
        "try:\n    trainer.train()\nexcept ValueError as error:\n    print('SAID', error)\n"
        "import logging, traceback\nlogging.getLogger('x').warning('to %s', 'http://me:PASSWORD@127.0.0.1:9')\n"
    )
    printed = run_script(
        "import sys\nsys.stderr = sys.stdout\n" + script,
        hidden=False,
        HF_ENDPOINT="http://me:PASSWORD@127.0.0.1:9",
        HF_TOKEN="hf_loopback",
        HF_HOME=str(tmp_path / "home"),
        HF_HUB_OFFLINE="0",
    )
    assert "SAID `push_to_hub`: the Hub does not take pushes" in printed
    assert "PASSWORD" not in printed


def test_log_records_lose_their_secrets(monkeypatch, caplog):
    from hf_ptm_ext import redaction

    monkeypatch.setenv("HF_TOKEN", "hf_loopback")
    plain = logging.getLogRecordFactory()
    redaction.redact_log_records()
    try:
        logging.getLogger("elsewhere").warning("%s to %s", "hf_loopback", "http://me:PASSWORD@host/x")
        try:
            raise OSError("hf_loopback was refused")
        except OSError:
            logging.getLogger("elsewhere").exception("failed")
    finally:
        logging.setLogRecordFactory(plain)
        monkeypatch.setattr(redaction, "_plain_factory", None)
    assert "*** to http://***@host/x" in caplog.text
    assert "OSError: *** was refused" in caplog.text
