"""The Trainer around the wrapper: columns, metrics, smoothing, checks of teacher and vocabulary, PEFT, model_init."""

import logging

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertTokenizerFast,
    TrainingArguments,
)

from hf_ptm_ext import DataCollatorForMaskedLanguageModeling
from hf_ptm_ext.distillation import DistillationArguments, DistillationTrainer, make_student
from hf_ptm_ext.distillation.checks import against_chance
from hf_ptm_ext.distillation.teachers import weights_digest
from tests.distillation.pairs import LENGTHS, model, pair, rows, trainer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(35))]


def tokenizer(words=WORDS):
    return BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}, model_max_length=16)


def shapes(prediction):
    logits = prediction.predictions
    return {"is_array": float(isinstance(logits, np.ndarray)), "rows": logits.shape[0], "classes": logits.shape[-1]}


@pytest.mark.parametrize("teacher_in_eval", [False, True])
def test_metrics_see_logits_only(tmp_path, teacher_in_eval):
    """Case G15: nothing but the head's logits is gathered, whatever the student's config says."""
    student, teacher = pair("pkd")
    student.config.output_hidden_states = True
    run = trainer(
        tmp_path,
        "pkd",
        models=(student, teacher),
        compute_metrics=shapes,
        eval_dataset=rows("pkd"),
        teacher_in_eval=teacher_in_eval,
        per_device_eval_batch_size=3,
    )
    metrics = run.evaluate()
    assert (metrics["eval_is_array"], metrics["eval_rows"], metrics["eval_classes"]) == (1.0, 8, 3)
    terms = {"eval_label_loss", "eval_soft_label_loss", "eval_patience_loss"}
    assert terms & set(metrics) == (terms if teacher_in_eval else set())
    if teacher_in_eval:
        total = 0.3 * metrics["eval_label_loss"] + 0.7 * metrics["eval_soft_label_loss"]
        assert metrics["eval_loss"] == pytest.approx(total + 500 * metrics["eval_patience_loss"], rel=1e-4)


def test_rows_without_labels_are_evaluated_and_predicted(tmp_path):
    unlabelled = [{name: value for name, value in row.items() if name != "labels"} for row in rows("pkd")]
    run = trainer(tmp_path, "tinybert-intermediate", data=unlabelled, eval_dataset=unlabelled, teacher_in_eval=True)
    run.train()
    metrics = run.evaluate()
    assert metrics["eval_loss"] == pytest.approx(
        metrics["eval_attention_loss"] + metrics["eval_hidden_loss"], rel=1e-4
    )
    run = trainer(tmp_path, "tinybert-intermediate", data=unlabelled)
    assert run.predict(unlabelled).predictions.shape == (8, 3)
    assert "test_loss" not in run.predict(unlabelled).metrics, "no labels, no teacher, no loss"


def test_the_logged_loss_is_the_weighted_sum_of_the_terms(tmp_path):
    run = trainer(tmp_path, "distilbert", 2, 2, max_steps=3, logging_steps=3)
    run.train()
    entry = run.state.log_history[0]
    total = 5 * entry["soft_label_loss"] + 2 * entry["label_loss"] + entry["cosine_loss"]
    assert entry["loss"] == pytest.approx(total, rel=1e-4)


def test_label_smoothing_is_the_trainers_own(tmp_path):
    run = trainer(tmp_path, "soft-labels", label_smoothing_factor=0.1, preset_options={"alpha": 0})
    inputs = torch.utils.data.default_collate(rows("soft-labels"))
    loss = run.compute_loss(run.model.eval(), inputs)
    with torch.no_grad():
        log_probabilities = run.student(**{n: v for n, v in inputs.items() if n != "labels"}).logits.log_softmax(-1)
    nll = -log_probabilities.gather(1, inputs["labels"][:, None]).mean()
    torch.testing.assert_close(loss, 0.9 * nll - 0.1 * log_probabilities.mean())


def test_columns_of_student_and_teacher_are_kept(tmp_path):
    """Case G08: a DistilBERT student takes no token types, its BERT teacher does; the rest goes."""
    student, teacher = pair("distilbert")
    data = Dataset.from_list(
        [{**{n: v.tolist() for n, v in row.items()}, "text": "x"} for row in rows("distilbert")]
    ).with_format("torch")
    seen = []

    def spy(batch):
        seen.append(set(batch[0]))
        return torch.utils.data.default_collate(batch)

    run = trainer(tmp_path, "distilbert", models=(student, teacher), data=data, data_collator=spy)
    run.train()
    assert seen[0] == {"input_ids", "attention_mask", "token_type_ids", "labels"}


