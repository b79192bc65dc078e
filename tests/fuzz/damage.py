"""The damages: kind -> what is done to a file, a command line or a folder, and what must then come out.

`refuse`: nothing but an error is right. `any`: an error or a result, and what
the sandbox looks for in every case. Each function draws from the `Random` it is given, and from nothing else.
"""

import gzip
import json
import math
import os
import pickle
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

REFUSE, ANY = "refuse", "any"
CANARY, SECRET = "canary", "hf_CANARYcanaryCANARYcanaryCANARYcanary"
TEXT = (
    *(".txt", ".tsv", ".csv", ".jsonl", ".json", ".conll", ".spo", ".yaml", ".vec", "codes", "_token", "_entity"),
    ".index.json",
)
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
MATRICES = ("model.safetensors", "entity_table.safetensors", ".bin", ".pt", ".pth")
EVERY = (*TEXT, *WEIGHTS, ".parquet", ".idx", ".gz")
Change = Callable[[bytes, Random], bytes]
NUMBERS = ("nan", "-1", "inf", "1e400", "", "abc", "-0.5", "1e30", "999999999999999999999", "0")


class Kind(NamedTuple):
    """A damage: to files of such endings, or to the words of a command line."""

    damage: Callable[..., Any]
    files: Sequence[str]
    verdict: str


def rewritten(change: Callable[[bytes, Random], bytes]) -> Callable[[Path, Random], None]:
    """A damage to the bytes of a file."""

    def damage(path: Path, random: Random) -> None:
        path.write_bytes(change(path.read_bytes(), random))

    return damage


def replaced(make: Callable[[Path], Any]) -> Callable[[Path, Random], None]:
    """A damage that puts something else in the place of a file."""

    def damage(path: Path, random: Random) -> None:
        moved = path.with_name(f"{path.name}.moved")
        path.rename(moved)
        if make(path) != "kept":
            moved.unlink()

    return damage


def flipped(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 8, 64))):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def in_a_word(data: bytes, random: Random, value: bytes) -> bytes:
    """Between two letters, so that it belongs to a text or a name."""
    places = [match.start() + 1 for match in re.finditer(rb"[a-z]{2}", data)]
    place = random.choice(places or [len(data)])
    return data[:place] + value + data[place:]


def linked_out(path: Path) -> str:
    """The file itself, outside of its folder and behind a link."""
    outside = path.parent.parent / f"outside_{path.name}"
    path.with_name(f"{path.name}.moved").rename(outside)
    path.symlink_to(outside)
    return "kept"


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 9\n"
HTML = b"<!DOCTYPE html>\n<html><body>404 not found</body></html>\n"
SEPARATORS = "\u2028\u0085\x0b\x1c"
BOTH, ALL = (*TEXT, *WEIGHTS), (*TEXT, *WEIGHTS, ".parquet")
IN_BYTES: dict[str, tuple[Change, Sequence[str], str]] = {
    "empty": (lambda d, r: b"", BOTH, REFUSE),
    "blank": (lambda d, r: b" \n\t\n", BOTH, REFUSE),
    "truncate": (lambda d, r: d[: r.randrange(len(d))], TEXT, ANY),
    "flip": (flipped, (*BOTH, ".idx", ".parquet"), ANY),
    "cut": (lambda d, r: d[: r.randrange(1, len(d))], (*WEIGHTS, ".parquet"), REFUSE),
    "nul": (lambda d, r: in_a_word(d, r, b"\0"), TEXT, REFUSE),
    "latin1": (lambda d, r: in_a_word(d, r, b"\xe9"), TEXT, REFUSE),
    "surrogate bytes": (lambda d, r: in_a_word(d, r, b"\xed\xa0\x80"), TEXT, REFUSE),
    "utf16": (lambda d, r: d.decode("utf-8", "ignore").encode("utf-16"), TEXT, REFUSE),
    "bom": (lambda d, r: b"\xef\xbb\xbf" + d, TEXT, ANY),
    "crlf": (lambda d, r: d.replace(b"\n", b"\r\n"), TEXT, ANY),
    "separators": (lambda d, r: in_a_word(d, r, r.choice(SEPARATORS).encode()), TEXT, ANY),
    "huge line": (lambda d, r: d + b"x" * (40 << 20), TEXT, ANY),
    "binary": (lambda d, r: r.randbytes(400), ALL, REFUSE),
    "lfs": (lambda d, r: LFS, ALL, REFUSE),
    "html": (lambda d, r: HTML, ALL, REFUSE),
}
IN_PLACE: dict[str, Callable[[Path], Any]] = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "missing": lambda path: None,
}
BYTES = {
    **{name: Kind(rewritten(change), *more) for name, (change, *more) in IN_BYTES.items()},
    **{name: Kind(replaced(make), EVERY, REFUSE) for name, make in IN_PLACE.items()},
    "link": Kind(replaced(linked_out), BOTH, ANY),
}


