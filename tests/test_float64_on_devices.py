"""Float64 is used where a device has it: MPS and others have none, and a tensor of it there is an error."""

import ast
from pathlib import Path

import torch
from torch import nn

from hf_ptm_ext.models.losses_core import target_sums

PACKAGE = Path(__file__).parents[1] / "hf_ptm_ext"
# Weights are converted on the CPU.
FILES = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "conversion"]


def uses_of_float64(tree: ast.AST):
    """Each use in torch, with the source of its innermost function."""

    def walk(node, function):
        if isinstance(node, ast.FunctionDef):
            function = node
        on_a_device = True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on_a_device = any(keyword.arg == "device" for keyword in node.keywords)
            if node.func.attr == "double":
                yield node, function
        named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"
        if named and node.attr in ("float64", "double"):
            yield node, function
        for child in ast.iter_child_nodes(node):
            # `torch.tensor(values, dtype=torch.float64)` without a device is made on the CPU.
            if isinstance(child, ast.keyword) and not on_a_device and _makes(node):
                continue
            yield from walk(child, function)

    yield from walk(tree, None)


def _makes(call: ast.Call) -> bool:
    return isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"


def test_float64_stays_on_devices_that_have_it():
    faults = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if "float64" not in text and "double" not in text:
            continue
        for node, function in uses_of_float64(ast.parse(text)):
            around = "" if function is None else ast.get_source_segment(text, function)
            if 'in ("cpu", "cuda")' not in around and ".cpu()" not in around:
                faults.append(f"{path.name}:{node.lineno} takes float64 wherever its tensors are")
    assert not faults


def test_the_lint_finds_float64_on_a_device():
    bad = ["x.double()", "x.to(torch.float64)", "torch.zeros(3, dtype=torch.float64, device=x.device)"]
    assert all(list(uses_of_float64(ast.parse(line))) for line in bad)
    assert not list(uses_of_float64(ast.parse("torch.tensor(values, dtype=torch.float64)")))


def test_sums_are_float64_and_exact_beyond_what_float32_counts():
    torch.manual_seed(0)
    logits, targets = torch.randn(5000, 7), torch.randint(0, 7, (5000,))
    targets[::3] = -100
    sums = target_sums(nn.Identity(), logits, targets)
    real = targets != -100
    loss = nn.functional.cross_entropy(logits.double(), targets, reduction="sum")
    assert sums.dtype == torch.float64
    torch.testing.assert_close(sums[0], loss, atol=0, rtol=1e-6)
    assert sums[1:].tolist() == [float((logits.argmax(-1) == targets)[real].sum()), float(real.sum())]
    assert target_sums(nn.Identity(), logits[:0], targets[:0]).tolist() == [0.0, 0.0, 0.0]
