"""KT-NET reproduces the reference's layers, learns, and is saved with the encoder inside."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForQuestionAnswering, BertConfig, BertModel, BertTokenizerFast

from hf_ptm_ext import (
    DataCollatorForConcepts,
    EntityTable,
    KtNetConfig,
    KtNetForQuestionAnswering,
    KtNetModel,
)
from hf_ptm_ext.conversion.ktnet import convert_layers, revert_layers
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
TOLERANCE = 2e-5  # the golden's own
TINY = {"model_type": "bert", "vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1}
TINY |= {"num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32}


def close(got, expected):
    assert_agrees(got, expected, TOLERANCE)


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "ktnet-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "ktnet-a.safetensors")
    state = {name.removeprefix("param."): value for name, value in tensors.items() if name.startswith("param.")}
    bases = {name: [one["rows"], one["dim"]] for name, one in facts["config"]["kbs"].items()}
    model = KtNetForQuestionAnswering(KtNetConfig(encoder_config=TINY, knowledge_bases=bases)).eval()
    ours = convert_layers(state, model.config)
    assert not model.load_state_dict(ours, strict=False).unexpected_keys
    for name in bases:
        model.set_concept_table(name, tensors[f"input.{name}_table"])
    return facts, tensors, state, model


@pytest.mark.golden
@torch.no_grad()
def test_the_golden(golden):
    facts, tensors, _, model = golden
    states, mask = tensors["input.bert_output"], tensors["input.mask"][..., 0]
    concepts = {name: tensors[f"input.{name}_ids"] for name in facts["config"]["kbs"]}
    for name, ids in concepts.items():
        close(model.ktnet.memories[name](states, ids), tensors[f"out.{name}_memory"])
    inputs = {"encoder_hidden_states": states, "attention_mask": mask, "concept_ids": concepts}
    close(model.ktnet(**inputs).last_hidden_state, tensors["out.self_matching"])
    start, end = tensors["input.positions"].unbind(1)
    found = model(**inputs, start_positions=start, end_positions=end)
    close(found.start_logits, tensors["out.start_logits"])
    close(found.end_logits, tensors["out.end_logits"])
    close(found.loss, torch.tensor(facts["scalars"]["loss"]))
    wide = torch.nn.functional.pad(concepts["nell"], (0, 1))
    stacked = model(**{**inputs, "concept_ids": torch.stack([concepts["wn"], wide], dim=2)})
    close(stacked.start_logits, tensors["out.start_logits"])


def test_the_golden_goes_back_to_its_own_names(golden):
    _, _, state, model = golden
    back = revert_layers(model.state_dict(), model.config)
    assert state.keys() <= back.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)
    with pytest.raises(ValueError, match="lack"):
        convert_layers({name: one for name, one in state.items() if "sentinel" not in name}, model.config)


def test_a_single_knowledge_base_has_names_without_it():
    config = KtNetConfig(encoder_config=TINY, knowledge_bases={"wn": [9, 4]})
    model = KtNetForQuestionAnswering(config).eval()
    theirs = revert_layers(model.state_dict(), config)
    assert "memory_layer_projection.w_0" in theirs
    again = KtNetForQuestionAnswering(config).eval()
    assert not again.load_state_dict(convert_layers(theirs, config), strict=False).unexpected_keys
    again.ktnet.encoder.load_state_dict(model.ktnet.encoder.state_dict())
    again.set_concept_table("wn", model.ktnet.memories["wn"].concept_embeddings.weight.detach())
    ids, concepts = torch.randint(5, 60, (2, 6)), torch.randint(0, 9, (2, 6, 1))
    with torch.no_grad():
        close(again(ids, concept_ids=concepts).start_logits, model(ids, concept_ids=concepts).start_logits)


def test_it_is_saved_with_the_encoder_inside(tmp_path):
    torch.manual_seed(0)
    encoder = BertModel(BertConfig(**{name: value for name, value in TINY.items() if name != "model_type"}))
    model = KtNetForQuestionAnswering.from_encoder(encoder, knowledge_bases={"wn": [9, 4]})
    assert (model.ktnet.memories["wn"].sentinel == 0).all()
    table = EntityTable.from_arrays(torch.randn(8, 4).numpy(), [str(number) for number in range(8)])
    model.set_concept_table("wn", table)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForQuestionAnswering.from_pretrained(tmp_path)
    assert not loaded.ktnet.memories["wn"].concept_embeddings.weight.requires_grad
    ids = torch.randint(5, 60, (2, 7))
    with torch.no_grad():
        close(loaded(ids).end_logits, model.eval()(ids).end_logits)
    assert KtNetModel.from_pretrained(tmp_path).memories["wn"].concept_embeddings.weight.shape == (9, 4)


def test_what_does_not_fit_is_refused():
    model = KtNetForQuestionAnswering(KtNetConfig(encoder_config=TINY, knowledge_bases={"wn": [9, 4]}))
    ids = torch.randint(5, 60, (2, 6))
    with pytest.raises(ValueError, match="must be 0 to 8, rows of its table, got 9"):
        model(ids, concept_ids=torch.full((2, 6, 1), 9))
    with pytest.raises(ValueError, match=r"`concept_ids` must be \(batch, seq_len, 1, concepts\)"):
        model(ids, concept_ids=torch.zeros(2, 5, 1, dtype=torch.long))
    with pytest.raises(ValueError, match="`name` must be one of the knowledge bases"):
        model.set_concept_table("nell", torch.zeros(9, 4))
    for sizes in ([9], 9):
        with pytest.raises(ValueError, match=r"must map names .* to \[rows, width\]"):
            KtNetConfig(encoder_config=TINY, knowledge_bases={"wn": sizes})


def test_the_collator_gives_every_piece_its_concepts():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "where", "is", "par", "##is", "it"]
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
    collate = DataCollatorForConcepts(tokenizer, {"wn": {"Paris": [3, 4]}, "nell": {"is it": [2], "paris": [7]}})
    texts = [("where is it", "Paris is it"), ("where", "it")]
    batch = collate([dict(tokenizer(*pair)) for pair in texts])
    assert batch["concept_ids"].shape == (*batch["input_ids"].shape, 2, 2)
    row = batch["concept_ids"][0]
    assert tokenizer.convert_ids_to_tokens(batch["input_ids"][0])[5:7] == ["par", "##is"]
    assert row[5:7, 0].tolist() == [[3, 4], [3, 4]]
    assert row[5:7, 1].tolist() == [[7, 0], [7, 0]]
    assert row[2:4, 1, 0].tolist() == [2, 2]
    assert not batch["concept_ids"][1].any()


@pytest.mark.slow
def test_it_learns_from_concepts_what_the_words_do_not_tell():
    """The answer is the word that has the concept which the question names; concepts are drawn anew in each row."""
    torch.manual_seed(0)
    config = KtNetConfig(encoder_config={**TINY, "hidden_dropout_prob": 0.0}, knowledge_bases={"wn": [6, 8]})
    model = KtNetForQuestionAnswering(config)
    model.set_concept_table("wn", torch.cat([torch.zeros(1, 8), 2 * torch.eye(8)[:5]]))

    def batch(number):
        asked = torch.randint(1, 3, (number,))
        ids = torch.cat([asked[:, None] + 4, torch.randint(10, 60, (number, 6))], 1)
        place = torch.randint(1, 7, (number,))
        concepts = torch.zeros(number, 7, 1, dtype=torch.long)
        concepts[:, 1:, 0] = 3 - asked[:, None]
        concepts[torch.arange(number), place, 0] = asked
        return {"input_ids": ids, "concept_ids": concepts, "start_positions": place, "end_positions": place}

    optimizer = torch.optim.AdamW((value for value in model.parameters() if value.requires_grad), lr=3e-3)
    for _ in range(250):
        model(**batch(64)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    held_out = batch(300)
    with torch.no_grad():
        found = model.eval()(**held_out).loss.item()
        without = model(**{**held_out, "concept_ids": None}).loss.item()
    assert found < 0.6
    assert without > 1.5


@torch.no_grad()
def test_knowledge_bases_keep_their_order_in_a_file_and_scores_half_precision(tmp_path):
    torch.manual_seed(0)
    config = KtNetConfig(encoder_config=TINY, knowledge_bases={"wn": [9, 6], "nell": [7, 5]})
    model = KtNetForQuestionAnswering(config).eval()
    inputs = {"input_ids": torch.randint(5, 60, (2, 4)), "concept_ids": torch.randint(0, 7, (2, 4, 2, 3))}
    inputs["attention_mask"] = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    expected = model(**inputs).start_logits
    model.save_pretrained(tmp_path)
    loaded = KtNetForQuestionAnswering.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(**inputs).start_logits, expected)
    other = KtNetConfig.from_pretrained(tmp_path, knowledge_bases={"b": [3, 2], "a": [3, 2]})
    assert other.to_dict()["knowledge_base_names"] == ["b", "a"]
    torch.testing.assert_close(model.half()(**inputs).start_logits.float(), expected, rtol=0.05, atol=0.05)
