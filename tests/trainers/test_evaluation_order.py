"""Predictions belong to the rows that were given, however training rows are drawn."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from hf_ptm_ext.cli.pretrain_arguments import PretrainingArguments
from hf_ptm_ext.trainers import PtmTrainer


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_predictions_come_in_the_order_of_the_rows(tmp_path, tokenizer, strategy):
    lengths = (3, 9, 4, 17, 5, 12, 6, 20, 7, 15, 8)
    torch.manual_seed(0)
    rows = [{"input_ids": torch.randint(5, 60, (n,)).tolist(), "labels": n % 3} for n in lengths]
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(
        BertConfig(vocab_size=60, num_labels=3, initializer_range=0.5, **shape)
    ).eval()
    args = PretrainingArguments(
        output_dir=str(tmp_path),
        train_sampling_strategy=strategy,
        per_device_eval_batch_size=2,
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    trainer = PtmTrainer(model=model, args=args, train_dataset=rows, processing_class=tokenizer)
    output = trainer.predict(rows)
    assert output.label_ids.tolist() == [row["labels"] for row in rows]
    with torch.no_grad():
        alone = torch.cat([model(torch.tensor([row["input_ids"]])).logits for row in rows])
    torch.testing.assert_close(torch.tensor(output.predictions), alone, atol=1e-5, rtol=1e-5)
