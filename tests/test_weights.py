"""Tables that grow with a vocabulary: wherever a model has a row for each piece, and nothing else."""

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
    XLMConfig,
    XLMWithLMHeadModel,
)

from hf_ptm_ext import (
    IBBertConfig,
    IBBertForPreTraining,
    MassConfig,
    MassForConditionalGeneration,
    SpanBertConfig,
    SpanBertForPreTraining,
    UniLMConfig,
    UniLMForPreTraining,
)
from hf_ptm_ext.weights import extend_embeddings

ENCODER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
SEQ2SEQ = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    **HEADS,
}
BOTTLENECK = {
    "num_hidden_layers": 1,
    "embedding_size": 8,
    "hidden_size": 32,
    "intra_bottleneck_size": 16,
    "intermediate_size": 16,
}
T5 = {"d_model": 16, "d_ff": 16, "num_layers": 1, "d_kv": 4, "num_heads": 2, "tie_word_embeddings": False}
# Rows of the table, which a checkpoint may have more of than its tokenizer pieces; class, config, tensors that grow.
MODELS = [
    (60, BertForMaskedLM, BertConfig, ENCODER, 4),
    (64, BertForMaskedLM, BertConfig, ENCODER, 4),
    (60, RobertaForMaskedLM, RobertaConfig, ENCODER, 4),
    (60, ElectraForMaskedLM, ElectraConfig, {"embedding_size": 8, **ENCODER}, 3),
    (60, ElectraForPreTraining, ElectraConfig, {"embedding_size": 8, **ENCODER}, 1),
    (60, XLMWithLMHeadModel, XLMConfig, {"emb_dim": 16, "n_layers": 1, "n_heads": 2}, 3),
    (60, BartForConditionalGeneration, BartConfig, SEQ2SEQ, 5),
    (64, T5ForConditionalGeneration, T5Config, T5, 4),
    (60, SpanBertForPreTraining, SpanBertConfig, ENCODER, 7),
    (60, UniLMForPreTraining, UniLMConfig, ENCODER, 4),
    (60, IBBertForPreTraining, IBBertConfig, BOTTLENECK, 5),
    (60, MassForConditionalGeneration, MassConfig, SEQ2SEQ, 4),
]
SOURCES = [(6, 7), (8, 9, 9), (5,)]
SHARES = [{6: 1 / 2, 7: 1 / 2}, {8: 1 / 3, 9: 2 / 3}, {5: 1}]


@pytest.mark.parametrize(("rows", "cls", "config", "sizes", "grown"), MODELS)
def test_new_pieces_begin_as_the_mean_of_their_parts(rows, cls, config, sizes, grown):
    torch.manual_seed(0)
    model = cls(config(vocab_size=rows, **sizes))
    for name, value in model.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(value)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    extend_embeddings(model, 60, SOURCES)
    found = 0
    for name, value in model.state_dict().items():
        changed = [dim for dim, size in enumerate(value.shape) if size != before[name].shape[dim]]
        if not changed:
            assert torch.equal(value, before[name]), name
            continue
        found += 1
        new, old = value.movedim(changed[0], 0), before[name].movedim(changed[0], 0)
        assert new.shape[0] == 63
        assert torch.equal(new[:60], old[:60]), name
        for row, shares in zip(new[60:], SHARES, strict=True):
            torch.testing.assert_close(row, sum(share * old[part] for part, share in shares.items()))
    assert found == grown
    assert model.config.vocab_size == 63


def test_a_piece_of_itself_is_refused():
    model = BertForMaskedLM(BertConfig(vocab_size=60, **ENCODER))
    with pytest.raises(ValueError, match="below `first_id` = 60, got 61"):
        extend_embeddings(model, 60, [(6, 61)])
