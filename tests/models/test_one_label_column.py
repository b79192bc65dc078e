"""Pre-training heads under real DistributedDataParallel with one label column, `find_unused_parameters` off."""

import sys

import pytest

from tests.cli.jobs import run_process
from tests.models.one_label_column import FAMILIES


@pytest.mark.slow
def test_two_processes_train_with_labels_alone():
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    output = run_process(sys.executable, *words, "tests.models.one_label_column")
    assert output.split() == [word for family in FAMILIES for word in ("TRAINED", family)]
