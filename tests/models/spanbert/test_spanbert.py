"""What is SpanBERT's own: equality with BERT, the span boundary objective, the two-segment variant, filling spans."""

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    BertTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
)
from transformers.utils.generic import find_labels

from hf_ptm_ext.models.configuration_spanbert import SpanBertConfig
from hf_ptm_ext.models.inputs_core import first_token_states, position_ids_of
from hf_ptm_ext.models.modeling_spanbert import (
    SpanBertForMaskedLM,
    SpanBertForPreTraining,
    SpanBertForSequenceClassification,
    SpanBertForTokenClassification,
    SpanBertModel,
)
from tests.conformance.attention import assert_gradients_equal
from tests.conformance.family import assert_same
from tests.conformance.trainer import arguments
from tests.tolerance import assert_agrees

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
MASK = torch.tensor([[1] * 9, [1] * 6 + [0] * 3, [1] * 4 + [0] * 5])
IDS = torch.randint(5, 99, (3, 9), generator=torch.Generator().manual_seed(0)) * MASK
TYPES = torch.tensor([[0] * 4 + [1] * 5] * 3) * MASK
INPUTS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}
LABELS = torch.full((3, 9), -100)
LABELS[0, 2:4], LABELS[0, 6], LABELS[1, 3] = torch.tensor([11, 12]), 13, 14
# Row 0: spans of two and one tokens; row 1: one token; row 2: no pair at all.
BOUNDARIES = torch.tensor([[[1, 4], [5, 7]], [[2, 4], [0, 0]], [[0, 0], [0, 0]]])
SPAN_LABELS = torch.full((3, 2, 4), -100)
SPAN_LABELS[0, 0, :2], SPAN_LABELS[0, 1, 0], SPAN_LABELS[1, 0, 0] = torch.tensor([11, 12]), 13, 14
TARGETS = {"labels": LABELS, "span_boundaries": BOUNDARIES, "span_labels": SPAN_LABELS}


def config(**overrides) -> SpanBertConfig:
    return SpanBertConfig(**{**SIZES, "max_pair_targets": 4, "pair_positional_embedding_size": 10, **overrides})


