"""Jobs in processes of their own: killed and resumed, pushed while training, evaluated in little memory."""

import hashlib
import signal
import subprocess
import sys
import time

import pytest

from hf_ptm_ext.trainers import last_complete_checkpoint
from tests.cli.jobs import ROOT, flags, run_pretrain, run_process
from tests.hub.checkpoints import run_script
from tests.hub.loopback_hub import running


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize(("streaming", "weights"), [(True, "fp32"), (False, "fp32"), (False, "bf16")])
def test_a_killed_job_resumes_to_the_same_weights(tmp_path, streaming, weights):
    options = {"max_steps": 40, "save_steps": 5, "streaming": streaming, "max_train_rows": None if streaming else 100}
    options["weights"] = weights
    run_pretrain(tmp_path / "whole", **options)
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "hf_ptm_ext", "pretrain", *flags(output_dir=killed, **options)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 600
    while last_complete_checkpoint(killed) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert last_complete_checkpoint(killed) is not None
    run_pretrain(killed, resume_from_checkpoint="auto", **options)
    assert digest(killed) == digest(tmp_path / "whole")


LOAD_PUSHED = """
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer
options = dict(trust_remote_code=True)
AutoModel.from_pretrained("tester/pushed", **options)
model = AutoModelForPreTraining.from_pretrained("tester/pushed", **options)
tokenizer = AutoTokenizer.from_pretrained("tester/pushed", **options)
print(model.fill_span("we [MASK] a model", tokenizer)[0]["tokens"])
"""


@pytest.mark.slow
def test_every_push_of_a_job_contains_the_code(tmp_path):
    with running() as server:
        environment = server.environment(tmp_path / "home")
        options = {"push_to_hub": True, "hub_model_id": "tester/pushed", "hub_always_push": True, "max_steps": 4}
        run_process(
            sys.executable,
            "-m",
            "hf_ptm_ext",
            "pretrain",
            *flags(output_dir=tmp_path / "out", **options),
            **environment,
        )
        commits = server.state.repositories[("model", "tester/pushed")].commits
        with_weights = [commit.files for commit in commits if "model.safetensors" in commit.files]
        assert len(with_weights) >= 2, "training pushed before its end"
        for files in with_weights:
            assert {"config.json", "modeling_spanbert.py", "configuration_spanbert.py", "tokenizer.json"} <= set(files)
        assert b"How to load" in with_weights[-1]["README.md"]
        run_script(LOAD_PUSHED, **server.environment(tmp_path / "other"))


EVALUATE = """
import sys
import torch
from hf_ptm_ext import DataCollatorForMaskedLanguageModeling, DataCollatorForSpanMasking
from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining
from hf_ptm_ext.cli.pretrain_arguments import PretrainingArguments
from hf_ptm_ext.trainers import PreTrainingTrainer
from tests.memory import peak_megabytes
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

torch.set_num_threads(1)
words = {token: number for number, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}
words.update({f"w{n}": n + 5 for n in range(29995)})
tokenizer = BertTokenizer(vocab=words)
sizes = dict(vocab_size=30000, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
if sys.argv[2] == "spans":
    model, collator = SpanBertForPreTraining(SpanBertConfig(**sizes)), DataCollatorForSpanMasking(tokenizer, seed=0)
else:
    model = BertForMaskedLM(BertConfig(**sizes))
    collator = DataCollatorForMaskedLanguageModeling(tokenizer, budget="exact", seed=0)
generator = torch.Generator().manual_seed(0)
rows = [
    {"input_ids": [2, *torch.randint(5, 30000, (62,), generator=generator).tolist(), 3]} for _ in range(64)
]
trainer = PreTrainingTrainer(
    model=model,
    args=PretrainingArguments(output_dir=sys.argv[1], per_device_eval_batch_size=64, use_cpu=True, disable_tqdm=True),
    eval_dataset=rows,
    data_collator=collator,
)
trainer.evaluate(torch.utils.data.Subset(rows, range(1)))  # what loading alone costs
before = peak_megabytes()
metrics = trainer.evaluate()
after = peak_megabytes()
print("GROWTH", int(after - before), metrics["eval_mlm_targets"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["spans", "tokens"])
def test_evaluation_needs_no_room_for_logits(tmp_path, objective):
    """Case G15: 64 rows of 64 tokens and 30,000 pieces would be 490 MB of logits."""
    output = run_process(sys.executable, "-c", EVALUATE, str(tmp_path), objective, OMP_NUM_THREADS="1")
    growth, targets = output.rpartition("GROWTH")[2].split()
    assert int(targets) == 640
    assert int(growth) < 50
