"""`hf-ptm-ext finetune-seq2seq`: summarise, translate, ask questions, with UniLM or any encoder-decoder."""

import inspect
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

from transformers import set_seed

from ..data.bad_rows import BadRows
from ..hub.model_card import check_card_fields, write_model_card
from ..models.unilm.tokenizer_unilm import unilm_tokenizer
from ..objectives import label_smoothed_loss
from ..trainers import PtmSeq2SeqTrainer
from .checkpoint_names import check_names, load_tokenizer
from .evaluation import overlaps, warn_of_overlap
from .finetune_arguments import data_name
from .runs import (
    begin_run,
    choose_checkpoint,
    configure_logging,
    in_its_folder,
    written_aside,
)
from .seeded_runs import check_best, notes_of_data
from .seq2seq_arguments import (
    DecodingArguments,
    FineTuningArguments,
    Seq2SeqDataArguments,
    Seq2SeqModelArguments,
    Seq2SeqObjectiveArguments,
    parse,
)
from .seq2seq_data import Split, describe_data, read_split, tokenize, trained_tokenizer
from .seq2seq_decoding import build_decoding, stock_options, word_ids
from .seq2seq_languages import set_languages, set_target_language
from .seq2seq_metrics import GenerationMetrics, mean_target_length
from .seq2seq_models import UNILM, build_collators, build_model, check_model
from .signature import signature_of
from .tables import text_table

logger = logging.getLogger(__name__)

# split -> prefix of its metrics
EVALUATED = {"validation": "eval", "test": "test"}


def run(arguments: list[str]) -> int:
    """Run the job.

    Args:
        arguments: the command line after `finetune-seq2seq`.

    Returns:
        0.

    Raises:
        ValueError: arguments or data are wrong; the message says which and what to do.
    """
    finetune(*parse(arguments))
    return 0


@in_its_folder
def finetune(
    model_args: Seq2SeqModelArguments,
    data_args: Seq2SeqDataArguments,
    objective_args: Seq2SeqObjectiveArguments,
    decoding_args: DecodingArguments,
    training_args: FineTuningArguments,
) -> dict[str, Any]:
    """Train, generate for validation and test data, score, save a folder that loads anywhere, with card and texts.

    Args:
        model_args: which model, see `seq2seq_arguments` for all five.
        data_args: what it is fine-tuned on.
        objective_args: how UniLM's targets are masked.
        decoding_args: how texts are generated and scored.
        training_args: how it is trained.

    Returns:
        All metrics: `eval_*` of the validation data, `test_*` of the test data, `baseline_eval_*` and
        `baseline_test_*` of copying the first source tokens; the metric's signature, and letters it drops.
    """
    check_card_fields(data_args.language or "und", model_args.license or "unknown", pipeline_tag=data_args.task)
    check_names(model_args)
    checkpoint = choose_checkpoint(training_args)
    configure_logging(training_args)
    signature = signature_of(model_args, data_args, objective_args, decoding_args, training_args)
    set_seed(training_args.seed)

    inputs = check_model(model_args, data_args, decoding_args)
    with BadRows(data_args.on_bad_rows) as bad:
        read = {name: read_split(data_args, name, bad) for name in ("train", *EVALUATED)}
    examples = {name: found for name, found in read.items() if found is not None}
    common = {prefix: rows_in_training(examples, name) for name, prefix in EVALUATED.items() if name in examples}
    tokenizer = choose_tokenizer(model_args, data_args, examples["train"])
    set_languages(tokenizer, data_args, inputs)
    texts_of = [text for found in examples.values() for example in found for text in example.targets]
    metrics = generation_metrics(decoding_args, tokenizer, texts_of)
    check_best(training_args, ("loss", *(metrics.produced if training_args.predict_with_generate else ())))
    splits = {name: tokenize(data_args, found, tokenizer, name, inputs) for name, found in examples.items()}
    model = build_model(model_args, data_args, tokenizer)
    set_target_language(model, tokenizer, inputs)
    if model.config.model_type == UNILM:
        tokenizer = unilm_tokenizer(tokenizer)  # saved with the model, so that it pads for generation there too
    loss_function = smooth_once(model, training_args)
    collator, eval_collator = build_collators(data_args, objective_args, tokenizer, model, training_args.seed)
    # The collators need columns that no forward names.
    training_args.remove_unused_columns = False
    trainer = PtmSeq2SeqTrainer(
        model=model,
        args=training_args,
        train_dataset=splits["train"].rows,
        eval_dataset=splits["validation"].rows if "validation" in splits else None,
        data_collator=collator,
        eval_collator=eval_collator,
        decoding=build_decoding(decoding_args, tokenizer, data_args.max_target_length),
        processing_class=tokenizer,
        compute_metrics=metrics if training_args.predict_with_generate else None,
        compute_loss_func=loss_function,
    )
    begin_run(trainer, checkpoint, signature)
    if "validation" in splits:
        metrics.references = splits["validation"].references
    elif "test" not in splits:
        logger.warning("Nothing is evaluated: name `validation_file` or `test_file` for that.")
    results = {**trainer.train(resume_from_checkpoint=checkpoint).metrics, **bad.results()}
    results |= {f"{prefix}_rows_in_training_data": rows for prefix, rows in common.items() if rows}
    texts: dict[str, list[str]] = {}
    length = mean_target_length(splits["train"], tokenizer)
    for name, prefix in EVALUATED.items():
        if name not in splits:
            continue
        metrics.references = splits[name].references
        scored = all(metrics.references)
        trainer.compute_metrics = metrics if scored and training_args.predict_with_generate else None
        output = trainer.predict(splits[name].rows, metric_key_prefix=prefix)
        results |= output.metrics if scored else {}
        if training_args.predict_with_generate:
            texts[name] = metrics.decode_padded(output.predictions)
            if empty := texts[name].count(""):
                logger.warning("%d of %d %s predictions are empty.", empty, len(texts[name]), name)
        if training_args.predict_with_generate and scored:
            scores = metrics.scores(metrics.copied_beginnings(splits[name], length))
            results |= {f"baseline_{prefix}_{score}": value for score, value in scores.items()}
    if texts:
        results |= {"metric_signature": metrics.signature, "metric_lost_letters": metrics.lost_letters}
    finish(trainer, model_args, data_args, objective_args, decoding_args, splits, results, texts)
    if trainer.is_world_process_zero():
        print_results(Path(training_args.output_dir), results, length)
    if training_args.push_to_hub:
        trainer.push_to_hub()
    return results


