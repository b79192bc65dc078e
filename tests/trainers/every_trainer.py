"""Every Trainer of ours on tiny models and masked rows, built by its name: what holds for all is tested with all.

python -m tests.trainers.every_trainer FOLDER [NAME ...]    train with pushes to the Hub that the environment names
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import get_peft_model
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    Seq2SeqTrainingArguments,
    TrainingArguments,
)

from hf_ptm_ext import HoulsbyConfig, UniLMConfig, UniLMForConditionalGeneration
from hf_ptm_ext.adapters import AdapterTrainer
from hf_ptm_ext.collators import (
    DataCollatorForEntityReplacement,
    DataCollatorForInfoWord,
    DataCollatorForKnowledgeEmbedding,
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForUnicoder,
    DataCollatorForUniLMSeq2Seq,
    EntityCatalogue,
)
from hf_ptm_ext.data import unicoder_rows
from hf_ptm_ext.distillation import DistillationArguments, DistillationTrainer, TheseusArguments, TheseusTrainer
from hf_ptm_ext.trainers import (
    EntityReplacementModel,
    EntityReplacementTrainer,
    InfoWordModel,
    InfoWordTrainer,
    KnowledgeEmbeddingModel,
    KnowledgeEmbeddingTrainer,
    MultiTaskTrainer,
    PreTrainingTrainer,
    PtmSeq2SeqTrainer,
    PtmTrainer,
    Task,
    UnicoderModel,
    UnicoderTrainer,
)
from tests.hub.checkpoints import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
TOKEN = "hf_OfTheUserWhichNobodyElseMayKnow0001"
SETTINGS = {
    "max_steps": 4,
    "save_steps": 2,
    "logging_steps": 1,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "learning_rate": 1e-2,
    "report_to": [],
    "disable_tqdm": True,
    "remove_unused_columns": False,
    "dataloader_pin_memory": False,
    "use_cpu": True,
    "seed": 3,
}


def bert(layers=2, seed=0, **fields):
    """A BERT with dropout, so that the random state of training counts."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 48}
    return BertForMaskedLM(BertConfig(vocab_size=len(TOKENIZER), num_hidden_layers=layers, **sizes, **fields))


def rows(number=20, width=14):
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(5, len(TOKENIZER), (number, width), generator=generator)
    ids[:, 0], ids[:, -1] = TOKENIZER.cls_token_id, TOKENIZER.sep_token_id
    return [{"input_ids": row, "attention_mask": [1] * width} for row in ids.tolist()]


def masking(seed=None):
    """With fresh entropy by default: only a saved state brings its masks back. No batch is without a masked token."""
    return DataCollatorForMaskedLanguageModeling(TOKENIZER, mlm_probability=0.3, seed=seed)


def of_the_trainer(options):
    """Takes the options out that are a Trainer's own, not its arguments'."""
    return {name: options.pop(name) for name in ("callbacks", "nonfinite", "eval_dataset") if name in options}


def plain(trainer_class, collator=None, model=bert, arguments=TrainingArguments):
    def build(folder, **options):
        more = of_the_trainer(options)
        return trainer_class(
            model=model(),
            args=arguments(output_dir=str(folder), **{**SETTINGS, **options}),
            train_dataset=Dataset.from_list(rows()),
            data_collator=masking() if collator is None else collator(),
            processing_class=TOKENIZER,
            **more,
        )

    return build


