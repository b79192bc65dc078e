"""The SpanBERT family passes the conformance suite."""

import torch
from datasets import Dataset

from hf_ptm_ext.models.configuration_spanbert import SpanBertConfig
from hf_ptm_ext.models.modeling_spanbert import (
    SpanBertForMaskedLM,
    SpanBertForMultipleChoice,
    SpanBertForPreTraining,
    SpanBertForQuestionAnswering,
    SpanBertForSequenceClassification,
    SpanBertForTokenClassification,
    SpanBertModel,
)
from tests.conformance import EncoderConformance
from tests.conformance.family import (
    Head,
    answer_labels,
    choice_labels,
    masked_lm_labels,
    sequence_labels,
    token_labels,
)


def pretraining_labels(config, inputs, generator):
    """Masked tokens, and in every row but the last two spans with one free slot behind them."""
    first, rows = inputs["attention_mask"].argmax(1), inputs["input_ids"].shape[0]
    boundaries, targets = (
        torch.zeros(rows, 3, 2, dtype=torch.long),
        torch.full((rows, 3, config.max_pair_targets), -100),
    )
    for row in range(rows - 1):
        boundaries[row, 0], boundaries[row, 1] = first[row] + torch.tensor([0, 2]), first[row] + torch.tensor([1, 4])
        targets[row, 0, :1] = 11 + row
        targets[row, 1, :2] = torch.tensor([23, 45])
    labels = masked_lm_labels(config, inputs, generator)
    if config.next_sentence_prediction:
        labels["next_sentence_label"] = torch.arange(rows) % 2
    return {**labels, "span_boundaries": boundaries, "span_labels": targets}


class TestSpanBert(EncoderConformance):
    config_class = SpanBertConfig
    base_class = SpanBertModel
    compiles_shared_heads = True
    heads = (
        Head(SpanBertModel, "AutoModel", None, ("last_hidden_state", "pooler_output"), "encoder"),
        Head(SpanBertForMaskedLM, "AutoModelForMaskedLM", masked_lm_labels, ("logits",), "vocabulary"),
        Head(
            SpanBertForPreTraining,
            "AutoModelForPreTraining",
            pretraining_labels,
            ("prediction_logits", "seq_relationship_logits"),
            "vocabulary",
            config={"next_sentence_prediction": True},
        ),
        Head(
            SpanBertForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification"},
        ),
        Head(
            SpanBertForTokenClassification,
            "AutoModelForTokenClassification",
            token_labels,
            ("logits",),
            "token",
            task_type="TOKEN_CLS",
        ),
        Head(
            SpanBertForQuestionAnswering,
            "AutoModelForQuestionAnswering",
            answer_labels,
            ("start_logits", "end_logits"),
            "span",
            task_type="QUESTION_ANS",
        ),
        Head(SpanBertForMultipleChoice, "AutoModelForMultipleChoice", choice_labels, ("logits",), "choice"),
    )
    config_kwargs = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 32,
        "max_pair_targets": 4,
        "pair_positional_embedding_size": 10,
    }

    def pack_column(self, name, value, offsets):
        """Spans of all sequences side by side, boundaries moved with their tokens; free slots stay at (0, 0)."""
        if name == "span_boundaries":
            value = torch.where(value.any(-1, keepdim=True), value + offsets[:, None, None], 0)
        return value.flatten(0, 1)[None]

    def main_labels(self, batch):
        return {name: value for name, value in batch.items() if name not in self.second_terms}

    def main_columns(self, head: Head, dataset: Dataset) -> list[str]:
        return [name for name in dataset.column_names if name not in self.second_terms]

    def extra_columns(self, head, inputs):
        """Everything else that a head names: one sequence a row, its positions, a label budget."""
        if head.kind == "choice":
            return {"position_ids": torch.arange(9).expand(8, 3, 9)}
        columns = {"position_ids": torch.arange(9).expand(8, 9)}
        if head.kind != "sequence":  # whose logits would be (batch, 1, num_labels) then
            columns["sequence_ids"] = inputs["attention_mask"]
        if head.kind == "vocabulary":
            labels = self.labels(head, inputs)["labels"]
            columns["label_positions"] = self.label_positions(labels, 7)
        return columns

    second_terms = ("span_boundaries", "span_labels", "next_sentence_label")
