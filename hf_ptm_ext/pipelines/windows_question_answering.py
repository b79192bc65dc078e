"""From questions and passages to windows: [CLS] question [SEP] part of the passage [SEP], or the passage alone.

A passage that is too long becomes several windows that overlap. With a tokenizer that pads on the left the passage
comes first, as upstream's models of that kind were trained. Any fast tokenizer serves, also K-BERT's: knowledge that
it injects belongs to no text and is never part of an answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

MAX_SEQ_LEN = 384
MAX_DOC_STRIDE = 128
MAX_QUESTION_LEN = 64
NO_TEXT = -1
# Longer passages are tokenised in parts of so many characters: a tokenizer needs several hundred bytes for each.
PART = 100_000
_NEAR = 1000  # characters in which the end of a word is looked for


@dataclass
class Window:
    """One window of one question."""

    inputs: dict[str, list[Any]]  # what the model gets, a list for each name
    example: int  # number of the question
    sequences: np.ndarray  # `(seq_len,)` 0 or 1 for the first or second text, -1 for tokens of neither
    context: int  # which of the two is the passage
    offsets: np.ndarray  # `(seq_len, 2)` begin and end of each token in its text
    words: np.ndarray  # `(seq_len,)` number of the token's word, -1 for none
    null_index: int  # the token that stands for "no answer"
    is_first: bool = True  # whether the passage begins here
    is_last: bool = True

    @property
    def in_context(self) -> np.ndarray:
        """`(seq_len,)` bool: tokens of the passage."""
        return self.sequences == self.context

    @property
    def answerable(self) -> np.ndarray:
        """`(seq_len,)` bool: tokens of the passage that stand for at least one character."""
        return self.in_context & (self.offsets[:, 1] > self.offsets[:, 0])

    def word_characters(self, token: int) -> tuple[int, int] | None:
        """Begin and end, in the passage, of the word with this token's number; `None` if there is none."""
        word = self.words[token]
        found = np.flatnonzero(self.in_context & (self.words == word)) if word >= 0 else np.empty(0, np.int64)
        return (int(self.offsets[found[0], 0]), int(self.offsets[found[-1], 1])) if len(found) else None


def question_windows(
    tokenizer: Any,
    questions: Sequence[str] | None,
    contexts: Sequence[str],
    *,
    max_seq_len: int | None = None,
    doc_stride: int | None = None,
    max_question_len: int | None = MAX_QUESTION_LEN,
    **options: Any,
) -> list[Window]:
    """Tokenise questions with their passages, of which a long one is read in parts (see `windows_in_parts`).

    Args:
        tokenizer: a fast tokenizer, or any whose encodings know offsets and sequences.
        questions: texts; `None` for a model that copies from one text.
        contexts: as many passages.
        max_seq_len: most tokens of a window (default: 384, or the tokenizer's own limit if that is less).
        doc_stride: how many tokens of the passage two windows share (default: 128, or half of what a window can hold
            of passages and questions if that is less).
        max_question_len: longer questions are cut to this many tokens (default 64); `None` never cuts.
        options: of the tokenizer's call.
    """
    found: list[Window] = []
    short = [number for number, context in enumerate(contexts) if len(context) <= PART]
    rest = {"max_seq_len": max_seq_len, "doc_stride": doc_stride, "max_question_len": max_question_len, **options}
    for window in _at_once(
        tokenizer,
        None if questions is None else [questions[number] for number in short],
        [contexts[number] for number in short],
        **rest,
    ):
        window.example = short[window.example]
        found.append(window)
    for number, context in enumerate(contexts):
        if len(context) > PART:
            parts = windows_in_parts(tokenizer, None if questions is None else questions[number], context, **rest)
            found += [replace(window, example=number) for window in parts]
    found.sort(key=lambda window: window.example)
    return found


def windows_in_parts(tokenizer: Any, question: str | None, context: str, **options: Any) -> Iterator[Window]:
    """Windows of one question, made as they are asked for; a passage of at most `PART` characters is one part.

    Each part ends between two words, and the next one begins where the last window of the part before it does, which
    is left out: so windows overlap across parts as they do inside one.
    """
    start = 0
    while True:
        end = _word_end(context, start, start + PART)
        windows = _at_once(tokenizer, None if question is None else [question], [context[start:end]], **options)
        following = len(context)
        if end < len(context):
            tokens = np.flatnonzero(windows[-1].answerable)
            begin = start + int(windows[-1].offsets[tokens[0], 0]) if len(windows) > 1 and len(tokens) else end
            following = _word_end(context, start, begin) if begin < end else end
            if following < end:
                windows.pop()
        for number, window in enumerate(windows):
            # Offsets of the question's tokens, and of what stands for no character, stay as they are.
            yield replace(
                window,
                offsets=window.offsets + start * window.answerable[:, None],
                is_first=start == 0 and number == 0,
                is_last=following >= len(context) and number + 1 == len(windows),
            )
        if following >= len(context):
            return
        start = following


