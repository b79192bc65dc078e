"""AWD-LSTM's weights in the layouts of their time, and back: fastai 2, 1 and 0.7, its encoders, Salesforce's code.

| written by | recurrent weight | copy of the embeddings | decoder |
| --- | --- | --- | --- |
| fastai2 | 0.rnns.l.weight_hh_l0_raw | 0.encoder_dp.emb.weight | 1.decoder.weight, bias |
| fastai1 | the same, and as a last call dropped it 0.rnns.l.module.weight_hh_l0 | the same | the same |
| fastai0.7 (`.h5`, yet torch) | 0.rnns.l.module.weight_hh_l0_raw | 0.encoder_with_dropout.embed.weight | no bias |
| encoder (`save_encoder`) | as fastai2, without `0.` | | none |
| salesforce (its `state_dict`) | rnns.l.module.weight_hh_l0_raw | none | decoder.weight, bias |

Classifiers have `0.module.` in front and `1.layers.*`. Vocabularies are pickled lists, read by an unpickler that knows
no name.
"""

import io
import json
import pickle
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..files import write_json
from ..models.configuration_awd_lstm import AwdLstmConfig
from .files import beside, name_some, read_checkpoint
from .layout import Conversion, Layout, Shapes, functions_of
from .tensors import File, Options, State, Tensors, has_part, layer_numbers, size_of

EMBEDDINGS = "awd_lstm.embeddings.word_embeddings.weight"
RNNS = "awd_lstm.encoder.rnns"
# Layout -> the file that its tools look for.
FILES = {
    "fastai2": "lstm_fwd.pth",
    "fastai1": "lstm_fwd.pth",
    "fastai0.7": "fwd_wt103.h5",
    "encoder": "encoder.pth",
    "salesforce": "model.pt",
}
COPIES = r"(encoder_dp\.emb|encoder_with_dropout\.embed)\.weight$"
STEPS = r"norm\.num_batches_tracked$"
FASTAI = {
    **{"vocab_sz": "vocab_size", "emb_sz": "embedding_size", "n_hid": "lstm_size", "n_layers": "num_hidden_layers"},
    **{"pad_token": "pad_token_id", "bidir": "bidirectional", "tie_weights": "tie_word_embeddings"},
    **{"out_bias": "decoder_bias", "seq_len": "bptt", "lin_ftrs": "classifier_sizes", "n_class": "num_labels"},
}
SALESFORCE = {
    **{"ntoken": "vocab_size", "ninp": "embedding_size", "nhid": "lstm_size", "nlayers": "num_hidden_layers"},
    **{"dropout": "output_p", "dropouth": "hidden_p", "dropouti": "input_p", "dropoute": "embed_p"},
    "wdrop": "weight_p",
}


class _Lists(pickle.Unpickler):
    """Reads what is made of lists and words alone."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a list of words needs no name")


def read_itos(path: str | Path) -> list[str]:
    """The words of a fastai vocabulary by their ids, from its pickled list (`*_itos.pkl`).

    Raises:
        ValueError: the file is cut short, or holds anything but a list of words; nothing that it names is run.
    """
    try:
        words = _Lists(io.BytesIO(Path(path).read_bytes())).load()
    except Exception as error:  # a damaged pickle fails wherever its instructions lead
        if isinstance(error, OSError):
            raise
        raise ValueError(f"{path} is no pickled list of words: {error}.") from error
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{path} must hold a list of words, got a {type(words).__name__}.")
    return words


def without_copies(original: State) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a file without those that repeat others, and why these are left out."""
    if quasi := [key for key in original if re.search(r"rnns\.\d+\.(module\.)?(layers|linear)\.", key)]:
        raise ValueError(
            f"The file has quasi-recurrent layers (`{quasi[0]}`, as MultiFiT's): only LSTMs can be converted."
        )
    kept, dropped = dict(original), {}
    table = next((value for key, value in original.items() if re.search(r"(^|\.)encoder\.weight$", key)), None)
    for key, value in original.items():
        raw = (f"{key}_raw", key.replace(".module.weight_hh", ".weight_hh") + "_raw")
        if re.search(COPIES, key):
            if table is not None and not torch.equal(table, value):
                raise ValueError(f"`{key}` differs from `encoder.weight`, of which it is a copy in every layout.")
            dropped[key] = "a copy of `encoder.weight`"
        elif key.endswith("weight_hh_l0") and (found := next((name for name in raw if name in original), None)):
            dropped[key] = f"`{found}` as some call dropped it"
    for key in dropped:
        del kept[key]
    return kept, dropped


