"""The Hub is asked before training, no fault of it stops one, every failed push is told, the last one in one line."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from hf_ptm_ext.trainers.pushes import push_command, reason_of
from tests.hub.checkpoints import ROOT
from tests.hub.loopback_hub import running

# The Hub's faults: status and message by what is asked of it.
REFUSED = {
    "commit": {"commit": (403, "Forbidden: you may not write here")},
    "preupload": {"preupload": (403, "Forbidden: you may not write here")},
    "gone": {"commit": (404, "RepoNotFound")},
    "broken": {"commit": (400, "Bad request")},
    "upload": {"lfs_upload": (400, "BadChecksum")},
}

RUN = """
import sys
from tests.trainers.every_trainer import BUILDERS
from hf_ptm_ext.trainers import PushFailed
trainer = BUILDERS["plain"](
    sys.argv[1], push_to_hub=True, hub_model_id="tester/refused", hub_token="hf_OfTheUser0123456789", save_steps=1,
    max_steps=2, hub_always_push=True,
)
trainer.train()
print("TRAINED", trainer.state.global_step)
try:
    trainer.push_to_hub()
except PushFailed as error:
    print("SAID", error)
"""


def run(script, folder, hub, **environment):
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "out")],
        env={**os.environ, **hub.environment(folder / "home"), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    "fault", [name if name == "commit" else pytest.param(name, marks=pytest.mark.slow) for name in REFUSED]
)
def test_a_refused_push_is_told_and_stops_nothing(tmp_path, fault):
    with running() as hub:
        hub.state.faults.update(REFUSED[fault])
        printed, told = run(RUN, tmp_path, hub)
    assert "TRAINED 2" in printed
    assert told.count("A push to tester/refused failed, training goes on: ") == 2
    assert "2 of 2 pushes in training failed" in told
    (said,) = [line for line in printed.splitlines() if line.startswith("SAID")]
    assert said.startswith(
        f"SAID Training is complete and the model lies in {tmp_path / 'out'}, but it was not pushed"
    )
    assert "Push it with: hf upload tester/refused" in said
    assert "hf_OfTheUser" not in printed + told
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert not list((tmp_path / "out").glob("_*")), "nothing is left of the pushes"


BEFORE = """
import sys
from tests.trainers.every_trainer import BUILDERS
trainer = BUILDERS["plain"](sys.argv[1], push_to_hub=True, hub_model_id="tester/refused", {more})
print("BUILT")
try:
    trainer.train()
except ValueError as error:
    print("SAID", error)
print("TRAINED", trainer.state.global_step)
"""


@pytest.mark.parametrize(
    ("fault", "more", "reason"),
    [
        ({"create": (403, "Forbidden")}, "", "403 Forbidden"),
        pytest.param({"whoami": (401, "Invalid token")}, "", "Invalid user token", marks=pytest.mark.slow),
        pytest.param(None, "hub_revision='release'", "RevisionNotFound", marks=pytest.mark.slow),
        pytest.param(None, "hub_revision=None", None, marks=pytest.mark.slow),
    ],
)
def test_the_hub_is_asked_before_training(tmp_path, fault, more, reason):
    with running() as hub:
        if fault is not None:
            hub.state.faults.update(fault)
        printed, _ = run(BEFORE.format(more=more), tmp_path, hub)
    if reason is None:
        assert "TRAINED 4" in printed
        return
    assert "TRAINED 0" in printed
    (said,) = [line for line in printed.splitlines() if line.startswith("SAID")]
    assert "the Hub does not take pushes to `hub_model_id` = tester/refused" in said
    assert reason in said


PREDICT = """
import sys
from tests.trainers.every_trainer import BUILDERS, rows
trainer = BUILDERS["plain"](sys.argv[1], push_to_hub=True, hub_model_id="tester/scoring")
trainer.predict([dict(row) for row in rows(4)])
trainer.evaluate([dict(row) for row in rows(4)])
"""


@pytest.mark.slow
def test_a_trainer_that_only_predicts_leaves_the_hub_alone(tmp_path):
    with running() as hub:
        run(PREDICT, tmp_path, hub)
        assert not hub.state.log


@pytest.mark.slow
def test_the_command_of_the_message_pushes_all_but_the_pickle(tmp_path):
    """The advice is taken as it is written."""
    folder = tmp_path / "the model"
    (folder / "checkpoint-2").mkdir(parents=True)
    (folder / "_runs").mkdir()
    for name in ("config.json", "training_args.bin", "checkpoint-2/optimizer.pt", "_runs/job.json", "README.md"):
        (folder / name).write_text("{}", encoding="utf-8")
    with running() as hub:
        words = shlex.split(push_command("tester/by-hand", folder))
        program = os.path.join(os.path.dirname(sys.executable), words[0])
        subprocess.run(
            [program, *words[1:]],
            env={**os.environ, **hub.environment(tmp_path / "home")},
            check=True,
            capture_output=True,
            timeout=600,
        )
        assert {"config.json", "README.md"} <= set(hub.files("tester/by-hand"))
        assert not [name for name in hub.files("tester/by-hand") if re.search("training_args|optimizer|job", name)]


def test_a_reason_is_one_line_without_secrets():
    error = RuntimeError("Error while uploading 'x' to the Hub.")
    error.__cause__ = ConnectionError("http://me:PASSWORD@host:80 refused\n(id 3)")
    assert reason_of(error) == "Error while uploading 'x' to the Hub: http://***@host:80 refused (id 3)."
    assert reason_of(ValueError("Illegal header value b'Bearer swordfish\\n'"), ["swordfish"]).count("***") == 1
    assert len(reason_of(ValueError("x" * 5000))) < 400
