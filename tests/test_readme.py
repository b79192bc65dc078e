"""The README's Python runs, its commands parse, its table is the program's."""

import re
import shlex
from pathlib import Path

import pytest

from hf_ptm_ext.cli.adapt_arguments import parse as parse_adapters
from hf_ptm_ext.cli.finetune_arguments import parse as parse_by_seeds
from hf_ptm_ext.cli.pretrain_arguments import parse
from hf_ptm_ext.cli.seq2seq_arguments import parse as parse_finetuning
from hf_ptm_ext.systems import markdown_table

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_python_blocks_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert names["output"].loss > 0
    assert names["tagger"].num_labels == 5


def commands(job):
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [line.partition(f" {job} ")[2] for line in lines if f" {job} " in line]


@pytest.mark.parametrize("command", commands("pretrain"))
def test_pretrain_commands_parse(command):
    assert parse(shlex.split(command))


@pytest.mark.parametrize("command", commands("finetune-seq2seq"))
def test_fine_tuning_commands_parse(command):
    assert parse_finetuning(shlex.split(command))


@pytest.mark.parametrize("command", commands("finetune"))
def test_fine_tuning_by_seeds_commands_parse(command):
    assert parse_by_seeds(shlex.split(command))


@pytest.mark.parametrize("command", commands("adapt"))
def test_commands_for_adapters_parse(command):
    assert parse_adapters(shlex.split(command))


def test_scripts_named_in_the_readme_exist():
    for name in re.findall(r"scripts/[\w/]+\.(?:sh|py|yaml)", README):
        assert (Path(__file__).parents[1] / name).is_file(), name


def test_the_systems_table_is_the_programs():
    table = README.partition("<!-- systems -->")[2].partition("<!-- /systems -->")[0].strip()
    assert table == markdown_table().strip()
