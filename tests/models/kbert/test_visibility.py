"""Who sees whom: the rule against trees grown token by token, and what a token can reach in the model."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForMaskedLM, BertModel

from hf_ptm_ext.models.configuration_kbert import KBertConfig
from hf_ptm_ext.models.modeling_kbert import (
    KBertForMaskedLM,
    KBertForPreTraining,
    KBertForTokenClassification,
    KBertModel,
)
from hf_ptm_ext.models.visibility_kbert import SentenceTree, kbert_visible_matrix
from tests.conformance.attention import assert_gradients_equal
from tests.conformance.family import assert_same
from tests.models.kbert.trees import as_batch, trees, write_out

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 40,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# [CLS] and four words; the second has branches of two and one tokens, the fourth one of three.
TREE = [(1, []), (2, [2, 1]), (1, []), (1, [3]), (1, [])]
OTHER = [(1, []), (1, [1]), (2, [])]


def randomise(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def model_of(cls=KBertModel, attention="sdpa", **fields):
    torch.manual_seed(0)
    return randomise(cls._from_config(KBertConfig(**{**SIZES, **fields}), attn_implementation=attention))


def batch_of(*texts, width=16, left=False, seed=0):
    """Inputs of the model, and the matrix beside them."""
    batch = as_batch(texts, width, left)
    ids = torch.randint(5, 99, batch["word_index"].shape, generator=torch.Generator().manual_seed(seed))
    matrix = batch.pop("matrix")
    return {"input_ids": ids * batch["attention_mask"], **batch}, matrix


def without(batch, *names):
    return {name: value for name, value in batch.items() if name not in names}


def additive(matrix):
    """What an eager BERT takes; padding sees itself, so that no row is empty."""
    seen = matrix | torch.eye(matrix.shape[1], dtype=torch.bool)
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]


# ---- the rule ----


@settings(max_examples=1000, deadline=None)
@given(st.lists(trees, min_size=1, max_size=3), st.booleans(), st.integers(0, 2), st.booleans())
def test_the_rule_is_that_of_a_tree(drawn, restart, padding, left):
    texts = [write_out(tree, restart) for tree in drawn]
    batch = as_batch(texts, max(len(text.word_index) for text in texts) + padding, left)
    assert torch.equal(kbert_visible_matrix(batch["word_index"], batch["branch_id"]), batch["matrix"])
    text = SentenceTree(batch["word_index"].shape, batch["word_index"], batch["branch_id"])
    assert torch.equal(text.soft_positions(), batch["position_ids"])


@settings(max_examples=200, deadline=None)
@given(trees, st.integers(1, 12))
def test_the_rule_holds_for_texts_that_were_cut(tree, length):
    """In the middle of a branch, too."""
    batch = as_batch([write_out(tree, length=length)], width=14 + length)
    assert torch.equal(kbert_visible_matrix(batch["word_index"], batch["branch_id"]), batch["matrix"])
    text = SentenceTree(batch["word_index"].shape, batch["word_index"], batch["branch_id"])
    assert torch.equal(text.soft_positions(), batch["position_ids"])


# ---- the model ----


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("left", [False, True])
def test_states_are_those_of_a_bert_under_the_dense_matrix(attention, left):
    """Upstream's BERT with soft positions and the matrix as a finished mask, every layer, trunk and branches."""
    batch, matrix = batch_of(write_out(TREE), write_out(OTHER), left=left)
    ours = model_of(attention=attention)
    bert = BertModel._from_config(BertConfig(**SIZES), attn_implementation="eager").eval()
    bert.load_state_dict(ours.state_dict())
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = bert(
            batch["input_ids"],
            attention_mask=additive(matrix),
            position_ids=batch["position_ids"],
            output_hidden_states=True,
        ).hidden_states
        for given_inputs in (batch, without(batch, "attention_mask"), without(batch, "position_ids")):
            got = ours(**given_inputs, output_hidden_states=True).hidden_states
            for left_states, right_states in zip(got, expected, strict=True):
                assert torch.isfinite(left_states).all()
                assert_same(left_states[real], right_states[real], 1e-5)