def seq2seq(folder, **options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = UniLMConfig(
        vocab_size=len(TOKENIZER), max_position_embeddings=48, mask_token_id=4, eos_token_id=3, **sizes
    )
    more = of_the_trainer(options)
    return PtmSeq2SeqTrainer(
        model=UniLMForConditionalGeneration(config),
        args=Seq2SeqTrainingArguments(output_dir=str(folder), **{**SETTINGS, **options}),
        train_dataset=[{"input_ids": row["input_ids"], "labels": row["input_ids"][::-1]} for row in rows()],
        data_collator=DataCollatorForUniLMSeq2Seq(TOKENIZER),
        processing_class=TOKENIZER,
        **more,
    )


def multi_task(folder, **options):
    more = of_the_trainer(options)
    tasks = {name: Task(bert(), train_rows=rows(12), data_collator=masking()) for name in ("first", "second")}
    args = TrainingArguments(output_dir=str(folder), **{**SETTINGS, **options})
    return MultiTaskTrainer(tasks, args, processing_class=TOKENIZER, **more)


def distillation(folder, **options):
    more = of_the_trainer(options)
    args = DistillationArguments(
        output_dir=str(folder), preset="distilbert", teacher_check_rows=0, **{**SETTINGS, **options}
    )
    return DistillationTrainer(
        bert(),
        bert(4, seed=1, initializer_range=0.3),
        args,
        train_dataset=rows(),
        data_collator=masking(),
        processing_class=TOKENIZER,
        **more,
    )


def theseus(folder, **options):
    more = of_the_trainer(options)
    args = TheseusArguments(
        output_dir=str(folder), successor_layers=2, predecessor_check_rows=0, **{**SETTINGS, **options}
    )
    return TheseusTrainer(
        bert(4), args, train_dataset=rows(), data_collator=masking(), processing_class=TOKENIZER, **more
    )


def kepler(folder, **options):
    more = of_the_trainer(options)
    triples = [(head, head % 2, (head + 3) % 8) for head in range(8)]
    collator = DataCollatorForKnowledgeEmbedding(
        TOKENIZER,
        descriptions=["the light of the harbour"] * 8,
        num_relations=2,
        known_triples=triples,
        mlm_collator=masking(),
        max_description_length=12,
    )
    return KnowledgeEmbeddingTrainer(
        model=KnowledgeEmbeddingModel(bert(), 2),
        args=TrainingArguments(output_dir=str(folder), **{**SETTINGS, **options}),
        train_dataset=[{**row, "triple": list(triples[n % 8])} for n, row in enumerate(rows())],
        data_collator=collator,
        processing_class=TOKENIZER,
        **more,
    )


def wklm(folder, **options):
    more = of_the_trainer(options)
    catalogue = EntityCatalogue([["the harbour"], ["light"], ["the lamp"]], [["a"], ["a"], ["a"]], TOKENIZER)
    mentioned = [{**row, "mention_spans": [[2, 4]], "mention_entities": [n % 3]} for n, row in enumerate(rows())]
    return EntityReplacementTrainer(
        model=EntityReplacementModel(bert()),
        args=TrainingArguments(output_dir=str(folder), **{**SETTINGS, **options}),
        train_dataset=[{name: row[name] for name in row if name != "attention_mask"} for row in mentioned],
        data_collator=DataCollatorForEntityReplacement(TOKENIZER, catalogue=catalogue, max_length=40),
        processing_class=TOKENIZER,
        **more,
    )


def unicoder(folder, **options):
    more = of_the_trainer(options)
    pairs = [(row["input_ids"][1:7], row["input_ids"][7:-1]) for row in rows()]
    return UnicoderTrainer(
        model=UnicoderModel(bert()),
        args=TrainingArguments(output_dir=str(folder), **{**SETTINGS, **options}),
        train_dataset=unicoder_rows([pairs], len(TOKENIZER), 20, np.random.default_rng(0)),
        data_collator=DataCollatorForUnicoder(TOKENIZER, languages=(0, 1)),
        processing_class=TOKENIZER,
        **more,
    )


def adapted():
    return get_peft_model(bert(), HoulsbyConfig(modules_to_save=["cls"]))


BUILDERS = {
    "plain": plain(PtmTrainer),
    "upstream_collator": plain(PtmTrainer, lambda: DataCollatorForLanguageModeling(TOKENIZER)),
    "seeded_upstream_collator": plain(PtmTrainer, lambda: DataCollatorForLanguageModeling(TOKENIZER, seed=5)),
    "pretraining": plain(PreTrainingTrainer),
    "seq2seq": seq2seq,
    "multi_task": multi_task,
    "distillation": distillation,
    "theseus": theseus,
    "kepler": kepler,
    "wklm": wklm,
    "infoword": plain(InfoWordTrainer, lambda: DataCollatorForInfoWord(TOKENIZER), lambda: InfoWordModel(bert())),
    "unicoder": unicoder,
    "adapter": plain(AdapterTrainer, model=adapted),
}
CLASSES = [name for name in BUILDERS if "upstream" not in name]


def slow_but(*quick, names=tuple(BUILDERS)):
    """Parameters: the names, all but a few of the slow tier."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def push(folder, names):
    """Train with a push at each save and one at the end, as a job does."""
    for name in names or CLASSES:
        trainer = BUILDERS[name](
            Path(folder) / name,
            push_to_hub=True,
            hub_model_id=f"tester/{name}",
            hub_token=TOKEN,
            hub_strategy="all_checkpoints",
            hub_always_push=True,
        )
        trainer.train()
        trainer.save_state()
        trainer.push_to_hub()


if __name__ == "__main__":
    push(sys.argv[1], sys.argv[2:])
