"""Any encoder starts from word vectors: which piece gets which, tied layers, widths, files."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
)

from hf_ptm_ext import init_input_embeddings
from hf_ptm_ext.data.word_vectors import Subwords, WordVectors
from hf_ptm_ext.input_embeddings import ProjectedEmbedding, fold_input_embeddings

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "good", "film", "##s", "##ing", "Paris", "北", "京", "rare"]
TOKENIZER = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(PIECES)}, do_lower_case=False)
WORDS = ["good", "films", "film", "北", "paris", "goods"]
TABLE = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
VECTORS = WordVectors(WORDS, TABLE)
SIZES = {"vocab_size": 13, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def masked_lm(hidden_size=8, **options):
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(hidden_size=hidden_size, **SIZES, **options))


def rows_of(model):
    return model.get_input_embeddings().weight.detach().numpy()


def test_words_get_their_vectors_and_the_rest_stays():
    model = masked_lm()
    before = rows_of(model).copy()
    report = init_input_embeddings(model, TOKENIZER, VECTORS, scale="none")
    after = rows_of(model)
    np.testing.assert_array_equal(after[[5, 6, 10]], TABLE[[0, 2, 3]])
    others = [0, 1, 2, 3, 4, 7, 8, 9, 11, 12]
    np.testing.assert_array_equal(after[others], before[others])
    assert (report.exact, report.lowered, report.composed, report.missing, report.special) == (3, 0, 0, 5, 5)
    assert report.share == 3 / 8
    assert "3 of 8 pieces (37.5 %)" in str(report)


def test_lower_case_parts_and_the_rest():
    model = masked_lm()
    report = init_input_embeddings(
        model, TOKENIZER, VECTORS, pieces="compose", case="lower", oov="mean", scale="none", freeze=True
    )
    after = rows_of(model)
    np.testing.assert_array_equal(after[9], TABLE[4])  # Paris
    weights = np.array([1 / 2, 1 / 6])  # films and goods, by rank
    np.testing.assert_allclose(after[7], weights @ TABLE[[1, 5]] / weights.sum(), rtol=1e-6)
    assert (report.exact, report.lowered, report.composed, report.missing) == (3, 1, 1, 3)
    np.testing.assert_allclose(after[[8, 11, 12]], np.tile(after[[5, 6, 7, 9, 10]].mean(axis=0), (3, 1)), rtol=1e-5)
    assert not model.get_input_embeddings().weight.requires_grad


def test_lengths_become_those_of_the_rows_that_are_replaced():
    model = masked_lm()
    before = rows_of(model)[[5, 6, 10]].copy()
    report = init_input_embeddings(model, TOKENIZER, VECTORS)
    after = rows_of(model)[[5, 6, 10]]
    assert np.linalg.norm(after, axis=1).mean() == pytest.approx(np.linalg.norm(before, axis=1).mean(), rel=1e-5)
    np.testing.assert_allclose(after, TABLE[[0, 2, 3]] * report.scale, rtol=1e-5)


def test_a_tied_output_layer_stays_tied_and_is_saved_so(tmp_path):
    model = masked_lm()
    init_input_embeddings(model, TOKENIZER, VECTORS)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    again = BertForMaskedLM.from_pretrained(tmp_path)
    np.testing.assert_array_equal(rows_of(again), rows_of(model))
    assert again.get_output_embeddings().weight is again.get_input_embeddings().weight


@pytest.mark.parametrize("width", [3, 8, 12])
def test_other_widths_by_principal_components(width):
    model = masked_lm(hidden_size=width * 2, tie_word_embeddings=False)
    init_input_embeddings(model, TOKENIZER, VECTORS, project="pca", scale="none")
    after, used = rows_of(model)[[5, 6, 10]], TABLE[[0, 2, 3]]
    centred = used - used.mean(axis=0)
    if width * 2 != 8:  # distances are kept: two components hold three points
        np.testing.assert_allclose(after @ after.T, centred @ centred.T, atol=1e-4)


def test_a_trained_projection_is_folded_before_it_is_saved(tmp_path):
    model = BertModel(BertConfig(hidden_size=12, **SIZES))
    init_input_embeddings(model, TOKENIZER, VECTORS, project="linear", scale="none", freeze=True)
    embedding = model.get_input_embeddings()
    assert isinstance(embedding, ProjectedEmbedding)
    np.testing.assert_array_equal(embedding.weight[[5, 6, 10]].numpy(), TABLE[[0, 2, 3]])
    ids = torch.tensor([[2, 5, 6, 3]])
    model.eval()(ids).last_hidden_state.sum().backward()
    assert embedding.projection.weight.grad is not None
    assert embedding.weight.grad is None
    expected = model(ids).last_hidden_state
    with pytest.raises(ValueError, match="has projected embeddings"):
        init_input_embeddings(model, TOKENIZER, VECTORS)
    fold_input_embeddings(model)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(BertModel.from_pretrained(tmp_path).eval()(ids).last_hidden_state, expected)


def test_fasttexts_ngrams_make_parts_of_words():
    table = np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)
    subwords = Subwords(table, 2, 3, 20)
    vectors = WordVectors(["good"], TABLE[:1], subwords=subwords)
    model = masked_lm()
    report = init_input_embeddings(model, TOKENIZER, vectors, pieces="compose", scale="none")
    assert report.missing == 1  # "##s" has no run of two characters
    assert subwords.ngrams("ing", begins=False, ends=False) == ["in", "ing", "ng"]
    rows = subwords.rows("ing", begins=False, ends=False)
    np.testing.assert_allclose(rows_of(model)[8], table[rows].mean(axis=0), rtol=1e-5)
    assert subwords.ngrams("rare", ends=False)[:2] == ["<r", "<ra"]
    np.testing.assert_allclose(rows_of(model)[12], table[subwords.rows("rare", ends=False)].mean(axis=0), rtol=1e-5)


def byte_level():
    pieces = ["<s>", "<unk>", "Ġ", "g", "o", "d", "Ġgood", "s"]
    inner = Tokenizer(
        models.BPE(
            vocab={piece: number for number, piece in enumerate([*pieces, "Ġg", "Ġgo", "Ġgoo"])},
            merges=[("Ġ", "g"), ("Ġg", "o"), ("Ġgo", "o"), ("Ġgoo", "d")],
        )
    )
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>"), 11


def test_byte_level_pieces_are_words_behind_their_mark():
    tokenizer, size = byte_level()
    model = AlbertForMaskedLM(AlbertConfig(**{**SIZES, "vocab_size": size}, hidden_size=8, embedding_size=8))
    report = init_input_embeddings(model, tokenizer, VECTORS, pieces="compose", scale="none")
    np.testing.assert_array_equal(rows_of(model)[6], TABLE[0])
    expected = (TABLE[1] / 2 + TABLE[4] / 5 + TABLE[5] / 6) / (1 / 2 + 1 / 5 + 1 / 6)  # films, paris, goods
    np.testing.assert_allclose(rows_of(model)[7], expected, rtol=1e-5)
    assert report.exact == 1
    assert report.composed >= 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pieces": "some"}, "`pieces` must be one of exact, compose, got 'some'"),
        ({"project": "linear"}, "cannot go with the tied output layer"),
    ],
)
def test_what_cannot_be_is_told(options, told):
    with pytest.raises(ValueError, match=told):
        init_input_embeddings(masked_lm(), TOKENIZER, VECTORS, **options)


def test_vectors_of_another_width_or_language_are_told():
    with pytest.raises(ValueError, match="have 8 numbers and the model's embeddings 12: set `project`"):
        init_input_embeddings(masked_lm(hidden_size=12), TOKENIZER, VECTORS)
    with pytest.raises(ValueError, match="for none of the 8 pieces"):
        init_input_embeddings(masked_lm(), TOKENIZER, WordVectors(["был"], TABLE[:1]))
    with pytest.raises(ValueError, match="`vectors` must be finite numbers, got nan"):
        init_input_embeddings(masked_lm(), TOKENIZER, WordVectors(VECTORS.words, VECTORS.table * float("nan")))
    with pytest.raises(ValueError, match="`max_words` must be at least 1, got 0"):
        WordVectors(["a"], [[1.0]], max_words=0)
