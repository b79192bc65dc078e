"""Reading TensorFlow's checkpoints (`model.ckpt.index`, `model.ckpt.data-00000-of-0000N`) without TensorFlow.

The index is a sorted table as LevelDB's: blocks of keys, each without what it shares with the one before, then a block
of the blocks, and a footer. Values are protobufs that say kind, shape and place of a tensor in the data files, which
are mapped into memory. Formats: tensorflow's `core/lib/io/format.h` and `core/protobuf/tensor_bundle.proto`, snappy's
`format_description.txt`.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..files import path_inside

FOOTER, MAGIC = 48, (0xDB4775248B80FB57).to_bytes(8, "little")
# TensorFlow's numbers of kinds; bfloat16 is read as integers first, words and objects are left out.
KINDS = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 14: "<i2", 17: "<u2", 19: "<f2"}
KINDS |= {22: "<u4", 23: "<u8"}
BFLOAT16, NO_NUMBERS = 14, (7, 20, 21)
LONGEST_KEY, LARGEST_BLOCK, MOST_SHARDS = 2**12, 2**26, 10**5
# Variables of optimisers, and counters, beside the weights.
STATE = r"(^|/)((adam|lamb)_[mv]|Adam|Adagrad|Momentum|RMSProp|global_step|beta[12]_power)(_\d+)?$"
STATE += r"|\.OPTIMIZER_SLOT|(^|/)(_?optimizer|save_counter)/"
OF_OBJECTS = "/.ATTRIBUTES/VARIABLE_VALUE"
# CRC-32C of each byte.
CRC: Any = np.arange(256, dtype=np.uint32)
for _ in range(8):
    CRC = (CRC >> 1) ^ np.where(CRC & 1, np.uint32(0x82F63B78), np.uint32(0))
Entry = dict[int, list[Any]]


def read_bundle(index: Path) -> tuple[dict[str, torch.Tensor], tuple[Path, ...]]:
    """The numbers of a checkpoint by the names of its variables, without the optimiser's, and the files with them."""
    try:
        entries = _entries(np.memmap(index, mode="r"))  # those of slices begin with a zero
        table = {key.decode(): _fields(value) for key, value in entries if not key.startswith(b"\0")}
        header = table.pop("", {})
        count, big = (header.get(number, [default])[0] for number, default in ((1, 1), (2, 0)))
        if big or not 0 < count <= MOST_SHARDS:
            raise ValueError(f"it must be little-endian, with 1 to {MOST_SHARDS} data files, got {count}")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{index} is cut short or not the index of a TensorFlow checkpoint: {error}.") from error
    files: dict[Path, Any] = {}
    tensors: dict[str, torch.Tensor] = {}
    claimed = 0
    for name, entry in table.items():
        if entry.get(1, [0])[0] in NO_NUMBERS or re.search(STATE, name):
            continue
        try:
            values = _values(index, entry, count, files)
            claimed += values.nbytes
            if claimed > sum(map(len, files.values())):
                raise ValueError(f"up to it there are {claimed:,} bytes of tensors, more than in the files")
        except (ValueError, TypeError) as error:
            raise ValueError(f"{index}: the variable {name[:200]!r} cannot be read: {error}.") from error
        tensor = torch.from_numpy(values)
        tensors[name.removesuffix(OF_OBJECTS)] = tensor.view(torch.bfloat16) if entry[1][0] == BFLOAT16 else tensor
    if not tensors:
        raise ValueError(f"{index} holds no tensors.")
    return tensors, (index, *files)


def _values(index: Path, entry: Entry, count: int, files: dict[Path, Any]) -> np.ndarray:
    """The values of an entry, which stay on the disk where they are aligned."""
    kind, number, start, size = (entry.get(field, [0])[0] for field in (1, 3, 4, 5))
    shape = tuple(_fields(one).get(1, [0])[0] for one in _fields(entry.get(2, [b""])[0]).get(2, []))
    if kind not in KINDS or 7 in entry:
        raise ValueError(f"it is saved in {len(entry[7])} slices" if 7 in entry else f"its kind of numbers is {kind}")
    dtype = np.dtype(KINDS[kind])
    if len(shape) > 32 or math.prod(map(int, shape)) * dtype.itemsize != size:
        raise ValueError(f"the shape {str(shape)[:80]} of {dtype} does not go with {size:,} bytes")
    if not size:
        return np.empty(shape, dtype)
    if number >= count:
        raise ValueError(f"it is in data file {number} of {count}")
    name = f"{index.name.removesuffix('.index')}.data-{number:05d}-of-{count:05d}"
    path = path_inside(index.parent, name, str(index))
    if path not in files:
        if not path.is_file():
            raise FileNotFoundError(f"{index} names the shard {name}, which does not exist.")
        files[path] = np.memmap(path, mode="c") if path.stat().st_size else b""
    found = _take(files[path], start, size)
    if 6 in entry and _masked_crc(found) != int.from_bytes(entry[6][0], "little"):
        raise ValueError(f"its checksum in {name} is another, the file is damaged: copy or download it again")
    return np.require(found.view(dtype).view(np.ndarray).reshape(shape), requirements="A")