def rows_in_training(examples: dict[str, list[Any]], split: str) -> int:
    """How many rows of a split have a source that the training data have too, aloud."""
    texts = {name: [f"{one.source}\n{one.source_pair or ''}" for one in examples[name]] for name in ("train", split)}
    common = sum(overlaps(texts["train"], texts[split]))
    warn_of_overlap(split, common, len(texts[split]))
    return common


def choose_tokenizer(model_args: Seq2SeqModelArguments, data_args: Seq2SeqDataArguments, examples: Any) -> Any:
    """The named tokenizer, the checkpoint's, or one trained on the training data."""
    name = model_args.tokenizer_name or model_args.model_name_or_path
    if data_args.train_tokenizer or name is None:
        if model_args.model_name_or_path is not None:
            raise ValueError(
                "`train_tokenizer` makes a new vocabulary, which the checkpoint's embeddings do not fit. Leave it "
                "out, or start from a config."
            )
        return trained_tokenizer(data_args, examples)
    return load_tokenizer(model_args)


def generation_metrics(decoding_args: DecodingArguments, tokenizer: Any, texts: list[str]) -> GenerationMetrics:
    """The metrics; a missing library is a mistake of the installation, with a message of its own."""
    try:
        return GenerationMetrics(decoding_args, tokenizer, texts)
    except ImportError as error:
        raise ValueError(f"`metric` = {decoding_args.metric}: {error}") from error


def smooth_once(model: Any, training_args: FineTuningArguments) -> Any:
    """Let label smoothing happen in exactly one place.

    Args:
        model: one with a smoothing of its own (`config.label_smoothing`) gets the factor.
        training_args: its `label_smoothing_factor` becomes 0 then, or the Trainer would smooth too.

    Returns:
        `compute_loss_func` of the Trainer, `None` if the model's own loss is right.
    """
    factor = training_args.label_smoothing_factor
    if hasattr(model.config, "label_smoothing"):
        model.config.label_smoothing = factor
        training_args.label_smoothing_factor = 0.0
        return None
    if not factor and "num_items_in_batch" in inspect.signature(model.forward).parameters:
        return None
    # Upstream's classes return the mean of a micro-batch, which is wrong as soon as there are several.
    return partial(loss_of_outputs, label_smoothing=factor)


def loss_of_outputs(outputs: Any, labels: Any, num_items_in_batch: Any = None, *, label_smoothing: float = 0.0) -> Any:
    """The smoothed loss of an upstream model's output."""
    return label_smoothed_loss(outputs["logits"], labels, num_items_in_batch, label_smoothing)


def finish(
    trainer: PtmSeq2SeqTrainer,
    model_args: Seq2SeqModelArguments,
    data_args: Seq2SeqDataArguments,
    objective_args: Seq2SeqObjectiveArguments,
    decoding_args: DecodingArguments,
    splits: dict[str, Split],
    results: dict[str, Any],
    texts: dict[str, list[str]],
) -> None:
    """Save model, tokenizer, texts, metrics and card into the output folder."""
    args = trainer.args
    output = Path(args.output_dir)
    state_dict = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
    if trainer.is_world_process_zero():
        model = trainer.accelerator.unwrap_model(trainer.model)
        model = getattr(model, "_orig_mod", model)
        # The Trainer switches the cache off for training, and the config would say so for ever.
        model.config.use_cache = True
        keep_decoding(model, trainer.processing_class, decoding_args, data_args)
        with written_aside(output) as partial_folder:
            model.save_pretrained(partial_folder, state_dict=state_dict)
            trainer.processing_class.save_pretrained(partial_folder)
            for name, predictions in texts.items():
                write_predictions(partial_folder / f"predictions_{name}.jsonl", splits[name], predictions)
        write_card(trainer, output, model_args, data_args, objective_args, decoding_args, splits, results)
        trainer.save_metrics("all", results)
        trainer.save_state()
    trainer.accelerator.wait_for_everyone()


