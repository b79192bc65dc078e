"""The one way in which jobs load a model: all of it trained, finite, and with classes that mean what they meant."""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from ..files import check_shard_index
from ..models.loading_core import naming_damaged_weights
from ..weights import embedding_rows, extend_embeddings, not_finite, not_real

logger = logging.getLogger(__name__)

NAMED = 3  # weights that a message names
POSITIONS = ("position_embeddings", "embed_positions", "wpe")
GENERIC = re.compile(r"LABEL_\d+")


class NoTrainedHead(ValueError):
    """A checkpoint has no head where a trained one is needed."""


def load_model(
    cls: Any,
    name: str,
    *,
    argument: str = "model_name_or_path",
    new_head: bool = True,
    kind: str = "this task",
    labels: Sequence[str] = (),
    theirs: Sequence[str] | None = None,
    tokenizer: Any = None,
    tokenizer_option: str | None = None,
    extension: Any = None,
    **options: Any,
) -> Any:
    """Load a checkpoint in single precision, and refuse one that would leave weights of the encoder at random.

    What a task adds may be new: its head, and a pooler and a family's own parts as a whole. A trained head
    stays for the same classes, its rows in the order of `labels`, and is made anew for others.
    """
    check_shard_index(name)
    with naming_damaged_weights(name):
        model, info = cls.from_pretrained(
            name,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            # Trained weights are float32 whatever the file stores: updates are lost in half precision.
            **{"dtype": torch.float32, **options},
        )
        unreal = [] if getattr(model.config, "quantization_config", None) else not_real(Path(name))
    where = f"`{argument}` = {name}"
    if unreal:
        raise ValueError(
            f"{where} has {len(unreal)} weights that are integers, booleans or complex numbers: {_named(unreal)}. "
            "They are quantised, or no weights: give the file of floating-point numbers."
        )
    missing, mismatched = set(info["missing_keys"]), {key: shapes for key, *shapes in info["mismatched_keys"]}
    head = head_names(model)
    wrong = [key for key in mismatched if key not in head or not new_head]
    if wrong:
        first, (theirs, ours) = wrong[0], mismatched[wrong[0]]
        raise ValueError(
            f"{where} has {len(wrong)} weights of other shapes than its config says, such as `{first}`: "
            f"{tuple(theirs)} in the file, {tuple(ours)} in the model. Give the config that belongs to the weights."
        )
    if not new_head and missing & head:
        raise NoTrainedHead(
            f"{where} has no trained head for {kind}: `{min(missing & head)}` is not in it. Train it first "
            "(`hf-ptm-ext finetune`, or `hf-ptm-ext pretrain` for a masked language model) and name its folder."
        )
    lost = sorted(missing - _new_parts(model, missing, head if new_head else set()))
    if lost:
        raise ValueError(
            f"{where} lacks {len(lost)} weights of {type(model).__name__}, which would be trained from random values: "
            f"{_named(lost)}. Check `num_hidden_layers`, the names in the file and whether it is whole; files of an "
            "original project are read by `hf-ptm-ext convert`."
        )
    unread = [key for key in info["unexpected_keys"] if re.search(r"\.(layers?|block|h)\.\d+\.", key)]
    if unread:
        logger.warning(
            "%s has %d weights of layers that its config does not name: %s, ...", where, len(unread), min(unread)
        )
    broken = not_finite(model.state_dict())
    if broken:
        raise ValueError(
            f"{where} has NaN or infinity in {len(broken)} weights: {_named(broken)}. The file is damaged, or its "
            "training failed: use an earlier one."
        )
    if labels and not head & (missing | set(mismatched)):
        settle_head(model, labels, theirs, where)
    elif head & set(mismatched):
        _say_anew(where, f"of {mismatched[max(mismatched)][0][0]} outputs", labels)  # its last layer's
    # For cards: a measurement before training is of these.
    model.untrained_head = sorted(head & (missing | set(mismatched)))
    if tokenizer is not None:
        fit_embeddings(model, tokenizer, where, tokenizer_option, extension)
    return model


def fit_embeddings(model: Any, tokenizer: Any, where: str, option: str | None = None, extension: Any = None) -> None:
    """Give added tokens embeddings of their own, aloud, and new pieces of an extension the mean of their parts."""
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if hasattr(model.config, "max_characters_per_token"):  # ELMo's rows are characters, not the tokenizer's words
        return
    tokens, rows = len(tokenizer), embedding_rows(model)
    known = tokenizer.vocab_size if extension is None else max(map(max, extension.sources)) + 1
    if known > rows:
        raise ValueError(
            f"The tokenizer has {known} tokens and {where} has {rows} embeddings, so they are not of "
            f"one checkpoint. Name the model's own{f' with `{option}`' if option else ' tokenizer'}."
        )
    if extension is not None:
        extend_embeddings(model, extension.first_id, extension.sources)
    elif tokens > rows:
        logger.warning("%s has %d embeddings and its tokenizer %d tokens: new ones are made.", where, rows, tokens)
        model.resize_token_embeddings(tokens)


