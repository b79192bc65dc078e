"""MASS-NMT equals the reference's arithmetic at other sizes, languages, ids and masks than the golden's."""

import pytest
import torch

from hf_ptm_ext.conversion.mass_nmt import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_mass_nmt import MassNmtForConditionalGeneration, mass_nmt_beam_search
from tests.tolerance import assert_agrees

from .reference import Reference
from .test_mass_nmt_golden import golden, state  # noqa: F401 - the fixture

pytestmark = pytest.mark.golden
BASE = {
    "n_words": 60,
    "emb_dim": 32,
    "ffn_dim": 48,
    "n_heads": 4,
    "n_layers": 2,
    "n_dec_layers": 2,
    "n_langs": 2,
    "max_positions": 24,
    "bos_index": 0,
    "eos_index": 1,
    "pad_index": 2,
    "mask_index": 5,
}
SETTINGS = {
    "base": {},
    "three languages": {"n_langs": 3},
    "one language": {"n_langs": 1},
    "v2": {"attention_setting": "v2", "n_langs": 3},
    "no language embeddings": {"use_lang_emb": False},
    "deep decoder, two heads, relu": {"n_layers": 1, "n_dec_layers": 3, "n_heads": 2, "gelu_activation": False},
    "other ids": {"pad_index": 0, "eos_index": 7, "mask_index": 9, "bos_index": 3},
    "other widths": {"emb_dim": 24, "n_heads": 3, "ffn_dim": 50, "max_positions": 17, "layer_norm_eps": 1e-5},
}
LENGTHS = ((9, 6), (5, 8), (12, 3), (4, 4))


def make(attention="sdpa", **changes):
    """A model with weights large enough for faults to show, and the reference on the same weights."""
    options = {**BASE, **changes}
    torch.manual_seed(0)
    model = MassNmtForConditionalGeneration._from_config(convert_config(options), attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.15)
    weights = revert_state_dict(model.state_dict(), model.config)
    reference = Reference(
        weights,
        options["n_heads"],
        options["mask_index"],
        options["eos_index"],
        options.get("gelu_activation", True),
        options.get("layer_norm_eps", 1e-12),
        options.get("attention_setting", "v1"),
    )
    return model, reference, options


def sentences(options, masked=True):
    """Pairs of different lengths, some source tokens [MASK], with languages and original positions."""
    generator = torch.Generator().manual_seed(1)
    forbidden = {options["pad_index"], options["mask_index"], options["eos_index"]}
    words = torch.tensor([word for word in range(options["n_words"]) if word not in forbidden])
    pairs = []
    for number, (source, target) in enumerate(LENGTHS):
        texts = [words[torch.randint(len(words), (length,), generator=generator)] for length in (source, target)]
        for text in texts:
            text[0] = options["eos_index"]
        if masked and number != 1:
            texts[0][2:4] = options["mask_index"]
        languages = (number % options["n_langs"], (number + 1) % options["n_langs"])
        pairs.append((*texts, *languages, torch.arange(target) + number))
    return pairs


def padded(texts, pad, side):
    width = max(len(text) for text in texts)
    rows = []
    for text in texts:
        fill = text.new_full((width - len(text),), pad)
        rows.append(torch.cat([fill, text] if side == "left" else [text, fill]))
    return torch.stack(rows)


@torch.no_grad()
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_logits_of_mixed_batches(name, masked, side):
    """Rows of several languages in one batch, each as it is alone in the reference."""
    model, reference, options = make("eager" if masked else "sdpa", **SETTINGS[name])
    pairs, pad = sentences(options, masked), options["pad_index"]
    sources, targets = (padded([pair[part] for pair in pairs], pad, side) for part in (0, 1))
    batch = {
        "input_ids": sources,
        "attention_mask": (sources != pad).long(),
        "decoder_input_ids": targets,
        "decoder_attention_mask": (targets != pad).long(),
        "langs": torch.tensor([pair[2] for pair in pairs]),
        "decoder_langs": torch.tensor([pair[3] for pair in pairs]),
    }
    plain = model(**batch)
    moved = model(**batch, decoder_position_ids=padded([pair[4] for pair in pairs], 0, side))
    for row, (source, target, source_language, target_language, positions) in enumerate(pairs):
        real = targets[row] != pad
        expected = reference.logits(source, source_language, target, target_language)
        assert_agrees(plain.logits[row][real], expected, 1e-4)
        expected = reference.logits(source, source_language, target, target_language, positions)
        assert_agrees(moved.logits[row][real], expected, 1e-4)
        encoded = plain.encoder_last_hidden_state[row]
        expected = reference.encode(source, source_language)
        assert_agrees(encoded[sources[row] != pad], expected, 1e-4)
        assert not encoded[sources[row] == pad].any()


@torch.no_grad()
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(("length_penalty", "early"), [(1.0, False), (0.6, True), (0.0, False), (2.0, True)])
@pytest.mark.parametrize("name", ["base", "three languages", "other ids"])
def test_beam_search(name, length_penalty, early, use_cache):
    """Every kept hypothesis and its score, for texts that end and texts that are cut."""
    model, reference, options = make(**SETTINGS[name])
    with torch.no_grad():
        model.lm_head.bias[options["eos_index"]] += 5.0  # so that some texts end
    reference.state["decoder.pred_layer.proj.bias"] = model.lm_head.bias.detach()
    pairs, pad = sentences(options), options["pad_index"]
    output = model.generate(
        padded([pair[0] for pair in pairs], pad, "left"),
        langs=torch.tensor([pair[2] for pair in pairs]),
        decoder_langs=torch.tensor([pair[3] for pair in pairs]),
        max_length=9,
        num_beams=3,
        num_return_sequences=3,
        custom_generate=mass_nmt_beam_search,
        length_penalty=length_penalty,
        early_stopping=early,
        use_cache=use_cache,
        return_dict_in_generate=True,
    )
    rows, scores, lengths = output.sequences.tolist(), output.sequences_scores.tolist(), set()
    for number, (source, _, source_language, target_language, _) in enumerate(pairs):
        expected = reference.beam_search(source, source_language, target_language, 3, length_penalty, early, 9)
        assert len(expected) == 3
        for place, (score, tokens) in enumerate(expected):
            row = number * 3 + place
            assert rows[row][: len(tokens)] == tokens
            assert set(rows[row][len(tokens) :]) <= {pad}
            assert_agrees(scores[row], score, 1e-4)
            lengths.add(len(tokens))
    assert len(lengths) > 1


def test_the_reference_is_the_golden(golden):  # noqa: F811
    facts, tensors = golden
    reference = Reference(state(tensors), facts["config"]["n_heads"], facts["config"]["mask_index"])
    for row, length in enumerate(tensors["mt.src_len"].tolist()):
        target = tensors["mt.tgt"][row, : tensors["mt.tgt_len"][row]]
        source = tensors["mt.src"][row, :length]
        expected = tensors["mt.logits"][row, : len(target)]
        assert_agrees(reference.logits(source, 0, target, 1), expected, 1e-4)
        for setting in ("beam4_lp1.0_earlyFalse", "beam4_lp0.6_earlyTrue"):
            wanted = facts["generation"][setting]
            found = reference.beam_search(source, 0, 1, 4, wanted["length_penalty"], wanted["early_stopping"], 22)
            assert found[0][1] == wanted["tokens"][row]


def test_converted_and_reverted_weights_are_the_same():
    model, reference, _ = make(n_langs=3)
    converted = convert_state_dict(reference.state, model.config)
    assert converted.keys() == model.state_dict().keys()
    assert all(torch.equal(converted[name], value) for name, value in model.state_dict().items())