# ---- JSON ----

STRANGE: tuple[Any, ...] = (
    *(
        None,
        math.nan,
        math.inf,
        -1,
        0,
        10**30,
        -(10**30),
        2**31,
        0.5,
        True,
        "",
        "x",
        "\ud800",
        "../../x",
        "/etc/passwd",
    ),
    *([], {}, [[]], {"x": None}, ["a"] * 3, [1, "a", None], "x" * 100_000),
)


def places_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a JSON document."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value[:50]) if isinstance(value, list) else ()
    for key, one in items:
        found += places_of(one, (*path, key))
    return found


def in_json(change: Callable[[Any, Any, Random], str | None]) -> Callable[[Path, Random], None]:
    """A damage to one value of a document, or of a line of JSON lines; text of its own if JSON cannot say it."""

    def damage(path: Path, random: Random) -> None:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        at = random.randrange(len(lines))
        value = json.loads(lines[at])
        places = places_of(value) or [()]
        depth = random.randint(1, max(map(len, places)))  # the few values at the top as often as the many below
        place = random.choice([one for one in places if len(one) == depth] or places)
        owner = value
        for key in place[:-1]:
            owner = owner[key]
        written = change(owner, place[-1] if place else None, random)
        lines[at] = json.dumps(value) if written is None else written.replace("WHOLE", json.dumps(value))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    return damage


def put(owner: Any, key: Any, random: Random) -> None:
    owner[key] = random.choice(STRANGE)


def drop(owner: Any, key: Any, random: Random) -> None:
    del owner[key]


def more(owner: Any, key: Any, random: Random) -> None:
    if isinstance(owner, dict):
        owner[random.choice(("extra", "__class__", "\u202e", "label", "_name_or_path"))] = random.choice(STRANGE)
    else:
        owner.append(random.choice(STRANGE))


def mistyped(owner: Any, key: Any, random: Random) -> None:
    """The same value as another type spells it."""
    value = owner[key]
    owner[key] = [value] if isinstance(value, str) or not random.randrange(3) else str(value)


def repeated(owner: Any, key: Any, random: Random) -> str:
    name = key if isinstance(key, str) else "x"
    return f'{{"{name}": {json.dumps(random.choice(STRANGE))}, "{name}": WHOLE}}'


DEEP, LONG = "[" * 100_000 + "]" * 100_000, '{"x": ' + "9" * 10_000 + "}"
ROOTS = ("[]", "null", "7", '"x"', "[WHOLE]x", "{'a': 1}")
IN_JSON: dict[str, tuple[Callable[[Any, Any, Random], str | None], str]] = {
    "value": (put, ANY),
    "drop": (drop, ANY),
    "extra": (more, ANY),
    "type": (mistyped, ANY),
    "twice": (repeated, ANY),
    "1e400": (lambda owner, key, random: '{"x": 1e400, "y": WHOLE}', ANY),
    "deep": (lambda owner, key, random: DEEP, REFUSE),
    "root": (lambda owner, key, random: random.choice(ROOTS), REFUSE),
    "long number": (lambda owner, key, random: LONG, REFUSE),
}
JSON = {f"json {name}": Kind(in_json(change), (".json", ".jsonl"), one) for name, (change, one) in IN_JSON.items()}
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(9)
)
CHANGED = rb"(?m)^(output_dir|max_seq_length|task|train_file|model_name_or_path|stages|tasks|language): .*$"
VALUES = (b".nan", b"-1", b"null", b"[1, [2]]", b"{a: 1}", b"2020-01-01", b"!!binary aGk=")
IN_YAML: dict[str, tuple[Change, str]] = {
    "bomb": (lambda d, r: BOMB + d, REFUSE),
    "bomb value": (lambda d, r: d + b"seeds: &a [1, 2]\ndata_license: [*a, *a]\n", REFUSE),
    "tag": (lambda d, r: d + b"x: !!python/object/apply:os.system ['touch canary']\n", REFUSE),
    "twice": (lambda d, r: d + r.choice(d.splitlines(keepends=True)), REFUSE),
    "unknown": (lambda d, r: d + b"no_such_argument: 1\n", REFUSE),
    "list": (lambda d, r: b"- a\n- b\n", REFUSE),
    "deep": (lambda d, r: d + b"license: " + b"[" * 3000 + b"]" * 3000 + b"\n", REFUSE),
    "documents": (lambda d, r: d + b"---\n" + d, REFUSE),
    "value": (lambda d, r: re.sub(CHANGED, lambda match: match[1] + b": " + r.choice(VALUES), d), ANY),
    "tabs": (lambda d, r: d + b"\tlicense: mit\n", REFUSE),
}
YAML = {f"yaml {name}": Kind(rewritten(change), (".yaml",), one) for name, (change, one) in IN_YAML.items()}


