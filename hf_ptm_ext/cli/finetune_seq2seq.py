"""`hf-ptm-ext finetune-seq2seq`: summarise, translate, ask questions, with UniLM or any encoder-decoder."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..conversion.unilm_tokenizer import unilm_tokenizer
from ..data.bad_rows import BadRows
from ..trainers import PtmSeq2SeqTrainer
from .arguments import check_best, data_name, hub_data
from .console import phase
from .evaluation import TEST, TRAIN, VALIDATION, common_rows
from .results import percent, write_lines
from .seq2seq_arguments import parse
from .seq2seq_data import Split, read_split, tokenize, trained_tokenizer
from .seq2seq_generation import GenerationMetrics, build_decoding, mean_target_length, stock_options, word_ids
from .seq2seq_models import UNILM, build_collators, build_model, check_model, set_languages, set_target_language
from .shapes import drop_short_batch
from .tables import highest
from .text_job import Table, TextJob, exact_loss

logger = logging.getLogger(__name__)

# split -> prefix of its metrics
EVALUATED = {VALIDATION: "eval", TEST: "test"}


def run(arguments: list[str]) -> int:
    """Run the job."""
    FinetuneSeq2Seq(*parse(arguments)).run()
    return 0


class FinetuneSeq2Seq(TextJob):
    """Fine-tuning on pairs of texts: what is written for validation and test data is scored beside copied sources."""

    splits: dict[str, Split]
    metrics: GenerationMetrics | None = None  # where texts are generated

    def __init__(self, model_args: Any, data_args: Any, options: Any, decoding_args: Any, training_args: Any):
        super().__init__(model_args, data_args, options, decoding_args, training_args)
        self.options, self.decoding_args = options, decoding_args
        self.texts: dict[str, list[str]] = {}  # what is written, by split

    @property
    def pipeline_tag(self) -> str:
        """The Hub's name of the task."""
        return self.data_args.task

    def check(self) -> None:
        """Refuse what the model cannot do; what it is fed beside the text."""
        self.inputs = check_model(self.model_args, self.data_args, self.decoding_args)

    def read(self) -> None:
        """Read and tokenise the splits."""
        data, args = self.data_args, self.training_args
        with phase("reading the data"):
            examples = self.examples()
        self.tokenizer = tokenizer = self.choose_tokenizer(lambda: trained_tokenizer(data, examples[TRAIN]))
        set_languages(tokenizer, data, self.inputs)
        if args.predict_with_generate:
            self.metrics = self.generation_metrics(tokenizer, examples)
        check_best(args, ("loss", *(self.metrics.produced if self.metrics is not None else ())))
        with phase("tokenizing"):
            self.splits = {
                name: tokenize(data, found, tokenizer, name, self.inputs) for name, found in examples.items()
            }
            self.length = mean_target_length(self.splits[TRAIN], tokenizer)
        if args.grid and not self.splits["validation"].scored:
            raise ValueError(f"`grid` = {args.grid} chooses by validation data, and these have no targets.")
        if not EVALUATED.keys() & self.splits:
            logger.warning("Nothing is evaluated: name `validation_file` or `test_file` for that.")

    def build(self, variant: str, args: Any) -> tuple[Any, Any]:
        data, tokenizer = self.data_args, self.tokenizer
        args.remove_unused_columns = False  # the collator needs columns that no forward names
        drop_short_batch(args, self.splits[TRAIN].rows)
        with phase("building the model"):
            model = build_model(self.model_args, data, tokenizer)
        set_target_language(model, tokenizer, self.inputs)
        if model.config.model_type == UNILM:
            tokenizer = unilm_tokenizer(tokenizer)  # saved with the model, so that it pads for generation there too
        self.processors = [tokenizer]
        collator, eval_collator = build_collators(data, self.options, tokenizer, model, args)
        validation = self.splits.get(VALIDATION)
        if validation is not None and self.metrics is not None:
            self.metrics.references = validation.references
        trainer = PtmSeq2SeqTrainer(
            model=model,
            args=args,
            train_dataset=self.splits[TRAIN].rows,
            eval_dataset=None if validation is None else validation.rows,
            data_collator=collator,
            eval_collator=eval_collator,
            decoding=build_decoding(self.decoding_args, tokenizer, data.max_target_length),
            processing_class=tokenizer,
            compute_metrics=self.metrics,
            compute_loss_func=smooth_once(model, args),
        )
        return trainer, tokenizer

    def examples(self) -> dict[str, list[Any]]:
        """The examples of each split that is named, those that are in the training data too counted."""
        data = self.data_args
        with BadRows(data.on_bad_rows) as bad:
            read = {name: read_split(data, name, bad) for name in (TRAIN, *EVALUATED)}
        examples = {name: found for name, found in read.items() if found is not None}
        self.notes = bad.results()
        texts = {name: [f"{one.source}\n{one.source_pair or ''}" for one in found] for name, found in examples.items()}
        for name in [one for one in EVALUATED if one in examples]:
            scored = all(one.targets for one in examples[name])
            note, losing, out = common_rows(texts, name, data.drop_overlap, scored)
            if note:
                self.notes.setdefault("in_training_data", {})[name] = note
            if losing is not None:
                examples[losing] = [one for one, gone in zip(examples[losing], out, strict=True) if not gone]
        return examples

    def generation_metrics(self, tokenizer: Any, examples: dict[str, list[Any]]) -> GenerationMetrics:
        """The metrics; a missing library is a mistake of the installation, with a message of its own."""
        texts = [text for found in examples.values() for example in found for text in example.targets]
        try:
            return GenerationMetrics(self.decoding_args, tokenizer, texts)
        except ImportError as error:
            raise ValueError(f"`metric` = {self.decoding_args.metric}: {error}") from error

    # ---- measurements ----

    def measure(self, trainer: Any) -> dict[str, Any]:
        """Metrics of each split, and those of copying the first source tokens; how it is measured, and the data."""
        results = dict(self.notes)
        for name, note in self.notes.get("in_training_data", {}).items():
            results[f"{EVALUATED[name]}_rows_in_training_data"] = note["rows"]
        for name, prefix in EVALUATED.items():
            if name in self.splits:
                results |= self.evaluate(trainer, name, prefix)
        if self.texts and self.metrics is not None:
            results |= {"metric_signature": self.metrics.signature, "metric_lost_letters": self.metrics.lost_letters}
        # The Trainer switches the cache off for training, and the config would say so for ever.
        trainer.saved_model.config.use_cache = True
        self.keep_decoding(trainer.saved_model)
        return results

    def evaluate(self, trainer: Any, name: str, prefix: str) -> dict[str, float]:
        """Predict a split; its metrics, and those of copying the first source tokens, if it has targets."""
        split, metrics = self.splits[name], self.metrics
        trainer.compute_metrics = metrics if split.scored else None
        if metrics is not None:
            metrics.references = split.references
        with phase(f"predicting {name}"):
            output: Any = trainer.predict(split.rows, metric_key_prefix=prefix)
        found = dict(output.metrics) if split.scored else {}
        if metrics is not None:
            texts = self.texts[name] = metrics.decode_padded(output.predictions)
            if empty := texts.count(""):
                logger.warning("%d of %d %s predictions are empty.", empty, len(texts), name)
        if metrics is not None and split.scored:
            with phase("measuring the simple guess"):
                scores = metrics.scores(metrics.copied_beginnings(split, self.length))
            found |= {f"baseline_{prefix}_{score}": value for score, value in scores.items()}
        return found

    def keep_decoding(self, model: Any) -> None:
        """Let the saved model decode as it was evaluated, as far as its `generation_config` has words for it."""
        decoding = self.decoding_args
        limit = decoding.max_new_tokens or self.data_args.max_target_length
        options: dict[str, Any] = {"max_new_tokens": limit}
        if decoding.search != UNILM:
            options = stock_options(decoding, limit, word_ids(self.processors[0], decoding.not_predict))
        model.generation_config.update(**options)

    # ---- what is written ----

    def write_beside(self, trainer: Any, folder: Path) -> None:
        """Write one JSON object per example: its own id or its number from 0, source, prediction, references."""
        super().write_beside(trainer, folder)
        for name, predictions in self.texts.items():
            rows: list[dict[str, Any]] = []
            for example, text in zip(self.splits[name].examples, predictions, strict=True):
                row: dict[str, Any] = {"id": example.id, "source": example.source}
                if example.source_pair is not None:
                    row["source_pair"] = example.source_pair
                rows.append(row | {"prediction": text} | ({"references": example.targets} if example.targets else {}))
            write_lines(folder / f"predictions_{name}.jsonl", rows)

    def card(self, trainer: Any, results: dict[str, Any]) -> dict[str, Any]:
        """What the card says."""
        data, decoding, config = self.data_args, self.decoding_args, trainer.saved_model.config
        scored = [name for name in EVALUATED if name in self.splits and self.splits[name].scored]
        smoothing = getattr(config, "label_smoothing", self.training_args.label_smoothing_factor)
        training: dict[str, Any] = {"label_smoothing": smoothing, "seed": trainer.args.seed}
        if not config.is_encoder_decoder:
            training |= {"mask_prob": self.options.mlm_probability, "max_pred": self.options.max_predictions}
        shown = ("search", "num_beams", "length_penalty", "no_repeat_ngram_size", "min_new_tokens", "max_new_tokens")
        training |= {f"decoding: {name}": value for name in shown if (value := getattr(decoding, name))}
        if "metric_signature" in results:
            training["metric"] = results["metric_signature"]
        if data.source_lang is not None:
            training["languages"] = f"{data.source_lang} to {data.target_lang}"
        return {
            "metrics": card_scores(results, ""),
            "baselines": card_scores(results, "baseline_"),
            "training": training,
            "data": {
                "name": data_name(data),
                "license": data.data_license or "not stated",
                **hub_data(data),
                **{f"{name}_rows": len(split.examples) for name, split in self.splits.items()},
                "max_source_length": data.max_source_length,
                "max_target_length": data.max_target_length,
            },
            "scored": (", ".join(data_name(data, name) for name in scored), " and ".join(scored)) if scored else None,
            "template": "seq2seq",
            "page": "how-to/pairs_of_texts",
            "description": "Fine-tuned by hf-ptm-ext on pairs of source and target texts.",
        }

    def table(self, scores: Mapping[str, Mapping[str, float]]) -> Table:
        """The scores beside those of the baseline."""
        pairs = {
            name: (score, scores[f"baseline_{name}"]) for name, score in scores.items() if f"baseline_{name}" in scores
        }
        rows = [(name, *(percent(one, 1, 4) for one in both)) for name, both in pairs.items()]
        best = [
            (row, 1 + place)
            for row, both in enumerate(pairs.values())
            for place in highest([one["mean"] for one in both])
        ]
        header = ("metric", "model", f"first {self.length} source tokens")
        return "What is written, beside copies of the sources", header, rows, best


def smooth_once(model: Any, training_args: Any) -> Any:
    """The loss of a Trainer; label smoothing happens in exactly one place, the model if it has its own."""
    factor = training_args.label_smoothing_factor
    if not hasattr(model.config, "label_smoothing"):
        return exact_loss(model, factor)
    model.config.label_smoothing = factor
    training_args.label_smoothing_factor = 0.0
    return None


def card_scores(results: dict[str, Any], prefix: str) -> dict[str, float]:
    """Metrics of texts, named by split."""
    found = {}
    for split, short in EVALUATED.items():
        for name, value in results.items():
            score = name.removeprefix(f"{prefix}{short}_")
            if score != name and score.startswith(("rouge", "bleu", "gen_len")):
                found[f"{split} {score}"] = value
    return found
