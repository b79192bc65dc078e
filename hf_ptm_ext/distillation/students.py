"""Students: a smaller model of the teacher's family, or DistilBERT's or MobileBERT's class, from its weights.

| student | call |
| --- | --- |
| DistilBERT (Sanh et al. 2019) | `make_student(bert, layers=6, model_class="distilbert")` |
| DistilRoBERTa | `make_student(roberta, layers=6)` |
| TinyBERT (Jiao et al. 2020) | `make_student(bert, size="tinybert-4l-312d", init="none")` |
| PKD (Sun et al. 2019), Theseus | `make_student(bert, layers=6, init="first")` |
| MiniLM (Wang et al. 2020) | `make_student(bert, layers=6, hidden_size=384, init="none")` |
| MobileBERT (Sun et al. 2020) | `make_student(ib_bert, model_class="mobilebert")` |
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.utils import logging

from .layouts import LAYOUTS, base_model
from .student_maps import (
    OTHER_FAMILIES,
    Init,
    chosen_layers,
    teacher_name,
)

logger = logging.get_logger(__name__)

# Published sizes by name (TinyBERT's README).
SIZES: dict[str, dict[str, int]] = {
    "tinybert-4l-312d": {"layers": 4, "hidden_size": 312, "intermediate_size": 1200, "num_attention_heads": 12},
    "tinybert-6l-768d": {"layers": 6, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
}
# Families with layers in another place than `LAYOUTS` says, whose projections are not taken apart.
STACKS = {"gpt2": "h"}
# Student families that are not the teacher's -> the teacher's.
TEACHERS_OF = {"distilbert": "bert", "mobilebert": "ib_bert"}
# Fields that follow the width wherever they were equal to it.
WIDTHS = ("embedding_size", "pooler_hidden_size")
# Fields of a config that describe the task: the same for any student.
TASK_FIELDS = ("id2label", "label2id", "problem_type", "pad_token_id", "tie_word_embeddings", "vocab_size")


@dataclass(frozen=True)
class StudentReport:
    """What a student took over from its teacher.

    Args:
        layers: for each layer of the student the teacher's that it starts from; empty if none does.
        copied: names of the student's weights that are the teacher's.
        fresh: names of those that are initialised at random.
    """

    layers: tuple[int, ...] = ()
    copied: tuple[str, ...] = ()
    fresh: tuple[str, ...] = field(default=(), repr=False)

    def summary(self) -> str:
        """One line for a log."""
        layers = f"layers from the teacher's {', '.join(map(str, self.layers))}; " if self.layers else ""
        named = ", ".join(self.fresh[:3]) + (", ..." if len(self.fresh) > 3 else "")
        fresh = f"{len(self.fresh)} initialised at random" + (f" ({named})" if self.fresh else "")
        return f"{layers}{len(self.copied)} weights copied, {fresh}"


def make_student(
    teacher: PreTrainedModel,
    layers: int | None = None,
    hidden_size: int | None = None,
    intermediate_size: int | None = None,
    num_attention_heads: int | None = None,
    init: Init = "every-other",
    model_class: type[PreTrainedModel] | str | None = None,
    size: str | None = None,
) -> Any:
    """Build a student and start it from its teacher's weights.

    Module by module, what has the teacher's shape is copied (encoder, embeddings, heads; ties stay ties), the rest is
    initialised at random: with another width that is nearly everything, with another number of heads the attention.
    `student.student_report` says which is which, and a line is logged. Random weights are drawn from the
    global generator: call `transformers.set_seed` first.

    Args:
        teacher: a BERT-like encoder with any head (or a GPT-2), of upstream or of this package. It is not changed.
        layers: number of layers (default: as many as `init` lists, or as the teacher has).
        hidden_size: width (default: the teacher's).
        intermediate_size: width of the feed-forward layers (default: in the teacher's proportion to the width).
        num_attention_heads: number of heads (default: the teacher's, which attention objectives need).
        init: `every-other` (default): layers spread evenly over the teacher's, for 6 of 12 DistilBERT's 0, 2, 4, 7, 9,
            11; `first`; `last`; `none`: nothing is copied, as TinyBERT's and MiniLM's general students begin; or
            teacher layers by number, counted from 0.
        model_class: the student's class (default: the teacher's): one of the teacher's family, DistilBERT's for a BERT
            or MobileBERT's for an IB-BERT; or `distilbert` or `mobilebert`, which take the class with the teacher's
            head.
        size: instead of the sizes: `tinybert-4l-312d` or `tinybert-6l-768d`; sizes given beside it win.

    Returns:
        The student, in training mode, with float32 weights.

    Raises:
        TypeError: `teacher` is no model of transformers, or `model_class` no class of one.
        ValueError: layers that the teacher does not have, heads that do not divide the width, a class of another
            family, an unknown name, or a teacher inside a PEFT wrapper.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> config = BertConfig(
        ...     vocab_size=9, hidden_size=8, num_hidden_layers=4, num_attention_heads=2, intermediate_size=8
        ... )
        >>> student = make_student(BertForMaskedLM(config), layers=2, model_class="distilbert")
        >>> type(student).__name__, student.student_report.layers, student.student_report.fresh
        ('DistilBertForMaskedLM', (0, 3), ())
    """
    _check_teacher(teacher)
    student_class = _student_class(teacher, model_class)
    sizes = _sizes(
        size,
        layers=layers,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_attention_heads=num_attention_heads,
    )
    count, depth = sizes.pop("layers", None), teacher.config.num_hidden_layers
    if (_family(student_class), teacher.config.model_type) == ("mobilebert", "ib_bert") and count not in (None, depth):
        raise ValueError(
            f"`layers` must be the teacher's {depth} for MobileBERT, which learns layer by layer, got {count}."
        )
    chosen = chosen_layers(init, count, depth)
    sizes["num_hidden_layers"] = (count or depth) if chosen is None else len(chosen)
    student = student_class(_student_config(teacher.config, student_class, sizes, chosen))
    report = StudentReport(fresh=tuple(name for name, _ in student.named_parameters()))
    if chosen is not None:
        report = _copy(teacher, student, chosen)
    student.student_report = report  # type: ignore[assignment]
    logger.info(f"{student_class.__name__} from {type(teacher).__name__}: {report.summary()}.")
    return student.train()


def _check_teacher(teacher: Any) -> None:
    if hasattr(teacher, "get_base_model"):
        raise ValueError(
            f"`teacher` must be the model itself, got a {type(teacher).__name__} of PEFT: merge it first, "
            "`teacher.merge_and_unload()`, or take `teacher.get_base_model()` if its adapter is not wanted."
        )
    if not isinstance(teacher, PreTrainedModel):
        raise TypeError(f"`teacher` must be a model of transformers, got {type(teacher).__name__}.")
    known = (*LAYOUTS, *STACKS)
    if teacher.config.model_type not in known:
        raise ValueError(
            f"`teacher` must be of a family whose layers are known: {', '.join(sorted(known))}; got "
            f"{type(teacher).__name__} of `model_type` {teacher.config.model_type!r}. Build its student by its own "
            "class, and copy what fits by `load_state_dict(..., strict=False)`."
        )


def _family(model_class: Any) -> str:
    return model_class.config_class.model_type


def _student_class(teacher: PreTrainedModel, model_class: type[PreTrainedModel] | str | None) -> type[PreTrainedModel]:
    """The class that was asked for, of a family that can start from the teacher's."""
    if model_class is None:
        return type(teacher)
    if isinstance(model_class, str):
        model_class = _named_class(teacher, model_class)
    config_class = getattr(model_class, "config_class", None)
    if not isinstance(model_class, type) or config_class is None:
        raise TypeError(
            f"`model_class` must be a model class of transformers, got {model_class!r}. An `Auto...` class is none: "
            "pass the class that it would give."
        )
    family, of_teacher = config_class.model_type, teacher.config.model_type
    if of_teacher not in (family, TEACHERS_OF.get(family)):
        others = [student for student, parent in TEACHERS_OF.items() if parent == of_teacher]
        raise ValueError(
            f"`model_class` must be of the teacher's family {of_teacher!r}"
            f"{''.join(f' or of {other!r}' for other in others)}, got {model_class.__name__} of {family!r}"
            f"{f', whose teachers are of {TEACHERS_OF[family]!r}' if family in TEACHERS_OF else ''}: its weights mean "
            "something else. To distil into it all the same, build it by its own class."
        )
    return model_class


def _named_class(teacher: PreTrainedModel, name: str) -> type[PreTrainedModel]:
    """The class of a named family with the teacher's head."""
    prefixes = {"distilbert": "DistilBert", "mobilebert": "MobileBert"}
    if name not in prefixes:
        raise ValueError(f"`model_class` must be a class, or one of {', '.join(prefixes)}, got {name!r}.")
    head = type(teacher).__name__.removeprefix("IB").removeprefix("Bert")
    if name == "distilbert" and head == "ForPreTraining":
        head = "ForMaskedLM"
    found = getattr(transformers, f"{prefixes[name]}{head}", None)
    if found is None:
        raise ValueError(
            f"`model_class` = {name!r} has no class with the head of {type(teacher).__name__}. Pass the class itself."
        )
    return found


def _sizes(size: str | None, **given: int | None) -> dict[str, int]:
    """Sizes by name and those given beside it, which win."""
    if size is not None and size not in SIZES:
        raise ValueError(f"`size` must be one of {', '.join(SIZES)}, got {size!r}.")
    named = {} if size is None else SIZES[size]
    sizes = {**named, **{name: value for name, value in given.items() if value is not None}}
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    return sizes


def _student_config(config: Any, student_class: type[PreTrainedModel], sizes: dict[str, int], chosen: Any) -> Any:
    """The teacher's config with other sizes, as the student's class has it."""
    width = sizes.get("hidden_size", config.hidden_size)
    heads = sizes.get("num_attention_heads", config.num_attention_heads)
    if width % heads:
        raise ValueError(
            f"`hidden_size` must be a multiple of `num_attention_heads`, got {width} and {heads}"
            f"{'' if 'num_attention_heads' in sizes else ' (the teacher has as many)'}: set both."
        )
    family = _family(student_class)
    if family == "mobilebert" and config.model_type == "ib_bert":
        return _mobilebert_config(config, student_class, sizes)
    inner = getattr(config, "intermediate_size", None)  # GPT-2's may be None: four times the width
    if "intermediate_size" not in sizes and width != config.hidden_size and inner is not None:
        sizes["intermediate_size"] = max(1, round(inner * width / config.hidden_size))
    if family == "distilbert" and config.model_type == "bert":
        return _distilbert_config(config, student_class, sizes)
    fields = config.to_dict()
    for name in WIDTHS:
        if fields.get(name) == config.hidden_size:
            fields[name] = width
    fields |= _fields_of_layers(fields, sizes["num_hidden_layers"], chosen)
    for name, value in sizes.items():
        fields[config.attribute_map.get(name, name)] = value
    for name in ("architectures", "_name_or_path"):
        fields.pop(name, None)
    made = type(config).from_dict(fields)
    made.dtype = None
    return made


def _fields_of_layers(fields: Mapping[str, Any], layers: int, chosen: Any) -> dict[str, Any]:
    """Fields that say something of single layers: ERNIE-THU's kinds, the reach of ZEN's n-grams."""
    changed: dict[str, Any] = {}
    kinds = fields.get("fusion_layer_types")
    if kinds is not None:
        changed["fusion_layer_types"] = None if chosen is None else [kinds[layer] for layer in chosen]
    if fields.get("num_hidden_word_layers") is not None:
        changed["num_hidden_word_layers"] = min(fields["num_hidden_word_layers"], layers)
    return changed


def _shared_fields(config: Any) -> dict[str, Any]:
    """What the task and the vocabulary say, for a config of another family."""
    fields = {name: getattr(config, name) for name in TASK_FIELDS if hasattr(config, name)}
    fields |= {name: getattr(config, name) for name in ("max_position_embeddings", "initializer_range")}
    return copy.deepcopy(fields)


def _distilbert_config(config: Any, student_class: Any, sizes: dict[str, int]) -> Any:
    if config.layer_norm_eps != 1e-12:
        logger.warning(
            f"DistilBERT's LayerNorms have an epsilon of 1e-12, this teacher's `layer_norm_eps` is "
            f"{config.layer_norm_eps}: the copied layers compute almost the same."
        )
    return student_class.config_class(
        **_shared_fields(config),
        n_layers=sizes["num_hidden_layers"],
        dim=sizes.get("hidden_size", config.hidden_size),
        n_heads=sizes.get("num_attention_heads", config.num_attention_heads),
        hidden_dim=sizes.get("intermediate_size", config.intermediate_size),
        dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob,
        activation=config.hidden_act,
    )


def _mobilebert_config(config: Any, student_class: Any, sizes: dict[str, int]) -> Any:
    """MobileBERT's own inside of a layer (four thin feed-forward networks, NoNorm), its teacher's outside."""
    for name in ("hidden_size", "num_attention_heads"):
        if sizes.get(name, getattr(config, name)) != getattr(config, name):
            raise ValueError(
                f"`{name}` must be the teacher's {getattr(config, name)} for MobileBERT, whose feature maps and "
                f"attention are compared without a projection, got {sizes[name]}."
            )
    heads = config.num_attention_heads
    intra = min(student_class.config_class().intra_bottleneck_size, config.hidden_size // 4)
    intra = max(intra // heads, 1) * heads  # inside, each head has its share
    return student_class.config_class(
        **_shared_fields(config),
        hidden_size=config.hidden_size,
        num_hidden_layers=sizes["num_hidden_layers"],
        num_attention_heads=config.num_attention_heads,
        intermediate_size=sizes.get("intermediate_size", 4 * intra),
        intra_bottleneck_size=intra,
        type_vocab_size=config.type_vocab_size,
        embedding_size=config.embedding_size,
        trigram_input=config.trigram_input,
        classifier_activation=config.classifier_activation,
    )


def _names(model: PreTrainedModel, state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """`base/...` and `head/...` -> name in the model's own state dict."""
    base = base_model(model)
    if base is model:
        return {f"base/{name}": name for name in state}
    prefix = f"{model.base_model_prefix}."
    return {f"base/{name.removeprefix(prefix)}" if name.startswith(prefix) else f"head/{name}": name for name in state}


def _copy(teacher: PreTrainedModel, student: PreTrainedModel, chosen: list[int]) -> StudentReport:
    """Copy, module by module, what has the same shape."""
    theirs, ours = teacher.state_dict(), student.state_dict()
    teacher_names = _names(teacher, theirs)
    of_teacher, of_student = teacher.config.model_type, student.config.model_type
    layout = LAYOUTS.get(of_teacher)
    stack = STACKS[of_teacher] if layout is None or of_teacher in STACKS else layout.layers
    layers = chosen if getattr(teacher.config, "num_hidden_groups", None) is None else None
    renames = None if of_teacher == of_student else OTHER_FAMILIES[of_student]
    same_heads = teacher.config.num_attention_heads == student.config.num_attention_heads
    modules: dict[str, list[tuple[str, str | None]]] = {}
    for name, key in _names(student, ours).items():
        modules.setdefault(key.rpartition(".")[0], []).append(
            (key, teacher_names.get(teacher_name(name, renames, stack, layers) or ""))
        )
    copied: dict[str, torch.Tensor] = {}
    for pairs in modules.values():
        sources = {key: theirs[source] for key, source in pairs if source is not None}
        fits = len(sources) == len(pairs) and all(ours[key].shape == value.shape for key, value in sources.items())
        splits_heads = any(
            value.dim() == 2 and ("attention." in key or ".attn." in key) for key, value in sources.items()
        )
        if fits and (same_heads or not splits_heads):
            copied |= sources
    with torch.no_grad():
        for key, value in copied.items():
            ours[key].copy_(value)
    reached = {ours[key].data_ptr() for key in copied}
    parameters = dict(student.named_parameters())
    fresh = tuple(name for name, value in parameters.items() if value.data_ptr() not in reached)
    return StudentReport(tuple(chosen), tuple(name for name in parameters if name not in fresh), fresh)


def rectify_classifier_input(model: nn.Module) -> RemovableHandle:
    """Let a BERT classifier read relu(pooled output), as TinyBERT's released `forward` does.

    Only classifiers that the released code has trained need it; students trained here read the pooled output as BERT
    does, and their checkpoints mean the same everywhere.

    Args:
        model: a BERT model for sequence classification.

    Returns:
        A handle: `remove()` takes it back. Nothing of it is saved with the model.

    Raises:
        ValueError: the model has no `classifier`.
    """
    classifier = getattr(model, "classifier", None)
    if not isinstance(classifier, nn.Module):
        raise ValueError(f"`model` must have a `classifier`, {type(model).__name__} has none.")

    def rectified(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (torch.relu(arguments[0]), *arguments[1:])

    return classifier.register_forward_pre_hook(rectified)
