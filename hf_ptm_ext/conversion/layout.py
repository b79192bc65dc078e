"""What all families share in conversion: how a file is compared with the model that it is said to be, both ways.

A family is a subclass of `Layout`: what its files look like as attributes, what is done otherwise as methods. Keys are
renamed, then every key, kind, shape, value and layer is compared with an empty model of the config.
"""

import importlib
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..files import write_json
from .files import Checkpoint, beside, name_some, read_checkpoint
from .options import check_options, made_config, read_fields
from .tensors import (
    File,
    Options,
    State,
    Tensors,
    TokenizerFiles,
    Words,
    by_our_names,
    check_weights,
    has_part,
    layer_numbers,
    own_memory,
)
from .vocabulary import copy_vocabulary, read_vocabulary

Shapes = dict[str, tuple[int, ...]]

WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
# Our tied entries -> the entry that they repeat.
TIED = {DECODER: WORD_EMBEDDINGS, "cls.predictions.decoder.bias": "cls.predictions.bias"}
# Index buffers of older transformers: no weights.
BUFFERS = r"embeddings\.(position_ids|token_type_ids)$"
# pattern of a key, replacement, what the report calls it
PREFIX = (r"^module\.", "", "prefix `module.` taken off")
ENCODER = (r"^(embeddings|encoder|pooler)\.", r"bert.\1.", "prefix `bert.` put in front")
_GAMMA = "LayerNorm `gamma`, `beta` to `weight`, `bias`"
LAYER_NORMS = (
    (r"(LayerNorm(_ent)?|layer_norm[12])\.gamma$", r"\1.weight", _GAMMA),
    (r"(LayerNorm(_ent)?|layer_norm[12])\.beta$", r"\1.bias", _GAMMA),
)
# Names of TensorFlow's codes, with slashes; `TRANSPOSED` are the variables that ours are the transpose of.
TRANSPOSED = r"/kernel(:0)?$"
TENSORFLOW = (
    (r":0$", "", "suffix `:0` taken off"),
    (r"^cls/predictions/output_bias$", "cls/predictions/bias", "`output_bias` to `bias`"),
    (r"^cls/seq_relationship/output_weights$", "cls/seq_relationship/weight", "`output_...` of the sentence head"),
    (r"^cls/seq_relationship/output_bias$", "cls/seq_relationship/bias", "`output_...` of the sentence head"),
    (r"/kernel$", "/weight", "`kernel` to `weight`, transposed"),
    (r"/gamma$", "/weight", "`gamma` to `weight`"),
    (r"/beta$", "/bias", "`beta` to `bias`"),
    (r"(/\w+_embeddings)$", r"\1/weight", "tables to `weight`"),
    (r"/layer_(\d+)/", r"/layer/\1/", "`layer_i` to `layer.i`"),
    (r"/", ".", "`/` to `.`"),
)
RENAMES = (PREFIX, *TENSORFLOW, ENCODER, *LAYER_NORMS)
MASKED_LM = {"cls.predictions.": "masked-language-model head"}
NEXT_SENTENCE = {"cls.seq_relationship.": "next-sentence head"}
# Dimensions that a config field decides: key pattern, dimension, field.
DIMENSIONS = (
    (rf"{re.escape(WORD_EMBEDDINGS)}|cls\.\w+\.(decoder\.weight|decoder\.bias|bias)", 0, "vocab_size"),
    (r"bert\.embeddings\.position_embeddings\.weight", 0, "max_position_embeddings"),
    (r"bert\..*token_type_embeddings\.weight", 0, "type_vocab_size"),
    (r"bert\.encoder\..*\.intermediate\.dense\.(weight|bias)", 0, "intermediate_size"),
)
BERT_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
BERT_FIELDS = (
    *BERT_SIZES,
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)
# Methods of a layout that its family's module has as functions.
FUNCTIONS = (
    *("describe_key", "read_vocabulary", "wordpiece_tokenizer", "convert_config", "convert_state_dict"),
    *("convert_checkpoint", "revert_config", "revert_state_dict", "revert_checkpoint"),
)


