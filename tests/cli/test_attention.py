"""The attention that a job chooses, what it says of it, and packed rows that are longer than their texts."""

import numpy as np
import pytest

from hf_ptm_ext import NezhaConfig, NezhaForMaskedLM, SpanBertConfig, SpanBertForPreTraining
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.attention import LONGEST_DENSE_ROW, settle_attention
from hf_ptm_ext.cli.pretrain import Pretrain, parse
from tests.cli.jobs import flags

LONG = 8 * LONGEST_DENSE_ROW
SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def spanbert(dropout=0.0):
    return SpanBertForPreTraining(SpanBertConfig(**SIZES, attention_probs_dropout_prob=dropout))


@pytest.mark.parametrize(
    ("model", "length", "device", "attention", "why"),
    [
        (spanbert, LONG, "cuda", "flex_attention", "packed rows of 4,096"),
        (spanbert, LONGEST_DENSE_ROW, "cuda", "sdpa", "packed rows of 512"),
        (spanbert, LONG, "cpu", "sdpa", "packed rows of 4,096 on a CPU"),
        (spanbert, None, "cuda", "sdpa", "rows are not packed"),
        (lambda: spanbert(0.1), LONG, "cuda", "sdpa", "with attention dropout 0.1; without it flex_attention"),
        (
            lambda: NezhaForMaskedLM(NezhaConfig(**SIZES, attention_probs_dropout_prob=0.0)),
            LONG,
            "cuda",
            "sdpa",
            "NezhaForMaskedLM has no flex_attention",
        ),
    ],
)
def test_long_packed_rows_get_flex_attention_where_it_can_be(model, length, device, attention, why):
    built = model()
    assert settle_attention(built, None, length, device).endswith(why)
    assert built.config._attn_implementation == built.base_model.config._attn_implementation == attention


def test_what_is_asked_for_stays():
    model = spanbert()
    assert settle_attention(model, "sdpa", LONG, "cuda") == "as asked"
    assert model.config._attn_implementation == "sdpa"
    with pytest.raises(ValueError, match=r"flex_attention has no attention dropout.*is 0.1: add --config_"):
        settle_attention(spanbert(0.1), "flex_attention", 512, "cuda")


@pytest.mark.parametrize(("streaming", "paired"), [(False, False), (True, False), (False, True)])
def test_rows_hold_many_texts_that_fit_the_table_of_positions(tmp_path, streaming, paired):
    values = {"pack_rows": True, "max_seq_length": 32, "row_length": 2048, "max_steps": 1, "save_strategy": "no"}
    values |= {"per_device_train_batch_size": 1, "max_eval_rows": 1, "streaming": streaming, "torch_compile": True}
    values |= {"next_sentence_prediction": paired, "output_dir": tmp_path}
    job = Pretrain(*parse(flags(**values)))
    job.prepare()
    trainer, _ = job.build(*job.variants, job.training_args)
    assert trainer.model.config.max_position_embeddings == 512
    batch = next(iter(trainer.get_train_dataloader()))
    ids = batch["sequence_ids"][0].numpy()
    lengths = np.bincount(ids)[1:]
    assert ids.shape == (2048,)
    assert lengths.max() <= 32
    assert np.count_nonzero(ids) > 0.75 * 2048
    assert len(lengths) > 16
    assert batch["position_ids"].max() == lengths.max() - 1
    hidden = batch["labels"][0].numpy() != -100
    assert 0.1 * np.count_nonzero(ids) < hidden.sum() <= batch["label_positions"].shape[1]
    # Both ends of a pair are of one sequence.
    pairs = batch["span_boundaries"][0][(batch["span_labels"][0] != -100).any(-1)].numpy()
    assert len(pairs) > 16
    assert (ids[pairs[:, 0]] == ids[pairs[:, 1]]).all()


def test_the_attention_and_its_reason_are_told_once(tmp_path, caplog):
    words = flags(pack_rows=True, row_length=128, max_steps=1, output_dir=tmp_path)
    assert main(["pretrain", *words]) == 0
    (line,) = [record.message for record in caplog.records if "attention" in record.message]
    assert "attention sdpa (packed rows of 128 on a CPU)" in line


@pytest.mark.parametrize("words", [["--row_length", "512"], ["--row_length", "32", "--pack_rows", "true"]])
def test_a_row_length_that_is_none_is_refused(words, capsys):
    assert main(["pretrain", "--max_seq_length", "64", *words]) == 2
    assert "`row_length` must be that of packed rows (--pack_rows true), at least `max_se" in capsys.readouterr().err
