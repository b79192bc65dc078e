"""A compiled pre-training is compiled once: no batch of varied text has a shape that its arguments do not tell."""

import pytest
import torch
from transformers import TrainerCallback

from hf_ptm_ext.cli.pretrain import Pretrain, parse
from tests.cli.jobs import flags
from tests.cli.test_pretrain_denoising import TINY

pytestmark = pytest.mark.slow

# Without tlm: XLM's forward, transformers' own, reads the longest length of each batch on the host.
ENCODER = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64"
CASES = {
    "mlm": {"pack_rows": "true"},
    "mlm, a block a row": {},
    "wwm": {"pack_rows": "true"},
    "span": {"pack_rows": "true"},
    "span, pairs": {"pack_rows": "true", "next_sentence_prediction": "true"},
    "unilm": {"pack_rows": "true", "family": "unilm"},
    "mass": {},
    "text_infilling": {},
    "span_corruption": {},
}


class Graphs(TrainerCallback):
    """How many graphs there are behind each update."""

    def __init__(self):
        self.counts = []

    def on_step_end(self, args, state, control, **kwargs):
        self.counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_compiled_again_behind_the_second_update(tmp_path, case):
    torch._dynamo.reset()
    objective = case.split(",")[0]
    values = {
        "objective": objective,
        "config_overrides": TINY.get(objective, ENCODER),
        "vocab_size": 400,
        "max_seq_length": 64,
        "per_device_train_batch_size": 8,
        "max_steps": 300,
        "save_strategy": "no",
        "torch_compile": "true",
        "torch_compile_backend": "eager",
        "output_dir": tmp_path,
        **CASES[case],
    }
    job = Pretrain(*parse(flags(**values)))
    job.prepare()
    trainer, _ = job.build(*job.variants, job.training_args)
    graphs = Graphs()
    trainer.add_callback(graphs)
    trainer.train()
    assert trainer.state.epoch > 1, "the end of an epoch is among them"
    assert graphs.counts[1] > 0
    assert set(graphs.counts[1:]) == {graphs.counts[1]}
