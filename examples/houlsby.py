"""Train Houlsby adapters on a classifier: 1 % of the weights, with PEFT and transformers' own Trainer.

python examples/houlsby.py --model google-bert/bert-base-uncased
"""

import argparse
from pathlib import Path

from datasets import load_dataset
from peft import get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from hf_ptm_ext import HoulsbyConfig  # importing the package is what makes PEFT know the method

DATA = Path(__file__).parent / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="google-bert/bert-base-uncased")
    parser.add_argument("--train", default=str(DATA / "reviews_train.jsonl"), help="JSON lines with text and label")
    parser.add_argument("--test", default=str(DATA / "reviews_test.jsonl"))
    parser.add_argument("--output", default="outputs/houlsby")
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    options = parser.parse_args()

    data = load_dataset("json", data_files={"train": options.train, "test": options.test})
    labels = sorted(set(data["train"]["label"]))
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    rows = data.map(
        lambda row: {**tokenizer(row["text"], truncation=True, max_length=64), "labels": labels.index(row["label"])},
        remove_columns=["text", "label"],
    )
    model = AutoModelForSequenceClassification.from_pretrained(
        options.model, id2label=dict(enumerate(labels)), label2id={label: n for n, label in enumerate(labels)}
    )
    model = get_peft_model(model, HoulsbyConfig(task_type="SEQ_CLS", reduction_factor=16))
    model.print_trainable_parameters()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            options.output,
            num_train_epochs=options.epochs,
            learning_rate=options.learning_rate,
            per_device_train_batch_size=32,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )
    trainer.train()
    model.save_pretrained(options.output)  # the adapter, its LayerNorms and the new head alone
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
