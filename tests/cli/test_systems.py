"""The table of systems, and the frame of the console script."""

import importlib
import json
import subprocess
import sys
import types

import pytest

from hf_ptm_ext import cli
from hf_ptm_ext.systems import SYSTEMS, markdown_page
from tests.test_docs import DOCS, parse_command


def class_names():
    return sorted({name for system in SYSTEMS for name in (*system.models, *system.collators, *system.trainers)})


@pytest.mark.parametrize("name", class_names())
def test_every_class_of_the_table_can_be_imported(name):
    module, _, attribute = name.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), attribute), type)


def test_every_family_is_registered():
    from hf_ptm_ext.registration import FAMILIES

    families = {family.model_type for family in FAMILIES}
    named = {system.family for system in SYSTEMS} - {None}
    assert named == families


def test_json_lists_every_system(capsys):
    assert cli.main(["systems", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in table] == [system.name for system in SYSTEMS]
    assert all(row["paper"] and row["link"].startswith("https://") for row in table)


def test_text_and_markdown_list_every_system(capsys):
    assert cli.main(["systems"]) == 0
    text = capsys.readouterr().out
    assert cli.main(["systems", "--markdown"]) == 0
    markdown = capsys.readouterr().out
    assert markdown == markdown_page()
    for system in SYSTEMS:
        assert system.name in text
        assert f"[{system.paper}]({system.link})" in markdown


def test_a_system_is_told_by_its_name_or_its_family(capsys):
    assert cli.main(["systems", "tinybert"]) == 0
    assert "hf-ptm-ext distill distill_tinybert.yaml" in capsys.readouterr().out
    assert cli.main(["systems", "kbrt"]) == 2
    assert "Did you mean 'kbert'?" in capsys.readouterr().err


def test_a_system_is_found_by_its_recipe_and_objective(capsys):
    for name, found in {"ernie2": "ERNIE 2.0", "domain_adaptation": "BioBERT", "xlnet": "XLNet"}.items():
        assert cli.main(["systems", name]) == 0
        assert capsys.readouterr().out.startswith(found)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_has_a_page_and_a_command_that_parses(system):
    assert (DOCS / f"{system.page}.md").is_file()
    if system.command and "my.yaml" not in system.command:
        parse_command(system.command.split()[1:])


class TestFrame:
    def test_help_and_version_need_no_torch(self):
        code = (
            "import sys\nfrom hf_ptm_ext.cli import main\n"
            "for argument in ('--help', '--version'):\n"
            "    try:\n        main([argument])\n    except SystemExit as exit:\n        assert not exit.code\n"
            "main(['systems'])\n"
            "assert not {'torch', 'transformers'} & set(sys.modules), 'heavy imports'\n"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
        assert result.returncode == 0, result.stderr
        assert all(command in result.stdout for command in cli.COMMANDS)

    def test_module_runs_like_the_script(self):
        result = subprocess.run(
            [sys.executable, "-m", "hf_ptm_ext", "systems"], capture_output=True, text=True, timeout=600, check=False
        )
        assert result.returncode == 0
        assert "SpanBERT" in result.stdout

    def test_nothing_asked_for(self, capsys):
        assert cli.main([]) == 2
        assert "convert" in capsys.readouterr().out

    def test_unknown_command(self, capsys):
        assert cli.main(["pretrian"]) == 2
        assert "no command 'pretrian'. Did you mean 'pretrain'?" in capsys.readouterr().err

    def test_a_mistake_is_a_line_without_traceback(self, capsys):
        assert cli.main(["convert", "spanbert", "nowhere", "target"]) == 2
        error = capsys.readouterr().err
        assert "hf-ptm-ext convert: error:" in error
        assert "nowhere" in error
        assert "Traceback" not in error

    @pytest.mark.parametrize("position", [0, 1, 4])
    def test_debug_shows_the_traceback(self, capsys, position):
        arguments = ["convert", "spanbert", "nowhere", "target"]
        arguments.insert(position, "--debug")
        assert cli.main(arguments) == 2
        assert "Traceback" in capsys.readouterr().err

    @pytest.fixture
    def raw(self, monkeypatch):
        """A stand-in for a command that reads its own command line: it fails on `fail`."""
        seen = []

        def run(argv):
            seen.append(argv)
            if "fail" in argv:
                raise ValueError("no such thing")
            return 0

        module = types.ModuleType("hf_ptm_ext.cli.pretrain")
        module.run = run
        monkeypatch.setitem(sys.modules, "hf_ptm_ext.cli.pretrain", module)
        return seen

    def test_raw_commands_get_everything_behind_them(self, raw):
        assert cli.main(["pretrain", "--help", "x.yaml"]) == 0
        assert raw == [["--help", "x.yaml"]]

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_debug_stands_anywhere_around_raw_commands(self, raw, capsys, position):
        arguments = ["pretrain", "fail"]
        assert cli.main(arguments) == 2
        assert "--debug shows where" in capsys.readouterr().err
        arguments.insert(position, "--debug")
        assert cli.main(arguments) == 2
        said = capsys.readouterr().err
        assert "Traceback" in said
        assert "--debug" not in said
        assert raw == [["fail"], ["fail"]]
