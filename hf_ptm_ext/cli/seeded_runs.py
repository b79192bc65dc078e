"""Fine-tune by seeds with a baseline beside, and write one folder with model, scores and the evidence for its card.

Each seed trains the first variant (say, with knowledge) and every other one (without) from the same weights on the
same rows. A finished run leaves its scores in the folder's `_runs`, an unfinished one its checkpoints, so that the
same command with `--resume_from_checkpoint auto` goes on where it stopped, and more seeds can be added later.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from transformers import AutoConfig, set_seed

from ..hub.model_card import write_model_card
from ..trainers import last_complete_checkpoint
from .runs import PARTIAL, written_aside
from .seeded_arguments import SeededArguments
from .tables import text_table

logger = logging.getLogger(__name__)

RESULTS = "results.json"
RUNS = "_runs"  # leading underscore: never pushed
JOB = "job.json"
IGNORED_INDEX = -100
# What may change between the parts of one job: where it runs, what it reports, how many seeds there are.
FREE_ARGUMENTS = (
    *("output_dir", "overwrite", "resume_from_checkpoint", "seeds", "seed", "data_seed", "do_train", "do_eval"),
    *(
        "logging_",
        "log_",
        "report_to",
        "run_name",
        "disable_tqdm",
        "project",
        "trackio",
        "save_",
        "push_to_hub",
        "hub_",
    ),
    *("use_cpu", "dataloader_", "ddp_", "local_rank", "torch_compile", "per_device_eval_batch_size", "debug"),
)


@dataclass(frozen=True)
class SeededJob:
    """What is trained and how it is scored.

    Args:
        variants: the first is the one that is kept, the others are baselines.
        splits: evaluated after training; the last one is reported.
        build: from a variant and the arguments of a run to a Trainer and what is saved beside its model (a tokenizer
            or processor). The random state is set before.
        score: from a trained Trainer, its variant and a split to scores.
        options: everything that decides what the runs do, the Trainer's arguments aside.
        save: from the output folder, the first run's Trainer and what `build` gave to saved files (default:
            `save_model`).
    """

    variants: tuple[str, ...]
    splits: tuple[str, ...]
    build: Callable[[str, Any], tuple[Any, Any]]
    score: Callable[[Any, str, str], dict[str, float]]
    options: Mapping[str, Any]
    save: Callable[[Path, Any, Any], None] | None = None


def run_seeds(job: SeededJob, args: SeededArguments) -> list[dict[str, Any]]:
    """Run every seed and variant that is not finished, and save the first one's model.

    Args:
        job: what is trained.
        args: how; `seeds`, `overwrite` and `resume_from_checkpoint` are read here.

    Returns:
        One entry a run: `seed`, `variant`, and the scores of each split.

    Raises:
        ValueError: the output folder holds other files, or runs of another job.
    """
    folder = Path(args.output_dir) / RUNS
    signature = job_signature(job, args)
    if args.process_index == 0:
        prepare_folder(Path(args.output_dir), args, signature)
    runs = []
    for number, seed in enumerate(args.seeds):
        for place, variant in enumerate(job.variants):
            record = folder / f"seed{seed}_{place}.json"
            if record.is_file():
                runs.append(json.loads(record.read_text(encoding="utf-8")))
                continue
            trainer, processor = _train(job, variant, args, seed, folder / f"seed{seed}_{place}")
            run = {"seed": seed, "variant": variant}
            run |= {split: job.score(trainer, variant, split) for split in job.splits}
            logger.info("seed %d, %s: %s", seed, variant, run[job.splits[-1]])
            if number == 0 and place == 0:
                (job.save or save_model)(Path(args.output_dir), trainer, processor)
            if trainer.is_world_process_zero():
                write_json(record, run)
                shutil.rmtree(folder / f"seed{seed}_{place}", ignore_errors=True)
            trainer.accelerator.wait_for_everyone()
            trainer.accelerator.free_memory()
            runs.append(run)
    return runs


def _train(job: SeededJob, variant: str, args: SeededArguments, seed: int, folder: Path) -> tuple[Any, Any]:
    """One run, from its newest complete checkpoint if it has one."""
    run_args = copy(args)
    run_args.seed = run_args.data_seed = seed
    run_args.output_dir = str(folder)
    run_args.push_to_hub = False  # the folder with the evidence is pushed, not a run
    set_seed(seed)
    trainer, processor = job.build(variant, run_args)
    checkpoint = last_complete_checkpoint(folder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer, processor


def job_signature(job: SeededJob, args: SeededArguments) -> dict[str, Any]:
    """All that must be the same for runs to be compared, as JSON.

    Args:
        job: variants and options.
        args: the Trainer's arguments.
    """
    training = {name: value for name, value in args.to_dict().items() if not name.startswith(FREE_ARGUMENTS)}
    everything = {"variants": list(job.variants), **job.options, **training}
    return json.loads(json.dumps(everything, default=str))


def prepare_folder(output: Path, args: SeededArguments, signature: Mapping[str, Any]) -> None:
    """Make the output folder, or check that its runs belong to this job.

    Args:
        output: the folder.
        args: `overwrite` and `resume_from_checkpoint` are read.
        signature: of this job.

    Raises:
        ValueError: see the messages.
    """
    if output.exists() and not output.is_dir():
        raise ValueError(f"`output_dir` must be a folder, got the file {output}.")
    job_file = output / RUNS / JOB
    others = [path for path in output.glob("*") if path.name != PARTIAL]
    if args.resume_from_checkpoint is not None and job_file.is_file():
        before = json.loads(job_file.read_text(encoding="utf-8"))
        changed = sorted(name for name in {*before, *signature} if before.get(name) != signature.get(name))
        if changed:
            shown = ", ".join(f"{name} = {signature.get(name)} (was {before.get(name)})" for name in changed[:5])
            raise ValueError(
                f"`output_dir` = {output} holds runs of another job, which cannot be compared with these: {shown}. "
                "Give the same arguments, pass --overwrite true to train anew, or name another folder."
            )
        return
    if others and not args.overwrite:
        raise ValueError(
            f"`output_dir` = {output} is not empty. Pass --resume_from_checkpoint auto to go on with its runs, "
            "--overwrite true to train anew, or name another folder."
        )
    shutil.rmtree(output / RUNS, ignore_errors=True)
    write_json(job_file, signature)


def write_json(file: Path, value: Any) -> None:
    """Write a file that appears whole.

    Args:
        file: its folder is made.
        value: anything that JSON knows.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(file)


