"""Shapes of batches: one where a model is compiled, few on a GPU, which plans its kernels anew for each."""

import math
from typing import Any

import torch

# On a GPU rows are padded to a multiple of this: 32 lengths of up to 512 tokens. cuDNN plans an attention for 0.1 s.
STEP = 16
# Where a collator has another one that pads the rows: of n-grams, of entities, of answers.
INSIDE = ("collator", "mlm", "mlm_collator", "pad")


def settle_shapes(collator: Any, args: Any, longest: int) -> Any:
    """Let a collator pad rows of up to `longest` tokens so that few batches differ in shape; the collator."""
    inside: Any = (getattr(collator, name, None) for name in INSIDE)
    padding: Any = next((one for one in inside if hasattr(one, "pad_to_multiple_of")), collator)
    if getattr(padding, "pad_to_multiple_of", longest) is None:
        if args.torch_compile:
            padding.pad_to_multiple_of = longest
        elif not args.use_cpu and torch.cuda.is_available():
            padding.pad_to_multiple_of = math.gcd(longest, STEP)  # never above `longest`
    return collator


def drop_short_batch(args: Any, rows: Any) -> None:
    """Leave a last batch of fewer rows out where a model would be compiled anew for it; others are in each epoch."""
    if not hasattr(rows, "__len__"):
        return
    batch = args.per_device_train_batch_size * args.world_size
    if args.torch_compile and len(rows) >= batch:
        args.dataloader_drop_last = True
    if args.dataloader_drop_last and len(rows) < batch:
        raise ValueError(
            f"`dataloader_drop_last` leaves nothing to train on: {len(rows)} rows are fewer than a batch of "
            f"{batch}. Leave it out, lower `per_device_train_batch_size` or `max_seq_length`, or give more text."
        )
