"""What all families share in conversion: how a file is compared with the model that it is said to be, both ways.

A file is renamed key by key, by its family; then every key, kind, shape, value and layer is compared with an empty
model of the config, and the tied entries that a file may leave out are added. Pooler and heads may be missing whole.
The way back compares what it is given in the same manner before anything is renamed.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..weights import not_finite
from .files import name_some
from .report import Conversion

Tensors = dict[str, torch.Tensor]
Shapes = dict[str, tuple[int, ...]]

WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
# Our tied entries -> the entry that they repeat.
TIED = {
    "cls.predictions.decoder.weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Groups that a file has whole or not at all, and what loading makes new of those that it lacks.
HEADS = ("bert.pooler.", "cls.predictions.", "cls.seq_relationship.")
HEAD_NAMES = {"cls.predictions.": "masked-language-model head", "cls.seq_relationship.": "next-sentence head"}
# Index buffers of older transformers: no weights.
BUFFERS = r"embeddings\.(position_ids|token_type_ids)$"
# pattern of a key, replacement, what the report calls it
RENAMES = (
    (r"^module\.", "", "prefix `module.` taken off"),
    (r"^(embeddings|encoder|pooler)\.", r"bert.\1.", "prefix `bert.` put in front"),
    (r"LayerNorm\.gamma$", "LayerNorm.weight", "LayerNorm `gamma` to `weight`"),
    (r"LayerNorm\.beta$", "LayerNorm.bias", "LayerNorm `beta` to `bias`"),
)
# Dimensions that a config field decides: key pattern, dimension, field.
DIMENSIONS = (
    (rf"{re.escape(WORD_EMBEDDINGS)}|cls\.\w+\.(decoder\.weight|decoder\.bias|bias)", 0, "vocab_size"),
    (r"bert\.embeddings\.position_embeddings\.weight", 0, "max_position_embeddings"),
    (r"bert\..*token_type_embeddings\.weight", 0, "type_vocab_size"),
    (r"bert\.encoder\..*\.intermediate\.dense\.(weight|bias)", 0, "intermediate_size"),
)
KINDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Layout:
    """How one family's files look.

    Args:
        title: the system's name, for messages.
        model: makes the model that holds all parts of a file from a config.
        prefix: prefix of its model classes.
        foreign: how a message about foreign keys begins (default: they fit nowhere in the pre-training model).
        hint: how it ends.
        blame: what a message about a shape says of the field, of its value and of the file's.
        renames: (pattern, replacement, description), tried in order on each key.
        buffers: pattern of keys that are no weights.
        stacks: lists of layers -> the config field that counts them.
        dimensions: (key pattern, dimension, config field), for messages about shapes.
        parts: prefixes of what a file has whole or not at all; the rest must be there.
        needs: part -> the part that it reads: a file with the one has the other.
        tied: our tied entries -> the entry that they repeat.
        more_shapes: from a config and the tensors, names and shapes of parts that `model` lacks (fine-tuned heads).
        optional: pattern of single names that a file may lack.
        field_names: config field -> how messages name it, where the original's name is another.
        example: a name of a weight as the original's files have it.
        original_name: from our name, the config and the names of a file, the name that the file would have.
    """

    title: str
    model: Callable[[Any], nn.Module]
    prefix: str = ""
    foreign: str = ""
    hint: str = "Remove them from the file, or convert it with the module of its own family."
    blame: str = "{0} is {1} in the config, {2} in the file"
    renames: tuple[tuple[str, str, str], ...] = RENAMES
    buffers: str = BUFFERS
    stacks: tuple[tuple[str, str], ...] = (("bert.encoder.layer", "num_hidden_layers"),)
    dimensions: tuple[tuple[str, int, str], ...] = (*DIMENSIONS, (r".*", -1, "hidden_size"))
    parts: tuple[str, ...] = HEADS
    needs: Mapping[str, str] = field(default_factory=lambda: {"cls.seq_relationship.": "bert.pooler."})
    tied: Mapping[str, str] = field(default_factory=lambda: TIED)
    more_shapes: Callable[[Any, Mapping[str, torch.Tensor]], Shapes] = lambda config, tensors: {}
    optional: str = r"(?!)"
    field_names: Mapping[str, str] = field(default_factory=dict)
    example: str = "bert.encoder.layer.0.output.dense.weight"
    original_name: Callable[[str, Any, Iterable[str]], str] = lambda name, config, names: name

    def describe_key(self, key: str) -> tuple[str, tuple[str, ...]]:
        """Our name for a key of a file, and what was changed.

        Args:
            key: a name as the file has it.

        Returns:
            The name and the descriptions of its changes.
        """
        changes = []
        for pattern, replacement, description in self.renames:
            renamed = re.sub(pattern, replacement, key)
            if renamed != key:
                changes.append(description)
            key = renamed
        return key, tuple(changes)

    def convert_tensors(self, original: Mapping[str, torch.Tensor], config: Any) -> Tensors:
        """Our state dict from a file's.

        Args:
            original: tensors under the file's names; pooler and heads may be missing whole.
            config: the configuration.

        Returns:
            The tensors under our names, those of the file itself; tied entries of a vocabulary head are there whether
            the file has them or not.

        Raises:
            ValueError: as `check`.
        """
        named = ((self.describe_key(key)[0], key, tensor) for key, tensor in original.items())
        kept = ((name, key, tensor) for name, key, tensor in named if not re.search(self.buffers, name))
        return self.check(*by_our_names(kept), config)

    def check(self, converted: Tensors, sources: Mapping[str, str], config: Any) -> Tensors:
        """Compare a renamed file with the model of the config, and add the tied entries that the file lacks.

        Args:
            converted: tensors under our names.
            sources: our name -> the file's, for messages.
            config: the configuration.

        Returns:
            The tensors, each in memory of its own as far as it was a part or a view of another.

        Raises:
            ValueError: a key, a kind, a shape, a value or the number of layers does not fit the config, weights of the
                encoder or of a head are missing, or a tied copy differs from what it is tied to. Keys are named.
        """
        self.check_layers(converted, config)
        foreign = self.foreign or f"These keys fit nowhere in {self.title}'s pre-training model"
        self._compare(converted, sources, config, foreign)
        return self._tied({name: own_memory(tensor) for name, tensor in converted.items()}, config)

    def check_ours(self, ours: Mapping[str, torch.Tensor], config: Any) -> None:
        """Compare a state dict of ours with the model of the config before it is given the original's names.

        Args:
            ours: tensors under our names, tied entries included or not.
            config: their configuration.

        Raises:
            ValueError: as `check`.
        """
        if any(layer_numbers(ours, f"{stack}.") for stack, _ in self.stacks):
            self.check_layers(ours, config)
        message = f"These keys are not of a {self.title} model with this config"
        self._compare(ours, {name: name for name in ours}, config, message)
        self._tied(ours, config)

    def revert_tensors(
        self, ours: Mapping[str, torch.Tensor], config: Any, tied_copies: bool | None = None
    ) -> Tensors:
        """The original's state dict from ours: the same names, without a bias of the decoder.

        Args:
            ours: tensors of the pre-training model, or of its encoder and some of its heads.
            config: their configuration.
            tied_copies: whether to write the heads' copies of the word embeddings, as the original's files have them.
                `None` (default) writes those that `ours` has as entries of their own, so what `convert_tensors` added
                is left out again.

        Returns:
            The tensors.

        Raises:
            ValueError: as `check_ours`.
        """
        self.check_ours(ours, config)
        reverted = {key: tensor for key, tensor in ours.items() if key not in self.tied}
        for key, source in self.tied.items():
            if key.endswith(".bias"):
                continue
            copied = key in ours and ours[key] is not ours.get(source)
            if copied if tied_copies is None else tied_copies and has_part(ours, f"{key.rsplit('.', 2)[0]}."):
                reverted[key] = ours.get(key, ours[source])
        return reverted

    def convert_file(self, original: Mapping[str, torch.Tensor], config: Any) -> Conversion:
        """Convert a checkpoint as it was found.

        Args:
            original: tensors under the file's names.
            config: the configuration.

        Returns:
            Configuration, tensors and report. Tied copies are not among the tensors, and neither are heads that the
            file lacks: loading says that those are new.

        Raises:
            ValueError: as `convert_tensors`.
        """
        converted = self.convert_tensors(original, config)
        names = {key: self.describe_key(key) for key in original}
        tied = self.tied_names(config)
        dropped = {key: "a buffer, no weight" for key, (name, _) in names.items() if re.search(self.buffers, name)}
        dropped |= {key: f"tied to `{self.tied[name]}`" for key, (name, _) in names.items() if name in tied}
        counts = Counter(change for _, changes in names.values() for change in changes)
        heads = [head for head in HEAD_NAMES if has_part(converted, head)]
        kind = {("cls.predictions.",): "ForMaskedLM", (): "Model"}.get(tuple(heads), "ForPreTraining")
        return Conversion(
            config=config,
            tensors={name: tensor for name, tensor in converted.items() if name not in tied},
            architecture=f"{self.prefix}{kind}",
            renamed=dict(counts),
            dropped=dropped,
            initialised=lacking_parts(converted, HEAD_NAMES),
        )

    def revert_file(self, ours: Mapping[str, torch.Tensor], config: Any) -> Tensors:
        """The original's file from a checkpoint of ours.

        Args:
            ours: tensors as one of our classes saved them, the bare encoder's without `bert.` included.
            config: their configuration.

        Returns:
            The state dict, with the decoder's copy of the word embeddings.

        Raises:
            ValueError: as `revert_tensors`.
        """
        return self.revert_tensors({self.describe_key(key)[0]: tensor for key, tensor in ours.items()}, config, True)

    def tied_names(self, config: Any) -> set[str]:
        """Names that are not written: their tensor is there under another one."""
        return {name for name in self.tied if config.tie_word_embeddings or name.endswith(".bias")}

    def shapes(self, config: Any, tensors: Mapping[str, torch.Tensor]) -> Shapes:
        """Names and shapes of every part that a file of this config can have; nothing is allocated."""
        with torch.device("meta"):
            model = self.model(config)
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        return shapes | self.more_shapes(config, tensors)

    def check_layers(self, names: Iterable[str], config: Any) -> None:
        """Compare the numbers of the layers with the config's, before a model of as many is made."""
        for stack, field_name in self.stacks:
            layers = layer_numbers(names, f"{stack}.")
            wanted, shown = getattr(config, field_name), self.field_names.get(field_name, f"`{field_name}`")
            if not layers and wanted:
                raise ValueError(
                    f"The file has no encoder layer (`{stack}.*`): expected names of layers like `{self.example}`, "
                    f"got {name_some(sorted(names))}."
                )
            found = max(layers, default=-1) + 1
            if found != wanted:
                raise ValueError(
                    f"{shown} must be the number of layers in the file, {found}, got {wanted}. Use the config that "
                    "belongs to the weights."
                )

    def _compare(
        self, tensors: Mapping[str, torch.Tensor], sources: Mapping[str, str], config: Any, foreign: str
    ) -> None:
        """Kinds and values, names both ways, shapes."""
        check_weights({sources[name]: tensor for name, tensor in tensors.items()})
        expected = self.shapes(config, tensors)
        unknown = [sources[name] for name in tensors if name not in expected]
        if unknown:
            raise ValueError(f"{foreign}: {name_some(unknown)}. {self.hint}")
        present = tuple(part for part in self.parts if has_part(tensors, part))
        present += tuple(need for part, need in self.needs.items() if part in present)
        added = {name for name in self.tied_names(config) if self.tied[name] in tensors}
        lacking = [
            name
            for name in expected
            if name not in added.union(tensors)
            and (not name.startswith(self.parts) or name.startswith(present))
            and not re.search(self.optional, name)
        ]
        if lacking:
            if any(name != source for name, source in sources.items()):
                theirs = [self.original_name(name, config, sources.values()) for name in lacking]
                pairs = zip(lacking, theirs, strict=True)
                lacking = [name if name == other else f"{name}`, in the file `{other}" for name, other in pairs]
            raise ValueError(
                f"The file lacks weights: {name_some(lacking)}. The encoder must be complete, and each head that is "
                "there."
            )
        for name, tensor in tensors.items():
            if tuple(tensor.shape) != expected[name]:
                raise ValueError(self._shape_message(sources[name], name, tuple(tensor.shape), expected[name]))

    def _shape_message(self, key: str, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> str:
        """Names the config field behind a wrong shape, where one dimension is to blame."""
        ours = "" if key == name else f" (`{name}`)"
        message = f"`{key}`{ours} has the shape {shape} and the config asks for {expected}"
        for pattern, dimension, field_name in self.dimensions:
            applies = re.fullmatch(pattern, name) and len(shape) == len(expected)
            if applies and shape[dimension] != expected[dimension]:
                shown = self.field_names.get(field_name, f"`{field_name}`")
                return f"{message}: {self.blame.format(shown, expected[dimension], shape[dimension])}."
        return f"{message}. Use the config that belongs to the weights."

    def _tied(self, tensors: Mapping[str, torch.Tensor], config: Any) -> Tensors:
        """The tensors and the tied entries that they lack; entries that differ from what they repeat are refused."""
        complete, tied = dict(tensors), self.tied_names(config)
        for name, source in self.tied.items():
            part = next((part for part in self.parts if name.startswith(part)), "")
            if name not in tied or source not in complete or not has_part(complete, part):
                continue
            if not torch.equal(complete.setdefault(name, complete[source]), complete[source]):
                raise ValueError(
                    f"`{name}` differs from `{source}`, to which {self.title} ties it: the file is no {self.title} "
                    "checkpoint, or it was trained untied (`tie_word_embeddings` false). One of them would be lost."
                )
        return complete


def by_our_names(named: Iterable[tuple[str, str, torch.Tensor]]) -> tuple[Tensors, dict[str, str]]:
    """Tensors by our names, and the file's name of each, from triples of our name, the file's and the tensor."""
    tensors: Tensors = {}
    sources: dict[str, str] = {}
    for name, key, tensor in named:
        if name in tensors:
            raise ValueError(f"The keys `{sources[name]}` and `{key}` both stand for `{name}`: remove one.")
        tensors[name], sources[name] = tensor, key
    return tensors, sources


def check_weights(tensors: Mapping[str, Any]) -> None:
    """Refuse what is no dense matrix of finite floating point numbers; names are those of the file."""
    if not tensors:
        raise ValueError("There are no weights: the state dict is empty.")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"`{name}` must be a tensor, got a {type(tensor).__name__}.")
        if tensor.dtype not in KINDS:
            raise ValueError(
                f"`{name}` must hold floating point numbers, got {tensor.dtype}: it is quantised, an index, or of "
                "another model. Convert the file that was trained."
            )
        if tensor.layout != torch.strided or tensor.is_meta or 0 in tensor.shape:
            kind = f"{tensor.layout}, shape {tuple(tensor.shape)}, on {tensor.device.type}"
            raise ValueError(f"`{name}` must be a matrix of values, got {kind}.")
        # Repeated values cost no memory in the file and all of it when they are read.
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
            raise ValueError(f"`{name}` claims {tensor.numel()} values and holds fewer: save it in full.")
    damaged = not_finite(tensors)
    if damaged:
        raise ValueError(
            f"These weights hold NaN or infinity: {name_some(damaged)}. The run that wrote them diverged, or the file "
            "is damaged: take an earlier checkpoint."
        )


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a copy of what is a view or a part of another: safetensors writes neither."""
    whole = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if whole else tensor.clone(memory_format=torch.contiguous_format)


def unshared(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """The tensors to be written, no two of them in the same memory."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if place in seen else own_memory(tensor)
        seen.add(place)
    return result


def has_part(tensors: Iterable[str], part: str) -> bool:
    """Whether any name begins with a prefix."""
    return any(name.startswith(part) for name in tensors)


def lacking_parts(tensors: Iterable[str], parts: Mapping[str, str]) -> dict[str, str]:
    """What a report says of the parts that a file lacks: pattern of their names -> what they are."""
    names = list(tensors)
    return {f"{part}*": what for part, what in parts.items() if not has_part(names, part)}


def layer_numbers(names: Iterable[str], prefix: str) -> set[int]:
    """Numbers of the layers under a prefix."""
    matches = (re.match(rf"{re.escape(prefix)}([0-9]{{1,9}})\.", name) for name in names)
    return {int(match[1]) for match in matches if match}


def size_of(tensors: Mapping[str, torch.Tensor], name: str, dimension: int = 0) -> int | None:
    """A size that a file tells, `None` if the tensor is not there or is a single number."""
    tensor = tensors.get(name)
    return None if tensor is None or tensor.ndim <= max(dimension, 0) else tensor.shape[dimension]
