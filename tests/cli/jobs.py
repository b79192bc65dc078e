"""Small pre-training jobs, in this process or in one of their own."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from hf_ptm_ext.files import resource_folder

ROOT = Path(__file__).parents[2]
TINY = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64"
SMALL_RUN = {
    "config_overrides": TINY,
    "vocab_size": 400,
    "max_seq_length": 48,
    "max_steps": 3,
    "per_device_train_batch_size": 4,
    "max_train_rows": 200,
    "max_eval_rows": 24,
    "logging_steps": 1,
    "save_steps": 2,
    "save_total_limit": 2,
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "use_cpu": True,
}


def flags(**values):
    """`SMALL_RUN` with changes, as command-line flags; `None` leaves one out."""
    words = []
    for name, value in {**SMALL_RUN, **values}.items():
        if value is not None:
            words += [f"--{name}", *(str(item) for item in (value if isinstance(value, list) else [value]))]
    return words


def run_process(*words, timeout=600, **environment):
    """Run a command in its own process; returns what it printed."""
    result = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout


def run_pretrain(folder, timeout=600, **values):
    """`python -m hf_ptm_ext pretrain` in its own process; returns its metrics."""
    run_process(sys.executable, "-m", "hf_ptm_ext", "pretrain", *flags(output_dir=folder, **values), timeout=timeout)
    return read_metrics(folder)


def read_metrics(folder):
    """The metrics that a job left in its folder."""
    return json.loads((Path(folder) / "all_results.json").read_text(encoding="utf-8"))


def recipes_of(job):
    """Recipes that come with the package for a job -> the flags of the command in their head, which says the job."""
    found = {}
    for path in sorted(resource_folder("configs").glob("*.yaml")):
        text = re.sub(r"\\\n#\s*", "", path.read_text(encoding="utf-8"))  # one line of a command that goes on
        command = re.search(rf"hf-ptm-ext (\S+) {re.escape(path.name)}(.*)", text)
        if (command[1] if command else "pretrain") == job:
            found[path.name] = shlex.split(command[2]) if command else []
    return found
