"""Mixed-vocabulary input of dual training (Zhao et al. 2019, https://arxiv.org/abs/1909.11687).

The student reads a text in its own small vocabulary. In the teacher's input every word is cut, independently and with
probability p, by the student's vocabulary instead of the teacher's. Both are masked language models of what they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import PreTrainedTokenizerBase

from ..masking import bernoulli_tokens, check_fate, check_probability, replace_tokens, selected_labels, uniform_tokens
from .randomness import CallRandomness
from .vocabulary import check_tokenizer, word_boundary_style

TEACHER, STUDENT = 0, 1
# Words whose pieces are remembered; then all are forgotten, so that a large corpus does not fill the memory.
REMEMBERED_WORDS = 500_000
_SPACED = BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False)
_WORDS = BertPreTokenizer()


def basic_words(text: str) -> list[str]:
    """Split a text as BERT does before it cuts pieces: at white space, punctuation and Chinese characters."""
    return [word for word, _ in _WORDS.pre_tokenize_str(_SPACED.normalize_str(text))]


@dataclass
class DataCollatorForMixedVocabulary(CallRandomness):
    """Make a student's and a teacher's masked language modelling batch of the same words.

    | input | becomes | label |
    | --- | --- | --- |
    | selected piece | [MASK] / random / itself (0.8/0.1/0.1), of the vocabulary that cut it | its id there |
    | other piece, special token, padding | itself | -100 |

    Relations: `DualTrainModel` (hf_ptm_ext.distillation) reads the batch. The paper does not say whose [MASK] hides
    a piece of the student's in the teacher's input; here it is the student's, which the teacher sees projected.

    Args:
        tokenizer: the student's tokenizer.
        teacher_tokenizer: the teacher's.
        student_probability: probability that the teacher reads a word in the student's pieces (paper: 0.5).
        mlm_probability: share of pieces to select (BERT: 0.15).
        mask_replace_prob: probability that a selected piece becomes [MASK].
        random_replace_prob: probability that it becomes a random one.
        max_length: pieces of a row, special ones included; a text ends before the first word that fits one side only.
        seed: seed of all draws; `None` for fresh entropy.

    Examples:
        >>> from transformers import BertTokenizerFast
        >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        >>> small, large = ([*special, "a", "##b"], [*special, "ab", "a", "b"])
        >>> tokenizers = [BertTokenizerFast(vocab={t: n for n, t in enumerate(words)}) for words in (small, large)]
        >>> collator = DataCollatorForMixedVocabulary(*tokenizers, student_probability=1.0, mlm_probability=0.0)
        >>> batch = collator([{"text": "ab"}])
        >>> batch["input_ids"].tolist(), batch["teacher_input_ids"].tolist(), batch["teacher_vocabulary_ids"].tolist()
        ([[2, 5, 6, 3]], [[2, 5, 6, 3]], [[0, 1, 1, 0]])
    """

    tokenizer: PreTrainedTokenizerBase
    teacher_tokenizer: PreTrainedTokenizerBase
    student_probability: float = 0.5
    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    max_length: int = 128
    seed: int | None = None
    _pieces: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict, init=False, repr=False)

    input_columns: ClassVar[tuple[str, ...]] = ("text", "words")

    def __post_init__(self) -> None:
        check_probability("student_probability", self.student_probability)
        check_probability("mlm_probability", self.mlm_probability)
        check_fate(self.mask_replace_prob, self.random_replace_prob)
        if self.max_length < 3:
            raise ValueError(f"`max_length` must be at least 3, got {self.max_length}.")
        for name, tokenizer in (("tokenizer", self.tokenizer), ("teacher_tokenizer", self.teacher_tokenizer)):
            check_tokenizer(name, tokenizer)
            special = ("cls_token_id", "sep_token_id", "pad_token_id", "mask_token_id")
            missing = [each for each in special if getattr(tokenizer, each) is None]
            if missing:
                raise ValueError(f"`{name}` must have special tokens, it lacks {', '.join(missing)}.")
            style = word_boundary_style(tokenizer)
            if style not in ("wordpiece", "word_level"):
                raise ValueError(
                    f"`{name}` must cut single words into word pieces ('##'), as BERT's does, got "
                    f"{type(tokenizer).__name__} ({style}): its pieces of a word depend on the space before it. Train "
                    "one with `hf_ptm_ext.data.train_wordpiece`."
                )
        self.start_randomness(self.seed)

    def __call__(self, features: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate."""
        rng = self.next_generator()
        rows = [self._words(row) for row in features]
        self._learn({word for row in rows for word in row})
        student, teacher, vocabularies = [], [], []
        for words in rows:
            pieces, mixed, of = self._row(words, rng)
            student.append(pieces)
            teacher.append(mixed)
            vocabularies.append(of)
        own = [np.full(len(row), STUDENT) for row in student]
        batch = self._side(student, own, self.tokenizer, rng, specials=STUDENT)
        batch.pop("vocabulary_ids")
        side = self._side(teacher, vocabularies, self.teacher_tokenizer, rng, specials=TEACHER)
        batch.update({f"teacher_{name}": values for name, values in side.items()})
        return {name: torch.from_numpy(values) for name, values in batch.items()}

    @staticmethod
    def _words(row: dict[str, Any]) -> list[str]:
        if "words" in row:
            return list(row["words"])
        if "text" not in row:
            raise ValueError(
                f"Rows must have `text` or `words`, got {', '.join(sorted(row))}. "
                "A Trainer drops them unless `remove_unused_columns=False` (the Trainers here keep them)."
            )
        return basic_words(row["text"])

    def _learn(self, words: set[str]) -> None:
        """Cut words that are not remembered."""
        if len(self._pieces) > REMEMBERED_WORDS:
            self._pieces.clear()
        new = sorted(words - self._pieces.keys())
        if not new:
            return
        both = [
            tokenizer(new, add_special_tokens=False)["input_ids"]
            for tokenizer in (self.tokenizer, self.teacher_tokenizer)
        ]
        self._pieces.update({word: (own, other) for word, own, other in zip(new, *both, strict=True)})

    def _row(self, words: list[str], rng: np.random.Generator) -> tuple[list[int], list[int], np.ndarray]:
        """The student's pieces, the teacher's, and which vocabulary each of the latter is of."""
        swapped = rng.random(len(words)) < self.student_probability
        pieces: list[int] = []
        mixed: list[int] = []
        of: list[int] = []
        for word, swap in zip(words, swapped, strict=True):
            own, other = self._pieces[word]
            chosen = own if swap else other
            if max(len(pieces) + len(own), len(mixed) + len(chosen)) > self.max_length - 2:
                break
            pieces += own
            mixed += chosen
            of += [STUDENT if swap else TEACHER] * len(chosen)
        return pieces, mixed, np.array(of, dtype=np.int64)

    def _side(
        self,
        rows: list[list[int]],
        vocabularies: list[np.ndarray],
        tokenizer: PreTrainedTokenizerBase,
        rng: np.random.Generator,
        specials: int,
    ) -> dict[str, np.ndarray]:
        """Pad and mask one model's rows."""
        shape = (len(rows), max(len(row) for row in rows) + 2)
        ids = np.full(shape, tokenizer.pad_token_id, dtype=np.int64)
        text = np.zeros(shape, dtype=bool)
        of = np.full(shape, specials, dtype=np.int64)
        candidates = np.zeros(shape, dtype=bool)
        for number, row in enumerate(rows):
            inside = slice(1, len(row) + 1)
            ids[number, 0], ids[number, inside], ids[number, len(row) + 1] = (
                tokenizer.cls_token_id,
                row,
                tokenizer.sep_token_id,
            )
            text[number, : len(row) + 2] = candidates[number, inside] = True
            of[number, inside] = vocabularies[number]
        selected = bernoulli_tokens(candidates, self.mlm_probability, rng)
        corrupted = ids
        for vocabulary, cutter in ((TEACHER, self.teacher_tokenizer), (STUDENT, self.tokenizer)):
            corrupted = replace_tokens(
                corrupted,
                selected & (of == vocabulary),
                rng,
                mask_token_id=cutter.mask_token_id,
                random_tokens=uniform_tokens(len(cutter)),
                mask_replace_prob=self.mask_replace_prob,
                random_replace_prob=self.random_replace_prob,
            )
        return {
            "input_ids": corrupted,
            "attention_mask": text.astype(np.int64),
            "labels": selected_labels(ids, selected),
            "vocabulary_ids": of,
        }