@dataclass(frozen=True)
class Conversion:
    """A converted checkpoint, ready to be written, and what the command reports of it.

    Args:
        config: our configuration.
        tensors: what `model.safetensors` will hold, under our names.
        architecture: the class that holds all of it.
        renamed: kind of change of a name -> number of keys, such as `{"prefix `decoder.` taken off": 40}`.
        dropped: keys of the file that are not written, each with the reason.
        initialised: heads that the file lacks, each with what it predicts: loading them gives fresh weights.
        assumed: fields of the config that nothing in the checkpoint says, each with the value taken and why.
        filled: parts of the encoder that the file lacks, each with what it is: fresh weights are among the tensors.
    """

    config: Any
    tensors: Tensors
    architecture: str
    renamed: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    initialised: dict[str, str] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    filled: dict[str, str] = field(default_factory=dict)


class Layout:
    """How one family's files look.

    `title` is the system's name in messages, `family` our `model_type`, `prefix` that of its model classes. Names of
    weights are ours where nothing else is said, and are looked for after `renames`.
    """

    title: str
    family: str
    prefix: str
    config_class: type[PreTrainedConfig]

    # ---- options ----
    fields: tuple[str, ...] = BERT_FIELDS  # read under our names
    sizes: tuple[str, ...] = BERT_SIZES  # those of them that must be there
    theirs: Mapping[str, str] = {}  # the original's name of a field -> ours, which goes before
    own: tuple[str, ...] = ()  # fields that the original has not, or under its own name
    fixed: tuple[str, ...] = ()  # fields with a single possible value, which no configuration keeps
    infers_sizes = False  # whether a file can do without options

    # ---- weights ----
    renames: tuple[tuple[str, str, str], ...] = RENAMES  # (pattern, replacement, description), in order on each key
    transposed = TRANSPOSED  # pattern of a file's keys whose matrices are the transpose of ours
    buffers = BUFFERS  # pattern of keys that are no weights
    stacks: tuple[tuple[str, str], ...] = (("bert.encoder.layer", "num_hidden_layers"),)  # layers -> the field
    dimensions: tuple[tuple[str, int, str], ...] = (*DIMENSIONS, (r".*", -1, "hidden_size"))  # for messages
    heads: Mapping[str, str] = MASKED_LM | NEXT_SENTENCE  # prefixes of the heads of pre-training, and their names
    other_parts: tuple[str, ...] = ("bert.pooler.",)  # what else a file has whole or not at all
    needs: Mapping[str, str] = {"cls.seq_relationship.": "bert.pooler."}  # part -> the part that it reads
    tied: Mapping[str, str] = TIED  # our tied entries -> the entry that they repeat
    optional = r"(?!)"  # pattern of single names that a file may lack
    whole = "ForPreTraining"  # end of the name of the class that `model` makes
    classes: Mapping[str, str] = {}  # part -> end of the name of the class that holds it, where heads do not tell

    # ---- messages ----
    foreign = "These keys fit nowhere in {title}'s pre-training model"
    hint = "Remove them from the file, or convert it with the module of its own family."
    blame = "{0} is {1} in the config, {2} in the file"  # the field, its value, the file's
    field_names: Mapping[str, str] = {}  # field -> how messages name it, where the original's name is another
    example = "bert.encoder.layer.0.output.dense.weight"
    their_mark = r"(?!)"  # pattern of keys by which a file with the original's names is known from a BERT's

    # ---- files ----
    model_type = ""  # of our checkpoints, where it is not the family's name
    wordpieces = True  # whether its vocabulary is WordPiece, as BERT's; else `tokenizer_from` makes its files
    vocabulary_files: tuple[str, ...] = ("vocab.txt",)
    word_files: tuple[str, ...] = ()  # the same where they are no word pieces
    tokenizer_files: Mapping[str, str] = {}  # argument of `wordpiece_tokenizer` -> the file beside the weights
    pipeline_tag: str | None = None
    original_files = ("model.pt", "config.json")

    # ---- what a family may do otherwise: options ----

    def for_options(self, options: Options) -> "Layout":
        """The layout under the command's own options, for the way back."""
        return self

    def adjusted(self, fields: dict[str, Any], original: Options) -> dict[str, Any]:
        """The fields of our configuration from those that were read."""
        return fields

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        """Add what the weights tell, under our names; returned are values that nothing tells, with their reasons."""
        return {}

    def add_read(self, options: dict[str, Any], found: Options) -> None:
        """Add values that were read off the weights, where no option says them."""
        given = {self.theirs.get(name, name) for name, value in options.items() if value is not None}
        options |= {name: value for name, value in found.items() if value is not None and name not in given}

    def revert_config(self, config: Any) -> dict[str, Any]:
        """The original's options for a configuration of ours."""
        kept = [name for name in self.fields if name not in (*self.own, *self.fixed)]
        options = {name: getattr(config, name) for name in kept}
        return options | {name: getattr(config, ours) for name, ours in self.theirs.items() if ours in self.own}

    # ---- weights ----

    def model(self, config: Any) -> nn.Module:
        """The model that holds all parts of a file."""
        module = importlib.import_module(f"hf_ptm_ext.models.modeling_{self.family}")
        made: nn.Module = getattr(module, f"{self.prefix}{self.whole}")(config)
        return made

    def more_shapes(self, config: Any, tensors: State) -> Shapes:
        """Names and shapes of parts that `model` lacks, such as fine-tuned heads."""
        return {}

    def describe_key(self, key: str) -> tuple[str, tuple[str, ...]]:
        """Our name for a key of a file, and what was changed."""
        changes = []
        for pattern, replacement, description in self.renames:
            renamed = re.sub(pattern, replacement, key)
            if renamed != key:
                changes.append(description)
            key = renamed
        return key, tuple(changes)

    def ours_of(self, name: str, key: str, tensor: torch.Tensor, config: Any) -> Tensors:
        """Our tensors, by name, that one of a file's becomes; `name` is ours for its key."""
        return {name: tensor.t() if tensor.ndim == 2 and re.search(self.transposed, key) else tensor}

    def their_name(self, name: str, config: Any) -> str:
        """The original's name of one of our weights."""
        return name

    def name_in_file(self, name: str, config: Any, keys: Iterable[str]) -> str:
        """The name that a file with these keys would have for one of our weights."""
        theirs = any(re.search(self.their_mark, key) for key in keys)
        return self.their_name(name, config) if theirs else name

    def architecture(self, tensors: State, config: Any) -> str:
        """The class that holds all parts of a file."""
        present = [head for head in self.heads if has_part(tensors, head)]
        kind = "ForMaskedLM" if present == [*MASKED_LM] else "ForPreTraining" if present else "Model"
        return f"{self.prefix}{next((one for part, one in self.classes.items() if has_part(tensors, part)), kind)}"

    # ---- files ----

    def read(self, source: Path, word_vectors: Path | None = None) -> Checkpoint:
        """What a file or folder of the original holds; `word_vectors` are those that its weights lack."""
        if word_vectors is not None:
            raise ValueError(f"`word_vectors` are no part of {self.title}, got {word_vectors}: leave them out.")
        return read_checkpoint(source)

    def vocabulary_names(self, source: Path) -> tuple[str, ...]:
        """Files beside a checkpoint that may be its vocabulary, the likeliest first."""
        return (*self.vocabulary_files, "tokenizer.json")

    def read_vocabulary(self, path: Path) -> dict[str, int]:
        """The pieces of a vocabulary and their ids."""
        return read_vocabulary(path)

    def vocabulary_options(self, vocab: Mapping[str, int], options: Options) -> dict[str, Any]:
        """The options that a vocabulary decides."""
        return {}

    def tokenizer_from(
        self, words: Words, config: Any, vocab: File = None, codes: File = None, lower_case: bool = False
    ) -> TokenizerFiles:
        """The tokenizer's files of a family without word pieces, by name, and what the report says of them."""
        raise NotImplementedError(f"{self.title} has word pieces, got the words of another vocabulary.")

    def wordpiece_tokenizer(self, vocab: Mapping[str, int], config: Any, do_lower_case: bool, **files: Path) -> Any:
        """The tokenizer of a converted checkpoint."""
        from transformers import BertTokenizer

        length = config.max_position_embeddings
        return BertTokenizer(vocab=dict(vocab), do_lower_case=do_lower_case, model_max_length=length)

    def check_tokenizer_file(self, file: Path) -> None:
        """Refuse what is none of the tokenizer's files."""

    def more_files(self, original: State) -> dict[str, Tensors]:
        """Files of tensors that are written beside the model."""
        return {}

    def revert_more_files(self, folder: Path, config: Any) -> Tensors:
        """Tensors of the original that lie in files beside our weights."""
        return {}

    def made_up(self, config: Any) -> list[str]:
        """What the way back writes that is no value of ours."""
        return []

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        """Write the files that the original code loads."""
        weights, config = self.original_files
        torch.save(dict(tensors), folder / weights)
        write_json(folder / config, dict(options))
        if vocabulary is not None:
            copy_vocabulary(vocabulary, folder / "vocab.txt")
        for name in self.tokenizer_files.values():
            if (file := beside(source, (name,))) is not None:
                self.check_tokenizer_file(file)
                shutil.copyfile(file, folder / name)

    # ---- both ways ----

    def convert_config(self, original: Options) -> Any:
        """Our configuration from the original's options, or from those of a BERT; data and training are left out."""
        check_options(original, self.theirs)
        fields = read_fields(original, self.fields, self.sizes)
        for theirs, ours in self.theirs.items():
            if original.get(theirs) is not None:
                fields.setdefault(ours, original[theirs])
        return self.made(self.adjusted(fields, original))

    def made(self, fields: Options) -> Any:
        """The configuration of these fields, with the whole auto_map."""
        config: Any = made_config(self.config_class, fields, self.title)
        for name in self.fixed:
            if hasattr(config, name):
                delattr(config, name)
        auto_map = getattr(sys.modules[self.config_class.__module__], "AUTO_MAP", None)
        if auto_map is not None:
            config.auto_map = dict(auto_map)
        return config

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        """Our state dict from a file's, whose pooler and heads may be missing whole; tied entries are added."""
        names = {key: self.describe_key(key)[0] for key in original}
        weights = {key: tensor for key, tensor in original.items() if not re.search(self.buffers, names[key])}
        check_weights(weights)
        ours = ((key, self.ours_of(names[key], key, tensor, config)) for key, tensor in weights.items())
        named = ((name, key, tensor) for key, parts in ours for name, tensor in parts.items())
        return self.check(*by_our_names(named), config)

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """The original's state dict from ours.

        `tied_copies` says whether the heads' copies of the word embeddings are written, as the original's files have
        them. None writes those that `ours` has as entries of their own: what `convert_state_dict` added is left out.
        """
        reverted = self.untied(ours, config, tied_copies)
        return {self.their_name(name, config): tensor for name, tensor in reverted.items()}

    def convert_checkpoint(self, original: State, options: Options) -> Conversion:
        """Convert a checkpoint as it was found, reading from the file what its options leave open.

        Tied copies are not among the tensors, and neither are heads that the file lacks: loading says that those are
        new.
        """
        check_options(options, (*self.fields, *self.theirs))
        options = dict(options)
        assumed = self.complete_options(options, {self.describe_key(key)[0]: one for key, one in original.items()})
        config = self.convert_config(options)
        return self.reported(original, self.convert_state_dict(original, config), config, assumed)

    def reported(self, original: State, converted: Tensors, config: Any, assumed: dict[str, str]) -> Conversion:
        """What was made of a file, and what the command says of it."""
        names = {key: self.describe_key(key) for key in original}
        tied = self.tied_names(config)
        no_weights = {key: name for key, (name, _) in names.items() if re.search(self.buffers, name)}
        kinds = {True: "an index buffer, no weight", False: "a buffer, no weight"}
        dropped = {key: kinds[re.search(BUFFERS, name) is not None] for key, name in no_weights.items()}
        dropped |= {key: f"tied to `{self.tied[name]}`" for key, (name, _) in names.items() if name in tied}
        lacking = {f"{part}*": what for part, what in self.heads.items() if not has_part(converted, part)}
        if not getattr(config, "next_sentence_prediction", True):
            lacking.pop("cls.seq_relationship.*", None)
        return Conversion(
            config=config,
            tensors={name: tensor for name, tensor in converted.items() if name not in tied},
            architecture=self.architecture(converted, config),
            renamed=dict(Counter(change for _, changes in names.values() for change in changes)),
            dropped=dropped,
            initialised=lacking,
            assumed=assumed,
        )

    def revert_checkpoint(self, ours: State, config: Any) -> tuple[Tensors, dict[str, Any]]:
        """State dict and options as the original code reads them, from tensors as one of our classes saved them."""
        named = {self.describe_key(key)[0]: tensor for key, tensor in ours.items()}
        return self.revert_state_dict(named, config, tied_copies=True), self.revert_config(config)

    # ---- checks ----

    def check(self, converted: Tensors, sources: Mapping[str, str], config: Any) -> Tensors:
        """Compare a renamed file (our name -> the file's: `sources`) with the config's model, and add tied entries."""
        self.check_layers(converted, config)
        self._compare(converted, sources, config, self.foreign.format(title=self.title))
        return self._with_tied({name: own_memory(tensor) for name, tensor in converted.items()}, config)

    def check_ours(self, ours: State, config: Any) -> None:
        """Compare a state dict of ours, tied entries included or not, with the model of the config, as `check`."""
        for name in ("num_hidden_groups", "embedding_size"):
            if hasattr(config, "num_hidden_groups") and name not in self.fields and getattr(config, name) is not None:
                raise ValueError(
                    f"`{name}` must be None for {self.title}'s own files, which have no shared layers or factorised "
                    f"embeddings, got {getattr(config, name)}: keep the checkpoint in our format."
                )
        if any(layer_numbers(ours, f"{stack}.") for stack, _ in self.stacks):
            self.check_layers(ours, config)
        check_weights(ours)
        message = f"These keys are not of a {self.title} model with this config"
        self._compare(ours, {name: name for name in ours}, config, message)
        self._with_tied(ours, config)

    def untied(self, ours: State, config: Any, tied_copies: bool | None) -> Tensors:
        """Our tensors, checked, with those copies of tied ones that a file of the original shall have."""
        self.check_ours(ours, config)
        kept = {key: tensor for key, tensor in ours.items() if key not in self.tied}
        for key, source in self.tied.items():
            if key.endswith(".bias"):
                continue
            copied = key in ours and ours[key] is not ours.get(source)
            if copied if tied_copies is None else tied_copies and has_part(ours, f"{key.rsplit('.', 2)[0]}."):
                kept[key] = ours.get(key, ours[source])
        return kept

    def tied_names(self, config: Any) -> set[str]:
        """Names that are not written: their tensor is there under another one."""
        return {name for name in self.tied if config.tie_word_embeddings or name.endswith(".bias")}

    def shapes(self, config: Any, tensors: State) -> Shapes:
        """Names and shapes of every part that a file of this config can have; nothing is allocated."""
        with torch.device("meta"):
            model: Any = self.model(config)
        base = f"{model.base_model_prefix}." if model.base_model is model else ""
        shapes = {f"{base}{name}": tuple(tensor.shape) for name, tensor in model.state_dict().items()}
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

    def _compare(self, tensors: State, sources: Mapping[str, str], config: Any, foreign: str) -> None:
        """Names both ways, shapes."""
        expected = self.shapes(config, tensors)
        unknown = [sources[name] for name in tensors if name not in expected]
        if unknown:
            raise ValueError(f"{foreign}: {name_some(unknown)}. {self.hint}")
        parts = self._parts()
        present = tuple(part for part in parts if has_part(tensors, part))
        present += tuple(need for part, need in self.needs.items() if part in present)
        added = {name for name in self.tied_names(config) if self.tied[name] in tensors}
        lacking = [
            name
            for name in expected
            if name not in added.union(tensors)
            and (not name.startswith(parts) or name.startswith(present))
            and not re.search(self.optional, name)
        ]
        if lacking:
            if any(name != source for name, source in sources.items()):
                theirs = [self.name_in_file(name, config, sources.values()) for name in lacking]
                pairs = zip(lacking, theirs, strict=True)
                lacking = [name if name == other else f"{name}`, in the file `{other}" for name, other in pairs]
            raise ValueError(
                f"The file lacks weights: {name_some(lacking)}. The encoder must be complete, and each head that is "
                "there."
            )
        for name, tensor in tensors.items():
            if tuple(tensor.shape) != expected[name]:
                raise ValueError(self._shape_message(sources[name], name, tuple(tensor.shape), expected[name]))

    def _parts(self) -> tuple[str, ...]:
        return (*self.heads, *self.other_parts)

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

    def _with_tied(self, tensors: State, config: Any) -> Tensors:
        """The tensors and the tied entries that they lack; entries that differ from what they repeat are refused."""
        complete, tied = dict(tensors), self.tied_names(config)
        for name, source in self.tied.items():
            part = next((part for part in self._parts() if name.startswith(part)), "")
            if name not in tied or source not in complete or not has_part(complete, part):
                continue
            if not torch.equal(complete.setdefault(name, complete[source]), complete[source]):
                raise ValueError(
                    f"`{name}` differs from `{source}`, to which {self.title} ties it: the file is no {self.title} "
                    "checkpoint, or it was trained untied (`tie_word_embeddings` false). One of them would be lost."
                )
        return complete


def functions_of(layout: Layout) -> dict[str, Callable[..., Any]]:
    """What the module of a family has as functions: both ways of its layout."""
    return {name: getattr(layout, name) for name in FUNCTIONS}
