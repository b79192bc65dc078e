"""The K-Adapter family passes the conformance suite around a small BERT."""

import torch

from hf_ptm_ext.models.configuration_k_adapter import KAdapterConfig
from hf_ptm_ext.models.modeling_k_adapter import (
    KAdapterForDependencyHeads,
    KAdapterForQuestionAnswering,
    KAdapterForRelationClassification,
    KAdapterForSequenceClassification,
    KAdapterForTokenClassification,
    KAdapterModel,
)
from tests.conformance.attention import AttentionChecks
from tests.conformance.embeddings import EmbeddingChecks
from tests.conformance.family import Head, answer_labels, sequence_labels, token_labels
from tests.conformance.forward import ForwardChecks
from tests.conformance.loading import ConfigChecks, LoadingChecks
from tests.conformance.parts import RemoteChecks
from tests.conformance.trainer import TrainerChecks
from tests.conformance.training import TrainingChecks


class WholeRows(Head):
    """The encoder inside is upstream's: rows hold one text each, and padding stands behind it."""

    packs = False


ENCODER = {
    "model_type": "bert",
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def relation_labels(config, inputs, generator):
    """A relation for every row."""
    return {"labels": torch.arange(inputs["input_ids"].shape[0]) % config.num_labels}


def head_labels(config, inputs, generator):
    """A place for every real token's head."""
    labels = torch.randint(config.max_head_positions, inputs["input_ids"].shape, generator=generator)
    return {"labels": labels.masked_fill(inputs["attention_mask"] == 0, -100)}


class TestKAdapter(
    ConfigChecks,
    LoadingChecks,
    ForwardChecks,
    AttentionChecks,
    EmbeddingChecks,
    TrainingChecks,
    TrainerChecks,
    RemoteChecks,
):
    config_class = KAdapterConfig
    base_class = KAdapterModel
    heads = (
        WholeRows(KAdapterModel, "AutoModel", None, ("last_hidden_state",), "encoder"),
        WholeRows(
            KAdapterForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification"},
        ),
        WholeRows(
            KAdapterForTokenClassification,
            "AutoModelForTokenClassification",
            token_labels,
            ("logits",),
            "token",
            task_type="TOKEN_CLS",
        ),
        WholeRows(
            KAdapterForQuestionAnswering,
            "AutoModelForQuestionAnswering",
            answer_labels,
            ("start_logits", "end_logits"),
            "span",
            task_type="QUESTION_ANS",
        ),
        WholeRows(
            KAdapterForRelationClassification,
            "AutoModelForSequenceClassification",
            relation_labels,
            ("logits",),
            "sequence",
            variant=True,
        ),
        WholeRows(
            KAdapterForDependencyHeads,
            "AutoModelForTokenClassification",
            head_labels,
            ("logits",),
            "token",
            variant=True,
        ),
    )
    config_kwargs = {
        "encoder_config": ENCODER,
        "adapters": ["fac", "lin"],
        "adapter_hidden_size": 24,
        "adapter_num_attention_heads": 3,
        "adapter_num_hidden_layers": 1,
        "adapter_intermediate_size": 48,
        "adapter_initializer_range": 0.02,
        "max_head_positions": 16,
        "freeze_encoder": False,
    }
    embeddings_name = "encoder.model.embeddings.word_embeddings"
    attention_implementations = ("sdpa", "eager")
    dropout_fields = ("adapter_dropout", "classifier_dropout")
    classifier_name = "classifier.out_proj"
    needed_inputs = ("input_ids", "attention_mask", "subject_positions", "object_positions")

    def inputs(self, head, *args, **kwargs):
        """With the places of subject and object where the head reads them."""
        inputs = super().inputs(head, *args, **kwargs)
        if head.cls is KAdapterForRelationClassification:
            first = inputs["attention_mask"].argmax(1)
            inputs |= {"subject_positions": first + 1, "object_positions": first + 2}
        return inputs

    def mask_cases(self, head):
        """Those of the encoder inside, which reads an empty row its own way under each implementation."""
        return {name: case for name, case in super().mask_cases(head).items() if name != "an empty row"}

    # Of the encoder inside, which is upstream's: one text a row, padding behind it, its own names, no promise about
    # flash attention or whole graphs.
    test_arguments_that_nothing_reads_are_refused = None
    test_wrong_types_are_refused_by_name = None
    test_explicit_positions_and_no_mask_equal_the_defaults = None
    test_padding_changes_nothing_right_or_left = None
    test_left_padded_choices_score_as_right_padded_ones = None
    test_sequence_ids_serve_for_padded_rows_too = None
    test_more_tokens_than_positions_are_refused = None
    test_older_names_load = None
    test_encoder_weights_that_a_file_lacks_are_named = None
    test_flash_attention_is_exact_or_refused = None
    test_compiled_graphs_are_whole_and_equal = None
    test_every_head_compiles = None
    test_inductor = None
    test_export_with_dynamic_batch_and_length = None
