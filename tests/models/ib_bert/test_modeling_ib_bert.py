"""The IB-BERT family passes the conformance suite."""

import torch
from datasets import Dataset

from hf_ptm_ext.models.configuration_ib_bert import IBBertConfig
from hf_ptm_ext.models.modeling_ib_bert import (
    IBBertForMaskedLM,
    IBBertForMultipleChoice,
    IBBertForNextSentencePrediction,
    IBBertForPreTraining,
    IBBertForQuestionAnswering,
    IBBertForSequenceClassification,
    IBBertForTokenClassification,
    IBBertModel,
)
from tests.conformance import EncoderConformance
from tests.conformance.family import (
    Head,
    answer_labels,
    assert_same,
    choice_labels,
    masked_lm_labels,
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


class TestIBBert(EncoderConformance):
    config_class = IBBertConfig
    base_class = IBBertModel
    heads = (
        Head(IBBertModel, "AutoModel", None, ("last_hidden_state", "pooler_output"), "encoder"),
        Head(IBBertForMaskedLM, "AutoModelForMaskedLM", masked_lm_labels, ("logits",), "vocabulary"),
        Head(
            IBBertForPreTraining,
            "AutoModelForPreTraining",
            pretraining_labels,
            ("prediction_logits", "seq_relationship_logits"),
            "vocabulary",
        ),
        Head(
            IBBertForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification"},
        ),
        Head(
            IBBertForNextSentencePrediction, "AutoModelForNextSentencePrediction", pair_labels, ("logits",), "sequence"
        ),
        Head(
            IBBertForTokenClassification,
            "AutoModelForTokenClassification",
            token_labels,
            ("logits",),
            "token",
            task_type="TOKEN_CLS",
        ),
        Head(
            IBBertForQuestionAnswering,
            "AutoModelForQuestionAnswering",
            answer_labels,
            ("start_logits", "end_logits"),
            "span",
            task_type="QUESTION_ANS",
        ),
        Head(IBBertForMultipleChoice, "AutoModelForMultipleChoice", choice_labels, ("logits",), "choice"),
    )
    config_kwargs = {
        "vocab_size": 99,
        "hidden_size": 32,
        "intra_bottleneck_size": 48,
        "embedding_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 32,
    }
    # Copies of another family's heads, which the checks of one forward pass see.
    second_tier_heads = (
        IBBertForMaskedLM,
        IBBertForNextSentencePrediction,
        IBBertForSequenceClassification,
        IBBertForTokenClassification,
        IBBertForQuestionAnswering,
        IBBertForMultipleChoice,
    )

    def with_finished_mask(self, inputs, mask):
        return {**inputs, "attention_mask": mask, "sequence_ids": inputs["attention_mask"]}

    @torch.no_grad()
    def test_a_finished_mask_goes_through(self):
        """It does not say which neighbours are padding: `sequence_ids` do."""
        head = self.head("encoder")
        inputs = self.inputs(head)
        length = inputs["input_ids"].shape[1]
        mask = inputs["attention_mask"].bool()[:, None, None].expand(-1, -1, length, -1)
        additive = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
        for attention, finished in (("sdpa", mask), ("sdpa", additive), ("eager", additive)):
            model = self.model(head, attention)
            changed = {**inputs, "attention_mask": finished, "sequence_ids": inputs["attention_mask"]}
            got = model(**changed).last_hidden_state
            real = inputs["attention_mask"].bool()
            assert_same(got[real], model(**inputs).last_hidden_state[real], 1e-5)

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
