"""Models and tokenizers of `hf-ptm-ext finetune`: any encoder as it is, or any BERT as a K-BERT."""

from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

from .finetune_arguments import FinetuneModelArguments, KnowledgeGraphArguments

WITH, WITHOUT, PLAIN_TEXT = "with kg", "kg=None", "fine-tuned"


def variants(knowledge: KnowledgeGraphArguments) -> tuple[str, ...]:
    """With knowledge and without it, or the plain model alone.

    Args:
        knowledge: `kg` and `baseline` are read.
    """
    if not knowledge.kg:
        return (PLAIN_TEXT,)
    return (WITH, WITHOUT) if knowledge.baseline else (WITH,)


def load_model(task: Any, model_args: FinetuneModelArguments) -> Any:
    """An encoder with the head of a task.

    Args:
        task: its labels and its head.
        model_args: which checkpoint.

    Returns:
        The model; a head of another size is made anew.
    """
    source = {"revision": model_args.model_revision, "trust_remote_code": model_args.trust_remote_code}
    config = AutoConfig.from_pretrained(model_args.model_name_or_path, **source)
    set_labels(config, task.labels)
    auto = getattr(transformers, f"AutoModelFor{task.head}")
    return auto.from_pretrained(
        model_args.model_name_or_path, config=config, dtype=torch.float32, ignore_mismatched_sizes=True, **source
    )


def set_labels(config: Any, labels: tuple[str, ...]) -> None:
    """Give a config the names of the classes.

    Args:
        config: any config.
        labels: in the order of the logits.
    """
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    config.problem_type = "single_label_classification"


def load_tokenizer(model_args: FinetuneModelArguments, task: Any) -> Any:
    """The checkpoint's tokenizer.

    Args:
        model_args: which checkpoint.
        task: tagging needs one that tells which token belongs to which word.

    Returns:
        The tokenizer.

    Raises:
        ValueError: it cannot tell.
    """
    source = {"revision": model_args.model_revision, "trust_remote_code": model_args.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, **source)
    if task.name != "tagging":
        return tokenizer
    if getattr(tokenizer, "add_prefix_space", None) is False:  # byte-level pieces of words need the blank before them
        tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, add_prefix_space=True, **source)
    if not tokenizer.is_fast:
        raise ValueError(
            f"`task` = tagging needs a fast tokenizer, which tells the word of each token, got "
            f"{type(tokenizer).__name__}."
        )
    return tokenizer


__all__ = ["PLAIN_TEXT", "WITH", "WITHOUT", "load_model", "load_tokenizer", "set_labels", "variants"]
