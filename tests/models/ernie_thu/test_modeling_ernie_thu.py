"""The ERNIE-THU family passes the conformance suite, with entities by id and a table inside the checkpoint."""

import torch
from datasets import Dataset

from hf_ptm_ext.models.configuration_ernie_thu import ErnieThuConfig
from hf_ptm_ext.models.fusion_ernie_thu import unread_weights
from hf_ptm_ext.models.modeling_ernie_thu import (
    ErnieThuForEntityTyping,
    ErnieThuForMaskedLM,
    ErnieThuForMultipleChoice,
    ErnieThuForNextSentencePrediction,
    ErnieThuForPreTraining,
    ErnieThuForQuestionAnswering,
    ErnieThuForSequenceClassification,
    ErnieThuForTokenClassification,
    ErnieThuModel,
)
from tests.conformance import EncoderConformance
from tests.conformance.family import (
    LENGTHS,
    Head,
    answer_labels,
    choice_labels,
    masked_lm_labels,
    sequence_labels,
    token_labels,
)

ENTITIES = 13


def pretraining_labels(config, inputs, generator):
    """Masked tokens, the next sentence, and the clean entities: ids, where an entity is."""
    ids = torch.randint(1, ENTITIES, inputs["input_ids"].shape, generator=generator)
    return {
        **masked_lm_labels(config, inputs, generator),
        "next_sentence_label": torch.arange(len(ids)) % 2,
        "entity_labels": torch.where(inputs["entity_ids"] > 0, ids, -100),
    }


def pair_labels(config, inputs, generator):
    """Does the second sentence follow?"""
    return {"labels": torch.arange(inputs["input_ids"].shape[0]) % 2}


def type_labels(config, inputs, generator):
    """Every mention has some of the types."""
    shape = (inputs["input_ids"].shape[0], config.num_labels)
    return {"labels": torch.randint(2, shape, generator=generator).float()}


def without_entities(config, inputs):
    return {"entity_ids": None}


def masked_out(config, inputs):
    """An explicit mask without a single entity."""
    return {"entity_mask": torch.zeros_like(inputs["entity_ids"])}


def vectors(config, inputs):
    """The same kind of input as vectors, with a mask of its own."""
    shape = (*inputs["input_ids"].shape, config.entity_hidden_size)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    return {"entity_ids": None, "entity_embeds": values, "entity_mask": inputs["entity_ids"] != 0}


