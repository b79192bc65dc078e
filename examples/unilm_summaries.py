"""Summaries with UniLM: one encoder reads the source and writes the target, with ROUGE in mid-training.

hf-ptm-ext convert unilm BERT_FOLDER unilm-bert     # two token types become six
python examples/unilm_summaries.py --model unilm-bert
"""

import argparse
from pathlib import Path

import numpy as np
from datasets import load_dataset
from transformers import AutoTokenizer, Seq2SeqTrainingArguments

from hf_ptm_ext import DataCollatorForUniLMSeq2Seq, PtmSeq2SeqTrainer, UniLMForConditionalGeneration
from hf_ptm_ext.metrics import Rouge

DATA = Path(__file__).parent / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a UniLM, or what `hf-ptm-ext convert unilm` made of a BERT")
    parser.add_argument("--train", default=str(DATA / "summaries_train.jsonl"), help="JSON lines: source and target")
    parser.add_argument("--test", default=str(DATA / "summaries_test.jsonl"))
    parser.add_argument("--output", default="outputs/unilm_summaries")
    parser.add_argument("--epochs", type=float, default=10)
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = UniLMForConditionalGeneration.from_pretrained(options.model)
    data = load_dataset("json", data_files={"train": options.train, "test": options.test})
    rows = data.map(
        lambda row: tokenizer(row["source"], text_target=row["target"], truncation=True, max_length=256),
        remove_columns=["source", "target"],
    )

    def rouge(found: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
        written, references = (
            tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
            for ids in found
        )
        return Rouge().compute(predictions=written, references=references)

    trainer = PtmSeq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            options.output,
            num_train_epochs=options.epochs,
            learning_rate=1e-4,
            per_device_train_batch_size=16,
            predict_with_generate=True,
            generation_max_length=48,  # of the summary alone
            generation_num_beams=1,
            save_strategy="no",
            report_to="none",
            remove_unused_columns=False,
        ),
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        data_collator=DataCollatorForUniLMSeq2Seq(tokenizer, max_len=320, max_len_b=64, seed=0),
        processing_class=tokenizer,
        compute_metrics=rouge,
    )
    trainer.train()
    trainer.save_model()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