def keep_decoding(
    model: Any, tokenizer: Any, decoding_args: DecodingArguments, data_args: Seq2SeqDataArguments
) -> None:
    """Let the saved model decode as it was evaluated, as far as its `generation_config` has words for it."""
    limit = decoding_args.max_new_tokens or data_args.max_target_length
    options: dict[str, Any] = {"max_new_tokens": limit}
    if decoding_args.search != UNILM:
        options = stock_options(decoding_args, limit, word_ids(tokenizer, decoding_args.not_predict))
    model.generation_config.update(**options)


def write_predictions(file: Path, split: Split, texts: list[str]) -> None:
    """Write one JSON object per example: its own id or its number from 0, source, prediction, references."""
    with open(file, "w", encoding="utf-8", newline="\n") as lines:
        for example, text in zip(split.examples, texts, strict=True):
            row: dict[str, Any] = {"id": example.id, "source": example.source}
            if example.source_pair is not None:
                row["source_pair"] = example.source_pair
            row |= {"prediction": text, **({"references": list(example.targets)} if example.targets else {})}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_card(
    trainer: PtmSeq2SeqTrainer,
    folder: Path,
    model_args: Seq2SeqModelArguments,
    data_args: Seq2SeqDataArguments,
    objective_args: Seq2SeqObjectiveArguments,
    decoding_args: DecodingArguments,
    splits: dict[str, Split],
    results: dict[str, Any],
) -> None:
    """Write the model card of the run."""
    args, config = trainer.args, trainer.model.config
    scored = [name for name in EVALUATED if name in splits and all(splits[name].references)]
    common = {
        f"{name} rows that are in the training data": f"{rows:.0f} of {len(splits[name].examples)}"
        for name in scored
        if (rows := results.get(f"{EVALUATED[name]}_rows_in_training_data"))
    }
    own = not config.is_encoder_decoder
    training: dict[str, Any] = {
        "epochs": round(trainer.state.epoch or 0.0, 4),
        "updates": trainer.state.global_step,
        "batch": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "learning_rate": args.learning_rate,
        "label_smoothing": config.label_smoothing
        if hasattr(config, "label_smoothing")
        else args.label_smoothing_factor,
        "seed": args.seed,
    }
    if own:
        training |= {"mask_prob": objective_args.mlm_probability, "max_pred": objective_args.max_predictions}
    shown = ("search", "num_beams", "length_penalty", "no_repeat_ngram_size", "min_new_tokens", "max_new_tokens")
    training |= {f"decoding: {name}": value for name in shown if (value := getattr(decoding_args, name))}
    if "metric_signature" in results:
        training["metric"] = results["metric_signature"]
    if data_args.source_lang is not None:
        training["languages"] = f"{data_args.source_lang} to {data_args.target_lang}"
    write_model_card(
        folder,
        family=config.model_type,
        metrics=card_scores(results, ("eval_", "test_")),
        baselines=card_scores(results, ("baseline_eval_", "baseline_test_")),
        training=training,
        data={**describe_data(data_args, splits), **notes_of_data(results), **common},
        scored=(", ".join(data_name(data_args, name) for name in scored), " and ".join(scored)) if scored else None,
        language=data_args.language or "und",
        license=model_args.license or "unknown",
        base_model=model_args.model_name_or_path,
        repo_id=trainer.hub_model_id or f"your-name/{folder.name}",
        title=folder.name,
        template="seq2seq",
        pipeline_tag=data_args.task,
        description="Fine-tuned by hf-ptm-ext on pairs of source and target texts.",
    )


def card_scores(results: dict[str, Any], prefixes: tuple[str, ...]) -> dict[str, float]:
    """Metrics of texts, named by split."""
    found = {}
    for prefix in prefixes:
        split = "validation" if "eval" in prefix else "test"
        for name, value in results.items():
            score = name.removeprefix(prefix)
            if name.startswith(prefix) and score.startswith(("rouge", "bleu", "gen_len")):
                found[f"{split} {score}"] = value
    return found


def print_results(output: Path, results: dict[str, Any], length: int) -> None:
    """Print the scores beside those of the baseline."""
    rows = [
        (name, f"{value:.4f}", f"{results[f'baseline_{name}']:.4f}")
        for name, value in results.items()
        if f"baseline_{name}" in results
    ]
    if rows:
        print("\n" + text_table(("metric", "model", f"first {length} source tokens"), rows))
    print(f"\nSaved to {output}. Check that it loads anywhere: hf-ptm-ext verify {output}")
