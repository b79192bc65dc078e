"""CoVe checkpoints of the original code (salesforce/cove) to ours and back.

Two layouts of weights: the released encoder alone (`wmtlstm-8f474287.pth`, the state dict of an LSTM, whose word
vectors are GloVe's file), and the whole translation model of the authors' OpenNMT-py.
"""

import re
from pathlib import Path
from typing import Any

import torch

from ..data.word_vectors import WordVectors
from ..models.configuration_cove import CoveConfig
from .files import Checkpoint, read_checkpoint
from .layout import functions_of
from .tensors import Options, State, Tensors, has_part, layer_numbers, size_of
from .words import WordLayout, with_specials

WORDS = "cove.embeddings.word_embeddings.weight"
FIRST = "cove.encoder.layers.0.weight_hh_l0"
_FLAGS = ("bidirectional", "freeze_embeddings", "input_feed")
_TRANSLATION = "names of the translation model"


class CoveLayout(WordLayout):
    title, family, prefix = "CoVe", "cove", "Cove"
    config_class = CoveConfig
    fields = (
        *("vocab_size", "embedding_size", "lstm_size", "num_hidden_layers", "bidirectional", "output_layers"),
        *("concat_embeddings", "dropout", "target_vocab_size", "attention_type", "input_feed", "mask_attention"),
        *("pad_token_id", "bos_token_id", "eos_token_id", "freeze_embeddings"),
    )
    theirs = {"input_dim": "embedding_size", "hidden_dim": "lstm_size", "num_layers": "num_hidden_layers"}
    theirs |= {"word_vec_size": "embedding_size", "layers": "num_hidden_layers", "brnn": "bidirectional"}
    theirs |= {"pad": "pad_token_id", "bos": "bos_token_id", "eos": "eos_token_id", "fix_embed": "freeze_embeddings"}
    renames = (
        (
            r"^(?:encoder\.rnn\.)?((?:weight|bias)_[ih]h)_l(\d+)(_reverse)?$",
            r"cove.encoder.layers.\2.\1_l0\3",
            "one LSTM a layer",
        ),
        (r"^(?:encoder\.word_lut|vectors|embeddings)\.weight$", WORDS, "word vectors"),
        (r"^(embeddings\.word_embeddings|encoder\.layers)\.", r"cove.\1.", "prefix `cove.` put in front"),
        (r"^decoder\.word_lut\.", "decoder.embeddings.word_embeddings.", _TRANSLATION),
        (r"^decoder\.rnn\.layers\.", "decoder.layers.", _TRANSLATION),
        (r"^decoder\.attn\.", "decoder.attention.", _TRANSLATION),
        (r"^generator\.0\.", "generator.", _TRANSLATION),
    )
    stacks = (("cove.encoder.layers", "num_hidden_layers"),)
    heads = {"decoder.": "decoder of the translation model", "generator.": "its output layer"}
    needs = {"decoder.": "generator.", "generator.": "decoder."}
    dimensions = ((re.escape(WORDS), 0, "vocab_size"), (re.escape(WORDS), 1, "embedding_size"))
    example = "weight_ih_l0"
    original_files = ("model.pth", "config.json")

    def read(self, source: Path, word_vectors: Path | None = None) -> Checkpoint:
        """The weights, and the word vectors that the released file lacks."""
        checkpoint = read_checkpoint(source)
        if word_vectors is None:
            return checkpoint
        table, words = with_specials(WordVectors.load(word_vectors))
        tensors = {**checkpoint.tensors, "vectors.weight": table}
        return Checkpoint(tensors, (*checkpoint.files, word_vectors), checkpoint.wrapper, checkpoint.arguments, words)

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        """Sizes of a file without options."""
        found: dict[str, Any] = {
            "vocab_size": size_of(tensors, WORDS),
            "embedding_size": size_of(tensors, "cove.encoder.layers.0.weight_ih_l0", 1),
            "lstm_size": size_of(tensors, FIRST, 1),
            "num_hidden_layers": max(layer_numbers(tensors, "cove.encoder.layers."), default=0) + 1,
            "bidirectional": f"{FIRST}_reverse" in tensors,
            "target_vocab_size": size_of(tensors, "generator.weight"),
        }
        if has_part(tensors, "decoder."):
            general = "decoder.attention.linear_in.weight" in tensors
            found["attention_type"] = "general" if general else "dot"
            inner = size_of(tensors, "decoder.layers.0.weight_ih", 1)
            found["input_feed"] = inner != size_of(tensors, "decoder.embeddings.word_embeddings.weight", 1)
        self.add_read(options, found)
        if WORDS in tensors:
            return {}
        options["vocab_size"], options["pad_token_id"] = 1, 0
        return {"vocab_size": "1: the file has no word vectors. Name GloVe's file (`--word_vectors`), or give vectors"}

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        """As of every family; a file without word vectors gets a single row of zeros."""
        converted = dict(original)
        if not {self.describe_key(key)[0] for key in original} & {WORDS}:
            like = next(iter(original.values()), torch.zeros(0))
            converted[WORDS] = torch.zeros(config.vocab_size, config.embedding_size, dtype=like.dtype)
        return super().convert_state_dict(converted, config)

    def adjusted(self, fields: dict[str, Any], original: Options) -> dict[str, Any]:
        """The translation model's size is that of both directions."""
        if original.get("rnn_size") is not None:
            fields.setdefault("lstm_size", original["rnn_size"] // (1 + bool(fields.get("bidirectional", True))))
        return {name: bool(value) if name in _FLAGS else value for name, value in fields.items()}

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """As of every family; the encoder has a prefix in the translation model."""
        reverted = super().revert_state_dict(ours, config, tied_copies)
        if not has_part(reverted, "decoder."):
            return reverted
        own = ("decoder.", "generator.")
        return {name if name.startswith(own) else _of_translation(name): one for name, one in reverted.items()}

    def their_name(self, name: str, config: Any) -> str:
        """The released encoder's name of a weight, or the translation model's."""
        layer = re.fullmatch(r"cove\.encoder\.layers\.(\d+)\.(\w+)_l0(_reverse)?", name)
        if layer:
            return f"{layer[2]}_l{layer[1]}{layer[3] or ''}"
        theirs = name.replace(WORDS, "vectors.weight").replace(
            "decoder.embeddings.word_embeddings", "decoder.word_lut"
        )
        theirs = theirs.replace("decoder.layers", "decoder.rnn.layers").replace("decoder.attention", "decoder.attn")
        return theirs.replace("generator.", "generator.0.")


def _of_translation(name: str) -> str:
    """A name of the released encoder in the translation model."""
    return "encoder.word_lut.weight" if name == "vectors.weight" else f"encoder.rnn.{name}"


LAYOUT = CoveLayout()
globals().update(functions_of(LAYOUT))
