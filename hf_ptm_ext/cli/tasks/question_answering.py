"""Extractive question answering: copy the answer out of a passage."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from ...collators.question_answering import POSITIONS, DataCollatorForQuestionAnswering, SquadFeatures
from ...data.question_answering import (
    QuestionColumns,
    QuestionExample,
    dataset_question_examples,
    read_question_examples,
)
from ...hub import add_question_answering_pipeline
from ...metrics.answers import answer_tokens, best_null_threshold, overlap_answer, question_answering_scores
from ...models.concepts_ktnet import padded_concepts
from ...objectives.token_losses import update_loss
from ...pipelines.postprocessing import postprocess_qa_predictions
from ..arguments import AUTO, TaskDataArguments
from ..console import in_parts
from .base import Rows, Task, rows_of

logger = logging.getLogger(__name__)

# Of a window, what the model does not take.
PLACES = ("example_id", "offset_mapping", "null_index")
CONCEPTS = "concept_ids"
GUESSED = 1000  # training questions that choose the simple guess


@dataclass(frozen=True)
class QuestionAnsweringTask(Task):
    """Start and end of the answer in the passage; "no answer" is the [CLS] token.

    Args:
        data: limits of windows and answers.
        scoring: whose exact match and F1.
        negatives: whether some questions of the training data have no answer.
        no_answer: whether "no answer" to all of them has a better F1 than words of the passages.
        answer_length: mean number of tokens of the training data's answers.
    """

    data: TaskDataArguments
    scoring: str
    negatives: bool
    no_answer: bool
    answer_length: int
    name = "question-answering"
    kind = "extractive question answering"
    head = "QuestionAnswering"
    pipeline_tag = "question-answering"
    readers = (read_question_examples, dataset_question_examples)
    words = "word overlap"
    template = "question_answering"
    page = "how-to/question_answering"
    labels = ()
    shown = ("f1", "exact_match")
    asks = True

    @property
    def simple(self) -> str:
        """What the task is guessed by without any training."""
        return "no answer" if self.no_answer else self.words

    @classmethod
    def columns(cls, data: TaskDataArguments) -> dict[str, Any]:
        question = data.question_column if cls.asks else None
        return {"columns": QuestionColumns(question, data.context_column, data.answers_column)}

    @classmethod
    def of(cls, examples: Sequence[QuestionExample], data: TaskDataArguments) -> "QuestionAnsweringTask":
        scoring = data.answer_metric
        if scoring == AUTO:
            scoring = "cmrc" if data.language.startswith("zh") else "squad"
        answers = [example.answers[0][0] for example in examples if example.answers]
        if not answers:
            raise ValueError(
                f"The training data must have at least one question with an answer, none of {len(examples)} has one."
            )
        if data.best_null_threshold and len(answers) == len(examples):
            raise ValueError(
                f"`best_null_threshold` needs training questions without an answer, all {len(examples)} have one."
            )
        length = max(1, round(mean(len(answer_tokens(answer, scoring)) for answer in answers)))
        task = cls(data, scoring, len(answers) < len(examples), False, length)
        tried = examples[:GUESSED]
        no_answer = (
            task.negatives and sum(not one.answers for one in tried) > len(tried) * task.majority((), tried)["f1"]
        )
        return replace(task, no_answer=no_answer)

    def text_of(self, example: QuestionExample) -> str:
        return f"{example.question}\n{example.context}"

    def classes_of(self, example: QuestionExample) -> tuple[str, ...] | None:
        """No class; `None` if the answers are not told."""
        return None if example.answers is None else ()

    def are_hidden(self, examples: Sequence[QuestionExample]) -> bool:
        """Whether no question has an answer although all of the training data have: they are not told."""
        return not self.negatives and not any(example.answers for example in examples)

    def configure(self, config: Any) -> None:
        """Give a config two outputs: start and end of an answer."""
        config.num_labels = 2

    def encode(self, examples: Sequence[QuestionExample], tokenizer: Any, max_length: int, **options: Any) -> Rows:
        """Windows, and the places of their answers."""
        features = SquadFeatures(
            tokenizer,
            max_length,
            self.data.doc_stride,
            self.data.max_question_length,
            columns=("id", "question" if self.asks else None, "context", "answers"),
            options=options,
        )
        # Ids of their own: translations share theirs.
        examples = [example._replace(id=f"{number}") for number, example in enumerate(examples)]
        rows: list[dict[str, Any]] = []
        for part in in_parts([example.row() for example in examples], "tokenizing"):
            rows += rows_of(features({name: [row[name] for row in part] for name in part[0]}))
        held = {row["example_id"] for row in rows if any(row[position] != row["null_index"] for position in POSITIONS)}
        lost = sum(bool(example.answers) and example.id not in held for example in examples)
        if lost:
            logger.warning(
                "%d of %d answers are in no window of %d tokens as a whole, and cannot be learnt. Give windows more "
                "tokens or more overlap (`max_seq_length`, `doc_stride`).",
                lost,
                len(examples),
                max_length,
            )
        return Rows(
            inputs=[{name: value for name, value in row.items() if name not in PLACES} for row in rows],
            windows=[{name: row[name] for name in PLACES} for row in rows],
        )

    def collator(self, tokenizer: Any) -> Any:
        return SpanLabels(tokenizer)

    def saved(self, tokenizer: Any) -> Any:
        """What is saved beside the model: the pipeline too."""
        return WithPipeline(tokenizer)

    def reduce_logits(self, logits: Any, labels: Any) -> Any:
        """What an evaluation keeps of the outputs: start and end logits as `(batch, seq_len, 2)`."""
        return torch.stack(tuple(logits[:2]), dim=-1)

    @staticmethod
    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None, **options: Any) -> torch.Tensor:
        """Mean of both cross-entropies over all windows of an update."""
        start, end = (outputs[name] for name in ("start_logits", "end_logits"))
        return update_loss({"logits": torch.stack([start, end], dim=1)}, labels, num_items_in_batch, **options)

    def tuned(
        self, predictions: np.ndarray, examples: Sequence[QuestionExample], rows: Rows
    ) -> "QuestionAnsweringTask":
        """The task whose "no answer" has the best F1 on these examples, if that is asked for."""
        if not self.data.best_null_threshold:
            return self
        found = self._answers(predictions, examples, rows)
        texts = [one["n_best"][0]["text"] if one["n_best"] else "" for one in found]
        differences = [one["null_score_diff"] for one in found]
        threshold = best_null_threshold(differences, texts, _golds(examples), self.scoring)
        return replace(self, data=replace(self.data, null_score_diff_threshold=threshold))

    def scores(
        self, predictions: np.ndarray, examples: Sequence[QuestionExample], rows: Any = None
    ) -> dict[str, float]:
        """Scores of logits `(windows, seq_len, 2)`."""
        found = self._answers(predictions, examples, rows)
        return self._scores([one["text"] for one in found], examples) | self._threshold()

    def _threshold(self) -> dict[str, float]:
        """The threshold that the validation data chose."""
        return {"null_threshold": self.data.null_score_diff_threshold} if self.data.best_null_threshold else {}

    def records(
        self, predictions: np.ndarray, examples: Sequence[QuestionExample], rows: Any = None
    ) -> list[dict[str, Any]]:
        """What was predicted for each example, with the n best."""
        found = self._answers(predictions, examples, rows)
        return [
            {
                "question": example.question,
                **({} if example.answers is None else {"answers": [text for text, _ in example.answers]}),
                "prediction": answer["text"],
                **self._threshold(),
                **{name: value for name, value in answer.items() if name != "text"},
            }
            for example, answer in zip(examples, found, strict=True)
        ]

    def majority(self, train: Sequence[QuestionExample], test: Sequence[QuestionExample]) -> dict[str, float]:
        """Scores without any training: words of the sentence that is most like the question, or always no answer."""
        guesses = [
            "" if self.no_answer else overlap_answer(example.question, example.context, self.answer_length)
            for example in test
        ]
        return self._scores(guesses, test)

    def _answers(self, predictions: np.ndarray, examples: Sequence[QuestionExample], rows: Rows) -> list[Any]:
        found = postprocess_qa_predictions(
            [{"id": f"{number}", "context": example.context} for number, example in enumerate(examples)],
            rows.windows,
            (predictions[..., 0], predictions[..., 1]),
            version_2_with_negative=self.negatives,
            n_best_size=self.data.n_best_size,
            max_answer_length=self.data.max_answer_length,
            null_score_diff_threshold=self.data.null_score_diff_threshold,
        )
        return [found[f"{number}"] for number in range(len(examples))]

    def _scores(self, texts: Sequence[str], examples: Sequence[QuestionExample]) -> dict[str, float]:
        return question_answering_scores(texts, _golds(examples), self.scoring)


def _golds(examples: Sequence[QuestionExample]) -> list[list[str]]:
    return [[text for text, _ in example.answers or ()] for example in examples]


@dataclass(frozen=True)
class ExtractionTask(QuestionAnsweringTask):
    """Copy from one text: question answering without a question."""

    name = "extraction"
    kind = "copying a part out of a text (give the pipeline `question=None`)"
    words = "first words"
    asks = False


class SpanLabels:
    """Pads windows and gives both places of an answer as `labels` `(batch, 2)`, which the Trainer counts."""

    def __init__(self, tokenizer: Any):
        self.pad = DataCollatorForQuestionAnswering(tokenizer)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Make a batch."""
        batch = self.pad(rows)
        batch["labels"] = torch.stack([batch.pop(position) for position in POSITIONS], dim=1)
        if CONCEPTS in rows[0]:  # KT-NET's
            batch[CONCEPTS] = padded_concepts([row[CONCEPTS] for row in rows], batch["input_ids"].shape[1])
        return batch


class WithPipeline:
    """Saves a tokenizer, and the pipeline with it."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer

    def save_pretrained(self, folder: str | Path) -> None:
        """Save into the folder of a model that is saved already."""
        self.tokenizer.save_pretrained(folder)
        add_question_answering_pipeline(folder)
