"""Time K-BERT's tokenizer on real sentences with a large graph, beside the bare BERT tokenizer, all in one run.

Sentences in batches, to lists; a graph that is padded with synthetic triples of the vocabulary's characters (fixed
seed) to half a million. Every way takes its turn, round by round, so a busy machine slows all of them alike; CPU time
is taken and medians are quoted. Goals: 10,000 sentences a second by characters with ahocorasick-rs, 5,000 without it;
word pieces in at most 2.5 times the bare call; the graph loaded in 8 s, first search included.

    python scripts/bench_injection.py --text dev.tsv.gz --column 1 --kg HowNet.spo.gz --vocab vocab.txt.gz
"""

from __future__ import annotations

import argparse
import gzip
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import BertTokenizer

from hf_ptm_ext import KBertTokenizer, KnowledgeGraph

GOALS = {"characters, ahocorasick-rs": 10_000.0, "characters, Python": 5_000.0}
WORD_PIECES = "word pieces, ahocorasick-rs"
RATIO_GOAL, LOAD_GOAL = 2.5, 8.0


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, packed or not."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8").split("\n")[:-1]


def padded_graph(graph: KnowledgeGraph, size: int, characters: list[str], seed: int) -> KnowledgeGraph:
    """A graph with synthetic triples behind its own: subjects of 2 to 6 characters, objects of 2."""
    draw = random.Random(seed)

    def text(length: int) -> str:
        return "".join(draw.choices(characters, k=length))

    predicate = graph.predicates[0]
    triples: dict[tuple[str, str, str], None] = dict.fromkeys(graph)
    while len(triples) < size:
        triples[text(draw.randint(2, 6)), predicate, text(2)] = None
    return KnowledgeGraph(triples)


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a function gives, and its CPU time."""
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--text", type=Path, required=True, help="sentences, one a line, perhaps in a column of a table"
    )
    parser.add_argument("--column", type=int, help="the column, from 0; its first line is then a header")
    parser.add_argument("--kg", type=Path, required=True, help="triple file")
    parser.add_argument("--vocab", type=Path, required=True, help="BERT's vocab.txt")
    parser.add_argument("--triples", type=int, default=500_000)
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    sentences = lines_of(options.text)
    if options.column is not None:
        sentences = [line.split("\t")[options.column] for line in sentences[1:]]
    sentences = sentences[: options.sentences]
    vocab = {token: number for number, token in enumerate(lines_of(options.vocab))}
    characters = [token for token in vocab if len(token) == 1 and "\u4e00" <= token <= "\u9fff"]
    graph, reading = timed(lambda: KnowledgeGraph.from_files(options.kg))
    print(f"{graph} read in {reading:.2f} s")
    graph = padded_graph(graph, options.triples, characters, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = graph.save(folder)
        graph, loading = timed(lambda: KnowledgeGraph.from_file(path))

    def make(granularity: str, backend: str, **more: Any) -> tuple[KBertTokenizer, float]:
        tokenizer = KBertTokenizer(
            vocab, kg=graph, granularity=granularity, matcher_backend=backend, use_predicate=True, **more
        )
        return tokenizer, timed(lambda: tokenizer("热身"))[1]

    made = {
        "characters, ahocorasick-rs": make("char", "rust"),
        "characters, Python": make("char", "python"),
        WORD_PIECES: make("wordpiece", "rust"),
        "word pieces, Python": make("wordpiece", "python"),
        "as the original project": make("char", "rust", reference="classification"),
    }
    print(f"{graph} loaded in {loading:.2f} s; the first search makes ready in")
    for name, (_, seconds) in made.items():
        print(f"  {seconds:.2f} s: {name}")
    runs: dict[str, Any] = {
        "bare BERT tokenizer": BertTokenizer(vocab),
        **{name: one for name, (one, _) in made.items()},
    }
    batches = [sentences[start : start + options.batch] for start in range(0, len(sentences), options.batch)]
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds + 1):
        for name, run in runs.items():
            times[name].append(timed(lambda run=run: [run(batch) for batch in batches])[1])
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    found = runs["characters, Python"](sentences, return_knowledge_mask=True)["knowledge_mask"]
    mean = sum(map(len, sentences)) / len(sentences)
    injected = sum(map(sum, found)) / len(sentences)
    print(f"\n{len(sentences)} sentences of {mean:.1f} characters, {injected:.1f} injected tokens each\n")
    print("| call | sentences a second | time beside the bare call |\n| --- | --- | --- |")
    bare = medians["bare BERT tokenizer"]
    for name, median in medians.items():
        print(f"| {name} | {len(sentences) / median:,.0f} | {median / bare:.2f} |")
    checks = {f"{name}: {goal:,.0f} a second": len(sentences) / medians[name] >= goal for name, goal in GOALS.items()}
    checks[f"{WORD_PIECES}: at most {RATIO_GOAL} times the bare call"] = medians[WORD_PIECES] / bare <= RATIO_GOAL
    ready = loading + max(seconds for _, seconds in made.values())
    checks[f"graph loaded and made ready in {LOAD_GOAL} s"] = ready <= LOAD_GOAL
    print()
    for text, met in checks.items():
        print(f"goal: {text}; {'met' if met else 'NOT met'}")
    return int(not all(checks.values()))


if __name__ == "__main__":
    sys.exit(main())
