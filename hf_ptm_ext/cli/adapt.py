"""`hf-ptm-ext adapt`: train adapters on an encoder, by seeds, with other methods and full fine-tuning beside them."""

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, TrainerCallback

from ..data.bad_rows import BadRows
from ..hub.adapter_card import write_adapter_card
from ..hub.model_card import check_card_fields
from ..trainers import ResumableTrainer
from .adapt_arguments import BOTTLENECKS, FULL, LORA, AdaptArguments, AdapterArguments, parse
from .checkpoint_names import check_names
from .evaluation import Splits
from .finetune_arguments import FinetuneModelArguments, KnowledgeGraphArguments, TaskDataArguments, data_name
from .finetune_models import Encoder
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
from .tables import text_table

# End of a model's class -> PEFT's name of the task. PEFT's wrapper for question answering drops `token_type_ids`, so
# that task goes without a name: heads are found all the same.
TASK_TYPES = {"SequenceClassification": "SEQ_CLS", "TokenClassification": "TOKEN_CLS"}
COSTS = ("trained_parameters", "trained_share", "step_seconds", "peak_memory_mb")


class Costs(TrainerCallback):
    """Remembers what a run trains and how long each update takes.

    Args:
        model: as it is before training.
    """

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


def run(arguments: list[str]) -> int:
    """Run the job.

    Args:
        arguments: the command line after `adapt`.

    Returns:
        0.

    Raises:
        ValueError: arguments or data are wrong; the message says which and what to do.
    """
    adapt(*parse(arguments))
    return 0


def adapted_model(model: Any, method: str, head: str, adapter_args: AdapterArguments) -> Any:
    """A model in which a method's parameters are trained.

    Args:
        model: with the head of the task.
        method: one of `adapt_arguments.METHODS`.
        head: end of the model's class, such as `"SequenceClassification"`.
        adapter_args: options of the method.

    Returns:
        The model itself for `"full"`, PEFT's around it otherwise.

    Raises:
        ValueError: see the configurations.
    """
    from peft import LoraConfig, get_peft_model

    from ..adapters import HoulsbyConfig, PfeifferConfig
    from ..adapters.trained_whole import new_parts

    if method == FULL:
        return model
    task_type = TASK_TYPES.get(head)
    if method == LORA:
        rank = adapter_args.lora_r
        config: Any = LoraConfig(
            r=rank, lora_alpha=2 * rank, task_type=task_type, modules_to_save=new_parts(model) or None
        )
        return get_peft_model(model, config)
    chosen = {
        "non_linearity": adapter_args.non_linearity,
        "train_layer_norms": adapter_args.train_layer_norms,
    }
    return get_peft_model(
        model,
        dict(zip(BOTTLENECKS, (HoulsbyConfig, PfeifferConfig), strict=True))[method](
            task_type=task_type,
            reduction_factor=adapter_args.reduction_factor,
            bottleneck_size=adapter_args.bottleneck_size,
            init_weights=adapter_args.init_weights,
            leave_out=adapter_args.leave_out,
            **{name: value for name, value in chosen.items() if value is not None},
        ),
    )


