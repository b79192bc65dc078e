"""Skip-thought models of the original code (ryankiros/skip-thoughts, Theano) to ours and back.

A source is `uni_skip.npz`, `bi_skip.npz`, or a folder with both (combine-skip). The release's expanded tables
(`utable.npy`, `btable.npy`, words in `dictionary.txt`) take the place of the trained words where they lie beside it;
decoders, which predict the trained words, are left out then, and with both.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..models.configuration_skip_thought import SkipThoughtConfig
from .files import Checkpoint, read_checkpoint
from .layout import functions_of
from .tensors import File, Options, State, Tensors, check_weights, has_part, size_of
from .words import WORDS_FILE, WordLayout

FILES = {"uni": ("uni_skip.npz", "utable.npy"), "bi": ("bi_skip.npz", "btable.npy")}
GRUS = {"encoder": "forward_gru", "encoder_r": "backward_gru"}
DECODERS = {"decoder_f": "decoders.next", "decoder_b": "decoders.previous"}
PARTS = ("W", "b", "U", "Wx", "Ux", "bx")
BASE = "skip_thought."


class SkipThoughtLayout(WordLayout):
    title, family, prefix = "Skip-thought", "skip_thought", "SkipThought"
    config_class = SkipThoughtConfig
    fields = ("vocab_size", "embedding_size", "encoder_type", "gru_size", "bi_gru_size", "normalize")
    theirs = {"n_words": "vocab_size", "dim_word": "embedding_size"}
    renames = ((r"^(uni|bi)_encoder\.", r"skip_thought.\1_encoder.", "prefix `skip_thought.` put in front"),)
    heads = {"decoders.": "decoders of the sentences around", "output.": "decoders' output layer"}
    needs = {"decoders.": "output.", "output.": "decoders."}
    special = {"pad_token": "<eos>", "unk_token": "UNK"}

    def read(self, source: Path, word_vectors: Path | None = None) -> Checkpoint:
        """One model or both, with expanded tables where they are."""
        folder = source if source.is_dir() else source.parent
        both = source.is_dir() and all((source / name).is_file() for name, _ in FILES.values())
        kinds = [*FILES] if both else [kind for kind, (name, _) in FILES.items() if source.name == name]
        if not kinds:
            return super().read(source, word_vectors)
        tensors: Tensors = {}
        words: dict[str, int] = {}
        files = []
        for kind in kinds:
            name, table = FILES[kind]
            read = read_checkpoint(folder / name).tensors
            files.append(folder / name)
            if (folder / table).is_file() and (folder / WORDS_FILE).is_file():
                lines = (folder / WORDS_FILE).read_text(encoding="utf-8").splitlines()
                words = {line.strip(): number for number, line in enumerate(lines)}
                read = {key: value for key, value in read.items() if key.startswith("encoder_")}
                read["Wemb"] = _table(folder / table, len(lines))
                files.append(folder / table)
            if both:  # decoders go with one encoder
                own = ("encoder_", "Wemb")
                read = {f"{kind}.{key}": value for key, value in read.items() if key.startswith(own)}
            tensors |= read
        return Checkpoint(tensors, tuple(files), words=words)

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        """Sizes of a file without options."""
        both = has_part(tensors, "uni.")
        kind = "combine" if both else "bi" if "encoder_r_W" in tensors else "uni"
        options.setdefault("encoder_type", kind)
        for name, prefix in (("gru_size", "uni." if both else ""), ("bi_gru_size", "bi." if both else "")):
            size = size_of(tensors, f"{prefix}encoder_Ux")
            if size is not None and (both or (kind == "bi") == (name == "bi_gru_size")):
                options.setdefault(name, size)
        for key, ours, dimension in (("n_words", "vocab_size", 0), ("dim_word", "embedding_size", 1)):
            size = size_of(tensors, "uni.Wemb" if both else "Wemb", dimension)
            if size is not None:
                options.pop(key, None)
                options.setdefault(ours, size)
        return {}

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        """Matrices of one GRU together, gates by rows."""
        check_weights(original)
        converted: Tensors = {}
        left = dict(original)
        for kind in FILES if config.encoder_type == "combine" else (config.encoder_type,):
            prefix = f"{kind}." if config.encoder_type == "combine" else ""
            inside = f"{BASE}{kind}_encoder."
            if f"{prefix}Wemb" in left:
                converted[f"{inside}word_embeddings.weight"] = left.pop(f"{prefix}Wemb")
            grus = {f"{prefix}{theirs}": f"{inside}{ours}" for theirs, ours in GRUS.items()} | DECODERS
            for theirs, ours in grus.items():
                if f"{theirs}_W" in left:
                    parts = {part: left.pop(f"{theirs}_{part}", None) for part in PARTS}
                    missing = [f"`{theirs}_{part}`" for part, value in parts.items() if value is None]
                    if missing:
                        raise ValueError(f"The file lacks weights: {', '.join(missing)}. Each GRU must be complete.")
                    check_gru(theirs, parts)
                    converted |= {f"{ours}.{name}": value for name, value in _of_torch(parts).items()}
        if "ff_logit_W" in left:
            converted["output.weight"] = left.pop("ff_logit_W").transpose(0, -1).contiguous()
        if "ff_logit_b" in left:
            converted["output.bias"] = left.pop("ff_logit_b")
        converted |= left
        return self.check(converted, {name: name for name in converted}, config)

    def model(self, config: Any) -> Any:
        """With decoders, which combine-skip has not."""
        from ..models import modeling_skip_thought as modeling

        kind = "Model" if config.encoder_type == "combine" else "ForPreTraining"
        return getattr(modeling, f"SkipThought{kind}")(config)

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """The authors' matrices; names of both models of combine-skip have the model's in front."""
        self.check_ours(ours, config)
        reverted = {}
        for kind in FILES:
            prefix = f"{kind}." if config.encoder_type == "combine" else ""
            inside = f"{BASE}{kind}_encoder."
            if not has_part(ours, inside):
                continue
            reverted[f"{prefix}Wemb"] = ours[f"{inside}word_embeddings.weight"]
            grus = {f"{prefix}{theirs}": f"{inside}{name}" for theirs, name in GRUS.items()} | DECODERS
            for theirs, name in grus.items():
                if has_part(ours, f"{name}."):
                    parts = {
                        part: ours[f"{name}.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                    }
                    reverted |= {f"{theirs}_{part}": value for part, value in _of_theano(name, **parts).items()}
        if "output.weight" in ours:
            reverted |= {"ff_logit_W": ours["output.weight"].T.contiguous(), "ff_logit_b": ours["output.bias"]}
        return reverted

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        """An npz and a table of each encoder, and the words."""
        for kind, (name, table) in FILES.items():
            prefix = f"{kind}." if options["encoder_type"] == "combine" else ""
            if options["encoder_type"] in (kind, "combine"):
                arrays: dict[str, Any] = {
                    key.removeprefix(prefix): value.float().numpy()
                    for key, value in tensors.items()
                    if key.startswith(prefix)
                }
                np.savez(folder / name, **arrays)
                np.save(folder / table, arrays["Wemb"])
        self.write_words(folder, source)


def check_gru(name: str, parts: Options) -> None:
    """Refuse matrices that do not go together, before they are joined."""
    shapes = {f"{name}_{part}": tuple(value.shape) for part, value in parts.items()}
    size, width = ((*shapes[f"{name}_{part}"], 0)[0] for part in ("bx", "W"))
    asked = {"W": (width, 2 * size), "b": (2 * size,), "U": (size, 2 * size)}
    asked |= {"Wx": (width, size), "Ux": (size, size), "bx": (size,)}
    for part, shape in asked.items():
        if (found := shapes[f"{name}_{part}"]) != shape:
            raise ValueError(f"`{name}_{part}` has the shape {found}, and {shape} goes with a `{name}_bx` of {size}.")


def _of_torch(parts: Options) -> Tensors:
    """A GRU's weights as torch has them: reset, update, candidate."""
    names = {"weight_ih": ("W", "Wx"), "weight_hh": ("U", "Ux"), "bias_ih": ("b", "bx")}
    joined = {f"{name}_l0": torch.cat([parts[one] for one in both], dim=-1) for name, both in names.items()}
    made = {name: value.T.contiguous() if value.dim() == 2 else value for name, value in joined.items()}
    return made | {"bias_hh_l0": torch.zeros_like(made["bias_ih_l0"])}


def _of_theano(name: str, weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any) -> Tensors:
    """A GRU's weights as the authors have them."""
    size = weight_hh.shape[1]
    if bias_hh[2 * size :].any():
        raise ValueError(f"`{name}.bias_hh_l0` must be 0 for the candidate: the authors' GRU has no such bias.")
    found = {"W": weight_ih[: 2 * size].T, "Wx": weight_ih[2 * size :].T, "U": weight_hh[: 2 * size].T}
    found |= {"Ux": weight_hh[2 * size :].T, "b": (bias_ih + bias_hh)[: 2 * size], "bx": bias_ih[2 * size :]}
    return {part: value.contiguous() for part, value in found.items()}


def _table(path: Path, words: int) -> torch.Tensor:
    """An expanded table of word vectors."""
    try:
        table = torch.from_numpy(np.load(path, allow_pickle=False))
    except Exception as error:  # numpy's of many kinds
        raise ValueError(f"{path} is cut short or not an array of numpy ({type(error).__name__}).") from error
    if table.dim() != 2 or len(table) != words:
        raise ValueError(f"{path} must have a row for each of the {words} words, got shape {tuple(table.shape)}.")
    return table


LAYOUT = SkipThoughtLayout()
globals().update(functions_of(LAYOUT))
