"""Named entities with a knowledge graph beside the text: a K-BERT from any BERT, with transformers' own Trainer.

python examples/kbert_ner.py --model google-bert/bert-base-cased --kg examples/data/names.spo
"""

import argparse
from pathlib import Path

from datasets import Dataset
from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments

from hf_ptm_ext import KBertForTokenClassification, KBertTokenizer
from hf_ptm_ext.data import read_tagged_words, to_iob2
from hf_ptm_ext.metrics import SeqEval

DATA = Path(__file__).parent / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="google-bert/bert-base-cased")
    parser.add_argument("--kg", nargs="*", default=[str(DATA / "names.spo")], help="triple files; none for a BERT")
    parser.add_argument("--train", default=str(DATA / "names_train.jsonl"))
    parser.add_argument("--test", default=str(DATA / "names_test.jsonl"))
    parser.add_argument("--output", default="outputs/kbert_ner")
    parser.add_argument("--epochs", type=float, default=10)
    options = parser.parse_args()

    tokenizer = KBertTokenizer.from_pretrained(options.model, kg=options.kg or None)
    sentences = {split: list(read_tagged_words(getattr(options, split))) for split in ("train", "test")}
    tags = {split: [to_iob2(row.tags, "iob1") for row in rows] for split, rows in sentences.items()}
    names = sorted({tag for row in tags["train"] for tag in row})
    encoded = {
        split: tokenizer(
            [row.words for row in rows],
            is_split_into_words=True,
            word_labels=[[names.index(tag) if tag in names else 0 for tag in row] for row in tags[split]],
            truncation=True,
            max_length=128,
        )
        for split, rows in sentences.items()
    }
    model = KBertForTokenClassification.from_pretrained(
        options.model, id2label=dict(enumerate(names)), label2id={name: n for n, name in enumerate(names)}
    )
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
        train_dataset=Dataset.from_dict(dict(encoded["train"])),
        eval_dataset=Dataset.from_dict(dict(encoded["test"])),
        data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()  # model, tokenizer and graph, with their code
    found = trainer.predict(trainer.eval_dataset)
    kept = found.label_ids != -100
    predicted = [
        [names[tag] for tag in row[mask]] for row, mask in zip(found.predictions.argmax(-1), kept, strict=True)
    ]
    truth = [[names[tag] for tag in row[mask]] for row, mask in zip(found.label_ids, kept, strict=True)]
    print({"f1": SeqEval().compute(predictions=predicted, references=truth)["overall_f1"]})


if __name__ == "__main__":
    main()
