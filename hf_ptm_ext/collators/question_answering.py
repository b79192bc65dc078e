"""Windows of questions and passages for training and prediction: a function for `datasets.map`, and what pads.

The answer of a window is its first and last token (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, 4.2); a
window that does not hold the whole answer, or a question that has none, points at [CLS] for both (SQuAD 2.0, 4.3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..pipelines.windows_question_answering import MAX_QUESTION_LEN, Window, question_windows
from .vocabulary import check_tokenizer

POSITIONS = ("start_positions", "end_positions")


@dataclass
class SquadFeatures:
    """Turns SQuAD-shaped rows into windows; for `dataset.map(features, batched=True, remove_columns=...)`.

    Args:
        tokenizer: a fast tokenizer, K-BERT's included.
        max_seq_len: most tokens of a window (default 384, or the tokenizer's limit if that is less).
        doc_stride: how many tokens of the passage two windows share (default 128, or half of what fits).
        max_question_len: longer questions are cut to this many tokens (default 64, as BERT's run_squad.py).
        training: whether to add `start_positions` and `end_positions` (default True).
        columns: names of the id, the question (`None`: windows hold the passage alone), the passage and the answers.
        options: further arguments of the tokenizer's call.

    Examples:
        >>> from transformers import BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] who ? jane did".split()
        >>> tokenizer = BertTokenizer({word: number for number, word in enumerate(words)}, model_max_length=16)
        >>> answers = [{"text": ["Jane"], "answer_start": [0]}]
        >>> windows = SquadFeatures(tokenizer)(
        ...     {"id": ["1"], "question": ["Who?"], "context": ["Jane did"], "answers": answers}
        ... )
        >>> windows["input_ids"], windows["start_positions"], windows["end_positions"]
        ([[2, 5, 6, 3, 7, 8, 3]], [4], [4])
    """

    tokenizer: Any
    max_seq_len: int | None = None
    doc_stride: int | None = None
    max_question_len: int | None = MAX_QUESTION_LEN
    training: bool = True
    columns: tuple[str, str | None, str, str] = ("id", "question", "context", "answers")
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Make windows."""
        name_of_id, question, context, answers = self.columns
        needed = (name_of_id, question, context, *([answers] if self.training else []))
        missing = [name for name in needed if name is not None and name not in batch]
        if missing:
            raise ValueError(f"`batch` has no column {missing[0]!r}, only {sorted(batch)}. Name it in `columns`.")
        ids, contexts = list(batch[name_of_id]), list(batch[context])
        windows = question_windows(
            self.tokenizer,
            None if question is None else list(batch[question]),
            contexts,
            max_seq_len=self.max_seq_len,
            doc_stride=self.doc_stride,
            max_question_len=self.max_question_len,
            **self.options,
        )
        names = windows[0].inputs if windows else ()
        columns: dict[str, list[Any]] = {name: [window.inputs[name] for window in windows] for name in names}
        columns["example_id"] = [ids[window.example] for window in windows]
        columns["offset_mapping"] = [
            np.where(window.answerable[:, None], window.offsets, 0).tolist() for window in windows
        ]
        columns["null_index"] = [window.null_index for window in windows]
        if self.training:
            spans = [
                answer_span(given, passage, ids[number])
                for number, (given, passage) in enumerate(zip(batch[answers], contexts, strict=True))
            ]
            positions = [
                answer_positions(window, spans[window.example], len(contexts[window.example])) for window in windows
            ]
            for name, column in zip(POSITIONS, zip(*positions, strict=True) if positions else ((), ()), strict=True):
                columns[name] = list(column)
        return columns


def answer_span(answers: Any, context: str, name: Any) -> tuple[int, int] | None:
    """Begin and end of the first answer in its passage, without white space around it."""
    if isinstance(answers, Mapping):
        pairs = list(zip(answers.get("text", ()), answers.get("answer_start", ()), strict=False))
    else:
        pairs = [(answer.get("text"), answer.get("answer_start")) for answer in answers or ()]
    if not pairs:
        return None
    text, start = pairs[0]
    if context[start : start + len(text)] != text or not text.strip():
        raise ValueError(
            f"question {name}: the passage has {context[start : start + len(text)]!r} at character {start}, where the "
            f"answer {text!r} should be. Correct `answer_start`, or take the row out."
        )
    begin = start + len(text) - len(text.lstrip())
    return begin, begin + len(text.strip())


def answer_positions(window: Window, span: tuple[int, int] | None, length: int) -> tuple[int, int]:
    """First and last token of an answer in a window."""
    nothing = window.null_index, window.null_index
    tokens = np.flatnonzero(window.answerable)
    if span is None or not len(tokens):
        return nothing
    begins, ends = window.offsets[tokens, 0], window.offsets[tokens, 1]
    covered = (0 if window.is_first else begins[0], length if window.is_last else ends[-1])
    if span[0] < covered[0] or span[1] > covered[1]:
        return nothing
    inside = tokens[(ends > span[0]) & (begins < span[1])]
    return (int(inside[0]), int(inside[-1])) if len(inside) else nothing


@dataclass
class DataCollatorForQuestionAnswering:
    """Pads windows of `SquadFeatures`, on the right whichever side the tokenizer pads.

    So a token's place, and its absolute position, do not depend on the batch.

    Columns that no model takes (`example_id`, `offset_mapping`, `null_index`) are left out.

    Args:
        tokenizer: the tokenizer of the windows.
        padding: as in `tokenizer.pad` (default True: to the longest window of the batch).
        max_length: for `padding="max_length"`.
        pad_to_multiple_of: round lengths up.

    Examples:
        >>> from transformers import BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] a b".split()
        >>> tokenizer = BertTokenizer({word: number for number, word in enumerate(words)})
        >>> rows = [{"input_ids": [5], "start_positions": 0, "end_positions": 0},
        ...         {"input_ids": [5, 6], "start_positions": 0, "end_positions": 1}]
        >>> batch = DataCollatorForQuestionAnswering(tokenizer)(rows)
        >>> batch["input_ids"].tolist(), batch["end_positions"].tolist()
        ([[5, 0], [5, 6]], [0, 1])
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None

    def __post_init__(self) -> None:
        check_tokenizer("tokenizer", self.tokenizer)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Make a batch."""
        names = [name for name in self.tokenizer.model_input_names if name in rows[0]]
        batch = dict(
            self.tokenizer.pad(
                [{name: row[name] for name in names} for row in rows],
                padding=self.padding,
                max_length=self.max_length,
                pad_to_multiple_of=self.pad_to_multiple_of,
                padding_side="right",
                return_tensors="pt",
            )
        )
        for name in POSITIONS:
            if all(name in row for row in rows):
                batch[name] = torch.tensor([row[name] for row in rows])
        return batch
