"""`hf-ptm-ext multitask`: one encoder fine-tuned on several tasks at once, by seeds, beside each task alone.

A task alone starts from the same weights (its head included) and gets as many batches of its own rows as it gets in
the multi-task run, so what differs is what it learns from the others.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModel, set_seed

from ..data.bad_rows import BadRows
from ..hub.model_card import check_card_fields
from ..trainers import Mixing, MultiTaskTrainer, PushFailed, StochasticAnswerClassifier, Task, TaskRows
from .checkpoint_names import check_names
from .evaluation import Splits
from .finetune_arguments import FinetuneModelArguments, KnowledgeGraphArguments, TaskDataArguments, data_name
from .finetune_models import Encoder
from .finetune_questions import SpanLabels
from .finetune_tasks import read_splits
from .loading import check_positions, load_model
from .multitask_arguments import SAN, MultitaskArguments, TaskOptions, Tasks, TasksArguments, parse
from .runs import configure_logging, in_its_folder, write_json, written_aside
from .seeded_runs import (
    RESULTS,
    SeededJob,
    by_seeds,
    percent,
    push_results,
    run_seeds,
    write_results,
)
from .signature import digest_of, signature_of
from .tables import text_table

TOGETHER, ALONE = "multi-task", "single-task"
SPLITS = ("validation", "test")


def run(arguments: list[str]) -> int:
    """Run the job.

    Args:
        arguments: the command line after `multitask`.

    Returns:
        0.

    Raises:
        ValueError: arguments or data are wrong; the message says which and what to do.
    """
    multitask(*parse(arguments))
    return 0


class OneOfSeveral:
    """A task of the run: its data, its model and its scores.

    Args:
        name: of the task.
        data_args: its data.
        options: its head and how much it counts.
        model_args: the checkpoint.

    Raises:
        ValueError: data and model do not fit each other.
    """

    def __init__(
        self, name: str, data_args: TaskDataArguments, options: TaskOptions, model_args: FinetuneModelArguments
    ):
        self.name, self.data_args, self.options, self.model_args = name, data_args, options, model_args
        try:
            with BadRows(data_args.on_bad_rows) as bad:
                examples, task = read_splits(data_args)
            self.encoder = Encoder(task, model_args, KnowledgeGraphArguments())
            self.task = self.encoder.task
            self.splits = Splits(self.task, examples, self._encode, data_args, bad)
        except ValueError as error:
            raise ValueError(f"Task {name}: {error}") from error

    def _encode(self, examples: Sequence[Any]) -> Any:
        return self.task.encode(examples, self.encoder.tokenizer, self.data_args.max_seq_length)

    def trained(self, seed: int, evaluate: bool) -> Task:
        """The task as the Trainer takes it, with a new model.

        Args:
            seed: of the weights that the checkpoint does not have, the same beside other tasks and alone.
            evaluate: whether it is evaluated in mid-training.
        """
        set_seed(seed)
        validation = self.splits.rows("validation") if evaluate else None
        collator = self.task.collator(self.encoder.tokenizer)
        return Task(
            self.model(),
            self.splits.rows("train").inputs,
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
        """The checkpoint with the head of the task.

        Raises:
            ValueError: `dropout` is set for a head that has none.
        """
        if self.options.head == SAN:
            encoder = load_model(AutoModel, self.encoder.name, tokenizer=self.encoder.tokenizer, **self.encoder.source)
            dropout = {} if self.options.dropout is None else {"dropout": self.options.dropout}
            return StochasticAnswerClassifier(encoder, len(self.task.labels), **dropout)
        model = self.encoder.model()
        if self.options.dropout is not None:
            set_head_dropout(model, self.options.dropout, self.name)
        return model

    def score(self, trainer: MultiTaskTrainer, split: str, records: Path | None) -> dict[str, float]:
        """Scores of a trained model.

        Args:
            trainer: has it.
            split: of the data.
            records: where predictions are written, if at all.
        """
        trainer.tasks[self.name].compute_metrics = None  # that of the validation data
        output = trainer.predict(TaskRows({self.name: self.splits.rows(split).inputs}))
        self.splits.write(output, split, records if trainer.is_world_process_zero() else None)
        return self.splits.scores(output, split) if split in self.splits.scored else {}

    def results(self, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What `results.json` says of this task.

        Args:
            runs: all runs of the job.
        """
        mine = [
            {
                **run,
                "variant": TOGETHER if run["variant"] == TOGETHER else ALONE,
                **{split: own(run[split], self.name) for split in self.splits.evaluated},
            }
            for run in runs
            if run["variant"] in (TOGETHER, alone(self.name))
        ]
        for run in mine:  # the other task's
            for split in {*SPLITS} - {*self.splits.evaluated}:
                run.pop(split, None)
        return self.splits.results(mine)


def alone(name: str) -> str:
    """The variant that trains one task alone."""
    return f"{name} alone"


