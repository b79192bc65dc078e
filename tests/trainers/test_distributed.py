"""Two processes: the update of one, a job that resumes, the same evaluation."""

import json
import sys

import pytest

from hf_ptm_ext.trainers import last_complete_checkpoint
from tests.cli.jobs import flags, read_metrics, run_process
from tests.trainers.fixed_rows import one_update

# `--cpu` would start one process only; under the Trainer's `use_cpu` two of `--multi_gpu` meet over gloo.
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
LAUNCH += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]


def launch(port, *words):
    return run_process(*LAUNCH, "--main_process_port", str(port), *words, MASTER_ADDR="127.0.0.1")


@pytest.mark.slow
def test_an_update_of_two_processes_is_that_of_one(tmp_path):
    """Rows differ in labels and span targets, so a mean of the processes' means would be another update."""
    whole = one_update(tmp_path / "one", 8, 1)
    output = launch(29611, "-m", "tests.trainers.fixed_rows", str(tmp_path / "two"), "2", "2")
    result = json.loads(output.partition("RESULT")[2].splitlines()[0])
    for name, value in whole.model.named_parameters():
        assert result["weights"][name] == pytest.approx(value.flatten()[:50].tolist(), rel=1e-4, abs=2e-6), name
    for name, value in result["logged"].items():
        assert value == pytest.approx(whole.state.log_history[0][name], rel=1e-4), name


@pytest.mark.slow
def test_a_streaming_job_of_two_processes_resumes_exactly(tmp_path):
    def job(folder, *more):
        options = {"streaming": True, "max_steps": 4, "save_steps": 2, "train_file": None, "max_train_rows": None}
        validation = "hf_ptm_ext/data/corpora/chinese.txt.gz"
        words = flags(output_dir=folder, validation_file=validation, save_total_limit=5, max_eval_rows=1, **options)
        launch(29612, "-m", "hf_ptm_ext", "pretrain", *words, *more)

    job(tmp_path / "whole")
    assert {path.name for path in (tmp_path / "whole" / "checkpoint-2").glob("data_state_*")} == {
        "data_state_0.json",
        "data_state_1.json",
    }
    job(tmp_path / "again", "--resume_from_checkpoint", str(tmp_path / "whole" / "checkpoint-2"))
    whole, again = read_metrics(tmp_path / "whole"), read_metrics(tmp_path / "again")
    assert again["eval_mlm_loss"] == whole["eval_mlm_loss"]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]
    assert whole["eval_mlm_targets"] > 0, "one row, so one of the two processes evaluates none"


@pytest.mark.slow
def test_a_loss_that_is_nan_in_one_process_stops_both(tmp_path):
    """Neither waits for the other for ever, both name the update, and the run resumes from a checkpoint of both."""
    output = launch(29613, "-m", "tests.trainers.one_bad_process", str(tmp_path))
    stopped = [line for line in output.splitlines() if "STOPPED" in line]
    assert len(stopped) == 2
    assert all("Update 3 of 4 is not finite" in line and "checkpoint-2" in line for line in stopped)
    assert output.count("RESUMED") == 2
    files = {path.name for path in (tmp_path / "checkpoint-4").iterdir()}
    assert {"data_state_0.json", "data_state_1.json", "rng_state_1.pth", "checkpoint_manifest.json"} <= files
    (tmp_path / "checkpoint-4" / "rng_state_1.pth").unlink()
    assert last_complete_checkpoint(tmp_path).name == "checkpoint-2"
