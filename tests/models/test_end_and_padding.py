"""An end token that is the padding token is refused in training: hidden as padding, it would never be learnt."""

import pytest
import torch
from transformers import BertTokenizerFast

from hf_ptm_ext import (
    DataCollatorForMassPreTraining,
    DataCollatorForUniLMSeq2Seq,
    MassConfig,
    MassForConditionalGeneration,
    MassNmtConfig,
    MassNmtForConditionalGeneration,
    UniLMConfig,
    UniLMForConditionalGeneration,
)

SIDES = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
FAMILIES = {
    "mass": (MassForConditionalGeneration, MassConfig, {"d_model": 16, "decoder_start_token_id": 3, **SIDES}),
    "mass_nmt": (MassNmtForConditionalGeneration, MassNmtConfig, {"d_model": 16, **SIDES}),
    "unilm": (
        UniLMForConditionalGeneration,
        UniLMConfig,
        {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_models_refuse_it(family):
    model_class, config_class, sizes = FAMILIES[family]
    model = model_class(config_class(vocab_size=30, pad_token_id=3, eos_token_id=[5, 3], **sizes))
    batch = {"input_ids": torch.tensor([[7, 8, 3]]), "labels": torch.tensor([[8, 7, 3]])}
    if family == "mass_nmt":
        batch |= {"langs": torch.tensor([0]), "decoder_langs": torch.tensor([1])}
    with pytest.raises(ValueError, match="`pad_token_id` must not be `eos_token_id`"):
        model(**batch)
    model.config.eos_token_id = 5
    assert model(**batch).loss.isfinite()


@pytest.mark.parametrize("collator", [DataCollatorForMassPreTraining, DataCollatorForUniLMSeq2Seq])
def test_collators_refuse_it(collator):
    vocab = {token: number for number, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])}
    collator(BertTokenizerFast(vocab=vocab))
    with pytest.raises(ValueError, match="padding token that is not its end token"):
        collator(BertTokenizerFast(vocab=vocab, pad_token="[SEP]"))
