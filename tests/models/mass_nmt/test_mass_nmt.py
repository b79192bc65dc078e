"""The MASS-NMT family passes the conformance suite of encoder-decoders, and what is its own."""

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from hf_ptm_ext.models.mass_nmt.configuration_mass_nmt import MassNmtConfig
from hf_ptm_ext.models.mass_nmt.modeling_mass_nmt import MassNmtForConditionalGeneration, MassNmtModel
from tests.conformance.encoder_decoder import (
    EncoderDecoderConformance,
    EncoderDecoderGenerationChecks,
    target_labels,
)
from tests.conformance.family import Head, assert_same, assert_same_outputs

MASK = 4


class MassNmtCase:
    """What every check of the family stands on: two languages, different from row to row."""

    config_class = MassNmtConfig
    base_class = MassNmtModel
    heads = (
        Head(MassNmtModel, "AutoModel", None, ("last_hidden_state", "encoder_last_hidden_state"), "encoder"),
        Head(
            MassNmtForConditionalGeneration,
            "AutoModelForSeq2SeqLM",
            target_labels,
            ("logits",),
            "vocabulary",
            task_type="SEQ_2_SEQ_LM",
        ),
    )
    config_kwargs = {
        "vocab_size": 99,
        "d_model": 32,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 37,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 41,
        "max_position_embeddings": 48,
        "n_langs": 2,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "pad_token_id": 0,
        "mask_token_id": MASK,
    }
    dropout_fields = ("dropout", "attention_dropout")

    def rows(self, *args, **kwargs):
        rows = super().rows(*args, **kwargs)
        number = torch.arange(len(rows["input_ids"]))
        return {**rows, "langs": number % 2, "decoder_langs": (number + 1) // 2 % 2}


class TestMassNmt(MassNmtCase, EncoderDecoderConformance):
    pass


class TestMassNmtGeneration(MassNmtCase, EncoderDecoderGenerationChecks):
    generation_options = {"0 to 1": {"langs": 0, "decoder_langs": 1}}

    def generator_model(self, *args, **kwargs):
        return super().generator_model(*args, forced_eos_token_id=None, **kwargs)