def own(scores: Mapping[str, float], name: str) -> dict[str, float]:
    """Scores of one task among those of a run.

    Args:
        scores: `task/metric` -> score.
        name: of the task.

    Example:
        >>> own({"topic/accuracy": 0.5, "tags/f1": 0.25}, "tags")
        {'f1': 0.25}
    """
    return {key.removeprefix(f"{name}/"): value for key, value in scores.items() if key.startswith(f"{name}/")}


def set_head_dropout(model: nn.Module, probability: float, name: str) -> None:
    """Set the dropout of a model's head.

    Args:
        model: with `base_model`.
        probability: of dropout.
        name: of the task, for the message.

    Raises:
        ValueError: the head has no dropout.
    """
    inside = set(model.base_model.modules())  # type: ignore[operator]
    layers = [part for part in model.modules() if isinstance(part, nn.Dropout) and part not in inside]
    if not layers:
        raise ValueError(f"Task {name}: `dropout` was given, and the head of {type(model).__name__} has none.")
    for layer in layers:
        layer.p = probability


def updates_alone(args: MultitaskArguments, lengths: Mapping[str, int], mixing: Mixing) -> dict[str, int]:
    """How many updates a task alone gets: its share of the multi-task run's.

    Args:
        args: how the tasks are trained together.
        lengths: rows of each task.
        mixing: how they share an epoch.

    Example:
        >>> args = MultitaskArguments(per_device_train_batch_size=8, num_train_epochs=2, use_cpu=True)
        >>> updates_alone(args, {"topic": 80, "tags": 16}, Mixing())
        {'topic': 20, 'tags': 4}
    """
    batches = mixing.batches_per_epoch(lengths, args.train_batch_size)
    total = sum(batches.values())
    if args.max_steps > 0:
        updates = args.max_steps
    else:
        updates = ceil(args.num_train_epochs * ceil(ceil(total / args.world_size) / args.gradient_accumulation_steps))
    return {name: max(round(updates * count / total), 1) for name, count in batches.items()}


@in_its_folder
def multitask(
    model_args: FinetuneModelArguments,
    tasks_args: TasksArguments,
    tasks: Tasks,
    training_args: MultitaskArguments,
) -> dict[str, Any]:
    """Train and measure by seeds; save the first seed's model of each task, its predictions, card and all results.

    Args:
        model_args: which model, see `multitask_arguments` for all four.
        tasks_args: how the tasks share the updates.
        tasks: each task's data and options.
        training_args: how it is trained.

    Returns:
        `tasks`: name -> `runs`, `summary` (variant -> metric -> mean and standard deviation), `majority`, `labels`;
        and `updates_alone`, how long each task was trained alone.

    Raises:
        ValueError: data and model do not fit each other, or the output folder has files.
    """
    check_names(model_args)
    check_positions(
        model_args.model_name_or_path,
        *(data for data, _ in tasks.values()),
        revision=model_args.model_revision,
        trust_remote_code=model_args.trust_remote_code,
    )
    members = {name: OneOfSeveral(name, data, options, model_args) for name, (data, options) in tasks.items()}
    for member in members.values():
        check_card_fields(
            member.data_args.language, model_args.license or "unknown", pipeline_tag=member.task.pipeline_tag
        )
    configure_logging(training_args)
    output = Path(training_args.output_dir)
    mixing, smart = tasks_args.mixing_options(), tasks_args.smart_options()
    lengths = {name: len(member.splits.rows("train").inputs) for name, member in members.items()}
    updates = updates_alone(training_args, lengths, mixing)

    def of_variant(variant: str) -> list[str]:
        return list(members) if variant == TOGETHER else [variant.removesuffix(" alone")]

    def build(variant: str, args: MultitaskArguments) -> tuple[MultiTaskTrainer, Any]:
        names = of_variant(variant)
        found = {name: members[name].trained(args.seed, args.eval_strategy != "no") for name in names}
        if variant != TOGETHER:
            args.max_steps = updates[names[0]]
            if args.metric_for_best_model not in (None, "score", *members[names[0]].produced()):
                args.metric_for_best_model = "score"  # the other task's is not measured
        trainer = MultiTaskTrainer(
            found,
            args,
            mixing=mixing if variant == TOGETHER else Mixing(),
            smart=smart,
            processing_class=members[names[0]].encoder.tokenizer,
        )
        set_seed(args.seed)
        return trainer, None

    def score(trainer: MultiTaskTrainer, variant: str, split: str) -> dict[str, float]:
        kept = variant == TOGETHER and trainer.args.seed == training_args.seeds[0]
        scores = {}
        for name in of_variant(variant):
            if split in members[name].splits.evaluated:
                found = members[name].score(trainer, split, output / name if kept else None)
                scores |= {f"{name}/{metric}": value for metric, value in found.items()}
        return scores

    def save(folder: Path, trainer: MultiTaskTrainer, _: Any) -> None:
        if not trainer.is_world_process_zero():
            return
        model: Any = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
        for name, member in members.items():
            with written_aside(folder / name) as partial:
                model.save_task(name, partial)
                member.task.saved(member.encoder.tokenizer).save_pretrained(partial)

    variants = (TOGETHER, *(alone(name) for name in members if tasks_args.baseline))
    splits = tuple(split for split in SPLITS if any(split in one.splits.evaluated for one in members.values()))
    data = {name: digest_of(member.splits.examples) for name, member in members.items()}
    options = signature_of(model_args, tasks_args, data=data)
    repositories = tuple(repository_of(training_args, name) for name in members)
    produced = ("score", *(name for member in members.values() for name in member.produced()))
    job = SeededJob(variants, splits, build, score, options, save, repositories, produced)
    runs = run_seeds(job, training_args)
    results = {
        "tasks": {name: member.results(runs) for name, member in members.items()},
        "updates_alone": updates,
    }
    if training_args.process_index == 0:
        for name, member in members.items():
            finish(member, list(members), tasks_args, training_args, results["tasks"][name])
        write_json(output / RESULTS, results)
        print_tasks(members, results["tasks"], output, len(training_args.seeds))
        push_tasks(training_args, list(members))
    return results


