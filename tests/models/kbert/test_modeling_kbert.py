"""The K-BERT family passes the conformance suite."""

import torch

from hf_ptm_ext.models.configuration_kbert import KBertConfig
from hf_ptm_ext.models.modeling_kbert import (
    KBertForMaskedLM,
    KBertForMultipleChoice,
    KBertForPreTraining,
    KBertForQuestionAnswering,
    KBertForSequenceClassification,
    KBertForTokenClassification,
    KBertModel,
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
    """Masked tokens and the next sentence."""
    sentences = torch.arange(len(inputs["input_ids"])) % 2
    return {**masked_lm_labels(config, inputs, generator), "next_sentence_label": sentences}


def knowledge(config, inputs):
    """Tokens 2 and 3 hang on the second token, token 4 is another branch of it."""
    branches = torch.zeros_like(inputs["input_ids"])
    branches[:, 2:4], branches[:, 4] = 1, 2
    words = (branches == 0).long().cumsum(1) - 1
    padding = inputs["attention_mask"] == 0
    return {"word_index": words.masked_fill(padding, -1), "branch_id": branches.masked_fill(padding, -1)}


def knowledge_that_says_padding(config, inputs):
    """No mask: -1 is padding."""
    return {**knowledge(config, inputs), "attention_mask": None}


def packed_knowledge(config, inputs):
    """Two sequences in a row, each with its own tree."""
    sequence_ids = inputs["attention_mask"].clone()
    sequence_ids[0, 5:] = 2
    return {**knowledge(config, inputs), "attention_mask": None, "sequence_ids": sequence_ids}


class TestKBert(EncoderConformance):
    test_inductor = None  # whole graphs are enough: their kernels are torch's
    config_class = KBertConfig
    base_class = KBertModel
    heads = (
        Head(KBertModel, "AutoModel", None, ("last_hidden_state", "pooler_output"), "encoder"),
        Head(KBertForMaskedLM, "AutoModelForMaskedLM", masked_lm_labels, ("logits",), "vocabulary"),
        Head(
            KBertForPreTraining,
            "AutoModelForPreTraining",
            pretraining_labels,
            ("prediction_logits", "seq_relationship_logits"),
            "vocabulary",
        ),
        Head(
            KBertForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification", "pooling": "mean"},
        ),
        Head(
            KBertForTokenClassification,
            "AutoModelForTokenClassification",
            token_labels,
            ("logits",),
            "token",
            task_type="TOKEN_CLS",
        ),
        Head(
            KBertForQuestionAnswering,
            "AutoModelForQuestionAnswering",
            answer_labels,
            ("start_logits", "end_logits"),
            "span",
            task_type="QUESTION_ANS",
        ),
        Head(
            KBertForMultipleChoice,
            "AutoModelForMultipleChoice",
            choice_labels,
            ("logits",),
            "choice",
            config={"pooling": "max"},
        ),
    )
    config_kwargs = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 32,
    }
    # Copies of another family's heads but for the encoder's inputs, which the checks of one forward pass see.
    second_tier_heads = (
        KBertForMaskedLM,
        KBertForTokenClassification,
        KBertForQuestionAnswering,
        KBertForMultipleChoice,
    )
    structured_inputs = {
        "knowledge": knowledge,
        "knowledge without a mask": knowledge_that_says_padding,
        "packed knowledge": packed_knowledge,
    }

    tree = False

    def rows(self, *arguments, **more):
        rows = super().rows(*arguments, **more)
        return {**rows, **knowledge(None, rows)} if self.tree else rows

    def test_all_heads_in_a_process_without_the_package(self, tmp_path):
        """With knowledge, which the code beside a checkpoint must read as the package's does."""
        self.tree = True
        super().test_all_heads_in_a_process_without_the_package(tmp_path)

    def main_labels(self, batch):
        return {name: value for name, value in batch.items() if name != "next_sentence_label"}

    def main_columns(self, head, dataset):
        return [name for name in dataset.column_names if name != "next_sentence_label"]

    def extra_columns(self, head, inputs):
        """Everything else that a head names."""
        positions = torch.arange(9)
        if head.kind == "choice":
            shape = inputs["input_ids"].shape
            trunk = {"word_index": positions.expand(shape), "branch_id": torch.zeros(shape, dtype=torch.long)}
            return {**trunk, "position_ids": positions.expand(shape)}
        columns = {**knowledge(None, inputs), "position_ids": positions.expand(8, 9)}
        if head.kind != "sequence":  # whose logits would be (batch, 1, num_labels) then
            columns["sequence_ids"] = inputs["attention_mask"]
        if head.kind == "vocabulary":
            columns["label_positions"] = self.label_positions(self.labels(head, inputs)["labels"], 7)
        return columns
