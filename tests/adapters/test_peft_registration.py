"""PEFT knows the adapters once `hf_ptm_ext` was imported (in which order: test_public_api.py); others do not pay."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import PeftType, get_peft_model
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

from hf_ptm_ext.adapters import HoulsbyConfig, PfeifferConfig
from hf_ptm_ext.adapters.configuration import add_peft_type
from hf_ptm_ext.adapters.peft_methods import register
from tests.adapters.architectures import config_of, make_inputs, make_model, output_of

ROOT = Path(__file__).parents[2]


def run(code: str) -> str:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:hf_ptm_ext", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_neither() -> None:
    code = "import sys, hf_ptm_ext; print({'peft', 'torch', 'hf_ptm_ext.adapters'} & set(sys.modules))"
    assert run(code).strip() == "set()"


@pytest.mark.slow
def test_a_peft_that_does_not_fit_stays_usable() -> None:
    """Its registry is missing: PEFT is imported all the same, and a warning says what is needed."""
    code = """
import warnings
import hf_ptm_ext
from hf_ptm_ext import registration
import peft.utils
del peft.utils.register_peft_method
import sys
for name in [name for name in sys.modules if name.startswith("hf_ptm_ext.adapters")]:
    del sys.modules[name]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    registration.when_imported("peft", registration._register_peft_methods)
print(caught[0].message)
"""
    assert "adapters need `peft>=0.21,<0.23`, got peft 0" in run(code)


def test_members_of_the_enumeration_behave_like_pefts_own() -> None:
    member = PeftType.HOULSBY
    assert member is PeftType("HOULSBY") is PeftType["HOULSBY"] is add_peft_type("HOULSBY")
    assert member in PeftType
    assert member in list(PeftType)
    assert list(PeftType).count(member) == 1
    assert member == "HOULSBY"
    assert {member: 1}["HOULSBY"] == 1
    assert isinstance(member, PeftType)
    assert json.dumps(member) == '"HOULSBY"'
    assert repr(member) == repr(PeftType.LORA).replace("LORA", "HOULSBY")
    assert member != PeftType.PFEIFFER
    with pytest.raises(ValueError, match="NO_SUCH"):
        PeftType("NO_SUCH")


def test_registering_again_does_nothing() -> None:
    before = dict(PEFT_TYPE_TO_CONFIG_MAPPING)
    register()
    assert before == PEFT_TYPE_TO_CONFIG_MAPPING


def test_a_method_of_the_same_name_in_peft_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        pass

    monkeypatch.setitem(PEFT_TYPE_TO_CONFIG_MAPPING, "HOULSBY", Other)
    with pytest.raises(ValueError, match="`houlsby` of its own"):
        register()
    assert PEFT_TYPE_TO_CONFIG_MAPPING["HOULSBY"] is Other


def test_an_adapter_is_loaded_exactly_in_a_process_that_imports_the_package(tmp_path: Path) -> None:
    for config, model_type in itertools.product((HoulsbyConfig, PfeifferConfig), ("bert", "spanbert")):
        folder = tmp_path / config.__name__ / model_type
        make_model(model_type).save_pretrained(folder / "base")
        base = type(make_model(model_type)).from_pretrained(folder / "base")
        model = get_peft_model(base, config(init_weights="bert", task_type="FEATURE_EXTRACTION")).eval()
        model.save_pretrained(folder / "adapter")
        inputs = make_inputs(model_type, config_of(model_type))
        with torch.no_grad():
            torch.save({"inputs": inputs, "output": output_of(model, inputs)}, folder / "expected.pt")
    code = f"""
import hf_ptm_ext, torch
from pathlib import Path
from peft import AutoPeftModelForFeatureExtraction
for folder in Path({str(tmp_path)!r}).glob("*/*"):
    expected = torch.load(folder / "expected.pt")
    model = AutoPeftModelForFeatureExtraction.from_pretrained(folder / "adapter").eval()
    with torch.no_grad():
        print(torch.equal(model(**expected["inputs"])[0], expected["output"]))
"""
    assert run(code).split() == ["True"] * 4


@pytest.mark.slow
def test_without_the_package_pefts_error_names_the_method_and_the_file_what_to_import(tmp_path: Path) -> None:
    """PEFT has no hook for methods from outside, so its message is its own; the file beside it says what to do."""
    get_peft_model(make_model("bert"), HoulsbyConfig()).save_pretrained(tmp_path)
    code = f"""
from peft import PeftConfig
try:
    PeftConfig.from_pretrained({str(tmp_path)!r})
except KeyError as error:
    print(error)
"""
    assert run(code).strip() == "'HOULSBY'"
    assert json.loads((tmp_path / "adapter_config.json").read_text("utf-8"))["requires"] == "import hf_ptm_ext"