@pytest.mark.slow
def test_flex_attention_is_sdpa():
    batch, _ = batch_of(write_out(TREE), write_out(OTHER))
    real, sizes = batch["attention_mask"].bool(), {"hidden_size": 64}  # flex wants heads of 16 on a CPU
    for fields in ({}, {"reference_padding": True}):
        torch._dynamo.reset()
        with torch.no_grad():
            expected = model_of(**sizes, **fields)(**batch).last_hidden_state
            got = model_of(attention="flex_attention", **sizes, **fields)(**batch).last_hidden_state
        assert_same(got[real], expected[real], 1e-5)
        assert_same(got, expected, 1e-2)  # the reference rounds the scores of padding
    torch._dynamo.reset()


def reached(model, batch, place):
    """Tokens of the first row whose states change with the token at a place."""
    changed = {**batch, "input_ids": batch["input_ids"].clone()}
    changed["input_ids"][0, place] = batch["input_ids"][0, place] % 90 + 7
    with torch.no_grad():
        first, second = (model(**each).last_hidden_state[0] for each in (batch, changed))
    return {number for number, row in enumerate((first - second).abs().amax(-1)) if row > 1e-6}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_in_one_layer_a_branch_reaches_itself_and_its_word(attention):
    text = write_out(TREE)
    batch, _ = batch_of(text)
    model = model_of(attention=attention, num_hidden_layers=1)
    for place, (word, branch) in enumerate(zip(text.word_index, text.branch_id, strict=True)):
        if branch:
            expected = {
                number
                for number, (other, its) in enumerate(zip(text.word_index, text.branch_id, strict=True))
                if other == word and its in (0, branch)
            }
            assert reached(model, batch, place) == expected
    whole = model_of(attention=attention, num_hidden_layers=1, use_visible_matrix=False)
    assert reached(whole, batch, 3) == set(range(16)), "without the matrix knowledge is text, and padding reads it"


def test_padding_is_reached_by_nothing_and_reaches_nothing():
    batch, _ = batch_of(write_out(TREE), write_out(OTHER))
    model = model_of()
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        changed = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, 17)
        got = model(**{**batch, "input_ids": changed}).last_hidden_state
        empty = {**batch, "attention_mask": batch["attention_mask"] * torch.tensor([[1], [0]])}
        disturbed = model(**empty).last_hidden_state
    real = batch["attention_mask"].bool()
    assert_same(got[real], expected[real], 0.0)
    assert torch.isfinite(disturbed).all()
    assert_same(disturbed[0], expected[0], 1e-6)


def test_whoever_says_that_a_token_is_padding_is_believed():
    """A collator that pads with 0 and a mask, one that pads with -1, and one that does both."""
    batch, _ = batch_of(write_out(TREE), write_out(OTHER))
    padding = batch["attention_mask"] == 0
    zeros = {name: batch[name].masked_fill(padding, 0) for name in ("word_index", "branch_id")}
    model = model_of()
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        for form in (without(batch, "attention_mask"), {**batch, **zeros}):
            assert_same(model(**form).last_hidden_state, expected, 1e-6)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_packed_texts_are_single_texts(attention):
    """Outputs, and every gradient of a loss over them."""
    texts = [write_out(TREE), write_out(OTHER)]
    batch, _ = batch_of(*texts)
    sizes = [len(text.word_index) for text in texts]
    rows = {name: torch.cat([batch[name][n, :size] for n, size in enumerate(sizes)]) for name in batch}
    ids = torch.cat([torch.full((size,), n + 1) for n, size in enumerate(sizes)])
    fill = {"word_index": -1, "branch_id": -1}
    packed = {
        name: torch.nn.functional.pad(row, (0, 3), value=fill.get(name, 0))[None]
        for name, row in {**rows, "sequence_ids": ids}.items()
    }
    del packed["attention_mask"]
    real = batch["attention_mask"].bool()
    for pooling in ("first", "mean", "max", "last"):
        model = model_of(attention=attention, pooling=pooling)
        for form in (packed, without(packed, "position_ids")):
            with torch.no_grad():
                expected, got = model(**batch), model(**form)
            assert_same(got.last_hidden_state[0, : sum(sizes)], expected.last_hidden_state[real], 1e-5)
            assert_same(got.pooler_output[0], expected.pooler_output, 1e-5)
    labels = torch.where(real, torch.arange(16) % 5, -100)
    tagger = model_of(KBertForTokenClassification, attention, num_labels=5)
    row = torch.cat([labels[n, :size] for n, size in enumerate(sizes)])
    packed["labels"] = torch.nn.functional.pad(row, (0, 3), value=-100)[None]
    assert_gradients_equal(tagger, tagger(**packed).loss, tagger(**batch, labels=labels).loss, 1e-5)


