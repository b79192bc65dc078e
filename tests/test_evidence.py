"""The experiments of the evidence page: their commands parse, what is done stays done, the page says the same."""

import argparse
import gzip
import importlib
import io
import json
import pickle
import shlex
import sys
from functools import partial
from pathlib import Path

import pytest

from hf_ptm_ext import cli
from hf_ptm_ext.evidence import VERDICTS, evidence_of, experiments, section
from hf_ptm_ext.systems import SYSTEMS
from tests.test_docs import parse_command

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts" / "evidence"))

experiment = importlib.import_module("experiment")
weights = importlib.import_module("weights")
MODULES = experiment.modules()


def lab_in(folder, **options):
    given = {"metric": "accuracy", "smoke": False, "model_name": None, "scale": 1.0}
    given |= {name: folder / name for name in ("teacher", "model_zh", "graph")}
    return experiment.Lab(
        folder / "data", folder / "model", folder / "out", [0, 1], argparse.Namespace(**{**given, **options})
    )


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_its_commands_parse(name, smoke, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "has_gpu", lambda: False)
    lab = lab_in(tmp_path, smoke=smoke)
    MODULES[name].plan(lab)
    assert lab.arms
    assert all(one in {row for _, row in lab.arms} for pair in lab.comparisons for one in pair)
    if lab.drawn is not None and name != "A1":  # whose numbers are among its results
        assert all(lab.drawn[1](*place)[2] > 0 for place in lab.arms)
    commands = [shlex.split(job.command)[1:] for job in lab.jobs.values() if job.command]
    # One of each kind: those of the same options differ in their values alone.
    kinds = {(*words[:2], *(word for word in words if word.startswith("--"))): words for words in commands}
    for words in kinds.values():
        parse_command(words)


def test_the_page_has_what_was_published():
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    found = experiments()
    assert set(found) == set(MODULES)
    for name, one in found.items():
        assert section(one) in page
        assert one["verdict"] in VERDICTS
        assert one["claim"] == experiment.claim_of(MODULES[name].__doc__)
        assert {system.name for system in SYSTEMS} >= set(one["systems"])


def test_a_smoked_job_takes_few_updates_and_rows_wherever_it_has_its_own(tmp_path):
    lab = lab_in(tmp_path, smoke=True)
    staged = lab.job("staged", "distill", stages={"one": {"preset": "tinybert-general", "max_steps": 900}})
    assert '"max_steps": 2' in staged.command
    assert "900" not in staged.command
    joint = lab.job("joint", "multitask", **{"tasks.a.train_file": "a.jsonl", "tasks.b.train_file": "b.jsonl"})
    assert "--tasks.a.max_eval_rows 24" in joint.command
    assert "--tasks.b.max_train_rows 400" in joint.command


def write_scores(folder, value):
    runs = [{"seed": seed, "variant": "one", "test": {"accuracy": value + seed / 100}} for seed in (0, 1)]
    (folder / "results.json").write_text(json.dumps({"runs": runs, "split": "test", "summary": {}}), encoding="utf-8")


def broken(folder):
    raise ValueError("broken")


def test_jobs_run_behind_what_they_need_and_once(tmp_path):
    lab = lab_in(tmp_path)
    first, second = lab.make("first", write_scores, 0.5), lab.make("second", write_scores, 0.4)
    bad = lab.make("bad", broken)
    lab.make("behind", write_scores, bad)
    lab.arm("column", "a", first)
    lab.arm("column", "b", second)
    lab.compare("a", "b")
    failures = experiment.run_all(lab, 2)
    assert any("bad failed (ValueError)" in one for one in failures)
    assert any(one == "behind was not run: bad" for one in failures)
    result = experiment.collect(lab, {"id": "X", "title": "x", "paper": "p", "systems": [], "set_up": ""}, "claim")
    assert result["rows"] == [["a", "50.5 ± 0.7"], ["b", "40.5 ± 0.7"]]
    assert result["differences"][0]["mean"] == pytest.approx(10)
    assert "* a less b: +10.0 (+10.0 .. +10.0)" in section(result)
    del lab.jobs["bad"], lab.jobs["behind"]
    for job in lab.jobs.values():
        job.work = partial(broken, None)  # nothing of it is run again
    assert experiment.run_all(lab, 2) == []
    lab.make("third", write_scores, 0.3).needs = [lab.jobs.pop("first")]  # as by `--only third`
    assert experiment.run_all(lab, 2) == []
    lab.seeds = [0, 1, 2]
    assert [one.split()[0] for one in experiment.run_all(lab, 2)] == ["second", "third"]


def test_a_figure_is_drawn_of_the_rows_that_have_a_number(tmp_path):
    lab = lab_in(tmp_path)
    job = lab.make("job", write_scores, 0.5)
    (tmp_path / "out/job").mkdir(parents=True)
    write_scores(tmp_path / "out/job", 0.5)
    for row in ("a", "baseline"):
        lab.arm("column", row, job)
    experiment.draw(lab, tmp_path / "none.png")
    lab.figure("trained share", lambda column, row: {"a": 0.1}[row])
    experiment.draw(lab, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert not (tmp_path / "none.png").exists()
    lab.figure("rows", all=4000)
    _, place = lab.drawn
    assert place("SST-2, 1 %", "a") == ("SST-2", "a", 1)
    assert place("29,000", "a") == ("", "a", 29000)
    assert place("all", "b") == ("", "b", 4000)
    lab.arms = {(column, "a"): lab.arms["column", "a"] for column in ("SST-2, 50", "SST-2, all", "RTE, 50")}
    experiment.draw(lab, tmp_path / "panels.png")
    assert (tmp_path / "panels.png").stat().st_size > 1000


def test_rows_that_others_have_are_left_out_however_they_are_split(tmp_path):
    experiment.write_rows(tmp_path / "a.jsonl", [{"text": "It 's good ."}, {"text": "new"}, {"text": "New !"}])
    rows = experiment.rows_of(tmp_path / "a.jsonl")
    assert experiment.unseen(rows, [{"tokens": ["it's", "good"]}]) == [{"text": "new"}]


def test_the_command(capsys):
    assert cli.main(["evidence"]) == 0
    assert "K1" in capsys.readouterr().out
    assert cli.main(["evidence", "k1"]) == 0
    assert "**Claim**" in capsys.readouterr().out
    assert cli.main(["evidence", "k11"]) == 2
    assert "Did you mean 'K1'?" in capsys.readouterr().err
    assert "K1" in evidence_of("K-BERT")


def test_a_graph_is_cut_to_what_is_injected_and_names_no_class(tmp_path):
    graph = {"感冒": {"症状": ["发热", " ", "咳嗽"], "并发症": ["发热", "肺炎"]}, "止咳糖浆": {"成份": ["甘草"]}}
    assert weights.write_graph(weights.Plain(io.BytesIO(pickle.dumps(graph))).load(), tmp_path / "graph.spo.gz") == 3
    found = gzip.decompress((tmp_path / "graph.spo.gz").read_bytes()).decode().splitlines()
    assert found == ["感冒\t症状\t发热", "感冒\t症状\t咳嗽", "止咳糖浆\t成份\t甘草"]
    with pytest.raises(pickle.UnpicklingError, match="names"):
        weights.Plain(io.BytesIO(pickle.dumps(Path))).load()
