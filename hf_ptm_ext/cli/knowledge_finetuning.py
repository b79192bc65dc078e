"""Fine-tune knowledge models for relation classification or entity typing, with and without entities, by seeds.

Each seed trains the model with its entities and once more, from the same weights, with `entities=None`; the table at
the end is the mean and the spread of both.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, Trainer

from ..data.bad_rows import BadRows
from ..data.wordnet import NounLinker
from ..hub.model_card import check_card_fields
from ..trainers import ResumableTrainer
from .checkpoint_names import check_names, load_tokenizer
from .evaluation import Splits
from .finetune_arguments import data_name
from .finetune_rows import Rows
from .knowledge_arguments import FinetuningArguments, KnowledgeDataArguments, KnowledgeModelArguments
from .knowledge_tasks import TASKS, add_markers, annotations, behind_the_cut
from .loading import check_positions, load_model, own_classes, set_labels, with_order_of
from .runs import configure_logging, in_its_folder
from .seeded_runs import SeededJob, print_results, push_results, run_seeds, write_results
from .signature import digest_of, signature_of

logger = logging.getLogger(__name__)

WITH, WITHOUT = "with entities", "entities=None"


@in_its_folder
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
        As `finetune`, and `coverage`.

    Raises:
        ValueError: data, model and table do not fit each other, or the output folder has files.
    """
    check_card_fields(data_args.language, model_args.license or "unknown", pipeline_tag="text-classification")
    check_names(model_args)
    check_positions(
        model_args.model_name_or_path,
        data_args,
        revision=model_args.model_revision,
        trust_remote_code=model_args.trust_remote_code,
    )
    configure_logging(training_args)
    with BadRows(data_args.on_bad_rows) as bad:
        examples, task = read_examples(task_name, data_args)
    task = with_order_of(task, checkpoint_config(model_args))
    processors: dict[str, Any] = {}

    def encode(found: list[Any], variant: str) -> Rows:
        return Rows(rows_of(task, found, processors[variant], table if variant == WITH else None, data_args))

    splits = Splits(task, examples, encode, data_args, bad)
    table = open_table(model_args, splits.examples)
    count_cut_mentions(splits, model_args, data_args)

    def build(variant: str, args: FinetuningArguments) -> tuple[Trainer, Any]:
        given = table if variant == WITH else None
        model, tokenizer, processors[variant] = build_model(task, model_args, given)
        options = splits.trainer_options(args, processors[variant], variant)
        loss = task.loss and partial(task.loss, label_smoothing=args.label_smoothing_factor)
        trainer = ResumableTrainer(model, compute_loss_func=loss, **{**options, "processing_class": tokenizer})
        return trainer, processors[variant]

    def score(trainer: Trainer, variant: str, split: str) -> dict[str, float]:
        kept = (variant, trainer.args.seed) == (job.variants[0], training_args.seeds[0])
        return splits.score(trainer, split, Path(training_args.output_dir) if kept else None, variant)

    options = signature_of(model_args, data_args, task=task_name, data=digest_of(splits.examples))
    known = variants(table, model_args.baseline)
    job = SeededJob(known, splits.evaluated, build, score, options, produced=splits.produced())
    results = {**splits.results(run_seeds(job, training_args)), "coverage": coverage(splits.examples, table)}
    finish(task, model_args, data_args, training_args, splits, results)
    if training_args.process_index == 0:
        print_results(results, task.shown, Path(training_args.output_dir))
    push_results(Path(training_args.output_dir), training_args)
    return results


def count_cut_mentions(splits: Splits, model_args: Any, data_args: KnowledgeDataArguments) -> None:
    """Say how many rows are asked about a mention that the model will not see."""
    tokenizer = load_tokenizer(model_args)
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    for split, found in splits.examples.items():
        cut = behind_the_cut(splits.task, found, tokenizer, data_args.max_seq_length)
        if cut:
            splits.notes.setdefault("mentions_behind_the_cut", {})[split] = cut
            logger.warning(
                "%d of %d %s rows have a mention behind the cut at %d tokens, which the model does not see: raise "
                "`max_seq_length`.",
                cut,
                len(found),
                split,
                data_args.max_seq_length,
            )


TAKE_ENTITIES = ("ernie_thu", "bert")


def checkpoint_config(model_args: KnowledgeModelArguments) -> Any:
    """Configuration of the checkpoint, as it is."""
    return AutoConfig.from_pretrained(
        model_args.model_name_or_path,
        revision=model_args.model_revision,
        trust_remote_code=model_args.trust_remote_code,
    )