def randomise(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def pretraining_model(**overrides) -> SpanBertForPreTraining:
    torch.manual_seed(0)
    return randomise(SpanBertForPreTraining(config(**overrides)))


# ---- BERT ----


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_encoder_is_berts(attention, tmp_path):
    bert = randomise(BertModel(BertConfig(**SIZES)))
    bert.save_pretrained(tmp_path)
    ours, info = SpanBertModel.from_pretrained(tmp_path, output_loading_info=True, attn_implementation=attention)
    bert.set_attn_implementation(attention)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert ours.config.model_type == "spanbert"
    with torch.no_grad():
        expected, got = bert(**INPUTS, output_hidden_states=True), ours(**INPUTS, output_hidden_states=True)
    for left, right in zip(got.hidden_states, expected.hidden_states, strict=True):
        assert_same(left[MASK.bool()], right[MASK.bool()], 1e-6)
    assert_same(got.pooler_output, expected.pooler_output, 1e-6)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_masked_language_model_is_berts(attention):
    bert, ours = randomise(BertForMaskedLM(BertConfig(**SIZES))), SpanBertForMaskedLM(config())
    assert set(ours.state_dict()) == set(bert.state_dict())
    ours.load_state_dict(bert.state_dict(), strict=True)
    for model in (bert, ours):
        model.set_attn_implementation(attention)
    with torch.no_grad():
        assert_same(ours.eval()(**INPUTS).logits[MASK.bool()], bert(**INPUTS).logits[MASK.bool()], 1e-6)
    first, second = bert.train()(**INPUTS, labels=LABELS), ours.train()(**INPUTS, labels=LABELS)
    assert_agrees(second.loss, first.loss, 1e-6)
    first.loss.backward()
    second.loss.backward()
    theirs = dict(bert.named_parameters())
    for name, parameter in ours.named_parameters():
        assert_same(parameter.grad, theirs[name].grad, 1e-6, name)


def test_a_bert_config_is_read_as_an_encoder(tmp_path):
    BertConfig(**SIZES, position_embedding_type="absolute").save_pretrained(tmp_path)
    read = SpanBertConfig.from_pretrained(tmp_path)
    assert (read.hidden_size, read.model_type) == (32, "spanbert")
    with pytest.raises(ValueError, match="is_decoder"):
        config(is_decoder=True)
    with pytest.raises(ValueError, match="position_embedding_type"):
        config(position_embedding_type="relative_key")


# ---- heads that a file lacks ----


def test_new_heads_are_named_aloud(tmp_path, warnings_of_transformers):
    randomise(BertModel(BertConfig(**SIZES))).save_pretrained(tmp_path / "encoder")
    randomise(BertForMaskedLM(BertConfig(**SIZES))).save_pretrained(tmp_path / "masked")
    for source, cls, fresh in (
        ("encoder", SpanBertForMaskedLM, {"cls.predictions"}),
        ("encoder", SpanBertForPreTraining, {"cls.predictions", "cls.pair_target_predictions"}),
        ("masked", SpanBertForPreTraining, {"cls.pair_target_predictions"}),
        ("masked", SpanBertForMaskedLM, set()),
    ):
        warnings_of_transformers.clear()
        model, info = cls.from_pretrained(tmp_path / source, output_loading_info=True)
        said = [record.getMessage() for record in warnings_of_transformers.records]
        named = {head for head in cls._prediction_heads if any(f"`{head}.*`" in text for text in said)}
        assert named == fresh
        assert all("noise" in text for text in said if ".*`" in text)
        assert not [text for text in said if "corrupted" in text], "a lacking head is no damage"
        heads = {name for name in info["missing_keys"] if not name.startswith("bert.")}
        assert {".".join(name.split(".")[:2]) for name in heads} == fresh
        assert set(model._fresh_heads) == fresh


# ---- the objective ----


def test_the_loss_is_the_formula():
    model = pretraining_model(sbo_loss_weight=0.5)
    output = model(**INPUTS, **TARGETS)
    states = model.bert(**INPUTS).last_hidden_state
    head, table = model.cls.pair_target_predictions, model.bert.embeddings.word_embeddings.weight
    total = 0.0
    for row, pair, offset in (SPAN_LABELS != -100).nonzero().tolist():
        left, right = BOUNDARIES[row, pair]
        value = torch.cat([states[row, left], states[row, right], head.position_embeddings.weight[offset]])
        mlp = head.mlp_layer_norm
        value = mlp.layer_norm1(torch.nn.functional.gelu(mlp.linear1(value)))
        value = mlp.layer_norm2(torch.nn.functional.gelu(mlp.linear2(value)))
        logits = value @ table.T + head.bias
        assert_same(output.boundary_logits[row, pair, offset], logits, 1e-5)
        total = total + torch.nn.functional.cross_entropy(logits, SPAN_LABELS[row, pair, offset])
    torch.testing.assert_close(output.sbo_loss, total / (4 + 1))
    mlm = torch.nn.functional.cross_entropy(output.prediction_logits.flatten(0, 1), LABELS.flatten())
    torch.testing.assert_close(output.mlm_loss, mlm)
    torch.testing.assert_close(output.loss, mlm + 0.5 * output.sbo_loss)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_boundary_loss_where_labels_are_equals_the_full_one(compiled):
    model = pretraining_model().train()
    positions = (LABELS == -100).to(torch.uint8).sort(dim=1, stable=True).indices[:, :4]
    torch._dynamo.reset()
    lean = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    full = model(**INPUTS, **TARGETS, return_logits=True)
    for extra in ({}, {"label_positions": positions}):
        output = lean(**INPUTS, **TARGETS, **extra)
        assert output.boundary_logits is None
        torch.testing.assert_close(output.sbo_loss, full.sbo_loss, atol=1e-6, rtol=1e-6)
        assert_gradients_equal(model, output.loss, full.loss, 1e-6)
    torch._dynamo.reset()


def test_weight_zero_leaves_the_boundary_head_alone():
    model = pretraining_model(sbo_loss_weight=0.0).train()
    output = model(**INPUTS, **TARGETS)
    torch.testing.assert_close(output.loss, output.mlm_loss)
    assert output.sbo_loss > 0
    output.loss.backward()
    own = {name: value for name, value in model.named_parameters() if "pair_target" in name}
    assert own
    assert all(value.grad is None or not value.grad.any() for value in own.values())
    without = pretraining_model(sbo_loss_weight=0.0).train()
    without(**INPUTS, labels=LABELS).loss.backward()
    assert_same(
        model.bert.embeddings.word_embeddings.weight.grad, without.bert.embeddings.word_embeddings.weight.grad, 1e-7
    )


@pytest.mark.parametrize("layer", [0, 1, -3, 2, -1])
def test_the_boundary_head_can_sit_on_an_inner_layer(layer):
    model = pretraining_model(pair_target_layer=layer)
    output = model(**INPUTS, **TARGETS)
    states = model.bert(**INPUTS, output_hidden_states=True).hidden_states[1:][layer]
    assert_same(output.boundary_logits, model.cls.pair_target_predictions.all_logits(states, BOUNDARIES), 1e-6)
    assert "hidden_states" not in output
    assert len(model(**INPUTS, **TARGETS, output_hidden_states=True).hidden_states) == 4
    assert [state is None for state in model(**INPUTS, **TARGETS, output_hidden_states=[1]).hidden_states] == [
        True,
        False,
        True,
        True,
    ]


@pytest.mark.slow
def test_an_inner_layer_compiles_into_one_graph():
    torch._dynamo.reset()
    model = pretraining_model(pair_target_layer=0).train()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(**INPUTS, **TARGETS).loss, model(**INPUTS, **TARGETS).loss)
    torch._dynamo.reset()


