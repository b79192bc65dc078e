"""The weighted-layers family passes the conformance checks that apply around an encoder of upstream's."""

from hf_ptm_ext.models.configuration_weighted_layers import WeightedLayersConfig
from hf_ptm_ext.models.modeling_weighted_layers import (
    WeightedLayersForQuestionAnswering,
    WeightedLayersForSequenceClassification,
    WeightedLayersForTokenClassification,
    WeightedLayersModel,
)
from tests.conformance.attention import AttentionChecks
from tests.conformance.embeddings import EmbeddingChecks
from tests.conformance.family import Head, answer_labels, sequence_labels, token_labels
from tests.conformance.forward import ForwardChecks
from tests.conformance.loading import ConfigChecks, LoadingChecks
from tests.conformance.parts import RemoteChecks
from tests.conformance.trainer import TrainerChecks
from tests.conformance.training import TrainingChecks

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


class WholeRows(Head):
    """The encoder inside is upstream's: rows hold one text each, and padding stands behind it."""

    packs = False


class TestWeightedLayers(
    ConfigChecks,
    LoadingChecks,
    ForwardChecks,
    AttentionChecks,
    EmbeddingChecks,
    TrainingChecks,
    TrainerChecks,
    RemoteChecks,
):
    config_class = WeightedLayersConfig
    base_class = WeightedLayersModel
    heads = (
        WholeRows(WeightedLayersModel, "AutoModel", None, ("last_hidden_state", "pooler_output"), "encoder"),
        WholeRows(
            WeightedLayersForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification"},
        ),
        WholeRows(
            WeightedLayersForTokenClassification,
            "AutoModelForTokenClassification",
            token_labels,
            ("logits",),
            "token",
            task_type="TOKEN_CLS",
        ),
        WholeRows(
            WeightedLayersForQuestionAnswering,
            "AutoModelForQuestionAnswering",
            answer_labels,
            ("start_logits", "end_logits"),
            "span",
            task_type="QUESTION_ANS",
        ),
    )
    config_kwargs = {"encoder_config": ENCODER, "freeze_encoder": False}
    embeddings_name = "encoder.model.embeddings.word_embeddings"
    attention_implementations = ("sdpa", "eager")
    dropout_fields = ("mix_dropout", "classifier_dropout")

    def mask_cases(self, head):
        """Those of the encoder inside, which reads an empty row its own way under each implementation."""
        return {name: case for name, case in super().mask_cases(head).items() if name != "an empty row"}

    # The mixture begins at 0 and 1, not at random: test_mixture.py.
    test_every_missing_weight_is_initialised_and_reported = None
    # Of the encoder inside, which is upstream's: one text a row, padding behind it, its own names, no promise about
    # flash attention or whole graphs.
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
