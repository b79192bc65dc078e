"""README and documentation: Python blocks run alone, commands parse, links and named files exist, all is reached."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hf_ptm_ext import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
}
# Sub-command -> the module whose `parse` reads its command line, where that is not the module of its name.
PARSERS = {
    "finetune-seq2seq": "seq2seq_arguments",
    "distill": "distill_arguments",
    "multitask": "multitask_arguments",
    "stages": "stages_arguments",
    "finetune-typing": "finetune_relations",
}


def blocks(language):
    """(page, line, text) of every block in a language."""
    for page, text in PAGES.items():
        for match in re.finditer(rf"^( *)```{language}\n(.*?)^ *```$", text, flags=re.DOTALL | re.MULTILINE):
            indent = len(match[1])
            lines = "\n".join(line[indent:] for line in match[2].splitlines())
            yield page, text.count("\n", 0, match.start()) + 1, lines


def named(found):
    return [pytest.param(page, line, text, id=f"{page}:{line}") for page, line, text in found]


@pytest.mark.parametrize(("page", "line", "text"), named(blocks("python")))
def test_python_runs_alone(page, line, text, tmp_path, monkeypatch):
    """In a namespace and a folder of its own, as somebody would who copies this block and no other."""
    monkeypatch.chdir(tmp_path)
    source = "\n" * line + text  # errors name the line of the page
    exec(compile(source, page, "exec"), {"__name__": "__main__"})


def commands():
    for page, line, text in blocks("bash"):
        joined = text.replace("\\\n", " ")
        for number, command in enumerate(joined.splitlines()):
            words = shlex.split(command.partition(" > ")[0], comments=True)
            for start in ("hf-ptm-ext", "hf_ptm_ext"):
                if start in words:
                    yield page, line + 1 + number, words[words.index(start) + 1 :]


def parse_command(words):
    """What a command's own parser makes of a command line."""
    words = [cli.in_snake_case(word) for word in words]
    command = next((word for word in words if not word.startswith("-")), None)
    if command not in cli.RAW:
        return cli._parser(command)[0].parse_args(words)
    module = importlib.import_module(f"hf_ptm_ext.cli.{PARSERS.get(command, command.replace('-', '_'))}")
    rest = words[words.index(command) + 1 :]
    return module.parse(rest, *(["finetune-typing"] if command == "finetune-typing" else []))


@pytest.mark.parametrize(("page", "line", "words"), named(commands()))
def test_commands_parse(page, line, words):
    """By their own parsers: no flag, choice or recipe that does not exist."""
    if not {"--help", "--help-all", "--version"} & set(words):
        parse_command(words)


def test_named_files_exist():
    for page, text in PAGES.items():
        for name in re.findall(r"\b(?:scripts|examples|tests|model_cards)/[\w/]+\.\w+", text):
            assert (ROOT / name).is_file(), f"{page} names {name}"


def test_named_recipes_exist():
    known = {path.name for path in (ROOT / "scripts" / "configs").glob("*.yaml")}
    for page, text in PAGES.items():
        for name in re.findall(
            r"(?:pretrain|finetune|finetune-seq2seq|distill|adapt|multitask|stages) (\w+\.yaml)", text
        ):
            assert name in known or name == "my.yaml", f"{page} names {name}"


def test_every_page_is_in_the_navigation():
    def pages(tree):
        for entry in tree:
            for value in entry.values() if isinstance(entry, dict) else [entry]:
                yield from [value] if isinstance(value, str) else pages(value)

    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = set(pages(yaml.safe_load(text)["nav"]))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert written <= listed
    assert listed - {"index.md", "systems.md"} <= written  # these two are made by the build


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 250


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert (tmp_path / "site" / "index.html").is_file()
