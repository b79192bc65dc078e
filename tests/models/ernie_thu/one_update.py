"""One update of ERNIE-THU on eight fixed rows, as one process or as several, and an evaluation after it.

python -m tests.models.ernie_thu.one_update FOLDER ROWS_PER_PROCESS ACCUMULATION LABELS
"""

import json
import sys

import torch

from hf_ptm_ext import ErnieThuConfig, ErnieThuForPreTraining
from hf_ptm_ext.trainers import PtmTrainer
from tests.conformance.trainer import arguments

LENGTHS = (12, 9, 7, 14, 5, 10, 6, 8)
ENTITIES = 9


def rows(labels, width=14):
    """Rows of different length, label and entity number; the second half of them has hardly any entity.

    Args:
        labels: "ids" (each batch makes its own candidates) or "indices" (into all entities).
        width: of every row.
    """
    generator = torch.Generator().manual_seed(3)
    result = []
    for number, length in enumerate(LENGTHS):
        ids = torch.randint(5, 60, (width,), generator=generator)
        mask = (torch.arange(width) < length).long()
        tokens, entities = torch.full((width,), -100), torch.zeros(width, dtype=torch.long)
        tokens[2 : 3 + length // 4] = ids[2 : 3 + length // 4]
        present = 4 - number if number < 4 else 1 if number == 6 else 0
        entities[1 : 1 + present] = torch.randint(1, ENTITIES, (present,), generator=generator)
        row = {
            "input_ids": ids * mask,
            "attention_mask": mask,
            "entity_ids": torch.where(torch.arange(width) % 3 == 0, 0, entities),  # some are removed
            "labels": tokens,
            "next_sentence_label": torch.tensor(-100 if number == 5 else number % 2),
            "entity_labels": entities,
        }
        if labels == "indices":
            row["entity_labels"] = torch.where(entities > 0, entities, -100)
            row["entity_candidates"] = torch.arange(ENTITIES)
        result.append(row)
    return result


def one_update(folder, batch, accumulation, labels):
    torch.manual_seed(0)
    config = ErnieThuConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        entity_hidden_size=8,
        entity_num_attention_heads=2,
        entity_embeddings_in_checkpoint=True,
        entity_vocab_size=ENTITIES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    seen = []
    trainer = PtmTrainer(
        model=ErnieThuForPreTraining(config),
        args=arguments(
            folder,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=1,
            gradient_accumulation_steps=accumulation,
            remove_unused_columns=False,
            # Every parameter that is not frozen gets a gradient in every process.
            ddp_find_unused_parameters=False,
        ),
        train_dataset=rows(labels),
        eval_dataset=rows(labels),
        data_collator=torch.utils.data.default_collate,
        compute_metrics=lambda result: seen.append(result.predictions.shape) or {},
    )
    trainer.train()
    metrics = trainer.evaluate()
    return trainer, {"eval_loss": metrics["eval_loss"], "shapes": seen}


if __name__ == "__main__":
    run, evaluation = one_update(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    if run.is_world_process_zero():
        model = run.accelerator.unwrap_model(run.model)
        logged = {name: value for name, value in run.state.log_history[0].items() if name.endswith("loss")}
        weights = {name: value.flatten()[:50].tolist() for name, value in model.named_parameters()}
        print("RESULT" + json.dumps({"logged": logged, "weights": weights, **evaluation}))