def test_the_teacher_is_the_same_after_a_run(tmp_path):
    run = trainer(tmp_path, "tinybert-intermediate", max_steps=3, optim="adamw_torch", weight_decay=0.1)
    (teacher,) = run.wrapper.teachers.models
    before = weights_digest(teacher)
    run.train()
    assert weights_digest(teacher) == before
    optimised = {id(p) for group in run.optimizer.param_groups for p in group["params"]}
    assert not any(id(p) in optimised for p in teacher.parameters())
    assert {id(p) for p in run.wrapper.parameters()} == optimised, "projections are trained too"


def test_what_is_distilled_is_told_by_the_terms_names(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        trainer(tmp_path, "tinybert-intermediate", max_steps=1).train()
    assert "Distilling BertForSequenceClassification by attention (1), hidden (1)." in caplog.text


def test_a_teacher_near_chance_is_reported(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        trainer(tmp_path, "tinybert-prediction", teacher_check_rows=8).train()
    assert "near chance" in caplog.text
    assert "fine-tuned" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        trainer(tmp_path, "tinybert-prediction", teacher_check_rows=0).train()
        trainer(tmp_path, "minilm", data=rows("minilm"), teacher_check_rows=8).train()
    assert "near chance" not in caplog.text, "switched off, and a teacher without a head"


def test_chance_is_the_most_frequent_label():
    accuracy, chance, margin = against_chance(torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, -100]), 3)
    assert (accuracy, chance) == (1.0, pytest.approx(1 / 3))
    assert against_chance(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]), 2)[:2] == (0.75, 0.75)
    assert against_chance(torch.tensor([0, 1]), torch.tensor([-100, -100]), 2) is None
    assert margin == pytest.approx(2 * (2 / 9 / 3) ** 0.5)


def test_a_teacher_that_knows_is_not_reported(tmp_path, caplog):
    student, teacher = pair("tinybert-prediction")
    with torch.no_grad():  # the first token decides, in the teacher's embeddings and in the labels
        teacher.classifier.weight.zero_()
        teacher.classifier.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    data = [{**row, "labels": torch.tensor(1)} for row in rows("tinybert-prediction")]
    with caplog.at_level(logging.WARNING):
        trainer(tmp_path, "tinybert-prediction", models=(student, teacher), data=data, teacher_check_rows=8).train()
    assert "near chance" not in caplog.text, "all rows have one label and the teacher gives it"


def test_other_vocabularies_are_refused_or_read_by_their_own_columns(tmp_path):
    student, teacher = pair("soft-labels")
    other = tokenizer([*WORDS[:10], *reversed(WORDS[10:])])
    plain = [{n: v[:length].tolist() if v.dim() else int(v) for n, v in row.items()}
             for row, length in zip(rows("soft-labels"), LENGTHS, strict=True)]  # fmt: skip
    tokenizers = {"processing_class": tokenizer(), "teacher_processing_class": other, "data_collator": None}
    with pytest.raises(ValueError, match=r"different vocabularies: 'w5' has id 10 .* and 39 .*teacher_input_ids"):
        trainer(tmp_path, "soft-labels", models=(student, teacher), data=Dataset.from_list(plain), **tokenizers)
    both = Dataset.from_list(
        [
            {**row, "teacher_input_ids": [*row["input_ids"], 7], "teacher_attention_mask": [*row["attention_mask"], 1]}
            for row in plain
        ]
    )
    student, teacher = pair("soft-labels")
    run = trainer(tmp_path, "soft-labels", models=(student, teacher), data=both, **tokenizers)
    batch = next(iter(run.get_train_dataloader()))
    assert batch["input_ids"].shape == (8, 12)
    assert batch["teacher_input_ids"].shape == (8, 13)
    run.train()
    student, teacher = pair("tinybert-intermediate")
    run = trainer(tmp_path, "tinybert-intermediate", models=(student, teacher), data=both, **tokenizers)
    with pytest.raises(ValueError, match="position by position"):
        run.train()
    masked = (model(BertForMaskedLM, 0, 2, 24), model(BertForMaskedLM, 1, 2, 24))
    with pytest.raises(ValueError, match="Predictions over them cannot be compared"):
        trainer(tmp_path, "distilbert", models=masked, data=both, **tokenizers)
    for data in (Dataset.from_list(plain), plain):
        sizes = (model(BertForSequenceClassification, 0, 2, 16, vocab_size=50), pair("soft-labels")[1])
        with pytest.raises(ValueError, match="`vocab_size` is 50 and 40"):
            trainer(tmp_path, "soft-labels", models=sizes, data=data)


