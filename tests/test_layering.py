"""The package's parts import each other in one direction only, and a checkpoint's files import nothing else.

Static: everything is read from the syntax tree; of the package only the list of what travels is imported.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hf_ptm_ext.hub import code_files, families
from hf_ptm_ext.hub.adapted import KINDS

PACKAGE = Path(__file__).resolve().parents[1] / "hf_ptm_ext"
FILES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted((PACKAGE.parent / "scripts").rglob("*.py"))
SOURCES = [*FILES, *SCRIPTS, *sorted((PACKAGE.parent / "tests").rglob("*.py"))]
OLDEST_PYTHON = (3, 11)
MODEL_FILES = [path for path in FILES if path.parent == PACKAGE / "models" and path.name != "__init__.py"]
PIPELINE_FILES = [path for path in FILES if path.parent == PACKAGE / "pipelines" and "_question_" in path.name]

# Part -> parts that it may import, itself aside. What is missing here may import anything (cli, the entry points).
ALLOWED = {
    "version": set(),
    "files": {"models", "hints"},
    "hints": set(),
    "weights": set(),
    "redaction": set(),
    "evidence": {"files", "hints"},
    "systems": {"evidence", "hints"},
    "models": set(),
    "masking": set(),
    "objectives": set(),
    "data": {"files", "hints"},
    "metrics": {"data"},
    "pipelines": set(),
    "input_embeddings": {"collators", "data"},
    "e_bert": {"collators", "data"},
    "kg_bert": {"data", "metrics"},
    "registration": {"models", "adapters"},
    "collators": {"masking", "data", "models", "pipelines"},
    "distillation": {"objectives", "trainers", "files", "hints"},
    "adapters": {"objectives", "trainers", "hub", "models", "files", "version"},
    "compression": {"objectives", "trainers", "distillation", "hub", "models", "files"},
    "trainers": {"objectives", "files", "weights", "redaction"},
    "conversion": {"models", "adapters", "data", "files", "weights"},
    "hub": {"models", "pipelines", "files", "hints", "redaction", ""},
}
FREE = {"", "__main__", "cli"}
# Third parties that masking and objectives may import: arrays in, arrays out.
ARRAYS_ONLY = {"torch", "numpy"}
# What a process that loads a checkpoint has: torch, transformers and transformers' own hard requirements.
SHIPPED_MAY_IMPORT = {"torch", "transformers", "numpy", "safetensors", "huggingface_hub", "tokenizers"}


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file, read once."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=OLDEST_PYTHON)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix()


def parts_of(path: Path) -> tuple[str, ...]:
    """Module name of a file, without the package's own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def part_of(path: Path) -> str:
    """Top-level part of the package that a file belongs to, "" for the package itself."""
    return (parts_of(path) or ("",))[0]


def imports(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Every import statement and the absolute name of what it imports."""
    folder = path.relative_to(PACKAGE.parent).parent.parts
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else ()
            module = tuple((node.module or "").split(".")) if node.module else ()
            if module:
                yield node, ".".join(base + module)
            else:
                yield from ((node, ".".join((*base, alias.name))) for alias in node.names)


def third_parties(path: Path) -> set[str]:
    tops = {name.split(".")[0] for _, name in imports(path)}
    return tops - {PACKAGE.name} - sys.stdlib_module_names


def own_imports(path: Path) -> set[str]:
    """Names of our own modules that a file imports, without the package's name; "" is the package itself."""
    return {".".join(name.split(".")[1:]) for _, name in imports(path) if name.split(".")[0] == PACKAGE.name}


def test_parts_import_in_one_direction() -> None:
    wrong = []
    for path in FILES:
        part = part_of(path)
        assert part in ALLOWED or part in FREE, f"{relative(path)}: say in this test what {part} may import"
        if part in FREE:
            continue
        for name in own_imports(path):
            if name.split(".")[0] not in ALLOWED[part] | {part}:
                wrong.append(f"{relative(path)} imports {name or 'the package'}")
    assert not wrong


@pytest.mark.parametrize("part", ["masking", "objectives"])
def test_pure_parts_take_and_give_arrays(part: str) -> None:
    for path in (PACKAGE / part).rglob("*.py"):
        assert third_parties(path) <= ARRAYS_ONLY, relative(path)


def test_no_star_imports() -> None:
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom):
                assert all(alias.name != "*" for alias in node.names), relative(path)


