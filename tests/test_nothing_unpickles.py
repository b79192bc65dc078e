"""No file that somebody else wrote is read by a loader that can run what is in it.

Static: every call in the package and its scripts. Only two readers of pickles are known: `torch.load` with
`weights_only=True`, and an unpickler of our own whose `find_class` decides.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted([*(ROOT / "hf_ptm_ext").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")])
# Modules whose loaders unpickle, or run what they read.
UNPICKLERS = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "jsonpickle",
    "klepto",
    "pickle5",
}
# Loaders by name, whatever module they are in: pandas, gensim, yaml, PyTorch Lightning, skops, fastai.
LOADERS = {
    "read_pickle",
    "unsafe_load",
    "unsafe_load_all",
    "full_load",
    "full_load_all",
    "load_all",
    "load_learner",
    "load_facebook_model",
    "load_fasttext_format",
    "load_from_checkpoint",
}
BUILTINS = {"eval", "exec"}


def problem(call: ast.Call) -> str | None:
    """What is wrong with a call, if it is one of a loader that can run code."""
    name = ast.unparse(call.func)
    base, _, last = name.rpartition(".")
    first = base.split(".")[0]
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if first in UNPICKLERS and last in {"load", "loads", "open", "Unpickler", "DbfilenameShelf"}:
        return f"{name} unpickles"
    if (base and last in LOADERS) or name in BUILTINS:
        return f"{name} runs what it reads"
    if last == "load" and first == "torch" and options.get("weights_only") != "True":
        return f"{name} without weights_only=True"
    if options.get("weights_only") == "False" or options.get("allow_pickle") == "True":
        return f"{name} allows pickles"
    if last in ("load", "NpzFile") and first in ("np", "numpy") and options.get("allow_pickle") != "False":
        return f"{name} without allow_pickle=False"
    if first == "yaml" and last != "safe_load" and "load" in last:
        return f"{name} instead of yaml.safe_load"
    if last == "load" and base.split(".")[-1] in ("KeyedVectors", "Word2Vec", "FastText", "Doc2Vec", "SaveLoad"):
        return f"{name} unpickles"
    if last == "Unpickler":
        return f"{name} unpickles"
    return None


def names_of_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that a file gives to loaders of the modules above: `from pickle import loads as read`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module.split(".")[0], alias.name


def problems(source: str) -> list[str]:
    tree = ast.parse(source)
    found = [problem(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found += [
        f"from {module} import {name}"
        for module, name in names_of_imports(tree)
        if module in UNPICKLERS and "oad" in name
    ]
    found += [
        f"{node.name} must decide in find_class what may be named"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("Unpickler") for base in node.bases)
        and not any(isinstance(item, ast.FunctionDef) and item.name == "find_class" for item in node.body)
    ]
    return [text for text in found if text]


def test_no_call_of_the_package_unpickles() -> None:
    wrong = {str(path.relative_to(ROOT)): problems(path.read_text(encoding="utf-8")) for path in FILES}
    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize(
    "source",
    [
        "pickle.load(file)",
        "pickle.Unpickler(file).load()",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=safe)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "joblib.load(path)",
        "dill.loads(text)",
        "shelve.open(path)",
        "marshal.load(file)",
        "KeyedVectors.load(path)",
        "gensim.models.Word2Vec.load(path)",
        "pandas.read_pickle(path)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "eval(text)",
        "class Mine(pickle.Unpickler):\n    pass",
        "AutoModel.from_pretrained(path, weights_only=False)",
    ],
)
def test_each_such_call_would_be_found(source: str) -> None:
    assert problems(source)


@pytest.mark.parametrize(
    "source",
    [
        "torch.load(path, weights_only=True)",
        "np.load(path, allow_pickle=False)",
        "yaml.safe_load(text)",
        "json.load(f)",
    ],
)
def test_safe_calls_pass(source: str) -> None:
    assert not problems(source)
