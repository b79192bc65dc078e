"""E-BERT: the maps of its reference, entities among pieces, and the same as a plain checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, BertModel, BertTokenizerFast

from hf_ptm_ext import EBertEntities, EntityTable, WordVectors, fit_linear_map
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parent / "goldens"
FACTS = json.loads((GOLDENS / "ebert-map-a.json").read_text(encoding="utf-8"))
TENSORS = load_file(GOLDENS / "ebert-map-a.safetensors")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "/", "jean", "mara", "##is", "was", "born", "in", "paris"]
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
TEXT = "jean marais was born in paris"
MENTIONS = [(0, 11, "Jean Marais"), (24, 29, "Paris")]


@pytest.mark.golden
@pytest.mark.parametrize("name", ["linear", "linear_weighted", "ortho"])
def test_maps_are_the_references(name):
    source, target, weights = (TENSORS[key].numpy() for key in ("source", "target", "weights"))
    before = source.copy()
    found = fit_linear_map(
        *(source, target, weights if name == "linear_weighted" else None),
        method="procrustes" if name == "ortho" else "lstsq",
    )
    assert_agrees(found, TENSORS[f"{name}.W"], FACTS["tolerance"]["atol"])
    assert (source == before).all()
    if f"{name}.mapped" in TENSORS:
        entities = TENSORS["entities"].numpy()
        entities = np.pad(entities, ((0, 0), (0, len(found) - entities.shape[1])))
        assert_agrees(entities @ found, TENSORS[f"{name}.mapped"], FACTS["tolerance"]["atol"])


def made(cls=BertModel, vocab_size=13):
    torch.manual_seed(0)
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(WORDS)})
    model = cls(BertConfig(vocab_size=vocab_size, **SIZES)).eval()
    vectors = np.random.default_rng(0).normal(size=(7, 4))
    names = ["jean", "was", "born", "in", "nowhere", "ENTITY/Jean_Marais", "ENTITY/Paris"]
    return model, tokenizer, WordVectors(names, vectors)


def test_entities_stand_where_the_form_says_and_unknown_ones_do_not():
    model, tokenizer, vectors = made()
    entities = EBertEntities.fit(model, tokenizer, vectors)
    assert entities.names == ["Jean_Marais", "Paris"]
    shared = [6, 9, 10, 11]
    rows = model.get_input_embeddings().weight.detach()[shared].numpy()
    expected = vectors.table[5:] @ fit_linear_map(vectors.table[:4], rows)
    assert_agrees(entities.vectors, torch.from_numpy(expected), 1e-5)
    concat = entities.encode([TEXT, "born"], [MENTIONS, []])
    assert concat["input_ids"].tolist() == [[2, 13, 5, 6, 7, 8, 9, 10, 11, 14, 5, 12, 3], [2, 10, 3, *[0] * 10]]
    assert concat["attention_mask"].sum(1).tolist() == [13, 3]
    replaced = entities.encode([TEXT], [MENTIONS], form="replace")
    assert replaced["input_ids"].tolist() == [[2, 13, 9, 10, 11, 14, 3]]
    plain = entities.encode([TEXT], [[(0, 11, "Nobody")]])
    assert plain["input_ids"].tolist() == tokenizer([TEXT])["input_ids"]
    assert entities.encode([TEXT], [MENTIONS], max_length=5)["input_ids"].tolist() == [[2, 13, 5, 6, 3]]
    given = entities.inputs(model, plain)
    with torch.no_grad():
        ours, theirs = model(**given)[0], model(**tokenizer([TEXT], return_tensors="pt"))[0]
    assert_agrees(ours, theirs, 1e-6)


@pytest.mark.parametrize("vocab_size", [len(WORDS), len(WORDS) + 1, len(WORDS) + 8])
def test_added_pieces_are_a_plain_checkpoint_that_reads_the_same(tmp_path, vocab_size):
    model, tokenizer, vectors = made(BertForMaskedLM, vocab_size)
    entities = EBertEntities.fit(model, tokenizer, vectors)
    batch = entities.encode([TEXT], [MENTIONS])
    with torch.no_grad():
        before = model.bert(**entities.inputs(model, batch))[0]
    entities.add_to(model)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, its = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    text = "ENTITY/Jean_Marais / jean marais was born in ENTITY/Paris / paris"
    assert its([text])["input_ids"] == batch["input_ids"].tolist()
    with torch.no_grad():
        assert_agrees(loaded(**its([text], return_tensors="pt"))[0], before, 1e-6)
    with pytest.raises(ValueError, match="`tokenizer` must have none of the entities, got 15 tokens"):
        entities.add_to(model)


def test_a_table_is_found_by_ids_and_titles():
    model, tokenizer, vectors = made()
    table = EntityTable.from_arrays(vectors.table[5:], ["Q1", "Q90"], [("Jean Marais", "Q1"), ("Paris", "Q90")])
    words = WordVectors(vectors.words[:5], vectors.table[:5])
    ours = EBertEntities.fit(model, tokenizer, words, table)
    assert_agrees(ours.vectors, EBertEntities.fit(model, tokenizer, vectors).vectors, 1e-6)
    assert (ours.id_of("Q90"), ours.id_of("Paris"), ours.id_of("London")) == (14, 14, None)


def test_mistakes_are_one_line():
    model, tokenizer, vectors = made()
    entities = EBertEntities.fit(model, tokenizer, vectors)
    with pytest.raises(ValueError, match="`form` must be one of concat, replace, got 'ensemble'"):
        entities.encode([TEXT], [MENTIONS], form="ensemble")
    with pytest.raises(ValueError, match=r"`mentions` must have pieces and not overlap, got \(5, 11, 'Paris'\)"):
        entities.encode([TEXT], [[MENTIONS[0], (5, 11, "Paris")]])
    with pytest.raises(ValueError, match="`words` must share words with the tokenizer, got none of its 7"):
        EBertEntities.fit(model, tokenizer, WordVectors(["abc"], [[1.0]]))
    with pytest.raises(ValueError, match="`entities` must be at least one vector of 4 numbers"):
        EBertEntities.fit(model, tokenizer, WordVectors(vectors.words[:5], vectors.table[:5]))
    with pytest.raises(ValueError, match="`source` must be no wider than the target, 2, for procrustes, got 4"):
        fit_linear_map(np.ones((3, 4)), np.ones((3, 2)), method="procrustes")
