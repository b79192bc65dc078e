"""UniLM reproduces the reference: four attention modes, the fine-tuning losses, greedy decoding."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.unilm import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_unilm import (
    UniLMForConditionalGeneration,
    UniLMForPreTraining,
)
from hf_ptm_ext.models.modes_unilm import unilm_attention_mask
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"
MODES = {"bidirectional": 0, "left_to_right": 1, "right_to_left": 2, "seq2seq": 3}


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "unilm-a.json").read_text(encoding="utf-8"))
    return facts, load_file(GOLDENS / "unilm-a.safetensors")


def state(tensors):
    return {name.removeprefix("state."): value for name, value in tensors.items() if name.startswith("state.")}


def load(model_class, golden, attention="eager", **fields):
    facts, tensors = golden
    config = convert_config(facts["config"])
    for name, value in {"mask_token_id": 5, "eos_token_id": 4, "pad_token_id": 0, **fields}.items():
        setattr(config, name, value)
    converted = convert_state_dict(state(tensors), config)
    model = model_class._from_config(config, attn_implementation=attention)
    report = model.load_state_dict(converted, strict=False)
    assert not report.missing_keys
    return model.eval()


def close(got, expected, golden):
    tolerance = golden[0]["tolerance"]
    assert_agrees(got, expected, tolerance["float_abs"], tolerance["float_rel"])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", ["right", "left"])
def test_every_mode_is_the_references(golden, mode, attention, padding):
    _, tensors = golden
    model = load(UniLMForPreTraining, golden, attention)
    ids, sources = tensors["modes.input_ids"], tensors["modes.num_tokens_a"].flatten()
    lengths = sources + tensors["modes.num_tokens_b"].flatten()
    width = ids.shape[1]
    real = torch.arange(width)[None] < lengths[:, None]
    shift = (width - lengths) if padding == "left" else torch.zeros_like(lengths)

    def moved(values):
        return torch.stack([row.roll(int(by), 0) for row, by in zip(values, shift, strict=True)])

    def moved_back(values):
        return torch.stack([row.roll(-int(by), 0) for row, by in zip(values, shift, strict=True)])

    with torch.no_grad():
        output = model(
            moved(ids),
            attention_mask=moved(real.long()),
            lm_mode=torch.full((len(ids),), MODES[mode]),
            source_lengths=sources,
            output_hidden_states=True,
        )
    prefix = f"modes.{mode}."
    expected = [tensors[prefix + "embedding_output"], tensors[prefix + "hidden.1"], tensors[prefix + "hidden.2"]]
    for got, reference in zip(output.hidden_states, expected, strict=True):
        close(moved_back(got)[real], reference[real], golden)
    close(moved_back(output.prediction_logits)[real], tensors[prefix + "logits"][real], golden)
    close(output.seq_relationship_logits, tensors[prefix + "nsp_logits"], golden)


@pytest.mark.parametrize("mode", MODES)
def test_the_public_helper_gives_the_references_mask(golden, mode):
    _, tensors = golden
    sources = tensors["modes.num_tokens_a"].flatten()
    lengths = sources + tensors["modes.num_tokens_b"].flatten()
    mask = unilm_attention_mask(torch.full_like(sources, MODES[mode]), lengths, sources)[:, 0]
    expected = tensors[f"modes.{mode}.attention_mask"]
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(mask[row, :length, :length], expected[row, :length, :length].bool())


def test_modes_mix_in_one_batch_and_in_packed_rows(golden):
    _, tensors = golden
    model = load(UniLMForPreTraining, golden, "sdpa").double()
    ids, sources = tensors["modes.input_ids"], tensors["modes.num_tokens_a"].flatten()
    lengths = sources + tensors["modes.num_tokens_b"].flatten()
    modes = torch.tensor([3, 1, 2])
    real = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
    packed = torch.cat([row[: int(length)] for row, length in zip(ids, lengths, strict=True)])[None]
    sequence_ids = torch.cat([torch.full((int(length),), n + 1) for n, length in enumerate(lengths)])[None]
    with torch.no_grad():
        alone = model(ids, attention_mask=real, lm_mode=modes, source_lengths=sources).prediction_logits
        row = model(
            packed, sequence_ids=sequence_ids, lm_mode=modes[None], source_lengths=sources[None]
        ).prediction_logits
    assert_agrees(row[0], alone[real.bool()], 1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("training", [False, True])
def test_the_fine_tuning_loss_is_the_references(golden, smoothing, training):
    _, tensors = golden
    model = load(UniLMForConditionalGeneration, golden, label_smoothing=smoothing)
    if training:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        model.train()
    ids, types = tensors["finetune.input_ids"], tensors["finetune.token_type_ids"]
    positions, weights = tensors["finetune.masked_pos"], tensors["finetune.masked_weights"]
    labels = torch.full_like(ids, -100)
    for row in range(len(ids)):
        for slot in range(positions.shape[1]):
            if weights[row, slot]:
                labels[row, positions[row, slot]] = tensors["finetune.masked_ids"][row, slot]
    lengths = (types == 4).sum(dim=1)
    mask = (tensors["finetune.attention_mask"].sum(dim=1) > 0).long()
    output = model(ids, attention_mask=mask, token_type_ids=types, source_lengths=lengths, labels=labels)
    name = "finetune.loss_label_smoothed" if smoothing else "finetune.loss_plain"
    close(output.loss.view(1), tensors[name], golden)
    assert (output.logits is None) == training


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_greedy_decoding_is_the_references(golden, use_cache, padding, attention):
    facts, tensors = golden
    model = load(UniLMForConditionalGeneration, golden, attention)
    ids = tensors["decode.input_ids"]
    lengths = (ids != 0).sum(dim=1)
    if padding == "left":
        width = ids.shape[1]
        ids = torch.stack([row.roll(int(width - n), 0) for row, n in zip(ids, lengths, strict=True)])
    expected = facts["generation"]["greedy"]["output_ids"]
    steps = len(expected[0])
    output = model.generate(
        input_ids=ids, max_new_tokens=steps, do_sample=False, use_cache=use_cache, eos_token_id=None
    )
    assert output[:, ids.shape[1] :].tolist() == expected


def test_the_original_comes_back(golden):
    facts, tensors = golden
    original = state(tensors)
    config = convert_config(facts["config"])
    reverted = revert_state_dict(convert_state_dict(original, config), config)
    assert reverted.keys() == original.keys()
    for name, value in original.items():
        assert torch.equal(reverted[name], value), name
