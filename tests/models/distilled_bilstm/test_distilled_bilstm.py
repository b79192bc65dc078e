"""Distilled BiLSTM: its arithmetic, padding, pairs, word vectors, and the ways a user loads and trains it."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    pipeline,
)

from hf_ptm_ext import DistilledBiLstmConfig, DistilledBiLstmForSequenceClassification, DistilledBiLstmModel
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.data.word_vectors import WordVectors
from hf_ptm_ext.distillation import DistillationArguments, DistillationTrainer

FRESH_PROCESS = Path(__file__).parents[2] / "conformance" / "fresh_process.py"
SIZES = {"vocab_size": 50, "embedding_size": 6, "lstm_size": 5, "classifier_size": 7, "num_labels": 3}
IDS = torch.tensor([[2, 7, 8, 9, 3, 11, 12, 3], [2, 20, 3, 21, 3, 0, 0, 0], [2, 30, 31, 3, 32, 3, 0, 0]])
MASK = (IDS != 0).long()
TYPES = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]])


def made(model_class=DistilledBiLstmForSequenceClassification, **fields):
    torch.manual_seed(0)
    return model_class(DistilledBiLstmConfig(**{**SIZES, **fields})).eval()


def reference_state(model, ids):
    """One text through torch's own bidirectional LSTM with the same weights."""
    lstm = torch.nn.LSTM(
        model.encoder.forward_lstm.input_size, model.config.lstm_size, batch_first=True, bidirectional=True
    )
    own = {}
    for suffix, part in (("", model.encoder.forward_lstm), ("_reverse", model.encoder.backward_lstm)):
        own |= {f"{name}{suffix}": value for name, value in part.state_dict().items()}
    lstm.load_state_dict(own)
    words = [model.embeddings.word_embeddings(ids)]
    if model.embeddings.static_embeddings is not None:
        words.append(model.embeddings.static_embeddings(ids))
    states, (last, _) = lstm(torch.cat(words, dim=-1)[None])
    return states[0], last.flatten()


