"""What a job says while it runs: on a terminal never silent for long, elsewhere plain lines."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios

import numpy as np
import pytest

from hf_ptm_ext.conversion.entity_tables import EntityTable
from tests.cli.jobs import ROOT, flags
from tests.cli.test_finetune import data as data  # the fixture

ESCAPES = re.compile(r"\x1b\[[\d;?]*\w")
SILENCE, LOOK = 4.5, 0.05


def through_a_terminal(*words, **environment):
    """Run a command on a terminal; returns its exit code, all that it wrote, and the seconds of each silence."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvpe(words[0], words, {**os.environ, "TERM": "xterm", "PYTHONWARNINGS": "ignore", **environment})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    parts, silences, looks = [], [], 0
    while True:
        looks += 1  # counted instead of timed: where the machine stands still nobody looks
        if not select.select([terminal], [], [], LOOK)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the end, as Linux tells it
            part = b""
        silences.append((looks - 1) * LOOK)
        looks = 0
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    text = b"".join(parts).decode().replace("\r\n", "\n")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text, silences


def left_on_screen(text):
    """What stays of a text: each line as it was written last, without colours."""
    return [ESCAPES.sub("", line.rpartition("\r")[2]).rstrip() for line in text.split("\n")]


SPEAK = """
import ctypes, sys, time
from hf_ptm_ext.cli.console import console, phase
from hf_ptm_ext.cli.tables import print_table

console.start("loading")
with phase("indexing"):
    ctypes.PyDLL(None).sleep(5)  # no other thread of this process runs meanwhile
print("short", file=sys.stderr)
with phase("reading"):
    time.sleep(1.8)
    print("found")
console.stop()
print_table("scores", ["", "f1"], [["guess", "10.0"], ["model", "20.0"]], [(1, 1)])
"""


def test_something_moves_even_where_no_other_thread_may_run():
    code, text, silences = through_a_terminal(sys.executable, "-c", SPEAK)
    assert code == 0
    assert max(silences) < SILENCE
    assert re.search("indexing [2-4] s", text)
    assert "reading 1 s" in text
    lines = left_on_screen(text)
    assert "short" in lines
    assert "found" in lines
    assert any(line.split() == ["model", "20.0", "*"] for line in lines)


FORK = """
import os, time
from hf_ptm_ext.cli.console import console

console.start("training")
child = os.fork()
if child == 0:
    time.sleep(900)
    os._exit(0)
time.sleep(0.2)
start = time.monotonic()
console.stop()
print("took", time.monotonic() - start < 300)
os.kill(child, 9)
"""


def test_it_ends_while_a_worker_that_was_forked_off_lives_on():
    code, text, _ = through_a_terminal(sys.executable, "-c", FORK)
    assert code == 0
    assert "took True" in text


@pytest.mark.parametrize("environment", [{"RANK": "1"}, {"TERM": "dumb"}])
def test_another_process_and_a_terminal_that_cannot_be_drawn_on_see_nothing_move(environment):
    _, text, _ = through_a_terminal(sys.executable, "-c", SPEAK.replace("sleep(5)", "sleep(0)"), **environment)
    assert "\x1b[2K" not in text
    assert "reading" not in text


def finetuning(data, output):
    words = {"train_file": data / "texts.tsv", "test_file": data / "texts.tsv", "output_dir": output, "seeds": "0 1"}
    given = {"model_name_or_path": data / "bert", "task": "classification", "num_train_epochs": 1, "use_cpu": True}
    found = [sys.executable, "-m", "hf_ptm_ext", "finetune", "--report_to", "none"]
    for name, value in {**words, **given}.items():
        found += [f"--{name}", *str(value).split(" ")]
    return found


def test_a_job_on_a_terminal(data, tmp_path):
    code, text, silences = through_a_terminal(*finetuning(data, tmp_path / "out"))
    assert code == 0
    assert silences[0] < SILENCE  # before the libraries are loaded
    assert max(silences) < SILENCE
    lines = left_on_screen(text)
    for phase in ("reading the data", "tokenizing train", "training", "predicting test", "saving"):
        assert any(re.fullmatch(rf"{phase}.* +\d+\.\d s", line) for line in lines), phase
    assert "[1/2] seed 0, fine-tuned" in lines
    assert "[2/2] seed 1, fine-tuned" in lines
    (model,) = [line for line in lines if line.startswith("model ")]
    assert re.search(r"BertForSequenceClassification, [\d,]+ parameters, all of them trained", model)
    (rows,) = [line for line in lines if line.startswith("data ")]
    assert re.search(r"[\d,]+ rows, [\d,]+ updates of 32 rows each", rows)
    assert any(re.search("1 x cpu, float32, attention sdpa", line) for line in lines)
    assert "100%|" in text  # a bar
    assert text.count("LOAD REPORT") == 1  # of two loads
    assert "pin_memory" not in text
    assert sum(line.startswith("majority ") for line in lines) == 1


def test_a_job_without_a_terminal(data, tmp_path):
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    found = subprocess.run(
        finetuning(data, tmp_path / "out"), capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )
    for text in (found.stdout, found.stderr):
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)  # newlines alone
        assert "it/s" not in text
    assert re.search(r"^training +\d+\.\d s$", found.stderr, re.MULTILINE)
    assert "[2/2] seed 1, fine-tuned" in found.stderr
    assert "majority" not in found.stderr
    header, rule, *rows = found.stdout.partition("of 2 seeds\n")[2].splitlines()
    assert header.split() == ["accuracy", "macro_f1", "matthews_correlation"]
    assert set(rule) == {"-", " "}
    assert [row.split("  ")[0] for row in rows[:2]] == ["majority", "fine-tuned"]
    assert "*" not in found.stdout


@pytest.mark.slow
def test_a_job_that_shall_not_draw(data, tmp_path):
    code, text, _ = through_a_terminal(*finetuning(data, tmp_path / "out"), "--disable_tqdm", "true")
    assert code == 0
    assert re.search(r"^training +\d+\.\d s$", text, re.MULTILINE)
    assert not re.search(r"\r|\x1b\[2K|it/s", text)


@pytest.mark.slow
def test_a_big_list_of_titles(tmp_path):
    titles = [f"{first:x} {second:x}" for first in range(1000) for second in range(1, 1001)]
    names = [f"Q{number}" for number in range(len(titles))]
    vectors = np.ones((len(names), 4), dtype=np.float32)
    EntityTable.from_arrays(vectors, names, None).save(tmp_path / "table.safetensors")
    lines = (f"{title}\t{name}\n" for title, name in zip(titles, names, strict=True))
    (tmp_path / "titles.tsv").write_text("".join(lines), encoding="utf-8")
    texts = (f"we see {' and '.join(titles[number : number + 4])}\nit is {titles[number]}\n\n" for number in range(50))
    (tmp_path / "text.txt").write_text("".join(texts), encoding="utf-8")
    words = flags(
        objective="ernie_thu",
        entity_table=tmp_path / "table.safetensors",
        entity_titles=tmp_path / "titles.tsv",
        train_file=tmp_path / "text.txt",
        output_dir=tmp_path / "out",
        min_entities=0,
        disable_tqdm=None,
    )
    code, text, silences = through_a_terminal(sys.executable, "-m", "hf_ptm_ext", "pretrain", *words)
    assert code == 0, text
    assert max(silences) < SILENCE
    assert "indexing 1,000,000 titles" in text