def test_other_classes_are_refused(tmp_path):
    student, teacher = pair("soft-labels")
    student.config.label2id, teacher.config.label2id = ({"a": 0, "b": 1, "c": 2}, {"a": 1, "b": 0, "c": 2})
    with pytest.raises(ValueError, match="`label2id` of student and teacher must agree"):
        trainer(tmp_path, "soft-labels", models=(student, teacher))
    five = model(BertForSequenceClassification, 1, 2, 16, num_labels=5)
    with pytest.raises(ValueError, match="has 3 and the teacher BertForSequenceClassification has 5"):
        trainer(tmp_path, "soft-labels", models=(pair("soft-labels")[0], five))


def test_masks_of_training_are_not_used_up_by_evaluation(tmp_path):
    """DistilBERT on masked text: every evaluation sees the same masks, training those that it would have seen."""
    words = tokenizer()
    data = Dataset.from_list([{"input_ids": [2, *row["input_ids"][1:10].tolist(), 3]} for row in rows("distilbert")])

    def run(folder, **more):
        collator = DataCollatorForMaskedLanguageModeling(words, mlm_probability=0.3, seed=1)
        steps = {"max_steps": 4, "per_device_eval_batch_size": 4, "eval_dataset": data}
        return trainer(folder, "distilbert", 4, 1, data=data, data_collator=collator, **steps, **more)

    plain = run(tmp_path / "plain")
    plain.train()
    evaluated = run(tmp_path / "evaluated", eval_strategy="steps", eval_steps=1)
    evaluated.train()
    for name, value in plain.student.state_dict().items():
        assert torch.equal(evaluated.student.state_dict()[name], value), name
    assert evaluated.evaluate()["eval_loss"] == evaluated.evaluate()["eval_loss"]


def test_a_peft_student_trains_its_adapters_and_saves_only_them(tmp_path):
    def lora():
        student, teacher = pair("tinybert-intermediate")
        torch.manual_seed(3)
        config = LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], r=2)
        return get_peft_model(student, config), teacher

    steps = {"optim": "adamw_torch", "learning_rate": 1e-2, "save_strategy": "steps", "save_steps": 2}
    run = trainer(tmp_path / "a", "tinybert-intermediate", 4, models=lora(), max_steps=4, **steps)
    run.train()
    folder = tmp_path / "a" / "checkpoint-4"
    assert (folder / "adapter_model.safetensors").is_file()
    assert (folder / "distill_projections.safetensors").is_file()
    assert not (folder / "model.safetensors").exists()
    loaded = PeftModel.from_pretrained(pair("tinybert-intermediate")[0], folder)
    inputs = torch.utils.data.default_collate(rows("tinybert-intermediate"))
    inputs.pop("labels")
    run.student.eval()
    torch.testing.assert_close(loaded.eval()(**inputs).logits, run.student(**inputs).logits)
    again = trainer(tmp_path / "b", "tinybert-intermediate", 4, models=lora(), max_steps=4, **steps)
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    for name, value in run.wrapper.state_dict().items():
        assert torch.equal(again.wrapper.state_dict()[name], value), name


