"""What `hf-ptm-ext adapt` can be told beside the model and the data."""

from dataclasses import dataclass, field

from .finetune_arguments import FinetuneModelArguments, KnowledgeGraphArguments, TaskDataArguments, check
from .seeded_arguments import SeededArguments, parse_groups

FULL, LORA = "full", "lora"
BOTTLENECKS = ("houlsby", "pfeiffer")
METHODS = (*BOTTLENECKS, LORA, FULL)


@dataclass
class AdapterArguments:
    """Which parameters are trained."""

    methods: list[str] = field(
        default_factory=lambda: ["houlsby", FULL],
        metadata={
            "help": f"Trained with each seed, of {', '.join(METHODS)} (all weights); the first one is saved, the "
            "others stand beside it."
        },
    )
    reduction_factor: float = field(default=16.0, metadata={"help": "Hidden size over bottleneck (default 16)."})
    bottleneck_size: int | None = field(default=None, metadata={"help": "Width of the bottleneck itself (paper: 64)."})
    non_linearity: str | None = field(
        default=None, metadata={"help": "Inside the bottleneck (default: gelu for houlsby, relu for pfeiffer)."}
    )
    init_weights: str = field(default="identity", metadata={"help": "identity, truncated_normal or bert."})
    leave_out: list[int] = field(default_factory=list, metadata={"help": "Layers without adapters, from 0."})
    train_layer_norms: bool | None = field(
        default=None, metadata={"help": "Train the LayerNorms too (default: with houlsby, as in the paper)."}
    )
    lora_r: int = field(default=8, metadata={"help": "Rank of LoRA."})
    full_learning_rate: float = field(
        default=3e-5, metadata={"help": "Learning rate of full fine-tuning; the others take learning_rate."}
    )


@dataclass
class AdaptArguments(SeededArguments):
    """Arguments of training, with those of google-research/adapter-bert where they are a matter of adapters."""

    output_dir: str = field(default="outputs/adapter", metadata={"help": "Where results and the adapter go."})
    num_train_epochs: float = field(default=5.0, metadata={"help": "Passes over the data (adapter-bert: 5)."})
    learning_rate: float = field(default=3e-4, metadata={"help": "Peak learning rate of adapters (3e-4)."})


GROUPS = (FinetuneModelArguments, TaskDataArguments, AdapterArguments, AdaptArguments)


def parse(
    arguments: list[str],
) -> tuple[FinetuneModelArguments, TaskDataArguments, AdapterArguments, AdaptArguments]:
    """Parse `[RECIPE] [--flag value ...] [--overrides name=value ...]`; later values win.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The four groups of arguments.

    Raises:
        ValueError: an unknown recipe key, or values that contradict each other.
    """
    description = "Train adapters on an encoder, by seeds, beside other methods and full fine-tuning."
    model, data, adapter, training = parse_groups(arguments, GROUPS, "adapt", description)
    check(data, KnowledgeGraphArguments(), training)
    unknown = [name for name in adapter.methods if name not in METHODS]
    if unknown or len(set(adapter.methods)) != len(adapter.methods) or not adapter.methods:
        raise ValueError(f"`methods` must be different ones of {', '.join(METHODS)}, got {adapter.methods}.")
    if adapter.methods[0] == FULL:
        raise ValueError(
            "`methods` must begin with an adapter, which is saved: `hf-ptm-ext finetune` saves whole models."
        )
    check_bottlenecks(adapter)
    return model, data, adapter, training


def check_bottlenecks(adapter: AdapterArguments) -> None:
    """Refuse options of any method before the first one trains.

    Args:
        adapter: has them.

    Raises:
        ValueError: see the configurations.
    """
    from ..adapters import HoulsbyConfig, PfeifferConfig

    names = ("reduction_factor", "bottleneck_size", "init_weights", "leave_out", "non_linearity")
    given = {name: getattr(adapter, name) for name in names if getattr(adapter, name) is not None}
    for method, config in zip(BOTTLENECKS, (HoulsbyConfig, PfeifferConfig), strict=True):
        if method in adapter.methods:
            config(**given)


__all__ = ["BOTTLENECKS", "FULL", "GROUPS", "LORA", "METHODS", "AdaptArguments", "AdapterArguments", "parse"]
