"""`hf-ptm-ext adapt`: train adapters on an encoder, by seeds, with other methods and full fine-tuning beside them."""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, TrainerCallback

from ..hub.adapter_card import write_adapter_card
from ..models.bottleneck_core import INIT_WEIGHTS
from ..trainers import ResumableTrainer
from .arguments import CheckpointArguments, SeededArguments, TaskDataArguments, parse_seeded
from .finetune import EncoderJob
from .options import option
from .ranges import Count, Positive, Size, Weight
from .results import print_results
from .runs import written_aside

FULL, LORA = "full", "lora"
ADAPTER, WHOLE = "adapter", "whole"
BOTTLENECKS = ("houlsby", "pfeiffer")
METHODS = (*BOTTLENECKS, LORA, FULL)
# End of a model's class -> PEFT's name of the task. PEFT's wrapper for question answering drops `token_type_ids`, so
# that task goes without a name: heads are found all the same.
TASK_TYPES = {"SequenceClassification": "SEQ_CLS", "TokenClassification": "TOKEN_CLS"}
COSTS = ("trained_parameters", "trained_share", "step_seconds", "peak_memory_mb")


@dataclass
class AdapterArguments:
    """Which parameters are trained."""

    methods: list[str] = option(
        ["houlsby", FULL],
        "Trained with each seed; the first one is saved, the others stand beside it. full: all weights.",
        choices=METHODS,
    )
    reduction_factor: Positive = option(16.0, "Hidden size over bottleneck (default 16).")
    bottleneck_size: Size | None = option(None, "Width of the bottleneck itself (paper: 64).")
    non_linearity: str | None = option(None, "Inside the bottleneck (default: gelu for houlsby, relu for pfeiffer).")
    init_weights: str = option("identity", "How adapters begin.", choices=INIT_WEIGHTS)
    leave_out: list[Count] = option([], "Layers without adapters, from 0.")
    train_layer_norms: bool | None = option(None, "Train the LayerNorms too (default: with houlsby, as in the paper).")
    lora_r: Size = option(8, "Rank of LoRA.")
    publish: str = option(
        ADAPTER,
        "adapter (small, needs its encoder), or whole: encoder and adapter in one checkpoint of the Auto classes.",
        choices=(ADAPTER, WHOLE),
    )
    full_learning_rate: Weight = option(3e-5, "Learning rate of full fine-tuning; the others take learning_rate.")

    def check(self, training: Any) -> None:
        """Refuse options of any method before the first one trains."""
        if len(set(self.methods)) != len(self.methods) or not self.methods:
            raise ValueError(f"`methods` must be different ones of {', '.join(METHODS)}, got {self.methods}.")
        if self.methods[0] == FULL:
            raise ValueError(
                "`methods` must begin with an adapter, which is saved: `hf-ptm-ext finetune` saves whole models; got "
                f"{self.methods}."
            )
        if training.layer_decay is not None:
            raise ValueError(
                f"`layer_decay` = {training.layer_decay} is for trained layers, and adapters are new: leave it out."
            )
        for method in self.methods:
            if method in BOTTLENECKS:
                self.config(method)

    def config(self, method: str, task_type: str | None = None) -> Any:
        """The configuration of a bottleneck."""
        from ..adapters import HoulsbyConfig, PfeifferConfig

        names = ("reduction_factor", "bottleneck_size", "init_weights", "leave_out", "non_linearity")
        given = {
            name: getattr(self, name) for name in (*names, "train_layer_norms") if getattr(self, name) is not None
        }
        return dict(zip(BOTTLENECKS, (HoulsbyConfig, PfeifferConfig), strict=True))[method](
            task_type=task_type, **given
        )


@dataclass
class AdaptArguments(SeededArguments):
    """Arguments of training, with those of google-research/adapter-bert where they are a matter of adapters."""

    output_dir: str = option("outputs/adapter", "Where results and the adapter go.")
    num_train_epochs: float = option(5.0, "Passes over the data (adapter-bert: 5).")
    learning_rate: float = option(3e-4, "Peak learning rate of adapters (3e-4).")


GROUPS = (CheckpointArguments, TaskDataArguments, AdapterArguments, AdaptArguments)


def parse(arguments: list[str]) -> tuple[Any, ...]:
    """Read the options."""
    return parse_seeded(arguments, GROUPS, "adapt")


def run(arguments: list[str]) -> int:
    """Run the job."""
    Adapt(*parse(arguments)).run()
    return 0