@in_its_folder
def adapt(
    model_args: FinetuneModelArguments,
    data_args: TaskDataArguments,
    adapter_args: AdapterArguments,
    training_args: AdaptArguments,
) -> dict[str, Any]:
    """Train and measure by seeds; save the first seed's adapter of the first method, its card and all results.

    Args:
        model_args: which model, see `adapt_arguments` for all four.
        data_args: the task and its data.
        adapter_args: what is trained.
        training_args: how it is trained.

    Returns:
        `runs` (one entry a seed and method), `summary` (method -> metric -> mean and standard deviation, `COSTS`
        among the metrics), `majority` and `labels`.

    Raises:
        ValueError: data and model do not fit each other, or the output folder has files.
    """
    from ..adapters import AdapterTrainer

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
    encoder = Encoder(task, model_args, KnowledgeGraphArguments())
    task = encoder.task
    splits = Splits(
        task,
        examples,
        lambda found: task.encode(found, encoder.tokenizer, data_args.max_seq_length),
        data_args,
        bad,
    )

    def build(method: str, args: AdaptArguments) -> tuple[ResumableTrainer, Any]:
        if method == FULL:
            args.learning_rate = adapter_args.full_learning_rate
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

        model = adapted_model(encoder.model(), method, task.head, adapter_args)
        trainer = (ResumableTrainer if method == FULL else AdapterTrainer)(
            model=model,
            compute_loss_func=partial(task.loss, label_smoothing=args.label_smoothing_factor),
            callbacks=[Costs(model)],
            **splits.trainer_options(args, encoder.tokenizer),
        )
        return trainer, task.saved(encoder.tokenizer)

    def score(trainer: ResumableTrainer, method: str, split: str) -> dict[str, float]:
        counter = next(one for one in trainer.callback_handler.callbacks if isinstance(one, Costs))
        spent = counter.measured()  # before the evaluation, which has a peak of its own
        kept = (method, trainer.args.seed) == (adapter_args.methods[0], training_args.seeds[0])
        return {**splits.score(trainer, split, Path(training_args.output_dir) if kept else None), **spent}

    options = signature_of(model_args, data_args, adapter_args, data=digest_of(splits.examples))
    methods = tuple(adapter_args.methods)
    job = SeededJob(methods, splits.evaluated, build, score, options, produced=splits.produced())
    results = splits.results(run_seeds(job, training_args))
    finish(task, model_args, data_args, adapter_args, training_args, splits, results)
    if training_args.process_index == 0:
        output = Path(training_args.output_dir)
        hint = f"Saved to {output}; its README.md says how to load it."
        print_results(results, task.shown, output, hint)
        print(text_table(["", "trained", "of all", "ms an update", "to the last", "peak MB"], cost_rows(results)))
    push_results(Path(training_args.output_dir), training_args)
    return results


def cost_rows(results: dict[str, Any]) -> list[list[str]]:
    """What each method trained and took, means over seeds; the last one's step time is the measure.

    Args:
        results: with `summary`.

    Returns:
        Rows of text.
    """
    means = {method: {name: scores[name]["mean"] for name in COSTS} for method, scores in results["summary"].items()}
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


def finish(
    task: Any,
    model_args: FinetuneModelArguments,
    data_args: TaskDataArguments,
    adapter_args: AdapterArguments,
    training_args: AdaptArguments,
    splits: Splits,
    results: dict[str, Any],
) -> None:
    """Write the results and the adapter's card."""
    base = AutoConfig.from_pretrained(
        model_args.model_name_or_path,
        revision=model_args.model_revision,
        trust_remote_code=model_args.trust_remote_code,
    )
    spent = {
        row[0]: f"{row[1]} weights ({row[2]}), {row[4]} of the last one's step time" for row in cost_rows(results)
    }
    if FULL in spent:
        spent[FULL] += f", learning rate {adapter_args.full_learning_rate}"
    first = results["summary"][adapter_args.methods[0]]
    write_results(
        Path(training_args.output_dir),
        results,
        task.shown,
        training_args,
        f"A {adapter_args.methods[0]} adapter, trained for {task.kind}.",
        {"max_seq_length": data_args.max_seq_length, **spent},
        writer=write_adapter_card,
        family=base.model_type,
        data={
            "name": data_name(data_args),
            "license": data_args.data_license or "unknown",
            "examples": {split: len(ones) for split, ones in splits.examples.items()},
        },
        scored_data=results["split"] and data_name(data_args, results["split"]),
        language=data_args.language,
        license=model_args.license or "unknown",
        auto_class=f"AutoModelFor{task.head}",
        pipeline_tag=task.pipeline_tag,
        labels=list(task.labels),
        base_parameters=round(first["trained_parameters"]["mean"] / first["trained_share"]["mean"]),
    )


__all__ = ["adapt", "adapted_model", "run"]
