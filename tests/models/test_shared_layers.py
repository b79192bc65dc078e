"""ALBERT's options in our encoders: layers that run more than once, embeddings of a width of their own."""

import re
from functools import partial

import pytest
import torch
from safetensors import safe_open
from transformers import AlbertConfig, AlbertForMaskedLM, AlbertModel

import hf_ptm_ext
from hf_ptm_ext import (
    LayerDropCallback,
    SpanBertConfig,
    SpanBertForMaskedLM,
    SpanBertModel,
    UniLMConfig,
    UniLMForConditionalGeneration,
    keep_layers,
)
from hf_ptm_ext.compression import LayerDrop
from hf_ptm_ext.conversion import nezha, spanbert
from hf_ptm_ext.distillation.capture import Capture
from hf_ptm_ext.distillation.theseus.layers import make_successor
from tests.hub.checkpoints import run_script

SIZES = {
    **{"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4},
    **{"intermediate_size": 48, "max_position_embeddings": 24, "pad_token_id": 0},
}
SHARED = {**SIZES, "num_hidden_groups": 2, "embedding_size": 12}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
FAMILIES = ("SpanBert", "UniLM", "KBert", "Nezha", "Zen", "KnowBert")
WIKI = {"entity_vocab_size": 9, "insert_after_layer": 3, "entity_size": 8, "intermediate_size": 8}
OF_FAMILY = {"KnowBert": {"knowledge_bases": {"wiki": WIKI}}, "UniLM": {"mask_token_id": 4, "eos_token_id": 3}}
IDS = torch.tensor([[2, 7, 8, 9, 11, 3], [2, 30, 4, 3, 0, 0]])
INPUTS = {"input_ids": IDS, "attention_mask": (IDS != 0).long()}
LABELS = torch.where(IDS == 4, 21, torch.where(IDS == 9, 9, -100))
NGRAMS = {"ngram_ids": [[5, 6], [7, 0]], "ngram_positions": [[1, 1], [1, 0]], "ngram_lengths": [[2, 3], [2, 0]]}
MORE_INPUTS = {
    "Zen": {name: torch.tensor(value) for name, value in NGRAMS.items()},
    "KnowBert": {
        "candidate_spans": torch.tensor([[[1, 2]], [[1, 1]]]),
        "candidate_entities": torch.tensor([[[4, 5]], [[6, 0]]]),
    },
}


def inputs_of(family):
    return {**INPUTS, **MORE_INPUTS.get(family, {})}


def model_of(family, head="ForMaskedLM", **fields):
    torch.manual_seed(0)
    config = getattr(hf_ptm_ext, f"{family}Config")(
        **{**SHARED, **OF_FAMILY.get(family, {}), "initializer_range": 0.2, **fields}
    )
    return getattr(hf_ptm_ext, f"{family}{head}")(config).eval()


# SpanBERT's names -> ALBERT's.
TO_ALBERT = (
    (r"^bert\.", "albert."),
    (r"attention\.self\.", "attention."),
    (r"attention\.output\.", "attention."),
    (r"intermediate\.dense", "ffn"),
    (r"(layer\.\d+)\.output\.dense", r"\1.ffn_output"),
    (r"(layer\.\d+)\.output\.LayerNorm", r"\1.full_layer_layer_norm"),
    (r"pooler\.dense", "pooler"),
    (r"^cls\.predictions\.(transform\.)?", "predictions."),
)


def albert_name(name, inner):
    for pattern, replacement in TO_ALBERT:
        name = re.sub(pattern, replacement, name)

    def place(found):
        group, layer = divmod(int(found[1]), inner)
        return f"albert_layer_groups.{group}.albert_layers.{layer}."

    return re.sub(r"\blayer\.(\d+)\.", place, name)


def copied_from_albert(ours, theirs, inner):
    """Both with the same weights; of ours, name -> the parameter of theirs."""
    named = dict(theirs.named_parameters())
    pairs = {name: named[albert_name(name, inner)] for name, _ in ours.named_parameters()}
    assert len(pairs) == len(named)
    ours.load_state_dict({name: value.detach().clone() for name, value in pairs.items()}, strict=False)
    return pairs


@pytest.mark.parametrize(("groups", "inner"), [(1, 1), (2, 2), (3, 1), (5, 1)])
def test_spanberts_block_is_alberts(groups, inner):
    """Every state, the pooled one and every gradient."""
    torch.manual_seed(0)
    fields = {**SIZES, **NO_DROPOUT, "num_hidden_groups": groups, "inner_group_num": inner, "embedding_size": 12}
    fields |= {"hidden_act": "gelu_new", "initializer_range": 0.3}
    theirs = AlbertModel(AlbertConfig(**fields)).train()
    ours = SpanBertModel(SpanBertConfig(**fields)).train()
    pairs = copied_from_albert(ours, theirs, inner)
    outputs = [model(**INPUTS, output_hidden_states=True) for model in (ours, theirs)]
    assert len(outputs[0].hidden_states) == len(outputs[1].hidden_states) == 5 * inner + 1
    real = INPUTS["attention_mask"].bool()
    for mine, other in zip(*(output.hidden_states for output in outputs), strict=True):
        torch.testing.assert_close(mine[real], other[real], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(outputs[0].pooler_output, outputs[1].pooler_output, rtol=1e-5, atol=1e-5)
    for output in outputs:
        (output.last_hidden_state[real].pow(3).sum() + output.pooler_output.sum()).backward()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, pairs[name].grad, rtol=1e-4, atol=1e-4, msg=name)


def test_the_vocabulary_head_is_alberts():
    """Whose LayerNorm has torch's epsilon whatever the config says; the tied table has both gradients."""
    fields = {**SHARED, **NO_DROPOUT, "hidden_act": "gelu_new", "initializer_range": 0.3, "layer_norm_eps": 1e-5}
    torch.manual_seed(0)
    theirs, ours = AlbertForMaskedLM(AlbertConfig(**fields)), SpanBertForMaskedLM(SpanBertConfig(**fields))
    pairs = copied_from_albert(ours, theirs, 1)
    losses = [
        model(**INPUTS, labels=LABELS, **more) for model, more in ((ours, {"return_logits": True}), (theirs, {}))
    ]
    torch.testing.assert_close(losses[0].loss, losses[1].loss, rtol=1e-5, atol=1e-6)
    real = INPUTS["attention_mask"].bool()
    torch.testing.assert_close(losses[0].logits[real], losses[1].logits[real], rtol=1e-5, atol=1e-5)
    for output in losses:
        output.loss.backward()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, pairs[name].grad, rtol=1e-4, atol=1e-5, msg=name)
    assert ours.cls.predictions.decoder.weight is ours.bert.embeddings.word_embeddings.weight


