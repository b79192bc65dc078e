"""`hf-ptm-ext finetune`: fine-tune any encoder for classification, tagging or question answering, by seeds."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

from ..hub.model_card import check_card_fields
from ..trainers import ResumableTrainer
from .checkpoint_names import check_names
from .finetune_arguments import (
    FinetuneArguments,
    FinetuneModelArguments,
    KnowledgeGraphArguments,
    TaskDataArguments,
    parse,
)
from .finetune_models import WITH, Encoder, knowledge_found
from .finetune_rows import Rows
from .finetune_tasks import read_splits
from .loading import check_positions
from .runs import configure_logging, in_its_folder
from .seeded_runs import (
    SeededJob,
    print_results,
    push_results,
    run_seeds,
    summary,
    write_lines,
    write_results,
)
from .signature import digest_of, signature_of

logger = logging.getLogger(__name__)


def run(arguments: list[str]) -> int:
    """Run the job.

    Args:
        arguments: the command line after `finetune`.

    Returns:
        0.

    Raises:
        ValueError: arguments or data are wrong; the message says which and what to do.
    """
    finetune(*parse(arguments))
    return 0


@in_its_folder
def finetune(
    model_args: FinetuneModelArguments,
    data_args: TaskDataArguments,
    knowledge_args: KnowledgeGraphArguments,
    training_args: FinetuneArguments,
) -> dict[str, Any]:
    """Train and measure by seeds; save the first seed's model, its predictions, its card and all results.

    Args:
        model_args: which model, see `finetune_arguments` for all four.
        data_args: the task and its data.
        knowledge_args: knowledge that is put into the text.
        training_args: how it is trained.

    Returns:
        `runs` (one entry a seed and variant), `summary` (variant -> metric -> mean and standard deviation), `majority`
        and `labels`; `knowledge`, how much of it was found in the text of each split.

    Raises:
        ValueError: data, model and knowledge do not fit each other, or the output folder has files.
    """
    check_names(model_args)
    check_positions(
        model_args.model_name_or_path,
        data_args,
        revision=model_args.model_revision,
        trust_remote_code=model_args.trust_remote_code,
    )
    examples, task = read_splits(data_args)
    check_card_fields(data_args.language, model_args.license or "unknown", pipeline_tag=task.pipeline_tag)
    configure_logging(training_args)
    evaluated = tuple(split for split in ("validation", "test") if split in examples)
    encoder = Encoder(task, model_args, knowledge_args)
    task = encoder.task
    encoded: dict[tuple[str, str], Rows] = {}

    def rows(variant: str, split: str) -> Rows:
        if (variant, split) not in encoded:
            options = encoder.tokenizer_options(variant)
            encoded[variant, split] = task.encode(
                examples[split], encoder.tokenizer, data_args.max_seq_length, **options
            )
        return encoded[variant, split]

    def build(variant: str, args: FinetuneArguments) -> tuple[ResumableTrainer, Any]:
        validation = rows(variant, "validation") if args.eval_strategy != "no" else None

        args.label_names = ["labels"]  # upstream takes the heads' own names, which differ

        def metrics(evaluation: Any) -> dict[str, float]:
            return task.scores(evaluation.predictions, examples["validation"], validation)

        trainer = ResumableTrainer(
            model=encoder.model(),
            args=args,
            train_dataset=rows(variant, "train").inputs,
            eval_dataset=None if validation is None else validation.inputs,
            data_collator=task.collator(encoder.tokenizer),
            processing_class=encoder.tokenizer,
            compute_loss_func=partial(task.loss, label_smoothing=args.label_smoothing_factor),
            compute_metrics=None if validation is None else metrics,
            preprocess_logits_for_metrics=task.reduce_logits,
        )
        return trainer, task.saved(encoder.tokenizer)

    def score(trainer: ResumableTrainer, variant: str, split: str) -> dict[str, float]:
        trainer.compute_metrics = None  # that of the validation data
        found = rows(variant, split)
        predictions = trainer.predict(found.inputs).predictions
        kept = (variant, trainer.args.seed) == (encoder.variants[0], training_args.seeds[0])
        if kept and trainer.is_world_process_zero():
            file = Path(training_args.output_dir) / f"predictions_{split}.jsonl"
            write_lines(file, task.records(predictions, examples[split], found))
        return task.scores(predictions, examples[split], found)

    knowledge = {}
    if WITH in encoder.variants:
        knowledge = {split: knowledge_found(rows(WITH, split).inputs) for split in examples}
        logger.info("knowledge found: %s", knowledge)
        if not knowledge["train"]["branches_per_row"]:
            raise ValueError(
                f"`kg` = {knowledge_args.kg} has no word of the training data, so it would teach nothing. Use a graph "
                "of the same language and domain."
            )
    options = signature_of(model_args, data_args, knowledge_args, data=digest_of(examples))
    job = SeededJob(encoder.variants, evaluated, build, score, options)
    results: dict[str, Any] = {"runs": run_seeds(job, training_args), "labels": list(task.labels)}
    if knowledge:
        results["knowledge"] = knowledge
    results["majority"] = task.majority(examples["train"], examples[evaluated[-1]])
    results["simple_baseline"] = task.simple
    results["summary"] = summary(results["runs"], evaluated[-1])
    finish(task, model_args, data_args, knowledge_args, training_args, examples, results)
    if training_args.process_index == 0:
        print_results(results, task.shown, evaluated[-1], Path(training_args.output_dir))
    push_results(Path(training_args.output_dir), training_args)
    return results


def finish(
    task: Any,
    model_args: FinetuneModelArguments,
    data_args: TaskDataArguments,
    knowledge_args: KnowledgeGraphArguments,
    training_args: FinetuneArguments,
    examples: dict[str, list[Any]],
    results: dict[str, Any],
) -> None:
    """Write the results and the model card."""
    graphs = [Path(file).name for file in knowledge_args.kg or ()]
    branches = {split: found["branches_per_row"] for split, found in results.get("knowledge", {}).items()}
    training: dict[str, Any] = {"max_seq_length": data_args.max_seq_length}
    if graphs:
        training |= {"knowledge graphs": ", ".join(graphs), "max_entities": knowledge_args.max_entities}
    write_results(
        Path(training_args.output_dir),
        results,
        task.shown,
        training_args,
        f"Fine-tuned for {task.kind}.",
        training,
        data={
            "name": data_args.dataset_name or ", ".join(Path(file).name for file in data_args.train_file or ()),
            "license": data_args.data_license or "unknown",
            "examples": {split: len(ones) for split, ones in examples.items()},
            **({"branches per row": branches} if branches else {}),
        },
        language=data_args.language,
        license=model_args.license or "unknown",
        base_model=model_args.model_name_or_path,
        pipeline_tag=task.pipeline_tag,
        template=task.template,
    )


__all__ = ["finetune", "run"]
