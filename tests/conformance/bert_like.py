"""The conformance suite of a family whose inputs and heads are BERT's.

class TestNezha(BertLikeConformance, modeling=modeling_nezha, prefix="Nezha"):
    ...
"""

from types import ModuleType
from typing import Any

import torch
from datasets import Dataset

from . import EncoderConformance
from .family import Head, answer_labels, choice_labels, masked_lm_labels, sequence_labels, token_labels

NEXT_SENTENCE = "next_sentence_label"


def pretraining_labels(config: Any, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict:
    """Masked tokens and the next sentence."""
    rows = inputs["input_ids"].shape[0]
    return {**masked_lm_labels(config, inputs, generator), NEXT_SENTENCE: torch.arange(rows) % 2}


def pair_labels(config: Any, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict:
    """Does the second sentence follow?"""
    return {"labels": torch.arange(inputs["input_ids"].shape[0]) % 2}


# End of the class -> labels, outputs, kind, and what else its `Head` has.
HEADS: dict[str, tuple[Any, tuple[str, ...], str, dict[str, Any]]] = {
    "MaskedLM": (masked_lm_labels, ("logits",), "vocabulary", {}),
    "PreTraining": (pretraining_labels, ("prediction_logits", "seq_relationship_logits"), "vocabulary", {}),
    "SequenceClassification": (
        *(sequence_labels, ("logits",), "sequence"),
        {"task_type": "SEQ_CLS", "config": {"problem_type": "single_label_classification"}},
    ),
    "NextSentencePrediction": (pair_labels, ("logits",), "sequence", {}),
    "TokenClassification": (token_labels, ("logits",), "token", {"task_type": "TOKEN_CLS"}),
    "QuestionAnswering": (answer_labels, ("start_logits", "end_logits"), "span", {"task_type": "QUESTION_ANS"}),
    "MultipleChoice": (choice_labels, ("logits",), "choice", {}),
}


class BertLikeConformance(EncoderConformance):
    """All checks, on the heads of BERT under a family's names."""

    config_kwargs = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 32,
    }

    def __init_subclass__(cls, modeling: ModuleType | None = None, prefix: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if modeling is None:
            return
        cls.base_class = getattr(modeling, f"{prefix}Model")
        cls.config_class = cls.base_class.config_class
        outputs = ("last_hidden_state", "pooler_output")
        cls.heads = (
            Head(cls.base_class, "AutoModel", None, outputs, "encoder"),
            *(
                Head(getattr(modeling, f"{prefix}For{name}"), f"AutoModelFor{name}", labels, fields, kind, **more)
                for name, (labels, fields, kind, more) in HEADS.items()
            ),
        )
        # Heads whose code is another family's, which the checks of one forward pass see.
        cls.second_tier_heads = tuple(
            head.cls for head in cls.heads if head.kind != "encoder" and not head.cls.__name__.endswith("PreTraining")
        )

    def main_labels(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: value for name, value in batch.items() if name != NEXT_SENTENCE}

    def main_columns(self, head: Head, dataset: Dataset) -> list[str]:
        return [name for name in dataset.column_names if name != NEXT_SENTENCE]

    def extra_columns(self, head: Head, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Everything else that a head names: one sequence a row, its positions, a label budget."""
        if head.kind == "choice":
            return {"position_ids": torch.arange(9).expand(8, 3, 9)}
        columns = {"position_ids": torch.arange(9).expand(8, 9)}
        if head.kind != "sequence":  # whose logits would be (batch, 1, num_labels) then
            columns["sequence_ids"] = inputs["attention_mask"]
        if head.kind == "vocabulary":
            columns["label_positions"] = self.label_positions(self.labels(head, inputs)["labels"], 7)
        return columns
