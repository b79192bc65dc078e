"""Trainers take a folder or a repository of the Hub for a model: its class, its tokenizer, none of its code."""

import json

import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForMaskedLM, TrainingArguments

from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining
from hf_ptm_ext.distillation import DistillationArguments, DistillationTrainer, TheseusArguments, TheseusTrainer
from hf_ptm_ext.trainers import (
    EntityReplacementModel,
    KnowledgeEmbeddingModel,
    MultiTaskTrainer,
    PreTrainingTrainer,
    PtmTrainer,
    Task,
)
from tests.trainers.every_trainer import SETTINGS, TOKENIZER, bert, masking, rows


@pytest.fixture
def folder(tmp_path):
    bert().save_pretrained(tmp_path / "bert")
    TOKENIZER.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def arguments(folder, cls=TrainingArguments, **options):
    return cls(output_dir=str(folder), **{**SETTINGS, "max_steps": 1, **options})


@pytest.mark.parametrize("cls", [PtmTrainer, PreTrainingTrainer])
def test_a_folder_is_as_good_as_its_model(folder, tmp_path, cls):
    losses = []
    for model in (str(folder), BertForMaskedLM.from_pretrained(folder)):
        torch.manual_seed(0)
        trainer = cls(
            model, arguments(tmp_path), train_dataset=Dataset.from_list(rows()), data_collator=masking(seed=1)
        )
        losses.append(trainer.train().training_loss)
    assert losses[0] == losses[1]


def test_the_class_and_the_tokenizer_are_those_of_the_folder(folder, tmp_path):
    config = SpanBertConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    SpanBertForPreTraining(config).to(torch.bfloat16).save_pretrained(folder)
    trainer = PreTrainingTrainer(model=folder, args=arguments(tmp_path), data_collator=masking())
    assert type(trainer.model) is SpanBertForPreTraining
    assert trainer.model.dtype == torch.float32
    assert trainer.processing_class.get_vocab() == TOKENIZER.get_vocab()
    mine = PreTrainingTrainer(
        model=folder, args=arguments(tmp_path), data_collator=masking(), processing_class=TOKENIZER
    )
    assert mine.processing_class is TOKENIZER


def test_student_and_teachers_may_be_folders(folder, tmp_path):
    args = arguments(tmp_path, DistillationArguments, preset="distilbert", teacher_check_rows=0)
    other = tmp_path / "other"
    bert(seed=1).save_pretrained(other)
    trainer = DistillationTrainer(folder, str(other), args, train_dataset=rows(), data_collator=masking())
    assert trainer.processing_class is not None
    assert torch.isfinite(torch.tensor(trainer.train().training_loss))
    args = arguments(tmp_path, DistillationArguments, preset="soft-labels", teacher_check_rows=0)
    several = DistillationTrainer(folder, [other, str(folder)], args, train_dataset=rows(), data_collator=masking())
    assert len(several.wrapper.teachers.models) == 2


def test_a_predecessor_and_tasks_may_be_folders(folder, tmp_path):
    args = arguments(tmp_path, TheseusArguments, successor_layers=1, predecessor_check_rows=0)
    assert TheseusTrainer(
        folder, args, train_dataset=rows(), data_collator=masking()
    ).successor.config.num_hidden_layers
    tasks = {name: Task(folder, train_rows=rows(8), data_collator=masking()) for name in ("first", "second")}
    assert MultiTaskTrainer(tasks, arguments(tmp_path), processing_class=TOKENIZER).train().training_loss > 0


def test_models_with_further_parameters_begin_with_a_folder(folder):
    weights = BertForMaskedLM.from_pretrained(folder).state_dict()
    for wrapped in (KnowledgeEmbeddingModel(folder, 2), EntityReplacementModel(str(folder))):
        assert all(torch.equal(value, weights[name]) for name, value in wrapped.model.state_dict().items())


def test_code_that_a_checkpoint_carries_is_not_run(folder, tmp_path):
    config = {"model_type": "strange", "architectures": ["Strange"], "auto_map": {"AutoConfig": "strange.Strange"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "strange.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n", encoding="utf-8")
    with pytest.raises(ValueError, match="trust_remote_code"):
        PtmTrainer(folder, arguments(tmp_path))
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_without_a_class_says_what_to_pass(folder, tmp_path):
    BertConfig(vocab_size=20).save_pretrained(folder)
    with pytest.raises(ValueError, match=r"`architectures` = None\): load it by the Auto class of your task"):
        PtmTrainer(folder, arguments(tmp_path))
