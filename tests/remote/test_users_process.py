"""What a user does with a checkpoint where the package is not installed, all in one process."""

import json

import pytest
import torch
from transformers import pipeline

from hf_ptm_ext import SpanBertForMaskedLM
from tests.hub.checkpoints import run_script, tiny_model, tiny_tokenizer, write_checkpoint

SCRIPT = """
import json, pickle, sys
from pathlib import Path
import torch
import transformers
from transformers import AutoConfig, AutoModelForPreTraining, AutoTokenizer, pipeline

folder, again = {folder!r}, {again!r}
options = dict(trust_remote_code=True)
auto_map = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))["auto_map"]
classes = dict()
for auto_class in auto_map:
    loaded = getattr(transformers, auto_class).from_pretrained(folder, **options)
    classes[auto_class] = type(loaded).__name__
    assert type(loaded).__module__.startswith("transformers_modules."), type(loaded).__module__

tokenizer = AutoTokenizer.from_pretrained(folder, **options)
model = AutoModelForPreTraining.from_pretrained(folder, **options).eval()
encoded = tokenizer("the light of the harbour", return_tensors="pt")
boundaries = torch.tensor([[[1, 4]]])
with torch.no_grad():
    expected = model(**encoded, span_boundaries=boundaries)

# Loading a second time, re-saving, and loading the copy give the same model.
model.save_pretrained(again)
tokenizer.save_pretrained(again)
copy = AutoModelForPreTraining.from_pretrained(again, **options).eval()
second = AutoModelForPreTraining.from_pretrained(folder, **options).eval()
# Models, configs and outputs of remote classes can be pickled, as DataLoader workers and queues do.
pickled = pickle.loads(pickle.dumps(model)).eval()
for other in (copy, second, pickled):
    with torch.no_grad():
        output = other(**encoded, span_boundaries=boundaries)
    torch.testing.assert_close(output.prediction_logits, expected.prediction_logits, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(output.boundary_logits, expected.boundary_logits, rtol=1e-6, atol=1e-6)
assert pickle.loads(pickle.dumps(model.config)).to_dict() == model.config.to_dict()
assert pickle.loads(pickle.dumps(expected)).keys() == expected.keys()

fill = pipeline("fill-mask", model=folder, **options)
fills = [answer["token"] for answer in fill("the [MASK] of the harbour", top_k=3)]
spans = model.fill_span("the light [MASK] [MASK] the harbour of the sea", tokenizer, top_k=3)
configured = AutoModelForPreTraining.from_config(AutoConfig.from_pretrained(folder, **options), **options)
assert "hf_ptm_ext" not in sys.modules
print(json.dumps(dict(
    classes=classes,
    logits=expected.prediction_logits.flatten().tolist(),
    boundary_logits=expected.boundary_logits.flatten().tolist(),
    fills=fills,
    span=spans[0]["tokens"],
    configured=type(configured).__name__,
)))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("remote")
    return write_checkpoint(root / "tiny-spanbert"), root / "again"


@pytest.fixture(scope="module")
def said(folders, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    code = SCRIPT.format(folder=str(folders[0]), again=str(folders[1]))
    return json.loads(run_script(code, HF_HOME=str(home), HF_HUB_OFFLINE="1").splitlines()[-1])


def test_every_auto_class_loads_its_class(said):
    assert said["classes"] == {
        "AutoConfig": "SpanBertConfig",
        "AutoModel": "SpanBertModel",
        "AutoModelForPreTraining": "SpanBertForPreTraining",
        "AutoModelForMaskedLM": "SpanBertForMaskedLM",
        "AutoModelForSequenceClassification": "SpanBertForSequenceClassification",
        "AutoModelForTokenClassification": "SpanBertForTokenClassification",
        "AutoModelForQuestionAnswering": "SpanBertForQuestionAnswering",
        "AutoModelForMultipleChoice": "SpanBertForMultipleChoice",
    }
    assert said["configured"] == "SpanBertForPreTraining"


def test_outputs_are_those_of_the_installed_class(said):
    encoded = tiny_tokenizer()("the light of the harbour", return_tensors="pt")
    with torch.no_grad():
        output = tiny_model()(**encoded, span_boundaries=torch.tensor([[[1, 4]]]))
    assert said["logits"] == pytest.approx(output.prediction_logits.flatten().tolist(), abs=1e-6)
    assert said["boundary_logits"] == pytest.approx(output.boundary_logits.flatten().tolist(), abs=1e-6)


def test_masks_and_spans_are_filled_as_by_the_installed_class(said, folders):
    tokenizer = tiny_tokenizer()
    fill = pipeline("fill-mask", model=SpanBertForMaskedLM.from_pretrained(folders[0]), tokenizer=tokenizer)
    assert said["fills"] == [answer["token"] for answer in fill("the [MASK] of the harbour", top_k=3)]
    spans = tiny_model().fill_span("the light [MASK] [MASK] the harbour of the sea", tokenizer, top_k=3)
    assert said["span"] == spans[0]["tokens"]


def test_the_re_saved_copy_has_the_same_files(said, folders):
    names, again = ({path.name for path in folder.iterdir()} for folder in folders)
    assert names == again
    for name in names - {"model.safetensors", "config.json", "tokenizer_config.json"}:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_without_the_flag_no_code_is_run(folders):
    script = (
        "import sys\nfrom transformers import AutoConfig, AutoModel\n"
        "for auto in (AutoConfig, AutoModel):\n"
        f"    try:\n        auto.from_pretrained({str(folders[0])!r}, trust_remote_code=False)\n"
        "    except ValueError as error:\n        assert 'trust_remote_code' in str(error)\n"
        "    else:\n        raise SystemExit('loaded')\n"
        "assert not [name for name in sys.modules if 'spanbert' in name]\n"
    )
    run_script(script)
