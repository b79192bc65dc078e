"""`hf-ptm-ext pretrain`: continue the pre-training of a checkpoint, or start from a config, on real text."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from ..data.bad_rows import BadRows
from ..files import read_json
from ..trainers.collator_state import restore, state_of, stateful_parts
from ..weights import embedding_rows
from .arguments import check_best
from .attention import settle_attention
from .checkpoint_names import load_tokenizer
from .console import phase
from .extension import Extension
from .loading import check_positions
from .options import read_options
from .pretrain_arguments import GROUPS
from .pretrain_data import (
    EMBEDDED_LICENSES,
    build_rows,
    describe_data,
    read_documents,
    target_baseline,
)
from .pretraining import OBJECTIVES
from .pretraining.base import Objective
from .results import percent
from .shapes import drop_short_batch, settle_shapes
from .tables import highest
from .text_job import Table, TextJob, check_known, exact_loss

logger = logging.getLogger(__name__)

# Term of the loss -> what the printed table calls it.
TERMS = {
    "mlm": "masked tokens",
    "sbo": "span boundary",
    "nsp": "next sentence",
    "entity": "entities",
    "denoising": "restored text",
    "mass": "fragments",
    "word": "hidden words, each as a whole",
}


def parse(arguments: list[str]) -> tuple[Any, ...]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win."""
    model, data, options, training = read_options(arguments, GROUPS, "pretrain")
    data.check(model, training)
    OBJECTIVES[options.objective](model, data, options).check()
    return model, data, options, training


def run(arguments: list[str]) -> int:
    """Run the job."""
    Pretrain(*parse(arguments)).run()
    return 0


