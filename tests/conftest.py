"""Settings of every test process: one thread each, no network; and which tests are of which tier.

Tier 0 (`make test`) is what has neither mark, tier 1 adds `full`, the second tier is `slow`.
"""

import gc
import os
import signal
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a shell; tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
# Left to tier 1: jobs, trainers, processes. Of each kind tier 0 has what `FIRST` names.
FULL = (
    *("cli", "trainers", "hub", "remote", "fuzz", "distillation", "pipelines", "adapters/test_peft_registration.py"),
    *("adapters/test_adapter_trainer.py", "collators/test_randomness.py", "collators/test_denoising_trainers.py"),
    *("conversion/test_damaged.py", "models/ernie_thu/test_processor_files.py", "models/ernie_thu/test_together.py"),
    *("models/ernie_thu/test_updates.py", "models/spanbert/test_accumulation.py", "models/test_generic_code.py"),
    *("models/distilled_bilstm", "models/elmo/test_elmo_jobs.py", "test_wheel.py", "test_docs.py"),
)
FIRST = (
    "cli/test_help.py",
    "cli/test_loading.py",
    "cli/test_pretrain.py::test_checkpoints_carry_their_code",
    "distillation/test_golden.py",
    "remote/test_every_system.py",
    "trainers/test_loss_terms.py",
    "trainers/test_resume.py::test_prepared_rows_resume_with_the_same_masks_across_epochs[0]",
)
# Checks of the code that families share, which cost the most: in the first tier of one encoder and one
# encoder-decoder, and of a family with terms of its own.
COSTLY = {
    "test_accumulation_equals_one_large_batch",
    "test_all_heads_in_a_process_without_the_package",
    "test_compiled_graphs_are_whole_and_equal",
    "test_fusing_bypasses_no_adapter",
    "test_smoothing_own_losses_and_evaluation_in_between",
    "test_special_inputs_reach_the_model",
}
WHOLE, WITH_OWN_TERMS = ("TestSpanBert", "TestMass"), ("TestErnieThu",)


def is_full(path: str, item: pytest.Item) -> bool:
    """Whether a test waits for tier 1."""
    if path.startswith(FIRST):
        return False
    name, owner = item.name.split("[")[0], item.cls.__name__ if item.cls else ""
    shared = item.cls is not None and item.function.__module__.startswith("tests.conformance")
    if shared and owner not in WHOLE and not owner.endswith("Generation"):
        return True
    return path.startswith(FULL) or "compile" in name or "process" in name or "memory" in name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(TESTS).as_posix() + "::" + item.nodeid.split("::", 1)[-1]
        name, owner = item.name.split("[")[0], item.cls.__name__ if item.cls else ""
        of_terms = not any(part in name for part in ("process", "compiled", "fusing"))
        whole = not owner or owner in WHOLE or (owner in WITH_OWN_TERMS and of_terms)
        if name in COSTLY and not whole:
            item.add_marker(pytest.mark.slow)
        if is_full(path, item):
            item.add_marker(pytest.mark.full)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of the search for garbage, which each Trainer and job makes anew."""
    gc.collect()
    gc.freeze()