def test_defaults_change_nothing():
    names = set(SpanBertModel(SpanBertConfig(**SIZES)).state_dict())
    assert names == set(SpanBertModel(SpanBertConfig(**SIZES, num_hidden_groups=5)).state_dict())
    more = set(SpanBertModel(SpanBertConfig(**SIZES, embedding_size=32)).state_dict()) - names
    assert more == {f"encoder.embedding_hidden_mapping_in.{part}" for part in ("weight", "bias")}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_shared_layers_gradient_is_the_sum_of_its_copies(family):
    shared, inputs = model_of(family, **NO_DROPOUT), inputs_of(family)
    copies = model_of(family, **NO_DROPOUT, num_hidden_groups=None)
    order = shared.bert.encoder.order
    assert order == [0, 0, 0, 1, 1]

    def shared_name(name):
        return re.sub(r"(bert\.encoder\.layer\.)(\d+)", lambda found: f"{found[1]}{order[int(found[2])]}", name)

    weights = shared.state_dict()
    copies.load_state_dict({name: weights[shared_name(name)] for name in copies.state_dict()})
    outputs = [model(**inputs, labels=LABELS, output_hidden_states=True) for model in (shared, copies)]
    assert len(outputs[0].hidden_states) == 6
    for mine, other in zip(*(output.hidden_states for output in outputs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
    for output in outputs:
        output.loss.backward()
    sums = {}
    for name, parameter in copies.named_parameters():
        if parameter.grad is not None:
            sums[shared_name(name)] = sums.get(shared_name(name), 0) + parameter.grad
    for name, parameter in shared.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, sums[name], rtol=1e-4, atol=1e-5, msg=name)
    assert any(name.startswith("bert.encoder.layer.1.") for name in sums)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_saves_and_loads_trains_and_resizes(family, tmp_path):
    model, inputs = model_of(family, **NO_DROPOUT), inputs_of(family)
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert {name.split(".")[3] for name in names if name.startswith("bert.encoder.layer.")} == {"0", "1"}
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not [*info["missing_keys"], *info["unexpected_keys"]]
    with torch.no_grad():
        torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits, rtol=0, atol=0)

    gradients = []
    for checkpointed in (False, True):
        if checkpointed:
            loaded.gradient_checkpointing_enable()
        loaded.train().zero_grad()
        loaded(**inputs, labels=LABELS).loss.backward()
        gradients.append([one.grad.clone() for one in loaded.parameters() if one.grad is not None])
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
    loaded.gradient_checkpointing_disable()

    loaded.resize_token_embeddings(64)
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    assert loaded(**inputs).logits.shape == (2, 6, 64)
    vectors = loaded.get_input_embeddings()(IDS)
    assert vectors.shape[-1] == 12
    given = {**inputs, "input_ids": None, "inputs_embeds": vectors}
    torch.testing.assert_close(loaded.eval()(**given).logits, loaded(**inputs).logits)


