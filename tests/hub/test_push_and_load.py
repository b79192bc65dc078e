"""The real client pushes to a Hub on the loopback interface, and others load from it, without the package."""

import json
import os
import subprocess
import sys

import pytest
from huggingface_hub import ModelCard

from hf_ptm_ext.hub import code_files
from tests.hub.checkpoints import run_script
from tests.hub.loopback_hub import running

REPOSITORY = "tester/tiny-spanbert"

PUSH = f"""
import torch
from huggingface_hub import HfApi
from tests.hub.checkpoints import tiny_model, tiny_tokenizer

model = tiny_model()
model.push_to_hub("{REPOSITORY}")
tiny_tokenizer().push_to_hub("{REPOSITORY}")
print(HfApi().model_info("{REPOSITORY}").sha)
with torch.no_grad():
    model.bert.embeddings.word_embeddings.weight.mul_(2)
model.push_to_hub("{REPOSITORY}", commit_message="second")
print(HfApi().model_info("{REPOSITORY}").sha)
"""

LOAD = """
import json, sys
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer, pipeline

revision = {revision!r}
options = dict(revision=revision, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("{repository}", **options)
model = AutoModelForPreTraining.from_pretrained("{repository}", **options)
encoded = tokenizer("the light of the harbour", return_tensors="pt")
with torch.no_grad():
    logits = model(**encoded).prediction_logits
assert AutoModelForMaskedLM.from_pretrained("{repository}", **options).config.auto_map.keys() >= {{"AutoModel"}}
assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
fills = pipeline("fill-mask", model="{repository}", **options)("the [MASK] of the harbour")
assert "hf_ptm_ext" not in sys.modules
print(json.dumps([logits.double().sum().item(), fills[0]["token"], type(model).__module__.split(".")[-2]]))
"""

REPUSH = f"""
from transformers import AutoModelForMaskedLM, AutoTokenizer

options = dict(trust_remote_code=True)
AutoModelForMaskedLM.from_pretrained("{REPOSITORY}", **options).push_to_hub("tester/copy")
AutoTokenizer.from_pretrained("{REPOSITORY}", **options).push_to_hub("tester/copy")
AutoModelForMaskedLM.from_pretrained("tester/copy", **options)
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def environment(hub, tmp_path_factory):
    return hub.environment(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def commits(hub, environment):
    """The two commits of a model that was pushed with its tokenizer and then pushed again."""
    return run_script(PUSH, hidden=False, **environment).split()


def load(environment, revision, **more):
    code = LOAD.format(revision=revision, repository=REPOSITORY)
    printed = run_script(code, **{**environment, **more})
    return json.loads(printed.splitlines()[-1])


@pytest.fixture(scope="module")
def loaded(environment, commits):
    """What a fresh process without the package computes from the first commit."""
    return load(environment, commits[0])


def test_a_push_is_complete(hub, commits):
    for commit in commits:
        files = hub.files(REPOSITORY, commit)
        assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "modeling_spanbert.py"} <= set(
            files
        )
        assert len(json.loads(files["config.json"])["auto_map"]) == 8
        assert {path.name for path in code_files("spanbert")} <= set(files)
    assert not [line for line in hub.state.log if line.startswith("UNHANDLED")]


def test_the_pinned_revision_loads_by_id_without_the_package(loaded, commits):
    assert loaded[2] == commits[0]


@pytest.mark.slow
def test_it_loads_again_offline(loaded, environment, commits):
    assert load(environment, commits[0], HF_HUB_OFFLINE="1") == loaded


@pytest.mark.slow
def test_main_is_what_was_pushed_last(loaded, environment, commits):
    total, _, commit = load(environment, "main")
    assert commit == commits[1]
    assert total != loaded[0]


@pytest.mark.slow
def test_a_push_of_the_loaded_copy_is_complete(hub, environment, commits):
    run_script(REPUSH, **environment)
    original, copy = hub.files(REPOSITORY), hub.files("tester/copy")
    assert {name for name in original if name.endswith(".py")} == {name for name in copy if name.endswith(".py")}
    assert json.loads(copy["config.json"])["auto_map"] == json.loads(original["config.json"])["auto_map"]


@pytest.mark.slow
def test_the_card_passes_the_hubs_check_and_can_be_pushed(hub, environment, commits):
    run_script(
        "import tempfile\nfrom huggingface_hub import ModelCard\nfrom hf_ptm_ext.hub import write_model_card\n"
        "path = write_model_card(tempfile.mkdtemp(), family='spanbert', metrics={'eval_mlm_accuracy': 0.3},\n"
        "    baselines={}, training={}, data={'name': 'a text', 'license': 'cc0-1.0'}, language='en',\n"
        f"    license='apache-2.0', repo_id='{REPOSITORY}')\n"
        f"card = ModelCard.load(path)\ncard.validate()\ncard.push_to_hub('{REPOSITORY}')\n",
        hidden=False,
        **environment,
    )
    card = ModelCard(hub.files(REPOSITORY)["README.md"].decode("utf-8"))
    assert card.data.eval_results[0].metric_value == 0.3


@pytest.mark.slow
def test_verify_of_a_repository_shows_commit_and_code(environment, commits):
    result = subprocess.run(
        [sys.executable, "-m", "hf_ptm_ext", "verify", REPOSITORY, "--trust-remote-code", "--revision", commits[0]],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"commit  {commits[0]}" in result.stdout
    assert "modeling_spanbert.py  (as installed)" in result.stdout


PUSH_ADAPTER = f"""
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoModelForSequenceClassification
import hf_ptm_ext