@pytest.mark.parametrize("multichannel", [True, False])
@torch.no_grad()
def test_every_row_is_torchs_bidirectional_lstm_of_it_alone(multichannel):
    model = made(DistilledBiLstmModel, multichannel=multichannel)
    output = model(IDS, MASK)
    for row, length in enumerate(MASK.sum(1).tolist()):
        states, last = reference_state(model, IDS[row, :length])
        torch.testing.assert_close(output.last_hidden_state[row, :length], states, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(output.pooler_output[row], last, rtol=1e-5, atol=1e-6)
        assert not output.last_hidden_state[row, length:].any()


@torch.no_grad()
def test_a_pair_is_compared_by_both_texts_states():
    model = made(DistilledBiLstmModel, pairs=True)
    output = model(IDS, MASK, TYPES)
    for row in range(3):
        real = MASK[row].bool()
        texts = [IDS[row][real & (TYPES[row] == kind)] for kind in (0, 1)]
        (first_states, first), (second_states, second) = (reference_state(model, text) for text in texts)
        expected = torch.cat([first, second, first * second, (first - second).abs()])
        torch.testing.assert_close(output.pooler_output[row], expected, rtol=1e-5, atol=1e-6)
        states = torch.cat([first_states, second_states])
        torch.testing.assert_close(output.last_hidden_state[row][real], states, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_two_inputs_say_the_same_as_one_with_types():
    model = made(pairs=True)
    expected = model(IDS, MASK, TYPES).logits
    for row in range(3):
        first, second = (IDS[row][MASK[row].bool() & (TYPES[row] == kind)][None] for kind in (0, 1))
        torch.testing.assert_close(model(first, second_input_ids=second).logits[0], expected[row])
        padded = torch.nn.functional.pad(second, (2, 1))
        mask = torch.nn.functional.pad(torch.ones_like(second), (2, 1))
        got = model(first, second_input_ids=padded, second_attention_mask=mask).logits[0]
        torch.testing.assert_close(got, expected[row])


@pytest.mark.parametrize("pairs", [False, True])
@torch.no_grad()
def test_padding_on_either_side_changes_nothing(pairs):
    model = made(pairs=pairs)
    expected = model(IDS, MASK, TYPES).logits
    for left, right in ((0, 4), (3, 0), (2, 5)):
        padded = [torch.nn.functional.pad(each, (left, right)) for each in (IDS, MASK, TYPES)]
        torch.testing.assert_close(model(*padded).logits, expected)
    for row, length in enumerate(MASK.sum(1).tolist()):
        alone = model(IDS[row : row + 1, :length], token_type_ids=TYPES[row : row + 1, :length]).logits[0]
        torch.testing.assert_close(alone, expected[row])


def test_it_is_d_berts_network_dropout_included():
    """bi_rnn.py: packed rows, the last states of both directions, `fc2(dropout(relu(fc1)))`; squared distance."""
    torch.manual_seed(0)
    config = DistilledBiLstmConfig(
        vocab_size=30, embedding_size=6, lstm_size=5, classifier_size=7, classifier_dropout=0.4, num_labels=2
    )
    model = DistilledBiLstmForSequenceClassification(config).train()
    ids = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]])
    lengths, teacher = torch.tensor([4, 2]), torch.randn(2, 2)
    encoder, embeddings = model.bilstm.encoder, model.bilstm.embeddings
    rnn = torch.nn.LSTM(12, 5, batch_first=True, bidirectional=True)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    for name in names:
        getattr(rnn, name).data.copy_(getattr(encoder.forward_lstm, name))
        getattr(rnn, f"{name}_reverse").data.copy_(getattr(encoder.backward_lstm, name))

    words = torch.cat([embeddings.word_embeddings(ids), embeddings.static_embeddings(ids)], dim=2)
    packed = torch.nn.utils.rnn.pack_padded_sequence(words, lengths, batch_first=True)
    last = rnn(packed)[1][0].permute(1, 0, 2).reshape(2, 10)
    torch.manual_seed(1)
    hidden = torch.nn.functional.dropout(model.dense(last).relu(), 0.4)
    expected = torch.nn.functional.mse_loss(model.classifier(hidden), teacher)
    expected.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    for name in names:
        gradients[f"bilstm.encoder.forward_lstm.{name}"] = getattr(rnn, name).grad
        gradients[f"bilstm.encoder.backward_lstm.{name}"] = getattr(rnn, f"{name}_reverse").grad

    model.zero_grad()
    torch.manual_seed(1)
    found = torch.nn.functional.mse_loss(model(ids, attention_mask=(ids != 0).long()).logits, teacher)
    found.backward()
    torch.testing.assert_close(found, expected)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert sorted(trained) == sorted(gradients)
    for name in trained:
        torch.testing.assert_close(model.get_parameter(name).grad, gradients[name])


@torch.no_grad()
def test_a_row_without_tokens_is_defined():
    for pairs in (False, True):
        output = made(pairs=pairs)(IDS, torch.zeros_like(MASK), TYPES)
        assert torch.isfinite(output.logits).all()
        assert torch.equal(output.logits[0], output.logits[1])


def test_every_trained_weight_gets_a_gradient_and_static_vectors_stay():
    model = made(pairs=True).train()
    static = model.bilstm.embeddings.static_embeddings.weight.clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    model(IDS, MASK, TYPES, labels=torch.tensor([0, 1, 2])).loss.backward()
    for name, parameter in model.named_parameters():
        if "static" not in name:
            assert parameter.grad.abs().sum() > 0, name
    optimizer.step()
    assert torch.equal(model.bilstm.embeddings.static_embeddings.weight, static)
    assert not model.bilstm.embeddings.word_embeddings.weight[0].any()  # padding


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ({"num_labels": 1}, torch.tensor([0.5, 1.0, -2.0])),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, torch.eye(3)),
    ],
)
def test_other_problem_types(fields, labels):
    model = made(**fields)
    output = model(IDS, MASK, labels=labels)
    one = (
        torch.nn.functional.mse_loss(output.logits.flatten(), labels)
        if fields["num_labels"] == 1
        else (torch.nn.functional.binary_cross_entropy_with_logits(output.logits, labels))
    )
    torch.testing.assert_close(output.loss, one)


