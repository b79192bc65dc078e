"""The forward for every choice of modules: the reference's values, any encoder, every way of running it."""

import copy
import itertools
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertModel,
)

from hf_ptm_ext.distillation import TheseusModel, make_successor
from hf_ptm_ext.distillation.theseus import find_layers
from tests.distillation.pairs import rows
from tests.distillation.theseus.runs import ROWS, predecessor
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
GOLDEN = json.loads((GOLDENS / "theseus-a.json").read_text(encoding="utf-8"))


def batch(number=8):
    return torch.utils.data.default_collate(rows(ROWS)[:number])


def golden_model(tensors, name, layers):
    sizes = GOLDEN["config"]
    config = BertConfig(
        vocab_size=sizes["vocab"],
        hidden_size=sizes["hidden"],
        num_hidden_layers=layers,
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["intermediate"],
        max_position_embeddings=sizes["max_position"],
    )
    model = BertModel(config, add_pooling_layer=False)
    state = {key.removeprefix("predecessor."): value for key, value in tensors.items() if "embeddings." in key}
    own = {key: value for key, value in tensors.items() if key.startswith(f"{name}.encoder")}
    model.load_state_dict({**state, **{key.removeprefix(f"{name}."): value for key, value in own.items()}})
    return model.eval()


@pytest.mark.golden
def test_every_replacement_mask_gives_the_reference_s_states():
    tensors = load_file(GOLDENS / "theseus-a.safetensors")
    sizes = GOLDEN["config"]
    model = TheseusModel(
        golden_model(tensors, "predecessor", sizes["predecessor_layers"]),
        golden_model(tensors, "successor", sizes["successor_layers"]),
    ).eval()
    inputs = {"input_ids": tensors["input.input_ids"], "attention_mask": tensors["input.attention_mask"]}
    outputs = {}
    for mask in itertools.product((False, True), repeat=2):
        outputs[mask] = model(replacements=mask, **inputs).last_hidden_state
        expected = tensors["output.mask_" + "".join(str(int(bit)) for bit in mask)]
        assert_agrees(outputs[mask], expected, **GOLDEN["tolerance"])
    torch.testing.assert_close(model(**inputs).last_hidden_state, outputs[True, True], atol=0, rtol=0)


# Model type -> sizes beside those that all take.
ENCODERS = {
    "bert": {},
    "roberta": {},
    "electra": {"embedding_size": 8},
    "distilbert": {"hidden_dim": 32},
    "mpnet": {},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "xlnet": {"d_inner": 32, "d_head": 4},
    "spanbert": {},
    "unilm": {},
    "nezha": {},
    "ernie_thu": {"entity_hidden_size": 8, "entity_num_attention_heads": 2},
}


