"""The denoising entity auto-encoder (Zhang et al., ACL 2019, section 3.3; run_pretrain.py of thunlp/ERNIE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..masking import IGNORE_INDEX, check_entity_fate, corrupt_entities, entity_candidates
from ..masking.checks import check_choice
from ..masking.entities import SCOPES
from .base import BatchCollator, MaskingCollator
from .batching import RowFrame, collect_columns, detectable_pad, padding_id


@dataclass
class DataCollatorForDenoisingEntities(BatchCollator):
    """Corrupt the entities that are aligned with tokens, and have the right ones predicted.

    | entity at a token | becomes | `entity_labels` |
    | --- | --- | --- |
    | any, with `replace_prob` | one of the batch's entities | index of the clean one among the candidates |
    | any, with `mask_prob` | none | the same |
    | any, otherwise | itself | the same |
    | none | none | -100 |

    The candidates are the batch's distinct entities in ascending order, none (0) in front. Tokens are not touched, so
    any masking collator of ours can mask them.

    Relations: `ErnieThuForPreTraining` reads the batch, `ErnieThuProcessor` writes the features.

    Args:
        processor: `ErnieThuProcessor`, or a tokenizer; pads the rows.
        replace_prob: probability of another entity (reference: 0.05).
        mask_prob: probability of no entity (reference: 0.15).
        replace_scope: other entities are drawn from the distinct ones of the "batch" (reference) or of the "row"
            (paper).
        include_none_candidate: whether none is a candidate, with logit 0 (reference: yes); never a label.
        mlm: one of our masking collators, which masks the tokens and pads the rows; `None` masks nothing and keeps a
            `labels` column that the features have, as the original instances do.
        table: an `EntityTable`: the batch then has `entity_embeds` and `entity_candidate_embeds` in place of ids,
            looked up in the loader's workers, and the model needs no table (the reference's way).
        pad_to_multiple_of: pad to a multiple of this length; of `mlm` its own.
        return_tensors: "pt" or "np".
        seed: of the entity draws; the masking collator has its own.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> tokenizer = BertTokenizerFast(vocab=vocab)
        >>> collator = DataCollatorForDenoisingEntities(tokenizer, mask_prob=1.0, replace_prob=0.0)
        >>> batch = collator([{"input_ids": [2, 5, 6, 3], "entity_ids": [0, 9, 7, 0]}, {"input_ids": [2, 5, 3]}])
        >>> batch["entity_ids"].tolist()[0], batch["entity_labels"].tolist()[0], batch["entity_candidates"].tolist()[0]
        ([0, 0, 0, 0], [-100, 2, 1, -100], [0, 7, 9])
    """

    processor: Any
    replace_prob: float = 0.05
    mask_prob: float = 0.15
    replace_scope: str = "batch"
    include_none_candidate: bool = True
    mlm: MaskingCollator | None = None
    table: Any = field(default=None, repr=False)
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"
    seed: int | None = None

    # Columns that the collator reads and no model's forward names; the Trainer keeps them.
    input_columns: ClassVar[tuple[str, ...]] = (*MaskingCollator.input_columns, "entity_ids")

    def __post_init__(self) -> None:
        check_entity_fate(self.replace_prob, self.mask_prob)
        check_choice("replace_scope", self.replace_scope, SCOPES)
        if self.mlm is not None and not isinstance(self.mlm, MaskingCollator):
            raise TypeError(
                f"`mlm` must be a masking collator of ours, got {self.mlm!r}. Pass for example "
                "`DataCollatorForMaskedLanguageModeling(tokenizer)`."
            )
        if self.mlm is not None and self.pad_to_multiple_of is not None:
            raise ValueError(
                f"`pad_to_multiple_of` must be given to the `mlm` collator, which pads the rows, got "
                f"{self.pad_to_multiple_of} here."
            )
        self.tokenizer = getattr(self.processor, "tokenizer", self.processor)
        super().__post_init__()

    def _read_vocabulary(self) -> None:
        self._vocabulary_length = len(self.tokenizer)
        self._detectable_pad = detectable_pad(self.tokenizer)

    def _batch(self, features: Sequence[Any]) -> dict[str, np.ndarray]:
        rows = [self._with_entities(feature) for feature in features]
        batch = dict(self._padded(rows) if self.mlm is None else self.mlm(rows, return_tensors="np"))
        clean = batch["entity_ids"]
        if clean.shape != batch["input_ids"].shape or clean.min(initial=0) < 0:
            raise ValueError(
                "`entity_ids` must be one id from 0 (none) per token, got "
                f"{'an id of ' + str(clean.min()) if clean.shape == batch['input_ids'].shape else clean.shape}. The "
                "original instances have -1 for none: add 1."
            )
        rng = self.next_generator()
        seen = corrupt_entities(clean, rng, self.replace_prob, self.mask_prob, self.replace_scope)
        candidates, labels = entity_candidates(clean, self.include_none_candidate)
        batch["entity_mask"] = ((seen != 0) | _first_tokens(batch)).astype(np.int64)
        batch["entity_labels"] = labels
        if self.table is None:
            batch["entity_ids"] = seen
            batch["entity_candidates"] = np.tile(candidates, (len(seen), 1))
        else:
            del batch["entity_ids"]
            batch["entity_embeds"] = self.table.lookup(seen).numpy()
            batch["entity_candidate_embeds"] = np.tile(self.table.lookup(candidates).numpy(), (len(seen), 1, 1))
        return batch

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch, to the masking collator too; see `CallRandomness`."""
        super().set_epoch(epoch)
        if self.mlm is not None:
            self.mlm.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Give what a resumed job needs, of the masking collator under `mlm`; see `CallRandomness`."""
        state = super().state_dict()
        return state if self.mlm is None else {**state, "mlm": self.mlm.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        if self.mlm is not None:
            self.mlm.load_state_dict(state.get("mlm", {}))

    @staticmethod
    def _with_entities(feature: Any) -> dict[str, Any]:
        """A row whose mask, which corruption changes, is left out, and whose entities are written out."""
        row = dict(feature) if hasattr(feature, "keys") else {"input_ids": feature}
        row.pop("entity_mask", None)
        if row.get("entity_ids") is None and "input_ids" in row:
            row["entity_ids"] = [0] * len(row["input_ids"])
        return row

    def _padded(self, rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
        """The columns, padded and otherwise as they are."""
        columns = collect_columns(rows)
        for name in ("offset_mapping", "special_tokens_mask", "word_ids"):
            columns.pop(name, None)
        ids = columns.pop("input_ids")
        frame = RowFrame.of(ids, self.tokenizer, self.pad_to_multiple_of)
        batch = {"input_ids": frame.ids(ids, padding_id(self.tokenizer, frame))}
        masks = columns.pop("attention_mask", None)
        pads = {"labels": IGNORE_INDEX, "token_type_ids": self.tokenizer.pad_token_type_id}
        for name, values in columns.items():
            batch[name] = frame.column(name, values, pads.get(name, 0))
        if masks is not None or "sequence_ids" not in batch:
            batch["attention_mask"] = frame.attention_mask(batch["input_ids"], self._detectable_pad, masks)
        return batch


def _first_tokens(batch: dict[str, np.ndarray]) -> np.ndarray:
    """The first token of each row, or of each packed sequence, boolean."""
    if "sequence_ids" in batch:
        owners = batch["sequence_ids"]
        first = owners > 0
        first[:, 1:] &= owners[:, 1:] != owners[:, :-1]
        return first
    text = batch["attention_mask"] != 0
    return text & (np.cumsum(text, axis=1) == 1)
