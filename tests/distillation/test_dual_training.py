"""Dual training: mixed-vocabulary input, the teacher's two vocabularies, tied weights, a plain student in the end."""

import math

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, BertForMaskedLM, BertForSequenceClassification

from hf_ptm_ext import DataCollatorForMixedVocabulary
from hf_ptm_ext.data import embedded_corpus, train_wordpiece
from hf_ptm_ext.distillation import DualTrainModel, preset_objectives
from hf_ptm_ext.objectives import shared_projection_loss
from tests.distillation.pairs import model, pair, rows, trainer


@pytest.fixture(scope="module")
def tokenizers():
    documents = embedded_corpus("en")[:60]
    return [train_wordpiece(documents, size, model_max_length=64) for size in (120, 500)]


@pytest.fixture(scope="module")
def texts():
    return [{"text": text} for document in embedded_corpus("en")[:40] for text in document][:60]


def test_both_read_the_same_words(tokenizers, texts):
    student, teacher = tokenizers
    collator = DataCollatorForMixedVocabulary(student, teacher, mlm_probability=0.0, max_length=40, seed=0)
    batch = collator(texts)
    swapped = whole = 0
    for row, text in enumerate(texts):
        length = batch["attention_mask"][row].sum()
        own = student.decode(batch["input_ids"][row, 1 : length - 1])
        ids = batch["teacher_input_ids"][row][batch["teacher_attention_mask"][row] == 1][1:-1].tolist()
        kinds = batch["teacher_vocabulary_ids"][row][batch["teacher_attention_mask"][row] == 1][1:-1].tolist()
        pieces = [(student if kind else teacher).convert_ids_to_tokens(i) for i, kind in zip(ids, kinds, strict=True)]
        joined = " ".join(pieces).replace(" ##", "")
        assert joined.replace(" ", "") == own.replace(" ", "")
        assert own.replace(" ", "") in text["text"].lower().replace(" ", "") or "[UNK]" in own
        starts = [kind for piece, kind in zip(pieces, kinds, strict=True) if not piece.startswith("##")]
        swapped, whole = swapped + sum(starts), whole + len(starts)
    assert abs(swapped / whole - 0.5) < 4 * math.sqrt(0.25 / whole)
    assert (batch["labels"] == -100).all()


def test_masks_hide_pieces_by_the_vocabulary_that_cut_them(tokenizers, texts):
    student, teacher = tokenizers
    options = {"mlm_probability": 0.3, "mask_replace_prob": 1.0, "random_replace_prob": 0.0, "seed": 1}
    collator = DataCollatorForMixedVocabulary(student, teacher, max_length=40, **options)
    batch = collator(texts)
    chosen = batch["teacher_labels"] != -100
    kinds = batch["teacher_vocabulary_ids"][chosen]
    masks = torch.tensor([teacher.mask_token_id, student.mask_token_id])
    assert torch.equal(batch["teacher_input_ids"][chosen], masks[kinds])
    assert set(kinds.tolist()) == {0, 1}
    assert batch["teacher_labels"][chosen & (batch["teacher_vocabulary_ids"] == 1)].max() < len(student)
    again = DataCollatorForMixedVocabulary(student, teacher, max_length=40, **options)(texts)
    assert all(torch.equal(batch[name], again[name]) for name in batch)
    candidates = batch["attention_mask"].sum() - 2 * len(texts)
    share = (batch["labels"] != -100).sum() / candidates
    assert abs(share - 0.3) < 4 * math.sqrt(0.21 / candidates)
    with pytest.raises(ValueError, match="`text` or `words`, got input_ids"):
        collator([{"input_ids": [1]}])


