"""ERNIE 2.0's objective: tasks on one encoder, one after the other, each with its own rows and its own head."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from ...collators import DataCollatorForErnieMasking, DataCollatorForErnieTask, vocabulary_tables
from ...data import (
    DISCOURSE_MARKERS,
    DISCOURSE_RELATIONS,
    TextColumns,
    capitalization_rows,
    discourse_pairs,
    encode_documents,
    held_out_split,
    pretraining_dataset,
    read_labelled_texts,
    relevance_pairs,
    reordering_classes,
    reordering_order,
    reordering_rows,
    sentence_distance_pairs,
    text_pair_rows,
    token_document_rows,
)
from ...data.ernie_tasks import RELEVANCES
from ...data.sentence_pairs import DISTANCES
from ...metrics import UnigramBaseline
from ...trainers import ContinualMultiTaskTrainer, ContinualSchedule, Task, TaskCollator, load_task_models
from ...trainers.collator_state import restore, state_of, stateful_parts
from ...trainers.multi_task.continual import saved_heads
from ..console import bar
from ..shapes import settle_shapes
from .base import Objective

logger = logging.getLogger(__name__)

# In the order in which they come; a task's place is its row of the task embedding.
TASKS = {
    "mlm": "masked tokens, words",
    "capitalization": "capitals",
    "token_document": "tokens of elsewhere",
    "reordering": "order of segments",
    "distance": "distance of texts",
    "discourse": "discourse relation",
    "relevance": "relevance of titles",
}
PAIRS = {"discourse": TextColumns("first", pair="second"), "relevance": TextColumns("query", pair="title")}
COLUMNS = ("input_ids", "token_type_ids", "labels", "label", "word_ids")


class Continual(Objective):
    """ERNIE 2.0's: the saved model is the plain encoder, the heads of the tasks beside it."""

    name, family = "ernie2", "ernie"
    description = "Pre-trained by hf-ptm-ext as ERNIE 2.0 is: tasks one after the other, on one encoder."
    head = "the heads of its tasks"
    pipeline_tag = "feature-extraction"
    terms = TASKS

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        named = self.options.ernie_tasks or ()
        for name, file in self.files.items():
            if file is not None and named and name not in named:
                raise ValueError(f"`{name}_file` = {file} is for the task {name}, got `ernie_tasks` = {list(named)}.")
        if "relevance" in named and self.files["relevance"] is None:
            raise ValueError(f"Task relevance of `ernie_tasks` = {list(named)} needs `relevance_file`.")
        if named and all(self.files.get(name) is not None for name in named):
            raise ValueError(f"`ernie_tasks` = {list(named)} read no text, only their files: name mlm beside them.")
        if self.data_args.streaming:
            raise ValueError(
                f"Objective ernie2 draws from all documents: set streaming off, got {self.data_args.streaming}."
            )
        reordering_classes(self.options.max_segments)

    @property
    def files(self) -> dict[str, str | None]:
        """Tasks whose pairs may be named, and the files of them."""
        return {"discourse": self.options.discourse_file, "relevance": self.options.relevance_file}

    def load(self) -> Any:
        """Load or make the encoder, with the head of a masked language model if it has one."""
        fields = {"use_task_id": True, "task_type_vocab_size": len(TASKS)}
        return self.upstream(AutoModelForPreTraining, self.check_config, **fields)

    def check_config(self, config: Any) -> None:
        """Refuse what has no task embedding."""
        if not hasattr(config, "use_task_id"):
            raise ValueError(
                f"Objective ernie2 trains encoders with task embeddings (ernie), got a {config.model_type} model."
            )

    # ---- rows ----

    def rows(self, documents: Any, seed: int) -> Any:
        """The rows of all tasks that need documents alone, each with the name of its task, in a drawn order."""
        from datasets import Dataset

        generator = np.random.default_rng(seed)
        texts = list(bar(documents, "documents"))
        wanted = [name for name in TASKS if name in (self.options.ernie_tasks or TASKS)]
        found = [in_table(row, name) for name in wanted for row in self._rows_of(name, texts, generator)]
        return Dataset.from_list([found[number] for number in generator.permutation(len(found))])

    def _rows_of(self, name: str, documents: list[Any], generator: np.random.Generator) -> Iterator[dict[str, Any]]:
        """The rows of one task."""
        length = self.data_args.max_seq_length
        if name == "mlm":
            yield from self._masked(documents, int(generator.integers(2**31)))
        elif name == "capitalization":
            if self.options.ernie_tasks or self.tokenizer("Aa")["input_ids"] == self.tokenizer("aa")["input_ids"]:
                yield from capitalization_rows(documents, self.tokenizer, length)
        elif name == "discourse":
            if self.files[name] is None:
                markers = {marker: kind for table in DISCOURSE_MARKERS.values() for marker, kind in table.items()}
                yield from text_pair_rows(discourse_pairs(documents, markers), self.tokenizer, length)
        elif name == "distance" and len(documents) < 2 and not self.options.ernie_tasks:
            return
        elif name != "relevance":
            ids = list(encode_documents(documents, self.tokenizer))
            if name == "token_document":
                yield from token_document_rows(ids, self.specials, length)
            elif name == "reordering":
                most = self.options.max_segments
                yield from reordering_rows(ids, self.specials, length, generator, max_segments=most)
            else:
                pairs = sentence_distance_pairs(ids, length - self.specials.pair_count, generator)
                yield from (pair.features(self.specials, "labels") for pair in pairs)

    def _masked(self, documents: list[Any], seed: int) -> Iterator[dict[str, Any]]:
        """Blocks of text with the number of each token's word: the segmenter's, else the tokenizer's."""
        length, packing = self.data_args.max_seq_length, self.data_args.packing
        continues = vocabulary_tables(self.tokenizer).is_continuation
        for row in pretraining_dataset(documents, self.tokenizer, max_seq_length=length, seed=seed, **packing):
            if self.add_words is not None:
                row = self.add_words(row)
            elif continues is not None:
                row["word_ids"] = np.cumsum(~continues[row["input_ids"]]).tolist()
            else:
                row["word_ids"] = list(range(len(row["input_ids"])))
            yield {name: row[name] for name in ("input_ids", "token_type_ids", "word_ids") if name in row}

    def alike(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Rows of one task each."""
        there = {row["task"] for row in rows}
        return [[row for row in rows if row["task"] == name] for name in TASKS if name in there]

    def _pairs(self, name: str, generator: np.random.Generator) -> tuple[list[str], list[Any], list[Any]]:
        """Classes, and the pairs of a named file for training and evaluation."""
        files = self.files[name]
        found = [(one.text, str(one.pair), str(one.label)) for one in read_labelled_texts(files or [], PAIRS[name])]
        if name == "discourse":
            classes = sorted({label for _, _, label in found})
            if len(classes) < 2:
                raise ValueError(f"`discourse_file` = {files} must have at least two labels, got {classes}.")
        else:
            classes = list(RELEVANCES)
            wrong = sorted({label for _, _, label in found} - {"0", "1"})
            if wrong:
                raise ValueError(f"`relevance_file` must have the labels 0 (clicked) and 1 (shown), got {wrong[:3]}.")
        parts = held_out_split(found, self.data_args.validation_fraction) if len(found) > 1 else (found, [])
        numbers = {label: number for number, label in enumerate(classes if name == "discourse" else ("0", "1"))}
        numbered = [[(first, second, numbers[label]) for first, second, label in part] for part in parts]
        if name == "relevance":
            numbered = [list(relevance_pairs(part, generator)) for part in numbered]
        length = self.data_args.max_seq_length
        train, evaluation = (list(text_pair_rows(part, self.tokenizer, length)) for part in numbered)
        return classes, train, evaluation

    # ---- training ----

    def collator(self, seed: int, counts: Any, fixed_shapes: bool = False) -> Any:
        """A collator for each task."""
        options = {"tokenizer": self.tokenizer, "seed": seed, **self.options.given(*self.given)}
        length: dict[str, Any] = {"pad_to_multiple_of": self.data_args.tokens_of_row} if fixed_shapes else {}
        masking = {"mlm": DataCollatorForErnieMasking(levels={"phrase": "word_ids"}, **options, **length)}
        return TableCollator(
            {
                name: ForColumns(DataCollatorForErnieTask(self.tokenizer, number, masking.get(name), **length))
                for number, name in enumerate(TASKS)
            }
        )

    def heads(self, classes: dict[str, list[str]]) -> dict[str, tuple[Any, Sequence[str]]]:
        """The kind of head and the classes of each task."""
        texts = AutoModelForSequenceClassification
        orders = (reordering_order(number) for number in range(reordering_classes(self.options.max_segments)))
        return {
            "mlm": (AutoModelForMaskedLM, ()),
            "capitalization": (AutoModelForTokenClassification, ("lower", "capital")),
            "token_document": (AutoModelForTokenClassification, ("here alone", "elsewhere too")),
            "reordering": (texts, [" ".join(map(str, order)) for order in orders]),
            "distance": (texts, DISTANCES),
            "discourse": (texts, classes.get("discourse", DISCOURSE_RELATIONS)),
            "relevance": (texts, RELEVANCES),
        }

    def trainer(self, **options: Any) -> Any:
        """The Trainer, with a task for each that has rows: first those that the checkpoint has learnt."""
        model, args, collators = options["model"], options["args"], options["data_collator"].collators
        train_dataset, eval_dataset = options["train_dataset"], options["eval_dataset"]
        generator = np.random.default_rng(args.seed)
        classes: dict[str, list[str]] = {}
        rows: dict[str, Sequence[Any]] = {
            name: (of_task(train_dataset, name), of_task(eval_dataset, name)) for name in TASKS
        }
        for name, file in self.files.items():
            if file is not None:
                classes[name], *rows[name] = self._pairs(name, generator)
        empty = [name for name in self.options.ernie_tasks or () if not len(rows[name][0])]
        if empty:
            raise ValueError(f"`ernie_tasks` has tasks without a row to train on, {empty}: leave them out.")
        learnt = {name.partition(".")[0] for name in saved_heads(model)}
        if getattr(self.model_args, "extension", None) is not None and "mlm" in learnt:
            raise ValueError(
                f"`extend_vocabulary` = {self.data_args.extend_vocabulary}: the head of task mlm beside "
                f"`model_name_or_path` = {self.model_args.model_name_or_path} has the pieces of its first run. Extend "
                "the vocabulary in that one."
            )
        names = sorted((name for name in TASKS if len(rows[name][0])), key=lambda name: name not in learnt)
        heads = self.heads(classes)
        models = load_task_models(model, {name: heads[name] for name in names}, len(TASKS))
        tasks = {
            name: Task(
                models[name],
                rows[name][0],
                rows[name][1] if len(rows[name][1]) else None,
                settle_shapes(collators[name], args, self.data_args.tokens_of_row),
                accuracy,
                preprocess_logits_for_metrics=lambda logits, _: logits.argmax(-1),
            )
            for name in names
        }
        schedule = schedule_of(names, len(learnt & {*names}), args.max_steps)
        logger.info("Updates of each task, by stage: %s.", dict(schedule.allotments), extra={"once": True})
        args.max_steps = schedule.updates
        return ContinualMultiTaskTrainer(
            tasks, args, schedule=schedule, processing_class=options.get("processing_class")
        )

    def baselines(self, trainer: Any, rows: Any) -> dict[str, float]:
        """What the majority class reaches of each task, and what the shares of the classes do."""
        metrics = {}
        parts = stateful_parts(trainer.data_collator)
        state = state_of(parts)
        for name, task in trainer.tasks.items():
            if task.eval_rows is None:
                continue
            targets = torch.cat([batch["labels"].flatten().cpu() for batch in trainer.get_eval_dataloader(name)])
            guess = rows.baseline
            if name != "mlm":
                labels = np.concatenate([np.atleast_1d(label_of(row)) for row in task.train_rows])
                guess = UnigramBaseline(np.bincount(labels[labels >= 0], minlength=task.model.config.num_labels))
            found = targets[targets != -100].numpy()
            if not found.size:  # a few short rows of which nothing was hidden
                continue
            metrics[f"baseline_{name}_accuracy"] = guess.accuracy(found)
            metrics[f"baseline_{name}_loss"] = guess.cross_entropy(found)
        restore(parts, state)
        return metrics


class ForColumns:
    """A task's collator over the table of all tasks: columns that its rows leave empty are none of them."""

    def __init__(self, collator: DataCollatorForErnieTask):
        self.collator = collator

    def __call__(self, rows: Sequence[dict[str, Any]], return_tensors: str | None = None) -> Any:
        plain = [
            {"labels" if name == "label" else name: value for name, value in row.items() if value is not None}
            for row in rows
        ]
        rows = [{name: value for name, value in row.items() if name != "task"} for row in plain]
        return self.collator(rows, return_tensors)


class TableCollator(TaskCollator):
    """The collators of all tasks; a batch is made by that of its rows."""

    def __call__(self, rows: Sequence[dict[str, Any]], return_tensors: str | None = None) -> Any:
        collator: Any = self.collators[rows[0]["task"]]
        return collator(rows, return_tensors)


def in_table(row: dict[str, Any], task: str) -> dict[str, Any]:
    """A row with the columns of all tasks: labels of tokens and the class of a text are not one column."""
    labels = row.get("labels")
    of_text = isinstance(labels, int)
    kinds = {"labels": None if of_text else labels, "label": labels if of_text else None}
    return {**dict.fromkeys(COLUMNS), **row, **kinds, "task": task}


def of_task(rows: Any, name: str) -> Any:
    """The rows of one task, none if they have no label; masked rows get theirs later."""
    if rows is None or not len(rows):
        return []
    found = rows.select(np.flatnonzero(np.array(rows["task"]) == name))
    return found if name == "mlm" or any(np.max(label_of(row)) >= 0 for row in found) else []


def label_of(row: dict[str, Any]) -> Any:
    """The labels of a row, or its class."""
    return row["labels"] if row.get("label") is None else row["label"]


def schedule_of(names: Sequence[str], learnt: int, max_steps: int) -> ContinualSchedule:
    """The schedule of about so many updates; where nothing is new, all tasks have the same share."""
    if max_steps < len(names) * (len(names) + 1):
        raise ValueError(
            f"`max_steps` must be at least {len(names) * (len(names) + 1)} for the stages of {len(names)} tasks, got "
            f"{max_steps}. Name fewer `ernie_tasks`, or train longer."
        )
    if learnt == len(names):
        return ContinualSchedule({name: [max_steps // len(names)] for name in names})
    probe = 1000 * (len(names) + 1)
    share = ContinualSchedule.automatic(names, probe, learnt).updates / probe
    return ContinualSchedule.automatic(names, int(max_steps / share + 1e-9), learnt)


def accuracy(prediction: Any) -> dict[str, float]:
    """Share of the labels that are predicted."""
    kept = prediction.label_ids != -100
    right = prediction.predictions[kept] == prediction.label_ids[kept]
    return {"accuracy": float(right.mean())} if right.size else {}
