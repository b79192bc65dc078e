"""ERNIE-THU against the reference's arithmetic: any order of layers, heads and widths, any mask, rows without any."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.ernie_thu import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_ernie_thu import ErnieThuForPreTraining
from tests.models.ernie_thu.reference import Reference, reference_losses
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"
SIZES = {
    "vocab_size": 90,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
    "ent_hidden_size": 12,
    "ent_num_heads": 2,
}
LAYERS = {
    "published": None,
    "three entity heads": None,
    "wide entities": None,
    "one kind, the others are sim": ["norm"],
    "none": [],
    "reordered": ["norm", "sim", "mix", "norm"],
    "fusion first": ["mix", "norm", "sim", "sim"],
    "all mix": ["mix"] * 4,
    "all norm": ["norm"] * 4,
}
OPTIONS = {"three entity heads": {"ent_num_heads": 3}, "wide entities": {"ent_hidden_size": 36, "ent_num_heads": 1}}
LENGTHS = (14, 9, 5, 2)


def test_the_reference_is_the_references():
    facts = json.loads((GOLDENS / "ernie-thu-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "ernie-thu-a.safetensors")
    state = {name.removeprefix("sd."): value for name, value in tensors.items() if name.startswith("sd.")}
    reference = Reference(state, layers=4, heads=4, entity_heads=4)
    given = [
        tensors[f"in.{name}"] for name in ("input_ids", "attention_mask", "token_type_ids", "input_ent", "ent_mask")
    ]
    texts, entities = reference.streams(*given)
    for number in range(4):
        assert_agrees(texts[number + 1], tensors[f"out.hidden_text.{number}"], 2e-5)
        assert_agrees(entities[number + 1], tensors[f"out.hidden_ent.{number}"], 2e-5)
    logits = reference.logits(texts[-1], tensors["in.candidate_emb"])
    labels = {"labels": "mlm_labels", "next_sentence_label": "nsp_labels", "entity_labels": "ent_labels"}
    targets = {ours: tensors[f"in.{theirs}"] for ours, theirs in labels.items()}
    losses = reference_losses(logits, {name: torch.where(value < 0, -100, value) for name, value in targets.items()})
    assert_agrees(losses["loss"], facts["scalars"]["loss_total"], 1e-5)


def model_and_reference(layer_types, attention, **options):
    original = {**SIZES, **options, **({} if layer_types is None else {"layer_types": layer_types})}
    config = convert_config(original)
    torch.manual_seed(0)
    model = ErnieThuForPreTraining._from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    state = revert_state_dict(model.state_dict(), config)
    model.load_state_dict(convert_state_dict(state, config))
    return model, Reference(state, 4, 3, config.entity_num_attention_heads)


def batch(width, lengths=LENGTHS):
    generator = torch.Generator().manual_seed(1)
    rows, seq_len = len(lengths), max(lengths)
    mask = (torch.arange(seq_len)[None] < torch.tensor(lengths)[:, None]).long()
    present = (torch.rand(rows, seq_len, generator=generator) < 0.4) & mask.bool()
    present[-1] = False  # a row without entities
    vectors = torch.randn(rows, seq_len, width, generator=generator) * present[..., None]
    present[:, 0] = True
    return {
        "input_ids": torch.randint(5, 90, (rows, seq_len), generator=generator) * mask,
        "attention_mask": mask,
        "token_type_ids": torch.randint(2, (rows, seq_len), generator=generator) * mask,
        "entity_embeds": vectors,
        "entity_mask": present.long(),
    }


def targets(given):
    generator = torch.Generator().manual_seed(2)
    shape, real = given["input_ids"].shape, given["attention_mask"].bool()
    labelled = (torch.rand(shape, generator=generator) < 0.3) & real
    entities = (given["entity_embeds"] != 0).any(-1)
    return {
        "labels": torch.where(labelled, torch.randint(5, 90, shape, generator=generator), -100),
        "next_sentence_label": torch.arange(shape[0]) % 2,
        "entity_labels": torch.where(entities, torch.randint(1, 6, shape, generator=generator), -100),
    }


def candidates(width):
    vectors = torch.randn(6, width, generator=torch.Generator().manual_seed(3))
    vectors[0] = 0
    return vectors


CASES = {
    "as it is": lambda given: given,
    "no entity in any row": lambda given: {
        **given,
        "entity_embeds": torch.zeros_like(given["entity_embeds"]),
        "entity_mask": torch.eye(1, given["input_ids"].shape[1], dtype=torch.long).expand(4, -1),
    },
    "all-zero entity mask": lambda given: {**given, "entity_mask": torch.zeros_like(given["entity_mask"])},
    "one row of zeros in the entity mask": lambda given: {
        **given,
        "entity_mask": given["entity_mask"] * torch.tensor([[1], [0], [1], [1]]),
    },
    "every position an entity": lambda given: {**given, "entity_mask": torch.ones_like(given["entity_mask"])},
    "entities on padding": lambda given: {
        **given,
        "entity_mask": given["entity_mask"] | (1 - given["attention_mask"]),
        "entity_embeds": given["entity_embeds"] + (1 - given["attention_mask"])[..., None] * 0.7,
    },
    "a row of padding": lambda given: {
        **given,
        "attention_mask": given["attention_mask"] * torch.tensor([[1], [1], [0], [1]]),
    },
}


def compare(model, reference, given, attention, atol=2e-5):
    width = model.config.entity_hidden_size
    labels = targets(given)
    with torch.no_grad():
        texts, entities = reference.streams(
            *(given[name] for name in ("input_ids", "attention_mask", "token_type_ids")),
            given["entity_embeds"],
            given["entity_mask"],
        )
        outputs = model(
            **given, **labels, entity_candidate_embeds=candidates(width), output_hidden_states=True, return_logits=True
        )
        logits = reference.logits(texts[-1], candidates(width))
    for number, (got, expected) in enumerate(zip(outputs.hidden_states, texts, strict=True)):
        assert_agrees(got, expected, atol, name=f"text {number}")
    for number, (got, expected) in enumerate(zip(outputs.entity_hidden_states, entities, strict=True)):
        assert_agrees(got, expected, atol, name=f"entity {number}")
    for name, expected in logits.items():
        assert_agrees(outputs[name], expected, 5e-5, name=name)
    for name, expected in reference_losses(logits, labels).items():
        assert_agrees(outputs[name], expected, 1e-5, name=name)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("layers", LAYERS)
def test_any_order_of_layers(layers, attention):
    model, reference = model_and_reference(LAYERS[layers], attention, **OPTIONS.get(layers, {}))
    compare(model, reference, batch(model.config.entity_hidden_size), attention)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", CASES)
def test_any_mask(case, attention):
    model, reference = model_and_reference(["sim", "norm", "mix", "norm"], attention)
    compare(model, reference, CASES[case](batch(12)), attention)


def test_gradients_of_reordered_layers():
    """Each parameter's gradient is the reference's, and the same four have none."""
    model, _ = model_and_reference(["norm", "mix", "sim", "norm"], "sdpa")
    given, labels = batch(12), None
    labels = targets(given)
    model(**given, **labels, entity_candidate_embeds=candidates(12)).loss.backward()
    state = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    reference = Reference(state, 4, 3, 2)
    texts, _ = reference.streams(
        given["input_ids"],
        given["attention_mask"],
        given["token_type_ids"],
        given["entity_embeds"],
        given["entity_mask"],
    )
    reference_losses(reference.logits(texts[-1], candidates(12)), labels)["loss"].backward()
    without = [name for name, value in state.items() if value.grad is None]
    assert without == [name for name, value in model.named_parameters() if not value.requires_grad]
    assert len(without) == 4
    for name, value in model.named_parameters():
        if name not in without:
            assert_agrees(value.grad, state[name].grad, atol=2e-6, rtol=1e-3)