def finish(
    member: OneOfSeveral,
    names: Sequence[str],
    tasks_args: TasksArguments,
    training_args: MultitaskArguments,
    results: Mapping[str, Any],
) -> None:
    """Write the results and the model card of one task into its folder."""
    output = Path(training_args.output_dir)
    args = copy(training_args)
    args.hub_model_id = repository_of(training_args, member.name)
    others = ", ".join(name for name in names if name != member.name)
    data_args, model_args = member.data_args, member.model_args
    config = AutoConfig.from_pretrained(model_args.model_name_or_path, **member.encoder.source)
    smart = tasks_args.smart_options()
    write_results(
        output / member.name,
        results,
        member.task.shown,
        args,
        f"Fine-tuned for {member.task.kind}{f', together with other tasks ({others})' if others else ''}.",
        {
            "mixing": tasks_args.mixing,
            "max_seq_length": data_args.max_seq_length,
            **{name: value for name, value in asdict(member.options).items() if value is not None},
            **({} if smart is None else {"SMART": asdict(smart)}),
        },
        family=config.model_type,
        data={
            "name": data_name(data_args),
            "license": data_args.data_license or "unknown",
            "examples": {split: len(ones) for split, ones in member.splits.examples.items()},
        },
        scored_data=results["split"] and data_name(data_args, results["split"]),
        language=data_args.language,
        license=model_args.license or "unknown",
        base_model=model_args.model_name_or_path,
        pipeline_tag=member.task.pipeline_tag,
        template="answer_network" if member.options.head == SAN else member.task.template,
    )


def repository_of(args: MultitaskArguments, name: str) -> str:
    """The repository that the model of one task is pushed to."""
    folder = Path(args.output_dir).name
    return f"{args.hub_model_id or ('' if args.push_to_hub else 'your-name/') + folder}-{name}"


def push_tasks(args: MultitaskArguments, names: Sequence[str]) -> None:
    """Push the model of each task, if asked; one that fails keeps no other from being pushed."""
    failed = []
    for name in names:
        own_args = copy(args)
        own_args.hub_model_id = repository_of(args, name)
        try:
            push_results(Path(args.output_dir) / name, own_args)
        except PushFailed as error:
            failed.append(str(error))
    if failed:
        raise PushFailed(" ".join(failed))


def task_rows(task: str, results: Mapping[str, Any], shown: Sequence[str]) -> list[list[str]]:
    """One row for each score of a task, in percent.

    Args:
        task: its name.
        results: `majority` and `summary`.
        shown: which scores.

    Example:
        >>> results = {"majority": {"f1": 0.25}, "summary": {"multi-task": {"f1": {"mean": 0.5, "std": 0.125}}}}
        >>> task_rows("tags", results, ["f1"])
        [['tags', 'f1', '25.0', '50.0 ± 12.5', '-']]
    """
    rows = []
    for metric in shown if "majority" in results else ():
        cells = [f"{100 * results['majority'][metric]:.1f}"]
        for variant in (TOGETHER, ALONE):
            found = results["summary"].get(variant, {}).get(metric)
            cells.append("-" if found is None else percent(found))
        rows.append([task, metric, *cells])
    return rows


def print_tasks(
    members: Mapping[str, OneOfSeveral], results: Mapping[str, Mapping[str, Any]], output: Path, seeds: int
) -> None:
    """Print mean and spread of each task, together with the others and alone."""
    rows = [row for name, one in members.items() for row in task_rows(name, results[name], one.task.shown)]
    splits = ", ".join(f"{name}: {one.splits.reported or 'no labels'}" for name, one in members.items())
    print(f"\n{splits}; in percent, {by_seeds(seeds)}")
    print(text_table(["task", "score", "simple", TOGETHER, ALONE], rows))
    print(f"\nSaved to {', '.join(str(output / name) for name in members)}.")


__all__ = ["multitask", "run"]