def test_no_cycles() -> None:
    """No module imports itself through others (imports inside functions included)."""
    modules = {".".join(parts_of(path)): path for path in FILES}
    edges: dict[str, set[str]] = {}
    for module, path in modules.items():
        edges[module] = set()
        for node, name in imports(path):
            if name.split(".")[0] != PACKAGE.name:
                continue
            target = ".".join(name.split(".")[1:])
            members = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            submodules = {f"{target}.{member}".lstrip(".") for member in members} & set(modules)
            found = submodules or ({target} & set(modules))
            edges[module] |= found - {module, ""}
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for target in sorted(edges[module]):
                walk(target, (*trail, module))
            done.add(module)

    for module in sorted(modules):
        walk(module, ())


# ---- files that a checkpoint carries ----


def test_models_is_one_flat_folder() -> None:
    """Upstream's saving copies a class's file and what it imports from its own folder, nothing of other folders."""
    assert MODEL_FILES
    assert set((PACKAGE / "models").rglob("*.py")) == {*MODEL_FILES, PACKAGE / "models" / "__init__.py"}


@pytest.mark.parametrize("path", MODEL_FILES, ids=lambda path: path.name)
def test_every_model_file_travels_with_a_family(path: Path) -> None:
    assert path in [kind.core for kind in KINDS] or [family for family in families() if path in code_files(family)]


@pytest.mark.parametrize("family", families())
def test_no_core_file_travels_with_both_a_model_and_its_tokenizer(family: str) -> None:
    """They may be pushed into one repository by two versions of the package: the later would overwrite the file."""
    model = {path.name for path in code_files(family, ("configuration", "modeling"))}
    texts = {path.name for path in code_files(family, ("tokenization", "processing"))}
    assert not {name for name in model & texts if name.endswith("_core.py")}


