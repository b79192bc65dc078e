"""The damages: kind -> what is done to a file, a command line or a folder, and what must then come out.

`refuse`: nothing but an error is right. `same`: it must be read as the sound one is. `any`: an error or a result, and
what the sandbox looks for in every case. Each function draws from the `Random` it is given, and from nothing else.
"""

import gzip
import json
import math
import os
import pickle
import re
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

REFUSE, SAME, ANY = "refuse", "same", "any"
CANARY, SECRET = "canary", "hf_CANARYcanaryCANARYcanaryCANARYcanary"
TEXT = (
    *(".txt", ".tsv", ".csv", ".jsonl", ".json", ".conll", ".spo", ".yaml", ".vec", "codes", "_token", "_entity"),
    ".index.json",
)
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
MATRICES = ("model.safetensors", "entity_table.safetensors", ".bin", ".pt", ".pth")
EVERY = (*TEXT, *WEIGHTS, ".parquet", ".idx", ".gz")
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


def at_a_byte(data: bytes, random: Random, value: bytes) -> bytes:
    place = random.randrange(len(data))
    return data[:place] + value + data[place + 1 :]


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


BYTES = {
    "empty": Kind(rewritten(lambda data, random: b""), (*TEXT, *WEIGHTS), REFUSE),
    "blank": Kind(rewritten(lambda data, random: b" \n\t\n"), (*TEXT, *WEIGHTS), REFUSE),
    "truncate": Kind(rewritten(lambda data, random: data[: random.randrange(len(data))]), TEXT, ANY),
    "flip": Kind(rewritten(flipped), (*TEXT, *WEIGHTS, ".idx", ".parquet"), ANY),
    "cut": Kind(
        rewritten(lambda data, random: data[: random.randrange(1, len(data))]), (*WEIGHTS, ".parquet"), REFUSE
    ),
    "nul": Kind(rewritten(lambda data, random: in_a_word(data, random, b"\0")), TEXT, REFUSE),
    "latin1": Kind(rewritten(lambda data, random: in_a_word(data, random, b"\xe9")), TEXT, REFUSE),
    "surrogate bytes": Kind(rewritten(lambda data, random: in_a_word(data, random, b"\xed\xa0\x80")), TEXT, REFUSE),
    "utf16": Kind(rewritten(lambda data, random: data.decode("utf-8", "ignore").encode("utf-16")), TEXT, REFUSE),
    "bom": Kind(rewritten(lambda data, random: b"\xef\xbb\xbf" + data), TEXT, ANY),
    "crlf": Kind(rewritten(lambda data, random: data.replace(b"\n", b"\r\n")), TEXT, ANY),
    "separators": Kind(
        rewritten(lambda data, random: in_a_word(data, random, random.choice("\u2028\u0085\x0b\x1c").encode())),
        TEXT,
        ANY,
    ),
    "huge line": Kind(rewritten(lambda data, random: data + b"x" * (40 << 20)), TEXT, ANY),
    "binary": Kind(rewritten(lambda data, random: random.randbytes(400)), (*TEXT, *WEIGHTS, ".parquet"), REFUSE),
    "lfs": Kind(
        rewritten(
            lambda data, random: b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 9\n"
        ),
        (*TEXT, *WEIGHTS, ".parquet"),
        REFUSE,
    ),
    "html": Kind(
        rewritten(lambda data, random: b"<!DOCTYPE html>\n<html><body>404 not found</body></html>\n"),
        (*TEXT, *WEIGHTS, ".parquet"),
        REFUSE,
    ),
    "folder": Kind(replaced(lambda path: path.mkdir()), EVERY, REFUSE),
    "fifo": Kind(replaced(lambda path: os.mkfifo(path)), EVERY, REFUSE),
    "device": Kind(replaced(lambda path: path.symlink_to("/dev/zero")), EVERY, REFUSE),
    "dangling": Kind(replaced(lambda path: path.symlink_to("nowhere")), EVERY, REFUSE),
    "missing": Kind(replaced(lambda path: None), EVERY, REFUSE),
    "link": Kind(replaced(linked_out), (*TEXT, *WEIGHTS), ANY),
}  # fmt: skip


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


