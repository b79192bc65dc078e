"""`hf-ptm-ext pretrain`: continue the pre-training of a checkpoint, or start from a config, on real text."""

import inspect
import logging
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedConfig, set_seed

from ..files import read_json
from ..hub.model_card import check_card_fields, write_model_card
from ..models.unilm.tokenizer_unilm import unilm_tokenizer
from ..objectives import masked_lm_loss
from ..trainers import PreTrainingTrainer
from ..trainers.plots import plot_loss_curve
from . import pretrain_denoising as denoising
from .checkpoint_names import check_names, load_tokenizer
from .loading import check_positions
from .pretrain_arguments import (
    DENOISING,
    LABEL_TERMS,
    DataArguments,
    ModelArguments,
    ObjectiveArguments,
    PretrainingArguments,
    parse,
)
from .pretrain_data import EMBEDDED_LICENSES, Rows, build_rows, split_documents, trained_tokenizer
from .pretrain_entities import open_entities
from .pretrain_objectives import build_collator, build_model
from .runs import (
    begin_run,
    choose_checkpoint,
    configure_logging,
    in_its_folder,
    written_aside,
)
from .seeded_runs import check_best
from .signature import signature_of

logger = logging.getLogger(__name__)

# Shares of unknown tokens in the training text.
UNKNOWN_WARNING, UNKNOWN_LIMIT = 0.05, 0.5
# Objective -> template of the card; None: the family's, which speaks of its own objective.
TEMPLATES = {
    "span": None,
    "ernie_thu": None,
    "mass": None,
    "text_infilling": "denoising",
    "span_corruption": "denoising",
}
# Term of the loss -> what the printed table calls it.
TERMS = {
    "mlm": "masked tokens",
    "sbo": "span boundary",
    "nsp": "next sentence",
    "entity": "entities",
    "denoising": "restored text",
    "mass": "fragments",
}
DESCRIPTIONS = {
    "span": "Pre-trained with SpanBERT's objectives by hf-ptm-ext: masked spans, and spans from their boundaries.",
    "unilm": "Pre-trained by hf-ptm-ext as UniLM is: masked tokens in four attention modes, next sentences.",
    "ernie_thu": "Pre-trained by hf-ptm-ext as ERNIE-THU is: masked tokens, next sentences, denoised entities.",
    "mlm": "Pre-trained by hf-ptm-ext with dynamic token masking (BERT, RoBERTa).",
    "wwm": "Pre-trained by hf-ptm-ext with whole-word masking (BERT-WWM; Cui et al. 2019 for Chinese).",
    "mass": "Pre-trained by hf-ptm-ext as MASS is: the decoder writes fragments that the encoder does not see.",
    "text_infilling": "Pre-trained by hf-ptm-ext as BART is: shuffled sentences and masked spans are restored.",
    "span_corruption": "Pre-trained by hf-ptm-ext as T5 is: spans are written in place of their sentinels.",
    "tlm": "Pre-trained by hf-ptm-ext as XLM is: masked tokens of sentences and their translations.",
}


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