class AwdLstmLayout(Layout):
    title, family, prefix = "AWD-LSTM", "awd_lstm", "AwdLstm"
    config_class = AwdLstmConfig
    fields = (
        *("vocab_size", "embedding_size", "lstm_size", "num_hidden_layers", "output_size", "bidirectional"),
        *("output_p", "hidden_p", "input_p", "embed_p", "weight_p", "drop_mult", "alpha", "beta", "decoder_bias"),
        *("bptt", "max_len", "classifier_sizes", "classifier_dropout", "classifier_bias", "fastai_compatible_pooling"),
        *("initializer_range", "pad_token_id", "tie_word_embeddings", "num_labels", "id2label", "label2id"),
    )
    sizes = ()
    theirs = FASTAI | SALESFORCE
    infers_sizes = True
    renames = (
        (r"^(0\.)?(module\.)?encoder\.weight$", EMBEDDINGS, f"`encoder.weight` to `{EMBEDDINGS}`"),
        (
            r"^(?:0\.)?(?:module\.)?rnns\.(\d+)\.(?:module\.)?(\w+?)(?:_raw)?$",
            rf"{RNNS}.\1.\2",
            f"`rnns.*` to `{RNNS}.*`, `_raw` taken off",
        ),
        (r"^(1\.)?decoder\.", "lm_head.", "`decoder.` to `lm_head.`"),
        (r"^1\.layers\.(\d+)\.0\.", r"classifier.\1.norm.", "`1.layers.*` to `classifier.*`"),
        (r"^1\.layers\.(\d+)\.[12]\.(?=\w+$)", r"classifier.\1.dense.", "`1.layers.*` to `classifier.*`"),
        (r"^(embeddings|encoder)\.", r"awd_lstm.\1.", "prefix `awd_lstm.` put in front"),
    )
    buffers = STEPS
    stacks = ((RNNS, "num_hidden_layers"),)
    dimensions = ((re.escape(EMBEDDINGS), 0, "vocab_size"), (re.escape(EMBEDDINGS), 1, "embedding_size"))
    heads = {"lm_head.": "language-model head"}
    whole, classes = "ForCausalLM", {"lm_head.": "ForCausalLM", "classifier.": "ForSequenceClassification"}
    other_parts = ("classifier.",)
    needs = {}
    tied = {"lm_head.weight": EMBEDDINGS}
    optional = STEPS
    example = "0.rnns.0.module.weight_ih_l0"
    their_mark = r"^(0\.)?(module\.)?(encoder\.weight|rnns\.)"
    vocabulary_files = ("itos.pkl", "itos_wt103.pkl", "lstm_fwd_itos.pkl")
    written = "fastai2"

    # ---- options ----

    def for_options(self, options: Options) -> "AwdLstmLayout":
        """The way back in another layout."""
        chosen = copy(self)
        chosen.written = options.get("layout") or self.written
        return chosen

    def adjusted(self, fields: dict[str, Any], original: Options) -> dict[str, Any]:
        if "ninp" in original:  # Salesforce's code, whose layers are as wide as the others where nothing is tied
            fields.setdefault("pad_token_id", None)
            if not fields.get("tie_word_embeddings", True):
                fields.setdefault("output_size", fields.get("lstm_size"))
        return fields

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        if options.get("layout"):
            raise ValueError(
                f"`--layout` goes with `--to_original`, got {options['layout']}: a file's layout is seen."
            )
        given = {self.theirs.get(name, name) for name, value in options.items() if value is not None}
        layers = len(layer_numbers(tensors, f"{RNNS}."))
        head, classes = tensors.get("lm_head.weight"), sorted(layer_numbers(tensors, "classifier."))
        matrices = [EMBEDDINGS, *(f"{RNNS}.{number}.weight_hh_l0" for number in range(max(layers, 1)))]
        matrices += [f"classifier.{number}.dense.weight" for number in classes]
        if lacking := [name for name in matrices if size_of(tensors, name, 1) is None]:
            theirs = self.their_name(lacking[0], None)
            raise ValueError(f"The file lacks a matrix `{theirs}`: it has {name_some(sorted(tensors))}.")
        table, both = tensors[EMBEDDINGS], 1 + (f"{RNNS}.0.weight_hh_l0_reverse" in tensors)
        units = [tensors[name].shape[1] * both for name in matrices[1 : 1 + layers]]
        tied = units[-1] == table.shape[1] if head is None else head.shape == table.shape and torch.equal(head, table)
        found: dict[str, Any] = {
            "vocab_size": table.shape[0],
            "embedding_size": table.shape[1],
            "num_hidden_layers": layers,
            "lstm_size": units[0],
            "output_size": None if tied else units[-1],
            "bidirectional": both == 2,
            "tie_word_embeddings": tied,
            "decoder_bias": head is None or "lm_head.bias" in tensors,
        }
        if classes:
            sizes = [tensors[f"classifier.{number}.dense.weight"].shape[0] for number in classes]
            bias = f"classifier.{classes[-1]}.dense.bias" in tensors
            found |= {"classifier_sizes": sizes[:-1], "num_labels": sizes[-1], "classifier_bias": bias}
        self.add_read(options, found)
        lacking = [name for name in ("output_p", "hidden_p", "input_p", "embed_p", "weight_p") if name not in given]
        return {name: f"{getattr(self.config_class, name)}, as in fastai's language models" for name in lacking}

    def revert_config(self, config: Any) -> dict[str, Any]:
        if self.written == "salesforce":
            return {name: getattr(config, ours) for name, ours in SALESFORCE.items()} | {
                "tie_weights": config.tie_word_embeddings
            }
        names = {
            name: ours for name, ours in FASTAI.items() if name not in ("vocab_sz", "n_class", "lin_ftrs", "seq_len")
        }
        rates = ("output_p", "hidden_p", "input_p", "embed_p", "weight_p")
        told = {name: getattr(config, ours) for name, ours in names.items()} | {n: getattr(config, n) for n in rates}
        return told | ({"out_bias": False} if self.written == "fastai0.7" else {})

    # ---- weights ----

    def more_shapes(self, config: Any, tensors: State) -> Shapes:
        from ..models.modeling_awd_lstm import AwdLstmForSequenceClassification

        if not has_part(tensors, "classifier."):
            return {}
        with torch.device("meta"):
            model = AwdLstmForSequenceClassification(config)
        return {f"classifier.{name}": tuple(v.shape) for name, v in model.classifier.state_dict().items()}

    def describe_key(self, key: str) -> tuple[str, tuple[str, ...]]:
        """As every layout; fastai 1's classifier is one list of normalisations, dropouts, layers and activations."""
        if (flat := re.fullmatch(r"1\.layers\.(\d+)\.([a-z_]+)", key)) is not None:
            number, part = divmod(int(flat[1]), 4)
            name = f"classifier.{number}.{'norm' if part == 0 else 'dense'}.{flat[2]}"
            return name, ("`1.layers.*` to `classifier.*`",)
        return super().describe_key(key)

    def their_name(self, name: str, config: Any) -> str:
        front = "" if self.written in ("encoder", "salesforce") else "0."
        if name == EMBEDDINGS:
            return f"{front}encoder.weight"
        if (layer := re.fullmatch(rf"{RNNS}\.(\d+)\.(\w+)", name)) is not None:
            raw = layer[2] == "weight_hh_l0"
            module = "" if raw and self.written in ("fastai2", "fastai1", "encoder") else "module."
            return f"{front}rnns.{layer[1]}.{module}{layer[2]}{'_raw' * raw}"
        return name.replace("lm_head.", f"{'1.' * bool(front)}decoder.")

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        kept, _ = without_copies(original)
        steps = {self.describe_key(key)[0]: value for key, value in kept.items() if re.search(r"tracked$", key)}
        return super().convert_state_dict(kept, config) | steps

    def convert_checkpoint(self, original: State, options: Options) -> Conversion:
        kept, dropped = without_copies(original)
        found = super().convert_checkpoint(kept, options)
        steps = {key for key in found.dropped if key.endswith("num_batches_tracked")}
        return replace(found, dropped={k: v for k, v in found.dropped.items() if k not in steps} | dropped)

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """In the layout `written`, with its copies."""
        steps = {name: value for name, value in ours.items() if re.search(STEPS, name)}
        reverted = self.untied({name: one for name, one in ours.items() if name not in steps}, config, True) | steps
        if not config.decoder_bias and not has_part(reverted, "classifier."):  # a tied decoder leaves no trace
            reverted.setdefault("lm_head.weight", reverted[EMBEDDINGS])
        if self.written == "encoder":
            reverted = {name: value for name, value in reverted.items() if name.startswith("awd_lstm.")}
        if has_part(reverted, "classifier.") and self.written not in ("fastai2", "fastai1"):
            raise ValueError(f"`--layout` must be fastai2 or fastai1 for a classifier, got {self.written}.")
        if self.written == "fastai0.7" and (bias := reverted.pop("lm_head.bias", torch.zeros(1))).any():
            raise ValueError(f"`--layout` fastai0.7 has no decoder's bias, got one up to {bias.abs().max():.3g}.")
        result = {self.their_name(name, config): value for name, value in reverted.items()}
        for name, value in reverted.items():
            result |= dict.fromkeys(self._copies_of(name, config), value)
        return self._classifier(result)

    def _copies_of(self, name: str, config: Any) -> Sequence[str]:
        """Under which names a layout has a weight once more."""
        theirs = self.their_name(name, config)
        if name == EMBEDDINGS and self.written != "salesforce":
            copied = "encoder_with_dropout.embed" if self.written == "fastai0.7" else "encoder_dp.emb"
            return (theirs.replace("encoder.weight", f"{copied}.weight"),)
        if theirs.endswith("weight_hh_l0_raw") and self.written == "fastai1":
            return (theirs.replace("weight_hh_l0_raw", "module.weight_hh_l0"),)
        return ()

    def _classifier(self, named: Tensors) -> Tensors:
        """A classifier's own names, and what stands in front of its encoder's."""
        if not has_part(named, "classifier."):
            return named
        result = {}
        for name, value in named.items():
            part = re.fullmatch(r"classifier\.(\d+)\.(norm|dense)\.(\w+)", name)
            if part is None:
                result[re.sub(r"^0\.", "0.module.", name)] = value
                continue
            place = 0 if part[2] == "norm" else 2
            number = f"{part[1]}.{place}" if self.written == "fastai2" else 4 * int(part[1]) + place
            result[f"1.layers.{number}.{part[3]}"] = value
        return result

    # ---- files ----

    def vocabulary_names(self, source: Path) -> tuple[str, ...]:
        """The pickle that belongs to a file of weights, or one of the usual names."""
        own = () if source.is_dir() else (f"{source.stem}_itos.pkl",)
        return (*own, *self.vocabulary_files)

    def read_vocabulary(self, path: Path) -> dict[str, int]:
        from ..models.tokenization_awd_lstm import ids_of

        return ids_of(read_itos(path))

    def wordpiece_tokenizer(self, vocab: Mapping[str, int], config: Any, do_lower_case: bool, **files: Path) -> Any:
        from ..models.tokenization_awd_lstm import AwdLstmTokenizer

        return AwdLstmTokenizer(list(vocab))

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        file = FILES[self.written]
        torch.save({name: tensor.clone() for name, tensor in tensors.items()}, folder / file)
        write_json(folder / "config.json", dict(options))
        if (words := beside(source, ("vocab.json",))) is not None:
            itos = [re.sub(r"^xxfake\d+$", "xxfake", word) for word in json.loads(words.read_text(encoding="utf-8"))]
            (folder / f"{Path(file).stem}_itos.pkl").write_bytes(pickle.dumps(itos))


def convert_fastai(path: str | Path, itos: str | Path | None = None, **options: Any) -> tuple[Any, Any]:
    """A model of ours from a file of any layout, and the tokenizer of its vocabulary.

    Args:
        path: the weights, `lstm_fwd.pth` say.
        itos: the pickled vocabulary (default: none, and no tokenizer).
        options: fields of `AwdLstmConfig` that the file does not tell, such as rates of dropout.

    Returns:
        The model, in evaluation mode, and its tokenizer or None.
    """
    from ..models import modeling_awd_lstm

    conversion = LAYOUT.convert_checkpoint(read_checkpoint(path).tensors, options)
    model = getattr(modeling_awd_lstm, conversion.architecture)(conversion.config)
    prefix = "awd_lstm." if model.base_model is model else ""
    model.load_state_dict({name.removeprefix(prefix): one for name, one in conversion.tensors.items()}, strict=False)
    model.tie_weights()
    words = None if itos is None else LAYOUT.read_vocabulary(Path(itos))
    return model.eval(), words and LAYOUT.wordpiece_tokenizer(words, conversion.config, False)


LAYOUT = AwdLstmLayout()
globals().update(functions_of(LAYOUT))