def _word_end(context: str, start: int, end: int) -> int:
    """The last place at or before `end` that white space follows, if one is near; always behind `start`."""
    if end >= len(context):
        return len(context)
    near = next((at for at in range(end, max(end - _NEAR, start), -1) if context[at].isspace()), end)
    return max(near, start + 1)


def _at_once(
    tokenizer: Any,
    questions: Sequence[str] | None,
    contexts: Sequence[str],
    *,
    max_seq_len: int | None = None,
    doc_stride: int | None = None,
    max_question_len: int | None = MAX_QUESTION_LEN,
    **options: Any,
) -> list[Window]:
    """Windows of passages that are tokenised as a whole."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            "`tokenizer` must be a fast tokenizer, which tells where in the text a token is, got "
            f"{type(tokenizer).__name__}."
        )
    if max_seq_len is None:
        max_seq_len = min(tokenizer.model_max_length, MAX_SEQ_LEN)
    given_stride = doc_stride
    if doc_stride is None:
        doc_stride = min(max_seq_len // 2, MAX_DOC_STRIDE)
    if not 0 <= doc_stride < max_seq_len:
        raise ValueError(
            f"`doc_stride` must be at least 0 and less than `max_seq_len` = {max_seq_len}, got {doc_stride}."
        )
    if questions is None:
        cut, lengths = None, [0] * len(contexts)
    else:
        cut, lengths = _cut_questions(tokenizer, questions, max_question_len)
    reserved = tokenizer.num_special_tokens_to_add(pair=cut is not None)
    groups: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        room = max_seq_len - reserved - length
        if room < 1:
            raise ValueError(
                f"`max_seq_len` = {max_seq_len} has no room for a part of the passage behind a question of {length} "
                "tokens. Give more room, or cut questions with `max_question_len`."
            )
        stride = doc_stride
        if stride >= room:
            if given_stride is not None and len(tokenizer.tokenize(contexts[number])) > room:
                raise ValueError(
                    f"`doc_stride` must be less than the {room} tokens of the passage that a window of {max_seq_len} "
                    f"holds behind a question of {length} tokens, got {doc_stride}."
                )
            stride = room // 2
        groups.setdefault(stride, []).append(number)

    question_first = cut is not None and tokenizer.padding_side == "right"
    windows: list[Window] = []
    for stride, numbers in groups.items():
        texts = [[contexts[number] for number in numbers]]
        if cut is not None:
            texts.insert(0 if question_first else 1, [cut[number] for number in numbers])
        encoded = tokenizer(
            *texts,
            truncation="only_second" if question_first else "only_first",
            max_length=max_seq_len,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            verbose=False,
            **options,
        )
        windows += _windows(tokenizer, encoded, int(question_first), numbers)
    return sorted(windows, key=lambda window: window.example)  # windows of one question stay in order


def _windows(tokenizer: Any, encoded: Any, context: int, numbers: Sequence[int]) -> list[Window]:
    names = [name for name in tokenizer.model_input_names if name in encoded]
    examples = [numbers[sample] for sample in encoded["overflow_to_sample_mapping"]]
    windows = []
    for number, example in enumerate(examples):
        ids = encoded["input_ids"][number]
        windows.append(
            Window(
                inputs={name: encoded[name][number] for name in names},
                example=example,
                sequences=_numbers(encoded.sequence_ids(number)),
                context=context,
                offsets=np.array(encoded["offset_mapping"][number], dtype=np.int64).reshape(-1, 2),
                words=_numbers(encoded.word_ids(number)),
                null_index=null_index(tokenizer, ids),
                is_first=number == 0 or examples[number - 1] != example,
                is_last=number + 1 == len(examples) or examples[number + 1] != example,
            )
        )
    return windows


def null_index(tokenizer: Any, input_ids: Sequence[int]) -> int:
    """The token that stands for "no answer": [CLS], else the begin of the text, else the first one."""
    for token in (tokenizer.cls_token_id, tokenizer.bos_token_id):
        if token is not None and token in input_ids:
            return list(input_ids).index(token)
    return 0


def _numbers(values: Sequence[int | None]) -> np.ndarray:
    return np.array([NO_TEXT if value is None else value for value in values], dtype=np.int64)


def _cut_questions(tokenizer: Any, questions: Sequence[str], limit: int | None) -> tuple[list[str], list[int]]:
    """Questions of at most `limit` tokens, and how many tokens they have."""
    if limit is not None and limit < 1:
        raise ValueError(f"`max_question_len` must be at least 1, got {limit}.")
    if not questions:
        return [], []
    encoded = tokenizer(list(questions), add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    cut, lengths = [], []
    for number, question in enumerate(questions):
        # Not all tokens are the text's: knowledge may be among them.
        ends = [
            end
            for (_, end), sequence in zip(encoded["offset_mapping"][number], encoded.sequence_ids(number), strict=True)
            if sequence is not None
        ]
        length = len(ends) if limit is None else min(limit, len(ends))
        cut.append(question[: ends[length - 1]] if length < len(ends) else question)
        lengths.append(length)
    return cut, lengths
