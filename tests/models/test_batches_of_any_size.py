"""No forward asks a tensor for `len()` or walks over its rows: export and tracing would fix the batch by it."""

import ast
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "hf_ptm_ext" / "models"
# Searches and tokenizers run outside of every graph.
OUTSIDE = ("beam_search_", "generation_", "tokenization_", "processing_", "batch_", "call_")
FILES = [path for path in sorted(MODELS.rglob("*.py")) if not path.name.startswith(OUTSIDE)]
WALKS = ("len", "enumerate", "zip", "list", "tuple", "reversed")
PLAIN = ("tolist", "item", "size", "dim", "numel", "unbind", "split", "chunk", "is_floating_point")
FIELDS = ("last_hidden_state", "logits", "pooler_output")


def is_tensor(node, known):
    """Whether an expression is a tensor, as far as a reader of the function can tell."""
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, ast.Attribute):
        return node.attr in FIELDS
    if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Subscript):
        return is_tensor(getattr(node, "left", getattr(node, "operand", getattr(node, "value", None))), known)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr not in PLAIN and is_tensor(node.func.value, known)
    return False


def fixed_batches(source):
    """Lines that take a tensor's length or walk over it, in functions that name their tensors."""
    found = []
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        notes = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation}
        known = {name for name, note in notes.items() if note in ("torch.Tensor", "torch.Tensor | None")}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_tensor(node.value, known):
                known.add(node.targets[0].id)
        for node in ast.walk(function):
            walked = [node.iter] if isinstance(node, ast.For | ast.comprehension) else []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WALKS:
                walked = [
                    getattr(each, "value", each) if isinstance(each, ast.Starred) else each for each in node.args
                ]
            found += [f"{each.lineno}: {ast.unparse(each)}" for each in walked if is_tensor(each, known)]
    return sorted(set(found))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_forward_counts_or_walks_rows(path):
    assert fixed_batches(path.read_text(encoding="utf-8")) == []


WRONG = ("len(states)", "[row for row in states]", "list(enumerate(states + 1))", "len(output.logits)", "len(kept)")
HEAD = "def f(states: torch.Tensor, output):\n    kept = states.masked_fill(x, 0)\n    return "


@pytest.mark.parametrize("line", WRONG)
def test_the_check_finds_what_fixes_a_batch(line):
    assert fixed_batches(HEAD + line)
    assert fixed_batches(HEAD + "kept.shape[0], len(states.tolist()), list(states.unbind(1))") == []
