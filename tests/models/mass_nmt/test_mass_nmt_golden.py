"""MASS-NMT computes and decodes what the reference does (golden mass-xlm-a, microsoft/MASS)."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hf_ptm_ext.conversion.mass_nmt import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_mass_nmt import MassNmtForConditionalGeneration
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"
PAD = 2


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "mass-xlm-a.json").read_text(encoding="utf-8"))
    return facts, load_file(GOLDENS / "mass-xlm-a.safetensors")


def state(tensors):
    return {name.removeprefix("state."): value for name, value in tensors.items() if name.startswith("state.")}


def load(golden, attention="eager"):
    facts, tensors = golden
    config = convert_config(facts["config"])
    model = MassNmtForConditionalGeneration._from_config(config, attn_implementation=attention)
    model.load_state_dict(convert_state_dict(state(tensors), config))
    return model.eval()


def close(got, expected, golden):
    tolerance = golden[0]["tolerance"]
    assert_agrees(got, expected, tolerance["float_abs"], tolerance["float_rel"])


def pretraining(tensors):
    """The batch of the golden's masked fragments, in one language."""
    source, target = tensors["pretrain.encoder_input"], tensors["pretrain.target"]
    language = tensors["pretrain.lang_id"].expand(len(source))
    return {
        "input_ids": source,
        "attention_mask": source != PAD,
        "decoder_input_ids": tensors["pretrain.decoder_input"],
        "decoder_attention_mask": tensors["pretrain.decoder_input"] != PAD,
        "decoder_position_ids": tensors["pretrain.positions"],
        "langs": language,
        "decoder_langs": language,
        "labels": target.masked_fill(target == PAD, -100),
    }


def translation(tensors):
    """The golden's pairs: source in language 0, target in 1."""
    source, target = tensors["mt.src"], tensors["mt.tgt"]
    return {
        "input_ids": source,
        "attention_mask": source != PAD,
        "decoder_input_ids": target,
        "decoder_attention_mask": target != PAD,
        "langs": torch.zeros(len(source), dtype=torch.long),
        "decoder_langs": torch.ones(len(source), dtype=torch.long),
        "labels": nn.functional.pad(target[:, 1:], (0, 1), value=PAD).masked_fill(
            nn.functional.pad(target[:, 1:], (0, 1), value=PAD) == PAD, -100
        ),
    }


BATCHES = {"pretrain": pretraining, "mt": translation}


def rolled(ids, lengths):
    """Rows with their padding on the left."""
    width = ids.shape[1]
    return torch.stack([row.roll(int(width - length), 0) for row, length in zip(ids, lengths, strict=True)])


@torch.no_grad()
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("part", BATCHES)
def test_encoder_decoder_logits_and_loss_are_the_references(golden, part, attention):
    _, tensors = golden
    model, batch = load(golden, attention), BATCHES[part](tensors)
    output = model(**batch, output_hidden_states=True)
    real = batch["decoder_attention_mask"]
    close(output.encoder_last_hidden_state, tensors[f"{part}.encoder_out"], golden)
    close(output.logits[real], tensors[f"{part}.logits"][real], golden)
    close(output.loss.view(1), tensors[f"{part}.loss_mean"], golden)
    if part == "pretrain":
        close(output.decoder_hidden_states[-1][real], tensors["pretrain.decoder_hidden"][real], golden)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_padding_on_the_left_is_padding_on_the_right(golden, attention):
    _, tensors = golden
    model = load(golden, attention)
    for part, make in BATCHES.items():
        batch = make(tensors)
        lengths = batch["attention_mask"].sum(1)
        for name in ("input_ids", "attention_mask"):
            batch[name] = rolled(batch[name], lengths)
        real = batch["decoder_attention_mask"].clone()
        targets = real.sum(1)
        for name in ("decoder_input_ids", "decoder_attention_mask", "decoder_position_ids", "labels"):
            if name in batch:
                batch[name] = rolled(batch[name], targets)
        output = model(**batch)
        close(output.logits[rolled(real, targets)], tensors[f"{part}.logits"][real], golden)
        close(output.loss.view(1), tensors[f"{part}.loss_mean"], golden)


def test_masks_and_decoder_inputs_may_be_left_out(golden):
    """Padding is seen from the padding token, and the decoder's input from the labels."""
    _, tensors = golden
    model = load(golden)
    for part, make in BATCHES.items():
        batch = make(tensors)
        short = {name: value for name, value in batch.items() if not name.endswith("attention_mask")}
        close(model(**short).loss.view(1), tensors[f"{part}.loss_mean"], golden)
    batch = translation(tensors)
    labels = batch["labels"][:, :-1]
    close(
        model(labels=labels, **{k: batch[k] for k in ("input_ids", "langs", "decoder_langs")}).loss.view(1),
        tensors["mt.loss_mean"],
        golden,
    )


def test_the_loss_in_training_is_the_same_without_full_logits(golden):
    _, tensors = golden
    model = load(golden)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    model.train()
    for part, make in BATCHES.items():
        output = model(**make(tensors))
        assert output.logits is None
        close(output.loss.view(1), tensors[f"{part}.loss_mean"], golden)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_greedy_decoding_is_the_references(golden, use_cache, padding, attention):
    facts, tensors = golden
    source = tensors["mt.src"]
    if padding == "left":
        source = rolled(source, tensors["mt.src_len"])
    output = load(golden, attention).generate(
        source, langs=0, decoder_langs=1, max_length=22, do_sample=False, use_cache=use_cache
    )
    assert unpadded(output) == facts["generation"]["greedy"]["tokens"]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("setting", ["beam4_lp1.0_earlyFalse", "beam4_lp0.6_earlyTrue"])
def test_beam_search_is_the_references(golden, setting, padding, use_cache):
    facts, tensors = golden
    expected = facts["generation"][setting]
    source = tensors["mt.src"]
    if padding == "left":
        source = rolled(source, tensors["mt.src_len"])
    output = load(golden).generate(
        source,
        langs=0,
        decoder_langs=1,
        search_beam_size=expected["beam_size"],
        length_penalty=expected["length_penalty"],
        early_stopping=expected["early_stopping"],
        max_length=22,
        use_cache=use_cache,
    )
    assert unpadded(output) == expected["tokens"]


def unpadded(output):
    """Texts up to their final </s>."""
    rows = output.tolist()
    return [row[: row.index(1, 1) + 1] for row in rows]


def test_the_original_comes_back(golden):
    facts, tensors = golden
    original, config = state(tensors), convert_config(facts["config"])
    reverted = revert_state_dict(convert_state_dict(original, config), config)
    assert reverted.keys() == original.keys()
    for name, value in original.items():
        assert torch.equal(reverted[name], value), name