def check_positions(name: str, *data: Any, argument: str = "model_name_or_path", **source: Any) -> None:
    """Refuse rows that are longer than a checkpoint's table of positions, before any are read."""
    try:
        config = AutoConfig.from_pretrained(name, **source)
    except OSError:  # there is none, which loading says; mistakes in the data come first
        return
    trusted = {"trust_remote_code": source["trust_remote_code"]} if "trust_remote_code" in source else {}
    try:
        with torch.device("meta"):
            skeleton = AutoModel.from_config(config, **trusted)
    except ValueError:  # code of the checkpoint's own, without a class for this
        return
    positions = math.inf
    for path, part in skeleton.named_modules():
        if isinstance(part, nn.Embedding) and path.rpartition(".")[2] in POSITIONS:
            # RoBERTa counts from behind the padding, BART has an offset.
            first = part.padding_idx + 1 if part.padding_idx is not None else getattr(part, "offset", 0)
            positions = min(positions, part.num_embeddings - first)
    for one in data:
        if one.max_seq_length <= positions:
            continue
        if one.max_seq_length != type(one).__dataclass_fields__["max_seq_length"].default:
            raise ValueError(
                f"`max_seq_length` = {one.max_seq_length} must not exceed the {positions} positions of `{argument}` = "
                f"{name}. Lower it, or name a model with more."
            )
        logger.warning("`max_seq_length` is %d: `%s` = %s has no more positions.", positions, argument, name)
        one.max_seq_length = positions


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:NAMED]) + ", ..." * (len(names) > NAMED)


def head_names(model: Any) -> set[str]:
    """Names of what a model has beside its encoder; none for a model without a base of its own."""
    inside = [model.base_model]
    if model.base_model is model:  # T5 and its kind: a stack or two, embeddings, and what a task adds
        parts = [part for part in model.children() if isinstance(part, PreTrainedModel)]
        embeddings = (model.get_input_embeddings(), model.get_output_embeddings())
        inside = [*parts, *(one for one in embeddings if one is not None)] if parts else inside
    base = {id(value) for part in inside for value in (*part.parameters(), *part.buffers())}
    every = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return {name for name, value in every if id(value) not in base}


def _new_parts(model: Any, missing: set[str], head: set[str]) -> set[str]:
    """Of the missing weights those that a task or a family begins with: parts that are missing as a whole."""
    names = {name for name, _ in model.named_parameters()} | missing
    parts = [{name for name in names if "pooler" in name} - head]
    parts += [{name for name in names if re.search(one, name)} for one in getattr(model, "_added_parts", ())]
    return head | {name for part in parts if part <= missing for name in part}


# ---- classes ----


def own_classes(config: Any) -> list[str] | None:
    """The names that a checkpoint gives its classes, in order; `None` if it has nothing but numbers."""
    names = [str(name) for _, name in sorted(((int(key), name) for key, name in (config.id2label or {}).items()))]
    return None if all(GENERIC.fullmatch(name) for name in names) else names


def in_order(labels: Sequence[str], theirs: Sequence[str] | None) -> tuple[str, ...] | None:
    """The labels in the order of a checkpoint that has the same ones, ignoring case; `None` if it has others."""
    if theirs is None or len(theirs) != len(labels):
        return None
    for spelt in (str, str.casefold):
        ours = {spelt(label): label for label in labels}
        if len(ours) == len(labels) and set(ours) == {spelt(one) for one in theirs}:
            return tuple(ours[spelt(one)] for one in theirs)
    return None


def with_order_of(task: Any, config: Any) -> Any:
    """A task whose labels stand as the checkpoint's classes do, if they are the same: a head keeps its meaning."""
    order = in_order(task.labels, own_classes(config)) if task.labels else None
    return task if order in (None, task.labels) else replace(task, labels=order)


def settle_head(model: Any, labels: Sequence[str], theirs: Sequence[str] | None, where: str) -> None:
    """Keep a trained head for the same classes, its rows in their order; make it anew for others, aloud."""
    order = in_order(labels, theirs)
    if order == tuple(labels) or (order is not None and _reorder(model, [order.index(label) for label in labels])):
        return
    _say_anew(
        where, "without names of its classes" if theirs is None else f"for {', '.join(list(theirs)[:5])}", labels
    )
    fresh: Mapping[str, torch.Tensor] = type(model)(deepcopy(model.config)).state_dict()
    own = model.state_dict()
    with torch.no_grad():
        for name in head_names(model) & own.keys():
            own[name].copy_(fresh[name])


def _say_anew(where: str, what: str, labels: Sequence[str]) -> None:
    ours = f"the data has {len(labels)} classes ({', '.join(labels[:5])})" if labels else "this task needs another"
    logger.warning("%s has a head %s, and %s: the head is made anew.", where, what, ours)


def _reorder(model: Any, order: Sequence[int]) -> bool:
    """Put the rows of a head's last layer into another order; whether it is known which layer that is."""
    head = {name.rpartition(".")[0] for name in head_names(model)}
    layers = [
        part
        for name, part in model.named_modules()
        if name in head and isinstance(part, nn.Linear) and part.out_features == len(order)
    ]
    if len(layers) != 1:
        return False
    with torch.no_grad():
        for value in layers[0].parameters():
            value.copy_(value[list(order)])
    return True


def set_labels(config: Any, labels: Sequence[str]) -> None:
    """Give a config the names of the classes."""
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    config.problem_type = "single_label_classification"
