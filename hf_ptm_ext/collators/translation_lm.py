"""Translation language modelling: masked tokens of a sentence and its translation (Lample & Conneau 2019, XLM,
https://arxiv.org/abs/1901.07291).

    tokens       </s> the house </s> </s> 房 子 </s>
    position_ids   0   1    2    3     0  1  2   3      counted anew in the second sentence
    langs          0   0    0    0     1  1  1   1

Attention is bidirectional over both, so a masked word may be read off its translation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..masking import block_starts
from .base import TokenLayout
from .batching import MISSING, RowFrame
from .masked_lm import WITHOUT_REPLACEMENT, DataCollatorForMaskedLanguageModeling
from .pairs import CONSUMED, check_assembled, source_and_target


@dataclass
class DataCollatorForTranslationLanguageModeling(DataCollatorForMaskedLanguageModeling):
    """Join sentence pairs and mask tokens of both.

    A feature has one of two pairs of columns: `source_ids` and `target_ids`, token ids without special tokens at
    their ends, or `input_ids` and `labels`, as `tokenizer(source, text_target=target)` gives them. A plain Trainer
    keeps the second pair and `langs`, whose names XLM's forward has; the first pair needs
    `remove_unused_columns=False`.

    | column | shape | value |
    | --- | --- | --- |
    | `input_ids`, `attention_mask` | (batch, seq_len) | both sentences, each with its special tokens, masked |
    | `position_ids` | (batch, seq_len) | from 0 in each sentence, 0 on padding |
    | `langs` | (batch, seq_len) | language id of each token, 0 on padding |
    | `labels` | (batch, seq_len) | original ids of the chosen tokens, -100 elsewhere |

    Any token but the first of a row may be chosen, the special tokens between and behind the sentences too; random
    tokens come from the whole vocabulary.

    Relations: feeds `XLMWithLMHeadModel` as it is.

    Args:
        languages: Ids or codes ("en") of source and target, for rows without a `langs` column of two entries.
        language_ids: Id of each code. None: the tokenizer's `lang2id`, which XLM's tokenizers have.

    The other arguments are those of `DataCollatorForMaskedLanguageModeling`; `word_boundaries="column"` is not
    available.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
        >>> collator = DataCollatorForTranslationLanguageModeling(
        ...     BertTokenizerFast(vocab=vocab), languages=(0, 1), mlm_probability=0.0, seed=0
        ... )
        >>> batch = collator([{"source_ids": [5, 5], "target_ids": [6]}])
        >>> for name in ("input_ids", "position_ids", "langs"):
        ...     print(name, batch[name].tolist())
        input_ids [[2, 5, 5, 3, 2, 6, 3]]
        position_ids [[0, 1, 2, 3, 0, 1, 2]]
        langs [[0, 0, 0, 0, 1, 1, 1]]
    """

    languages: Sequence[int | str] | None = None
    language_ids: Mapping[str, int] | None = None

    _budgets: ClassVar[tuple[str, ...]] = WITHOUT_REPLACEMENT
    input_columns: ClassVar[tuple[str, ...]] = (
        "source_ids",
        "target_ids",
        "input_ids",
        "labels",
        "langs",
        "attention_mask",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_assembled(self.word_boundaries)
        self._default_languages = (
            None if self.languages is None else self._language_pair(self.languages, "`languages`")
        )

    def _read_vocabulary(self) -> None:
        super()._read_vocabulary()
        tokenizer = self.tokenizer
        end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
        begin = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        if end is None:
            raise ValueError(
                f"`tokenizer` must have a token that ends a sentence, got {type(tokenizer).__name__} without "
                "separator and eos. Set `tokenizer.sep_token`."
            )
        self._end_id, self._begin_id = int(end), int(end if begin is None else begin)

    def _lay_out(self, features: Sequence[Any]) -> tuple[TokenLayout, dict[str, np.ndarray]]:
        rows: list[dict[str, Any]] = []
        others: dict[str, list[Any]] = {}
        for index, feature in enumerate(features):
            sentences = source_and_target(feature, index, self._begin_id, self._end_id, self._detectable_pad)
            rows.append(self._joined(sentences, self._languages_of(feature, index)))
            for name in feature:
                if name not in CONSUMED and name != "langs":
                    others.setdefault(name, [MISSING] * index).append(feature[name])
            for values in others.values():
                values += [MISSING] * (index + 1 - len(values))
        layout, batch = super()._lay_out(rows)
        for name, values in others.items():
            batch[name] = RowFrame([0] * len(rows), 0, False).column(name, values, 0)
        candidates = layout.text & (np.cumsum(layout.text, axis=1) > 1)
        layout = TokenLayout(
            layout.input_ids, candidates, block_starts(candidates), None, layout.text, layout.word_ids
        )
        return layout, batch

    def _joined(self, sentences: Sequence[Sequence[int]], languages: Sequence[int]) -> dict[str, list[int]]:
        """Sentences behind each other, each between its special tokens."""
        ids: list[int] = []
        positions: list[int] = []
        langs: list[int] = []
        for sentence, language in zip(sentences, languages, strict=True):
            whole = [self._begin_id, *sentence, self._end_id]
            ids += whole
            positions += range(len(whole))
            langs += [language] * len(whole)
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "position_ids": positions, "langs": langs}

    def _languages_of(self, feature: Any, index: int) -> tuple[int, int]:
        """Language ids of source and target of one feature."""
        langs = feature.get("langs")
        if langs is None:
            if self._default_languages is None:
                raise ValueError(
                    f"`langs` must say the languages of source and target, row {index} has none. Add the column (two "
                    "ids or codes a row), or set the collator's `languages` for all rows."
                )
            return self._default_languages
        return self._language_pair(langs, f"`langs` of row {index}")

    def _language_pair(self, values: Any, where: str) -> tuple[int, int]:
        """Two ids or codes as ids."""
        pair = values.tolist() if hasattr(values, "tolist") else list(values)
        if len(pair) != 2 or isinstance(values, str):
            raise ValueError(f"{where} must be two languages, of source and target, got {values!r}.")
        source, target = (self._language_id(value, where) for value in pair)
        return source, target

    def _language_id(self, value: Any, where: str) -> int:
        """One id or code as an id."""
        if isinstance(value, str):
            known = self.language_ids if self.language_ids is not None else getattr(self.tokenizer, "lang2id", None)
            if not known or value not in known:
                raise ValueError(
                    f"{where} must be known languages, got {value!r} of {sorted(known or ())}. Give their ids in "
                    "`language_ids`."
                )
            return int(known[value])
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise ValueError(f"{where} must be ids from 0 on or codes, got {value!r}.")
        return int(value)
