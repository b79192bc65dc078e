"""What jobs push: nothing secret, asked for before training; one that fails is told, and everything else is there."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.jobs import ROOT
from tests.cli.test_loading import JOBS, polar, words  # noqa: F401 - a fixture
from tests.hub.loopback_hub import running

TOKEN = "hf_nobodyMayEverSeeThisOneAnywhere1234"
RUN_ALL = """
import gc, json, sys
from hf_ptm_ext.cli import main
codes = [main(one) for one in json.loads(sys.argv[1])]
assert gc.isenabled() and gc.get_freeze_count() > 100_000, "the libraries are left out of the search for garbage"
print(codes)
"""


def run_jobs(hub, home, *lines, **environment):
    """Exit codes of command lines in one process with a Hub of its own, and all that was printed."""
    process = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(lines)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **hub.environment(home), **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.strip().splitlines()[-1]), process.stdout + process.stderr


def pushing(job, polar, output, name=None):  # noqa: F811
    model = polar / ("bert" if job == "pretrain" else "classification")
    line = words(job, model, polar, output)
    line[line.index("--save_strategy") + 1] = "steps"
    return [*line, "--save_steps", "1", "--push_to_hub", "true", "--hub_model_id", f"tester/{name or job}"]


@pytest.fixture(scope="module")
def pushed(polar, tmp_path_factory):  # noqa: F811
    """Every job, pushed with a token of its own: the Hub, the folders, what was printed."""
    folder = tmp_path_factory.mktemp("pushed")
    lines = [[*pushing(job, polar, folder / job), "--hub_token", TOKEN] for job in JOBS]
    stage = {"job": "finetune", "recipe": None, "task": "classification", "hub_token": TOKEN, "push_to_hub": True}
    stage |= {
        "train_file": str(polar / "rows.tsv"),
        "test_file": str(polar / "rows.tsv"),
        "hub_model_id": "tester/stage",
    }
    stage |= {"seeds": 0, "max_steps": 1, "use_cpu": True, "report_to": "none", "max_seq_length": 16}
    chain = ["stages", "--stages", json.dumps({"one": stage}), "--output_dir", str(folder / "stages")]
    lines.append([*chain, "--model_name_or_path", str(polar / "classification")])
    with running() as hub:
        host = hub.base.replace("://", "://somebody:PASSWORD@")
        codes, printed = run_jobs(hub, folder / "home", *lines, HF_ENDPOINT=host)
        assert codes == [0] * len(lines), printed[-3000:]
        yield hub, folder, printed


@pytest.mark.parametrize("job", [*JOBS, "stages"])
def test_no_job_writes_prints_or_pushes_a_secret(pushed, job):
    hub, folder, printed = pushed
    secrets = (TOKEN, "hf_loopback", "PASSWORD")
    assert not [secret for secret in secrets if secret in printed]
    for path in (folder / job).rglob("*"):
        if path.is_file():
            assert not [secret for secret in secrets if secret.encode() in path.read_bytes()], path
    names = {"multitask": "multitask-one", "stages": "stage"}
    repository = hub.state.repositories["model", f"tester/{names.get(job, job)}"]
    files = repository.commits[-1].files
    weights = repository.commits[-2]
    card = files["README.md"].decode()
    assert f'revision="{weights.sha}"' in card, "the snippets load the commit that has the weights"
    assert f'"tester/{names.get(job, job)}"' in card
    assert 'revision="COMMIT"' not in card
    assert "recipe.yaml" not in files, "it has paths of this machine"
    assert {"adapter_config.json" if job == "adapt" else "config.json", "README.md"} <= files.keys()
    for commit in repository.commits:
        assert not [path for path in commit.files if path.endswith("training_args.bin") or path.startswith("_")]
        for path, content in commit.files.items():
            assert not [secret for secret in secrets if secret.encode() in content], path


def test_a_push_that_fails_at_the_end_loses_nothing_and_says_what_pushes_it(polar, tmp_path):  # noqa: F811
    jobs = ("finetune", "multitask", "pretrain")
    with running() as hub:
        hub.state.faults["commit"] = (403, "You have exceeded your quota")
        codes, printed = run_jobs(hub, tmp_path / "home", *(pushing(job, polar, tmp_path / job) for job in jobs))
    assert codes == [2, 2, 2]
    assert "Traceback" not in printed
    told = [line for line in printed.splitlines() if ": error: " in line]
    for job, line in zip(jobs, told, strict=True):
        folder = tmp_path / job / "one" if job == "multitask" else tmp_path / job
        assert f"Training is complete and the model lies in {folder}" in line
        assert "exceeded your quota" in line
        assert "hf upload tester/" in line
        assert (folder / "model.safetensors").is_file()
        assert (folder / "README.md").is_file()
        assert (folder / ("all_results.json" if job == "pretrain" else "results.json")).is_file()


@pytest.mark.slow
def test_the_hub_is_asked_before_anything_is_trained(polar, tmp_path):  # noqa: F811
    jobs = [job for job in JOBS if job != "pretrain"]
    with running() as hub:
        hub.state.faults["create"] = (403, "This token may not write")
        codes, printed = run_jobs(hub, tmp_path / "home", *(pushing(job, polar, tmp_path / job) for job in jobs))
    assert codes == [2] * len(jobs)
    assert printed.count("may not write") == len(jobs)
    assert "'train_runtime'" not in printed
    assert not [job for job in jobs if (tmp_path / job).exists()]
