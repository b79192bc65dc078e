#!/usr/bin/env python
"""Time reading word vectors, beside gensim's reader of the same file (`pip install gensim`), as ratios of one run."""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from gensim.models import KeyedVectors

from hf_ptm_ext.data.word_vectors import WordVectors


def seconds(call, rounds):
    """Processor seconds, the least of some rounds."""
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return min(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=60_000)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    table = np.random.default_rng(0).normal(size=(args.words, args.width)).astype(np.float32).round(6)
    vectors = WordVectors([f"word{number}" for number in range(args.words)], table)
    with tempfile.TemporaryDirectory() as folder:
        for name, binary in (("text", False), ("binary", True)):
            file = Path(folder) / f"vectors.{name}"
            vectors.to_word2vec(file, binary=binary)
            theirs = seconds(partial(KeyedVectors.load_word2vec_format, str(file), binary=binary), args.rounds)
            ours = seconds(partial(WordVectors.load, file), args.rounds)
            assert np.array_equal(WordVectors.load(file).table, vectors.table)
            print(f"{name:7} gensim {theirs:.2f} s  ours {ours:.2f} s  {theirs / ours:.1f} times as fast", flush=True)


if __name__ == "__main__":
    main()
