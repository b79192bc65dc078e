"""`hf-ptm-ext finetune`: fine-tune any encoder for classification, tagging or question answering, by seeds."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

from ..data.bad_rows import BadRows
from ..hub.model_card import check_card_fields
from ..trainers import ResumableTrainer
from .checkpoint_names import check_names
from .evaluation import Splits
from .finetune_arguments import (
    FinetuneArguments,
    FinetuneModelArguments,
    KnowledgeGraphArguments,
    TaskDataArguments,
    data_name,
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
        `runs` (one entry a seed and variant, with `epochs` and `updates`), `summary` (variant -> metric -> mean and
        standard deviation), `majority`, `labels`, `split` (whose scores are reported) and `data` (what was found in
        it: classes that training lacks, rows of the training data); `knowledge`, how much of it was found in the text
        of each split.

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
    with BadRows(data_args.on_bad_rows) as bad:
        examples, task = read_splits(data_args)
    check_card_fields(data_args.language, model_args.license or "unknown", pipeline_tag=task.pipeline_tag)
    configure_logging(training_args)
    encoder = Encoder(task, model_args, knowledge_args)
    task = encoder.task

    def encode(found: list[Any], variant: str) -> Rows:
        options = encoder.tokenizer_options(variant)
        return task.encode(found, encoder.tokenizer, data_args.max_seq_length, **options)

    splits = Splits(task, examples, encode, data_args, bad)

    def build(variant: str, args: FinetuneArguments) -> tuple[ResumableTrainer, Any]:
        trainer = ResumableTrainer(
            model=encoder.model(),
            compute_loss_func=partial(task.loss, label_smoothing=args.label_smoothing_factor),
            **splits.trainer_options(args, encoder.tokenizer, variant),
        )
        return trainer, task.saved(encoder.tokenizer)

    def score(trainer: ResumableTrainer, variant: str, split: str) -> dict[str, float]:
        kept = (variant, trainer.args.seed) == (encoder.variants[0], training_args.seeds[0])
        return splits.score(trainer, split, Path(training_args.output_dir) if kept else None, variant)

    knowledge = {}
    if WITH in encoder.variants:
        knowledge = {split: knowledge_found(splits.rows(split, WITH).inputs) for split in splits.examples}
        logger.info("knowledge found: %s", knowledge)
        if not knowledge["train"]["branches_per_row"]:
            raise ValueError(
                f"`kg` = {knowledge_args.kg} has no word of the training data, so it would teach nothing. Use a graph "
                "of the same language and domain."
            )
    options = signature_of(model_args, data_args, knowledge_args, data=digest_of(splits.examples))
    job = SeededJob(encoder.variants, splits.evaluated, build, score, options, produced=splits.produced())
    results = splits.results(run_seeds(job, training_args))
    if knowledge:
        results["knowledge"] = knowledge
    finish(task, model_args, data_args, knowledge_args, training_args, splits, results)
    if training_args.process_index == 0:
        print_results(results, task.shown, Path(training_args.output_dir))
    push_results(Path(training_args.output_dir), training_args)
    return results


def finish(
    task: Any,
    model_args: FinetuneModelArguments,
    data_args: TaskDataArguments,
    knowledge_args: KnowledgeGraphArguments,
    training_args: FinetuneArguments,
    splits: Splits,
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
            "name": data_name(data_args),
            "license": data_args.data_license or "unknown",
            "examples": {split: len(ones) for split, ones in splits.examples.items()},
            **({"branches per row": branches} if branches else {}),
        },
        scored_data=results["split"] and data_name(data_args, results["split"]),
        language=data_args.language,
        license=model_args.license or "unknown",
        base_model=model_args.model_name_or_path,
        pipeline_tag=task.pipeline_tag,
        template=task.template,
    )


__all__ = ["finetune", "run"]
