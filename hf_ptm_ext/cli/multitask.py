"""`hf-ptm-ext multitask`: one encoder fine-tuned on several tasks at once, by seeds, beside each task alone.

A task alone starts from the same weights (its head included) and gets as many batches of its own rows as it gets in
the multi-task run, so what differs is what it learns from the others.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModel, set_seed

from ..data.bad_rows import BadRows
from ..hub.model_card import check_card_fields
from ..models.modeling_san import SanForSequenceClassification
from ..trainers import Mixing, MultiTaskTrainer, PushFailed, Task, TaskRows
from .arguments import CheckpointArguments, TaskDataArguments, check_best
from .checkpoint_names import check_names
from .console import phase
from .encoder import Encoder
from .evaluation import LINEAR, VALIDATION, Splits
from .loading import check_positions, load_model
from .multitask_arguments import SAN, MultitaskArguments, TaskOptions, Tasks, TasksArguments, parse
from .options import naming
from .results import RESULTS, by_seeds, percent, write_results
from .runs import write_json, written_aside
from .seeded import SeededJob, push_results
from .shapes import settle_shapes
from .signature import digest_of, signature_of
from .tables import highest, print_table
from .tasks import read_splits
from .tasks.question_answering import SpanLabels

TOGETHER, ALONE = "multi-task", "single-task"
SPLITS = ("validation", "test")


def run(arguments: list[str]) -> int:
    """Run the job."""
    Multitask(*parse(arguments)).run()
    return 0


class OneOfSeveral:
    """A task of the run: its data, its model and its scores."""

    def __init__(self, name: str, data_args: TaskDataArguments, options: TaskOptions, model_args: CheckpointArguments):
        self.name, self.data_args, self.options = name, data_args, options
        with naming(f"Task {name}"):
            with BadRows(data_args.on_bad_rows) as bad, phase(f"reading the data of {name}"):
                examples, task = read_splits(data_args.task, data_args)
            if task.ranks:
                raise ValueError(
                    f"`triple_task` = {data_args.triple_task} ranks by a whole model. Train it by `finetune`, or take "
                    "triple-classification."
                )
            self.encoder = Encoder(task, model_args)
            self.task = self.encoder.task
            self.splits = Splits(self.task, examples, self._encode, data_args, bad)

    def _encode(self, examples: Sequence[Any]) -> Any:
        return self.task.encode(examples, self.encoder.tokenizer, self.data_args.max_seq_length)

    @property
    def variant(self) -> str:
        """The variant that trains this task alone."""
        return f"{self.name} alone"

    def trained(self, args: Any) -> Task:
        """The task as the Trainer takes it, with a new model."""
        set_seed(args.seed)
        validation = self.splits.rows("validation") if args.eval_strategy != "no" else None
        collator = settle_shapes(self.task.collator(self.encoder.tokenizer), args, self.data_args.max_seq_length)
        return Task(
            self.model(),
            self.splits.train_inputs(args.seed),
            None if validation is None else validation.inputs,
            # The model's own loss takes both places of an answer by their names.
            collator.pad if isinstance(collator, SpanLabels) else collator,
            None if validation is None else lambda output: self.splits.scores(output, "validation"),
            self.options.loss_weight,
            self.task.shown[0],
            self.task.reduce_logits,
        )

    def produced(self) -> tuple[str, ...]:
        """What an evaluation gives of this task."""
        return tuple(f"{self.name}_{metric}" for metric in self.splits.produced())

    def model(self) -> nn.Module:
        """The checkpoint with the head of the task."""
        dropout = self.options.dropout
        if self.options.head == SAN:
            encoder = load_model(AutoModel, self.encoder.name, tokenizer=self.encoder.tokenizer, **self.encoder.source)
            fields: dict[str, Any] = {} if dropout is None else {"classifier_dropout": dropout}
            pairs = SanForSequenceClassification.from_encoder(encoder, num_labels=len(self.task.labels), **fields)
            self.task.configure(pairs.config)
            return pairs
        model = self.encoder.model()
        inside = set(model.base_model.modules())
        layers = [part for part in model.modules() if isinstance(part, nn.Dropout) and part not in inside]
        if dropout is not None and not layers:
            raise ValueError(
                f"Task {self.name}: `dropout` = {dropout} was given, and the head of {type(model).__name__} has none."
            )
        if dropout is not None:
            for layer in layers:
                layer.p = dropout
        return model

    def score(self, trainer: MultiTaskTrainer, split: str, records: Path | None) -> dict[str, float]:
        """Scores of a trained model, under the task's name."""
        if split not in self.splits.evaluated:
            return {}
        trainer.tasks[self.name].compute_metrics = None  # that of the validation data
        with phase(f"predicting {split} of {self.name}"):
            output = trainer.predict(TaskRows({self.name: self.splits.rows(split).inputs}))
        self.splits.write(output, split, records if trainer.is_world_process_zero() else None)
        scores = self.splits.scores(output, split) if split in self.splits.scored else {}
        return {f"{self.name}/{metric}": value for metric, value in scores.items()}

    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What `results.json` says of this task."""
        mine = []
        for run in runs:
            if run["variant"] not in (TOGETHER, self.variant):
                continue
            found = {name: value for name, value in run.items() if name not in SPLITS}
            found["variant"] = TOGETHER if run["variant"] == TOGETHER else ALONE
            for split in self.splits.evaluated:
                prefix = f"{self.name}/"
                found[split] = {
                    key.removeprefix(prefix): value for key, value in run[split].items() if key.startswith(prefix)
                }
            mine.append(found)
        return self.splits.results(mine)


class Multitask(SeededJob):
    """Fine-tuning on all tasks together, and on each alone."""

    def __init__(
        self, model_args: CheckpointArguments, tasks_args: TasksArguments, tasks: Tasks, args: MultitaskArguments
    ):
        super().__init__(model_args, tasks_args, tasks, args)
        self.model_args, self.tasks_args, self.tasks = model_args, tasks_args, tasks
        self.repositories = [repository_of(args, name) for name in tasks]

    def prepare(self) -> None:
        model_args, args = self.model_args, self.training_args
        check_names(model_args)
        check_positions(model_args.model_name_or_path, *(data for data, _ in self.tasks.values()), **model_args.source)
        self.members = {name: OneOfSeveral(name, *given, model_args) for name, given in self.tasks.items()}
        members = self.members.values()
        for member in members:
            licence = model_args.license or "unknown"
            check_card_fields(member.data_args.language, licence, pipeline_tag=member.task.pipeline_tag)
        lengths = {one.name: len(one.splits.train_inputs(args.seeds[0])) for one in members}
        self.updates_of = partial(updates_alone, lengths=lengths, mixing=self.tasks_args.mixing_options())
        self.variants = (TOGETHER, *(one.variant for one in members if self.tasks_args.baseline))
        self.evaluated = tuple(split for split in SPLITS if any(split in one.splits.evaluated for one in members))
        without = [one.name for one in members if args.grid and VALIDATION not in one.splits.scored]
        if without:
            raise ValueError(
                f"`grid` = {args.grid} chooses by validation data with labels: task {without[0]} has none."
            )
        check_best(args, ("score", *(name for one in members for name in one.produced())))

    def signature(self) -> dict[str, Any]:
        """The arguments, and the examples of each task by content."""
        data = {name: digest_of(member.splits.examples) for name, member in self.members.items()}
        return signature_of(self.model_args, self.tasks_args, data=data)

    def _of(self, variant: str) -> list[OneOfSeveral]:
        """The tasks that a variant trains."""
        return [one for one in self.members.values() if variant in (TOGETHER, one.variant)]

    def build(self, variant: str, args: Any) -> tuple[Any, Any]:
        members, first = self._of(variant), self._of(variant)[0]
        tasks = {one.name: one.trained(args) for one in members}
        if variant != TOGETHER:
            args.max_steps = self.updates_of(args)[first.name]
            if args.metric_for_best_model not in (None, "score", *first.produced()):
                args.metric_for_best_model = "score"  # the other task's is not measured
        trainer = MultiTaskTrainer(
            tasks,
            args,
            mixing=self.tasks_args.mixing_options() if variant == TOGETHER else Mixing(),
            smart=self.tasks_args.smart_options(),
            processing_class=first.encoder.tokenizer,
        )
        set_seed(args.seed)
        return trainer, None

    def merit(self, run: dict[str, Any], variant: str) -> float:
        scores = [run[VALIDATION][f"{one.name}/{one.task.shown[0]}"] for one in self._of(variant)]
        return sum(scores) / len(scores)

    def score(self, trainer: Any, variant: str, split: str) -> dict[str, float]:
        """Scores of each task that was trained."""
        scores: dict[str, float] = {}
        for one in self._of(variant):
            scores |= one.score(trainer, split, self.output / one.name if self.is_kept(trainer, variant) else None)
        return scores

    def save(self, trainer: Any, processor: Any) -> None:
        """Save the model of each task into a folder of its name."""
        if not trainer.is_world_process_zero():
            return
        model: Any = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
        for name, member in self.members.items():
            with written_aside(self.output / name) as partial:
                model.save_task(name, partial)
                member.task.saved(member.encoder.tokenizer).save_pretrained(partial)

    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What `results.json` says: each task's results, and how long each was trained alone."""
        return {
            "tasks": {name: member.results(runs) for name, member in self.members.items()},
            "updates_alone": {
                name: self.updates_of(self.at_best(one.variant))[name] for name, one in self.members.items()
            },
        }

    def drawn(self, runs: Sequence[dict[str, Any]]) -> dict[Path, Sequence[dict[str, Any]]]:
        """In each task's folder the runs that trained it."""
        return {
            self.output / name: [run for run in runs if run["variant"] in (TOGETHER, member.variant)]
            for name, member in self.members.items()
        }

    def finish(self, results: dict[str, Any]) -> None:
        """Write results and cards, print the scores; push each task, one that fails keeps no other from it."""
        if self.training_args.process_index != 0:
            return
        for name, member in self.members.items():
            self._write(member, results["tasks"][name])
        write_json(self.output / RESULTS, results)
        print_tasks(self.members, results["tasks"], self.output, len(self.training_args.seeds))
        failed = []
        for name in self.members:
            try:
                push_results(self.output / name, self._args_of(name))
            except PushFailed as error:
                failed.append(str(error))
        if failed:
            raise PushFailed(" ".join(failed))

    def _args_of(self, name: str) -> Any:
        """The arguments of training with the repository of one task."""
        args = copy(self.training_args)
        args.hub_model_id = repository_of(args, name)
        return args

    def _write(self, member: OneOfSeveral, results: Mapping[str, Any]) -> None:
        """Write the results and the model card of one task into its folder."""
        others = ", ".join(name for name in self.members if name != member.name)
        smart = self.tasks_args.smart_options()
        config = AutoConfig.from_pretrained(self.model_args.model_name_or_path, **self.model_args.source)
        write_results(
            self.output / member.name,
            results,
            member.splits,
            self._args_of(member.name),
            f"Fine-tuned for {member.task.kind}{f', together with other tasks ({others})' if others else ''}.",
            training={
                "mixing": self.tasks_args.mixing,
                **{name: value for name, value in asdict(member.options).items() if value is not None},
                **({} if smart is None else {"SMART": asdict(smart)}),
            },
            family=SAN if member.options.head == SAN else config.model_type,
            license=self.model_args.license or "unknown",
            base_model=self.model_args.model_name_or_path,
            page="how-to/several_tasks",
            template=member.task.template,
        )