def test_compiled():
    model = model_of("SpanBert", num_hidden_layers=2, num_hidden_groups=1, inner_group_num=2)
    with torch.no_grad():
        expected = model(**INPUTS).logits
        torch.compiler.reset()
        compiled = torch.compile(model, backend="eager", fullgraph=True)(**INPUTS).logits
    torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-4)


def test_the_boundary_head_follows_the_embeddings():
    model = model_of("SpanBert", "ForPreTraining", inner_group_num=2, pair_target_layer=7)
    boundaries, labels = torch.tensor([[[1, 4]], [[0, 3]]]), torch.full((2, 1, 15), -100)
    labels[0, 0, :2] = torch.tensor([8, 9])
    output = model(**INPUTS, labels=LABELS, span_boundaries=boundaries, span_labels=labels)
    assert torch.isclose(output.loss, output.mlm_loss + output.sbo_loss)
    model.resize_token_embeddings(64)
    assert model(**INPUTS, span_boundaries=boundaries).boundary_logits.shape == (2, 1, 15, 64)
    with pytest.raises(ValueError, match=r"`pair_target_layer` must be in \[-10, 10\)"):
        SpanBertConfig(**SHARED, inner_group_num=2, pair_target_layer=10)


def test_generation_with_and_without_its_cache():
    torch.manual_seed(1)
    fields = {**SHARED, **OF_FAMILY["UniLM"], "initializer_range": 0.5}
    model = UniLMForConditionalGeneration(UniLMConfig(**fields)).eval()
    generate = partial(model.generate, input_ids=IDS[:1, :4], max_new_tokens=8, do_sample=False, eos_token_id=None)
    with_cache, without = (generate(use_cache=flag) for flag in (True, False))
    assert torch.equal(with_cache, without)
    assert len(set(with_cache[0, 4:].tolist())) > 1
    with pytest.raises(ValueError, match="`inner_group_num` must be 1 in a UniLM, got 2"):
        UniLMConfig(**fields, inner_group_num=2)


def test_distillation_reads_each_time_that_the_layer_runs():
    model = model_of("SpanBert", "Model", num_hidden_groups=1)
    capture = Capture(model, ["query.0", "query.4", "hidden.3"])
    capture.start()
    states = model(**INPUTS, output_hidden_states=True).hidden_states
    taken = capture.take()
    torch.testing.assert_close(taken["hidden.3"], states[3])
    query = model.encoder.layer[0].attention.self.query
    torch.testing.assert_close(taken["query.4"], query(states[4]))
    with pytest.raises(ValueError, match="to distil shared layers one by one, got 2 and 1"):
        Capture(model_of("SpanBert", "Model"), ["query.0"])


