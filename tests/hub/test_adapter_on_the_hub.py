"""AdapterTrainer pushes the adapter and its card alone, and a process with the package loads them by their id."""

import json

import pytest
from huggingface_hub import ModelCard

from hf_ptm_ext.hub.model_card import card_problems
from tests.hub.checkpoints import run_script
from tests.hub.loopback_hub import running

BASE, ADAPTER = "tester/tiny-spanbert", "tester/houlsby"

PUSH = f"""
import tempfile
import torch
from datasets import Dataset
from peft import get_peft_model
from transformers import AutoModelForSequenceClassification, TrainingArguments
from hf_ptm_ext import HoulsbyConfig
from hf_ptm_ext.adapters import AdapterTrainer
from tests.hub.checkpoints import tiny_model, tiny_tokenizer

tiny_model().push_to_hub("{BASE}")
tiny_tokenizer().push_to_hub("{BASE}")
base = AutoModelForSequenceClassification.from_pretrained("{BASE}", num_labels=3)
model = get_peft_model(base, HoulsbyConfig(task_type="SEQ_CLS", reduction_factor=4))
rows = Dataset.from_dict({{"input_ids": [[2, 7, 8, 3], [2, 9, 3]] * 4, "labels": [0, 1] * 4}})
arguments = TrainingArguments(
    tempfile.mkdtemp(), max_steps=4, save_steps=2, learning_rate=1e-2, use_cpu=True, report_to=[], disable_tqdm=True,
    push_to_hub=True, hub_model_id="{ADAPTER}", hub_strategy="every_save", hub_always_push=True,
)
trainer = AdapterTrainer(
    model, arguments, train_dataset=rows, processing_class=tiny_tokenizer(),
    card={{"language": "en", "license": "apache-2.0", "data": {{"name": "eight rows", "license": "cc0-1.0"}}}},
)
trainer.train()
trainer.push_to_hub()
with torch.no_grad():
    print(model.eval()(torch.arange(5, 15)[None]).logits.flatten().tolist())
"""

LOAD = f"""
import hf_ptm_ext
import torch
from peft import AutoPeftModelForSequenceClassification

model = AutoPeftModelForSequenceClassification.from_pretrained("{ADAPTER}", num_labels=3).eval()
with torch.no_grad():
    print(model(torch.arange(5, 15)[None]).logits.flatten().tolist())
"""


@pytest.mark.slow
def test_pushed_while_it_trains_and_loaded_by_its_id(tmp_path_factory):
    with running() as hub:
        environment = hub.environment(tmp_path_factory.mktemp("home"))
        pushed = json.loads(run_script(PUSH, hidden=False, **environment).splitlines()[-1])
        files = hub.files(ADAPTER)
        assert {"README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= set(files)
        assert not [name for name in files if name.startswith("checkpoint-") or name == "model.safetensors"]
        assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == BASE
        text = files["README.md"].decode("utf-8")
        assert not card_problems(text)
        card = ModelCard(text)
        assert card.data.base_model == BASE
        assert card.data.library_name == "peft"
        assert f'AutoModelForSequenceClassification.from_pretrained("{BASE}"' in text
        assert not [line for line in hub.state.log if line.startswith("UNHANDLED")]
        loaded = json.loads(run_script(LOAD, hidden=False, **environment).splitlines()[-1])
        assert loaded == pushed