@in_its_folder
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
    check_card_fields(*card_fields(model_args, data_args, objective_args))
    check_names(model_args)
    if model_args.model_name_or_path is not None and objective_args.objective not in DENOISING:
        source = {"revision": model_args.model_revision, "trust_remote_code": model_args.trust_remote_code}
        check_positions(model_args.model_name_or_path, data_args, **source)
    checkpoint = choose_checkpoint(training_args)
    configure_logging(training_args)
    signature = signature_of(model_args, data_args, objective_args, training_args)
    set_seed(training_args.seed)

    documents = split_documents(data_args)
    tokenizer = choose_tokenizer(model_args, data_args, objective_args, documents[0])
    if objective_args.objective == "unilm":
        tokenizer = unilm_tokenizer(tokenizer)
    entities = open_entities(objective_args, tokenizer)
    rows = build_rows(
        data_args,
        objective_args,
        documents,
        tokenizer,
        training_args.seed,
        training_args.process_index,
        training_args.world_size,
        entities,
    )
    model = build_model(model_args, data_args, objective_args, tokenizer, entities)
    fixed_shapes = bool(training_args.torch_compile)

    def collator(seed: int) -> Any:
        return build_collator(data_args, objective_args, tokenizer, model, seed, rows.baseline.counts, fixed_shapes)

    check_rows(rows, tokenizer, training_args)
    # The collators need columns that no forward names (word ids).
    training_args.remove_unused_columns = False
    takes = inspect.signature(model.forward).parameters
    if data_args.pack_rows and "sequence_ids" not in takes:
        raise ValueError(
            f"`pack_rows` needs a model that keeps the sequences of a row apart, and {type(model).__name__} does not "
            "take `sequence_ids`. Leave it out, or train a family of this package (`hf-ptm-ext systems`)."
        )
    train_collator = collator(training_args.seed)
    probe(train_collator, rows, objective_args)
    trainer = PreTrainingTrainer(
        model=model,
        args=training_args,
        train_dataset=rows.train,
        eval_dataset=rows.evaluation,
        data_collator=train_collator,
        eval_collator=collator(training_args.seed + 1),
        processing_class=tokenizer,
        # Upstream's classes return the mean of a micro-batch, which is wrong as soon as there are several.
        compute_loss_func=None if "num_items_in_batch" in takes else loss_of_outputs,
    )
    begin_run(trainer, checkpoint, signature)
    metrics: dict[str, float] = {}
    if rows.evaluation is None:
        logger.warning("No text is held out, so nothing is evaluated: name `validation_file` for that.")
    else:
        metrics |= metrics_before(trainer, checkpoint)
        if metrics:
            check_best(training_args, [name.removeprefix("before_") for name in metrics])
        if objective_args.objective in DENOISING:
            vocabulary = trainer.accelerator.unwrap_model(trainer.model).get_input_embeddings().weight.shape[0]
            rows.baseline = denoising.target_baseline(collator(training_args.seed + 2), rows.train, vocabulary)
        metrics |= baselines(rows, trainer, LABEL_TERMS.get(objective_args.objective, "mlm"))
    result = trainer.train(resume_from_checkpoint=checkpoint)
    metrics |= result.metrics
    if rows.evaluation is not None:
        metrics |= trainer.evaluate()
    finish(trainer, model_args, data_args, objective_args, rows, metrics, entities)
    return metrics