def test_wrong_targets_are_refused():
    model = pretraining_model()
    with pytest.raises(ValueError, match="`span_boundaries`"):
        model(**INPUTS, span_labels=SPAN_LABELS)
    with pytest.raises(ValueError, match="max_pair_targets"):
        model(**INPUTS, span_boundaries=BOUNDARIES, span_labels=SPAN_LABELS[..., :3])
    with pytest.raises(ValueError, match="next_sentence_prediction"):
        model(**INPUTS, labels=LABELS, next_sentence_label=torch.zeros(3, dtype=torch.long))
    for layer in (3, -4):
        with pytest.raises(ValueError, match="pair_target_layer"):
            config(pair_target_layer=layer)


@pytest.mark.parametrize(
    ("position", "pair"), [(9, (2, 9)), (-1, (-1, 3)), (10, (10, 11))], ids=["one beyond", "negative", "both beyond"]
)
@pytest.mark.parametrize("embedded", [False, True])
def test_boundaries_outside_the_row_are_refused(position, pair, embedded):
    """They would read the tokens of another row."""
    model = pretraining_model()
    inputs = dict(INPUTS)
    if embedded:
        inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    boundaries = BOUNDARIES.clone()
    boundaries[0, 0] = torch.tensor(pair)
    wrong = {**TARGETS, "span_boundaries": boundaries}
    message = rf"`span_boundaries` must be positions in the row, 0 <= position < seq_len = 9, got {position}\b"
    for training in (False, True):
        with pytest.raises(ValueError, match=message):
            model.train(training)(**inputs, **wrong)
    with pytest.raises(ValueError, match=message):
        model(**inputs, span_boundaries=boundaries)
    if not embedded:
        with pytest.raises(ValueError, match=message):
            model.evaluation_sums(**inputs, **wrong)