def _entries(file: np.memmap) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a table."""
    footer = bytes(file[-FOOTER:])
    if not footer.endswith(MAGIC):
        raise ValueError(f"its last bytes are {footer[-8:].hex()}")
    place = _varint(footer, _varint(footer, 0)[1])[1]  # behind the block of statistics
    for _, handle in _block(file, footer[place:]):
        yield from _block(file, handle)


def _block(file: np.memmap, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    start, place = _varint(handle, 0)
    stored = bytes(_take(file, start, _varint(handle, place)[0] + 5))
    if _masked_crc(stored[:-4]) != int.from_bytes(stored[-4:], "little") or stored[-5] > 1:
        raise ValueError(f"the block at byte {start:,} is damaged")
    data = _unpacked(stored[:-5]) if stored[-5] else stored[:-5]
    end, key, place = len(data) - 4 - 4 * int.from_bytes(data[-4:], "little"), b"", 0
    while place < end:
        shared, place = _varint(data, place)
        own, place = _varint(data, place)
        size, place = _varint(data, place)
        if shared > len(key) or shared + own > LONGEST_KEY:
            raise ValueError(f"a key of {shared + own:,} bytes")
        key = key[:shared] + _take(data, place, own)
        yield key, _take(data, place + own, size)
        place += own + size


def _unpacked(data: bytes) -> bytes:
    """Snappy's bytes: literal ones, and copies of what was there before."""
    size, place = _varint(data, 0)
    found = bytearray()
    while place < len(data) and len(found) <= min(size, LARGEST_BLOCK):
        tag, kind, place = data[place] >> 2, data[place] & 3, place + 1
        more = (max(0, tag - 59), 1, 2, 4)[kind]
        number, place = int.from_bytes(_take(data, place, more), "little"), place + more
        length, back = 1 + tag if kind or tag < 60 else 1 + number, number
        if kind == 0:
            found += _take(data, place, length)
            place += length
            continue
        if kind == 1:
            length, back = 4 + (tag & 7), number + (tag >> 3 << 8)
        if not 0 < back <= len(found):
            raise ValueError(f"a copy from {back:,} bytes before")
        found += (bytes(found[-back:]) * (length // back + 1))[:length]
    if len(found) != size:
        raise ValueError(f"a block unpacks to {len(found):,} bytes instead of {size:,}")
    return bytes(found)


def _take(data: Any, place: int, size: int) -> Any:
    if place + size > len(data):
        raise ValueError(f"{size:,} bytes should be at byte {place:,}, and there are {len(data):,}")
    return data[place : place + size]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number in groups of seven bits, and the place behind it."""
    for length in range(1, 11):
        if _take(data, place, length)[-1] < 128:
            return sum((data[place + i] & 127) << 7 * i for i in range(length)), place + length
    raise ValueError(f"the number at byte {place:,} does not end")


def _fields(data: bytes) -> Entry:
    """A protobuf's fields by their numbers: integers, or bytes."""
    found: Entry = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        if tag & 7 not in (0, 1, 2, 5):
            raise ValueError(f"a value has the field type {tag & 7}")
        value, place = _varint(data, place) if tag & 7 in (0, 2) else (8 if tag & 7 == 1 else 4, place)
        if tag & 7:
            value, place = _take(data, place, value), place + value
        found.setdefault(tag >> 3, []).append(value)
    return found


def _masked_crc(data: Any) -> int:
    """The checksum of bytes as tables and bundles have it: CRC-32C of parts side by side, which are joined then."""
    values = np.frombuffer(data, np.uint8)
    lanes = 2 ** max(0, len(values).bit_length() // 2 - 2)
    rows = -(-len(values) // lanes)
    padded = np.zeros(lanes * rows, np.uint8)  # zeros in front change nothing
    padded[len(padded) - len(values) :] = values
    crcs = np.zeros(lanes, np.uint32)
    for column in padded.reshape(lanes, rows).T:
        crcs = CRC[(crcs ^ column) & 255] ^ (crcs >> 8)
    shift = _behind(rows)
    while len(crcs) > 1:
        crcs, shift = _times(shift, crcs[::2]) ^ crcs[1::2], _times(shift, shift)
    crc = int(crcs[0] ^ ~_times(_behind(len(values)), ~np.zeros(1, np.uint32))[0])
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _behind(length: int) -> np.ndarray:
    """What as many bytes of zeros behind it make of each bit of a checksum."""
    result = power = np.uint32(1) << np.arange(32, dtype=np.uint32)
    power = CRC[power & 255] ^ (power >> 8)
    while length:
        result, power, length = _times(power, result) if length & 1 else result, _times(power, power), length >> 1
    return result


def _times(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.bitwise_xor.reduce([np.where(values >> np.uint32(bit) & 1, matrix[bit], 0) for bit in range(32)], axis=0)