torch.manual_seed(1)
base = AutoModelForSequenceClassification.from_pretrained("{REPOSITORY}", num_labels=3)
lora = LoraConfig(task_type=TaskType.SEQ_CLS, target_modules=["query", "value"], r=2, init_lora_weights=False)
model = get_peft_model(base, lora).eval()
model.push_to_hub("tester/adapter")
ids = torch.arange(5, 15)[None]
with torch.no_grad():
    # The pooler is new as well, and an adapter carries only the classifier: compare from the same pooler.
    model.base_model.model.bert.pooler.dense.weight.zero_()
    model.base_model.model.bert.pooler.dense.bias.fill_(0.5)
    print(model(ids).logits.flatten().tolist())
"""

LOAD_ADAPTER = """
import torch
from peft import AutoPeftModelForSequenceClassification

model = AutoPeftModelForSequenceClassification.from_pretrained("tester/adapter", num_labels=3, trust_remote_code=True)
ids = torch.arange(5, 15)[None]
with torch.no_grad():
    model.base_model.model.bert.pooler.dense.weight.zero_()
    model.base_model.model.bert.pooler.dense.bias.fill_(0.5)
    print(model.eval()(ids).logits.flatten().tolist())
"""


@pytest.mark.slow
def test_an_adapter_is_pushed_and_loads_without_the_package(hub, environment, commits):
    pushed = json.loads(run_script(PUSH_ADAPTER, hidden=False, **environment).splitlines()[-1])
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(hub.files("tester/adapter"))
    assert json.loads(hub.files("tester/adapter")["adapter_config.json"])["base_model_name_or_path"] == REPOSITORY
    loaded = json.loads(run_script(LOAD_ADAPTER, **environment).splitlines()[-1])
    assert loaded == pytest.approx(pushed, abs=1e-6)


PUSH_MASS = """
import torch
from hf_ptm_ext import MassConfig, MassForConditionalGeneration
from hf_ptm_ext.conversion.mass import read_vocabulary, wordpiece_tokenizer
from tests.hub.checkpoints import FIXTURES

torch.manual_seed(0)
vocab = read_vocabulary(FIXTURES / "vocab.txt")
sizes = {f"{side}_{name}": value for side in ("encoder", "decoder")
         for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))}
end = vocab["[SEP]"]
config = MassConfig(vocab_size=len(vocab), d_model=32, max_position_embeddings=48, bos_token_id=vocab["[CLS]"],
                    eos_token_id=end, decoder_start_token_id=end, **sizes)
model = MassForConditionalGeneration(config).eval()
tokenizer = wordpiece_tokenizer(vocab, config, do_lower_case=True)
model.push_to_hub("tester/tiny-mass")
tokenizer.push_to_hub("tester/tiny-mass")
"""

GENERATE_MASS = """
import json
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("tester/tiny-mass", trust_remote_code=True)
model = AutoModelForSeq2SeqLM.from_pretrained("tester/tiny-mass", trust_remote_code=True)
sources = tokenizer(["the light of the harbour", "the harbour"], padding=True, return_tensors="pt")
output = model.generate(**sources, num_beams=3, max_new_tokens=6, eos_at_limit=True)
print(json.dumps([output.tolist(), type(model).__module__.split(".")[0]]))
"""


@pytest.mark.slow
def test_an_encoder_decoder_is_pushed_and_generates_without_the_package(hub, environment):
    run_script(PUSH_MASS, hidden=False, **environment)
    files = hub.files("tester/tiny-mass")
    assert {"modeling_mass.py", "generation_config.json", "tokenizer.json"} <= set(files)
    remote = json.loads(run_script(GENERATE_MASS, **environment).splitlines()[-1])
    local = json.loads(run_script("import hf_ptm_ext\n" + GENERATE_MASS, hidden=False, **environment).splitlines()[-1])
    assert remote == [local[0], "transformers_modules"]
    assert local[1] == "hf_ptm_ext"
    assert all(len(row) <= 7 for row in local[0])
