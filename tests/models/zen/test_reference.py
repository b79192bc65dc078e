"""ZEN reproduces the reference: the golden, and the formulas at other sizes, with n-grams of every kind and none."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from hf_ptm_ext.conversion.zen import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_zen import ZenForPreTraining
from tests.models.zen.reference import Reference
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"
TOLERANCE = 1e-5  # the golden's own


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "zen-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "zen-a.safetensors")
    state = {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
    return facts, tensors, state


def loaded(state, config, attention):
    model = ZenForPreTraining._from_config(config, attn_implementation=attention)
    model.load_state_dict(convert_state_dict(state, config))
    return model.eval()


def close(got, expected, double=None):
    assert_agrees(got, expected, TOLERANCE, double=double)


def pairs(ngrams, width):
    """Columns of places from (start, length) per row."""
    positions, lengths = (torch.zeros(len(ngrams), width, dtype=torch.long) for _ in range(2))
    for row, entries in enumerate(ngrams):
        for place, (start, length) in enumerate(entries):
            positions[row, place], lengths[row, place] = start, length
    return {"ngram_positions": positions, "ngram_lengths": lengths}


def golden_inputs(golden, form):
    facts, tensors, _ = golden
    names = ("input_ids", "attention_mask", "token_type_ids", "ngram_ids", "ngram_token_type_ids")
    inputs = {name: tensors[f"in.{name}"] for name in names}
    if form == "matrix":
        return {
            **inputs,
            "ngram_position_matrix": tensors["in.ngram_position_matrix"],
            "ngram_attention_mask": tensors["in.ngram_attention_mask"],
        }
    return {**inputs, **pairs(facts["ngrams"], tensors["in.ngram_ids"].shape[1])}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("form", ["pairs", "matrix"])
@torch.no_grad()
def test_the_golden(golden, attention, form):
    facts, tensors, state = golden
    assert facts["tolerance"] == TOLERANCE
    model = loaded(state, convert_config(facts["config"]), attention)
    inputs = golden_inputs(golden, form)
    outputs = model(**inputs, output_hidden_states=True)
    assert len(outputs.hidden_states) == 5
    for number in range(1, 5):
        close(outputs.hidden_states[number], tensors[f"out.layer_{number}"])
    close(model.bert(**inputs).pooler_output, tensors["out.pooled"])
    close(outputs.seq_relationship_logits, tensors["out.nsp_logits"])
    # As the reference's code for tagging calls it: n-grams without types, padding among those that are seen.
    del inputs["ngram_token_type_ids"]
    inputs["ngram_attention_mask"] = torch.ones_like(inputs["ngram_ids"])
    close(model.bert(**inputs).last_hidden_state, tensors["out.last_without_ngram_mask"])
    double = model.double()(**golden_inputs(golden, form)).prediction_logits
    close(outputs.prediction_logits, tensors["out.mlm_logits"], double)


def test_the_golden_goes_back_to_its_own_names(golden):
    facts, _, state = golden
    config = convert_config(facts["config"])
    reverted = revert_state_dict(convert_state_dict(state, config), config)
    assert reverted.keys() == state.keys()
    assert all(torch.equal(reverted[name], state[name]) for name in state)


@torch.no_grad()
def test_the_formulas_are_the_references(golden):
    facts, tensors, state = golden
    reference = Reference(state, layers=4, word_layers=2, heads=4)
    ngrams = [
        [
            (int(number), start, length, int(kind))
            for (start, length), number, kind in zip(entries, numbers, kinds, strict=False)
        ]
        for entries, numbers, kinds in zip(
            facts["ngrams"], tensors["in.ngram_ids"], tensors["in.ngram_token_type_ids"], strict=True
        )
    ]
    names = ("input_ids", "attention_mask", "token_type_ids")
    states = reference.hidden_states(*(tensors[f"in.{name}"] for name in names), ngrams)
    for number in range(1, 5):
        close(states[number], tensors[f"out.layer_{number}"])
    close(reference.logits(states[-1])[1], tensors["out.nsp_logits"])


CASES = {
    # (id, start, length, type) of the n-grams of each row
    "none": [[], [], []],
    "nested and overlapping": [[(3, 1, 2, 0), (4, 1, 5, 0), (5, 2, 3, 1), (6, 5, 4, 0)], [(3, 0, 7, 0)], []],
    "the same one twice": [[(7, 1, 2, 0), (7, 6, 2, 0)], [(2, 3, 3, 1), (9, 3, 3, 1), (1, 0, 2, 0)], [(8, 0, 2, 0)]],
    "more than tokens": [[(1 + n % 11, n % 9, 2, n % 2) for n in range(40)], [(1, 0, 2, 0)], []],
}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("layers", "word_layers"), [(3, 1), (2, 2), (2, 0)])
@torch.no_grad()
def test_any_ngrams_and_depths(attention, case, layers, word_layers):
    config = convert_config(
        {
            "vocab_size": 90,
            "word_size": 12,
            "hidden_size": 24,
            "num_hidden_layers": layers,
            "num_hidden_word_layers": word_layers,
            "num_attention_heads": 3,
            "intermediate_size": 40,
            "max_position_embeddings": 16,
        }
    )
    torch.manual_seed(layers)
    state = revert_state_dict(ZenForPreTraining(config).state_dict(), config)
    state = {name: value + 0.1 * torch.randn(value.shape) for name, value in state.items()}
    state.pop("cls.predictions.decoder.weight", None)
    ids, types = torch.randint(1, 90, (3, 11)), torch.randint(0, 2, (3, 11))
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    mask[2] = 0 if case == "none" else 1  # a row of nothing but padding: everything sees everything
    ngrams = CASES[case]
    width = max(len(row) for row in ngrams) + 2
    columns = pairs([[(start, length) for _, start, length, _ in row] for row in ngrams], width)
    for name, index in (("ngram_ids", 0), ("ngram_token_type_ids", 3)):
        columns[name] = torch.zeros(3, width, dtype=torch.long)
        for row, entries in enumerate(ngrams):
            columns[name][row, : len(entries)] = torch.tensor([entry[index] for entry in entries], dtype=torch.long)
    outputs = loaded(state, config, attention)(ids, mask, types, **columns, output_hidden_states=True)
    reference = Reference(state, layers, word_layers, heads=3)
    for got, expected in zip(outputs.hidden_states, reference.hidden_states(ids, mask, types, ngrams), strict=True):
        close(got, expected)


@torch.no_grad()
def test_without_ngrams_it_is_bert(golden):
    """No inputs of the kind, none in the text, and columns of width 0 are the same, to the last bit."""
    facts, tensors, state = golden
    model = loaded(state, convert_config(facts["config"]), "sdpa").bert
    inputs = {name: tensors[f"in.{name}"] for name in ("input_ids", "attention_mask", "token_type_ids")}
    bert = BertModel(BertConfig(**{**facts["config"], "attn_implementation": "sdpa"})).eval()
    names = {name.removeprefix("bert."): value for name, value in state.items() if name.startswith("bert.")}
    ngram_encoder = ("word_embeddings.", "encoder.word_layers.")
    bert.load_state_dict({name: value for name, value in names.items() if not name.startswith(ngram_encoder)})
    expected = bert(**inputs).last_hidden_state
    empty = {name: torch.zeros(2, 0, dtype=torch.long) for name in ("ngram_ids", "ngram_positions", "ngram_lengths")}
    padding = {name: torch.zeros(2, 3, dtype=torch.long) for name in empty}
    for columns in ({}, empty, padding):
        torch.testing.assert_close(model(**inputs, **columns).last_hidden_state, expected, atol=0, rtol=0)
