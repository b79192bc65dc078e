"""Relations between entities with ERNIE-THU: entity vectors of a knowledge graph beside the tokens of any BERT.

python examples/ernie_thu_relations.py --model google-bert/bert-base-uncased
"""

import argparse
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

from hf_ptm_ext import EntityTable, ErnieThuForSequenceClassification, ErnieThuProcessor
from hf_ptm_ext.data import RelationExample, read_relation_examples

DATA = Path(__file__).parent / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="google-bert/bert-base-uncased", help="a BERT or an ERNIE-THU")
    parser.add_argument("--entities", default=str(DATA / "entities.safetensors"))
    parser.add_argument("--train", default=str(DATA / "relations_train.jsonl"))
    parser.add_argument("--test", default=str(DATA / "relations_test.jsonl"))
    parser.add_argument("--output", default="outputs/ernie_thu_relations")
    parser.add_argument("--epochs", type=float, default=10)
    options = parser.parse_args()

    examples = {split: read_relation_examples(getattr(options, split)) for split in ("train", "test")}
    labels = sorted({example.label for example in examples["train"]})
    table = EntityTable.from_file(options.entities)
    processor = ErnieThuProcessor(AutoTokenizer.from_pretrained(options.model), table, on_unknown_entity="ignore")
    model = ErnieThuForSequenceClassification.from_pretrained(
        options.model,
        entity_hidden_size=table.dim,
        id2label=dict(enumerate(labels)),
        label2id={label: n for n, label in enumerate(labels)},
    )
    processor.add_markers(model)  # what stands around the two mentions, if the vocabulary lacks it
    model.set_entity_table(table, source={"path": "entity_table.safetensors"})  # saved with the model

    def encode(example: RelationExample) -> dict[str, Any]:
        mentions = [{"start": one.start, "end": one.end, "id": one.id} for one in example.entities]
        head, tail = ((one.start, one.end) for one in (example.head, example.tail))
        inputs = processor(
            example.text, entities=mentions, task="relation", head=head, tail=tail, truncation=True, max_length=128
        )
        return {**inputs, "labels": labels.index(example.label)}

    rows = {split: [encode(example) for example in found] for split, found in examples.items()}
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            options.output,
            num_train_epochs=options.epochs,
            learning_rate=5e-5,
            per_device_train_batch_size=16,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        data_collator=DataCollatorWithPadding(processor),
        processing_class=processor,
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )
    trainer.train()
    trainer.save_model()  # model, table, processor and their code
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
