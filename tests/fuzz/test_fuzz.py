"""Damaged inputs over all entry points: nothing but an error of one line, or a sound result.

Every input is an entry point (`entry_points.py`), a kind of damage (`damage.py`) and a seed, and runs in a process of
its own (`sandbox.py`) on copies of sound inputs (`bases.py`). It fails on a traceback, a hang, more than 2 GB, code
that was run, a secret, a leftover or a changed earlier output, numbers that are none, incomplete weights, a message
without a field or a file, and a success where nothing but an error is right. One in three is run, the same ones each
time; all with FUZZ=all, and one again by its id:

    FUZZ=all pytest tests/fuzz -m slow -k "convert-unilm/weights-nan/0"
"""

import fcntl
import gc
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

from .damage import ANY, CANARY, KINDS, OF_FILES, OUTPUT, SECRET, UNNEEDED, WORDS, suits
from .entry_points import entry_points
from .sandbox import OUT, in_a_child, problems, snapshot

# Kinds that draw much: seeds of each.
SEEDS = {"flip": 3, "json value": 6, "json drop": 3, "json extra": 2, "json type": 3, "number": 8, "no number": 4,
         "strange value": 6, "yaml value": 6, "yaml twice": 2, "option dropped": 3, "row nan": 2}  # fmt: skip
ENTRY_POINTS = {name.replace(" ", "-"): entry for name, entry in entry_points().items()}
NAMES = {name.replace(" ", "-"): name for name in KINDS}


def cases() -> list[str]:
    """Entry point, kind and seed of every input."""
    found = []
    for name, entry in ENTRY_POINTS.items():
        for spelt, kind_name in NAMES.items():
            if kind_name in OF_FILES:
                fits = any(suits(KINDS[kind_name], ending) for ending in entry.endings())
            elif kind_name in OUTPUT:
                fits = OUT in entry.words or "recipe" in name
            elif "secret" in kind_name:
                fits = "max_steps" in entry.numbers
            else:
                fits = bool(entry.words) and ("number" not in kind_name or bool(entry.numbers))
            found += [f"{name}/{spelt}/{seed}" for seed in range(fits * SEEDS.get(kind_name, 1))]
    return found


CASES = cases()
FIRST_OF_KIND = {case.split("/")[1]: case for case in reversed(CASES)}
RUN = [case for case in CASES if crc32(case.encode()) % 3 == 0 or case in FIRST_OF_KIND.values()]
CHEAP = ("read-", "table-", "graph-", "show-", "train-entity", "systems", "tokenizer-", "config-kbert")


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sound inputs, made once for all workers of a session."""
    from .bases import make

    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "fuzz_base"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            made = folder.with_suffix(".partial")
            made.mkdir()
            make(made)
            made.rename(folder)
    gc.freeze()  # children then share the memory of what is imported
    return folder


def run_case(case: str, base: Path, folder: Path) -> list[str]:
    """What is wrong with what an input brings about."""
    name, spelt, _ = case.split("/")
    entry, kind_name = ENTRY_POINTS[name], NAMES[spelt]
    kind, random, words = KINDS[kind_name], Random(case), list(entry.words)
    verdict = ANY if name == "verify-files" else kind.verdict  # which tells what is wrong as its result
    entry.place(base, folder)
    if kind_name in OUTPUT:
        kind.damage(folder / OUT, random)
    elif kind_name in WORDS:
        words = kind.damage(words, random, entry.numbers)
    else:
        files = [path for path in sorted(folder.rglob("*")) if entry.reads(path) and suits(kind, path)]
        if not files:
            pytest.skip("this family has no such file")
        chosen = random.choice(files)
        kind.damage(chosen, random)
        for (begins, file), kinds in UNNEEDED.items():
            if name.startswith(begins) and chosen.name == file and kind_name in kinds:
                verdict = ANY
    before = snapshot(folder)
    found = in_a_child(folder, lambda: entry.run(words))
    caller = "command" if entry.words else "upstream" if name.startswith(("config", "tokenizer")) else "reader"
    return problems(found, verdict, folder, before, caller)


def check(case: str, base: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    try:
        wrong = run_case(case, base, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert not wrong, f"{case}: " + "; ".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES if os.environ.get("FUZZ") == "all" else RUN)
def test_a_damaged_input_does_no_harm(case: str, base: Path, tmp_path: Path) -> None:
    check(case, base, tmp_path / "input")


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(CHEAP)][::40][:40])
def test_a_sample(case: str, base: Path, tmp_path: Path) -> None:
    check(case, base, tmp_path / "input")


def test_there_are_thousands_over_every_entry_point_and_kind() -> None:
    assert len(CASES) >= 4000
    assert len(set(CASES)) == len(CASES)
    assert {case.split("/")[0] for case in CASES} == set(ENTRY_POINTS)
    assert {case.split("/")[1] for case in CASES} == set(NAMES)


def _hangs() -> None:
    while True:
        pass


HARMS: dict[str, tuple[Callable[[], Any], str]] = {
    "hang": (_hangs, "hang"),
    "memory": (lambda: len(b"x" * 300_000_000), "memory"),
    "traceback": (lambda: {}["x"], "traceback: KeyError"),
    "death": (lambda: os._exit(3), "died: exit status 3"),
    "canary": (lambda: Path(CANARY).touch(), "code was run"),
    "secret": (lambda: print(SECRET), "secret"),
    "leftover": (lambda: (Path("left").touch(), int("`x`")), "leftover"),
    "temporary": (lambda: Path(os.environ["TMPDIR"], "left").touch(), "leftover"),
    "message": (lambda: int("x y"), "names no field or file"),
    "lines": (lambda: _raise("`x`:\nmore"), "more than one line"),
    "silent": (lambda: {"wrong": []}, "silent"),
}


def _raise(message: str) -> None:
    raise ValueError(message)


@pytest.mark.parametrize("harm", HARMS)
def test_the_sandbox_tells_each_harm(harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SECONDS", 2), ("MEGABYTES", 200)):
        monkeypatch.setattr(sys.modules[in_a_child.__module__], name, value)
    work, told = HARMS[harm]
    found = in_a_child(tmp_path, work)
    assert any(told in one for one in problems(found, "refuse", tmp_path, {}, "reader"))


def main(base: Path, chosen: str) -> None:
    """Run inputs outside of pytest: `python -m tests.fuzz.test_fuzz BASE PART_OF_A_CASE`."""
    counts: Counter[str] = Counter()
    started = time.time()
    for number, case in enumerate(one for one in CASES if re.search(chosen, one)):
        folder = base.parent / f"{base.name}_{os.getpid()}_{number}"
        folder.mkdir()
        began = time.time()
        try:
            wrong = run_case(case, base, folder)
        except pytest.skip.Exception:
            wrong = []
            counts["skipped"] += 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        counts["failed" if wrong else "passed"] += 1
        print(f"{time.time() - began:.2f}\t{case}\t{'; '.join(wrong)}", flush=True)
    print(counts, f"{time.time() - started:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