def write_lines(file: Path, values: Sequence[Any]) -> None:
    """Write JSON lines that appear whole.

    Args:
        file: its folder is made.
        values: one a line.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")
    partial.replace(file)


def save_model(output: Path, trainer: Any, processor: Any) -> None:
    """Write the model and what prepares its input into the output folder.

    Args:
        output: the folder.
        trainer: has the model; its first process writes.
        processor: tokenizer or processor.
    """
    state_dict = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
    if not trainer.is_world_process_zero():
        return
    with written_aside(output) as partial:
        trainer.saved_model.save_pretrained(partial, state_dict=state_dict)
        processor.save_pretrained(partial)


def summary(runs: Sequence[dict[str, Any]], split: str) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and standard deviation (of a sample) over seeds.

    Args:
        runs: entries with `variant` and the scores under `split`.
        split: which scores.

    Example:
        >>> runs = [{"variant": "a", "test": {"f1": 0.5}}, {"variant": "a", "test": {"f1": 0.7}}]
        >>> {name: round(value, 3) for name, value in summary(runs, "test")["a"]["f1"].items()}
        {'mean': 0.6, 'std': 0.141}
    """
    result: dict[str, dict[str, dict[str, float]]] = {}
    for variant in dict.fromkeys(run["variant"] for run in runs):
        scores = [run[split] for run in runs if run["variant"] == variant]
        result[variant] = {
            name: {
                "mean": mean(one[name] for one in scores),
                "std": stdev(one[name] for one in scores) if len(scores) > 1 else 0.0,
            }
            for name in scores[0]
        }
    return result


def result_rows(results: Mapping[str, Any], shown: Sequence[str]) -> list[list[str]]:
    """The majority class and each variant, in percent.

    Args:
        results: `majority`, its name in `simple_baseline` if it is another simple guess, and `summary`.
        shown: which scores.
    """
    rows = [
        [results.get("simple_baseline", "majority"), *(f"{100 * results['majority'][name]:.1f}" for name in shown)]
    ]
    for variant, scores in results["summary"].items():
        cells = [f"{100 * scores[name]['mean']:.1f} ± {100 * scores[name]['std']:.1f}" for name in shown]
        rows.append([variant, *cells])
    return rows


def evidence(results: Mapping[str, Any], shown: Sequence[str], seeds: int, introduction: str) -> str:
    """What a card says about this very model: the task, and the evidence by seeds.

    Args:
        results: as `result_rows` takes them.
        shown: which scores.
        seeds: how many.
        introduction: a sentence on what it was fine-tuned for.
    """
    lines = [
        f"{introduction} The weights are those of the first seed.",
        "",
        "## Evidence",
        "",
        f"Mean and standard deviation of {seeds} seed{'s' * (seeds > 1)}, in percent; the same weights, data and "
        "seeds in each row.",
        "",
        f"| | {' | '.join(shown)} |",
        f"| --- | {' | '.join('---' for _ in shown)} |",
        *(f"| {' | '.join(row)} |" for row in result_rows(results, shown)),
    ]
    return "\n".join(lines)


