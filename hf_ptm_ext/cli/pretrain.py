"""`hf-ptm-ext pretrain`: continue the pre-training of a checkpoint, or start from a config, on real text."""

import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, set_seed
from transformers.utils import logging as transformers_logging

from ..hub.model_card import write_model_card
from ..trainers import PreTrainingTrainer, last_complete_checkpoint
from ..trainers.plots import plot_loss_curve
from .pretrain_arguments import DataArguments, ModelArguments, ObjectiveArguments, PretrainingArguments, parse
from .pretrain_data import EMBEDDED_LICENSES, Rows, build_rows, split_documents, trained_tokenizer
from .pretrain_objectives import build_collator, build_model

logger = logging.getLogger(__name__)

PARTIAL = "_partial"  # leading underscore: never pushed by upstream's uploads either


def run(arguments: list[str]) -> int:
    """Run the job.

    Args:
        arguments: the command line after `pretrain`.

    Returns:
        0.

    Raises:
        ValueError: arguments or data are wrong; the message says which and what to do.
    """
    pretrain(*parse(arguments))
    return 0


def pretrain(
    model_args: ModelArguments,
    data_args: DataArguments,
    objective_args: ObjectiveArguments,
    training_args: PretrainingArguments,
) -> dict[str, float]:
    """Train, evaluate before and after, save a folder that loads without the package, write card and curve.

    Args:
        model_args: which model, see `pretrain_arguments` for all four.
        data_args: what it is trained on.
        objective_args: what is predicted.
        training_args: how it is trained.

    Returns:
        All metrics; `before_*` and `eval_*` are those of the held-out text before and after training, `baseline_*`
        those of the majority token and of the unigram distribution on the same targets.
    """
    checkpoint = choose_checkpoint(training_args)
    configure_logging(training_args)
    set_seed(training_args.seed)

    documents = split_documents(data_args)
    tokenizer = choose_tokenizer(model_args, data_args, documents[0])
    rows = build_rows(
        data_args,
        objective_args,
        documents,
        tokenizer,
        training_args.seed,
        training_args.process_index,
        training_args.world_size,
    )
    model = build_model(model_args, data_args, objective_args, tokenizer)
    fixed_shapes = bool(training_args.torch_compile)

    def collator(seed: int) -> Any:
        return build_collator(data_args, objective_args, tokenizer, model, seed, rows.baseline.counts, fixed_shapes)

    # The collators need columns that no forward names (word ids).
    training_args.remove_unused_columns = False
    trainer = PreTrainingTrainer(
        model=model,
        args=training_args,
        train_dataset=rows.train,
        eval_dataset=rows.evaluation,
        data_collator=collator(training_args.seed),
        eval_collator=collator(training_args.seed + 1),
        processing_class=tokenizer,
    )
    metrics: dict[str, float] = {}
    if rows.evaluation is not None:
        if checkpoint is None:
            metrics |= trainer.evaluate(metric_key_prefix="before")
        metrics |= baselines(rows, trainer)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    metrics |= result.metrics
    if rows.evaluation is not None:
        metrics |= trainer.evaluate()
    finish(trainer, model_args, data_args, objective_args, rows, metrics)
    return metrics


def choose_checkpoint(training_args: PretrainingArguments) -> str | None:
    """The checkpoint to resume from, if any; refuses to write over another run.

    Args:
        training_args: `resume_from_checkpoint` is a folder, or `true`/`auto` for the newest complete one.
    """
    wanted = training_args.resume_from_checkpoint
    output = Path(training_args.output_dir)
    if wanted is not None and str(wanted).lower() not in ("true", "auto"):
        if not Path(wanted).is_dir():
            raise ValueError(f"`resume_from_checkpoint` must be a checkpoint folder, got {wanted}.")
        return str(wanted)
    newest = last_complete_checkpoint(output)
    if wanted is not None:
        if newest is None:
            raise ValueError(f"`resume_from_checkpoint`: {output} has no complete checkpoint.")
        return str(newest)
    if output.is_dir() and any(output.iterdir()) and not training_args.overwrite:
        raise ValueError(
            f"`output_dir` = {output} is not empty. Pass --resume_from_checkpoint auto to go on, --overwrite true to "
            "train anew, or name another folder."
        )
    return None


def configure_logging(training_args: PretrainingArguments) -> None:
    """Log from the first process only, at the asked level."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    transformers_logging.set_verbosity(training_args.get_process_log_level())


def choose_tokenizer(model_args: ModelArguments, data_args: DataArguments, documents: Any) -> Any:
    """The named tokenizer, the checkpoint's, or one trained on the documents."""
    name = model_args.tokenizer_name or model_args.model_name_or_path
    if data_args.train_tokenizer or name is None:
        if model_args.model_name_or_path is not None:
            raise ValueError(
                "`train_tokenizer` makes a new vocabulary, which the checkpoint's embeddings do not fit. Leave it "
                "out, or start from a config."
            )
        return trained_tokenizer(data_args, documents)
    return AutoTokenizer.from_pretrained(
        name, revision=model_args.model_revision, trust_remote_code=model_args.trust_remote_code
    )


