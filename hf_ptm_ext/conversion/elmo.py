"""ELMo's weights and options of the original code (allenai/bilm-tf, allenai/allennlp), and back.

The files have no softmax: a converted model gives states, and further pre-training begins with a new softmax.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..files import write_json
from ..models.configuration_elmo import ElmoConfig
from ..models.tokenization_elmo import SPECIAL_WORDS, VOCAB_FILE, ElmoTokenizer, read_words
from .files import hdf5_library
from .layout import functions_of
from .tensors import File, Options, State, Tensors, TokenizerFiles, Words
from .words import WordLayout, saved_tokenizer

CELL = "/RNN/MultiRNNCell/Cell"
NETWORK, LAYERS = "elmo.embeddings.", "elmo.encoder.layers."
# pattern of a key, replacement, what the report calls it
RENAMES = (
    (r"^h5\.|:0$", "", "`h5.` in front taken off"),
    (r"::", "/", "`::` to `/`"),
    (r"^char_embed$", f"{NETWORK}characters.weight", "`char_embed`, with a row of zeros for padding"),
    (r"^CNN/W_cnn_(\d+)$", rf"{NETWORK}convolutions.\1.weight", "`CNN` to `convolutions`"),
    (r"^CNN/b_cnn_(\d+)$", rf"{NETWORK}convolutions.\1.bias", "`CNN` to `convolutions`"),
    (r"^CNN_high_(\d+)/W_(carry|transform)$", rf"{NETWORK}highways.\1.\2.weight", "`CNN_high` to `highways`"),
    (r"^CNN_high_(\d+)/b_(carry|transform)$", rf"{NETWORK}highways.\1.\2.bias", "`CNN_high` to `highways`"),
    (r"^CNN_proj/W_proj$", f"{NETWORK}projection.weight", "`CNN_proj` to `projection`"),
    (r"^CNN_proj/b_proj$", f"{NETWORK}projection.bias", "`CNN_proj` to `projection`"),
    (rf"^RNN_0{CELL}(\d+)/LSTMCell/", rf"{LAYERS}\1.forward_cell.", "`RNN_0` to `forward_cell`"),
    (rf"^RNN_1{CELL}(\d+)/LSTMCell/", rf"{LAYERS}\1.backward_cell.", "`RNN_1` to `backward_cell`"),
    (r"_cell\.W_0$", "_cell.weight", "`W_0`, `B`, `W_P_0` to `weight`, `bias`, `projection`"),
    (r"_cell\.B$", "_cell.bias", "`W_0`, `B`, `W_P_0` to `weight`, `bias`, `projection`"),
    (r"_cell\.W_P_0$", "_cell.projection", "`W_0`, `B`, `W_P_0` to `weight`, `bias`, `projection`"),
    (r"^(embeddings|encoder)\.", r"elmo.\1.", "prefix `elmo.` put in front"),
)
PARTS = {"weight": "W_0", "bias": "B", "projection": "W_P_0"}
# Part of options.json -> its option -> ours; those of our own names stand there under the same.
LSTM = {name: name for name in ("projection_dim", "cell_clip", "proj_clip", "n_layers", "use_skip_connections")}
LSTM |= {"dim": "cell_size"}
CHAR_CNN = {name: name for name in ("activation", "filters", "n_highway", "n_characters", "max_characters_per_token")}


class ElmoLayout(WordLayout):
    title, family, prefix = "ELMo", "elmo", "Elmo"
    config_class = ElmoConfig
    fields = (*LSTM.values(), *CHAR_CNN.values(), "char_embedding_dim", "vocab_size")
    fields += ("n_negative_samples_batch", "dropout")
    sizes = ("cell_size", "projection_dim", "n_layers", "filters", "char_embedding_dim")
    renames = RENAMES
    infers_sizes = False
    stacks = (("elmo.encoder.layers", "n_layers"),)
    dimensions = (
        (r".*characters\.weight", 1, "char_embedding_dim"),
        (r".*_cell\.(weight|bias)", 0, "cell_size"),
        (r".*_cell\.weight", 1, "projection_dim"),
        (r".*projection(\.weight|\.bias)?", 0, "projection_dim"),
        (r".*(convolutions|highways|projection).*", -1, "filters"),
    )
    heads = {"softmax.": "softmax over words"}
    example = f"RNN_0{CELL}0/LSTMCell/W_0"
    field_names = {"cell_size": "`dim`"}
    their_mark = r"CNN|RNN|char_embed"
    original_files = ("weights.hdf5", "options.json")

    # ---- options ----

    def convert_config(self, original: Options) -> Any:
        """Our configuration from an options.json, whose options stand in two groups."""
        options = dict(original)
        lstm, network = (options.pop(name, None) for name in ("lstm", "char_cnn"))
        if not isinstance(lstm, Mapping) or not isinstance(network, Mapping):
            raise ValueError(
                "The options must be those of an ELMo's options.json, with `lstm` and `char_cnn`; got "
                f"{', '.join(sorted(map(str, original)))[:80] or 'none'}."
            )
        embedding = network.get("embedding")
        found = {ours: lstm.get(theirs) for theirs, ours in LSTM.items()}
        found |= {ours: network.get(theirs) for theirs, ours in CHAR_CNN.items()}
        found["char_embedding_dim"] = embedding.get("dim") if isinstance(embedding, Mapping) else None
        found["n_highway"] = found["n_highway"] or 0
        # Options without clipping clip nothing, as in the original.
        found |= {name: found[name] or 0 for name in ("cell_clip", "proj_clip")}
        rest = {"vocab_size": options.get("n_tokens_vocab"), "dropout": options.get("dropout")}
        rest["n_negative_samples_batch"] = options.get("n_negative_samples_batch")
        return super().convert_config(found | {name: value for name, value in rest.items() if value is not None})

    def revert_config(self, config: Any) -> dict[str, Any]:
        """The options of a configuration, without those of training."""
        network = {theirs: getattr(config, ours) for theirs, ours in CHAR_CNN.items()}
        lstm = {theirs: getattr(config, ours) for theirs, ours in LSTM.items()}
        return {"char_cnn": network | {"embedding": {"dim": config.char_embedding_dim}}, "lstm": lstm}

    # ---- weights ----

    def ours_of(self, name: str, key: str, tensor: torch.Tensor, config: Any) -> Tensors:
        if name == key or not tensor.ndim:  # of ours already, or no weight
            return {name: tensor}
        if name.endswith("characters.weight"):
            return {name: torch.cat([tensor.new_zeros(1, *tensor.shape[1:]), tensor])}
        if "convolutions" in name and tensor.ndim == 4:
            return {name: tensor[0].permute(2, 1, 0)}
        return {name: tensor.t() if tensor.ndim == 2 else tensor}

    def their_name(self, name: str, config: Any) -> str:
        first, *_, last = parts = name.removeprefix("elmo.").split(".")
        kind = last[:1].replace("w", "W")
        if first == "encoder":
            return f"RNN_{int(parts[3] == 'backward_cell')}{CELL}{parts[2]}/LSTMCell/{PARTS[last]}"
        if parts[1] == "characters":
            return "char_embed"
        if parts[1] == "convolutions":
            return f"CNN/{kind}_cnn_{parts[2]}"
        return f"CNN_high_{parts[2]}/{kind}_{parts[3]}" if parts[1] == "highways" else f"CNN_proj/{kind}_proj"

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """The original's arrays by their paths; they have no softmax."""
        self.check_ours(ours, config)
        found = {}
        for name, tensor in ours.items():
            if name.startswith("softmax."):
                continue
            if name.endswith("characters.weight"):
                tensor = tensor[1:]
            elif "convolutions" in name and tensor.ndim == 3:
                tensor = tensor.permute(2, 1, 0)[None]
            elif tensor.ndim == 2:
                tensor = tensor.t()
            found[self.their_name(name, config)] = tensor.contiguous()
        return found

    # ---- files ----

    def tokenizer_from(
        self, words: Words, config: Any, vocab: File = None, codes: File = None, lower_case: bool = False
    ) -> TokenizerFiles:
        tokenizer = ElmoTokenizer(
            () if vocab is None else read_words(vocab), max_characters_per_token=config.max_characters_per_token
        )
        kept = saved_tokenizer(tokenizer)
        told = "characters" if vocab is None else f"characters, and the words of {vocab}"
        return {name: text for name, text in kept.items() if name.endswith((".json", ".txt"))}, [told]

    def made_up(self, config: Any) -> list[str]:
        return ["nothing; a softmax over words is left out, the original's files have none"]

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        weights, config = self.original_files
        with hdf5_library().File(folder / weights, "w") as file:
            for name, tensor in tensors.items():
                file[name] = tensor.float().numpy()
        write_json(folder / config, dict(options))
        own = source / VOCAB_FILE
        if own.is_file():
            words: Iterable[str] = (word for word in read_words(own) if word != SPECIAL_WORDS[0])
            (folder / VOCAB_FILE).write_text("".join(f"{word}\n" for word in words), encoding="utf-8", newline="\n")


LAYOUT = ElmoLayout()
globals().update(functions_of(LAYOUT))