def test_saving_loading_and_resizing(tmp_path):
    model = made(pairs=True)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert type(loaded) is DistilledBiLstmForSequenceClassification
    torch.testing.assert_close(loaded(IDS, MASK, TYPES).logits, model(IDS, MASK, TYPES).logits, rtol=0, atol=0)
    assert not loaded.bilstm.embeddings.static_embeddings.weight.requires_grad
    bare = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(bare.encoder.forward_lstm.weight_hh_l0, model.bilstm.encoder.forward_lstm.weight_hh_l0)
    before = loaded(IDS, MASK, TYPES).logits
    loaded.resize_token_embeddings(60)
    embeddings = loaded.bilstm.embeddings
    assert embeddings.word_embeddings.weight.shape == embeddings.static_embeddings.weight.shape == (60, 6)
    assert not embeddings.static_embeddings.weight.requires_grad
    torch.testing.assert_close(loaded(IDS, MASK, TYPES).logits, before)
    assert loaded(torch.full((1, 2), 59), token_type_ids=torch.tensor([[0, 1]])).logits.isfinite().all()


def test_weights_that_a_file_lacks_are_initialised(tmp_path):
    made(DistilledBiLstmModel).save_pretrained(tmp_path)
    model = DistilledBiLstmForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    bound = SIZES["lstm_size"] ** -0.5
    fresh = made()
    for name, parameter in fresh.bilstm.encoder.named_parameters():
        assert parameter.abs().max() <= bound, name
    assert torch.isfinite(model.dense.weight).all()
    assert 0 < model.dense.weight.std() < 1


@pytest.mark.slow
def test_a_process_without_the_package(tmp_path):
    jobs = []
    heads = (("AutoModel", DistilledBiLstmModel), ("AutoModelForSequenceClassification", None))
    for auto_class, model_class in heads:
        model = made(model_class or DistilledBiLstmForSequenceClassification, pairs=True)
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        inputs = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}
        with torch.no_grad():
            outputs = dict(model(**inputs))
        torch.save({"inputs": inputs, "outputs": outputs}, folder / "case.pt")
        job = {"folder": str(folder), "auto_class": auto_class, "also": (), "class": type(model).__name__}
        jobs.append({**job, "variant": False})
    (tmp_path / "jobs.json").write_text(json.dumps({"package": "hf_ptm_ext", "heads": jobs}), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(FRESH_PROCESS), str(tmp_path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=600,
        cwd=tmp_path,
        env={**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]


def test_it_compiles_around_the_lstms():
    """Which the compiler runs as they are."""
    model = made(pairs=True)
    expected = model(IDS, MASK, TYPES).logits
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(IDS, MASK, TYPES).logits, expected)


SENTENCES = [
    f"{adjective} {noun}" for adjective in ("good", "fine", "bad", "dull") for noun in ("film", "book", "plot")
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece([SENTENCES] * 3, vocab_size=80)


def test_word_vectors_go_into_both_channels(tokenizer):
    model = made(vocab_size=len(tokenizer), embedding_size=2)
    tables = model.bilstm.embeddings
    before = tables.word_embeddings.weight.clone()
    vectors = WordVectors(["good", "film", "absent"], [[3.0, 4.0], [0.5, 0.0], [1.0, 1.0]])
    assert model.set_word_vectors(tokenizer, vectors) == 2
    good = tokenizer.convert_tokens_to_ids("good")
    for table in (tables.word_embeddings, tables.static_embeddings):
        torch.testing.assert_close(table.weight[good], torch.tensor([3.0, 4.0]))
    bad = tokenizer.convert_tokens_to_ids("bad")
    assert torch.equal(tables.word_embeddings.weight[bad], before[bad])
    assert made(vocab_size=len(tokenizer), embedding_size=2).set_word_vectors(tokenizer, {"bad": np.ones(2)}) == 1


def test_word_vectors_that_do_not_fit(tokenizer):
    model = made(vocab_size=len(tokenizer))
    with pytest.raises(ValueError, match="`vectors` must have a vector for some token"):
        model.set_word_vectors(tokenizer, {"absent": np.ones(6)})
    with pytest.raises(ValueError, match=r"`embedding_size` = 6 numbers, got shape \(5,\)"):
        model.set_word_vectors(tokenizer, {"good": np.ones(5)})


def test_the_text_classification_pipeline(tokenizer, tmp_path):
    config = DistilledBiLstmConfig(
        **{**SIZES, "vocab_size": len(tokenizer), "num_labels": 2}, id2label={0: "bad", 1: "good"}, pairs=True
    )
    DistilledBiLstmForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path))
    answers = classify([{"text": "good film", "text_pair": "fine book"}, {"text": "bad", "text_pair": "dull plot"}])
    assert {answer["label"] for answer in answers} <= {"bad", "good"}
    alone = classify({"text": "bad", "text_pair": "dull plot"})
    alone = alone[0] if isinstance(alone, list) else alone
    assert alone["score"] == pytest.approx(answers[1]["score"], abs=1e-5)