@pytest.mark.parametrize("path", [*MODEL_FILES, *PIPELINE_FILES], ids=lambda path: path.name)
def test_model_files_import_the_same_folder_and_what_a_loader_has(path: Path) -> None:
    optional = {
        name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Try)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in inner.names] if isinstance(inner, ast.Import) else [inner.module or ""])
    }
    for node, name in imports(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1, f"line {node.lineno}: only the same folder travels"
            assert node.module, f"line {node.lineno}: `from . import x` does not travel"
            assert "." not in node.module, f"line {node.lineno}: sub-packages do not travel"
            assert (path.parent / f"{node.module}.py").is_file(), f"line {node.lineno}: {node.module}.py is missing"
            continue
        top = name.split(".")[0]
        assert top != PACKAGE.name, f"line {node.lineno}: the package is not there where the checkpoint is loaded"
        assert top in SHIPPED_MAY_IMPORT | sys.stdlib_module_names or name in optional, f"line {node.lineno}: {name}"


@pytest.mark.parametrize("path", [*MODEL_FILES, *PIPELINE_FILES], ids=lambda path: path.name)
def test_upstreams_search_for_relative_imports_finds_exactly_the_real_ones(path: Path) -> None:
    """It works by regular expression on text: a docstring line that looks like an import would break saving."""
    text = path.read_text(encoding="utf-8")
    found = set(re.findall(r"^\s*import\s+\.(\S+)\s*$", text, re.MULTILINE))
    found |= set(re.findall(r"^\s*from\s+\.(\S+)\s+import", text, re.MULTILINE))
    real = {
        node.module
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.level and node.module
    }
    assert found == real
    for line in text.splitlines():
        assert not re.match(r"\s*(from|import)\s+\.", line) or re.match(r"\s*from \.\w+ import", line), line


# Files of another family that travel with one: its linker.
BUILT_ON = {"knowbert": ("annotations_ernie_thu", "entity_vocab_ernie_thu")}


@pytest.mark.parametrize("family", families())
def test_names_of_shipped_files_carry_the_family_or_are_core(family: str) -> None:
    """Files are flattened into a checkpoint beside others."""
    for path in code_files(family):
        assert path.stem.endswith((f"_{family}", "_core")) or path.stem in BUILT_ON.get(family, ()), path.name


@pytest.mark.parametrize("family", families())
def test_one_modeling_file_holds_every_head(family: str) -> None:
    """Saving copies the file of the class and what it imports: all classes of the auto_map must start from one."""
    folder = PACKAGE / "models"
    modeling = tree_of(folder / f"modeling_{family}.py")
    classes = {node.name for node in modeling.body if isinstance(node, ast.ClassDef)}
    configuration = tree_of(folder / f"configuration_{family}.py")
    mapping = next(
        ast.literal_eval(node.value)
        for node in configuration.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "AUTO_MAP"
    )
    for auto_class, target in mapping.items():
        module, name = target.split(".")
        if auto_class.startswith("AutoModel"):
            assert module == f"modeling_{family}"
            assert name in classes
        assert (folder / f"{module}.py").is_file()


def test_library_code_neither_asserts_nor_prints() -> None:
    for path in FILES:
        if part_of(path) in ("cli", "__main__"):
            continue
        for node in ast.walk(tree_of(path)):
            assert not isinstance(node, ast.Assert), f"{relative(path)}:{node.lineno}"
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                raise AssertionError(f"{relative(path)}:{node.lineno}: print")


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_source_is_of_the_oldest_python_that_is_supported(path: Path) -> None:
    """Its grammar: no `type` statement, no type parameters, no quotes of one kind inside an f-string."""
    source = path.read_text(encoding="utf-8")
    newer = [node for node in ast.walk(tree_of(path)) if type(node).__name__ in ("TypeAlias", "TypeVar", "ParamSpec")]
    assert not newer
    assert not nested_quotes(source)


def nested_quotes(source: str) -> list[int]:
    """Lines of f-strings with their own quotation mark or a backslash inside braces, which 3.12 began to allow.

    `ast.parse` accepts them whatever its `feature_version`; the tokens of 3.12 tell, and before it they do not parse.
    """
    if sys.version_info < (3, 12):
        return []
    lines, open_quotes = [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if name in ("FSTRING_START", "STRING") and open_quotes:
            quote = token.string.lstrip("rRbBfFuU")
            if quote.startswith(open_quotes[-1]) or (name == "STRING" and "\\" in quote):
                lines.append(token.start[0])
        if name == "FSTRING_START":
            open_quotes.append(token.string.lstrip("rRbBfF"))
        elif name == "FSTRING_END":
            open_quotes.pop()
    return lines


@pytest.mark.parametrize(
    "newer", ["type X = int", "def f[T](x: T): ...", "class A[T]: ...", "def f[T = int](x: T): ..."]
)
def test_newer_grammar_would_be_found(newer: str) -> None:
    with pytest.raises(SyntaxError):
        ast.parse(newer, feature_version=OLDEST_PYTHON)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="older versions refuse these themselves")
@pytest.mark.parametrize("newer", ["f'{x['a']}'", "f'{f'{x}'}'", "f'{\"\\n\".join(x)}'"])
def test_newer_strings_would_be_found(newer: str) -> None:
    assert nested_quotes(newer) == [1]
    assert not nested_quotes("f'{x[\"a\"]}' 'b' f'\\n{x}'")


def test_every_open_names_its_encoding() -> None:
    for path in (*FILES, *SCRIPTS):
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = getattr(function, "id", getattr(function, "attr", ""))
            keywords = {keyword.arg for keyword in node.keywords}
            where = f"{relative(path)}:{node.lineno}"
            if name in ("read_text", "write_text"):
                assert "encoding" in keywords, where
            if name == "open" and ast.unparse(function) != "os.open":
                modes = [
                    value.value
                    for value in [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
                    if isinstance(value, ast.Constant) and isinstance(value.value, str) and len(value.value) <= 3
                ]
                assert "encoding" in keywords or any("b" in mode for mode in modes), where
