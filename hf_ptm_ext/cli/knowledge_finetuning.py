"""Fine-tune knowledge models for relation classification or entity typing, with and without entities, by seeds.

Each seed trains the model with its entities and once more, from the same weights, with `entities=None`; the table at
the end is the mean and the spread of both.
"""

import json
import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoTokenizer, DataCollatorWithPadding, Trainer, set_seed

from ..data.wordnet import NounLinker
from ..hub.model_card import check_card_fields, write_model_card
from .knowledge_arguments import FinetuningArguments, KnowledgeDataArguments, KnowledgeModelArguments
from .knowledge_tasks import TASKS, annotations
from .runs import configure_logging, written_aside
from .tables import text_table

logger = logging.getLogger(__name__)

WITH, WITHOUT = "with entities", "entities=None"
RESULTS = "results.json"


def finetune(
    task_name: str,
    model_args: KnowledgeModelArguments,
    data_args: KnowledgeDataArguments,
    training_args: FinetuningArguments,
) -> dict[str, Any]:
    """Train and measure by seeds; save the first seed's model, its card and all results.

    Args:
        task_name: "relation" or "typing".
        model_args: which model, see `knowledge_arguments` for all three.
        data_args: what it is trained on.
        training_args: how it is trained.

    Returns:
        `runs` (one entry a seed and variant), `summary` (variant -> metric -> mean and standard deviation),
        `majority` and `coverage`.

    Raises:
        ValueError: data, model and table do not fit each other, or the output folder has files.
    """
    output = Path(training_args.output_dir)
    if output.is_dir() and any(output.iterdir()) and not training_args.overwrite:
        raise ValueError(f"`output_dir` = {output} is not empty. Pass --overwrite true, or name another folder.")
    check_card_fields(data_args.language, model_args.license or "unknown", pipeline_tag="text-classification")
    configure_logging(training_args)
    examples, task = read_examples(task_name, data_args)
    table = open_table(model_args, examples)
    results: dict[str, Any] = {"runs": [], "coverage": coverage(examples, table), "labels": list(task.labels)}
    last = "test" if "test" in examples else "validation"
    results["majority"] = task.majority(examples["train"], examples[last])
    for number, seed in enumerate(training_args.seeds):
        for variant in variants(table, model_args.baseline):
            given = table if variant == WITH else None
            trainer, processor = train(task, model_args, data_args, training_args, examples, given, seed)
            run = {"seed": seed, "variant": variant}
            for split in ("validation", "test"):
                if split in examples:
                    logits = trainer.predict(rows_of(task, examples[split], processor, given, data_args)).predictions
                    run[split] = task.scores(logits, examples[split])
            results["runs"].append(run)
            logger.info("seed %d, %s: %s", seed, variant, rounded(run[last], task.shown))
            if number == 0 and variant == variants(table, model_args.baseline)[0]:
                save(output, trainer, processor)
    results["summary"] = summary(results["runs"], last)
    finish(output, task, model_args, data_args, training_args, examples, results)
    print_results(results, task, last)
    return results


def variants(table: Any, baseline: bool) -> tuple[str, ...]:
    """With entities, without them, or both."""
    return ((WITH, WITHOUT) if baseline else (WITH,)) if table is not None else (WITHOUT,)


def read_examples(task_name: str, data_args: KnowledgeDataArguments) -> tuple[dict[str, list[Any]], Any]:
    """Examples of each split that is named, linked to WordNet if asked, and the task."""
    files = {"train": data_args.train_file, "validation": data_args.validation_file, "test": data_args.test_file}
    link = NounLinker(data_args.wordnet_senses) if data_args.wordnet_senses is not None else None
    examples = {}
    for split, path in files.items():
        if path is None:
            continue
        limit = data_args.max_train_rows if split == "train" else data_args.max_eval_rows
        read = TASKS[task_name].read(path, data_args)[:limit]
        if link is not None:
            read = [
                replace(one, entities=tuple(replace(m, id=link(one.text[slice(*m.span)])) for m in one.entities))
                for one in read
            ]
        examples[split] = read
    task = TASKS[task_name].of(examples["train"], data_args)
    if len(task.labels) < 2:
        raise ValueError(f"{data_args.train_file} must have at least two labels, got {list(task.labels)}.")
    return examples, task