def test_a_budget_below_the_span_targets_is_refused():
    model = pretraining_model().train()
    with pytest.raises(ValueError, match="`label_positions` must cover every label"):
        model(**INPUTS, **TARGETS, label_positions=torch.tensor([[2, 3], [3, 0], [0, 0]]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sbo_loss_weight", -1),
        ("max_pair_targets", 0),
        ("pair_positional_embedding_size", 0),
        ("hidden_act", "nope"),
        ("hidden_dropout_prob", 1.5),
        ("attention_probs_dropout_prob", -0.1),
        ("classifier_dropout", 2),
    ],
)
def test_fields_out_of_range_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=rf"`{field}` .*got .*{value}"):
        config(**{field: value})
    if field == "hidden_act":
        with pytest.raises(ValueError, match=r"gelu, .*relu"):
            config(hidden_act=value)


def test_an_update_without_token_labels_still_trains_the_other_terms():
    """Its number of labels is 0 and says nothing about shares: the other terms are the batch's own means."""
    model = pretraining_model(next_sentence_prediction=True).train()
    sentence = torch.tensor([0, 1, -100])
    none = torch.full_like(LABELS, -100)
    expected = model(**INPUTS, next_sentence_label=sentence).nsp_loss
    for items in (0, torch.tensor(0)):
        output = model(
            **INPUTS,
            labels=none,
            span_boundaries=BOUNDARIES,
            span_labels=torch.full_like(SPAN_LABELS, -100),
            next_sentence_label=sentence,
            num_items_in_batch=items,
        )
        assert (output.mlm_loss, output.sbo_loss) == (0, 0)
        torch.testing.assert_close(output.nsp_loss, expected)
        torch.testing.assert_close(output.loss, expected)
        assert_gradients_equal(model, output.loss, expected, 1e-7)
        counted = model(
            **INPUTS,
            labels=none,
            next_sentence_label=sentence,
            num_items_in_batch=items,
            target_counts={"next_sentence_label": torch.tensor(4)},
        )
        torch.testing.assert_close(counted.nsp_loss, expected * 2 / 4)


# ---- vocabulary logits under upstream's name ----


def test_logits_are_another_name_of_the_prediction_logits():
    model = pretraining_model()
    output = model(**INPUTS)
    assert output.logits is output["logits"] is output.prediction_logits
    assert list(output) == ["prediction_logits"]
    assert len(output.to_tuple()) == 1
    lean = model.train()(**INPUTS, labels=LABELS)
    assert lean.logits is None
    with pytest.raises(KeyError):
        lean["logits"]
    again = pickle.loads(pickle.dumps(output))
    assert_same(again.logits, output.logits, 0.0)


def test_terms_that_label_smoothing_leaves_out_are_named(tmp_path, warnings_of_transformers):
    """The Trainer takes `labels` out; the loss that it makes of the logits has no span boundary term."""
    rows = [{**{name: value[row] for name, value in {**INPUTS, **TARGETS}.items()}} for row in range(3)]
    trainer = Trainer(
        model=pretraining_model(),
        args=arguments(tmp_path, label_smoothing_factor=0.1),
        train_dataset=rows,
    )
    trainer.train()
    said = [text for text in warnings_of_transformers.text.split("WARNING") if "no `labels`" in text]
    assert len(said) == 1
    assert "`sbo_loss`" in said[0]
    assert "`label_smoothing_factor`" in said[0]
    model = pretraining_model().train()
    output = model(**INPUTS, **{name: value for name, value in TARGETS.items() if name != "labels"})
    assert output.boundary_logits is None  # nothing needs them: the loss is there
    torch.testing.assert_close(output.loss, output.sbo_loss)


# ---- memory ----

