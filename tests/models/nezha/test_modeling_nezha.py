"""The NEZHA family passes the conformance suite, without a table of positions."""

import pytest
import torch
from datasets import Dataset

from hf_ptm_ext.models.nezha.configuration_nezha import NezhaConfig
from hf_ptm_ext.models.nezha.modeling_nezha import (
    NezhaForMaskedLM,
    NezhaForMultipleChoice,
    NezhaForNextSentencePrediction,
    NezhaForPreTraining,
    NezhaForQuestionAnswering,
    NezhaForSequenceClassification,
    NezhaForTokenClassification,
    NezhaModel,
)
from tests.conformance import EncoderConformance
from tests.conformance.family import (
    LENGTHS,
    Head,
    answer_labels,
    assert_same,
    choice_labels,
    masked_lm_labels,
    prediction,
    sequence_labels,
    token_labels,
)


def pretraining_labels(config, inputs, generator):
    """Masked tokens and the next sentence."""
    rows = inputs["input_ids"].shape[0]
    return {**masked_lm_labels(config, inputs, generator), "next_sentence_label": torch.arange(rows) % 2}


def pair_labels(config, inputs, generator):
    """Does the second sentence follow?"""
    return {"labels": torch.arange(inputs["input_ids"].shape[0]) % 2}


class TestNezha(EncoderConformance):
    config_class = NezhaConfig
    base_class = NezhaModel
    heads = (
        Head(NezhaModel, "AutoModel", None, ("last_hidden_state", "pooler_output"), "encoder"),
        Head(NezhaForMaskedLM, "AutoModelForMaskedLM", masked_lm_labels, ("logits",), "vocabulary"),
        Head(
            NezhaForPreTraining,
            "AutoModelForPreTraining",
            pretraining_labels,
            ("prediction_logits", "seq_relationship_logits"),
            "vocabulary",
        ),
        Head(
            NezhaForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification"},
        ),
        Head(
            NezhaForNextSentencePrediction, "AutoModelForNextSentencePrediction", pair_labels, ("logits",), "sequence"
        ),
        Head(
            NezhaForTokenClassification,
            "AutoModelForTokenClassification",
            token_labels,
            ("logits",),
            "token",
            task_type="TOKEN_CLS",
        ),
        Head(
            NezhaForQuestionAnswering,
            "AutoModelForQuestionAnswering",
            answer_labels,
            ("start_logits", "end_logits"),
            "span",
            task_type="QUESTION_ANS",
        ),
        Head(NezhaForMultipleChoice, "AutoModelForMultipleChoice", choice_labels, ("logits",), "choice"),
    )
    config_kwargs = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 32,
        "max_relative_position": 3,
    }
    attention_implementations = ("sdpa", "eager")
    unread_fields = frozenset({"hf_ptm_ext_version", "max_position_embeddings"})
    # Copies of another family's heads, which the checks of one forward pass see.
    second_tier_heads = (
        NezhaForMaskedLM,
        NezhaForNextSentencePrediction,
        NezhaForSequenceClassification,
        NezhaForTokenClassification,
        NezhaForQuestionAnswering,
        NezhaForMultipleChoice,
    )

    @torch.no_grad()
    def test_more_tokens_than_positions_are_refused(self):
        """There are no positions: a longer row is as good as any."""
        model = self.model(self.head("encoder"), max_position_embeddings=8)
        assert torch.isfinite(model(torch.full((1, 9), 5)).last_hidden_state).all()

    @torch.no_grad()
    def test_a_packed_sequence_longer_than_the_position_table_is_refused(self, packed_head):
        packed = self.packed(self.inputs(packed_head))
        expected = prediction(packed_head, self.model(packed_head)(**packed))
        model = self.model(packed_head, max_position_embeddings=max(LENGTHS) - 1)
        assert_same(prediction(packed_head, model(**packed)), expected, 0.0)

    @torch.no_grad()
    def test_positions_that_skip_places_are_refused(self, row_head):
        """They would be other distances; padding's numbers say nothing."""
        model, inputs = self.model(row_head), self.inputs(row_head)
        positions = torch.arange(9).expand(3, 9).clone()
        positions[1:, LENGTHS[1] :] = 0
        expected = prediction(row_head, model(**inputs))
        assert_same(prediction(row_head, model(**inputs, position_ids=positions + 3)), expected, 0.0)
        positions[1, 2:] += 1
        with pytest.raises(ValueError, match=r"`position_ids` must rise by 1 .* step of 2 behind token 1 of row 1"):
            model(**inputs, position_ids=positions)

    def main_labels(self, batch):
        return {name: value for name, value in batch.items() if name != "next_sentence_label"}

    def main_columns(self, head: Head, dataset: Dataset) -> list[str]:
        return [name for name in dataset.column_names if name != "next_sentence_label"]

    def extra_columns(self, head, inputs):
        """Everything else that a head names: one sequence a row, its positions, a label budget."""
        if head.kind == "choice":
            return {"position_ids": torch.arange(9).expand(8, 3, 9)}
        columns = {"position_ids": torch.arange(9).expand(8, 9)}
        if head.kind != "sequence":  # whose logits would be (batch, 1, num_labels) then
            columns["sequence_ids"] = inputs["attention_mask"]
        if head.kind == "vocabulary":
            columns["label_positions"] = self.label_positions(self.labels(head, inputs)["labels"], 7)
        return columns
