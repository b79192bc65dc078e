"""Public names do not change unnoticed, and importing the package costs next to nothing."""

import importlib
import importlib.util
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hf_ptm_ext
from tests.hub.checkpoints import run_script

SNAPSHOT = Path(__file__).with_name("public_api.json")


def public_packages() -> list[str]:
    """The package and its sub-packages that have public names."""
    names = [hf_ptm_ext.__name__]
    for info in pkgutil.iter_modules(hf_ptm_ext.__path__, f"{hf_ptm_ext.__name__}."):
        if info.ispkg:
            names.append(info.name)
    return names


def current_api() -> dict[str, list[str]]:
    api = {name: sorted(getattr(importlib.import_module(name), "__all__", [])) for name in public_packages()}
    return {name: names for name, names in api.items() if names}


def test_public_names_are_those_of_the_snapshot():
    """A name that goes warns for one minor release first; then, and for new names, rewrite the snapshot:

    `python -m tests.test_public_api`
    """
    assert current_api() == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", public_packages())
def test_every_public_name_exists(name):
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", []):
        assert getattr(module, public) is not None
    assert set(getattr(module, "__all__", [])) <= set(dir(module))


def test_the_stub_has_the_names_of_the_root():
    """What type checkers and editors read; `python scripts/make_stub.py` writes it."""
    spec = importlib.util.spec_from_file_location("make_stub", SNAPSHOT.parents[1] / "scripts" / "make_stub.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.STUB.read_text(encoding="utf-8") == module.stub()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        hf_ptm_ext.no_such_name  # noqa: B018


IMPORT_COST = """
import json, sys, time
import transformers
before = set(sys.modules)
start = time.process_time()
import hf_ptm_ext
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "new": sorted(set(sys.modules) - before)}))
"""


def import_report() -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_COST], capture_output=True, text=True, encoding="utf-8", check=True
    )
    return json.loads(result.stdout.splitlines()[-1])


def test_importing_costs_next_to_nothing():
    report = import_report()
    own = [name for name in report["new"] if name.startswith("hf_ptm_ext")]
    assert set(own) == {"hf_ptm_ext", "hf_ptm_ext.registration", "hf_ptm_ext.version"}
    heavy = ("torch", "datasets", "peft", "accelerate", "numpy", "transformers.models", "transformers.modeling_utils")
    assert not [name for name in report["new"] if name.startswith(heavy)]
    # The best of up to three: other processes may be busy.
    assert report["seconds"] < 0.2 or any(import_report()["seconds"] < 0.2 for _ in range(2))


ORDERS = {
    "ours first": "import hf_ptm_ext; import peft",
    "peft first": "import peft; import hf_ptm_ext",  # and with it the Auto classes
    "auto classes first": "import transformers.models.auto.modeling_auto; import hf_ptm_ext",
    "auto classes later": "import hf_ptm_ext; from transformers import AutoModel",
    "a part of peft after ours": "import hf_ptm_ext; from peft.peft_model import PeftModel",
    "adapters alone": "from hf_ptm_ext.adapters import HoulsbyConfig",
    "a part of the adapters": "from hf_ptm_ext.adapters.tuner import HoulsbyModel",
    "looked for before it is imported": (
        "import hf_ptm_ext, importlib.util; assert importlib.util.find_spec('peft'); import transformers, peft"
    ),
    "by the Trainer": "import hf_ptm_ext; from transformers import Trainer; import peft",
    "twice": "import hf_ptm_ext; import peft; hf_ptm_ext.registration.register()",
}
FIRST_TIER = ("ours first", "peft first")
STRICT = "import warnings\nwarnings.filterwarnings('error', category=UserWarning, module='hf_ptm_ext')\n"
REGISTERED = """
import sys, transformers
config = transformers.AutoConfig.for_model("spanbert", hidden_size=32, num_attention_heads=4, num_hidden_layers=1)
assert "hf_ptm_ext.models.modeling_spanbert" not in sys.modules
model = transformers.AutoModelForMaskedLM.from_config(config)
assert type(model).__name__ == "SpanBertForMaskedLM"
assert type(model).__module__ == "hf_ptm_ext.models.modeling_spanbert"
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
from peft import PeftConfig, PeftType
assert [PeftType(name).value for name in ("HOULSBY", "PFEIFFER")] == ["HOULSBY", "PFEIFFER"]
print(PeftConfig.from_peft_type(peft_type="HOULSBY", reduction_factor=4).reduction_factor)
print(PEFT_TYPE_TO_TUNER_MAPPING["PFEIFFER"].__name__)
"""


@pytest.mark.parametrize(
    "order", [name if name in FIRST_TIER else pytest.param(name, marks=pytest.mark.slow) for name in ORDERS]
)
def test_models_and_adapters_are_registered_in_any_order_of_imports(order):
    """And models are imported on use."""
    assert run_script(f"{STRICT}{ORDERS[order]}\n{REGISTERED}", hidden=False).split() == ["4", "PfeifferModel"]


def test_a_name_that_is_to_go_warns_and_names_its_replacement(monkeypatch):
    monkeypatch.setitem(hf_ptm_ext._DEPRECATED, "SpanBertEncoderConfig", "SpanBertConfig")
    with pytest.warns(DeprecationWarning, match="SpanBertConfig"):
        assert hf_ptm_ext.SpanBertEncoderConfig is hf_ptm_ext.SpanBertConfig


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(current_api(), indent=2) + "\n", encoding="utf-8")
