"""Checkpoints that 0.1 saved with every family's own copies of the shared code load as they did."""

import json
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext import (
    ErnieThuForPreTraining,
    ErnieThuProcessor,
    KBertForSequenceClassification,
    KBertTokenizer,
    SpanBertForPreTraining,
)
from hf_ptm_ext.hub import code_files
from tests.hub.checkpoints import FIXTURES, run_script, tiny_tokenizer

TEXTS = ["The light was seen from the harbour.", "The harbour."]
CHECKPOINTS = {
    "spanbert": (SpanBertForPreTraining, None),
    "kbert": (KBertForSequenceClassification, KBertTokenizer),
    "ernie_thu": (ErnieThuForPreTraining, ErnieThuProcessor),
}

WITHOUT_THE_PACKAGE = """
import json, torch
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, AutoModelForSequenceClassification, AutoProcessor, AutoTokenizer

expected = load_file({folder!r} + "/expected.safetensors")
inputs = {{name[3:]: tensor for name, tensor in expected.items() if name.startswith("in.")}}
texts = {texts}.from_pretrained({folder!r}, trust_remote_code=True)
assert {{name: tensor.tolist() for name, tensor in texts({given!r}, padding=True, return_tensors="pt").items()}} == {{
    name: tensor.tolist() for name, tensor in inputs.items()
}}
model = {model}.from_pretrained({folder!r}, trust_remote_code=True).eval()
with torch.no_grad():
    output = model(**inputs)
for name in output:
    torch.testing.assert_close(output[name], expected["out." + name])
model.save_pretrained({target!r})
print(type(model).__module__.split(".")[0], list(output))
"""


@pytest.fixture(params=CHECKPOINTS)
def checkpoint(request, tmp_path) -> tuple[str, Path]:
    """Family and folder of a checkpoint as 0.1 saved it, with what it computed then."""
    with zipfile.ZipFile(FIXTURES / "saved_by_0_1" / f"{request.param}.zip") as file:
        file.extractall(tmp_path / "saved")
    return request.param, tmp_path / "saved"


def test_it_computes_what_it_did(checkpoint):
    family, folder = checkpoint
    model_class, texts_class = CHECKPOINTS[family]
    expected = load_file(folder / "expected.safetensors")
    inputs = {name[3:]: tensor for name, tensor in expected.items() if name.startswith("in.")}
    texts = texts_class.from_pretrained(folder) if texts_class else tiny_tokenizer()
    found = texts(TEXTS, padding=True, return_tensors="pt")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in inputs.items()
    }
    model = model_class.from_pretrained(folder).eval()
    with torch.no_grad():
        output = model(**inputs)
    names = {name.removeprefix("out.") for name in expected if name.startswith("out.")}
    assert set(output) == names
    for name in names:
        torch.testing.assert_close(output[name], expected[f"out.{name}"])


def test_it_is_saved_with_the_code_of_today(checkpoint, tmp_path):
    family, folder = checkpoint
    CHECKPOINTS[family][0].from_pretrained(folder).save_pretrained(tmp_path / "again")
    written = {path.name for path in (tmp_path / "again").glob("*.py")}
    assert written == {path.name for path in code_files(family, ("configuration", "modeling"))}


@pytest.mark.slow
def test_it_needs_no_package(checkpoint, tmp_path):
    family, folder = checkpoint
    names = {
        "model": "AutoModelForSequenceClassification" if family == "kbert" else "AutoModelForPreTraining",
        "texts": "AutoProcessor" if family == "ernie_thu" else "AutoTokenizer",
    }
    code = WITHOUT_THE_PACKAGE.format(folder=str(folder), target=str(tmp_path / "again"), given=TEXTS, **names)
    environment = {"HF_HOME": str(tmp_path / "home"), "HF_MODULES_CACHE": str(tmp_path / "modules")}
    assert run_script(code, **environment).startswith("transformers_modules")
    assert json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))["model_type"] == family