EVALUATION_MEMORY = """
import sys
import torch
from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining
from tests.memory import peak_megabytes

def batch(rows):
    ids = torch.randint(5, 30000, (rows, 64))
    labels, targets = torch.full((rows, 64), -100), torch.full((rows, 3, 15), -100)
    labels[:, 10:20], targets[:, 0, :10] = ids[:, 10:20], ids[:, 10:20]
    boundaries = torch.zeros(rows, 3, 2, dtype=torch.long)
    boundaries[:, 0] = torch.tensor([9, 20])
    return {"input_ids": ids, "labels": labels, "span_boundaries": boundaries, "span_labels": targets}

config = SpanBertConfig(
    vocab_size=30000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
)
model = SpanBertForPreTraining(config).eval()
model.evaluation_sums(**batch(1))
before, size = peak_megabytes(), int(sys.argv[1])
for _ in range(64 // size):
    model.evaluation_sums(**batch(size))
print(peak_megabytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak of memory to read")
@pytest.mark.parametrize("size", [pytest.param(32, marks=pytest.mark.slow), 64])
def test_evaluation_takes_little_memory(size):
    """Full logits of the 64 rows of 64 tokens would be 490 MB, those at labels alone 77 MB and as much again."""
    result = subprocess.run(
        [sys.executable, "-c", EVALUATION_MEMORY, str(size)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 35


def test_micro_batches_with_all_counts_add_up_exactly():
    """Three terms with three denominators; one micro-batch has no pair at all."""
    model = pretraining_model(next_sentence_prediction=True).train()
    batch = {**INPUTS, **TARGETS, "next_sentence_label": torch.tensor([0, 1, -100])}
    whole = model(**batch)
    counts = {name: (batch[name] != -100).sum() for name in ("span_labels", "next_sentence_label")}
    parts = [
        model(
            **{name: value[row : row + 1] for name, value in batch.items()},
            num_items_in_batch=(LABELS != -100).sum(),
            target_counts=counts,
        )
        for row in range(3)
    ]
    for name in ("loss", "mlm_loss", "sbo_loss", "nsp_loss"):
        torch.testing.assert_close(sum(part[name] for part in parts), whole[name], atol=1e-6, rtol=1e-6)
    assert_gradients_equal(model, sum(part.loss for part in parts), whole.loss, 1e-6)


def test_the_next_sentence_head_reads_every_packed_sequence():
    model = pretraining_model(next_sentence_prediction=True)
    padded = model(**INPUTS, next_sentence_label=torch.tensor([0, 1, 1]))
    ids = torch.cat([row[:length] for row, length in zip(IDS, (9, 6, 4), strict=True)])[None]
    types = torch.cat([row[:length] for row, length in zip(TYPES, (9, 6, 4), strict=True)])[None]
    sequences = torch.tensor([[1] * 9 + [2] * 6 + [3] * 4])
    # Room for one more sequence than there is: its label is ignored.
    packed = model(
        ids, token_type_ids=types, sequence_ids=sequences, next_sentence_label=torch.tensor([[0, 1, 1, -100]])
    )
    assert packed.seq_relationship_logits.shape == (1, 4, 2)
    assert_same(packed.seq_relationship_logits[0, :3], padded.seq_relationship_logits, 1e-5)
    torch.testing.assert_close(packed.nsp_loss, padded.nsp_loss)


def test_evaluation_sums_are_those_of_the_full_logits():
    model = pretraining_model(next_sentence_prediction=True, pair_target_layer=1)
    sentence = torch.tensor([0, 1, -100])
    output = model(**INPUTS, **TARGETS, next_sentence_label=sentence)
    sums = model.evaluation_sums(**INPUTS, **TARGETS, next_sentence_label=sentence)
    for name, logits, labels in (
        ("mlm", output.prediction_logits, LABELS),
        ("sbo", output.boundary_logits, SPAN_LABELS),
        ("nsp", output.seq_relationship_logits, sentence),
    ):
        flat, targets = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        entropy = torch.nn.functional.cross_entropy(flat, targets, reduction="sum")
        expected = [entropy.item(), (flat.argmax(-1) == targets).sum().item(), (targets != -100).sum().item()]
        assert sums[name].tolist() == pytest.approx(expected, rel=1e-5)
    alone = SpanBertForMaskedLM(config()).eval()
    alone.load_state_dict(model.state_dict(), strict=False)
    assert alone.evaluation_sums(LABELS, **INPUTS)["mlm"].tolist() == pytest.approx(sums["mlm"].tolist(), rel=1e-5)


# ---- filling spans ----


@pytest.fixture
def tokenizer():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(94))]
    return BertTokenizerFast(vocab={piece: number for number, piece in enumerate(pieces)})


def test_fill_span_predicts_from_the_boundaries(tokenizer, warnings_of_transformers):
    model = pretraining_model().train()
    text = "word1 word2 [MASK] [MASK] word3 word4 [MASK] word5 word6"
    spans = model.fill_span(text, tokenizer, top_k=3)
    assert model.training
    assert [(span["start"], span["end"]) for span in spans] == [(3, 5), (7, 8)]
    encoding = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(**encoding, span_boundaries=torch.tensor([[[2, 5], [6, 8]]])).boundary_logits[0]
    for span, scores in zip(spans, logits, strict=True):
        length = span["end"] - span["start"]
        assert span["tokens"] == tokenizer.convert_ids_to_tokens(scores[:length].argmax(-1).tolist())
        assert span["text"] == tokenizer.convert_tokens_to_string(span["tokens"])
        assert [len(candidates) for candidates in span["candidates"]] == [3] * length
        probabilities = scores.softmax(-1).max(-1).values[:length]
        assert [row[0][1] for row in span["candidates"]] == pytest.approx(probabilities.tolist(), abs=1e-6)
    assert "unreliable" not in warnings_of_transformers.text


def test_fill_span_refuses_what_it_cannot_do_and_warns_of_noise(tokenizer, tmp_path, warnings_of_transformers):
    model = pretraining_model()
    with pytest.raises(ValueError, match=r"\[MASK\]"):
        model.fill_span("word1 word2", tokenizer)
    with pytest.raises(ValueError, match="max_pair_targets"):
        model.fill_span("word1 [MASK] [MASK] [MASK] [MASK] [MASK] word2", tokenizer)
    model.fill_span("[MASK] word1 word2", tokenizer)
    assert "unreliable" in warnings_of_transformers.text
    model.bert.save_pretrained(tmp_path)
    fresh = SpanBertForPreTraining.from_pretrained(tmp_path)
    warnings_of_transformers.clear()
    fresh.fill_span("word1 word2 [MASK] word3 word4", tokenizer)
    assert "noise" in warnings_of_transformers.text


# ---- positions ----


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_positions_and_first_tokens_of_packed_rows(rows):
    """Against a loop over sequences of random lengths."""
    width = max(sum(lengths) for lengths in rows) + 1
    ids, positions = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    starts = torch.zeros(len(rows), 4, dtype=torch.long)
    for row, lengths in enumerate(rows):
        at = 0
        for number, length in enumerate(lengths):
            ids[row, at : at + length] = number + 1
            positions[row, at : at + length] = torch.arange(length)
            starts[row, number], at = at, at + length
    assert torch.equal(position_ids_of(ids.shape, ids.device, None, ids), positions)
    states = torch.randn(len(rows), width, 2)
    expected = states.gather(1, starts[..., None].expand(-1, -1, 2))
    assert torch.equal(first_token_states(states, sequence_ids=ids, num_sequences=4), expected)


# ---- names with "label" that are no required labels ----


def test_optional_labels_do_not_hide_the_evaluation_loss(tmp_path):
    for cls in (SpanBertForMaskedLM, SpanBertForPreTraining):
        assert find_labels(cls) == ["labels"]
        names = list(inspect.signature(cls.forward).parameters)
        assert "label_positions" in names
        assert pickle.loads(pickle.dumps(inspect.signature(cls.forward))) == inspect.signature(cls.forward)
    model = pretraining_model()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True),
        eval_dataset=[{"input_ids": IDS[0], "labels": LABELS[0]}],
    )
    assert "eval_loss" in trainer.evaluate()


def test_optional_labels_pass_through_export_compile_and_peft():
    from peft import LoraConfig, get_peft_model

    torch._dynamo.reset()
    model = SpanBertForMaskedLM(config()).eval()
    positions = (LABELS == -100).to(torch.uint8).sort(dim=1, stable=True).indices[:, :4]
    batch = {**INPUTS, "labels": LABELS, "label_positions": positions}
    expected = model(**batch).loss
    exported = torch.export.export(model, (), batch, strict=False)
    torch.testing.assert_close(exported.module()(**batch).loss, expected)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(**batch).loss, expected)
    torch.testing.assert_close(pickle.loads(pickle.dumps(model))(**batch).loss, expected)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["query"])).eval()
    torch.testing.assert_close(adapted(**batch).loss, expected)
    assert find_labels(type(adapted.get_base_model())) == ["labels"]
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("single_label_classification", torch.tensor([2, 0, 1])),
        ("regression", torch.tensor([[0.5, 1.0, 2.0], [-1.0, 0.0, 0.3], [2.0, 0.1, 1.0]])),
        ("multi_label_classification", torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])),
    ],
)
def test_absent_sequences_of_a_packed_row_are_ignored(problem, labels):
    torch.manual_seed(0)
    model = randomise(SpanBertForSequenceClassification(config(num_labels=3, problem_type=problem)))
    padded = model(**INPUTS, labels=labels)
    packed = model(
        torch.cat([row[:length] for row, length in zip(IDS, (9, 6, 4), strict=True)])[None],
        token_type_ids=torch.cat([row[:length] for row, length in zip(TYPES, (9, 6, 4), strict=True)])[None],
        sequence_ids=torch.tensor([[1] * 9 + [2] * 6 + [3] * 4]),
        labels=torch.cat([labels, torch.full_like(labels[:2], -100)])[None],
    )
    assert packed.logits.shape == (1, 5, 3)
    assert_same(packed.logits[0, :3], padded.logits, 1e-5)
    torch.testing.assert_close(packed.loss, padded.loss, atol=1e-6, rtol=1e-5)


def test_rows_of_one_sequence_may_keep_plain_labels():
    """`sequence_ids` of an unpacked batch are 1 and 0; labels then are `(batch,)` as ever."""
    inputs = {"input_ids": IDS, "token_type_ids": TYPES, "sequence_ids": MASK}
    model = pretraining_model(next_sentence_prediction=True)
    sentence = torch.tensor([0, 1, 1])
    expected = model(**INPUTS, next_sentence_label=sentence).nsp_loss
    torch.testing.assert_close(model(**inputs, next_sentence_label=sentence).nsp_loss, expected)
    classifier = randomise(SpanBertForSequenceClassification(config(num_labels=2)))
    expected = classifier(**INPUTS, labels=sentence).loss
    torch.testing.assert_close(classifier(**inputs, labels=sentence).loss, expected)


@pytest.mark.parametrize(
    ("task", "cls", "text"),
    [
        ("fill-mask", SpanBertForMaskedLM, "word1 [MASK] word2"),
        ("text-classification", SpanBertForSequenceClassification, "word1 word2"),
        ("token-classification", SpanBertForTokenClassification, "word1 word2"),
        ("feature-extraction", SpanBertModel, "word1 word2"),
    ],
)
def test_upstreams_pipelines_take_the_heads(task, cls, text, tokenizer, tmp_path, warnings_of_transformers):
    cls(config()).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    pipe = pipeline(task, model=str(tmp_path))
    assert type(pipe.model) is cls
    assert len(pipe([text, f"{text} word5 word7"], batch_size=2)) == 2
    assert "not supported" not in warnings_of_transformers.text


def test_num_labels_of_packed_sequences_follow_the_labels():
    """Packed classification without labels reads the number of sequences from the ids."""
    torch.manual_seed(0)
    model = SpanBertForSequenceClassification(config(num_labels=2)).eval()
    sequences = torch.tensor([[1, 1, 2, 2, 2, 0]])
    assert model(IDS[:1, :6], sequence_ids=sequences).logits.shape == (1, 2, 2)
    labelled = model(IDS[:1, :6], sequence_ids=sequences, labels=torch.tensor([[0, 1, -100]]))
    assert labelled.logits.shape == (1, 3, 2)
    assert torch.isfinite(labelled.loss)
