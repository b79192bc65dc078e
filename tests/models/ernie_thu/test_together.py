"""Processor, table, collator and model as one: in this process, in one without the package, and over the Hub."""

import json

import pytest
import torch

from hf_ptm_ext import (
    DataCollatorForDenoisingEntities,
    DataCollatorForMaskedLanguageModeling,
    EntityTable,
    ErnieThuConfig,
    ErnieThuForPreTraining,
    ErnieThuProcessor,
)
from hf_ptm_ext.trainers import PreTrainingTrainer
from tests.conformance.trainer import arguments
from tests.hub.checkpoints import run_script, tiny_tokenizer
from tests.hub.loopback_hub import running

TEXTS = ["the light of the harbour", "light mark", "the lighthouses", "harbour"]
NAMES = [f"Q{number}" for number in range(6)]
TABLE_FILE = "entities.safetensors"


def table():
    return EntityTable.from_arrays(torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), NAMES)


def pretraining_model():
    torch.manual_seed(0)
    config = ErnieThuConfig(
        vocab_size=149,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=48,
        entity_hidden_size=8,
        entity_num_attention_heads=2,
    )
    return ErnieThuForPreTraining(config).eval()


def annotated(processor, entities=True):
    """Rows of the texts, the first word of each a mention; none in the last."""
    rows = []
    for number, text in enumerate(TEXTS):
        mention = [(0, len(text.split()[0]), NAMES[number])] if entities and number < 3 else []
        rows.append(dict(processor(text, entities=mention)))
    return rows


def test_a_batch_of_the_collator_is_a_step_of_the_model():
    entities = table()
    processor = ErnieThuProcessor(tiny_tokenizer(), entities)
    collator = DataCollatorForDenoisingEntities(
        processor, mlm=DataCollatorForMaskedLanguageModeling(processor.tokenizer, seed=0), seed=0
    )
    model = pretraining_model().train()
    model.set_entity_table(entities)
    output = model(**collator(annotated(processor)))
    assert output.mlm_loss > 0
    assert output.entity_loss > 0
    output.loss.backward()
    nothing = model(**collator(annotated(processor, entities=False)))
    assert nothing.entity_loss == 0
    assert nothing.loss == nothing.mlm_loss
    # Candidates that the collator makes are those that the model would make of the clean ids.
    model.eval()
    batch = collator(annotated(processor))
    candidates = batch["entity_candidates"].flatten()
    labels = batch["entity_labels"]
    clean = torch.where(labels == -100, -100, candidates[labels.clamp(min=0)])
    own = {name: value for name, value in batch.items() if name != "entity_candidates"}
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).entity_loss, model(**{**own, "entity_labels": clean}).entity_loss)


def test_the_pretraining_trainer_trains_and_evaluates_every_term(tmp_path):
    entities = table()
    processor = ErnieThuProcessor(tiny_tokenizer(), entities)
    collator = DataCollatorForDenoisingEntities(
        processor, mlm=DataCollatorForMaskedLanguageModeling(processor.tokenizer, mlm_probability=0.5, seed=0), seed=0
    )
    model = pretraining_model()
    model.set_entity_table(entities)
    rows = annotated(processor) * 4
    trainer = PreTrainingTrainer(
        model=model,
        args=arguments(tmp_path, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collator,
    )
    trainer.train()
    logged = trainer.state.log_history[0]
    assert logged["loss"] == pytest.approx(logged["mlm_loss"] + logged["entity_loss"], rel=1e-3)
    metrics = trainer.evaluate()
    assert metrics["eval_entity_targets"] == 12
    assert 0 <= metrics["eval_entity_accuracy"] <= 1
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_mlm_loss"] + metrics["eval_entity_loss"], rel=1e-4)


LOAD = """
import json, sys
import torch
from transformers import AutoModelForPreTraining, AutoProcessor

source, options = {source!r}, dict(trust_remote_code=True)
processor = AutoProcessor.from_pretrained(source, **options)
model = AutoModelForPreTraining.from_pretrained(source, **options).eval()
inputs = processor("light mark", entities=[(0, 5, "Q1")], return_tensors="pt")
with torch.no_grad():
    output = model(**inputs)
assert "hf_ptm_ext" not in sys.modules
print(json.dumps([inputs["entity_ids"].tolist(), output.prediction_logits.double().sum().item(),
                  model.entity_table.path]))
"""


def save(folder):
    """Model, table and processor in one folder, as an author uploads them."""
    entities, model = table(), pretraining_model()
    model.set_entity_table(entities, source={"path": TABLE_FILE})
    model.save_pretrained(folder)
    entities.save(folder / TABLE_FILE)
    processor = ErnieThuProcessor(tiny_tokenizer(), entities)
    processor.save_pretrained(folder)
    inputs = processor("light mark", entities=[(0, 5, "Q1")], return_tensors="pt")
    with torch.no_grad():
        return inputs["entity_ids"].tolist(), model(**inputs).prediction_logits.double().sum().item()


def test_a_folder_with_everything_works_without_the_package(tmp_path):
    ids, total = save(tmp_path)
    found = json.loads(run_script(LOAD.format(source=str(tmp_path)), HF_HUB_OFFLINE="1").splitlines()[-1])
    assert found[0] == ids
    assert found[1] == pytest.approx(total, abs=1e-3)
    assert found[2] == str(tmp_path / TABLE_FILE)


UPLOAD = """
from huggingface_hub import HfApi

HfApi().create_repo("tester/ernie")
HfApi().upload_folder(repo_id="tester/ernie", folder_path={folder!r})
"""


@pytest.mark.slow
def test_the_hub_serves_model_processor_and_table(tmp_path):
    """The table is fetched on the first use of ids, at the commit that the model came from."""
    ids, total = save(tmp_path / "model")
    with running() as server:
        environment = server.environment(tmp_path / "home")
        run_script(UPLOAD.format(folder=str(tmp_path / "model")), **environment)
        found = json.loads(run_script(LOAD.format(source="tester/ernie"), **environment).splitlines()[-1])
        assert not [line for line in server.state.log if line.startswith("UNHANDLED")]
    assert found[0] == ids
    assert found[1] == pytest.approx(total, abs=1e-3)
    assert found[2].endswith(TABLE_FILE)
    assert str(tmp_path / "home") in found[2]