@pytest.mark.slow
def test_compiled_graphs_are_whole_with_knowledge():
    texts = [write_out(TREE), write_out(OTHER)]
    first, _ = batch_of(*texts)
    second, _ = batch_of(*texts[::-1], seed=1)
    for fields in ({}, {"reference_padding": True, "layer_norm_style": "uer"}):
        torch._dynamo.reset()
        model = model_of(KBertForPreTraining, **fields)
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
        for batch in (first, second):
            for form in (batch, without(batch, "position_ids")):
                with torch.no_grad():
                    expected = model(**form).prediction_logits
                    assert_same(compiled(**form).prediction_logits, expected, 1e-5)
    torch._dynamo.reset()


# ---- BERT ----


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", [False, True])
def test_without_knowledge_it_is_bert_bit_for_bit(attention, padded, tmp_path):
    """A saved BERT is loaded as it is, padding right, hidden states and pooled output of equal bits."""
    # Heads of 16, whose root is exact like that of BERT's 64: eager attention divides by it, upstream multiplies.
    bert = randomise(BertModel(BertConfig(**{**SIZES, "num_attention_heads": 2})))
    bert.save_pretrained(tmp_path)
    bert.set_attn_implementation(attention)
    ours, info = KBertModel.from_pretrained(tmp_path, output_loading_info=True, attn_implementation=attention)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch, _ = batch_of(write_out(TREE), write_out(OTHER))
    given_inputs = {"input_ids": batch["input_ids"]}
    if padded:
        given_inputs["attention_mask"] = batch["attention_mask"]
    with torch.no_grad():
        expected, got = (model(**given_inputs, output_hidden_states=True) for model in (bert, ours))
    real = batch["attention_mask"].bool() if padded else torch.ones_like(batch["input_ids"], dtype=torch.bool)
    for left, right in zip(got.hidden_states, expected.hidden_states, strict=True):
        assert torch.equal(left[real], right[real])
    assert torch.equal(got.pooler_output, expected.pooler_output)