def loss_of_outputs(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    """The masked-language-model loss of an upstream model's output."""
    return masked_lm_loss(outputs["logits"], labels, num_items_in_batch)


def check_rows(rows: Rows, tokenizer: Any, training_args: PretrainingArguments) -> None:
    """Refuse text that the tokenizer does not know and settings that would never make an update.

    Args:
        rows: the prepared rows.
        tokenizer: the tokenizer that made them.
        training_args: for the size of an update.

    Raises:
        ValueError: more than half of the tokens are unknown, or incomplete batches are all that there is.
    """
    unknown = tokenizer.unk_token_id
    share = rows.baseline.counts[unknown] / rows.baseline.counts.sum() if unknown is not None else 0.0
    advice = "Name one that fits with `tokenizer_name`, or start from a config to train one."
    if share > UNKNOWN_LIMIT:
        raise ValueError(f"The tokenizer knows {100 * (1 - share):.0f} % of the training text only. {advice}")
    if share > UNKNOWN_WARNING:
        logger.warning("%.0f %% of the training tokens are unknown to the tokenizer. %s", 100 * share, advice)
    batch = training_args.per_device_train_batch_size * training_args.world_size
    if training_args.dataloader_drop_last and hasattr(rows.train, "__len__") and len(rows.train) < batch:
        raise ValueError(
            f"`dataloader_drop_last` leaves nothing to train on: {len(rows.train)} rows are fewer than a batch of "
            f"{batch}. Leave it out, lower `per_device_train_batch_size` or `max_seq_length`, or give more text."
        )


def probe(collator: Any, rows: Rows, objective_args: ObjectiveArguments) -> None:
    """Mask a few rows before anything is written, so that a fault in data or options shows at once."""
    if not hasattr(rows.train, "__len__"):
        return
    state = collator.state_dict()
    try:
        collator([rows.train[number] for number in range(min(8, len(rows.train)))])
    except ValueError as error:
        if objective_args.segmenter is None and "word_ids" in str(error):
            raise ValueError(f"{error} In this job: `--segmenter jieba` (pip install hf-ptm-ext[zh]).") from error
        raise
    collator.load_state_dict(state)


def metrics_before(trainer: PreTrainingTrainer, checkpoint: str | None) -> dict[str, float]:
    """Metrics before training: measured now and kept in the folder, or those of the run that is resumed."""
    kept = Path(trainer.args.output_dir) / "before_results.json"
    if trainer.is_fsdp_enabled:
        logger.warning(
            "Nothing is measured before training under `fsdp`, which shards the model when training begins: the "
            "results have no `before_` numbers."
        )
        return {}
    if checkpoint is None:
        metrics = trainer.evaluate(metric_key_prefix="before")
        trainer.save_metrics("before", metrics, combined=False)
        return metrics
    return read_json(kept) if kept.is_file() else {}


def choose_tokenizer(
    model_args: ModelArguments, data_args: DataArguments, objective_args: ObjectiveArguments, documents: Any
) -> Any:
    """The named tokenizer, the checkpoint's, or one trained on the documents."""
    name = model_args.tokenizer_name or model_args.model_name_or_path
    if data_args.train_tokenizer or name is None:
        if model_args.model_name_or_path is not None:
            raise ValueError(
                "`train_tokenizer` makes a new vocabulary, which the checkpoint's embeddings do not fit. Leave it "
                "out, or start from a config."
            )
        tokenizer = trained_tokenizer(data_args, documents)
        return denoising.fit_tokenizer(tokenizer, objective_args.objective, data_args.lowercase)
    return load_tokenizer(model_args)


def baselines(rows: Rows, trainer: PreTrainingTrainer, label_term: str) -> dict[str, float]:
    """What the majority token and the unigram distribution reach on the evaluation targets of each term."""
    targets: dict[str, list[np.ndarray]] = {}
    for batch in trainer.get_eval_dataloader():
        for term, column in ((label_term, "labels"), ("sbo", "span_labels")):
            if column in batch:
                values = batch[column].cpu().numpy()
                targets.setdefault(term, []).append(values[values != -100])
    metrics = {}
    for term, parts in targets.items():
        joined = np.concatenate(parts)
        if joined.size:
            metrics[f"baseline_{term}_accuracy"] = rows.baseline.accuracy(joined)
            metrics[f"baseline_{term}_loss"] = rows.baseline.cross_entropy(joined)
    return metrics


def finish(
    trainer: PreTrainingTrainer,
    model_args: ModelArguments,
    data_args: DataArguments,
    objective_args: ObjectiveArguments,
    rows: Rows,
    metrics: dict[str, float],
    entities: Any = None,
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
            if entities is not None:
                entities.save(partial)
        with written_aside(output) as partial:
            draw_curve(trainer, partial, metrics)
        write_card(trainer, output, model_args, data_args, objective_args, rows, metrics)
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
        for term in ("mlm", "sbo", "denoising", "mass")
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
        "epochs": round(trainer.state.epoch or 0.0, 4),
        "updates": trainer.state.global_step,
        "rows per update": args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "learning rate": args.learning_rate,
        "warm-up": args.warmup_steps,
        "weight decay": args.weight_decay,
        "seed": args.seed,
    }
    language, license_name = card_fields(model_args, data_args, objective_args)
    evaluated = ", ".join(Path(file).name for file in data_args.validation_file or ())
    write_model_card(
        folder,
        family=trainer.accelerator.unwrap_model(trainer.model).config.model_type,
        metrics=scores(metrics, "eval_"),
        initial_metrics=scores(metrics, "before_"),
        before=f"before training{origin_of_head(trainer, model_args)}",
        scored=(evaluated, "validation") if evaluated else None,
        baselines=scores(metrics, "baseline_"),
        training=training,
        data=rows.description,
        language=language,
        license=license_name,
        base_model=model_args.model_name_or_path,
        repo_id=trainer.hub_model_id or f"your-name/{Path(args.output_dir).name}",
        title=Path(args.output_dir).name,
        figure="loss_curve.png",
        # A family's template speaks of its own objective.
        template=TEMPLATES.get(objective_args.objective, "encoder"),
        pipeline_tag="text-generation" if objective_args.objective in LABEL_TERMS else "fill-mask",
        description=DESCRIPTIONS[objective_args.objective],
    )


def origin_of_head(trainer: PreTrainingTrainer, model_args: ModelArguments) -> str:
    """What a card says of the head that was measured before training, if it had not been trained for this."""
    if model_args.model_name_or_path is None:
        return " (random weights)"
    if getattr(trainer.saved_model, "untrained_head", ()):
        return " (a head that the checkpoint lacks, in part or as a whole)"
    source = {"revision": model_args.model_revision}
    config, _ = PreTrainedConfig.get_config_dict(model_args.model_name_or_path, **source)
    before = (config.get("architectures") or [type(trainer.saved_model).__name__])[0]
    return "" if before == type(trainer.saved_model).__name__ else f" (head of {before})"


def card_fields(
    model_args: ModelArguments, data_args: DataArguments, objective_args: ObjectiveArguments
) -> tuple[str | list[str], str]:
    """Language of the text and licence of the weights, as the card spells them."""
    language = data_args.language or objective_args.languages or data_args.corpus or "und"
    inherited = EMBEDDED_LICENSES.get(data_args.corpus or "") if model_args.model_name_or_path is None else None
    return language, model_args.license or inherited or "unknown"


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
    for term, name in TERMS.items():
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
