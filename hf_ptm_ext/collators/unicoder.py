"""Unicoder's tasks beside translation language modelling (Huang et al., EMNLP 2019, https://arxiv.org/abs/1909.00964).

    recovery     a sentence whose words are replaced by what attention finds for them in the translation
    paraphrase   a sentence, and its translation or one that is like it
    mixed        a document whose sentences stand by turns in two languages, masked

No code was released: the rules are the paper's. `data.unicoder_rows` makes the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..masking import IGNORE_INDEX, check_probability, selected_labels
from ..masking.checks import check_choice
from .base import MaskingCollator
from .batching import RowFrame
from .pairs import id_list, source_and_target
from .translation_lm import DataCollatorForTranslationLanguageModeling

TASKS = ("recovery", "paraphrase", "mixed")
OWN = ("negative_ids", "mixed_ids", "mixed_sides")


@dataclass
class DataCollatorForUnicoder(DataCollatorForTranslationLanguageModeling):
    """Make the batch of translation language modelling, and of each further task.

    | column | shape | value |
    | --- | --- | --- |
    | those of translation language modelling | (batch, seq_len) | see there |
    | `recovery_input_ids`, `..._attention_mask`, `..._langs` | (batch, T) | one sentence of each pair |
    | `recovery_labels` | (batch, T) | its words; -100 at special tokens, padding, where the other one is empty |
    | `recovery_source_ids`, `recovery_source_mask` | (batch, S) | the other one, without special tokens |
    | `paraphrase_input_ids`, `..._attention_mask`, `..._position_ids`, `..._langs` | (batch, P) | two sentences |
    | `paraphrase_labels` | (batch,) | 1: one translates the other, 0: it does not |
    | `mixed_input_ids`, `..._attention_mask`, `..._langs`, `mixed_labels` | (batch, M) | a masked document |

    Which sentence of a pair is recovered is drawn, and whether a negative takes the target's place; a row whose
    `negative_ids` are empty keeps its target.

    Relations: `UnicoderModel` (hf_ptm_ext.trainers) reads the batch.

    Args:
        tasks: Of "recovery", "paraphrase" and "mixed" (default: all); the columns of the others need not be there.
        negative_probability: Share of paraphrase rows with a negative (0.5).

    The other arguments are those of `DataCollatorForTranslationLanguageModeling`.

    Raises:
        ValueError: a task is unknown, or a row lacks a column of one.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> tokenizer, tasks = BertTokenizerFast(vocab=vocab), ("paraphrase",)
        >>> collator = DataCollatorForUnicoder(tokenizer, languages=(0, 1), tasks=tasks, negative_probability=1.0)
        >>> batch = collator([{"source_ids": [5], "target_ids": [6], "negative_ids": [6, 6]}])
        >>> batch["paraphrase_input_ids"].tolist(), batch["paraphrase_labels"].tolist()
        ([[2, 5, 3, 2, 6, 6, 3]], [0])
    """

    tasks: Sequence[str] = TASKS
    negative_probability: float = 0.5

    input_columns: ClassVar[tuple[str, ...]] = (*DataCollatorForTranslationLanguageModeling.input_columns, *OWN)

    def __post_init__(self) -> None:
        for task in self.tasks:
            check_choice("tasks", task, TASKS)
        check_probability("negative_probability", self.negative_probability)
        super().__post_init__()

    def _batch(self, features: Sequence[Any]) -> dict[str, np.ndarray]:
        pairs = [{name: row[name] for name in row if name not in OWN} for row in features]
        batch = super()._batch(pairs)
        rng = self.next_generator()
        sentences = [
            source_and_target(pair, index, self._begin_id, self._end_id, self._detectable_pad)
            for index, pair in enumerate(pairs)
        ]
        languages = [self._languages_of(pair, index) for index, pair in enumerate(pairs)]
        for task in TASKS:
            if task in self.tasks:
                columns = getattr(self, f"_{task}")(features, sentences, languages, rng)
                batch |= {f"{task}_{name}": values for name, values in columns.items()}
        return batch

    def _recovery(
        self, features: Sequence[Any], sentences: list[Any], languages: list[Any], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """One sentence of each pair, and what it is to be recovered from."""
        wanted = (rng.random(len(sentences)) < 0.5).astype(int).tolist()
        rows = [
            self._joined((pair[side],), (of_pair[side],))
            for pair, of_pair, side in zip(sentences, languages, wanted, strict=True)
        ]
        layout, batch = MaskingCollator._lay_out(self, rows)
        others = [pair[1 - side] for pair, side in zip(sentences, wanted, strict=True)]
        frame = RowFrame.of(others, self.tokenizer, self.pad_to_multiple_of)
        ids = frame.ids(others, int(self.tokenizer.pad_token_id or 0))
        known = layout.candidates & np.array([bool(other) for other in others])[:, None]
        mask = frame.column("attention_mask", [[1] * len(other) for other in others], 0)
        batch.pop("position_ids")
        return {
            **batch,
            "labels": selected_labels(layout.input_ids, known),
            "source_ids": ids,
            "source_mask": mask,
        }

    def _paraphrase(
        self, features: Sequence[Any], sentences: list[Any], languages: list[Any], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Two sentences, of which one translates the other or not."""
        rows, labels = [], []
        negative = (rng.random(len(sentences)) < self.negative_probability).tolist()
        for index, (pair, of_pair) in enumerate(zip(sentences, languages, strict=True)):
            other = self._own("negative_ids", features, index)
            rows.append(self._joined((pair[0], other if negative[index] and other else pair[1]), of_pair))
            labels.append(int(not (negative[index] and other)))
        return {**MaskingCollator._lay_out(self, rows)[1], "labels": np.array(labels, dtype=np.int64)}

    def _mixed(
        self, features: Sequence[Any], sentences: list[Any], languages: list[Any], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """A document in two languages, masked."""
        rows = []
        for index, of_pair in enumerate(languages):
            ids, sides = (self._own(name, features, index) for name in OWN[1:])
            if len(ids) != len(sides) or not set(sides) <= {0, 1}:
                raise ValueError(
                    f"`mixed_sides` must be 0 or 1 for each of {len(ids)} `mixed_ids`, got {len(sides)} in row "
                    f"{index}. `data.alternated_documents` makes both."
                )
            row = self._joined((ids,), of_pair[:1])
            first, last = (sides[0], sides[-1]) if sides else (0, 0)
            row["langs"] = [of_pair[side] for side in (first, *sides, last)]
            rows.append(row)
        layout, batch = MaskingCollator._lay_out(self, rows)
        selected = self._select(layout, rng)
        batch.pop("position_ids")
        return {
            **batch,
            "input_ids": self._replace(layout, selected, rng),
            "labels": np.where(selected, layout.input_ids, IGNORE_INDEX),
        }

    def _own(self, name: str, features: Sequence[Any], index: int) -> list[int]:
        """A column of one of the further tasks."""
        if name not in features[index] or features[index][name] is None:
            raise ValueError(
                f"`{name}` must be in every feature, row {index} has the columns {sorted(features[index])}. "
                "`data.unicoder_rows` makes it; or leave its task out of `tasks`."
            )
        return id_list(name, features[index][name], index)
