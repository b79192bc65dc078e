"""The output folder of a job: one job at a time, nothing left by a start that fails, nothing lost, changes told."""

import errno
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file, save_file

from hf_ptm_ext.cli import main, runs
from tests.cli.jobs import ROOT
from tests.cli.test_loading import JOBS, polar, words  # noqa: F401 - a fixture


def error(capfd):
    return capfd.readouterr().err.strip().splitlines()[-1]


def contents(folder):
    """Every file and what is in it."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} if folder.exists() else None


# ---- a start that fails ----

WRONG = {
    "finetune": ("--label_column", "nowhere"),
    "adapt": ("--methods", "houlsby", "--leave_out", "99"),
    "multitask": ("--tasks.one.label_column", "nowhere"),
    "distill": ("--student_layers", "99"),
    "pretrain": ("--max_seq_length", "4096"),
    "finetune-relations": ("--wordnet_senses", "nowhere"),
}


@pytest.mark.parametrize("kind", ["option", "model"])
@pytest.mark.parametrize("job", JOBS)
def test_a_failed_start_leaves_nothing_and_the_corrected_command_runs(polar, tmp_path, capfd, job, kind):  # noqa: F811
    output, model = tmp_path / "new" / "out", polar / ("bert" if job == "pretrain" else "classification")
    wrong = words(job, model, polar, output)
    if kind == "option":
        wrong += WRONG[job]
    else:
        wrong = [str(polar / "nowhere") if word == str(model) else word for word in wrong]
    assert main(wrong) == 2
    assert not (tmp_path / "new").exists()
    assert main(words(job, model, polar, output)) == 0
    capfd.readouterr()
    # What is there is neither written over nor lost by another mistake.
    before = contents(output)
    assert main([*wrong, "--overwrite", "true"]) == 2
    assert contents(output) == before
    assert main(words(job, model, polar, output)) == 2
    assert "is not empty" in error(capfd)
    assert contents(output) == before


# ---- two jobs ----

# What the folder does is the same for all; each is a process of its own.
IN_A_PROCESS = ["finetune", pytest.param("pretrain", marks=pytest.mark.slow)]


def started(command, tmp_path):
    """A job in a process of its own that has begun to train."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hf_ptm_ext", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.DEVNULL,
        stderr=open(tmp_path / "err.txt", "w", encoding="utf-8"),  # noqa: SIM115 - the process has it
        stdin=subprocess.DEVNULL,
    )
    lock = tmp_path / "out" / "_lock.json"
    end = time.time() + 120
    while time.time() < end and process.poll() is None and not (lock.is_file() and lock.read_text(encoding="utf-8")):
        time.sleep(0.05)
    assert process.poll() is None, (tmp_path / "err.txt").read_text(encoding="utf-8")
    return process


@pytest.mark.parametrize("job", IN_A_PROCESS)
def test_a_folder_is_one_jobs_until_that_ends_however_it_ends(polar, tmp_path, capfd, job):  # noqa: F811
    model = polar / ("bert" if job == "pretrain" else "classification")
    command = words(job, model, polar, tmp_path / "out")
    process = started([*command, "--max_steps", "100000"], tmp_path)
    try:
        assert main(command) == 2
        said = error(capfd)
        assert f"process {process.pid} on " in said
        assert "in use by another job" in said
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / "out" / "_lock.json").is_file()  # a stale one
    assert main(command) == 0
    assert not (tmp_path / "out" / "_lock.json").exists()


# ---- a run that goes on must be the one that began ----

CHANGES = {
    "learning rate": ("--learning_rate", "1e-3"),
    "batch": ("--per_device_train_batch_size", "4"),
    "accumulation": ("--gradient_accumulation_steps", "2"),
    "weight decay": ("--weight_decay", "0.5"),
    "length": ("--max_seq_length", "12"),
}


def begun(polar, folder, job):  # noqa: F811
    """A job that is through, and its words for going on."""
    model = folder / "model"
    model.mkdir()
    for path in (polar / ("bert" if job == "pretrain" else "classification")).iterdir():
        if path.is_file():
            (model / path.name).write_bytes(path.read_bytes())
    command = [word for word in words(job, model, polar, folder / "out") if word not in ("--save_strategy", "no")]
    command += ["--save_strategy", "steps", "--save_steps", "1", "--save_total_limit", "1"]
    assert main(command) == 0
    return [*command, "--resume_from_checkpoint", "auto"]


