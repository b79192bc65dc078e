"""Two processes train a model of each family for two updates; prints what differs from one process on the same rows.

python -m tests.trainers.every_family_in_two fsdp|ddp FOLDER [FAMILY ...], under a launcher
"""

import copy
import importlib
import sys

import torch
from transformers import TrainingArguments

from hf_ptm_ext import DistilledBiLstmConfig, DistilledBiLstmForSequenceClassification
from hf_ptm_ext.trainers import PtmTrainer
from tests.processes import leave_the_others
from tests.trainers.sharded_on_cpu import shard_on_cpu

RATE, UPDATES = 0.05, 2
FAMILIES = (
    *("spanbert", "unilm", "mass", "mass_nmt", "ernie_thu", "kbert", "nezha", "zen", "ib_bert", "k_adapter"),
    *("weighted_layers", "distilled_bilstm"),
)


def case_of(family):
    """What the conformance suite knows of a family."""
    file = family if family.startswith("mass") else f"modeling_{family}"
    module = importlib.import_module(f"tests.models.{family}.test_{file}")
    return next(
        value
        for name, value in vars(module).items()
        if name.startswith("Test") and value.__module__ == module.__name__
    )()


def stacked(rows):
    """Rows as a batch."""
    return torch.utils.data.default_collate(rows)


def compare(model, rows, folder, sharded):
    """Train in both processes and, without a Trainer, in this one; what is not the same."""
    whole = copy.deepcopy(model).train()
    args = TrainingArguments(
        folder,
        max_steps=UPDATES,
        per_device_train_batch_size=len(rows) // 2,
        train_sampling_strategy="sequential",
        optim="sgd",
        learning_rate=RATE,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        use_cpu=True,
        fsdp=sharded,
        fsdp_config={"version": 2, "state_dict_type": "SHARDED_STATE_DICT"} if sharded else None,
    )
    trainer = PtmTrainer(model, args, train_dataset=rows * UPDATES, data_collator=stacked)
    trainer.train()
    state = trainer.whole_state()
    state = trainer.saved_model.state_dict() if state is None else state
    optimizer = torch.optim.SGD([value for value in whole.parameters() if value.requires_grad], RATE)
    wrong = []
    for logged in trainer.state.log_history[:UPDATES]:
        optimizer.zero_grad()
        loss = whole(**stacked(rows)).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
        optimizer.step()
        for name, value in (("loss", loss), ("grad_norm", norm)):
            if abs(logged[name] - value.item()) > 1e-4 * abs(value.item()):
                wrong.append(f"{name} {logged[name]} not {value.item()}")
    if trainer.is_world_process_zero():
        wrong += [
            name for name, value in whole.state_dict().items() if not torch.allclose(value, state[name], atol=2e-6)
        ]
    layers = sum(type(module).__name__.startswith("FSDP") for module in trainer.model.modules())
    trainer.accelerator.free_memory()
    return wrong, layers


def bilstm():
    """A model and rows of the one family that has no attention."""
    torch.manual_seed(0)
    config = DistilledBiLstmConfig(vocab_size=40, embedding_size=8, lstm_size=8, classifier_size=8, num_labels=3)
    ids = torch.randint(5, 40, (6, 9))
    rows = [{"input_ids": one, "attention_mask": torch.ones_like(one), "labels": one[0] % 3} for one in ids]
    return DistilledBiLstmForSequenceClassification(config), rows


def models(family):
    """The heads for pre-training, or else every head: name, model, rows."""
    if family == "distilled_bilstm":
        yield bilstm()
        return
    case = case_of(family)
    labelled = [head for head in case.heads if head.labels is not None]
    for head in [head for head in labelled if head.kind == "vocabulary"] or labelled:
        batches = [case.labelled(head, seed=seed) for seed in (0, 1)]
        yield (
            case.model(head),
            [
                {name: value[number] for name, value in batch.items()}
                for batch in batches
                for number in range(len(batch["input_ids"]))
            ],
        )


if __name__ == "__main__":
    mode, folder, *families = sys.argv[1:]
    if mode == "fsdp":
        shard_on_cpu()
    for family in families or FAMILIES:
        for model, rows in models(family):
            wrong, units = compare(model, rows, folder, mode == "fsdp")
            if torch.distributed.get_rank() == 0:
                name = type(model).__name__.removeprefix("FSDP")
                print("TRAINED", name, units, *wrong, flush=True)
    leave_the_others()
