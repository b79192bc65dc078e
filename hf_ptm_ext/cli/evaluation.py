"""The splits of a job by seeds: what is scored and what only predicted, and what is wrong with it, before training.

A test set without labels is predicted and not scored. A class that training does not know is said with its rows, which
count as wrong. Evaluation rows that stand in the training data are counted, and left out if asked.
"""

import logging
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.bad_rows import SKIP, BadRows
from .console import phase
from .results import paired_differences, summary, write_lines
from .shapes import drop_short_batch, settle_shapes
from .tasks.base import Rows, Task

logger = logging.getLogger(__name__)

TRAIN, VALIDATION, TEST = "train", "validation", "test"
EVALUATION = "evaluation"
LINEAR = {"classification": "n-grams, linear", "tagging": "words, linear"}
NAMED = 8  # classes that a message names


def normalised(text: str) -> str:
    """A text as rows are compared: Unicode's NFKC, without case, one blank for white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def overlaps(train: Iterable[str], others: Sequence[str]) -> list[bool]:
    """Whether each text stands in the training data too, both normalised."""
    known = {normalised(text) for text in train}
    return [normalised(text) in known for text in others]


def common_rows(
    texts: dict[str, list[str]], split: str, drop: str | None, scored: bool = True
) -> tuple[dict[str, Any], str | None, list[bool]]:
    """Count the rows of a split that are in the training data too, and take those of one side out of `texts` if asked.

    Returns what the results say of it, the split that loses rows, and which of its rows are lost.
    """
    there = overlaps(texts[TRAIN], texts[split])
    if not any(there):
        return {}, None, []
    note: dict[str, Any] = {"rows": sum(there), "of": len(there)}
    logger.warning(
        "%d of %d %s rows are in the training data too, so their scores say little.%s",
        sum(there),
        len(there),
        split,
        " `--drop_overlap evaluation` (or train) leaves them out." if drop is None else "",
    )
    if drop is None or (drop == EVALUATION and not scored):  # all of what is only predicted is wanted
        return note, None, []
    losing, out = (split, there) if drop == EVALUATION else (TRAIN, overlaps(texts[split], texts[TRAIN]))
    texts[losing] = [text for text, gone in zip(texts[losing], out, strict=True) if not gone]
    logger.warning("%d %s rows are left out.", sum(out), losing)
    if not texts[losing]:
        raise ValueError(f"`drop_overlap` = {drop} leaves no {losing} row: all are in both.")
    return note | {"left_out_of": losing, "left_out": sum(out)}, losing, out


class Splits:
    """The examples of a job and the rows that are made of them."""

    def __init__(
        self,
        task: Task,
        examples: Mapping[str, Sequence[Any]],
        encode: Callable[..., Rows],
        options: Any,
        bad: BadRows,
    ):
        self.task, self.options, self._encode = task, options, encode
        self._skips = options.on_bad_rows == SKIP
        self.notes: dict[str, Any] = bad.results()
        self.examples = {split: list(found) for split, found in examples.items()}
        read = bad.numbers or [list(range(len(found))) for found in self.examples.values()]
        self._numbers = {
            split: [*numbers, *range(len(numbers), len(self.examples[split]))][: len(self.examples[split])]
            for split, numbers in zip(examples, read, strict=False)  # other files may have been read behind them
        }
        self.evaluated = tuple(split for split in (VALIDATION, TEST) if split in examples)
        self.scored = tuple(split for split in self.evaluated if self._has_labels(split))
        self._count_overlap(options.drop_overlap)
        for split in self.scored:
            self._count_unseen(split)
        self._drawn: dict[int, list[int]] = {}
        self._strata = self._of_classes()
        self._rows: dict[tuple[str, ...], Any] = {}
        self._tuned = task  # with what the validation data decided

    @property
    def reported(self) -> str | None:
        """The split whose scores are reported: the last one that has labels."""
        return self.scored[-1] if self.scored else None

    def _has_labels(self, split: str) -> bool:
        found = self.examples[split]
        without = [number for number, one in enumerate(found) if self.task.classes_of(one) is None]
        if self.task.are_hidden(found):
            without = list(range(len(found)))
        if not without:
            return True
        if len(without) < len(found) and self._skips:
            logger.warning("%d of %d %s rows have no label and are left out.", len(without), len(found), split)
            self.notes.setdefault("without_labels", {})[split] = len(without)
            self._leave_out(split, [self.task.classes_of(one) is None for one in found])
            return True
        if len(without) < len(found):
            raise ValueError(
                f"`{split}_file` or `{split}_split`: {len(without)} of {len(found)} rows have no label, the first of "
                f"which is row {without[0]} (counted from 0). Label them, or leave them out with `on_bad_rows` = skip."
            )
        if split == VALIDATION:
            raise ValueError(
                "`validation_file` or `validation_split` has no labels, so it measures nothing. Give data without "
                "labels as `test_file` or `test_split`: they are predicted and not scored."
            )
        logger.warning("The %d %s rows have no labels: they are predicted and not scored.", len(without), split)
        self.notes.setdefault("without_labels", {})[split] = len(without)
        return False

    def _count_unseen(self, split: str) -> None:
        known = set(self.task.labels)
        if not known:
            return
        each = [self.task.classes_of(one) for one in self.examples[split]]
        unseen = Counter(name for names in each for name in set(names) - known)
        if not unseen:
            return
        rows = sum(bool(set(names) - known) for names in each)
        names = ", ".join(f"{name} ({count})" for name, count in unseen.most_common(NAMED))
        names += ", ..." * (len(unseen) > NAMED)
        if not any((set(names_of) & known) - {self.task.outside} for names_of in each):
            raise ValueError(
                f"`{split}_file` or `{split}_split` has none of the training data's classes "
                f"({', '.join(self.task.labels[:NAMED])}), but {names}. Check the column of labels, or give data of "
                "the same task."
            )
        logger.warning(
            "%d of %d %s rows have classes that the training data lack: %s. They count as wrong, and the loss is that "
            "of the others.",
            rows,
            len(each),
            split,
            names,
        )
        self.notes.setdefault("unseen_classes", {})[split] = {"rows": rows, **unseen}

    def _leave_out(self, split: str, gone: Sequence[bool]) -> None:
        """Take rows out; the others keep their numbers."""
        kept: dict[str, list[Any]]
        for kept in (self.examples, self._numbers):
            kept[split] = [one for one, out in zip(kept[split], gone, strict=True) if not out]

    def _count_overlap(self, drop: str | None) -> None:
        texts = {split: [self.task.text_of(one) for one in found] for split, found in self.examples.items()}
        for split in self.evaluated:
            note, losing, out = common_rows(texts, split, drop, split in self.scored)
            if note:
                self.notes.setdefault("in_training_data", {})[split] = note
            if losing is not None:
                self._leave_out(losing, out)

    # ---- samples ----

    def _of_classes(self) -> dict[Any, list[int]]:
        """The training examples of each class; all together where they have several, or numbers."""
        size, train = self.options.train_sample, self.examples[TRAIN]
        if size is None:
            return {}
        if size > len(train):
            raise ValueError(f"`train_sample` must be at most the {len(train)} training rows, got {size}.")
        strata: dict[Any, list[int]] = {}
        several = any(len(self.task.classes_of(one) or ()) != 1 for one in train)
        for place, one in enumerate(train):
            strata.setdefault(None if several or not self.task.labels else self.task.classes_of(one), []).append(place)
        if size < len(strata):
            raise ValueError(f"`train_sample` must be at least the {len(strata)} classes, got {size}.")
        return strata

    def sample(self, seed: int) -> list[int] | None:
        """The training examples of a seed, at least one of each class; `None` for all."""
        if not self._strata:
            return None
        if seed not in self._drawn:
            rng = np.random.default_rng(seed)
            size, total = self.options.train_sample, len(self.examples[TRAIN])
            shares = {name: size * len(places) / total for name, places in self._strata.items()}
            counts = {name: max(int(share), 1) for name, share in shares.items()}
            while missing := size - sum(counts.values()):  # to the largest remainders, or from what has most too many
                step = 1 if missing > 0 else -1
                able = [name for name, count in counts.items() if step > 0 or count > 1]
                counts[max(able, key=lambda name: step * (shares[name] - counts[name]))] += step
            drawn = [rng.permutation(places)[: counts[name]] for name, places in self._strata.items()]
            self._drawn[seed] = sorted(int(place) for part in drawn for place in part)
        return self._drawn[seed]

    def train_inputs(self, seed: int, *variant: str) -> list[dict[str, Any]]:
        """The rows of a seed."""
        rows, chosen = self.rows(TRAIN, *variant), self.sample(seed)
        if chosen is None:
            return rows.inputs
        if not rows.windows:
            return [rows.inputs[place] for place in chosen]
        kept = set(map(str, chosen))  # windows name their question by its number
        return [row for row, window in zip(rows.inputs, rows.windows, strict=True) if window["example_id"] in kept]

    def _linear(self, seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Runs of a linear model, each on the rows of its seed; one where all seeds have the same."""
        found = []
        for seed in seeds if self._strata else seeds[:1]:
            with phase("fitting a linear model"):
                chosen = self.sample(seed)
                train = self.examples[TRAIN] if chosen is None else [self.examples[TRAIN][place] for place in chosen]
                splits = [self.examples[split] for split in self.scored]
                scores = self.task.linear(train, splits, self.options.language)
                run = {"seed": seed, "variant": LINEAR[self.task.name], **dict(zip(self.scored, scores, strict=True))}
            found.append(run)
        return found

    # ---- rows and Trainers ----

    def rows(self, split: str, *variant: str) -> Rows:
        """The examples of a split as model inputs, made once."""
        if (split, *variant) not in self._rows:
            with phase(" ".join(("tokenizing", split, *(f"({name})" for name in variant if name)))):
                self._rows[split, *variant] = self._encode(self.examples[split], *variant)
        return self._rows[split, *variant]

    def scores(self, output: Any, split: str, *variant: str) -> dict[str, float]:
        """Scores of what a Trainer has predicted."""
        task = self._task_of(output, split, *variant)
        return task.scores_of(output, self.examples[split], self.rows(split, *variant))

    def _task_of(self, output: Any, split: str, *variant: str) -> Any:
        """The task as these predictions are judged; those of the validation data decide for the test data too."""
        if split == VALIDATION:
            self._tuned = self.task.tuned(output.predictions, self.examples[split], self.rows(split, *variant))
        return self._tuned

    def produced(self) -> tuple[str, ...]:
        """What an evaluation of the validation data gives."""
        found = (
            self.task.majority(self.examples[TRAIN], self.examples[VALIDATION])
            if VALIDATION in self.scored and not self.task.ranks
            else ()
        )
        return ("loss", *found)

    def trainer_options(self, args: Any, tokenizer: Any, *variant: str) -> dict[str, Any]:
        """What every Trainer of a job is given."""
        args.label_names = ["labels"]  # upstream takes the heads' own names, which differ
        validation = self.rows(VALIDATION, *variant).inputs if args.eval_strategy != "no" else None
        train = self.train_inputs(args.seed, *variant)
        drop_short_batch(args, train)
        return {
            "args": args,
            "train_dataset": train,
            "eval_dataset": validation,
            "data_collator": settle_shapes(self.task.collator(tokenizer), args, self.options.max_seq_length),
            "processing_class": tokenizer,
            "compute_metrics": validation and (lambda output: self.scores(output, VALIDATION, *variant)),
            "preprocess_logits_for_metrics": self.task.reduce_logits,
        }

    def score(self, trainer: Any, split: str, folder: Path | None, *variant: str) -> dict[str, float]:
        """Predict a split, and score it if it has labels."""
        trainer.compute_metrics = None  # that of the validation data
        rows = self.rows(split, *variant)
        with phase(f"predicting {split}"):
            output = self.task.predicted(trainer, self.examples[split], rows)
        self.write(output, split, folder if trainer.is_world_process_zero() else None, *variant)
        return self.scores(output, split, *variant) if split in self.scored else {}

    def write(self, output: Any, split: str, folder: Path | None, *variant: str) -> None:
        """Write what was predicted of each row, with the data set's own id or the row's number from 0."""
        if folder is None:
            return
        examples = self.examples[split]
        task = self._task_of(output, split, *variant)
        records = task.records(output.predictions, examples, self.rows(split, *variant))
        named = [getattr(one, "id", None) if getattr(one, "named", True) else None for one in examples]
        write_lines(
            folder / f"predictions_{split}.jsonl",
            [
                {"id": number if name is None else name, **record}
                for number, name, record in zip(self._numbers[split], named, records, strict=False)
            ],
        )

    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What `results.json` says: runs and how long they trained, classes, the simple guess, means, the data."""
        kept, left_out = ("seed", "variant", *self.evaluated), ("history", *self.evaluated)
        found: dict[str, Any] = {
            "runs": [{name: run[name] for name in kept} for run in runs],
            "trained": [{name: value for name, value in run.items() if name not in left_out} for run in runs],
            "labels": list(self.task.labels),
            "split": self.reported,
        }
        found |= {"data": self.notes} if self.notes else {}
        if self.reported is not None:
            found["majority"] = self.task.majority(self.examples[TRAIN], self.examples[self.reported])
            found["simple_baseline"] = self.task.simple
        found["summary"] = summary(runs, self.reported or self.evaluated[-1])  # costs are there anyway
        if self.reported is None:
            return found
        if getattr(self.options, "linear_baseline", False):
            linear = self._linear(sorted({run["seed"] for run in runs}))
            found["linear_baseline"] = linear
            found["summary"] |= summary(linear, self.reported)
            runs = [*runs, *linear]
        if differences := paired_differences(runs, self.reported, self.task.shown):
            found["differences"] = differences
        return found
