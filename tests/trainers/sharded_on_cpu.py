"""The command line, sharded by FSDP2 over processes without a GPU.

Accelerate shards on GPUs alone, torch over gloo as well: here accelerate is told that the processes have GPUs.

python -m tests.trainers.sharded_on_cpu COMMAND ..., under a launcher
"""

import sys

from accelerate import PartialState
from accelerate.utils import DistributedType

from hf_ptm_ext.cli import main


def shard_on_cpu():
    """Let accelerate take processes on processors for processes on GPUs."""
    begin = PartialState.__init__

    def begin_as_on_gpus(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = begin_as_on_gpus


if __name__ == "__main__":
    shard_on_cpu()
    sys.exit(main())
