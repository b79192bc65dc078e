"""What the site's build makes itself: figures, the reference from docstrings, a page a command from its parser."""

import contextlib
import functools
import importlib
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]

# Modules whose exports have a page in the reference.
MODULES = (
    "collators",
    "masking",
    "objectives",
    "trainers",
    "distillation",
    "adapters",
    "compression",
    "metrics",
    "data",
)
MODULES += ("data.augmentation", "pipelines", "hub")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that nobody writes by hand."""
    from figures import draw_all

    for path in draw_all(Path(tempfile.mkdtemp())):
        files.append(File.generated(config, f"assets/{path.name}", abs_src_path=str(path)))
    for name, text in {**front(), **reference(), **commands()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_config(config: Any) -> Any:
    """Add the generated pages to the navigation."""
    sys.path[:0] = [str(ROOT), str(ROOT / "docs")]  # not at the top: the loader of hooks takes it out again
    config.nav.append({"Contributing": "contributing.md"})
    config.nav.append({"Changelog": "changelog.md"})
    config.nav.append({"Commands": [{title_of(text): name} for name, text in commands().items()]})
    config.nav.append({"Reference": [{title_of(text): name} for name, text in reference().items()]})
    return config


def front() -> dict[str, str]:
    """The pages that stand at the root of the repository, with their links as the site has them."""
    files = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
    pages = {name: (ROOT / file).read_text(encoding="utf-8") for name, file in files.items()}
    targets = {"docs/": "", "CONTRIBUTING.md": "contributing.md", "CITATION.cff": "index.md"}
    for there, here in targets.items():
        pages["index.md"] = pages["index.md"].replace(f"]({there}", f"]({here}")
    from hf_ptm_ext.systems import markdown_page

    return {**pages, "systems.md": markdown_page()}


def title_of(text: str) -> str:
    """The heading of a page."""
    return text.splitlines()[0].removeprefix("# ").strip("`")


@functools.cache
def reference() -> dict[str, str]:
    """A page a module, with a section for each of its exports."""
    import hf_ptm_ext

    pages = {"reference/hf_ptm_ext.md": section("hf_ptm_ext", families(hf_ptm_ext))}
    for name in MODULES:
        module = importlib.import_module(f"hf_ptm_ext.{name}")
        places = [f"{getattr(module, one).__module__}.{one}" for one in exports(module)]
        pages[f"reference/{name}.md"] = section(f"hf_ptm_ext.{name}", places)
    return pages


def exports(module: Any) -> list[str]:
    """Public classes and functions of the package's own."""
    return [
        name for name in module.__all__ if str(getattr(getattr(module, name), "__module__", "")).startswith("hf_ptm")
    ]


def families(package: Any) -> list[str]:
    """Names of the root that no other page has."""
    elsewhere = {name for module in MODULES for name in importlib.import_module(f"hf_ptm_ext.{module}").__all__}
    return [f"{getattr(package, name).__module__}.{name}" for name in exports(package) if name not in elsewhere]


def section(title: str, places: list[str]) -> str:
    """A page of the reference."""
    return f"# `{title}`\n\n" + "\n\n".join(f"::: {place}" for place in places) + "\n"


@functools.cache
def commands() -> dict[str, str]:
    """A page a sub-command, with its help as the program prints it."""
    from hf_ptm_ext.cli import COMMANDS, main

    pages = {}
    for command, line in COMMANDS.items():
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            main([command, "--help"])
        summary = line[0].upper() + line[1:]
        pages[f"commands/{command}.md"] = f"# `hf-ptm-ext {command}`\n\n{summary}.\n\n```text\n{text.getvalue()}```\n"
    return pages