JSON = {
    "json value": Kind(in_json(put), (".json", ".jsonl"), ANY),
    "json drop": Kind(in_json(drop), (".json", ".jsonl"), ANY),
    "json extra": Kind(in_json(more), (".json", ".jsonl"), ANY),
    "json type": Kind(in_json(mistyped), (".json", ".jsonl"), ANY),
    "json twice": Kind(in_json(repeated), (".json", ".jsonl"), ANY),
    "json 1e400": Kind(in_json(lambda owner, key, random: '{"x": 1e400, "y": WHOLE}'), (".json", ".jsonl"), ANY),
    "json deep": Kind(in_json(lambda owner, key, random: "[" * 100_000 + "]" * 100_000), (".json", ".jsonl"), REFUSE),
    "json root": Kind(
        in_json(lambda owner, key, random: random.choice(("[]", "null", "7", '"x"', "[WHOLE]x", "{'a': 1}"))),
        (".json", ".jsonl"),
        REFUSE,
    ),
    "json long number": Kind(
        in_json(lambda owner, key, random: '{"x": ' + "9" * 10_000 + "}"), (".json", ".jsonl"), REFUSE
    ),
}

YAML = {
    name: Kind(rewritten(change), (".yaml",), verdict)
    for name, change, verdict in (
        (
            "yaml bomb",
            lambda data, random: b"a: &a [x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(9))
            + data,
            REFUSE,
        ),
        ("yaml bomb value", lambda data, random: data + b"seeds: &a [1, 2]\ndata_license: [*a, *a]\n", REFUSE),
        ("yaml tag", lambda data, random: data + b"x: !!python/object/apply:os.system ['touch canary']\n", REFUSE),
        ("yaml twice", lambda data, random: data + random.choice(data.splitlines(keepends=True)), REFUSE),
        ("yaml unknown", lambda data, random: data + b"no_such_argument: 1\n", REFUSE),
        ("yaml list", lambda data, random: b"- a\n- b\n", REFUSE),
        ("yaml deep", lambda data, random: data + b"license: " + b"[" * 3000 + b"]" * 3000 + b"\n", REFUSE),
        ("yaml documents", lambda data, random: data + b"---\n" + data, REFUSE),
        (
            "yaml value",
            lambda data, random: re.sub(
                rb"(?m)^(output_dir|max_seq_length|task|train_file|model_name_or_path|stages|tasks|language): .*$",
                lambda match: match[1]
                + b": "
                + random.choice((b".nan", b"-1", b"null", b"[1, [2]]", b"{a: 1}", b"2020-01-01", b"!!binary aGk=")),
                data,
            ),
            ANY,
        ),
        ("yaml tabs", lambda data, random: data + b"\tlicense: mit\n", REFUSE),
    )
}  # fmt: skip


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
ROWS = {
    "row ragged": Kind(in_a_row(lambda cells, random: [*cells, "x"]), COLUMNS, ANY),
    "row short": Kind(in_a_row(lambda cells, random: cells[:-1]), COLUMNS, ANY),
    "row empty cell": Kind(in_a_row(lambda cells, random: [*cells[:-1], ""]), COLUMNS, ANY),
    "row first empty": Kind(in_a_row(lambda cells, random: ["", *cells[1:]]), COLUMNS, ANY),
    "row quotes": Kind(in_a_row(lambda cells, random: ['"' + cells[0], *cells[1:]]), COLUMNS, ANY),
    "row nan": Kind(in_a_row(lambda cells, random: [*cells[:-1], random.choice(NUMBERS)]), COLUMNS, ANY),
    "row new label": Kind(in_a_row(lambda cells, random: [*cells[:-1], "unseen"]), COLUMNS, ANY),
    "row long cell": Kind(in_a_row(lambda cells, random: [cells[0] + " word" * 60_000, *cells[1:]]), COLUMNS, ANY),
    "row no header": Kind(in_lines(lambda lines, random: lines[1:]), COLUMNS, ANY),
    "row header only": Kind(in_lines(lambda lines, random: lines[:1]), ("texts.tsv", "texts.csv"), REFUSE),
    "row header twice": Kind(
        in_lines(lambda lines, random: [f"{lines[0]}\tlabel", *lines[1:]]), ("texts.tsv",), REFUSE
    ),
    "row one class": Kind(
        in_lines(lambda lines, random: [lines[0], *(re.sub("bad$", "good", line) for line in lines[1:])]),
        ("texts.tsv",),
        ANY,
    ),
    "row all the same": Kind(in_lines(lambda lines, random: [lines[0], *[lines[-1]] * len(lines)]), COLUMNS, ANY),
    "row alone": Kind(in_lines(lambda lines, random: lines[:2]), (*COLUMNS, ".jsonl"), ANY),
}  # fmt: skip