def encoder(model_type, layers, auto=AutoModelForSequenceClassification):
    extra = dict(ENCODERS[model_type])
    if model_type == "ernie_thu":
        # As in the released models: text alone, fusion that begins, fusion; divided by three.
        extra["fusion_layer_types"] = ["sim"] * (layers // 2) + ["mix"] + ["norm"] * (layers - layers // 2 - 1)
    config = AutoConfig.for_model(
        model_type,
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_labels=3,
        **(extra if model_type == "xlnet" else {"intermediate_size": 32, "max_position_embeddings": 32, **extra}),
    )
    torch.manual_seed(3)
    model = auto.from_config(config)
    for name, parameter in model.named_parameters():
        if "orm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def inputs_for(model):
    return {"input_ids": batch()["input_ids"].clamp_min(5), "labels": batch()["labels"]}


@pytest.mark.parametrize("model_type", ENCODERS)
def test_any_encoder_is_cut_into_any_number_of_modules(model_type):
    """All modules of the predecessor are the predecessor; none is the successor, a plain model; others differ."""
    old = encoder(model_type, 6).eval()
    inputs = inputs_for(old)
    whole = old(**inputs)
    for modules in (1, 2, 3):
        model = TheseusModel(old, modules).eval()
        assert model.model.config.num_hidden_layers == modules
        torch.testing.assert_close(model(replacements=[False] * modules, **inputs).logits, whole.logits)
        alone = copy.deepcopy(model.model)(**inputs)
        torch.testing.assert_close(model(**inputs).logits, alone.logits)
        torch.testing.assert_close(model(replacements=[True] * modules, **inputs).logits, alone.logits)
        assert not torch.allclose(alone.logits, whole.logits, atol=1e-4)
        assert not any("predecessor" in name or "successor" in name for name in model.state_dict())


def test_modules_are_the_layers_they_stand_for():
    """Layer by layer, as a plain loop over the chosen ones."""
    old = predecessor(6).eval()
    model = TheseusModel(old, 3).eval()
    inputs = batch()
    new = find_layers(model.model)
    for mask in itertools.product((False, True), repeat=3):
        chosen = [
            layer for i, one in enumerate(mask) for layer in ([new[i]] if one else list(find_layers(old))[2 * i :][:2])
        ]
        reference = copy.deepcopy(old)
        reference.bert.encoder.layer = torch.nn.ModuleList(chosen)
        torch.testing.assert_close(model(replacements=mask, **inputs).logits, reference(**inputs).logits)


def test_the_successor_begins_as_the_first_layers_and_learns_nothing_else():
    old = predecessor(6)
    before = copy.deepcopy(old.state_dict())
    model = TheseusModel(old, 2)
    kept = {n: v for n, v in before.items() if not any(f"layer.{i}." in n for i in range(2, 6))}
    assert model.model.state_dict().keys() == kept.keys()
    for name, value in model.model.state_dict().items():
        assert torch.equal(value, kept[name]), name
    assert {n for n, p in model.named_parameters() if p.requires_grad} == {
        f"model.{n}" for n in kept if ".layer." in n
    }
    assert not any(p.requires_grad for layer in find_layers(old) for p in layer.parameters())
    with_head = TheseusModel(predecessor(6), 2, train_head=True)
    trained = {n for n, p in with_head.named_parameters() if p.requires_grad}
    assert trained == {f"model.{n}" for n in kept if ".layer." in n or n.startswith("classifier")}


def test_a_head_tied_to_the_embeddings_stays_with_them():
    model = TheseusModel(encoder("bert", 2, AutoModelForMaskedLM), 1, train_head=True)
    assert not model.model.get_input_embeddings().weight.requires_grad
    assert model.model.cls.predictions.transform.dense.weight.requires_grad


@pytest.mark.parametrize("mask", list(itertools.product((False, True), repeat=2)))
def test_every_trained_parameter_has_a_gradient(mask):
    """Zeros where the predecessor stood in, so that an optimiser and DDP see the same parameters in every update."""
    model = TheseusModel(predecessor(), 2).train()
    model(replacements=mask, **batch()).loss.backward()
    for index, used in enumerate(mask):
        for parameter in find_layers(model.model)[index].parameters():
            assert parameter.grad is not None
        first = find_layers(model.model)[index].output.dense.weight.grad
        assert bool(first.abs().max() > 0) == used
    assert all(p.grad is None for layer in model.predecessor_layers for p in layer.parameters())
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_both_drop_out_in_training_and_neither_in_evaluation():
    old = predecessor(hidden_dropout_prob=0.5)
    model = TheseusModel(old, 2).train()
    assert all(layer.training for layer in model.predecessor_layers)
    inputs = batch()
    first, second = (model(replacements=[False, False], **inputs).logits for _ in range(2))
    assert not torch.equal(first, second)
    model.eval()
    first, second = (model(replacements=[False, False], **inputs).logits for _ in range(2))
    assert torch.equal(first, second)


def loss_and_gradients(module, mask, run=None):
    module.zero_grad()
    loss = (module if run is None else run)(replacements=mask, **batch()).loss
    loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}


def assert_same(first, second, rtol=1e-5, atol=1e-7):
    torch.testing.assert_close(first[0], second[0], rtol=rtol, atol=atol)
    assert first[1].keys() == second[1].keys()
    for name, value in first[1].items():
        torch.testing.assert_close(value, second[1][name], rtol=rtol, atol=atol)


def test_attention_implementations_agree():
    old = predecessor()
    results = []
    for implementation in ("eager", "sdpa"):
        old.set_attn_implementation(implementation)
        model = TheseusModel(copy.deepcopy(old), 2).train()
        results.append(loss_and_gradients(model, [False, True]))
    assert_same(*results, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_compiled_layers_serve_every_choice():
    """Same loss and gradients; the choice is made outside the graphs, which are those of layers, not of choices."""
    model = TheseusModel(predecessor(6), 3).train()
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=count)
    masks = list(itertools.product((False, True), repeat=3))
    seen = []
    for mask in masks:
        assert_same(loss_and_gradients(model, mask, compiled), loss_and_gradients(model, mask), 1e-4, 1e-6)
        seen.append(len(graphs))
    assert graphs
    assert seen[-1] == seen[4], "after all layers have been seen no choice makes another graph"
    torch._dynamo.reset()