def open_table(model_args: KnowledgeModelArguments, examples: dict[str, list[Any]]) -> Any:
    """The entity table, pruned to the entities of the data so that the model can carry it; `None` without one."""
    if model_args.entity_table is None:
        return None
    from ..models.ernie_thu.entity_table_ernie_thu import EntityTable

    table = EntityTable.from_file(model_args.entity_table)
    names = sorted({m.id for split in examples.values() for one in split for m in one.entities if m.id is not None})
    rows = np.unique(table.rows(names)) if names else np.zeros(0, dtype=np.int64)
    if not rows.any():
        raise ValueError(
            f"`entity_table` = {model_args.entity_table} has none of the {len(names)} entities of the data, such as "
            f"{names[:3]}. Use a table of the same ids, or `wordnet_senses` for nouns."
        )
    return table.prune(rows)


def coverage(examples: dict[str, list[Any]], table: Any) -> dict[str, float]:
    """Share of annotated mentions whose entity has a vector, by split."""
    if table is None:
        return {}
    shares = {}
    for split, ones in examples.items():
        known = [bool(table.rows([m.id])[0]) if m.id is not None else False for one in ones for m in one.entities]
        shares[split] = sum(known) / len(known) if known else 0.0
    return shares


def train(
    task: Any,
    model_args: KnowledgeModelArguments,
    data_args: KnowledgeDataArguments,
    training_args: FinetuningArguments,
    examples: dict[str, list[Any]],
    table: Any,
    seed: int,
) -> tuple[Trainer, Any]:
    """Fine-tune one model; returns its Trainer and what turns text into its inputs."""
    set_seed(seed)
    source = {"revision": model_args.model_revision, "trust_remote_code": model_args.trust_remote_code}
    config = AutoConfig.from_pretrained(model_args.model_name_or_path, **source)
    fields = {
        "num_labels": len(task.labels),
        "id2label": dict(enumerate(task.labels)),
        "label2id": {label: number for number, label in enumerate(task.labels)},
        "problem_type": task.problem_type,
    }
    for name, value in fields.items():
        setattr(config, name, value)
    if table is not None and config.model_type != "ernie_thu":
        raise ValueError(
            f"`entity_table` needs a model that takes entities, got a {config.model_type} model. Make one of any BERT "
            "with `hf-ptm-ext convert ernie_thu`, or leave the table out."
        )
    cls = task.head_class(config.model_type)
    options = {} if cls.__name__.startswith("ErnieThu") else {"trust_remote_code": model_args.trust_remote_code}
    model = cls.from_pretrained(
        model_args.model_name_or_path,
        config=config,
        revision=model_args.model_revision,
        dtype=torch.float32,
        **options,
    )
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, **source)
    processor = tokenizer
    if config.model_type == "ernie_thu":
        from ..models.ernie_thu.processing_ernie_thu import ErnieThuProcessor

        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        processor = ErnieThuProcessor(tokenizer, entity_vocab=table, min_score=-1.0, on_unknown_entity="ignore")
        if table is not None:
            model.set_entity_table(table)
            model.prune_entity_table()
    args = copy(training_args)
    args.seed = args.data_seed = seed
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=rows_of(task, examples["train"], processor, table, data_args),
        data_collator=DataCollatorWithPadding(processor),
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer, processor


def rows_of(
    task: Any, examples: Sequence[Any], processor: Any, table: Any, data_args: KnowledgeDataArguments
) -> list[dict[str, Any]]:
    """Model inputs with labels; examples of unseen relations get no label and are for scoring only."""
    limits = {"truncation": True, "max_length": data_args.max_seq_length}
    if hasattr(processor, "entity_vocab"):
        encoded = processor(
            [one.text for one in examples],
            entities=[annotations(one.entities) if table is not None else [] for one in examples],
            task=task.name,
            **task.markers(examples),
            **limits,
        )
    else:
        encoded = processor([task.marked_text(one) for one in examples], **limits)
    columns = {name: values for name, values in encoded.items() if table is not None or "entity" not in name}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    targets = [task.target(one) for one in examples]
    if any(target == -1 for target in targets):  # without labels there is no loss, only predictions
        return rows
    return [{**row, "labels": target} for row, target in zip(rows, targets, strict=True)]


