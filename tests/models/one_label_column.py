"""Two processes train every pre-training head with `labels` alone under plain DistributedDataParallel.

python -m tests.models.one_label_column, under a launcher
"""

import importlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FAMILIES = ("spanbert", "unilm", "nezha", "zen", "ib_bert", "kbert", "ernie_thu")


def case_of(family):
    """What the conformance suite knows of a family, and its pre-training head."""
    module = importlib.import_module(f"tests.models.{family}.test_modeling_{family}")
    case = next(value for name, value in vars(module).items() if name.startswith("Test"))()
    return case, next(head for head in case.heads if head.auto_class == "AutoModelForPreTraining")


def train(family, updates=3):
    case, head = case_of(family)
    batch = case.labelled(head, seed=dist.get_rank())
    others = {name for name in case.labels(head, batch) if "label" in name} - {"labels"}
    batch = {name: value for name, value in batch.items() if name not in others}
    model = DistributedDataParallel(case.model(head).train())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(updates):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for name in FAMILIES:
        train(name)
        if dist.get_rank() == 0:
            print("TRAINED", name, flush=True)
    dist.destroy_process_group()