def write_results(
    output: Path,
    results: Mapping[str, Any],
    shown: Sequence[str],
    args: SeededArguments,
    introduction: str,
    training: Mapping[str, Any] | None = None,
    *,
    writer: Callable[..., Any] = write_model_card,
    family: str | None = None,
    **card: Any,
) -> None:
    """Write `results.json` and the model card, and push the folder if asked.

    Args:
        output: the folder with the model.
        results: `runs`, `summary`, `majority` and whatever else belongs to the evidence.
        shown: which scores the card shows.
        args: how it was trained.
        introduction: a sentence on the task.
        training: further options for the card.
        writer: what writes the card (default `write_model_card`).
        family: `model_type` of the model (default: the one in the folder).
        card: further fields of the writer.
    """
    if args.process_index != 0:
        return
    write_json(output / RESULTS, results)
    means = {variant: {name: scores[name]["mean"] for name in shown} for variant, scores in results["summary"].items()}
    first = next(iter(means))
    others = {f"{name} ({variant})": value for variant in list(means)[1:] for name, value in means[variant].items()}
    writer(
        output,
        family=family or AutoConfig.from_pretrained(output).model_type,
        metrics=means[first],
        baselines={name: results["majority"][name] for name in shown} | others,
        training={
            "seeds": args.seeds,
            "epochs": args.num_train_epochs,
            "rows per update": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
            "learning rate": args.learning_rate,
            **(training or {}),
        },
        title=output.name,
        repo_id=args.hub_model_id or f"your-name/{output.name}",
        description=evidence(results, shown, len(args.seeds), introduction),
        **card,
    )
    if args.push_to_hub:
        push_folder(output, args)


def push_folder(output: Path, args: SeededArguments) -> None:
    """Push the folder as one commit.

    Args:
        output: the folder.
        args: `hub_model_id` (default: the folder's name), `hub_token`, `hub_private_repo`, `hub_revision`.
    """
    from huggingface_hub import HfApi

    api = HfApi(token=args.hub_token)
    repository = api.create_repo(
        args.hub_model_id or output.name, private=args.hub_private_repo, exist_ok=True
    ).repo_id
    api.upload_folder(
        repo_id=repository,
        folder_path=output,
        revision=args.hub_revision,
        ignore_patterns=["_*", "*/_*"],
        commit_message="Fine-tuned by seeds with hf-ptm-ext",
    )


def print_results(
    results: Mapping[str, Any], shown: Sequence[str], split: str, output: Path, hint: str | None = None
) -> None:
    """Print mean and spread of each variant beside the majority class.

    Args:
        results: `runs`, `summary` and `majority`.
        shown: which scores.
        split: their split.
        output: the folder.
        hint: what to do next (default: verify the folder).
    """
    seeds = len({run["seed"] for run in results["runs"]})
    print(f"\n{split}, in percent, mean and standard deviation of {seeds} seed{'s' * (seeds > 1)}")
    print(text_table(["", *shown], result_rows(results, shown)))
    print(f"\n{hint or f'Saved to {output}. Check that it loads anywhere: hf-ptm-ext verify {output}'}")


def options_of(*groups: Any) -> dict[str, Any]:
    """The values of argument dataclasses in one dictionary.

    Args:
        groups: dataclass instances.
    """
    return {name: value for group in groups for name, value in asdict(group).items()}


def digest_of(examples: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """A fingerprint of the examples of each split, so that runs on other data are not taken for the same.

    Args:
        examples: split -> examples with a meaningful `repr`.
    """
    digests = {}
    for split, ones in examples.items():
        digest = hashlib.blake2b(digest_size=8)
        for one in ones:
            digest.update(repr(one).encode("utf-8", "surrogatepass"))
        digests[split] = digest.hexdigest()
    return digests


def update_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None, *, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Cross-entropy as the mean over all labels of an update.

    Upstream's classifiers return the mean of a micro-batch, and the Trainer adds it up undivided when gradients are
    accumulated.

    Args:
        outputs: with `logits` `(..., num_labels)`.
        labels: `(...)`, -100 where there is none.
        num_items_in_batch: labels of the whole update; `None` in evaluation.
        label_smoothing: share of the target that is spread over all classes.

    Returns:
        The loss.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
        >>> round(update_loss({"logits": logits}, torch.tensor([0, -100])).item(), 4)
        0.6931
    """
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    labels = labels.to(logits.device)
    total = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, -2),
        labels.flatten(),
        ignore_index=IGNORED_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    count = (labels != IGNORED_INDEX).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
    return total / count
