"""The MASS family passes the conformance suite of encoder-decoders, generation included."""

import torch

from hf_ptm_ext.models.configuration_mass import MassConfig
from hf_ptm_ext.models.modeling_mass import (
    MassForConditionalGeneration,
    MassForSequenceClassification,
    MassModel,
)
from tests.conformance.encoder_decoder import (
    EncoderDecoderConformance,
    EncoderDecoderGenerationChecks,
    target_labels,
)
from tests.conformance.family import Head, sequence_labels


class MassCase:
    """What every check of the family stands on."""

    config_class = MassConfig
    base_class = MassModel
    heads = (
        Head(MassModel, "AutoModel", None, ("last_hidden_state", "encoder_last_hidden_state"), "encoder"),
        Head(
            MassForConditionalGeneration,
            "AutoModelForSeq2SeqLM",
            target_labels,
            ("logits",),
            "vocabulary",
            task_type="SEQ_2_SEQ_LM",
        ),
        Head(
            MassForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification"},
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
        "bos_token_id": 2,
        "eos_token_id": 3,
        "decoder_start_token_id": 3,
    }


class TestMass(MassCase, EncoderDecoderConformance):
    @torch.no_grad()
    def test_the_last_states_of_the_deeper_side(self):
        head = self.heads[0]
        output = self.model(head, decoder_layers=3)(**self.inputs(head), output_hidden_states=[-1])
        assert [one is None for one in output.decoder_hidden_states] == [True, True, True, False]
        assert [one is None for one in output.encoder_hidden_states] == [True, True, False]


class TestMassGeneration(MassCase, EncoderDecoderGenerationChecks):
    pass
