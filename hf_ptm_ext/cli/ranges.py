"""Which numbers an option may be; NaN and what is too large for a machine are none.

An option of ours says it in its type (`dropout: Below1`), one of transformers or of a command in the table below.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_type_hints

LARGEST = 2**63 - 1
_SHARE, _POSITIVE_SHARE, _BELOW_1 = "[0, 1]", "(0, 1]", "[0, 1)"
_POSITIVE, _COUNT = "(0, inf)", "[0, inf)"
_SIZE, _SEED, _ANY = "[1, inf)", "[0, 4294967295]", "(-inf, inf)"
_INTERVAL = re.compile(r"([\[(])(\S+), (\S+)([\])])")

Share = Annotated[float, _SHARE]
PositiveShare = Annotated[float, _POSITIVE_SHARE]
OpenShare = Annotated[float, "(0, 1)"]
Below1 = Annotated[float, _BELOW_1]
Positive = Annotated[float, _POSITIVE]
Weight = Annotated[float, _COUNT]
AnyNumber = Annotated[float, _ANY]
Count = Annotated[int, _COUNT]
Size = Annotated[int, _SIZE]
Seed = Annotated[int, _SEED]
Bits = Annotated[int, "[2, 8]"]
RowLength = Annotated[int, "[8, inf)"]
TextLength = Annotated[int, "[3, inf)"]

# Interval (`or` joins several) -> options of transformers, of distillation, of commands without dataclasses.
_OTHERS = {
    _COUNT: """
        learning_rate num_train_epochs warmup_steps weight_decay adam_epsilon max_grad_norm neftune_noise_alpha
        eval_delay beta weight label_weight soft_label_weight cosine_weight teacher_check_rows margin tolerance
        predecessor_check_rows steps_for_replacing scheduler_linear_k
    """,
    _SIZE: """
        gradient_accumulation_steps per_device_train_batch_size per_device_eval_batch_size eval_accumulation_steps
        torch_empty_cache_steps save_total_limit dataloader_prefetch_factor ddp_bucket_cap_mb generation_max_length
        generation_num_beams max_entities progressive_steps successor_layers dimension epochs negatives batch_size
        max_test_triples
    """,
    _POSITIVE: "logging_steps eval_steps save_steps temperature timeout",
    _BELOW_1: "adam_beta1 adam_beta2 dropout",
    _SHARE: "label_smoothing_factor alpha",
    _SEED: "seed data_seed",
    _POSITIVE_SHARE: "replacing_rate",
    "[1, 2]": "norm",
    "[-1, -1] or [1, inf)": "max_steps",
    "[-1, 1024]": "dataloader_num_workers",
    "[1, 1000000000]": "ddp_timeout",
    "[-1, inf)": "local_rank",
}
RANGES = {name: interval for interval, names in _OTHERS.items() for name in names.split()}


def ranges_of(groups: Sequence[type]) -> dict[str, str]:
    """The range of every number among the options of dataclasses."""
    found = dict(RANGES)
    for group in groups:
        for name, hint in get_type_hints(group, include_extras=True).items():
            interval = next(_annotations(hint), None)
            if interval is not None:
                found[name] = interval
    return found


def _annotations(hint: Any) -> Iterator[str]:
    yield from getattr(hint, "__metadata__", ())
    for part in get_args(hint):
        yield from _annotations(part)


def check_ranges(values: Mapping[str, Any], where: str = "", ranges: Mapping[str, str] = RANGES) -> None:
    """Refuse a number (also in a list) that its option cannot be; `where` stands before the message."""
    for name, value in values.items():
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, bool) or not isinstance(number, int | float) or name not in ranges:
                continue
            intervals: list[Any] = _INTERVAL.findall(ranges[name])
            # Written so that NaN, which compares to nothing, is in none.
            if not any(_contains(number, *one) for one in intervals):
                rules = " or ".join(_rule(*one) for one in intervals)
                finite = "" if abs(number) <= LARGEST else ", finite"
                raise ValueError(f"{where}`{name}` must be {rules}{finite}, got {str(number)[:40]}.")


def _contains(number: float, opens: str, low: str, high: str, closes: str) -> bool:
    above = float(low) <= number if opens == "[" else float(low) < number
    below = number <= float(high) if closes == "]" else number < float(high)
    return above and below and (isinstance(number, float) or abs(number) <= LARGEST)


def _rule(opens: str, low: str, high: str, closes: str) -> str:
    if low == high:
        return low
    if (opens, low, high) == ("(", "0", "inf"):
        return "positive"
    rules = [] if low == "-inf" else [f"{'at least' if opens == '[' else 'above'} {low}"]
    rules += [] if high == "inf" else [f"{'at most' if closes == ']' else 'below'} {high}"]
    return " and ".join(rules) or "a number"
