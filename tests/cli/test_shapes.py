"""Batches of one shape where a model is compiled, of few on a GPU."""

from types import SimpleNamespace

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, BertTokenizerFast, DataCollatorWithPadding

from hf_ptm_ext import DataCollatorForDenoisingEntities, DataCollatorForMaskedLanguageModeling, UniLMConfig
from hf_ptm_ext.cli.seq2seq_arguments import Seq2SeqDataArguments, Seq2SeqObjectiveArguments
from hf_ptm_ext.cli.seq2seq_models import DecoderInputCollator, build_collators
from hf_ptm_ext.cli.shapes import STEP, drop_short_batch, settle_shapes
from hf_ptm_ext.cli.tasks.question_answering import SpanLabels

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
TOKENIZER = BertTokenizerFast(vocab={token: number for number, token in enumerate(SPECIAL)})
ROWS = [{"input_ids": [5] * length} for length in (3, 19, 33)]


def arguments(compiled=False, **fields):
    return SimpleNamespace(torch_compile=compiled, use_cpu=False, **fields)


@pytest.mark.parametrize(
    ("compiled", "cuda", "longest", "width"),
    [
        (False, False, 64, 33),
        (False, True, 64, 48),
        (False, True, 36, 36),
        (True, False, 64, 64),
        (True, True, 50, 50),
    ],
)
def test_rows_are_padded_to_few_lengths(monkeypatch, compiled, cuda, longest, width):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    collator = settle_shapes(DataCollatorWithPadding(TOKENIZER), arguments(compiled), longest)
    assert collator(ROWS)["input_ids"].shape == (3, width)
    assert STEP == 16


def test_what_pads_inside_is_found():
    collator = settle_shapes(SpanLabels(TOKENIZER), arguments(compiled=True), 64)
    rows = [{**row, "start_positions": 0, "end_positions": 1} for row in ROWS]
    assert collator(rows)["input_ids"].shape == (3, 64)
    tokens = DataCollatorForMaskedLanguageModeling(TOKENIZER, seed=0)
    entities = settle_shapes(DataCollatorForDenoisingEntities(TOKENIZER, mlm=tokens), arguments(compiled=True), 64)
    batch = entities([{**row, "entity_ids": [1] * len(row["input_ids"])} for row in ROWS])
    assert batch["input_ids"].shape == batch["entity_ids"].shape == (3, 64)


def test_a_length_that_was_given_stays():
    given = DataCollatorWithPadding(TOKENIZER, pad_to_multiple_of=40)
    assert settle_shapes(given, arguments(compiled=True), 64)(ROWS)["input_ids"].shape == (3, 40)


def test_targets_are_not_padded_to_the_length_of_sources():
    sizes = {
        f"{side}_{size}": 2 for side in ("encoder", "decoder") for size in ("layers", "ffn_dim", "attention_heads")
    }
    model = BartForConditionalGeneration(BartConfig(vocab_size=99, d_model=8, **sizes))
    collator = settle_shapes(DecoderInputCollator(TOKENIZER, model=model), arguments(compiled=True), 64)
    collator.longest_target = 20
    batch = collator([{**row, "labels": row["input_ids"][:20]} for row in ROWS])
    assert batch["input_ids"].shape == (3, 64)
    assert batch["labels"].shape == batch["decoder_input_ids"].shape == (3, 20)
    assert batch["labels"][1].tolist() == [5] * 19 + [-100]


@pytest.mark.parametrize("pseudo_masked", [False, True])
def test_no_shape_of_unilm_depends_on_its_rows(pseudo_masked):
    data = Seq2SeqDataArguments(max_source_length=40, max_target_length=20)
    objective = Seq2SeqObjectiveArguments(pseudo_masked=pseudo_masked)
    model = SimpleNamespace(config=UniLMConfig(type_vocab_size=6))
    training, _ = build_collators(data, objective, TOKENIZER, model, arguments(compiled=True, seed=0))
    rows = [{"source_ids": [5] * length, "target_ids": [5] * (length // 2)} for length in (3, 20, 38)]
    for batch in (training(rows), training(rows[:1] * 3)):
        assert batch["input_ids"].shape == (3, 80 if pseudo_masked else 60)
        assert batch["label_positions"].shape == (3, 24)


def test_a_short_last_batch_is_left_out_of_a_compiled_run_alone():
    for compiled, rows, dropped in ((True, 9, True), (True, 3, False), (False, 9, False)):
        args = arguments(compiled, per_device_train_batch_size=4, world_size=1, dataloader_drop_last=False)
        drop_short_batch(args, range(rows))
        assert args.dataloader_drop_last is dropped
    args.dataloader_drop_last = True
    with pytest.raises(ValueError, match="leaves nothing to train on: 3 rows are fewer than a batch of 4"):
        drop_short_batch(args, range(3))