def baselines(rows: Rows, trainer: PreTrainingTrainer) -> dict[str, float]:
    """What the majority token and the unigram distribution reach on the evaluation targets of each term."""
    targets: dict[str, list[np.ndarray]] = {}
    for batch in trainer.get_eval_dataloader():
        for term, column in (("mlm", "labels"), ("sbo", "span_labels")):
            if column in batch:
                values = batch[column].numpy()
                targets.setdefault(term, []).append(values[values != -100])
    metrics = {}
    for term, parts in targets.items():
        joined = np.concatenate(parts)
        if joined.size:
            metrics[f"baseline_{term}_accuracy"] = rows.baseline.accuracy(joined)
            metrics[f"baseline_{term}_loss"] = rows.baseline.cross_entropy(joined)
    return metrics


@contextmanager
def written_aside(output: Path) -> Iterator[Path]:
    """A temporary folder whose files move into `output` when everything in it was written."""
    partial = output / PARTIAL
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    try:
        yield partial
        for file in sorted(partial.iterdir()):
            file.replace(output / file.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def finish(
    trainer: PreTrainingTrainer,
    model_args: ModelArguments,
    data_args: DataArguments,
    objective_args: ObjectiveArguments,
    rows: Rows,
    metrics: dict[str, float],
) -> None:
    """Save model, tokenizer, metrics, card and curve into the output folder; push if asked."""
    args = trainer.args
    output = Path(args.output_dir)
    state_dict = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
    if trainer.is_world_process_zero():
        with written_aside(output) as partial:
            model = trainer.accelerator.unwrap_model(trainer.model)
            model = getattr(model, "_orig_mod", model)
            model.save_pretrained(partial, state_dict=state_dict)
            trainer.processing_class.save_pretrained(partial)
            draw_curve(trainer, partial, metrics)
            write_card(trainer, partial, model_args, data_args, objective_args, rows, metrics)
        trainer.save_metrics("all", metrics)
        trainer.save_state()
        print_results(output, metrics)
    trainer.accelerator.wait_for_everyone()
    if args.push_to_hub:
        trainer.push_to_hub()


def draw_curve(trainer: PreTrainingTrainer, folder: Path, metrics: dict[str, float]) -> None:
    """Draw the loss curve, or say what is missing for it."""
    lines = {
        f"unigram {term}": metrics[f"baseline_{term}_loss"]
        for term in ("mlm", "sbo")
        if f"baseline_{term}_loss" in metrics
    }
    try:
        plot_loss_curve(trainer.state.log_history, folder / "loss_curve.png", lines)
    except ImportError as error:
        logger.warning("%s", error)


def write_card(
    trainer: PreTrainingTrainer,
    folder: Path,
    model_args: ModelArguments,
    data_args: DataArguments,
    objective_args: ObjectiveArguments,
    rows: Rows,
    metrics: dict[str, float],
) -> None:
    """Write the model card of the run."""
    args = trainer.args
    training = {
        "objective": objective_args.objective,
        "mlm_probability": objective_args.mlm_probability,
        "max_seq_length": data_args.max_seq_length,
        "packed rows": data_args.pack_rows,
        "updates": int(args.max_steps) if args.max_steps > 0 else f"{args.num_train_epochs} epochs",
        "rows per update": args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "learning rate": args.learning_rate,
        "warm-up": args.warmup_steps,
        "weight decay": args.weight_decay,
        "seed": args.seed,
    }
    from_scratch = model_args.model_name_or_path is None
    weights_license = model_args.license or (EMBEDDED_LICENSES.get(data_args.corpus or "") if from_scratch else None)
    write_model_card(
        folder,
        family=trainer.model.config.model_type,
        metrics=scores(metrics, "eval_"),
        initial_metrics=scores(metrics, "before_"),
        baselines=scores(metrics, "baseline_"),
        training=training,
        data=rows.description,
        language=data_args.language or data_args.corpus or "en",
        license=weights_license or "unknown",
        base_model=model_args.model_name_or_path,
        repo_id=trainer.hub_model_id,
        title=Path(args.output_dir).name,
        figure="loss_curve.png",
    )


def scores(metrics: dict[str, float], prefix: str) -> dict[str, float]:
    """The losses and accuracies under a prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in metrics.items()
        if name.startswith(prefix) and name.endswith(("_loss", "_accuracy"))
    }


def print_results(output: Path, metrics: dict[str, float]) -> None:
    """Print held-out loss and accuracy per term, before and after, beside the baselines."""
    lines = []
    for term, name in (("mlm", "masked tokens"), ("sbo", "span boundary"), ("nsp", "next sentence")):
        if f"eval_{term}_loss" not in metrics:
            continue
        cells = []
        for prefix in ("baseline", "before", "eval"):
            loss, accuracy = metrics.get(f"{prefix}_{term}_loss"), metrics.get(f"{prefix}_{term}_accuracy")
            cells.append(f"{loss:8.3f} {100 * accuracy:6.1f} %" if loss is not None else f"{'-':>17}")
        lines.append(f"{name:<14}" + "".join(f"{cell:>20}" for cell in cells))
    if lines:
        print("\nHeld-out text: cross entropy in nats and accuracy")
        print(f"{'':<14}{'unigram, majority':>20}{'before':>20}{'after':>20}")
        print("\n".join(lines))
    print(f"\nSaved to {output}. Check that it loads anywhere: hf-ptm-ext verify {output}")
