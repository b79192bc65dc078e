"""Transformer-XL: padding, memory, generation, heads, growing vocabularies, compilation."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from hf_ptm_ext import TransfoXLConfig, TransfoXLForSequenceClassification, TransfoXLLMHeadModel, TransfoXLModel, cli
from tests.models.transfo_xl.test_reference import SIZES, made

MEMORIES = pytest.mark.parametrize("memory", ["zeros", "empty"])
IDS = torch.randint(1, 50, (3, 11), generator=torch.Generator().manual_seed(0))
LENGTHS = (11, 4, 8)


def config(**fields):
    return TransfoXLConfig(**{**SIZES, **fields})


def masks():
    """Padding behind, in front, and on both sides."""
    places = torch.arange(13)
    for first in ((0, 0, 0), (2, 9, 5), (1, 4, 0)):
        yield torch.stack(
            [(places >= start) & (places < start + size) for start, size in zip(first, LENGTHS, strict=True)]
        )


@MEMORIES
@pytest.mark.parametrize("fields", [{"mem_len": 6}, {"mem_len": 20, "same_length": False}], ids=str)
@torch.no_grad()
def test_padding_changes_nothing_in_this_segment_and_in_the_next(memory, fields):
    model = made(config(initial_memory=memory, **fields))
    for mask in masks():
        ids = torch.full(mask.shape, 7)
        for row, length in enumerate(LENGTHS):
            ids[row, mask[row]] = IDS[row, :length]
        first = model(ids, mask.long(), output_hidden_states=True)
        second = model(IDS[:, :5], mems=first.mems, mem_lengths=first.mem_lengths)
        assert not first.hidden_states[-1][~mask].any()
        for row, length in enumerate(LENGTHS):
            given = torch.ones(1, length, dtype=torch.long)
            alone = model(IDS[row : row + 1, :length], given)
            assert alone.mem_lengths.tolist() == [len(alone.mems[0])]  # the same fields as in a batch
            torch.testing.assert_close(first.logits[row, mask[row]], alone.logits[0], rtol=1e-5, atol=1e-5)
            after = model(IDS[row : row + 1, :5], mems=alone.mems)
            torch.testing.assert_close(second.logits[row], after.logits[0], rtol=1e-5, atol=1e-5)


@MEMORIES
@torch.no_grad()
def test_segments_words_and_the_whole_text_are_the_same(memory):
    """With `same_length` for every length; without, as long as the memory holds all."""
    models = [made(config(initial_memory=memory))]
    if memory == "empty":
        models.append(made(config(initial_memory=memory, same_length=False, mem_len=11)))
    for model in models:
        whole = model(IDS).logits
        for size in (1, 4):
            mems, parts = None, []
            for segment in IDS.split(size, dim=1):
                output = model(segment, mems=mems)
                mems = output.mems
                parts.append(output.logits)
            torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-5)


@MEMORIES
@pytest.mark.parametrize("search", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 10}], ids=str)
def test_generation_with_the_memory_is_that_without(memory, search):
    model = made(config(initial_memory=memory))
    mask = next(mask for number, mask in enumerate(masks()) if number == 1)
    ids = torch.full(mask.shape, 7)
    for row, length in enumerate(LENGTHS):
        ids[row, mask[row]] = IDS[row, :length]
    wanted = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "eos_token_id": 49, **search}
    found = []
    for use_cache in (True, False):
        torch.manual_seed(0)
        found.append(model.generate(ids, attention_mask=mask.long(), use_cache=use_cache, **wanted))
    assert torch.equal(*found)
    if "do_sample" not in search:
        for row, length in enumerate(LENGTHS):
            alone = model.generate(IDS[row : row + 1, :length], **wanted)[0, length:]
            assert torch.equal(found[0][row, mask.shape[1] :][: len(alone)], alone)


def test_a_callers_memory_goes_before_the_text():
    model = made(config())
    wanted = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": 49}
    whole = model.generate(IDS, **wanted)[:, 11:]
    with torch.no_grad():
        mems = model(IDS[:, :7]).mems
    assert torch.equal(model.generate(IDS[:, 7:], mems=mems, **wanted)[:, 4:], whole)


def test_labels_cost_no_other_words_and_losses_add_up():
    model = made(config()).train()
    labels = IDS.masked_fill(IDS % 5 == 0, -100)
    output = model(IDS, labels=labels)
    assert output.logits is None
    assert torch.equal(output.losses == 0, labels[:, 1:] == -100)
    shifted = torch.cat([labels[:, 1:], torch.full((3, 1), -100)], dim=1)
    model.eval()
    again = model(IDS, shift_labels=shifted, num_items_in_batch=100, logits_to_keep=2)
    assert again.logits.shape == (3, 2, 50)
    torch.testing.assert_close(again.loss * 100, again.losses.sum())
    nothing = model(IDS, labels=torch.full_like(IDS, -100)).loss
    nothing.backward()
    assert nothing == 0


@torch.no_grad()
def test_words_are_added_and_taken_away_at_the_end(tmp_path):
    for fields in ({}, {"div_val": 1, "d_embed": 12}, {"tie_word_embeddings": False}):
        model = made(config(**fields))
        before = model(IDS).logits
        model.resize_token_embeddings(57)
        assert model.config.vocab_size == 57
        assert model(torch.tensor([[55, 56]]), labels=torch.tensor([[55, 56]])).logits.shape == (1, 2, 57)
        model.save_pretrained(tmp_path)
        again = AutoModelForCausalLM.from_pretrained(tmp_path)
        torch.testing.assert_close(again(IDS).logits, model(IDS).logits)
        model.resize_token_embeddings(50)
        torch.testing.assert_close(model(IDS).logits, before)
        with pytest.raises(ValueError, match="more than 30, got 30"):
            model.resize_token_embeddings(30)


def test_the_classifier_reads_the_last_word(tmp_path):
    torch.manual_seed(0)
    model = TransfoXLForSequenceClassification(config(num_labels=3)).eval()
    model.save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    mask = torch.arange(11) < torch.tensor(LENGTHS)[:, None]
    with torch.no_grad():
        logits = model(IDS, mask.long()).logits
        for row, length in enumerate(LENGTHS):
            torch.testing.assert_close(logits[row], model(IDS[row : row + 1, :length]).logits[0], rtol=1e-5, atol=1e-6)
        model.config.pad_token_id = 0
        torch.testing.assert_close(model(IDS.masked_fill(~mask, 0)).logits, logits, rtol=1e-5, atol=1e-6)
    model(IDS, mask.long(), labels=torch.tensor([0, 1, 2])).loss.backward()


def test_new_weights_are_drawn_as_in_the_reference():
    torch.manual_seed(0)
    sizes = {"d_model": 128, "n_head": 4, "d_inner": 256, "n_layer": 1, "vocab_size": 900, "cutoffs": [300, 600]}
    for init in ("normal", "uniform"):
        model = TransfoXLLMHeadModel(TransfoXLConfig(**sizes, div_val=2, init=init, init_range=0.05, untie_r=False))
        spread = 0.02 if init == "normal" else 0.05 / 3**0.5
        for name, value in model.named_parameters():
            if "proj" in name:
                assert value.std().item() == pytest.approx(0.01, rel=0.1)
            elif name.endswith("norm.weight"):
                assert value.mean().item() == pytest.approx(1, abs=0.01)
            elif name.endswith(".bias") or name == "crit.cluster_bias":
                assert not value.any()
            else:
                assert value.std().item() == pytest.approx(spread, rel=0.2), name


def test_gradients_pass_through_checkpointing_and_stop_at_the_memory():
    model = made(config(dropout=0.0)).train()
    mems = model(IDS).mems
    assert not any(one.requires_grad for one in mems)
    found = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        model(IDS, labels=IDS, mems=mems).loss.backward()
        found.append([value.grad.clone() for value in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
def test_it_compiles():
    model = made(config())
    mems = model(IDS).mems
    expected = model(IDS, labels=IDS, mems=mems)
    compiled = torch.compile(model, backend="aot_eager")(IDS, labels=IDS, mems=mems)
    torch.testing.assert_close(compiled.losses, expected.losses)
    torch.testing.assert_close(compiled.logits, expected.logits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cutoffs": [30, 12]}, "`cutoffs` must rise"),
        ({"cutoffs": [50]}, "less than `vocab_size` = 50"),
        ({"attn_type": 2}, "`attn_type` must be 0"),
        ({"sample_softmax": 5}, "`sample_softmax` must be -1, got 5"),
        ({"div_val": 9}, "last cluster's width"),
        ({"tie_projs": [True]}, "for each of the clusters, 3"),
        ({"initial_memory": "none"}, "one of zeros, empty"),
        ({"mem_len": -1}, "`mem_len` must be at least 0, got -1"),
    ],
)
def test_configurations_that_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        config(**fields)


def test_inputs_that_are_refused():
    model = TransfoXLModel(config())
    with pytest.raises(ValueError, match="Begin anew"):
        model(IDS, mems=model(IDS[:1]).mems)
    with pytest.raises(ValueError, match=r"`attention_mask` must be \(batch, seq_len\) = \(3, 11\)"):
        model(IDS, torch.ones(3, 4))
    with pytest.raises(TypeError, match="did you mean `mems`"):
        model(IDS, mem=None or model(IDS).mems)
    with pytest.raises(ValueError, match="got neither"):
        model()


def test_checkpoints_of_transformers_4_load_as_they_are(tmp_path):
    model = made(config(untie_r=False))
    state = model.state_dict() | {"transformer.pos_emb.inv_freq": torch.ones(8)}
    torch.save(state, tmp_path / "pytorch_model.bin")
    fields = json.loads(model.config.to_json_string())
    for name in ("initial_memory", "hf_ptm_ext_version"):
        fields.pop(name)
    fields |= {"model_type": "transfo-xl", "tie_weight": True, "architectures": ["TransfoXLLMHeadModel"]}
    fields["task_specific_params"] = {"text-generation": {"do_sample": True, "max_length": 250}}
    (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    loaded.save_pretrained(tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "transfo_xl"
    assert TransfoXLConfig.from_pretrained(tmp_path).model_type == "transfo_xl"


def test_a_model_without_memory_reads_and_generates():
    model = made(config(mem_len=0, same_length=False))
    assert model(IDS).mems == []
    wanted = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "eos_token_id": 49}
    assert torch.equal(model.generate(IDS, **wanted), model.generate(IDS, use_cache=False, **wanted))


def test_the_authors_weights_are_converted_with_their_vocabulary(tmp_path):
    """Their clusters are numbered from the last, their biases shared, and a text begins with nothing."""
    model = made(config(untie_r=False, initial_memory="empty"))
    state = {name.removeprefix("transformer."): value for name, value in model.state_dict().items()}
    state = {name: value.flip(0) if ".cluster_" in name else value for name, value in state.items()}
    state = {
        name: value for name, value in state.items() if ".dec_attn.r_w" not in name and ".dec_attn.r_r" not in name
    }
    torch.save(state, tmp_path / "model.pt")
    fields = {"n_token": 50, "not_tied": False, "adaptive": True, "tgt_len": 8, "ext_len": 0, "attn_type": 0}
    fields |= {name: SIZES[name] for name in ("n_layer", "n_head", "d_head", "d_model", "d_inner", "div_val")}
    fields |= {name: SIZES[name] for name in ("mem_len", "clamp_len", "same_length")}
    (tmp_path / "config.json").write_text(json.dumps({**fields, "d_embed": -1}), encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in ("<unk>", "<eos>", "the")), encoding="utf-8")
    assert cli.main(["convert", "transfo_xl", str(tmp_path), str(tmp_path / "ours")]) == 0
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert loaded.config.cutoffs == [12, 30]
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer("the cat <eos>").input_ids == [2, 0, 1]
    assert cli.main(["convert", "transfo_xl", str(tmp_path / "ours"), str(tmp_path / "back"), "--to-original"]) == 0
    back = torch.load(tmp_path / "back" / "model.pt", weights_only=True)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())
    assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").split() == ["<unk>", "<eos>", "the"]
