"""PEFT's prompt tuning beside inputs that hold places of tokens: refused, as the places would be those of others."""

import pytest
import torch
from peft import PromptTuningConfig, get_peft_model
from transformers import BertConfig

from hf_ptm_ext import (
    KAdapterConfig,
    KAdapterForRelationClassification,
    KAdapterForSequenceClassification,
    MassConfig,
    MassForConditionalGeneration,
    SpanBertConfig,
    SpanBertForPreTraining,
    UniLMConfig,
    UniLMForConditionalGeneration,
    UniLMForSequenceClassification,
    ZenConfig,
    ZenForSequenceClassification,
    ZenModel,
)

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
INSIDE = KAdapterConfig(encoder_config=BertConfig(**SIZES), adapter_layers=[0, 1])
ZEN = ZenConfig(**SIZES, ngram_vocab_size=20, num_hidden_word_layers=1)
UNILM = UniLMConfig(**SIZES, mask_token_id=4, eos_token_id=3)
MASS = MassConfig(vocab_size=60, d_model=32, decoder_start_token_id=3, pad_token_id=0, eos_token_id=3,
                  **{f"{side}_{name}": size for side in ("encoder", "decoder")
                     for name, size in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 64))})  # fmt: skip
IDS = torch.tensor([[2, 7, 8, 9, 10, 3], [2, 7, 11, 3, 0, 0]])
ONE, TWO = torch.tensor([1, 1]), torch.tensor([2, 2])
NGRAMS = {"ngram_ids": ONE[:, None], "ngram_positions": ONE[:, None], "ngram_lengths": TWO[:, None]}
SOURCES = {"lm_mode": torch.tensor([3, 3]), "source_lengths": torch.tensor([3, 2])}
CASES = {
    "n-grams": (ZenForSequenceClassification, ZEN, "SEQ_CLS", NGRAMS),
    "n-grams of the base model": (ZenModel, ZEN, "FEATURE_EXTRACTION", NGRAMS),
    "sources": (UniLMForSequenceClassification, UNILM, "SEQ_CLS", SOURCES),
    "sources of texts to write": (UniLMForConditionalGeneration, UNILM, "CAUSAL_LM", SOURCES),
    "relation": (KAdapterForRelationClassification, INSIDE, "SEQ_CLS",
                 {"subject_positions": ONE, "object_positions": TWO}),
    "entity": (KAdapterForSequenceClassification, INSIDE, "SEQ_CLS", {"entity_positions": ONE}),
    "spans": (SpanBertForPreTraining, SpanBertConfig(**SIZES), "FEATURE_EXTRACTION",
              {"span_boundaries": torch.stack([ONE, TWO + 1], dim=1)[:, None]}),
    "places of targets": (MassForConditionalGeneration, MASS, "SEQ_2_SEQ_LM",
                          {"decoder_input_ids": IDS[:, :2], "decoder_position_ids": torch.tensor([[1, 2], [1, 2]])}),
}  # fmt: skip


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_places_beside_learnt_tokens_are_refused(case, masked):
    cls, config, task, places = CASES[case]
    mask = {"attention_mask": (IDS != 0).long()} if masked else {}
    plain = cls(config).eval()
    embeds = plain.get_input_embeddings()(IDS)
    for one in (mask, {"attention_mask": (IDS != 0).long()}):
        plain(inputs_embeds=embeds, **one, **places)
        plain.requires_grad_(False)
    model = get_peft_model(plain, PromptTuningConfig(task_type=task, num_virtual_tokens=3)).eval()
    name = next(name for name in places if "position" in name or name in ("source_lengths", "span_boundaries"))
    with torch.no_grad(), pytest.raises(ValueError, match=f"`{name}`.*prompt tuning"):
        model(input_ids=IDS, **mask, **places)
