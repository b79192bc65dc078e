"""MASS reproduces the reference: encoder, decoder with original positions, losses, greedy and beam search."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.mass import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_mass import MassForConditionalGeneration, MassModel
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"
SEARCHES = ("greedy", "greedy_ngram3_min5", "beam4_ngram3_min5_lenpen1", "beam4_lenpen0.6")


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "mass-a.json").read_text(encoding="utf-8"))
    return facts, load_file(GOLDENS / "mass-a.safetensors")


def state(tensors):
    return {name.removeprefix("state."): value for name, value in tensors.items() if name.startswith("state.")}


def load(golden, attention="sdpa", **fields):
    facts, tensors = golden
    config = convert_config(facts["config"])
    for name, value in fields.items():
        setattr(config, name, value)
    model = MassForConditionalGeneration._from_config(config, attn_implementation=attention)
    model.load_state_dict(convert_state_dict(state(tensors), config))
    return model.eval()


def close(got, expected, golden):
    tolerance = golden[0]["tolerance"]
    assert_agrees(got, expected, tolerance["float_abs"], tolerance["float_rel"])


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
    return model.train()


def test_the_configuration_is_the_goldens(golden):
    config = convert_config(golden[0]["config"])
    assert (config.d_model, config.encoder_layers, config.decoder_ffn_dim) == (32, 2, 64)
    assert (config.pad_token_id, config.eos_token_id, config.decoder_start_token_id) == (0, 4, 4)
    assert config.max_position_embeddings == 64


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_pretraining_is_the_references(golden, attention):
    _, tensors = golden
    model = load(golden, attention)
    source, target = tensors["pretrain.src_tokens"], tensors["pretrain.target"]
    real = source != 0
    positions = tensors["pretrain.positions"] - 1  # rows -> 0-based positions, -1 at padding
    output = model(
        source,
        attention_mask=real.long(),
        decoder_input_ids=tensors["pretrain.prev_output_tokens"],
        decoder_position_ids=positions,
        labels=target.masked_fill(target == 0, -100),
        output_hidden_states=True,
    )
    close(output.encoder_last_hidden_state[real], tensors["pretrain.encoder_out"][real], golden)
    fed = target != 0
    close(output.decoder_hidden_states[-1][fed], tensors["pretrain.decoder_hidden"][fed], golden)
    close(output.logits[fed], tensors["pretrain.logits"][fed], golden)
    count = tensors["pretrain.n_targets"].item()
    close(output.loss.reshape(1), tensors["pretrain.loss_mean"], golden)
    close(output.loss.reshape(1) * count, tensors["pretrain.loss_sum"], golden)


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("training", [False, True])
def test_fine_tuning_is_the_references_with_either_padding(golden, padding, masked, training):
    _, tensors = golden
    source = tensors["finetune.src_tokens" if padding == "left" else "finetune.src_tokens_right_padded"]
    target = tensors["finetune.target"]
    mask = (source != 0).long() if masked else None  # read off the padding
    count = tensors["finetune.n_targets"].item()
    for smoothing, name in ((0.0, "nll_loss_sum"), (0.1, "label_smoothed_loss_sum")):
        model = load(golden, label_smoothing=smoothing)
        if training:
            without_dropout(model)
        fed = {"decoder_input_ids": tensors["finetune.prev_output_tokens"]}
        for labels, more in ((target, {}), (target.masked_fill(target == 0, -100), {}), (target, fed)):
            output = model(source, attention_mask=mask, labels=labels, **more)
            close(output.loss.reshape(1) * count, tensors[f"finetune.{name}"], golden)
            if training:
                assert output.logits is None
            else:
                close(output.logits[target != 0], tensors["finetune.logits"][target != 0], golden)
        if not training:
            real = source != 0
            expected = tensors["finetune.encoder_out"][tensors["finetune.src_tokens"] != 0]
            close(output.encoder_last_hidden_state[real], expected, golden)


def test_the_decoders_input_is_the_references(golden):
    _, tensors = golden
    target = tensors["finetune.target"]
    model = load(golden)
    for labels in (target, target.masked_fill(target == 0, -100)):
        fed = model.prepare_decoder_input_ids_from_labels(labels)
        assert torch.equal(fed, tensors["finetune.prev_output_tokens"])


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_every_hypothesis_and_score_of_the_search_is_the_references(golden, search, use_cache, padding):
    facts, tensors = golden
    params = facts["generation"][search]["params"]
    beams = params["beam_size"]
    source = tensors["finetune.src_tokens" if padding == "left" else "finetune.src_tokens_right_padded"]
    arguments = {"num_beams": beams, "num_return_sequences": beams, "early_stopping": True} if beams > 1 else {}
    if "len_penalty" in params:
        arguments["length_penalty"] = params["len_penalty"]
    if "no_repeat_ngram_size" in params:
        arguments["no_repeat_ngram_size"] = params["no_repeat_ngram_size"]
    result = load(golden).generate(
        source,
        do_sample=False,
        max_new_tokens=params["max_len_b"] + 1,
        min_new_tokens=params["min_len"],
        suppress_tokens=[0],
        eos_at_limit=True,
        use_cache=use_cache,
        return_dict_in_generate=True,
        output_logits=True,
        output_scores=True,
        **arguments,
    )
    assert facts["generation"][search]["nbest_tokens"]
    number = 0
    expected = facts["generation"][search]
    for row in range(len(source)):
        for tokens, score in zip(expected["nbest_tokens"][row], expected["nbest_scores"][row], strict=True):
            got = result.sequences[number, 1:].tolist()
            assert got[: len(tokens)] == tokens
            assert set(got[len(tokens) :]) <= {0, 4}
            if beams > 1:
                close(result.sequences_scores[number], score, golden)
            else:
                each = [
                    logits[row].log_softmax(-1)[token].item()
                    for logits, token in zip(result.logits, tokens, strict=False)
                ]
                positional = expected["positional_scores"][row]
                close(each, positional, golden)
                close(sum(each) / len(tokens), score, golden)
            number += 1
    assert number == len(result.sequences)


def test_the_original_comes_back(golden):
    facts, tensors = golden
    original = state(tensors)
    config = convert_config(facts["config"])
    converted = convert_state_dict(original, config)
    base = {name: value for name, value in converted.items() if name not in ("lm_head.weight",)}
    for ours in (converted, base, {name.removeprefix("model."): value for name, value in base.items()}):
        reverted = revert_state_dict(ours, config)
        assert reverted.keys() == original.keys()
        for name, value in original.items():
            assert torch.equal(reverted[name], value), name


def test_the_bare_model_is_the_same(golden):
    facts, tensors = golden
    config = convert_config(facts["config"])
    model = MassModel(config).eval()
    converted = convert_state_dict(state(tensors), config)
    model.load_state_dict(
        {name.removeprefix("model."): value for name, value in converted.items() if name.startswith("model.")}
    )
    source = tensors["finetune.src_tokens"]
    with torch.no_grad():
        output = model(source, decoder_input_ids=tensors["finetune.prev_output_tokens"])
    real = tensors["finetune.target"] != 0
    logits = output.last_hidden_state @ model.shared.weight.T
    close(logits[real], tensors["finetune.logits"][real], golden)