# ---- weights ----


def of_tensors(change: Callable[[dict[str, torch.Tensor], str, Random], Any]) -> Callable[[Path, Random], None]:
    """A damage to a matrix of a layer, or to all tensors; a refused case has nothing but that in it."""

    def damage(path: Path, random: Random) -> None:
        loaded = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        tensors = loaded
        while isinstance(next(iter(tensors.values())), dict):  # the state dict lies inside
            tensors = next(iter(tensors.values()))
        layers = [name for name, one in tensors.items() if re.search(r"\.\d+\.", name) and one.ndim == 2]
        name = random.choice(layers or [name for name, one in tensors.items() if one.ndim == 2] or list(tensors))
        change(tensors, name, random)
        if path.suffix == ".safetensors":
            save_file({key: value.contiguous() for key, value in tensors.items()}, path, metadata={"format": "pt"})
        else:
            torch.save(loaded, path)

    return damage


def renamed(tensors: dict[str, torch.Tensor], name: str, random: Random) -> None:
    for key in list(tensors):
        tensors[f"other.{key}"] = tensors.pop(key)


def set_to(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., None]:
    return lambda tensors, name, random: tensors.__setitem__(name, make(tensors[name]))


def spoilt(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda one: torch.where(torch.arange(one.numel()).reshape(one.shape) == one.numel() // 2, value, one)


class Harm:
    """What a pickle would run."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch {CANARY}",)


def header(change: Callable[[bytes], bytes]) -> Callable[[Path, Random], None]:
    return rewritten(lambda data, random: change(data[:8]) + data[8:])


def indexed(name: str) -> Callable[[Path, Random], None]:
    """An index in the place of the weights that names another file."""

    def damage(path: Path, random: Random) -> None:
        names = list(load_file(path))
        path.rename(path.parent.parent / "outside.safetensors")
        index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, name)}
        path.with_name("model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    return damage


TENSORS = {
    "drop": lambda tensors, name, random: tensors.pop(name),
    "nan": set_to(spoilt(math.nan)),
    "infinity": set_to(spoilt(-math.inf)),
    "integers": set_to(lambda one: (one * 100).to(torch.int32)),
    "bool": set_to(lambda one: one > 0),
    "complex": set_to(lambda one: one.to(torch.complex64)),
    "wider": set_to(lambda one: torch.cat([one, one], -1)),
    "shorter": set_to(lambda one: one[:-1].clone()),
    "flat": set_to(lambda one: one.reshape(-1).clone()),
    "no rows": set_to(lambda one: one[:0].clone()),
    "foreign prefix": renamed,
    "no tensors": lambda tensors, name, random: [tensors.pop(key) for key in list(tensors)[1:]],
}
MODELS = {
    **{f"weights {name}": Kind(of_tensors(change), MATRICES, REFUSE) for name, change in TENSORS.items()},
    "weights half": Kind(of_tensors(set_to(lambda one: one.to(torch.float16))), MATRICES, ANY),
    "header long": Kind(header(lambda size: struct.pack("<Q", 1 << 60)), (".safetensors",), REFUSE),
    "header short": Kind(header(lambda size: struct.pack("<Q", 3)), (".safetensors",), REFUSE),
    "pickle": Kind(lambda path, random: path.write_bytes(pickle.dumps(Harm())), WEIGHTS, REFUSE),
    "torch pickle": Kind(lambda path, random: torch.save({"x": Harm()}, path), WEIGHTS, REFUSE),
    "index outside": Kind(indexed("../outside.safetensors"), ("model.safetensors",), REFUSE),
    "index missing shard": Kind(indexed("model-00001.safetensors"), ("model.safetensors",), REFUSE),
}


# ---- tables ----


def in_lines(change: Callable[[list[str], Random], Any]) -> Callable[[Path, Random], None]:
    def damage(path: Path, random: Random) -> None:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        lines = change(lines, random) or lines
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    return damage


def in_a_row(change: Callable[[list[str], Random], list[str]]) -> Callable[[Path, Random], None]:
    """A damage to the cells of one row that is not the first."""

    def damage(lines: list[str], random: Random) -> None:
        at = random.choice([number for number, line in enumerate(lines) if line and number])
        mark = next((one for one in "\t, " if one in lines[at]), "\t")
        lines[at] = mark.join(change(lines[at].split(mark), random))

    return in_lines(damage)


COLUMNS = (".tsv", ".csv", ".conll", ".spo", ".vec", "vectors.txt", "entity2id.txt", "ngram.txt", "codes")
IN_CELLS: dict[str, Callable[[list[str], Random], list[str]]] = {
    "ragged": lambda cells, r: [*cells, "x"],
    "short": lambda cells, r: cells[:-1],
    "empty cell": lambda cells, r: [*cells[:-1], ""],
    "first empty": lambda cells, r: ["", *cells[1:]],
    "quotes": lambda cells, r: ['"' + cells[0], *cells[1:]],
    "nan": lambda cells, r: [*cells[:-1], r.choice(NUMBERS)],
    "new label": lambda cells, r: [*cells[:-1], "unseen"],
    "long cell": lambda cells, r: [cells[0] + " word" * 60_000, *cells[1:]],
}
IN_TABLES: dict[str, tuple[Callable[[list[str], Random], list[str]], Sequence[str], str]] = {
    "no header": (lambda lines, r: lines[1:], COLUMNS, ANY),
    "header only": (lambda lines, r: lines[:1], ("texts.tsv", "texts.csv"), REFUSE),
    "header twice": (lambda lines, r: [f"{lines[0]}\tlabel", *lines[1:]], ("texts.tsv",), REFUSE),
    "one class": (lambda lines, r: [re.sub("bad$", "good", line) for line in lines], ("texts.tsv",), ANY),
    "all the same": (lambda lines, r: [lines[0], *[lines[-1]] * len(lines)], COLUMNS, ANY),
    "alone": (lambda lines, r: lines[:2], (*COLUMNS, ".jsonl"), ANY),
}
ROWS = {
    **{f"row {name}": Kind(in_a_row(change), COLUMNS, ANY) for name, change in IN_CELLS.items()},
    **{f"row {name}": Kind(in_lines(change), *more) for name, (change, *more) in IN_TABLES.items()},
}


def bomb(path: Path, random: Random) -> None:
    """3 GB of nothing in 3 MB: members one after the other are one stream."""
    member = gzip.compress(b"\n" * (16 << 20))
    path.write_bytes(gzip.compress(path.read_bytes()) + member * 200)


GZIP = {
    "gzip": Kind(rewritten(lambda d, r: gzip.compress(d)), (".gz",), ANY),
    "gzip cut": Kind(rewritten(lambda d, r: d[: r.randrange(12, len(d) - 1)]), (".gz",), REFUSE),
    "gzip plain": Kind(rewritten(lambda d, r: gzip.decompress(d)), (".gz",), REFUSE),
    "gzip flip": Kind(rewritten(flipped), (".gz",), ANY),
    "gzip bomb": Kind(bomb, (".gz",), ANY),
}


# ---- command lines: words in, words out ----


def values_of(words: list[str]) -> list[int]:
    """Places of values of options."""
    return [n for n, word in enumerate(words) if n and words[n - 1].startswith("--") and not word.startswith("--")]


def dropped(words: list[str], random: Random, numbers: Sequence[str]) -> list[str]:
    """Without one of the options, but for those whose defaults are a large model or a long training."""
    kept = ("--config_overrides", "--max_steps", "--model_name_or_path" if words[0] in NEW_MODELS else "")
    places = [place for place in values_of(words) if words[place - 1] not in kept]
    place = random.choice(places or [len(words) - 1])
    return words[: place - 1] + words[place + 1 :]


def strange(words: list[str], random: Random, numbers: Sequence[str]) -> list[str]:
    place = random.choice(values_of(words) or [len(words) - 1])
    return [*words[:place], random.choice(STRANGE_WORDS), *words[place + 1 :]]


STRANGE_WORDS = (
    *(
        "",
        "x" * 5000,
        "nowhere",
        "wörter 中文",
        "a\nb",
        "../../../x",
        "/proc/self/mem",
        "\udcff",
        "-",
        "--",
        "{",
        "[]",
    ),
    *("null", "nan", "-1", "1e400", "~", "%s", "*.nothing", "/dev/stdin", "/dev/zero", " "),
)
NEW_MODELS = ("pretrain", "finetune-seq2seq")
NO_NUMBERS = ("nan", "inf", "1e400", "-inf", "abc")
IN_WORDS: dict[str, tuple[Callable[[list[str], Random, Sequence[str]], list[str]], str]] = {
    "unknown option": (lambda words, r, numbers: [*words, "--no_such_option", "1"], REFUSE),
    "missing value": (lambda words, r, numbers: words[: r.choice(values_of(words) or [1])], ANY),
    "option dropped": (dropped, ANY),
    "number": (lambda words, r, numbers: [*words, f"--{r.choice(numbers)}", r.choice(NUMBERS)], ANY),
    "no number": (lambda words, r, numbers: [*words, f"--{r.choice(numbers)}", r.choice(NO_NUMBERS)], REFUSE),
    "strange value": (strange, ANY),
    "twice": (lambda words, r, numbers: [*words, *words[-2:]], ANY),
    "word more": (lambda words, r, numbers: [*words, r.choice(STRANGE_WORDS)], ANY),
    "order": (lambda words, r, numbers: [words[0], *r.sample(words[1:], len(words) - 1)], ANY),
    "secret": (lambda words, r, numbers: [*words, "--hub_token", SECRET], ANY),
    "secret and mistake": (lambda words, r, numbers: [*words, "--hub_token", SECRET, "--seed", "x"], REFUSE),
}
WORDS = {name: Kind(change, (), verdict) for name, (change, verdict) in IN_WORDS.items()}


# ---- output folders: what lies there before ----


def finished(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"work of a day")
    (folder / "results.json").write_text("{}", encoding="utf-8")
    (folder / "entity_table.safetensors").write_bytes(b"work of a day")


PLACES: dict[str, Callable[[Path], Any]] = {
    "output finished": finished,
    "output a file": lambda folder: folder.write_text("a file", encoding="utf-8"),
    "output a dangling link": lambda folder: folder.symlink_to("nowhere/at/all"),
}
OUTPUT = {
    name: Kind(lambda path, random, make=make: make(path), (), REFUSE if name == "output finished" else ANY)
    for name, make in PLACES.items()
}
# What tokenizers can do without, and what cannot be seen in a file that is read for another purpose.
UNNEEDED = {
    ("", "tokenizer_config.json"): ("missing", "dangling", "fifo", "device", "folder"),
    ("table", "entity_map.txt"): ("missing",),
    ("convert", "vocab.txt"): ("missing",),
    ("convert", "tokenizer.json"): ("missing",),
    # Lines that are no triples are told and left out.
    ("show", "graph.jsonl"): ("json root", "json deep", "json long number"),
    ("read-graph", "graph.jsonl"): ("json root", "json deep", "json long number"),
    # The library's names begin with the model's own.
    ("convert", "pytorch_adapter.bin"): ("weights foreign prefix",),
    ("convert", "adapter_model.safetensors"): ("weights foreign prefix",),
}
OF_FILES = {**BYTES, **JSON, **YAML, **MODELS, **ROWS, **GZIP}
KINDS = {**OF_FILES, **WORDS, **OUTPUT}


def suits(kind: Kind, path: Path | str) -> bool:
    """Whether a kind is one of this file's."""
    name = Path(path).name
    if name == "instances.bin":  # no weights
        return kind.files is EVERY
    return name.endswith(tuple(kind.files)) and not (name.endswith(".json") and kind.files is COLUMNS)


__all__ = ["ANY", "CANARY", "KINDS", "OF_FILES", "OUTPUT", "SECRET", "UNNEEDED", "WORDS", "suits"]
