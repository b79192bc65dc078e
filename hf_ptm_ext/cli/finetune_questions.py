"""Extractive question answering as a task of `hf-ptm-ext finetune`: copy the answer out of a passage."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from ..collators.question_answering import POSITIONS, DataCollatorForQuestionAnswering, SquadFeatures
from ..data.question_answering import (
    QuestionColumns,
    QuestionExample,
    dataset_question_examples,
    read_question_examples,
)
from ..hub.pipelines import add_question_answering_pipeline
from ..metrics.answers import answer_tokens, best_null_threshold, overlap_answer, question_answering_scores
from ..pipelines.postprocessing import postprocess_qa_predictions
from .finetune_arguments import AUTO, TaskDataArguments
from .finetune_rows import Rows, rows_of
from .seeded_runs import update_loss

logger = logging.getLogger(__name__)

# Of a window, what the model does not take.
PLACES = ("example_id", "offset_mapping", "null_index")
GUESSED = 1000  # training questions that choose the simple guess


@dataclass(frozen=True)
class QuestionAnsweringTask:
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
    words = "word overlap"
    template = "question_answering"
    labels = ()
    asks = True

    @property
    def simple(self) -> str:
        """What the task is guessed by without any training."""
        return "no answer" if self.no_answer else self.words

    @property
    def shown(self) -> tuple[str, ...]:
        """Scores of the tables, the first of which is what matters most."""
        return ("f1", "exact_match")

    @classmethod
    def read(
        cls, data: TaskDataArguments, files: list[str] | None, split: str | None, unlabelled: bool = False
    ) -> Iterator[QuestionExample]:
        """Examples of files, or of a split of the data set."""
        question = data.question_column if cls.asks else None
        columns = QuestionColumns(question, data.context_column, data.answers_column)
        if files:
            return read_question_examples(
                files, columns, file_format=data.file_format, encoding=data.encoding, unlabelled=unlabelled
            )
        name, config = data.dataset_name or "", data.dataset_config_name
        return dataset_question_examples(name, config, split=split or "", columns=columns, unlabelled=unlabelled)

    @classmethod
    def of(cls, examples: Sequence[QuestionExample], data: TaskDataArguments) -> "QuestionAnsweringTask":
        """The task that the training examples set."""
        scoring = data.answer_metric
        if scoring == AUTO:
            scoring = "cmrc" if data.language.startswith("zh") else "squad"
        answers = [example.answers[0][0] for example in examples if example.answers]
        if not answers:
            raise ValueError("The training data must have at least one question with an answer, got none.")
        if data.best_null_threshold and len(answers) == len(examples):
            raise ValueError("`best_null_threshold` needs training data with questions that have no answer, got none.")
        length = max(1, round(mean(len(answer_tokens(answer, scoring)) for answer in answers)))
        task = cls(data, scoring, len(answers) < len(examples), False, length)
        tried = examples[:GUESSED]
        no_answer = (
            task.negatives and sum(not one.answers for one in tried) > len(tried) * task.majority((), tried)["f1"]
        )
        return replace(task, no_answer=no_answer)

    def prepare(self, examples: Sequence[QuestionExample]) -> list[QuestionExample]:
        """Examples as they are compared with predictions."""
        return list(examples)

    @staticmethod
    def text_of(example: QuestionExample) -> str:
        """What makes two rows the same."""
        return f"{example.question}\n{example.context}"

    @staticmethod
    def classes_of(example: QuestionExample) -> tuple[str, ...] | None:
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
        found = [example.row() for example in examples]
        columns = features({name: [row[name] for row in found] for name in found[0]})
        rows = rows_of(columns)
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

    @staticmethod
    def collator(tokenizer: Any) -> Any:
        """What pads."""
        return SpanLabels(tokenizer)

    @staticmethod
    def reduce_logits(logits: Any, labels: Any) -> Any:
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
        golds = [[text for text, _ in example.answers or ()] for example in examples]
        texts = [one["n_best"][0]["text"] if one["n_best"] else "" for one in found]
        threshold = best_null_threshold([one["null_score_diff"] for one in found], texts, golds, self.scoring)
        return replace(self, data=replace(self.data, null_score_diff_threshold=threshold))

    def scores(self, predictions: np.ndarray, examples: Sequence[QuestionExample], rows: Rows) -> dict[str, float]:
        """Scores of logits `(windows, seq_len, 2)`."""
        found = self._answers(predictions, examples, rows)
        return self._scores([one["text"] for one in found], examples) | self._threshold()

    def _threshold(self) -> dict[str, float]:
        """The threshold that the validation data chose."""
        return {"null_threshold": self.data.null_score_diff_threshold} if self.data.best_null_threshold else {}

    def records(
        self, predictions: np.ndarray, examples: Sequence[QuestionExample], rows: Rows
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

    @staticmethod
    def saved(tokenizer: Any) -> Any:
        """What is saved beside the model."""
        return WithPipeline(tokenizer)

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
        golds = [[text for text, _ in example.answers or ()] for example in examples]
        return question_answering_scores(texts, golds, self.scoring)


@dataclass(frozen=True)
class ExtractionTask(QuestionAnsweringTask):
    """Copy from one text: question answering without a question."""

    name = "extraction"
    kind = "copying a part out of a text (give the pipeline `question=None`)"
    words = "first words"
    asks = False


class SpanLabels:
    """Pads windows and gives both places of an answer as `labels` `(batch, 2)`, which the Trainer counts.

    Args:
        tokenizer: the tokenizer.
    """

    def __init__(self, tokenizer: Any):
        self.pad = DataCollatorForQuestionAnswering(tokenizer)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Make a batch.

        Args:
            rows: windows with the places of their answers.
        """
        batch = self.pad(rows)
        batch["labels"] = torch.stack([batch.pop(position) for position in POSITIONS], dim=1)
        return batch


class WithPipeline:
    """Saves a tokenizer, and the pipeline with it.

    Args:
        tokenizer: the tokenizer.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer

    def save_pretrained(self, folder: str | Path) -> None:
        """Save into the folder of a model that is saved already.

        Args:
            folder: the folder.
        """
        self.tokenizer.save_pretrained(folder)
        add_question_answering_pipeline(folder)


__all__ = ["ExtractionTask", "QuestionAnsweringTask"]