def test_a_student_takes_over_the_shared_layer():
    teacher = model_of("SpanBert", "Model", num_hidden_groups=1)
    student = hf_ptm_ext.make_student(teacher, layers=2)
    ours, theirs = student.state_dict(), teacher.state_dict()
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("groups", [1, 5])
def test_layers_that_are_shared_are_not_left_out(groups):
    """Not even where there are as many modules as `num_hidden_layers`."""
    model = model_of("SpanBert", num_hidden_groups=groups, inner_group_num=5 // groups)
    for refused in (keep_layers, LayerDrop, partial(make_successor, layers=1)):
        with pytest.raises(ValueError, match="all its layers are one"):
            refused(model)
    assert LayerDropCallback(0.2).rate == 0.2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_groups": 6}, r"`num_hidden_groups` must be in \[1, `num_hidden_layers` = 5\].*got 6"),
        ({"num_hidden_groups": 0}, "`num_hidden_groups` must be in .*got 0"),
        ({"inner_group_num": 2}, "`inner_group_num` must be .* 1 without `num_hidden_groups`, got 2"),
        ({"num_hidden_groups": 1, "inner_group_num": 0}, "`inner_group_num` must be at least 1.*got 0"),
        ({"embedding_size": 0}, "`embedding_size` must be at least 1.*got 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        SpanBertConfig(**SIZES, **fields)


def test_families_whose_layers_differ_refuse():
    for config in (hf_ptm_ext.ErnieThuConfig, hf_ptm_ext.IBBertConfig):
        with pytest.raises(ValueError, match=r"`num_hidden_groups` must be None .*got 1"):
            config(num_hidden_groups=1)
    with pytest.raises(ValueError, match=r"`embedding_size` must be None .*got 12"):
        hf_ptm_ext.ErnieThuConfig(embedding_size=12)


def test_inside_a_model_that_counts_an_encoders_states():
    config = {"model_type": "spanbert", **SHARED}
    model = hf_ptm_ext.WeightedLayersModel(hf_ptm_ext.WeightedLayersConfig(encoder_config=config))
    assert model(**INPUTS).last_hidden_state.shape == (2, 6, 32)
    for wrapper in (hf_ptm_ext.WeightedLayersConfig, hf_ptm_ext.KAdapterConfig):
        with pytest.raises(ValueError, match="`inner_group_num` of an encoder inside must be 1, got 2"):
            wrapper(encoder_config={**config, "inner_group_num": 2})


def test_the_originals_files_have_no_room_for_it():
    for module, family in ((spanbert, "SpanBert"), (nezha, "Nezha")):
        model = model_of(family, "ForPreTraining")
        with pytest.raises(ValueError, match=r"`num_hidden_groups` must be None for .*got 2"):
            module.revert_checkpoint(model.state_dict(), model.config)
        model = model_of(family, "ForPreTraining", num_hidden_groups=None)
        with pytest.raises(ValueError, match=r"`embedding_size` must be None for .*got 12"):
            module.revert_checkpoint(model.state_dict(), model.config)


def test_weights_of_the_mapping_that_a_file_lacks_are_named(tmp_path, warnings_of_transformers):
    model = model_of("SpanBert", "Model")
    kept = {name: value for name, value in model.state_dict().items() if "mapping" not in name}
    model.save_pretrained(tmp_path, state_dict=kept)
    SpanBertModel.from_pretrained(tmp_path)
    assert "`encoder.embedding_hidden_mapping_in.bias`" in warnings_of_transformers.text


def test_travels_without_the_package(tmp_path):
    for family in ("SpanBert", "Zen"):
        model = model_of(family)
        model.save_pretrained(tmp_path / family)
        torch.save(model(**INPUTS).logits.detach(), tmp_path / f"{family}.pt")
    torch.save(INPUTS, tmp_path / "inputs.pt")
    run_script(
        "import sys, torch\nfrom pathlib import Path\nfrom transformers import AutoModelForMaskedLM\n"
        f"root = Path({str(tmp_path)!r})\n"
        "for name in ('SpanBert', 'Zen'):\n"
        "    model = AutoModelForMaskedLM.from_pretrained(root / name, trust_remote_code=True).eval()\n"
        "    with torch.no_grad():\n"
        "        logits = model(**torch.load(root / 'inputs.pt')).logits\n"
        "    torch.testing.assert_close(logits, torch.load(root / f'{name}.pt'))\n"
        "    assert type(model).__module__.startswith('transformers_modules')\n"
    )


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"UniLM"}))
@torch.no_grad()
def test_the_last_states_are_those_of_the_last_layer_that_runs(family):
    model = model_of(family, "Model", num_hidden_layers=2, num_hidden_groups=2, inner_group_num=2)
    states = model(**inputs_of(family), output_hidden_states=True).hidden_states
    chosen = model(**inputs_of(family), output_hidden_states=[1, -1]).hidden_states
    assert [one is None for one in chosen] == [True, False, True, True, False]
    assert torch.equal(chosen[-1], states[-1])
