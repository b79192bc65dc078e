"""The text jobs (pretrain, finetune-seq2seq): one run, or one a seed, from the checks before training to the push."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers import set_seed

from ..hub.model_card import check_card_fields
from ..objectives.token_losses import update_loss
from ..trainers import push_folder
from .checkpoint_names import check_names, load_tokenizer
from .console import is_first_process, phase
from .curves import CURVE, draw_curves, losses_of
from .families import takes
from .recipes import write_recipe
from .results import RESULTS, by_seeds, evidence, scores_among, summary, trained, write_card
from .runs import (
    ALL_RESULTS,
    ENDED,
    begin_run,
    choose_checkpoint,
    configure_logging,
    end_run,
    ended_run,
    own_folder,
    save_trained,
    write_json,
)
from .seeded import SeededJob, push_results
from .signature import signature_of
from .tables import print_table
from .training_summary import TrainingSummary

logger = logging.getLogger(__name__)

# A printed table: its title, its header, its rows, and the places of the best cells.
Table = tuple[str, Sequence[str], Sequence[Sequence[str]], Sequence[tuple[int, int]]]
# Shares of unknown tokens in the text.
UNKNOWN_WARNING, UNKNOWN_LIMIT = 0.05, 0.5


class TextJob(SeededJob):
    """A job on text; a subclass says what is read and trained, how it is measured and what is written of it.

    Args:
        groups: its dataclasses of arguments: of the model, of the data, others, of training.

    Without `seeds` it is one run, whose checkpoints stand in the output folder. Its attributes: `language` and
    `license`, of the card; `notes`, what the results say of the data; `processors`, what is saved beside the model;
    `found`, all that the last run has measured.
    """

    variants, evaluated = ("model",), ("scores",)
    processors: list[Any]
    found: dict[str, Any]

    def __init__(self, *groups: Any):
        super().__init__(*groups)
        self.model_args, self.data_args = groups[0], groups[1]
        self.language: str | list[str] = self.data_args.language or "und"
        self.license: str = self.model_args.license or "unknown"
        self.notes: dict[str, Any] = {}

    @property
    @abstractmethod
    def pipeline_tag(self) -> str:
        """The Hub's name of the task."""

    @abstractmethod
    def check(self) -> None:
        """Refuse what the named model cannot do, before anything is read."""

    @abstractmethod
    def read(self) -> None:
        """Read the data, and what the runs have in common."""

    @abstractmethod
    def build(self, variant: str, args: Any) -> tuple[Any, Any]:
        """The Trainer of a run, and `processors`."""

    def before(self, trainer: Any, checkpoint: str | None) -> dict[str, Any]:
        """What is measured before training."""
        return {}

    @abstractmethod
    def measure(self, trainer: Any) -> dict[str, Any]:
        """What is measured after training."""

    def write_beside(self, trainer: Any, folder: Path) -> None:
        """Write what comes with the model into its folder: its curves."""
        run = {"variant": "", "history": losses_of(trainer)}
        before, baselines = (
            {name.removeprefix(prefix): value for name, value in self.found.items() if name.startswith(prefix)}
            for prefix in ("before_", "baseline_")
        )
        draw_curves(folder / CURVE, [run], before, baselines)

    @abstractmethod
    def card(self, trainer: Any, results: dict[str, Any]) -> dict[str, Any]:
        """What the card says, see `write_card`."""

    @abstractmethod
    def table(self, scores: Mapping[str, Mapping[str, float]]) -> Table:
        """Means and spreads as they are printed."""

    # ---- a run ----

    def check_all(self) -> None:
        """Refuse what can be refused before anything is read."""
        check_card_fields(self.language, self.license, pipeline_tag=self.pipeline_tag)
        check_names(self.model_args)
        self.check()

    def train_and_score(self, trainer: Any, variant: str, checkpoint: str | None) -> dict[str, Any]:
        """All that is measured, the scores among it, and what the card says of the run."""
        self.found = self.before(trainer, checkpoint)
        with phase("training"):
            self.found |= trainer.train(resume_from_checkpoint=checkpoint).metrics
        self.found |= self.measure(trainer)
        card = {"family": trainer.saved_model.config.model_type, **self.card(trainer, self.found)}
        return {"scores": scores_among(self.found), "results": self.found, "card": card}

    def save(self, trainer: Any, processor: Any) -> None:
        save_trained(self.output, trainer, *self.processors, also=lambda folder: self.write_beside(trainer, folder))

    def write_card(self, run: Mapping[str, Any], card: Mapping[str, Any], **more: Any) -> None:
        """Write the card of a run."""
        common = {
            "notes": self.notes,
            "language": self.language,
            "license": self.license,
            "base_model": self.model_args.model_name_or_path,
            "pipeline_tag": self.pipeline_tag,
        }
        write_card(self.output, self.training_args, run, **{**common, **card, **more})

    def tell(self, table: Table) -> None:
        """Print the scores."""
        if table[2]:
            print_table(*table)
        print(f"\nSaved to {self.output}. Check that it loads anywhere: hf-ptm-ext verify {self.output}")

    # ---- one run ----

    def run(self) -> dict[str, Any]:
        """Train and measure; save a folder that loads without the package, with its card and all metrics."""
        if self.training_args.seeds is not None:
            return super().run()
        with own_folder(self.output):
            configure_logging(self.training_args)
            return self._run_once(self.training_args)

    def _run_once(self, args: Any) -> dict[str, Any]:
        self.check_all()
        checkpoint = choose_checkpoint(args)
        with phase("reading what decides the result"):
            signature = signature_of(*self.groups)
        if checkpoint == ENDED:
            results = ended_run(args, signature)
            if args.push_to_hub and is_first_process():
                push_folder(self.output, args, "End of training")
            return results
        self.read()
        set_seed(args.seed)
        trainer, processor = self.build(self.variants[0], args)
        trainer.add_callback(TrainingSummary(trainer, self.why_attention))
        begin_run(trainer, checkpoint, signature)
        run = {"variant": self.variants[0], **self.train_and_score(trainer, self.variants[0], checkpoint)}
        with phase("saving"):
            self.save(trainer, processor)
        if trainer.is_world_process_zero():
            repository = {} if trainer.hub_model_id is None else {"repo_id": trainer.hub_model_id}
            self.write_card(trained(trainer), run["card"], **repository)
            write_recipe(self.output, args)
            trainer.save_metrics("all", self.found)
            trainer.save_state()
            self.tell(self.table(summary([run], "scores")[run["variant"]]))
        trainer.accelerator.wait_for_everyone()
        end_run(trainer)
        if args.push_to_hub:
            with phase("pushing"):
                trainer.push_to_hub()
        return self.found

    # ---- by seeds ----

    def prepare(self) -> None:
        self.check_all()
        data = self.data_args
        if self.training_args.grid and not (data.validation_file or getattr(data, "validation_split", None)):
            raise ValueError(
                f"`grid` = {self.training_args.grid} chooses by validation data: name them by `validation_file`."
            )
        self.read()

    def merit(self, run: dict[str, Any], variant: str) -> float:
        """The mean of the scores of written texts, or less the loss."""
        found = run["scores"]
        written = [value for name, value in found.items() if name.startswith(("eval_rouge", "eval_bleu"))]
        return sum(written) / len(written) if written else -found["eval_loss"]

    def signature(self) -> dict[str, Any]:
        """The arguments, with the files that they name by content."""
        return signature_of(*self.groups[:-1], by_seeds=True)

    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What `results.json` says: scores of the runs, how long they trained, means, the data."""
        self.kept = runs[0]
        left_out = ("history", "scores", "results", "card")
        return {
            "runs": [{name: run[name] for name in ("seed", "variant", "scores")} for run in runs],
            "trained": [{name: run[name] for name in run if name not in left_out} for run in runs],
            "summary": summary(runs, "scores"),
            **({"data": self.notes} if self.notes else {}),
        }

    def drawn(self, runs: Sequence[dict[str, Any]]) -> dict[Path, Sequence[dict[str, Any]]]:
        """Nothing: the curve of the first run was saved with its model."""
        return {}

    def finish(self, results: dict[str, Any]) -> None:
        """Write the scores by seed, those of the kept model and its card, print them, push the folder if asked."""
        seeds = self.training_args.seeds
        if is_first_process():
            title, header, rows, best = self.table(results["summary"][self.variants[0]])
            title = f"{title}, {by_seeds(len(seeds))}"
            write_json(self.output / RESULTS, results)
            write_json(self.output / ALL_RESULTS, self.kept["results"])
            run, card = {"seeds": seeds, **results["trained"][0]}, self.kept["card"]
            told = evidence(card["description"], f"{title}." if rows else "Nothing was scored.", header[1:], rows)
            self.write_card(run, card, description=told)
            self.tell((title, header, rows, best))
        push_results(self.output, self.training_args)

    # ---- tokenizer ----

    def choose_tokenizer(self, train: Callable[[], Any]) -> Any:
        """The named tokenizer, the checkpoint's, or a trained one."""
        model, data = self.model_args, self.data_args
        if not data.train_tokenizer and (model.tokenizer_name or model.model_name_or_path) is not None:
            return load_tokenizer(model)
        if model.model_name_or_path is not None and model.old_tokenizer is None:
            raise ValueError(
                "`train_tokenizer` makes a new vocabulary, which the embeddings of `model_name_or_path` = "
                f"{model.model_name_or_path} do not fit. Leave it out, or start from a config."
            )
        return train()


def check_known(unknown: float, which: str = "", trained: bool = False) -> None:
    """Refuse text of which the tokenizer knows too little; `unknown` is the share of tokens that it does not know.

    `trained`: the tokenizer was made of this very text.
    """
    advice = "Name one that fits with `tokenizer_name`, or start from a config to train one."
    if trained:
        advice = (
            "More text and a larger `vocab_size` know more of them. A vocabulary of whole words needs blanks between "
            "words: cut Chinese text into words first (jieba)."
        )
    if unknown > UNKNOWN_LIMIT:
        raise ValueError(f"The tokenizer knows {100 * (1 - unknown):.0f} % of the {which}text only. {advice}")
    if unknown > UNKNOWN_WARNING:
        logger.warning("%.0f %% of the %stokens are unknown to the tokenizer. %s", 100 * unknown, which, advice)


def exact_loss(model: Any, label_smoothing: float = 0.0) -> Any:
    """The loss of a Trainer: `None`, the model's own, if that is exact over the micro-batches of an update."""
    if not label_smoothing and takes(model, "num_items_in_batch"):
        return None
    # Upstream's classes return the mean of a micro-batch, which is wrong as soon as there are several.
    return partial(update_loss, label_smoothing=label_smoothing)