class TestErnieThu(EncoderConformance):
    config_class = ErnieThuConfig
    base_class = ErnieThuModel
    heads = (
        Head(ErnieThuModel, "AutoModel", None, ("last_hidden_state", "pooler_output"), "encoder"),
        Head(ErnieThuForMaskedLM, "AutoModelForMaskedLM", masked_lm_labels, ("logits",), "vocabulary"),
        Head(
            ErnieThuForPreTraining,
            "AutoModelForPreTraining",
            pretraining_labels,
            ("prediction_logits", "seq_relationship_logits"),
            "vocabulary",
        ),
        Head(
            ErnieThuForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification"},
        ),
        Head(
            ErnieThuForEntityTyping,
            "AutoModelForSequenceClassification",
            type_labels,
            ("logits",),
            "sequence",
            variant=True,
        ),
        Head(
            ErnieThuForNextSentencePrediction,
            "AutoModelForNextSentencePrediction",
            pair_labels,
            ("logits",),
            "sequence",
        ),
        Head(
            ErnieThuForTokenClassification,
            "AutoModelForTokenClassification",
            token_labels,
            ("logits",),
            "token",
            task_type="TOKEN_CLS",
        ),
        Head(
            ErnieThuForQuestionAnswering,
            "AutoModelForQuestionAnswering",
            answer_labels,
            ("start_logits", "end_logits"),
            "span",
            task_type="QUESTION_ANS",
        ),
        Head(ErnieThuForMultipleChoice, "AutoModelForMultipleChoice", choice_labels, ("logits",), "choice"),
    )
    config_kwargs = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 32,
        "entity_hidden_size": 12,
        "entity_num_attention_heads": 3,
        "entity_embeddings_in_checkpoint": True,
        "entity_vocab_size": ENTITIES,
    }
    frozen = frozenset(
        f"bert.{name}" for name in ("entity_embeddings.weight", *unread_weights(ErnieThuConfig(num_hidden_layers=2)))
    )
    # Copies of another family's heads but for the encoder's inputs, which the checks of one forward pass see.
    second_tier_heads = (
        ErnieThuForMaskedLM,
        ErnieThuForNextSentencePrediction,
        ErnieThuForSequenceClassification,
        ErnieThuForTokenClassification,
        ErnieThuForQuestionAnswering,
        ErnieThuForMultipleChoice,
    )
    structured_inputs = {"no entities": without_entities, "all masked": masked_out, "vectors": vectors}

    def rows(self, lengths=LENGTHS, seed=0, padding="right"):
        """Entities at the second, the third and the last token, the same ones wherever the padding is."""
        rows = super().rows(lengths, seed, padding)
        ids = torch.zeros_like(rows["input_ids"])
        for row, length in enumerate(lengths):
            first = ids.shape[1] - length if padding == "left" else 0
            for number, position in enumerate((1, 2, length - 1)):
                ids[row, first + position] = 1 + (seed + 5 * row + number) % (ENTITIES - 1)
        return {**rows, "entity_ids": ids}

    def attentions(self, config):
        """LoRA on `query` and `value` reaches the entities too."""
        return config.num_hidden_layers + config.fusion_layer_types.count("norm")

    def with_candidates(self, batch):
        """Clean entities as indices into given candidates, whose number is fixed: what a collator makes."""
        if "entity_labels" not in batch:
            return batch
        labels = batch["entity_labels"]
        candidates = torch.cat([torch.zeros(1, dtype=torch.long), labels[labels > 0].unique()])
        places = torch.searchsorted(candidates, labels)
        return {
            **batch,
            "entity_labels": torch.where(labels > 0, places, -100),
            "entity_candidates": candidates[None],
        }

    def pack_column(self, name, value, offsets):
        """Labels of several types per sequence."""
        return value[None]

    def packed(self, batch, width=None):
        return self.with_candidates(super().packed(batch, width))

    def compile_cases(self, head):
        return [(name, training, self.with_candidates(batch)) for name, training, batch in super().compile_cases(head)]

    def shuffled(self, batch):
        """Other values; candidates and entities stay what they are."""
        return {**super().shuffled(batch), **{name: batch[name] for name in batch if name == "entity_candidates"}}

    def main_labels(self, batch):
        return {name: value for name, value in batch.items() if name not in self.second_terms}

    def main_columns(self, head: Head, dataset: Dataset) -> list[str]:
        return [name for name in dataset.column_names if name not in self.second_terms]

    def extra_columns(self, head, inputs):
        """Everything else that a head names."""
        columns = {"entity_mask": (inputs["entity_ids"] != 0).long()}
        if head.kind == "choice":
            return {**columns, "position_ids": torch.arange(9).expand(8, 3, 9)}
        columns["position_ids"] = torch.arange(9).expand(8, 9)
        if head.kind != "sequence":  # whose logits would be (batch, 1, num_labels) then
            columns["sequence_ids"] = inputs["attention_mask"]
        if head.kind == "vocabulary":
            columns["label_positions"] = self.label_positions(self.labels(head, inputs)["labels"], 7)
        return columns

    def test_smoothing_own_losses_and_evaluation_in_between(self, loss_head, tmp_path):
        """Smoothing is defined on one class per row, not on several types."""
        if not loss_head.variant:
            super().test_smoothing_own_losses_and_evaluation_in_between(loss_head, tmp_path)

    second_terms = ("next_sentence_label", "entity_labels")