class Pretrain(TextJob):
    """Pre-training: measured on held-out text before and after, beside the majority token and the unigrams."""

    def __init__(self, model_args: Any, data_args: Any, options: Any, training_args: Any):
        super().__init__(model_args, data_args, options, training_args)
        self.objective: Objective = OBJECTIVES[options.objective](model_args, data_args, options)
        self.options = options
        self.extension: Extension | None = None
        self.language = data_args.language or options.languages or data_args.corpus or "und"
        inherited = EMBEDDED_LICENSES.get(data_args.corpus or "") if model_args.model_name_or_path is None else None
        self.license = model_args.license or inherited or "unknown"

    @property
    def pipeline_tag(self) -> str:
        """The Hub's name of the task."""
        return self.objective.pipeline_tag

    def check(self) -> None:
        """Refuse rows that a named encoder cannot take."""
        name = self.model_args.model_name_or_path
        if name is not None and not self.objective.denoises:
            check_positions(name, self.data_args, **self.model_args.source)

    def read(self) -> None:
        """Read the text, and what the objective needs beside it."""
        self.objective.options.check_files()
        with BadRows(self.data_args.on_bad_rows) as bad, phase("reading the text"):
            self.documents = read_documents(self.data_args)
        self.notes = {**bad.results(), **self.documents.notes}
        if self.data_args.transfer_vocabulary:
            self.model_args.old_tokenizer = load_tokenizer(replace(self.model_args, tokenizer_name=None))
        tokenizer = self.choose_tokenizer(self.train_tokenizer)
        if self.model_args.old_tokenizer is not None:
            new = tokenizer.get_vocab().keys() - self.model_args.old_tokenizer.get_vocab().keys()
            self.notes |= {"vocabulary": len(tokenizer), "new_tokens": len(new)}
            logger.info("%d of the %d tokens are new to the checkpoint.", len(new), len(tokenizer))
        if self.data_args.extend_vocabulary is not None:
            self.extension = Extension(tokenizer, self.documents, self.data_args)
            tokenizer, self.model_args.extension = self.extension.tokenizer, self.extension.found
            self.notes |= self.extension.notes()
        self.objective.prepare(tokenizer)
        self.processors = self.objective.processors

    def build(self, variant: str, args: Any) -> tuple[Any, Any]:
        objective = self.objective
        args.remove_unused_columns = False  # the collators need columns that no forward names
        with phase("tokenizing and packing"):
            self.rows = objective.own_rows(self.documents, args) or build_rows(
                objective, self.documents, args.seed, args.process_index, args.world_size
            )
        with phase("building the model"):
            model = objective.build()
        self.check_rows(args)
        packed = self.data_args.tokens_of_row if self.data_args.pack_rows else None
        self.why_attention = settle_attention(
            objective.model, self.model_args.attn_implementation, packed, args.device.type
        )
        collator = self.collator(args.seed)
        self.probe(collator)
        trainer = objective.trainer(
            model=model,
            args=args,
            train_dataset=self.rows.train,
            eval_dataset=self.rows.evaluation,
            data_collator=collator,
            eval_collator=self.collator(args.seed + 1),
            processing_class=objective.tokenizer,
            compute_loss_func=exact_loss(model),
        )
        return trainer, objective.tokenizer

    def train_tokenizer(self) -> Any:
        """A tokenizer of the documents, with what the objective adds to it."""
        with phase("training a tokenizer"):
            return self.objective.train_tokenizer(self.documents)

    def collator(self, seed: int) -> Any:
        """The objective's collator."""
        args = self.training_args
        collator = self.objective.collator(seed, self.rows.baseline.counts, bool(args.torch_compile))
        return settle_shapes(collator, args, self.data_args.tokens_of_row)

    def check_rows(self, args: Any) -> None:
        """Refuse text that the tokenizer does not know and settings that would never make an update."""
        train, unknown = self.rows.train, self.objective.tokenizer.unk_token_id
        if unknown is not None:
            counts = self.rows.baseline.counts
            model, data = self.model_args, self.data_args
            trained = data.train_tokenizer or (model.tokenizer_name or model.model_name_or_path) is None
            check_known(counts[unknown] / counts.sum(), "training ", bool(trained))
        drop_short_batch(args, train)

    def probe(self, collator: Any) -> None:
        """Mask a few rows before anything is written, so that a fault in data or options shows at once."""
        train = self.rows.train
        if not hasattr(train, "__len__"):
            return
        parts = stateful_parts(collator)
        state = state_of(parts)
        try:
            for rows in self.objective.alike([train[number] for number in range(min(8, len(train)))]):
                collator(rows)
        except ValueError as error:
            if self.options.segmenter is None and "word_ids" in str(error):
                raise ValueError(f"{error} In this job: `--segmenter jieba` (pip install hf-ptm-ext[zh]).") from error
            raise
        restore(parts, state)

    # ---- measurements ----

    def before(self, trainer: Any, checkpoint: str | None) -> dict[str, Any]:
        """Metrics of held-out text before training, and those of the majority token and of the unigrams."""
        if self.extension is not None and checkpoint is not None:
            self.extension.check_checkpoint(checkpoint)
        if self.rows.evaluation is None:
            logger.warning("No text is held out, so nothing is evaluated: name `validation_file` for that.")
            return {}
        metrics = metrics_before(trainer, checkpoint, self.extension)
        if metrics:
            terms = [name for name in metrics if name.startswith("before_") and not name.startswith("before_word_")]
            check_best(trainer.args, [name.removeprefix("before_") for name in terms])
        if self.objective.denoises:
            vocabulary = embedding_rows(trainer.saved_model)
            self.rows.baseline = target_baseline(self.collator(trainer.args.seed + 2), self.rows.train, vocabulary)
        with phase("measuring the simple guesses"):
            return metrics | self.objective.baselines(trainer, self.rows)

    def measure(self, trainer: Any) -> dict[str, Any]:
        """Metrics of held-out text, and what was noted of the data."""
        if self.rows.evaluation is None:
            return self.notes
        with phase("evaluating"):
            words = {} if self.extension is None else self.extension.scores(trainer, "eval")
            return trainer.evaluate() | words | self.notes

    # ---- what is written ----

    def card(self, trainer: Any, results: dict[str, Any]) -> dict[str, Any]:
        """What the card says."""
        data = self.data_args
        evaluated = ", ".join(Path(file).name for file in data.validation_file or ())
        return {
            "metrics": scores(results, "eval_"),
            "initial_metrics": scores(results, "before_"),
            "before": f"before training{self.origin_of_head(trainer.saved_model)}",
            "baselines": scores(results, "baseline_"),
            "scored": (evaluated, "validation") if evaluated else None,
            "training": {
                "objective": self.objective.name,
                "mlm_probability": self.options.mlm_probability,
                "max_seq_length": data.max_seq_length,
                "packed rows": data.pack_rows and f"of {data.tokens_of_row}",
                "seed": trainer.args.seed,
            },
            "data": describe_data(data, self.rows),
            "template": self.objective.template,
            "values": {"head": self.objective.head},
            "page": "how-to/denoising" if self.objective.denoises else "how-to/pretrain",
            "description": self.objective.description,
        }

    def origin_of_head(self, model: Any) -> str:
        """What a card says of the head that was measured before training, if it had not been trained for this."""
        name = self.model_args.model_name_or_path
        if name is None:
            return " (random weights)"
        if getattr(model, "untrained_head", ()):
            return " (a head that the checkpoint lacks, in part or as a whole)"
        config, _ = PreTrainedConfig.get_config_dict(name, revision=self.model_args.model_revision)
        before = (config.get("architectures") or [type(model).__name__])[0]
        return "" if before == type(model).__name__ else f" (head of {before})"

    def table(self, scores: Mapping[str, Mapping[str, float]]) -> Table:
        """Held-out loss and accuracy per term, before and after, beside the baselines."""
        rows: list[list[str]] = []
        best = []
        for term, name in (TERMS | dict(self.objective.terms)).items():
            if f"eval_{term}_loss" not in scores:
                continue
            found = [
                (scores.get(f"{when}_{term}_loss"), scores.get(f"{when}_{term}_accuracy", {"mean": 0.0}))
                for when in ("baseline", "before", "eval")
            ]
            losses = [None if loss is None else -loss["mean"] for loss, _ in found]
            best += [(len(rows), 1 + place) for place in highest(losses)]
            cells = ("-" if loss is None else f"{percent(loss, 1, 3)}  {percent(right):>4} %" for loss, right in found)
            rows.append([name, *cells])
        title = "Held-out text: cross entropy in nats and accuracy"
        return title, ["", "unigram, majority", "before", "after"], rows, best


def metrics_before(trainer: Any, checkpoint: str | None, extension: Extension | None) -> dict[str, float]:
    """Metrics before training: measured now and kept in the folder, or those of the run that is resumed."""
    kept = Path(trainer.args.output_dir) / "before_results.json"
    if checkpoint is None:
        with phase("evaluating before training"):
            metrics = trainer.evaluate(metric_key_prefix="before")
        if extension is not None:  # hidden words of the checkpoint as it was, and with its new pieces
            metrics |= extension.scores(trainer, "before", extension.before) | extension.scores(trainer, "extended")
        trainer.save_metrics("before", metrics, combined=False)
        return metrics
    return read_json(kept) if kept.is_file() else {}


def scores(metrics: dict[str, float], prefix: str) -> dict[str, float]:
    """The losses and accuracies under a prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in metrics.items()
        if name.startswith(prefix) and name.endswith(("_loss", "_accuracy"))
    }