class Adapt(EncoderJob):
    """Training of adapters; the first method's is saved."""

    def __init__(self, model_args: Any, data_args: Any, adapter_args: AdapterArguments, training_args: Any):
        super().__init__(model_args, data_args, adapter_args, training_args)
        self.adapter_args, self.variants = adapter_args, tuple(adapter_args.methods)

    def model(self, variant: str, args: Any) -> Any:
        """A model in which a method's parameters are trained."""
        from peft import LoraConfig, get_peft_model

        from ..adapters.trained import new_parts

        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        model, task_type = super().model(variant, args), TASK_TYPES.get(self.task.head)
        if variant == FULL:
            return model
        if variant == LORA:
            rank, whole = self.adapter_args.lora_r, new_parts(model) or None
            config: Any = LoraConfig(r=rank, lora_alpha=2 * rank, task_type=task_type, modules_to_save=whole)
        else:
            config = self.adapter_args.config(variant, task_type)
        return get_peft_model(model, config)

    def at(self, point: dict[str, Any], variant: str) -> Any:
        """Full fine-tuning has a learning rate of its own, unless the grid tries some."""
        full = {"learning_rate": self.adapter_args.full_learning_rate} if variant == FULL else {}
        return super().at({**full, **point}, variant)

    def trainer(self, model: Any, variant: str, args: Any) -> Any:
        """The Trainer of a run, which measures what it costs."""
        from ..adapters import AdapterTrainer

        cls = ResumableTrainer if variant == FULL else AdapterTrainer
        return self.plain_trainer(model, variant, args, cls, callbacks=[Costs(model)])

    def score(self, trainer: Any, variant: str, split: str) -> dict[str, float]:
        """Scores and `COSTS`."""
        counter = next(one for one in trainer.callback_handler.callbacks if isinstance(one, Costs))
        spent = counter.measured()  # before the evaluation, which has a peak of its own
        return {**super().score(trainer, variant, split), **spent}

    def save(self, trainer: Any, processor: Any) -> None:
        """Save the adapter, or the encoder with it."""
        if self.adapter_args.publish == ADAPTER:
            super().save(trainer, processor)
        elif trainer.is_world_process_zero():
            from ..adapters import save_adapted

            with written_aside(self.output) as partial:
                save_adapted(trainer.saved_model, partial)
                processor.save_pretrained(partial)

    def introduction(self) -> str:
        whole = " with its encoder in one checkpoint" if self.adapter_args.publish == WHOLE else ""
        return f"A {self.variants[0]} adapter{whole}, trained for {self.task.kind}."

    def card(self, results: dict[str, Any]) -> dict[str, Any]:
        config = AutoConfig.from_pretrained(self.model_args.model_name_or_path, **self.model_args.source)
        spent = {
            row[0]: f"{row[1]} weights ({row[2]}), {row[4]} of the last one's step time" for row in cost_rows(results)
        }
        if FULL in spent:
            spent[FULL] += f", learning rate {self.at_best(FULL).learning_rate}"
        if self.adapter_args.publish == WHOLE:
            return {**super().card(results), "training": spent, "family": config.model_type}
        first = results["summary"][self.variants[0]]
        return {
            "training": spent,
            "writer": write_adapter_card,
            "family": config.model_type,
            "page": "how-to/adapters",
            "auto_class": f"AutoModelFor{self.task.head}",
            "labels": list(self.task.labels),
            "base_parameters": round(first["trained_parameters"]["mean"] / first["trained_share"]["mean"]),
        }

    def print(self, results: dict[str, Any]) -> None:
        hint = f"Saved to {self.output}; its README.md says how to load it."
        names = ("trained", "of all", "ms an update", "to the last", "peak MB")
        print_results(results, self.task.shown, self.output, hint, (names, cost_rows(results)))


class Costs(TrainerCallback):
    """Remembers what a run trains and how long each update takes."""

    def __init__(self, model: torch.nn.Module):
        sizes = [(value.numel(), value.requires_grad) for value in model.parameters()]
        self.trained = sum(size for size, trained in sizes if trained)
        self.total = sum(size for size, _ in sizes)
        self.seconds: list[float] = []
        self._start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._start = self._now()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop it."""
        self.seconds.append(self._now() - self._start)

    def measured(self) -> dict[str, float]:
        """The numbers of `COSTS`: median time of an update (0 if none was made), the GPU's peak (0 without one)."""
        seconds = statistics.median(self.seconds) if self.seconds else 0.0
        peak = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
        return dict(zip(COSTS, (self.trained, self.trained / self.total, seconds, peak), strict=True))

    @staticmethod
    def _now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()


def cost_rows(results: dict[str, Any]) -> list[list[str]]:
    """What each method trained and took, means over seeds; the last one's step time is the measure."""
    trained = {method: scores for method, scores in results["summary"].items() if COSTS[0] in scores}
    means = {method: {name: scores[name]["mean"] for name in COSTS} for method, scores in trained.items()}
    last = list(means.values())[-1]["step_seconds"]
    return [
        [
            method,
            f"{mean['trained_parameters']:,.0f}",
            f"{100 * mean['trained_share']:.2f} %",
            f"{1e3 * mean['step_seconds']:.1f}",
            f"{mean['step_seconds'] / last:.2f}" if last else "-",
            f"{mean['peak_memory_mb']:.0f}" if mean["peak_memory_mb"] else "-",
        ]
        for method, mean in means.items()
    ]
