"""Learning-rate schedules of the transfer papers, as functions of the step and as upstream's scheduler objects.

Slanted triangle (ULMFiT, Howard and Ruder, ACL 2018, section 3.2), with T updates and step t = 0 .. T-1:

    cut = floor(T * cut_frac)
    p   = t / cut                                        while t < cut
          1 - (t - cut) / (cut * (1 / cut_frac - 1))     afterwards
    lr  = lr_max * (1 + p * (ratio - 1)) / ratio
"""

from functools import partial
from math import ceil, floor
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def slanted_triangular_factor(step: int, num_training_steps: int, cut_frac: float = 0.1, ratio: float = 32) -> float:
    """The share of the highest learning rate that update `step` is made with.

    Args:
        step: number of updates made so far, from 0.
        num_training_steps: updates of the whole run.
        cut_frac: share of the updates in which the rate rises (paper: 0.1).
        ratio: highest rate over lowest (paper: 32).

    Returns:
        A number in [1 / ratio, 1].

    Raises:
        ValueError: `cut_frac` is not in (0, 1), `ratio` is below 1 or `num_training_steps` is not positive.

    Examples:
        >>> [round(0.01 * slanted_triangular_factor(step, 20), 5) for step in (0, 1, 2, 3)]
        [0.00031, 0.00516, 0.01, 0.00946]
    """
    if not 0 < cut_frac < 1:
        raise ValueError(f"`cut_frac` must lie between 0 and 1, got {cut_frac}.")
    if ratio < 1:
        raise ValueError(f"`ratio` must be at least 1, got {ratio}: it is the highest rate over the lowest.")
    if num_training_steps < 1:
        raise ValueError(f"`num_training_steps` must be positive, got {num_training_steps}.")
    cut = floor(num_training_steps * cut_frac)
    if step < cut:
        share = step / cut
    else:
        # Of fewer than 1 / cut_frac updates none is left to rise in: the rate falls from the first one.
        share = 1 - (step - cut) / (max(cut, num_training_steps * cut_frac) * (1 / cut_frac - 1))
    return (1 + min(max(share, 0.0), 1.0) * (ratio - 1)) / ratio


def get_slanted_triangular_schedule(
    optimizer: Optimizer, num_training_steps: int, cut_frac: float = 0.1, ratio: float = 32, last_epoch: int = -1
) -> LambdaLR:
    """ULMFiT's schedule for an optimizer, to be given to a Trainer as `optimizers=(optimizer, schedule)`.

    Arguments and errors as of `slanted_triangular_factor` and torch's schedulers. The optimizer's groups may have
    different rates, see `layerwise_parameter_groups`; each is the group's highest.

    Returns:
        A `LambdaLR`; like upstream's schedules it is saved with a checkpoint and comes back on resume.

    Examples:
        >>> import torch
        >>> optimizer = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters(), lr=0.01)
        >>> round(get_slanted_triangular_schedule(optimizer, 20).get_last_lr()[0], 6)
        0.000313
    """
    factor = partial(slanted_triangular_factor, num_training_steps=num_training_steps, cut_frac=cut_frac, ratio=ratio)
    factor(0)
    return LambdaLR(optimizer, factor, last_epoch)


def number_of_updates(args: Any, num_rows: int) -> int:
    """The number of updates that a Trainer makes, for a schedule that is built before it.

    Args:
        args: the `TrainingArguments`.
        num_rows: rows of the training set.

    Returns:
        `args.max_steps` if it is positive, else updates an epoch times `num_train_epochs`.

    Examples:
        >>> from transformers import TrainingArguments
        >>> args = TrainingArguments(
        ...     output_dir="run", num_train_epochs=3, per_device_train_batch_size=8, gradient_accumulation_steps=2,
        ...     use_cpu=True,
        ... )
        >>> number_of_updates(args, 100)  # 13 batches, 7 updates an epoch
        21
    """
    if args.max_steps > 0:
        return int(args.max_steps)
    rows = args.train_batch_size * args.world_size
    batches = max(num_rows // rows if args.dataloader_drop_last else ceil(num_rows / rows), 1)
    return ceil(args.num_train_epochs * max(ceil(batches / args.gradient_accumulation_steps), 1))
