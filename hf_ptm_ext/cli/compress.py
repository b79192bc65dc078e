"""`hf-ptm-ext compress`: fine-tune and compress an encoder, by seeds, beside the same one uncompressed."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig

from .arguments import CheckpointArguments, SeededArguments, TaskDataArguments, parse_seeded
from .console import phase
from .finetune import EncoderJob
from .options import option
from .ranges import Below1, Bits, Count, Share, Size
from .results import print_results
from .runs import written_aside

METHODS = ("prune", "prune-after", "quantise", "quantise-after", "quantise-groups", "layers", "layers-after")
PRUNE, PRUNE_AFTER, QUANTISE, AFTERWARDS, GROUPED, LAYERS, LAYERS_AFTER = METHODS
OF_WHOLE_NUMBERS = (QUANTISE, AFTERWARDS, GROUPED)
UNCOMPRESSED = "uncompressed"
OF_ONE_TRAINING = (PRUNE_AFTER, AFTERWARDS, LAYERS_AFTER, UNCOMPRESSED)  # which serves all of them
BATCHES = (1, 32)
COSTS = ("megabytes", "zeros", *(f"{kind}_{rows}" for rows in BATCHES for kind in ("ms", "speed")))


@dataclass
class CompressionArguments:
    """How the encoder is compressed."""

    methods: list[str] = option(
        [QUANTISE],
        "Each trained with each seed; the first one is saved. prune: magnitude pruning. quantise: Q8BERT, whole "
        "numbers. quantise-groups: Q-BERT, few bits. layers: LayerDrop, then fewer layers. -after: without training "
        "for it.",
        choices=METHODS,
    )
    sparsity: list[Below1] = option(
        [0.5], "prune: share of zeros in each matrix, or in all of them together; several are compared."
    )
    scope: str = option("matrix", "prune: where the share is.", choices=("matrix", "global"))
    schedule: str = option(
        "cubic", "prune: how the share grows while it trains.", choices=("cubic", "linear", "stepwise", "constant")
    )
    prune_end: Share = option(0.5, "prune: share of the updates after which all zeros are there.")
    ema_decay: Below1 = option(0.99, "quantise: of the moving average of ranges (reference: 0.9999, for long runs).")
    start_step: Count = option(0, "quantise: forward passes of training before it begins.")
    requantize_output: bool = option(False, "quantise: round what projections give, too.")
    calibration_rows: Size = option(128, "quantise-after: training rows by which ranges are found.")
    bits: Bits = option(4, "quantise-groups: bits of the weights, 2 to 8.")
    embedding_bits: Bits = option(8, "quantise-groups: bits of tables of embeddings, 2 to 8.")
    groups: Size = option(128, "quantise-groups: groups of output neurons of each matrix (paper: 128).")
    layer_keep: str = option("every-other", "layers: every-other, how many, or numbers from 0 such as 0,2,5.")
    layer_drop: list[Below1] = option(
        [0.5], "layers: chance of each layer to be left out (paper: 0.2; 0.5 to keep half); several are compared."
    )
    baseline: bool = option(True, "Train the encoder uncompressed beside them.")
    repeats: Size = option(7, "Alternated repeats whose median time is reported.")

    def check(self, training: Any) -> None:
        """Refuse methods and shares that are named twice, and none."""
        for name, known in (("methods", METHODS), ("sparsity", ()), ("layer_drop", ())):
            given = getattr(self, name)
            if len(set(given)) != len(given) or not given:
                ones = f"different ones of {', '.join(known)}" if known else "one share or several different ones"
                raise ValueError(f"`{name}` must be {ones}, got {given}.")

    def variants(self) -> dict[str, tuple[str, float]]:
        """Name -> method and its share, of every share of every method."""
        shares = {PRUNE: self.sparsity, PRUNE_AFTER: self.sparsity, LAYERS: self.layer_drop}
        found = {}
        for method in self.methods:
            given = shares.get(method, [0.0])
            for share in given:
                found[method if len(given) == 1 else f"{method} {share}"] = (method, share)
        return {**found, UNCOMPRESSED: (UNCOMPRESSED, 0.0)} if self.baseline else found


@dataclass
class CompressArguments(SeededArguments):
    """Arguments of training, as of `finetune`."""

    output_dir: str = option("outputs/compressed", "Where results and the compressed model go.")
    num_train_epochs: float = option(5.0, "Passes over the data.")


GROUPS = (CheckpointArguments, TaskDataArguments, CompressionArguments, CompressArguments)


def parse(arguments: list[str]) -> tuple[Any, ...]:
    """Read the options."""
    return parse_seeded(arguments, GROUPS, "compress")


def run(arguments: list[str]) -> int:
    """Run the job."""
    Compress(*parse(arguments)).run()
    return 0


class Compress(EncoderJob):
    """Fine-tuning with compression; the first method's model is saved."""

    def __init__(self, model_args: Any, data_args: Any, how: CompressionArguments, training_args: Any):
        super().__init__(model_args, data_args, how, training_args)
        self.how, self.plans = how, how.variants()
        self.variants = tuple(self.plans)
        self.costs: dict[str, float] = {}
        # Of variants that another's training served, the Trainer's state and scores.
        self.found: dict[tuple[Any, ...], tuple[Any, dict[str, Any]]] = {}

    def look(self) -> None:
        """Refuse layers that the checkpoint has not before anything is trained."""
        from ..compression import keep_layers

        if {LAYERS, LAYERS_AFTER} & set(self.how.methods):
            keep_layers(self.encoder.model(), self.how.layer_keep)

    def model(self, variant: str, args: Any) -> Any:
        """The checkpoint with a head, ready to feel its quantisation if asked."""
        from ..compression import prepare_fake_quant

        model, how = super().model(variant, args), self.how
        if (method := self.plans[variant][0]) in (QUANTISE, GROUPED):
            more: dict[str, Any] = {"start_step": how.start_step, "requantize_output": how.requantize_output}
            if method == GROUPED:
                more |= {"bits": how.bits, "embedding_bits": how.embedding_bits, "groups": how.groups}
            prepare_fake_quant(model, ema_decay=how.ema_decay, **more)
        return model

    def trainer(self, model: Any, variant: str, args: Any) -> Any:
        """The Trainer of a run, with what compresses while it trains."""
        from ..compression import LayerDropCallback, PruningCallback
        from ..compression.fake_quant import QuantisationBegins

        how, more = self.how, dict[str, Any]()
        method, share = self.plans[variant]
        if method == PRUNE:
            more["callbacks"] = [PruningCallback(share, how.scope, how.schedule, end=how.prune_end)]
        elif method == LAYERS:
            more["callbacks"] = [LayerDropCallback(share)]
        elif method in (QUANTISE, GROUPED):
            more["callbacks"] = [QuantisationBegins(how.start_step)]
        return self.plain_trainer(model, variant, args, **more)

    def train_and_score(self, trainer: Any, variant: str, checkpoint: str | None) -> dict[str, Any]:
        """Train, compress, and score what comes out, with every other variant that differs behind its training."""
        of_run = (trainer.args.seed, *(getattr(trainer.args, name) for name in self.training_args.points[0]))
        if (variant, *of_run) in self.found and not self.is_kept(trainer, variant):
            trainer.state, found = self.found[variant, *of_run]
            return found
        with phase("training"):
            trainer.train(resume_from_checkpoint=checkpoint)
        model = trainer.saved_model.to("cpu").eval()
        alike = [one for one, (method, _) in self.plans.items() if method in OF_ONE_TRAINING]
        for one in alike if variant in alike and not trainer.is_fsdp_enabled else []:
            if one != variant and not self.is_kept(trainer, one):
                found = self.compressed_scores(trainer, copy.deepcopy(model), one)
                self.found[one, *of_run] = (copy.deepcopy(trainer.state), found)
        return self.compressed_scores(trainer, model, variant)

    def compressed_scores(self, trainer: Any, model: Any, variant: str) -> dict[str, Any]:
        """Compress a trained model, and score it."""
        with phase("compressing"):
            compressed = self.compressed(model, variant)
            trainer.model = trainer.model_wrapped = compressed.to(trainer.args.device)
        found = {split: self.score(trainer, variant, split) for split in self.evaluated}
        return {split: {**scores, **self.costs} for split, scores in found.items()}

    def compressed(self, model: Any, variant: str) -> Any:
        """What a trained model becomes, with its `costs` measured."""
        from ..compression import calibrate, keep_layers, prepare_fake_quant, prune_model, to_int8

        method, share = self.plans[variant]
        if method == PRUNE_AFTER:
            prune_model(model, share, self.how.scope)
        elif method in (LAYERS, LAYERS_AFTER):
            model = keep_layers(model, self.how.layer_keep)
        elif method == AFTERWARDS:
            model = prepare_fake_quant(model, ema_decay=0.9, requantize_output=self.how.requantize_output)
            calibrate(model, self.batches(32, self.how.calibration_rows))
        if method in OF_WHOLE_NUMBERS:
            model = to_int8(model)
        with phase("measuring size and speed"):
            self.costs = self.measured(model)
        return model

    def batches(self, rows: int, most: int) -> list[dict[str, Any]]:
        """Training rows as the model takes them, without labels."""
        found, collator = list(self.splits.rows("train").inputs[:most]), self.task.collator(self.tokenizer)
        made = [collator(found[first : first + rows]) for first in range(0, len(found), rows)]
        return [{name: value for name, value in batch.items() if name != "labels"} for batch in made]

    def measured(self, model: Any) -> dict[str, float]:
        """The numbers of `COSTS`; speed is that of the uncompressed model, timed in turns."""
        from ..compression import sparsity_report
        from ..compression.costs import alternated, file_bytes

        found = {"megabytes": file_bytes(model) / 2**20, "zeros": 0.0}
        matrices = any(isinstance(one, torch.nn.Linear) for one in model.modules())
        found["zeros"] = sparsity_report(model)["total"]["sparsity"] if matrices else 0.0
        plain = self.encoder.model().eval()
        for rows in BATCHES:
            taken = self.batches(rows, rows)[0]
            seconds = alternated({"ours": model, "plain": plain}, taken, self.how.repeats)
            found |= {f"ms_{rows}": 1e3 * seconds["ours"], f"speed_{rows}": seconds["plain"] / seconds["ours"]}
        return found

    def save(self, trainer: Any, processor: Any) -> None:
        """Save the compressed model."""
        if self.how.methods[0] not in OF_WHOLE_NUMBERS:
            super().save(trainer, processor)
        elif trainer.is_world_process_zero():
            from ..compression import save_int8

            with written_aside(self.output) as partial:
                save_int8(trainer.model.to("cpu"), partial, overwrite=True)
                processor.save_pretrained(partial)

    def introduction(self) -> str:
        how, (method, share) = self.how, self.plans[self.variants[0]]
        said = {
            PRUNE: f"pruned to {share:.0%} zeros ({how.scope}, {how.schedule})",
            PRUNE_AFTER: f"pruned to {share:.0%} zeros after training ({how.scope})",
            QUANTISE: "trained to compute with whole numbers (Q8BERT)",
            AFTERWARDS: "computing with whole numbers (quantised after training)",
            GROUPED: f"trained for weights of {how.bits} bits in groups (Q-BERT)",
            LAYERS: f"trained with LayerDrop and cut to fewer layers ({how.layer_keep})",
            LAYERS_AFTER: f"cut to fewer layers after training ({how.layer_keep})",
        }
        return f"Fine-tuned for {self.task.kind}, {said[method]}."

    def card(self, results: dict[str, Any]) -> dict[str, Any]:
        config = AutoConfig.from_pretrained(self.model_args.model_name_or_path, **self.model_args.source)
        spent = {
            row[0]: f"{row[1]} MB, {row[-1]} times the uncompressed speed at {BATCHES[-1]} rows on a CPU"
            for row in cost_rows(results)
        }
        return {**super().card(results), "training": spent, "family": config.model_type, "page": "how-to/compress"}

    def print(self, results: dict[str, Any]) -> None:
        """Print the scores, sizes and times."""
        names = (
            "MB",
            "zeros",
            *(name for rows in BATCHES for name in (f"ms, {rows} row{'s' * (rows > 1)}", "times as fast")),
        )
        print_results(results, self.task.shown, self.output, costs=(names, cost_rows(results)))


def cost_rows(results: dict[str, Any]) -> list[list[str]]:
    """Size and time of each variant, means over seeds."""
    rows = []
    for variant, scores in results["summary"].items():
        if COSTS[0] not in scores:  # a linear model's
            continue
        size, zeros, *times = [scores[name]["mean"] for name in COSTS]
        cells = [f"{one:.1f}" if place % 2 == 0 else f"{one:.2f}" for place, one in enumerate(times)]
        rows.append([variant, f"{size:.1f}", f"{100 * zeros:.0f} %", *cells])
    return rows
