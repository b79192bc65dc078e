"""What the families that keep BERT's names and BERT's two pre-training heads share in conversion.

A file is renamed key by key, compared with the pre-training model of the family (every key, every shape, every layer),
and completed by the tied entries that it may leave out. Pooler and heads may be missing whole.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .files import name_some
from .report import Conversion

Tensors = dict[str, torch.Tensor]

WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
# Our tied entries -> the entry that they repeat.
TIED = {
    "cls.predictions.decoder.weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Groups that a file has whole or not at all.
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
    (rf"{re.escape(WORD_EMBEDDINGS)}|cls\.predictions\.(decoder\.weight|decoder\.bias|bias)", 0, "vocab_size"),
    (r"bert\.embeddings\.position_embeddings\.weight", 0, "max_position_embeddings"),
    (r"bert\..*token_type_embeddings\.weight", 0, "type_vocab_size"),
    (r"bert\.encoder\..*\.intermediate\.dense\.(weight|bias)", 0, "intermediate_size"),
)


@dataclass(frozen=True)
class Layout:
    """How one family's files look.

    Args:
        title: the system's name, for messages.
        prefix: prefix of its model classes.
        pretraining_model: makes the pre-training model from a config.
        renames: (pattern, replacement, description), tried in order on each key.
        buffers: pattern of keys that are no weights.
        stacks: lists of layers -> the config field that counts them.
        dimensions: (key pattern, dimension, config field), for messages about shapes.
    """

    title: str
    prefix: str
    pretraining_model: Callable[[Any], nn.Module]
    renames: tuple[tuple[str, str, str], ...] = RENAMES
    buffers: str = BUFFERS
    stacks: tuple[tuple[str, str], ...] = (("bert.encoder.layer", "num_hidden_layers"),)
    dimensions: tuple[tuple[str, int, str], ...] = (*DIMENSIONS, (r".*", -1, "hidden_size"))

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
            ValueError: a key, a shape or the number of layers does not fit the config, weights of the encoder or a
                part of a head are missing, or a tied copy differs from what it is tied to. Keys are named.
        """
        converted: Tensors = {}
        sources: dict[str, str] = {}
        for key, tensor in original.items():
            name, _ = self.describe_key(key)
            if re.search(self.buffers, name):
                continue
            if name in converted:
                raise ValueError(f"The keys `{sources[name]}` and `{key}` both stand for `{name}`: remove one.")
            converted[name], sources[name] = tensor, key
        self._check_layers(converted, config)
        expected = self._expected_shapes(config)
        unknown = [key for name, key in sources.items() if name not in expected]
        if unknown:
            raise ValueError(
                f"These keys fit nowhere in {self.title}'s pre-training model: {name_some(unknown)}. Remove them from "
                "the file, or convert it with the module of its own family."
            )
        for name, tensor in converted.items():
            if tuple(tensor.shape) != expected[name]:
                raise ValueError(self._shape_message(sources[name], name, tuple(tensor.shape), expected[name]))
        self._tie(converted, config)
        present = tuple(head for head in HEADS if any(name.startswith(head) for name in converted))
        missing = [name for name in expected if name not in converted]
        lacking = [name for name in missing if not name.startswith(HEADS) or name.startswith(present)]
        if lacking:
            raise ValueError(
                f"The file lacks weights: {name_some(lacking)}. The encoder must be complete, and each head that is "
                "there."
            )
        return converted

    def revert_tensors(
        self, ours: Mapping[str, torch.Tensor], config: Any, tied_copies: bool | None = None
    ) -> Tensors:
        """The original's state dict from ours: the same names, without a bias of the decoder.

        Args:
            ours: tensors of the pre-training model or of a part of it.
            config: their configuration.
            tied_copies: whether to write the decoder's copy of the word embeddings, as the original's files have it.
                `None` (default) writes it if `ours` has it as an entry of its own, so what `convert_tensors` added is
                left out again.

        Returns:
            The tensors.

        Raises:
            ValueError: a key is not one of the pre-training model, or a bias untied from its head would be lost.
        """
        expected = self._expected_shapes(config)
        unknown = [key for key in ours if key not in expected]
        if unknown:
            raise ValueError(
                f"These keys are not of a {self.title} pre-training model with this config: {name_some(unknown)}."
            )
        weight, bias = TIED
        own = ours.get(TIED[bias])
        if bias in ours and own is not None and not torch.equal(own, ours[bias]):
            raise ValueError(f"`{bias}` differs from `{TIED[bias]}`, and the original has one bias only.")
        reverted = {key: tensor for key, tensor in ours.items() if key not in TIED}
        copied = weight in ours and ours[weight] is not ours.get(WORD_EMBEDDINGS)
        if copied if tied_copies is None else tied_copies and TIED[bias] in ours:
            reverted[weight] = ours.get(weight, ours[WORD_EMBEDDINGS])
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
        tied = {name for name in TIED if config.tie_word_embeddings or name.endswith(".bias")}
        dropped = {key: "a buffer, no weight" for key, (name, _) in names.items() if re.search(self.buffers, name)}
        dropped |= {key: f"tied to `{TIED[name]}`" for key, (name, _) in names.items() if name in tied}
        counts = Counter(change for _, changes in names.values() for change in changes)
        heads = [head for head in HEAD_NAMES if any(name.startswith(head) for name in converted)]
        kind = {("cls.predictions.",): "ForMaskedLM", (): "Model"}.get(tuple(heads), "ForPreTraining")
        return Conversion(
            config=config,
            tensors={name: tensor for name, tensor in converted.items() if name not in tied},
            architecture=f"{self.prefix}{kind}",
            renamed=dict(counts),
            dropped=dropped,
            initialised={f"{head}*": what for head, what in HEAD_NAMES.items() if head not in heads},
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

    def _expected_shapes(self, config: Any) -> dict[str, tuple[int, ...]]:
        with torch.device("meta"):
            model = self.pretraining_model(config)
        return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}

    def _check_layers(self, names: Mapping[str, torch.Tensor], config: Any) -> None:
        for stack, field in self.stacks:
            matches = [re.match(rf"{re.escape(stack)}\.(\d+)\.", name) for name in names]
            layers = {int(match[1]) for match in matches if match}
            if not layers and getattr(config, field):
                raise ValueError(
                    f"The file has no `{stack}.*`: expected names like `{stack}.0.output.dense.weight`, got "
                    f"{name_some(sorted(names))}."
                )
            found = max(layers, default=-1) + 1
            if found != getattr(config, field):
                raise ValueError(
                    f"`{field}` must be the number of layers in the file, {found}, got {getattr(config, field)}. Use "
                    "the config that belongs to the weights."
                )

    def _shape_message(self, key: str, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> str:
        """Names the config field behind a wrong shape, where one dimension is to blame."""
        message = f"`{key}` has shape {shape} and the config asks for {expected}"
        for pattern, dimension, field in self.dimensions:
            applies = re.fullmatch(pattern, name) and len(shape) == len(expected)
            if applies and shape[dimension] != expected[dimension]:
                return f"{message}: `{field}` is {expected[dimension]} in the config, {shape[dimension]} in the file."
        return f"{message}. Use the config that belongs to the weights."

    def _tie(self, converted: Tensors, config: Any) -> None:
        """Add tied entries that the file lacks, and refuse those that differ from what they would be tied to."""
        for name, source in TIED.items():
            if source not in converted or not any(key.startswith("cls.predictions.") for key in converted):
                continue
            if name not in converted:
                converted[name] = converted[source]
            elif (config.tie_word_embeddings or name.endswith(".bias")) and not torch.equal(
                converted[name], converted[source]
            ):
                raise ValueError(
                    f"`{name}` differs from `{source}`, to which {self.title} ties it: the file is no {self.title} "
                    "checkpoint, or it was trained untied."
                )


def read_fields(original: Mapping[str, Any], fields: tuple[str, ...], sizes: tuple[str, ...]) -> dict[str, Any]:
    """The fields of an original config that a family reads.

    Args:
        original: the config as its JSON holds it; what is not listed says nothing about the model.
        fields: names that are the same in ours.
        sizes: those that must be there.

    Returns:
        The fields that have a value.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: a size is missing.
    """
    if not isinstance(original, Mapping):
        raise TypeError(f"`original` must be a mapping of options, got a {type(original).__name__}.")
    missing = [name for name in sizes if original.get(name) is None]
    if missing:
        raise ValueError(
            f"The original config must give the sizes of the model; {name_some(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing. Pass the config file that belongs to the weights."
        )
    return {name: original[name] for name in fields if original.get(name) is not None}