@pytest.fixture(scope="module", params=["finetune", "pretrain"])
def run(request, polar, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp(request.param)
    return begun(polar, folder, request.param), folder


@pytest.mark.parametrize("change", [*CHANGES, "seed", "probability", "data", "model"])
def test_a_changed_run_is_refused_by_name_unless_it_is_meant(run, polar, capfd, change):  # noqa: F811
    command, folder = run
    seeded = command[0] == "finetune"
    file = folder / "model" / "model.safetensors"
    named = CHANGES.get(change, (f"--{change}",))[0]
    weights = load_file(file)
    data = polar / ("rows.tsv" if seeded else "plain.txt")
    text = data.read_bytes()
    if change == "seed":
        more = () if seeded else ("--seed", "7")
    elif change == "probability":
        more, named = ("--mlm_probability", "0.3"), "mlm_probability"
    else:
        more = CHANGES.get(change, ())
    if seeded and change in ("seed", "probability"):
        return  # seeds may be added, and there is no probability
    try:
        if change == "model":
            name = "bert.embeddings.LayerNorm.weight"
            save_file({**weights, name: weights[name] * 1.5}, file, {"format": "pt"})
            named = "model_name_or_path"
        if change == "data":
            data.write_bytes(text.replace(b"nice", b"rice", 1))
            named = "data" if seeded else "train_file"
        assert main([*command, *more]) == 2
        said = error(capfd)
        assert named.strip("-") in said
        assert "--accept_changes" in said
    finally:
        save_file(weights, file, {"format": "pt"})
        data.write_bytes(text)
    assert main(command) == 0


def test_what_does_not_decide_the_result_may_change(run, tmp_path):
    command, folder = run
    assert main([*command, "--logging_steps", "7", "--license", "mit", "--save_total_limit", "3"]) == 0
    moved = folder.with_name(f"{folder.name}-moved")
    folder.rename(moved)
    try:
        assert main([word.replace(str(folder), str(moved)) for word in command]) == 0
    finally:
        moved.rename(folder)


def test_changes_that_are_meant_are_told(run, caplog):
    command, _ = run
    assert main([*command, "--learning_rate", "1e-3", "--accept_changes", "true"]) == 0
    assert "goes on with changes: learning_rate = 0.001" in caplog.text


@pytest.mark.parametrize("more", [(), ("--resume_from_checkpoint", "auto")], ids=["anew", "auto"])
@pytest.mark.parametrize("job", IN_A_PROCESS)
def test_a_run_that_was_killed_before_it_had_saved_anything_is_in_nobodys_way(polar, tmp_path, job, more):  # noqa: F811
    model = polar / ("bert" if job == "pretrain" else "classification")
    command = words(job, model, polar, tmp_path / "out")
    process = started([*command, "--max_steps", "100000"], tmp_path)
    while job == "finetune" and process.poll() is None and not (tmp_path / "out" / "_runs" / "job.json").is_file():
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main([*command, "--learning_rate", "1e-3", *more]) == 0


def test_the_record_of_a_run_is_work_once_it_is_whole(tmp_path):
    (tmp_path / runs.RUNS).mkdir()
    (tmp_path / runs.RUNS / "seed0_1.json.partial").touch()
    assert not runs.has_work(tmp_path)
    (tmp_path / runs.RUNS / "seed0_1.json").touch()
    assert runs.has_work(tmp_path)


def test_a_failed_start_removes_nothing_of_others(polar, tmp_path):  # noqa: F811
    (tmp_path / "out" / "other").mkdir(parents=True)
    wrong = [*words("finetune", polar / "classification", polar, tmp_path / "out"), "--overwrite", "true"]
    wrong += ["--label_column", "nowhere"]
    (tmp_path / "out" / "notes.txt").write_text("mine", encoding="utf-8")
    assert main(wrong) == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"other", "notes.txt"}


def test_a_file_system_without_locks_is_told_and_used(polar, tmp_path, caplog, monkeypatch):  # noqa: F811
    def no_locks(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(runs.fcntl, "lockf", no_locks)
    assert main(words("finetune", polar / "classification", polar, tmp_path / "out")) == 0
    assert "has no locks" in caplog.text


def test_an_option_that_is_also_the_name_of_a_folder_is_that_option(polar, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    command = words("finetune", polar / "classification", polar, "classification")
    assert main(command) == 0
    assert main([*command, "--resume_from_checkpoint", "auto"]) == 0


def test_a_run_that_was_killed_while_it_wrote_its_first_checkpoint_begins_again(polar, tmp_path, capfd):  # noqa: F811
    checkpoint = tmp_path / "out" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}", encoding="utf-8")
    command = words("pretrain", polar / "bert", polar, tmp_path / "out")
    assert main(command) == 2  # it may be that of an older version
    assert "is not empty" in error(capfd)
    assert main([*command, "--resume_from_checkpoint", "auto"]) == 0


def test_data_that_are_meant_to_change_may_change(polar, tmp_path, caplog):  # noqa: F811
    command = begun(polar, tmp_path, "pretrain")
    text = (polar / "plain.txt").read_bytes()
    (polar / "plain.txt").write_bytes(text.replace(b"nice", b"rice", 1))
    try:
        assert main([*command, "--max_steps", "2", "--accept_changes", "true"]) == 0
    finally:
        (polar / "plain.txt").write_bytes(text)
    assert "The run goes on with these" in caplog.text


@pytest.mark.parametrize("job", IN_A_PROCESS)
def test_a_disk_that_is_full_is_one_line_and_leaves_nothing_half_written(polar, tmp_path, job):  # noqa: F811
    model = polar / ("bert" if job == "pretrain" else "classification")
    command = [*words(job, model, polar, tmp_path / "out"), "--save_strategy", "steps", "--save_steps", "1"]
    # KiB: less than an optimizer's state, more than a model
    limited = f"ulimit -f 48; exec {shlex.join([sys.executable, '-m', 'hf_ptm_ext', *command])}"
    process = subprocess.run(["bash", "-c", limited], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    line = process.stderr.strip().splitlines()[-1]
    assert str(tmp_path / "out") in line
    assert "could not be written" in line
    assert "Traceback" not in process.stderr
    assert not (tmp_path / "out").exists()
    assert main(command) == 0