def updates_alone(args: MultitaskArguments, lengths: Mapping[str, int], mixing: Mixing) -> dict[str, int]:
    """How many updates a task alone gets: its share of the multi-task run's."""
    batches = mixing.batches_per_epoch(lengths, args.train_batch_size)
    total = sum(batches.values())
    if args.max_steps > 0:
        updates = args.max_steps
    else:
        updates = ceil(args.num_train_epochs * ceil(ceil(total / args.world_size) / args.gradient_accumulation_steps))
    return {name: max(round(updates * count / total), 1) for name, count in batches.items()}


def repository_of(args: MultitaskArguments, name: str) -> str:
    """The repository that the model of one task is pushed to."""
    folder = Path(args.output_dir).name
    return f"{args.hub_model_id or ('' if args.push_to_hub else 'your-name/') + folder}-{name}"


def task_scores(
    results: Mapping[str, Any], metric: str, variants: Sequence[str] = (TOGETHER, ALONE)
) -> list[dict[str, float] | None]:
    """A score of a task: of the simple guess, together with the others and alone."""
    trained = (results["summary"].get(variant, {}).get(metric) for variant in variants)
    return [{"mean": results["majority"][metric]}, *trained]


def print_tasks(
    members: Mapping[str, OneOfSeveral], results: Mapping[str, Mapping[str, Any]], output: Path, seeds: int
) -> None:
    """Print mean and spread of each task, together with the others and alone."""
    rows: list[list[str]] = []
    best = []
    linear = [name for name in LINEAR.values() if any(name in one["summary"] for one in results.values())]
    shown = [TOGETHER, ALONE, *linear]
    for name, one in members.items():
        for metric in one.task.shown if "majority" in results[name] else ():
            found = task_scores(results[name], metric, shown)
            best += [
                (len(rows), 2 + place)
                for place in highest([None if score is None else score["mean"] for score in found])
            ]
            rows.append([name, metric, *("-" if score is None else percent(score) for score in found)])
    splits = ", ".join(f"{name}: {one.splits.reported or 'no labels'}" for name, one in members.items())
    print_table(f"{splits}; in percent, {by_seeds(seeds)}", ["task", "score", "simple", *shown], rows, best)
    print(f"\nSaved to {', '.join(str(output / name) for name in members)}.")