def variants(table: Any, baseline: bool) -> tuple[str, ...]:
    """With entities, without them, or both."""
    return ((WITH, WITHOUT) if baseline else (WITH,)) if table is not None else (WITHOUT,)


def read_examples(task_name: str, data_args: KnowledgeDataArguments) -> tuple[dict[str, list[Any]], Any]:
    """Examples of each split that is named, linked to WordNet if asked, and the task."""
    files = {"train": data_args.train_file, "validation": data_args.validation_file, "test": data_args.test_file}
    link = NounLinker(data_args.wordnet_senses, data_args.encoding) if data_args.wordnet_senses is not None else None
    examples = {}
    for split, path in files.items():
        if path is None:
            continue
        limit = data_args.max_train_rows if split == "train" else data_args.max_eval_rows
        read = TASKS[task_name].read(path, data_args, split != "train")[:limit]
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


def build_model(task: Any, model_args: KnowledgeModelArguments, table: Any) -> tuple[Any, Any, Any]:
    """The model of one run, its tokenizer, and what turns text into its inputs."""
    config = checkpoint_config(model_args)
    theirs = own_classes(config)
    if table is not None and config.model_type not in TAKE_ENTITIES:
        raise ValueError(
            f"`entity_table` needs an ERNIE-THU model, or a BERT, which becomes one, got a {config.model_type} model. "
            "Leave the table out."
        )
    if table is not None and config.model_type == "bert":
        from ..models.ernie_thu.configuration_ernie_thu import ErnieThuConfig

        fields = {"revision": model_args.model_revision, "entity_hidden_size": table.dim}
        config = ErnieThuConfig.from_pretrained(model_args.model_name_or_path, **fields)
    set_labels(config, task.labels)
    config.problem_type = task.problem_type
    cls = task.head_class(config.model_type)
    options = {} if cls.__name__.startswith("ErnieThu") else {"trust_remote_code": model_args.trust_remote_code}
    tokenizer = load_tokenizer(model_args)
    model = load_model(
        cls,
        model_args.model_name_or_path,
        config=config,
        revision=model_args.model_revision,
        labels=task.labels,
        theirs=theirs,
        tokenizer=tokenizer,
        **options,
    )
    add_markers(task.symbols, getattr(tokenizer, "tokenizer", tokenizer), model)
    processor = tokenizer
    if config.model_type == "ernie_thu":
        from ..models.ernie_thu.processing_ernie_thu import ErnieThuProcessor

        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        processor = ErnieThuProcessor(tokenizer, entity_vocab=table, min_score=-1.0, on_unknown_entity="ignore")
        if table is not None:
            model.set_entity_table(table)
            model.prune_entity_table()
    return model, tokenizer, processor


def rows_of(
    task: Any, examples: Sequence[Any], processor: Any, table: Any, data_args: KnowledgeDataArguments
) -> list[dict[str, Any]]:
    """Model inputs, with labels if there are any; a relation that training does not know has no loss (-100)."""
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
    if task.classes_of(examples[0]) is None:
        return rows
    return [{**row, "labels": task.target(one)} for row, one in zip(rows, examples, strict=True)]


def finish(
    task: Any,
    model_args: KnowledgeModelArguments,
    data_args: KnowledgeDataArguments,
    training_args: FinetuningArguments,
    splits: Splits,
    results: dict[str, Any],
) -> None:
    """Write the results and the model card."""
    kind = "relation classification" if task.name == "relation" else "entity typing"
    write_results(
        Path(training_args.output_dir),
        results,
        task.shown,
        training_args,
        f"Fine-tuned for {kind}.",
        {
            "max_seq_length": data_args.max_seq_length,
            **({"entity table": Path(model_args.entity_table).name} if model_args.entity_table else {}),
        },
        data={
            "name": Path(data_args.train_file).name,
            "license": data_args.data_license or "unknown",
            "examples": {split: len(ones) for split, ones in splits.examples.items()},
            **({"mentions with a vector": results["coverage"]} if results["coverage"] else {}),
        },
        scored_data=results["split"] and data_name(data_args, results["split"]),
        language=data_args.language,
        license=model_args.license or "unknown",
        base_model=model_args.model_name_or_path,
        pipeline_tag="text-classification",
        template="knowledge_task",
    )


__all__ = ["finetune"]