def bomb(path: Path, random: Random) -> None:
    """3 GB of nothing in 3 MB: members one after the other are one stream."""
    member = gzip.compress(b"\n" * (16 << 20))
    path.write_bytes(gzip.compress(path.read_bytes()) + member * 200)


GZIP = {
    "gzip": Kind(rewritten(lambda data, random: gzip.compress(data)), (".gz",), ANY),
    "gzip cut": Kind(rewritten(lambda data, random: data[: random.randrange(12, len(data) - 1)]), (".gz",), REFUSE),
    "gzip plain": Kind(rewritten(lambda data, random: gzip.decompress(data)), (".gz",), REFUSE),
    "gzip flip": Kind(rewritten(flipped), (".gz",), ANY),
    "gzip bomb": Kind(bomb, (".gz",), ANY),
}


# ---- command lines: words in, words out ----


def values_of(words: list[str]) -> list[int]:
    """Places of values of options."""
    return [n for n, word in enumerate(words) if n and words[n - 1].startswith("--") and not word.startswith("--")]


def with_value(choices: Sequence[str], only: str = "") -> Callable[..., list[str]]:
    """A value of the command line becomes another one."""

    def damage(words: list[str], random: Random, numbers: Sequence[str]) -> list[str]:
        places = [place for place in values_of(words) if only in words[place - 1]] or values_of(words)
        place = random.choice(places or [len(words) - 1])
        return [*words[:place], random.choice(choices), *words[place + 1 :]]

    return damage


def with_number(
    words: list[str], random: Random, numbers: Sequence[str], values: Sequence[str] = NUMBERS
) -> list[str]:
    return [*words, f"--{random.choice(numbers)}", random.choice(values)] if numbers else [*words, *values[:1]]


def with_nan(words: list[str], random: Random, numbers: Sequence[str]) -> list[str]:
    return with_number(words, random, numbers, ("nan", "inf", "1e400", "-inf", "abc"))


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
        "null",
    ),
    *("nan", "-1", "1e400", "~", "%s", "*.nothing", "/dev/stdin", "/dev/zero", " "),
)
WORDS = {
    "unknown option": Kind(lambda words, random, numbers: [*words, "--no_such_option", "1"], (), REFUSE),
    "missing value": Kind(lambda words, random, numbers: words[: random.choice(values_of(words) or [1])], (), ANY),
    "option dropped": Kind(
        lambda words, random, numbers: (lambda place: words[: place - 1] + words[place + 1 :])(
            random.choice(values_of(words) or [len(words) - 1])
        ),
        (),
        ANY,
    ),
    "number": Kind(with_number, (), ANY),
    "no number": Kind(with_nan, (), REFUSE),
    "strange value": Kind(with_value(STRANGE_WORDS), (), ANY),
    "twice": Kind(lambda words, random, numbers: [*words, *words[-2:]], (), ANY),
    "word more": Kind(lambda words, random, numbers: [*words, random.choice(STRANGE_WORDS)], (), ANY),
    "order": Kind(lambda words, random, numbers: [words[0], *random.sample(words[1:], len(words) - 1)], (), ANY),
    "secret": Kind(lambda words, random, numbers: [*words, "--hub_token", SECRET], (), ANY),
    "secret and mistake": Kind(
        lambda words, random, numbers: [*words, "--hub_token", SECRET, "--max_steps", "x"], (), REFUSE
    ),
}  # fmt: skip


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
    return str(path).endswith(tuple(kind.files)) and not (str(path).endswith(".json") and kind.files is COLUMNS)


def apply_to(path: Path, kind: Kind, random: Random) -> None:
    """Damage a file; a file that the damage itself cannot read stays as it is."""
    if path.is_symlink():
        real = path.resolve()
        path.unlink()
        shutil.copyfile(real, path)
    kind.damage(path, random)


__all__ = ["CANARY", "KINDS", "OF_FILES", "OUTPUT", "SECRET", "WORDS", "Kind", "apply_to", "suits"]
