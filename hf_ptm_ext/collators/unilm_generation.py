"""UniLM evaluation: the prompt that generation starts from, beside the masked row that the loss is computed from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..masking import IGNORE_INDEX
from .unilm_seq2seq import DataCollatorForUniLMSeq2Seq


@dataclass
class DataCollatorForUniLMGeneration:
    """Batches for `predict_with_generate`: prompts, references, and the batch of the loss.

    | column | value |
    | --- | --- |
    | `input_ids`, `attention_mask` | [CLS] source [SEP], padded on the left |
    | `labels` | the target's token ids as they came, padded on the right with -100 |
    | `loss_inputs` | what `loss_collator` makes of the same features |

    Sources are cut as for the loss. `hf_ptm_ext.trainers.PtmSeq2SeqTrainer` reads these batches.

    Relations: `DataCollatorForUniLMSeq2Seq` makes the batches of training.

    Args:
        loss_collator: Assembles and masks source and target.

    Raises:
        ValueError: If the collator masks sources: prompts would be corrupted.

    Example:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForUniLMGeneration(DataCollatorForUniLMSeq2Seq(BertTokenizerFast(vocab=vocab)))
        >>> features = [{"source_ids": [5, 6], "target_ids": [6]}, {"source_ids": [5], "target_ids": [6, 6]}]
        >>> batch = collator(features)
        >>> batch["input_ids"].tolist(), batch["labels"].tolist(), batch["loss_inputs"]["input_ids"].shape
        ([[2, 5, 6, 3], [0, 2, 5, 3]], [[6, -100], [6, 6]], torch.Size([2, 6]))
    """

    loss_collator: DataCollatorForUniLMSeq2Seq

    def __post_init__(self) -> None:
        if self.loss_collator.mask_source or self.loss_collator.source_mask_prob:
            raise ValueError(
                "`loss_collator` must leave sources alone, got one with `mask_source` or `source_mask_prob`: its "
                "prompts would be corrupted. Use a collator without them for evaluation."
            )

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Columns that are read, for Trainers that drop the others."""
        return self.loss_collator.input_columns

    def __call__(self, features: Sequence[Any]) -> dict[str, Any]:
        """Make a batch.

        Args:
            features: As `DataCollatorForUniLMSeq2Seq` takes them.

        Returns:
            The columns of the table in the class.

        Raises:
            ValueError: As `DataCollatorForUniLMSeq2Seq`.
        """
        batch = dict(self.loss_collator(features, return_tensors="pt"))
        rows = zip(batch["input_ids"], batch["attention_mask"], batch["source_lengths"], strict=True)
        prompts = [row[kept.bool()][:length] for row, kept, length in rows]
        references = [
            torch.as_tensor(feature["target_ids" if feature.get("target_ids") is not None else "labels"])
            for feature in map(dict, features)
        ]
        pad = self.loss_collator.tokenizer.pad_token_id
        ones = [torch.ones_like(prompt) for prompt in prompts]
        return {
            "input_ids": torch.nn.utils.rnn.pad_sequence(prompts, True, pad or 0, padding_side="left"),
            "attention_mask": torch.nn.utils.rnn.pad_sequence(ones, True, 0, padding_side="left"),
            "labels": torch.nn.utils.rnn.pad_sequence(references, True, IGNORE_INDEX),
            # Full logits of an evaluation batch are the whole vocabulary at every position: the loss needs none.
            "loss_inputs": {**batch, "return_logits": False},
        }

    def state_dict(self) -> dict[str, Any]:
        """The state of the masks, as `DataCollatorForUniLMSeq2Seq` has it."""
        return self.loss_collator.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the masks go on from a saved state.

        Args:
            state: From `state_dict`.
        """
        self.loss_collator.load_state_dict(state)