def test_a_text_that_is_all_trunk_is_bert(tmp_path):
    bert = randomise(BertForMaskedLM(BertConfig(**SIZES)))
    bert.save_pretrained(tmp_path)
    ours = KBertForMaskedLM.from_pretrained(tmp_path)
    batch, _ = batch_of(write_out([(9, [])]), write_out([(2, []), (3, [])]))
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = bert(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        assert_same(ours(**batch).logits[real], expected[real], 1e-5)


# ---- poolings and switches ----


def test_poolings_take_the_real_tokens():
    text, short = write_out([(2, [1]), (1, [2])]), write_out(OTHER)
    batch, _ = batch_of(text, short)
    for pooling in ("first", "mean", "max", "last"):
        model = model_of(pooling=pooling)
        with torch.no_grad():
            outputs = model(**batch)
            states, size = outputs.last_hidden_state[0], len(text.word_index)
            expected = {
                "first": states[0],
                "mean": states[:size].mean(0),
                "max": states[:size].amax(0),
                "last": states[3],  # the last two tokens are a branch
            }[pooling]
            assert_same(outputs.pooler_output[0], model.pooler(expected), 1e-6)
            alone = model(**{name: value[:1, :size] for name, value in batch.items()})
        assert_same(outputs.pooler_output[:1], alone.pooler_output, 1e-5)


def test_reference_padding_is_pooled():
    batch, _ = batch_of(write_out(OTHER))
    for pooling, pool in (("mean", lambda x: x.mean(1)), ("max", lambda x: x.amax(1)), ("last", lambda x: x[:, -1])):
        model = model_of(pooling=pooling, reference_padding=True)
        with torch.no_grad():
            outputs = model(**batch)
            assert_same(outputs.pooler_output, model.pooler(pool(outputs.last_hidden_state)), 1e-6)


def test_hard_positions_are_those_of_the_row():
    batch, _ = batch_of(write_out(TREE), write_out(OTHER), left=True)
    model, hard = model_of(), model_of(use_soft_positions=False)
    start = batch["attention_mask"].argmax(1, keepdim=True)
    positions = (torch.arange(16)[None] - start).clamp(min=0)
    with torch.no_grad():
        expected = model(**{**batch, "position_ids": positions}).last_hidden_state
        for form in (batch, without(batch, "position_ids")):
            assert_same(hard(**form).last_hidden_state, expected, 1e-6)
        # Without knowledge there is nothing hard about positions.
        plain = {"input_ids": batch["input_ids"], "position_ids": positions}
        assert_same(hard(**plain).last_hidden_state, model(**plain).last_hidden_state, 0.0)


def test_the_first_type_of_a_table_with_a_row_for_padding():
    """Checkpoints with UER's three rows: text is 1 and 2 there, padding 0."""
    model = model_of(type_vocab_size=3, first_token_type_id=1)
    batch, _ = batch_of(write_out(TREE), write_out(OTHER))
    with torch.no_grad():
        expected = model(**batch, token_type_ids=batch["attention_mask"]).last_hidden_state
        assert_same(model(**batch).last_hidden_state, expected, 0.0)
        plain = batch["input_ids"][:, :5]
        typed = model(plain, token_type_ids=torch.ones_like(plain)).last_hidden_state
        assert_same(model(plain).last_hidden_state, typed, 0.0)


def test_a_long_row_of_branches_needs_no_more_positions_than_its_tree():
    text = write_out([(2, [3] * 20)])
    batch, _ = batch_of(text, width=70)
    model = model_of(max_position_embeddings=8)
    with torch.no_grad():
        assert torch.isfinite(model(**without(batch, "position_ids")).last_hidden_state).all()
    with pytest.raises(ValueError, match="70 tokens and `max_position_embeddings` is 8"):
        model_of(max_position_embeddings=8, use_soft_positions=False)(**batch)


# ---- what does not fit ----


def test_what_does_not_fit_is_named():
    batch, matrix = batch_of(write_out(TREE))
    model = model_of()
    with pytest.raises(ValueError, match="`word_index` must be given with `branch_id`"):
        model(**without(batch, "word_index"))
    with pytest.raises(ValueError, match="`branch_id` must be given with `word_index`"):
        model(**without(batch, "branch_id"))
    with pytest.raises(ValueError, match=r"`branch_id` must have a number for every token, the shape \(1, 16\)"):
        model(**{**batch, "branch_id": batch["branch_id"][:, :5]})
    with pytest.raises(ValueError, match="`word_index` must be 0 or more, or -1 on padding, got -100"):
        model(**{**batch, "word_index": batch["word_index"].masked_fill(batch["word_index"] < 0, -100)})
    with pytest.raises(ValueError, match="a finished mask leaves no room"):
        model(**{**batch, "attention_mask": matrix[:, None]})
    with pytest.raises(ValueError, match=r"`token_type_ids` must be in \[0, `type_vocab_size` = 2\), got 2"):
        model(**batch, token_type_ids=torch.full_like(batch["input_ids"], 2))
    with pytest.raises(TypeError, match=r"`branch_ids` \(did you mean `branch_id`\?\)"):
        model(**without(batch, "branch_id"), branch_ids=batch["branch_id"])
    for name, value in (("pooling", "cls"), ("layer_norm_style", "unbiased"), ("first_token_type_id", 2)):
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            KBertConfig(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("pooling", "cls"), ("layer_norm_style", "UER")])
def test_a_choice_that_loading_sets_is_checked_too(name, value, tmp_path):
    model_of().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"`{name}` must be one of .* got '{value}'"):
        KBertModel.from_pretrained(tmp_path, **{name: value})


def test_labels_of_another_tokenizer_are_refused():
    batch, _ = batch_of(write_out(TREE))
    model = KBertForTokenClassification(model_of().config)
    with pytest.raises(ValueError, match=r"`labels` must have a class for each token.*\(1, 16\), got \(1, 9\)"):
        model(**batch, labels=torch.zeros(1, 9, dtype=torch.long))


# ---- tagging ----


def test_labels_on_knowledge_that_are_ignored_have_no_part_in_the_loss():
    text = write_out(TREE)
    batch, _ = batch_of(text)
    branches = batch["branch_id"] > 0
    labels = torch.where(batch["branch_id"] == 0, torch.arange(16) % 5, -100)
    model = model_of(KBertForTokenClassification, num_labels=5)
    with torch.no_grad():
        outputs = model(**batch, labels=labels)
    trunk = outputs.logits[batch["branch_id"] == 0]
    expected = torch.nn.functional.cross_entropy(trunk, labels[batch["branch_id"] == 0])
    assert_same(outputs.loss, expected, 1e-6)
    assert branches.any()
    assert outputs.logits.shape == (1, 16, 5)
