"""Distil a fine-tuned classifier TinyBERT's way: hidden states and attention first, then its predictions.

python examples/tinybert.py --teacher FOLDER_OF_A_CLASSIFIER --layers 4 --hidden_size 312
"""

import argparse
from pathlib import Path

from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

from hf_ptm_ext.distillation import DistillationArguments, DistillationTrainer, make_student

DATA = Path(__file__).parent / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True, help="a classifier that knows the labels of the data")
    parser.add_argument("--train", default=str(DATA / "reviews_train.jsonl"), help="JSON lines with text and label")
    parser.add_argument("--test", default=str(DATA / "reviews_test.jsonl"))
    parser.add_argument("--output", default="outputs/tinybert")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden_size", type=int, default=312)
    parser.add_argument("--epochs", type=float, nargs=2, default=[10, 5], help="of the two stages")
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(options.teacher)
    teacher = AutoModelForSequenceClassification.from_pretrained(options.teacher)
    data = load_dataset("json", data_files={"train": options.train, "test": options.test})
    rows = data.map(
        lambda row: {
            **tokenizer(row["text"], truncation=True, max_length=64),
            "labels": teacher.config.label2id[row["label"]],
        },
        remove_columns=["text", "label"],
    )
    student = make_student(teacher, layers=options.layers, hidden_size=options.hidden_size)
    print(student.student_report.summary())
    for preset, epochs in zip(("tinybert-intermediate", "tinybert-prediction"), options.epochs, strict=True):
        trainer = DistillationTrainer(
            student,
            teacher,
            DistillationArguments(
                output_dir=f"{options.output}/{preset}",
                preset=preset,
                num_train_epochs=epochs,
                learning_rate=5e-5 if preset == "tinybert-intermediate" else 2e-5,
                per_device_train_batch_size=32,
                save_strategy="no",
                report_to="none",
            ),
            train_dataset=rows["train"],
            eval_dataset=rows["test"],
            data_collator=DataCollatorWithPadding(tokenizer),
            processing_class=tokenizer,
            compute_metrics=lambda found: {
                "accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())
            },
        )
        trainer.train()
    trainer.save_model(options.output)  # the plain student
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
