"""fastai's and Salesforce's own numbers."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext import AwdLstmForCausalLM, AwdLstmForSequenceClassification, AwdLstmModel
from hf_ptm_ext.conversion import awd_lstm
from hf_ptm_ext.models import rules_awd_lstm as rules
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
CLASSES = {cls.__name__: cls for cls in (AwdLstmForCausalLM, AwdLstmForSequenceClassification, AwdLstmModel)}


def golden(name):
    """The description, the tensors of the file and those of inputs and outputs."""
    told, tensors = json.loads((GOLDENS / f"{name}.json").read_text()), load_file(GOLDENS / f"{name}.safetensors")
    file = {key.removeprefix("param."): value for key, value in tensors.items() if key.startswith("param.")}
    return told, file, tensors


def converted(file, options):
    """The model of a file."""
    conversion = awd_lstm.LAYOUT.convert_checkpoint(file, options)
    model = CLASSES[conversion.architecture](conversion.config)
    missing, unexpected = model.load_state_dict(conversion.tensors, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.eval()


@pytest.mark.parametrize(("name", "dim"), [("awd-lstm-a", 1), ("awd-lstm-sf-a", 0)])
def test_the_language_model_and_its_state(name, dim):
    told, file, tensors = golden(name)
    model, tolerance = converted(file, told["config"]), told["tolerance"].values()
    stream = tensors["input.stream"] if dim else tensors["input.stream"].T
    past, start = None, 0
    for number, length in enumerate(told["segments"]):
        ids, targets = stream[:, start : start + length], stream[:, start + 1 : start + length + 1]
        start += length
        output = model(ids, past_state=past, shift_labels=targets if targets.shape == ids.shape else None)
        wanted = {key.split(".")[2]: v for key, v in tensors.items() if key.startswith(f"out.seg{number}.")}
        read = model.awd_lstm(ids, past_state=past)
        last = wanted.get("last_hidden", wanted.get("output"))
        assert_agrees(read.last_hidden_state, last if dim else last.transpose(0, 1), *tolerance)
        assert_agrees(output.logits, wanted["logits"] if dim else wanted["logits"].transpose(0, 1), *tolerance)
        for layer, (h, c) in enumerate(output.past_state):
            assert_agrees(h, wanted[f"h{layer}"], *tolerance)
            assert_agrees(c, wanted[f"c{layer}"], *tolerance)
        scalars = told["scalars"][f"seg{number}"]
        if output.loss is not None:
            plain = scalars.get("cross_entropy", scalars.get("plain_cross_entropy"))
            assert_agrees(output.lm_loss, plain, *tolerance)
            assert_agrees(output.loss, plain, *tolerance)
            assert_agrees(output.ar_loss, scalars["ar_alpha2"], *tolerance)
            assert_agrees(output.tar_loss, scalars["tar_beta1"], *tolerance)
        past = output.past_state


@pytest.mark.parametrize("how", ["as fastai pads", "padded behind", "padded in front"])
def test_the_classifier(how):
    told, file, tensors = golden("awd-lstm-clas-a")
    model, tolerance = (
        converted(file, {**told["config"], "fastai_compatible_pooling": True}),
        told["tolerance"].values(),
    )
    ids, real, inputs = tensors["input.ids"], ~tensors["out.mask"].bool(), {}
    if how != "as fastai pads":
        rows = [tensors[f"input.raw{number}"] for number in range(4)]
        side = "right" if "behind" in how else "left"
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1, padding_side=side)
        real = ids != 1
        inputs["attention_mask"] = real.long()
    states = model.awd_lstm(ids, attention_mask=real.long()).last_hidden_state
    # In the reference the last row is not read: another has no text in the column where its own begins.
    assert_agrees(states[:3][real[:3]], tensors["out.encoder"][:3][~tensors["out.mask"][:3].bool()], *tolerance)
    assert not tensors["out.encoder"][3].any()
    assert_agrees(model.pooled(ids, **inputs), tensors["out.pooled"], *tolerance)
    output = model(ids, labels=tensors["input.labels"], **inputs)
    assert_agrees(output.logits, tensors["out.logits"], *tolerance)
    assert_agrees(output.loss, told["scalars"]["cross_entropy"], *tolerance)
    flipped = {name: value.flip(0) for name, value in inputs.items()}
    assert_agrees(model(ids.flip(0), **flipped).logits.flip(0), tensors["out.logits"], *tolerance)
    # Without fastai's defects the last row is read; the others have what they had.
    model.config.fastai_compatible_pooling = False
    pooled = model.pooled(ids, **inputs)
    assert_agrees(pooled[:3], tensors["out.pooled"][:3], *tolerance)
    own = states[3][real[3]]
    assert_agrees(pooled[3], torch.cat([own[-1], own.amax(0), own.mean(0)]), *tolerance)


@pytest.mark.parametrize(
    "case", json.loads((GOLDENS / "fastai-text-rules-a.json").read_text())["cases"], ids=lambda case: case["text"][:12]
)
def test_rules_of_text(case):
    assert rules.apply_rules(case["text"]) == case["v2_text_after_rules"]
    assert rules.tokens_of_version_1(case["text"], lambda t: t.split(" ")) == case["v1_tokens_with_blank_split"]
    for name, text in case["v2_each_rule_alone"].items():
        assert getattr(rules, name)(case["text"]) == text