def test_a_model_init_makes_the_student(tmp_path):
    args = DistillationArguments(
        str(tmp_path), preset="tinybert-intermediate", max_steps=2, use_cpu=True, report_to="none", disable_tqdm=True
    )
    run = DistillationTrainer(
        teacher=pair("tinybert-intermediate")[1],
        args=args,
        model_init=lambda: pair("tinybert-intermediate")[0],
        train_dataset=rows("tinybert-intermediate"),
        data_collator=torch.utils.data.default_collate,
    )
    run.train()
    run.save_model()
    AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_arguments_are_checked(tmp_path):
    with pytest.raises(ValueError, match="`preset` or `objectives` must be given"):
        DistillationArguments(str(tmp_path))
    with pytest.raises(ValueError, match=r"one of them; got 'pkd'"):
        DistillationArguments(str(tmp_path), preset="pkd", objectives={"labels": 1})
    with pytest.raises(ValueError, match=r"`preset` must be one of bilstm, .*Did you mean 'minilm-v2'"):
        DistillationArguments(str(tmp_path), preset="minilmv2")
    with pytest.raises(ValueError, match="`objectives` must be a mapping or JSON"):
        DistillationArguments(str(tmp_path), objectives="{labels")
    assert DistillationArguments(str(tmp_path), objectives='{"labels": 1}').objectives == {"labels": 1}
    with pytest.raises(ValueError, match="`teacher_dtype`"):
        DistillationArguments(str(tmp_path), preset="pkd", teacher_dtype="half16")
    with pytest.raises(ValueError, match="`progressive_steps` belongs to"):
        DistillationArguments(str(tmp_path), preset="pkd", progressive_steps=5)
    with pytest.raises(TypeError, match="`args` must be DistillationArguments, got TrainingArguments"):
        DistillationTrainer(*pair("pkd"), TrainingArguments(str(tmp_path)))
    for options in ({"use_reentrant": True}, {"use_reentrant": None, "determinism_check": "none"}):
        if options["use_reentrant"] is None:
            options.pop("use_reentrant")
        with pytest.raises(ValueError, match="use_reentrant"):
            trainer(tmp_path, "pkd", activation_checkpointing=True, activation_checkpointing_kwargs=options)


def test_activation_checkpointing_in_a_run_changes_nothing(tmp_path):
    results = []
    for checkpointing in (False, True):
        run = trainer(tmp_path, "tinybert-intermediate", activation_checkpointing=checkpointing)
        run.train()
        results.append(run.wrapper.state_dict())
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, rtol=1e-5, atol=1e-7)


def test_a_teacher_of_another_dtype_teaches_the_same(tmp_path):
    losses = []
    for dtype in (None, "bfloat16"):
        run = trainer(tmp_path, "tinybert-intermediate", teacher_dtype=dtype)
        run.train()
        losses.append(run.state.log_history[0]["hidden_loss"])
        assert run.wrapper.teachers.models[0].dtype == (torch.bfloat16 if dtype else torch.float32)
    assert losses[0] == pytest.approx(losses[1], rel=5e-2)
    assert losses[0] != losses[1]


def test_a_copied_student_does_not_move_away(tmp_path, caplog):
    """Half of the teacher's layers, then updates of the intermediate stage: states stay the teacher's."""
    teacher = model(BertForSequenceClassification, 1, 4, 24).eval()
    data = rows("tinybert-intermediate")
    ids = torch.stack([row["input_ids"] for row in data])
    mask = torch.stack([row["attention_mask"] for row in data])

    def likeness(options):
        student = make_student(teacher, layers=4)
        run = trainer(
            tmp_path / str(options),
            "tinybert-intermediate",
            models=(student, teacher),
            preset_options=options,
            max_steps=20,
            learning_rate=1e-3,
        )
        run.train()
        with torch.no_grad():
            states = [each.eval().bert(ids, attention_mask=mask).last_hidden_state for each in (run.student, teacher)]
        return torch.nn.functional.cosine_similarity(*states, dim=-1)[mask.bool()].mean(), run.wrapper.terms["hidden"]

    kept, term = likeness({})
    assert term.projection == "none"
    assert "compared without a projection" in caplog.text
    shared, other = likeness({"projection": "shared"})
    assert other.projection == "shared"
    assert min(kept, shared) > 0.999, "a projection of equal widths begins as the identity"
    fresh = make_student(teacher, 2, init="none")
    fresh = trainer(tmp_path / "fresh", "tinybert-intermediate", models=(fresh, teacher))
    assert fresh.wrapper.terms["hidden"].projection == "shared"
    narrow = make_student(teacher, 2, hidden_size=12)
    narrow = trainer(tmp_path / "narrow", "tinybert-intermediate", models=(narrow, teacher))
    assert narrow.wrapper.terms["hidden"].projection == "shared"


def test_the_head_alone_is_trained_where_asked(tmp_path):
    student, teacher = pair("tinybert-prediction")
    before = {name: value.clone() for name, value in student.state_dict().items()}
    run = trainer(tmp_path, "tinybert-prediction", models=(student, teacher), train_head_only=True, max_steps=3)
    run.train()
    moved = {name for name, value in student.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"classifier.weight", "classifier.bias"}
    assert all(parameter.requires_grad for parameter in student.parameters())
    with pytest.raises(ValueError, match="`train_head_only` needs a head"):
        trainer(tmp_path / "none", "tinybert-general", train_head_only=True).train()
