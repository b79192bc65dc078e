"""Context2Vec models of the original code (orenmel/context2vec, chainer) to ours and back.

A source is `MODEL.params`, which names the model and `WORDS.targets`, or the model's npz alone. chainer keeps the four
rows of an LSTM's unit side by side (cell, input, forget, output), torch gate after gate (input, forget, cell, output).
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.word_vectors import WordVectors
from ..files import path_inside
from ..models.configuration_context2vec import Context2VecConfig
from .files import Checkpoint, read_checkpoint
from .layout import Conversion, functions_of
from .tensors import File, Options, State, Tensors, size_of
from .words import WordLayout, words_of

_NAMES = "chainer's names"
WORDS = "context2vec.embeddings.word_embeddings.weight"
GATES = (1, 2, 0, 3)  # chainer's row of torch's gates
# How chainer's names begin and end, and ours.
FRONTS = {
    "l2r_embed.W": WORDS,
    "r2l_embed.W": "context2vec.embeddings.backward_embeddings.weight",
    "l2r_1.": "context2vec.encoder.forward_lstm.",
    "r2l_1.": "context2vec.encoder.backward_lstm.",
    "l3.": "context2vec.encoder.joint.0.",
    "l4.": "context2vec.encoder.joint.3.",
    "lp_l2r.": "context2vec.encoder.forward_projection.",
    "lp_r2l.": "context2vec.encoder.backward_projection.",
    "loss_func.": "targets.",
}
ENDS = {"upward.W": "weight_ih_l0", "upward.b": "bias_ih_l0", "lateral.W": "weight_hh_l0"}
ENDS |= {".W": ".weight", ".b": ".bias"}


class Context2VecLayout(WordLayout):
    title, family, prefix = "Context2Vec", "context2vec", "Context2Vec"
    config_class = Context2VecConfig
    fields = (
        *("vocab_size", "embedding_size", "lstm_size", "target_size", "deep", "negative_samples", "ns_power"),
        *("bos_token_id", "eos_token_id", "dropout"),
    )
    theirs = {"unit": "embedding_size", "hidden_units": "lstm_size", "target_units": "target_size"}
    theirs |= {"BOS": "bos_token_id", "EOS": "eos_token_id", "drop_ratio": "dropout"}
    renames = (
        (r"/", ".", _NAMES),
        (r"^(embeddings|encoder)\.", r"context2vec.\1.", "prefix `context2vec.` put in front"),
        *((rf"^{re.escape(theirs)}", ours, _NAMES) for theirs, ours in FRONTS.items()),
        *((rf"{re.escape(theirs)}$", ours, _NAMES) for theirs, ours in ENDS.items()),
    )
    heads = {"targets.": "target words' vectors"}
    whole, classes = "ForMaskedLM", {"targets.weight": "ForMaskedLM"}
    optional = r"targets\.counts|bias_hh_l0"
    example = "l2r_embed/W"
    pipeline_tag = "fill-mask"
    special = {"unk_token": "<UNK>", "pad_token": "<EOS>", "mask_token": "<UNK>"}

    def read(self, source: Path, word_vectors: Path | None = None) -> Checkpoint:
        """A model by its `.params`, with its words, or the weights alone."""
        if source.suffix != ".params":
            return super().read(source, word_vectors)
        lines = source.read_text(encoding="utf-8").splitlines()
        pairs = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
        told = {pair[0]: pair[-1].strip() for pair in pairs}
        missing = [name for name in ("model_file", "words_file") if name not in told]
        if missing:
            raise ValueError(f"{source} must name `{missing[0]}`, got {', '.join(told) or 'nothing'}.")
        weights, words = (path_inside(source.parent, told[name], str(source)) for name in ("model_file", "words_file"))
        read = read_checkpoint(weights, ".npz")
        numbers = {word: number for number, word in enumerate(WordVectors.load(words).words)}
        dropout = {"drop_ratio": float(told["drop_ratio"])} if "drop_ratio" in told else {}
        return Checkpoint(read.tensors, (source, *read.files, words), None, dropout, numbers)

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        """Sizes of a file without options."""
        found: Options = {
            "vocab_size": size_of(tensors, WORDS),
            "embedding_size": size_of(tensors, WORDS, 1),
            "lstm_size": size_of(tensors, "context2vec.encoder.forward_lstm.weight_hh_l0", 1),
            "target_size": size_of(tensors, "targets.weight", 1),
            "deep": "context2vec.encoder.joint.0.weight" in tensors,
        }
        self.add_read(options, found)
        return {}

    def convert_checkpoint(self, original: State, options: Options) -> Conversion:
        """As of every family; with the words' `counts`, by which negatives are drawn, if the options have them."""
        converted = super().convert_checkpoint(original, options)
        if "targets.weight" in converted.tensors:
            counts = options.get("counts") or [1.0] * converted.config.vocab_size
            converted.tensors.setdefault("targets.counts", torch.tensor(counts, dtype=torch.float32))
        return converted

    def ours_of(self, name: str, key: str, tensor: torch.Tensor, config: Any) -> Tensors:
        """An LSTM's rows gate after gate, and a second bias of 0."""
        if not re.search(r"(upward|lateral)\W[Wb]$", key) or not tensor.ndim or len(tensor) % 4:
            return {name: tensor}
        rows = tensor.unflatten(0, (-1, 4)).transpose(0, 1)[list(GATES)].flatten(0, 1).contiguous()
        bias = {name.replace("bias_ih", "bias_hh"): torch.zeros_like(rows)} if rows.dim() == 1 else {}
        return {name: rows, **bias}

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """chainer's rows and one bias; the counts are no weights there."""
        self.check_ours(ours, config)
        order = [GATES.index(row) for row in range(4)]
        reverted = {}
        for name, tensor in ours.items():
            if name == "targets.counts" or "bias_hh" in name:
                continue
            if "_lstm." in name:
                second = ours.get(name.replace("bias_ih", "bias_hh"))
                tensor = tensor + second if second is not None and "bias_ih" in name else tensor
                tensor = tensor.unflatten(0, (4, -1))[order].transpose(0, 1).flatten(0, 1).contiguous()
            reverted[self.their_name(name, config)] = tensor
        return reverted

    def their_name(self, name: str, config: Any) -> str:
        """chainer's name of a weight."""
        for theirs, ours in (FRONTS | ENDS).items():
            name = name.replace(ours, theirs)
        return name.replace(".", "/")

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        """The npz, target words' vectors and what names them."""
        arrays: dict[str, Any] = {name: tensor.float().numpy() for name, tensor in tensors.items()}
        np.savez(folder / "model.npz", **arrays)
        words, width = words_of(source), options["embedding_size"]
        if words and "loss_func/W" in tensors:
            WordVectors(words, tensors["loss_func/W"][: len(words)].float().numpy()).to_word2vec(
                folder / "words.targets"
            )
        told = {"model_file": "model.npz", "words_file": "words.targets", "unit": width}
        told |= {"deep": "yes" if options["deep"] else "no", "drop_ratio": options["dropout"]}
        text = "".join(f"{name}\t{value}\n" for name, value in told.items())
        (folder / "model.params").write_text(text, encoding="utf-8")


LAYOUT = Context2VecLayout()
globals().update(functions_of(LAYOUT))