def rows(tokenizer):
    good = [int(sentence.split()[0] in ("good", "fine")) for sentence in SENTENCES]
    return [
        {**tokenizer(text, padding="max_length", max_length=8), "labels": label}
        for text, label in zip(SENTENCES, good, strict=True)
    ]


def training(folder, **options):
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": 12,
        "learning_rate": 0.02,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        **options,
    }


def test_a_trainer_fits_it(tokenizer, tmp_path):
    model = made(vocab_size=len(tokenizer), num_labels=2)
    trainer = Trainer(model, TrainingArguments(**training(tmp_path, max_steps=40)), train_dataset=rows(tokenizer))
    trainer.train()
    assert trainer.evaluate(rows(tokenizer))["eval_loss"] < 0.1


def test_it_learns_its_teachers_logits(tokenizer, tmp_path):
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    teacher = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=2, **sizes))
    teacher.classifier.weight.data *= 20
    student = made(vocab_size=len(tokenizer), num_labels=2)
    before = copy.deepcopy(student)
    args = DistillationArguments(**training(tmp_path, max_steps=60, preset="bilstm", teacher_check_rows=0))
    trainer = DistillationTrainer(student, teacher, args, train_dataset=rows(tokenizer))
    trainer.train()
    batch = {n: torch.tensor([row[n] for row in rows(tokenizer)]) for n in ("input_ids", "attention_mask")}
    with torch.no_grad():
        wanted = teacher.eval()(**batch).logits
        distances = [(each.eval()(**batch).logits - wanted).pow(2).mean().item() for each in (before, student)]
    assert distances[1] < 0.1 * distances[0]
    trainer.save_model(tmp_path / "student")
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "student").config.model_type == (
        "distilled_bilstm"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lstm_size": 0}, "`lstm_size` must be at least 1, got 0"),
        ({"classifier_dropout": 1.5}, r"`classifier_dropout` must be a probability in \[0, 1\], got 1.5"),
        ({"hidden_act": "rely"}, "`hidden_act` must be one of"),
    ],
)
def test_configs_that_do_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        DistilledBiLstmConfig(**fields)


def test_inputs_that_do_not_fit():
    with pytest.raises(ValueError, match="A pair needs its second text"):
        made(pairs=True)(IDS, MASK)
    with pytest.raises(ValueError, match=r"`second_input_ids` needs `config\.pairs` = True"):
        made()(IDS, second_input_ids=IDS)
    with pytest.raises(ValueError, match="`input_ids` must be given"):
        made()()
    with pytest.raises(TypeError, match=r"`attention_maks` \(did you mean `attention_mask`\?\)"):
        made()(IDS, attention_maks=MASK)