def test_the_teacher_predicts_in_two_vocabularies():
    student, teacher = pair("dualtrain")
    module = DualTrainModel(student, teacher, projection_weight=0.5, mlm_weight=2.0).train()
    inputs = torch.utils.data.default_collate(rows("dualtrain"))
    output = module(**inputs)
    table = student.get_input_embeddings().weight @ module.up.T
    ids, kinds, labels = (inputs[f"teacher_{name}"] for name in ("input_ids", "vocabulary_ids", "labels"))
    embeddings = teacher.get_input_embeddings().weight[ids]
    embeddings[kinds == 1] = table[ids[kinds == 1]]
    states = teacher.bert(inputs_embeds=embeddings, attention_mask=inputs["teacher_attention_mask"]).last_hidden_state
    states = teacher.cls.predictions.transform(states)
    losses = []
    for row, column in (labels != -100).nonzero():
        weight, bias = teacher.get_output_embeddings().weight, teacher.get_output_embeddings().bias
        if kinds[row, column]:
            weight, bias = table, student.get_output_embeddings().bias
        scores = states[row, column] @ weight.T + bias
        losses.append(-scores.log_softmax(-1)[labels[row, column]])
    torch.testing.assert_close(output.teacher_label_loss, torch.stack(losses).mean())
    names = [name for name, _ in student.named_parameters() if "layer." in name or "transform" in name]
    own, other = dict(student.named_parameters()), dict(teacher.named_parameters())
    tied = shared_projection_loss([(other[name], own[name]) for name in names], up=module.up)
    torch.testing.assert_close(output.projection_loss, tied)
    total = 0.5 * output.projection_loss + 2 * (output.label_loss + output.teacher_label_loss)
    torch.testing.assert_close(output.loss, total)
    output.loss.backward()
    assert module.up.grad is not None
    assert teacher.bert.embeddings.word_embeddings.weight.grad is not None


def test_a_run_on_text_falls_and_leaves_a_plain_student(tmp_path, tokenizers, texts):
    small, large = (len(tokenizer) for tokenizer in tokenizers)
    sizes = {"max_position_embeddings": 64, "initializer_range": 0.02}
    student = model(BertForMaskedLM, 0, 2, 16, **{**sizes, "vocab_size": small})
    teacher = model(BertForMaskedLM, 1, 2, 24, **{**sizes, "vocab_size": large})
    run = trainer(
        tmp_path,
        "dualtrain",
        16,
        models=(student, teacher),
        data=texts,
        data_collator=DataCollatorForMixedVocabulary(*tokenizers, max_length=48, seed=0),
        max_steps=40,
        optim="adamw_torch",
        learning_rate=1e-2,
        logging_steps=10,
        preset_options={"projection_weight": 1e-3},
        eval_dataset=texts,
    )
    run.train()
    for term in ("label_loss", "teacher_label_loss", "projection_loss"):
        values = [entry[term] for entry in run.state.log_history if term in entry]
        assert values[-1] < 0.95 * values[0], term
    assert run.evaluate()["eval_loss"] == pytest.approx(run.evaluate()["eval_loss"])
    run.save_model(str(tmp_path / "student"))
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "student")
    assert loaded.config.vocab_size == small
    assert "up" in load_file(tmp_path / "student" / "distill_projections.safetensors")


def test_models_and_batches_that_do_not_fit_are_refused(tmp_path):
    student, teacher = pair("dualtrain")
    with pytest.raises(ValueError, match=r"of one architecture with as many layers"):
        DualTrainModel(student, model(BertForMaskedLM, 1, 3, 24))
    with pytest.raises(ValueError, match=r"`teacher` must be a masked language model"):
        DualTrainModel(student, model(BertForSequenceClassification, 1, 2, 24))
    with pytest.raises(ValueError, match="`teacher` must be one model in preset dualtrain"):
        trainer(tmp_path, "dualtrain", models=(student, None))
    inputs = torch.utils.data.default_collate(rows("distilbert"))
    with pytest.raises(ValueError, match=r"needs `teacher_input_ids`.*DataCollatorForMixedVocabulary"):
        DualTrainModel(student, teacher).train()(**inputs)
    with pytest.raises(ValueError, match="DualTrainModel"):
        preset_objectives("dualtrain", student)
