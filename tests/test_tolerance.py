"""The measure of agreement, and the numbers that it judges on processors of other kinds."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.tolerance import OTHER_PROCESSOR, assert_agrees

# Name -> the variables that make torch compute as on such a processor, and what it then reports.
PROCESSORS = {
    "no vectors": ({"ATEN_CPU_CAPABILITY": "default"}, {"DEFAULT"}),
    "avx2": ({"ATEN_CPU_CAPABILITY": "avx2"}, {"AVX2", "DEFAULT"}),
    "avx2 in oneDNN": ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, None),
}
CAPABILITY = "import torch; print(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())"


@pytest.mark.parametrize("reference", [0.0, 1.0, -99.0])
def test_a_tolerance_is_a_share_of_one_plus_the_reference(reference):
    allowed = 1e-3 * (1 + abs(reference))
    assert assert_agrees(reference + 0.5 * allowed, reference, 1e-3) == pytest.approx(2)
    assert assert_agrees(reference, reference, 1e-3) == float("inf")
    with pytest.raises(AssertionError, match=r"1 of 1 elements disagree; the worst, at \(\), is off by 1.1 times"):
        assert_agrees(reference + 1.1 * allowed, reference, 1e-3)


def test_the_worst_element_is_named():
    reference = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    ours = reference + torch.tensor([[0.0, 0.1], [0.0, 0.2]])
    with pytest.raises(AssertionError, match=r"logits: 2 of 4 elements disagree; the worst, at \(1, 1\)"):
        assert_agrees(ours, reference, 1e-3, name="logits")
    with pytest.raises(AssertionError, match="1 of 4"):
        assert_agrees(ours, reference, 0.01, 0.046)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_agrees_with_nothing_finite(number):
    with pytest.raises(AssertionError, match="1 of 2"):
        assert_agrees([1.0, number], [1.0, 2.0], 1e9)
    with pytest.raises(AssertionError, match="1 of 2"):
        assert_agrees([1.0, 2.0], [1.0, number], 1e9)


def test_shapes_are_not_broadcast():
    with pytest.raises(AssertionError, match="shape"):
        assert_agrees(torch.zeros(2, 1), torch.zeros(2), 1.0)


def test_double_precision_must_agree_too_where_it_is_given(monkeypatch):
    reference, near, far = (torch.tensor([number]) for number in (0.0, 0.9e-3, 1.1e-3))
    assert_agrees(near, reference, 1e-3, double=near.double())
    with pytest.raises(AssertionError, match="in double precision"):
        assert_agrees(near, reference, 1e-3, double=far.double())
    with pytest.raises(AssertionError, match="ours: 1 of 1"):
        assert_agrees(far, reference, 1e-3, double=near.double())
    monkeypatch.setenv(OTHER_PROCESSOR, "one")
    assert_agrees(far, reference, 1e-3, double=near.double())
    for ours, double in ((-near, near), (far, far)):
        with pytest.raises(AssertionError, match="double precision"):
            assert_agrees(ours, reference, 1e-3, double=double.double())


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the variables are those of x86")
@pytest.mark.parametrize(("processor", "threads"), zip(PROCESSORS, (1, 2, 1), strict=True))
def test_no_processor_decides(processor, threads):
    """Every number that a reference judges, computed as another processor would."""
    variables, reported = PROCESSORS[processor]
    root = Path(__file__).parents[1]
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    environment[OTHER_PROCESSOR] = processor

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True, timeout=3600
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        return done.stdout

    capability, count = run("-c", CAPABILITY).split()
    assert int(count) == threads
    assert reported is None or capability in reported
    files = [str(file) for file in (root / "tests").rglob("test_*.py") if "mark.golden" in file.read_text("utf-8")]
    passed = run("-m", "pytest", "-m", "golden and not slow", "-p", "no:cacheprovider", "--tb=short", *files)
    assert "[100%]" in passed
