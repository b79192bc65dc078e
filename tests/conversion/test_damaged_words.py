"""Weights of the models of words that are damaged: one line says which, whatever the layout."""

import contextlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion import awd_lstm, context2vec, cove, elmo, skip_thought

GOLDENS = Path(__file__).parents[1] / "goldens"

# Golden -> module, start of the names, entry of the options.
SOURCES = {
    "awd-lstm-a": (awd_lstm, "param.", None),
    "awd-lstm-clas-a": (awd_lstm, "param.", None),
    "awd-lstm-sf-a": (awd_lstm, "param.", "config"),
    "context2vec-a": (context2vec, "param.", None),
    "cove-mt-a": (cove, "param.", None),
    "elmo-a": (elmo, "h5.", "options.json"),
    "skip-thought-a": (skip_thought, "param.", None),
}
DAMAGES = {
    "a number": lambda value: torch.tensor(1.0),
    "one row less": lambda value: value[1:],
    "one more dimension": lambda value: value[None],
    "gone": lambda value: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", SOURCES)
def test_a_damaged_weight(name, damage):
    module, start, entry = SOURCES[name]
    tensors = load_file(GOLDENS / f"{name}.safetensors")
    facts = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
    options = {} if entry is None else facts[entry]
    original = {key.removeprefix(start): one for key, one in tensors.items() if key.startswith(start)}
    module.convert_checkpoint(original, options)
    keys = [key for key in original if not key.endswith(("tracked", "encoder_dp.emb.weight"))]
    for key in keys[:: 1 + len(keys) // 14]:
        value = DAMAGES[damage](original[key])
        damaged = {**original, key: value} if value is not None else {k: v for k, v in original.items() if k != key}
        # What a file may lack, and sizes that are read off a weight alone.
        may_do = damage == "gone" or (damage == "one row less" and key.endswith(("lut.weight", "Wemb", "1.2.weight")))
        with contextlib.suppress(*[pytest.fail.Exception] * may_do), pytest.raises(ValueError, match=r"^.+$"):
            module.convert_checkpoint(damaged, options)