@pytest.mark.parametrize("model_type", ["bert", "spanbert"])
def test_activation_checkpointing_gives_the_same_gradients(model_type):
    model = TheseusModel(encoder(model_type, 4), 2).train()
    for module in (*model.modules(), *(m for layer in model.predecessor_layers for m in layer.modules())):
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.model.config.attention_probs_dropout_prob = 0.0
    plain = loss_and_gradients(model, [False, True])
    assert not model.is_activation_checkpointing
    model.activation_checkpointing_enable()
    assert model.is_activation_checkpointing
    assert all(layer.gradient_checkpointing for layer in model.predecessor_layers)
    assert_same(loss_and_gradients(model, [False, True]), plain)
    for options in ({"use_reentrant": True}, {"preserve_rng_state": True}):
        with pytest.raises(ValueError, match="use_reentrant"):
            model.activation_checkpointing_enable(options)


def test_casts_and_copies_reach_the_predecessor():
    model = TheseusModel(predecessor(), 2)
    twin = copy.deepcopy(model).double()
    assert {p.dtype for layer in twin.predecessor_layers for p in layer.parameters()} == {torch.float64}
    assert {p.dtype for layer in model.predecessor_layers for p in layer.parameters()} == {torch.float32}
    with torch.no_grad():
        for parameter in find_layers(twin.model)[0].parameters():
            parameter.zero_()
    assert not torch.allclose(twin(**batch()).logits.float(), model(**batch()).logits)


def test_an_error_leaves_the_successor_whole():
    model = TheseusModel(predecessor(), 2)
    with pytest.raises(ValueError, match="`replacements` must have one entry"):
        model(replacements=[True], **batch())
    with pytest.raises(IndexError):
        model(replacements=[True, False], input_ids=torch.tensor([[10_000]]))
    assert [type(layer).__name__ for layer in find_layers(model.model)] == ["BertLayer"] * 2


class Odd(torch.nn.Module):
    """A model without any list of layers."""

    def __init__(self):
        super().__init__()
        self.config = BertConfig(num_hidden_layers=2)
        self.config.model_type = "odd"


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match=r"`successor_layers` must divide .* 6 layers, got 4; possible: 1, 2, 3, 6"):
        TheseusModel(predecessor(6), 4)
    for number in (0, 7, -1):
        with pytest.raises(ValueError, match="`successor_layers`"):
            make_successor(predecessor(6), number)
    with pytest.raises(ValueError, match="must have one list"):
        TheseusModel(Odd(), 1)
    with pytest.raises(TypeError, match="must be a model of transformers"):
        TheseusModel("bert-base-uncased", 1)
    with pytest.raises(TypeError, match="BertForSequenceClassification, got BertModel"):
        TheseusModel(predecessor(), BertModel(predecessor().config))
    old = predecessor()
    with pytest.raises(ValueError, match="share no weights"):
        TheseusModel(old, old)
    with pytest.raises(ValueError, match="`successor_layers` must divide"):
        TheseusModel(predecessor(4), predecessor(3))


SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")


@pytest.mark.parametrize(
    ("model_type", "fields", "reason"),
    [
        ("albert", {"embedding_size": 8}, "all its layers are one"),
        ("modernbert", dict.fromkeys(SPECIAL, 0), "attend in several ways"),
        ("zen", {"num_hidden_word_layers": 2}, "n-grams of its own depth"),
        ("deberta-v2", {"conv_kernel_size": 3}, "a convolution follows"),
        ("bart", {"encoder_layers": 4, "decoder_layers": 4, "d_model": 16}, "must have one list"),
    ],
)
def test_stacks_whose_layers_cannot_be_exchanged_are_refused(model_type, fields, reason):
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 32}
    if model_type == "bart":
        sizes = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    model = AutoModelForSequenceClassification.from_config(
        AutoConfig.for_model(model_type, vocab_size=40, **sizes, **fields)
    )
    with pytest.raises(ValueError, match=reason):
        TheseusModel(model, 2)