def summary(runs: Sequence[dict[str, Any]], split: str) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and standard deviation (of a sample) over seeds.

    Args:
        runs: entries with `variant` and the scores under `split`.
        split: which scores.

    Example:
        >>> runs = [{"variant": "a", "test": {"f1": 0.5}}, {"variant": "a", "test": {"f1": 0.7}}]
        >>> {name: round(value, 3) for name, value in summary(runs, "test")["a"]["f1"].items()}
        {'mean': 0.6, 'std': 0.141}
    """
    result: dict[str, dict[str, dict[str, float]]] = {}
    for variant in dict.fromkeys(run["variant"] for run in runs):
        scores = [run[split] for run in runs if run["variant"] == variant]
        result[variant] = {
            name: {
                "mean": mean(one[name] for one in scores),
                "std": stdev(one[name] for one in scores) if len(scores) > 1 else 0.0,
            }
            for name in scores[0]
        }
    return result


def save(output: Path, trainer: Trainer, processor: Any) -> None:
    """Write the model and its processor into the output folder."""
    with written_aside(output) as partial:
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(partial)
        processor.save_pretrained(partial)


def finish(
    output: Path,
    task: Any,
    model_args: KnowledgeModelArguments,
    data_args: KnowledgeDataArguments,
    training_args: FinetuningArguments,
    examples: dict[str, list[Any]],
    results: dict[str, Any],
) -> None:
    """Write the results and the model card."""
    with written_aside(output) as partial:
        text = json.dumps(results, indent=1, ensure_ascii=False)
        (partial / RESULTS).write_text(text + "\n", encoding="utf-8")
    means = {
        variant: {name: scores[name]["mean"] for name in task.shown} for variant, scores in results["summary"].items()
    }
    first = next(iter(means))
    others = {f"{name} ({variant})": value for variant in list(means)[1:] for name, value in means[variant].items()}
    config = AutoConfig.from_pretrained(output)
    write_model_card(
        output,
        family=config.model_type,
        metrics=means[first],
        baselines={name: results["majority"][name] for name in task.shown} | others,
        training={
            "seeds": training_args.seeds,
            "epochs": training_args.num_train_epochs,
            "rows per update": training_args.per_device_train_batch_size * training_args.gradient_accumulation_steps,
            "learning rate": training_args.learning_rate,
            "max_seq_length": data_args.max_seq_length,
        },
        data={
            "name": Path(data_args.train_file).name,
            "license": data_args.data_license or "unknown",
            "examples": {split: len(ones) for split, ones in examples.items()},
            **({"mentions with a vector": results["coverage"]} if results["coverage"] else {}),
        },
        language=data_args.language,
        license=model_args.license or "unknown",
        base_model=model_args.model_name_or_path,
        title=output.name,
        pipeline_tag="text-classification",
        description=description(task, results, len(training_args.seeds)),
        template="knowledge_task",
    )


def description(task: Any, results: dict[str, Any], seeds: int) -> str:
    """What the card says about this very model: the task, and the evidence by seeds."""
    kind = "relation classification" if task.name == "relation" else "entity typing"
    lines = [
        f"Fine-tuned for {kind}. The weights are those of the first seed.",
        "",
        "## Evidence",
        "",
        f"Mean and standard deviation of {seeds} seed{'s' * (seeds > 1)}, in percent; the same weights, data and "
        "seeds in each row.",
        "",
        f"| | {' | '.join(task.shown)} |",
        f"| --- | {' | '.join('---' for _ in task.shown)} |",
        *(f"| {' | '.join(row)} |" for row in result_rows(results, task)),
    ]
    return "\n".join(lines)


def result_rows(results: dict[str, Any], task: Any) -> list[list[str]]:
    """The majority class and each variant, in percent."""
    rows = [["majority", *(f"{100 * results['majority'][name]:.1f}" for name in task.shown)]]
    for variant, scores in results["summary"].items():
        cells = [f"{100 * scores[name]['mean']:.1f} ± {100 * scores[name]['std']:.1f}" for name in task.shown]
        rows.append([variant, *cells])
    return rows


def rounded(scores: dict[str, float], names: Sequence[str]) -> dict[str, float]:
    """The scores that are shown, to four digits."""
    return {name: round(scores[name], 4) for name in names}


def print_results(results: dict[str, Any], task: Any, split: str) -> None:
    """Print mean and spread of each variant beside the majority class."""
    seeds = len({run["seed"] for run in results["runs"]})
    print(f"\n{split}, in percent, mean and standard deviation of {seeds} seed{'s' * (seeds > 1)}")
    print(text_table(["", *task.shown], result_rows(results, task)))


__all__ = ["finetune"]
