"""Continue the pre-training of a BERT as a SpanBERT, with transformers' own Trainer.

python examples/spanbert.py --model google-bert/bert-base-cased --text corpus.txt --max_steps 1000
"""

import argparse

from datasets import Dataset
from transformers import AutoTokenizer, Trainer, TrainingArguments

from hf_ptm_ext import DataCollatorForSpanMasking, SpanBertForPreTraining
from hf_ptm_ext.data import embedded_corpus, held_out_split, pretraining_dataset, read_documents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="google-bert/bert-base-cased", help="any BERT or SpanBERT")
    parser.add_argument("--text", nargs="+", help="a sentence a line, blank lines between documents")
    parser.add_argument("--output", default="outputs/spanbert")
    parser.add_argument("--max_steps", type=int, default=1000)
    parser.add_argument("--max_seq_length", type=int, default=128)
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    # Only the vocabulary head and the boundary head may be new; `from_pretrained` says which are.
    model = SpanBertForPreTraining.from_pretrained(options.model)
    documents = list(read_documents(options.text)) if options.text else embedded_corpus("en")
    train, held_out = (
        Dataset.from_list(list(pretraining_dataset(part, tokenizer, max_seq_length=options.max_seq_length)))
        for part in held_out_split(documents, 0.1)
    )
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            options.output,
            max_steps=options.max_steps,
            learning_rate=1e-4,
            warmup_steps=0.1,
            per_device_train_batch_size=16,
            eval_strategy="steps",
            eval_steps=max(options.max_steps // 4, 1),
            logging_steps=max(options.max_steps // 10, 1),
            save_strategy="no",
            report_to="none",
            # What the collator makes: span_boundaries and span_labels are labels too.
            label_names=["labels", "span_labels"],
        ),
        train_dataset=train,
        eval_dataset=held_out,
        data_collator=DataCollatorForSpanMasking(tokenizer, seed=0),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()  # with the code: loads by the Auto classes where this package is not installed
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
