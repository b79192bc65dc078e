"""Which numbers each option of each command may be, said once; NaN and what is too large for a machine are none."""

import re
from collections.abc import Mapping
from typing import Any

LARGEST = 2**63 - 1
_SHARE, _POSITIVE, _COUNT, _SIZE, _ANY = "[0, 1]", "(0, inf)", "[0, inf)", "[1, inf)", "(-inf, inf)"
_SEED = "[0, 4294967295]"

# Option -> interval; `or` joins several. What else an option depends on is checked by its command.
RANGES = {
    # training, of transformers
    "learning_rate": _COUNT,
    "num_train_epochs": _COUNT,
    "max_steps": "[-1, -1] or [1, inf)",
    "warmup_steps": _COUNT,
    "weight_decay": _COUNT,
    "adam_beta1": "[0, 1)",
    "adam_beta2": "[0, 1)",
    "adam_epsilon": _COUNT,
    "gradient_accumulation_steps": _SIZE,
    "max_grad_norm": _COUNT,
    "label_smoothing_factor": _SHARE,
    "neftune_noise_alpha": _COUNT,
    "per_device_train_batch_size": _SIZE,
    "per_device_eval_batch_size": _SIZE,
    "eval_accumulation_steps": _SIZE,
    "torch_empty_cache_steps": _SIZE,
    "logging_steps": _POSITIVE,
    "eval_steps": _POSITIVE,
    "save_steps": _POSITIVE,
    "eval_delay": _COUNT,
    "save_total_limit": _SIZE,
    "seed": _SEED,
    "data_seed": _SEED,
    "seeds": _SEED,
    "dataloader_num_workers": "[0, 1024]",
    "dataloader_prefetch_factor": _SIZE,
    "ddp_bucket_cap_mb": _SIZE,
    "ddp_timeout": "[1, 1000000000]",
    "local_rank": "[-1, inf)",
    "generation_max_length": _SIZE,
    "generation_num_beams": _SIZE,
    # rows
    "max_seq_length": "[8, inf)",
    "max_source_length": "[3, inf)",
    "max_target_length": "[3, inf)",
    "max_context_characters": _SIZE,
    "max_question_length": _SIZE,
    "max_answer_length": _SIZE,
    "n_best_size": _SIZE,
    "doc_stride": _COUNT,
    "null_score_diff_threshold": _ANY,
    "max_train_rows": _SIZE,
    "max_eval_rows": _SIZE,
    "max_test_rows": _SIZE,
    "max_entities": _SIZE,
    "validation_fraction": "[0, 1)",
    "corpus_weights": _POSITIVE,
    "shuffle_buffer_size": _SIZE,
    "vocab_size": _SIZE,
    # objectives
    "mlm_probability": _SHARE,
    "mask_replace_prob": _SHARE,
    "random_replace_prob": _SHARE,
    "geometric_p": "(0, 1]",
    "max_span_length": _SIZE,
    "max_pair_targets": _SIZE,
    "sbo_loss_weight": _COUNT,
    "entity_replace_prob": _SHARE,
    "entity_mask_prob": _SHARE,
    "min_entities": _COUNT,
    "mask_prob": _SHARE,
    "mask_ratio": _SHARE,
    "poisson_lambda": _COUNT,
    "permute_sentence_ratio": _SHARE,
    "rotate_ratio": _SHARE,
    "noise_density": "(0, 1)",
    "mean_noise_span_length": _POSITIVE,
    "max_predictions": _COUNT,
    "target_mask_prob": _SHARE,
    # generation
    "num_beams": _SIZE,
    "length_penalty": _ANY,
    "no_repeat_ngram_size": _COUNT,
    "min_new_tokens": _COUNT,
    "max_new_tokens": _SIZE,
    # adapters, students, several tasks
    "reduction_factor": _POSITIVE,
    "bottleneck_size": _SIZE,
    "leave_out": _COUNT,
    "lora_r": _SIZE,
    "full_learning_rate": _COUNT,
    "student_layers": _SIZE,
    "student_hidden_size": _SIZE,
    "student_intermediate_size": _SIZE,
    "student_num_attention_heads": _SIZE,
    "baseline_epochs": _COUNT,
    "baseline_learning_rate": _COUNT,
    "alpha": _SHARE,
    "beta": _COUNT,
    "weight": _COUNT,
    "label_weight": _COUNT,
    "soft_label_weight": _COUNT,
    "cosine_weight": _COUNT,
    "teacher_check_rows": _COUNT,
    "predecessor_check_rows": _COUNT,
    "progressive_steps": _SIZE,
    "successor_layers": _SIZE,
    "replacing_rate": "(0, 1]",
    "steps_for_replacing": _COUNT,
    "scheduler_linear_k": _COUNT,
    "extra_task_ratio": _COUNT,
    "temperature": _POSITIVE,
    "smart_weight": _COUNT,
    "smart_step_size": _COUNT,
    "smart_noise_std": _COUNT,
    "smart_radius": _COUNT,
    "smart_steps": _COUNT,
    "loss_weight": _POSITIVE,
    "dropout": "[0, 1)",
    # entity vectors, verify
    "dimension": _SIZE,
    "epochs": _SIZE,
    "margin": _COUNT,
    "norm": "[1, 2]",
    "negatives": _SIZE,
    "batch_size": _SIZE,
    "max_test_triples": _SIZE,
    "timeout": _POSITIVE,
    "tolerance": _COUNT,
}
_INTERVAL = re.compile(r"([\[(])(\S+), (\S+)([\])])")


def check_ranges(values: Mapping[str, Any], where: str = "") -> None:
    """Refuse numbers that an option cannot be.

    Args:
        values: option -> number or numbers; what is neither is not looked at.
        where: stands before the message.

    Raises:
        ValueError: a number is not in the option's range.

    Example:
        >>> check_ranges({"dropout": 0.1, "seeds": [0, 1], "task": "tagging"})
        >>> check_ranges({"dropout": float("nan")})
        Traceback (most recent call last):
        ...
        ValueError: `dropout` must be at least 0 and below 1, finite, got nan.
    """
    for name, value in values.items():
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, bool) or not isinstance(number, int | float) or name not in RANGES:
                continue
            intervals = [_INTERVAL.fullmatch(one).groups() for one in RANGES[name].split(" or ")]
            # Written so that NaN, which compares to nothing, is in none.
            if not any(_contains(*one, number) for one in intervals):
                rules = " or ".join(_rule(*one) for one in intervals)
                finite = "" if abs(number) <= LARGEST else ", finite"
                raise ValueError(f"{where}`{name}` must be {rules}{finite}, got {str(number)[:40]}.")


def _contains(opens: str, low: str, high: str, closes: str, number: float) -> bool:
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


__all__ = ["RANGES", "check_ranges"]
