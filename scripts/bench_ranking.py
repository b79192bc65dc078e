"""Time KG-BERT's link prediction against a loop over queries with one triple per forward pass, in one run on the CPU.

A small random BERT on a random graph (fixed seed) whose entities and relations have texts of a few words. The loop
cuts and scores every unknown candidate of every query by itself; a share of them is timed and the rest extrapolated.
Goal: 20 times the loop.

    python scripts/bench_ranking.py --hidden_size 128 --layers 2
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from hf_ptm_ext import TripleEncoder, TripleScorer

GOAL = 20.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden_size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--entities", type=int, default=400)
    parser.add_argument("--relations", type=int, default=4)
    parser.add_argument("--triples", type=int, default=400, help="test triples")
    parser.add_argument("--longest_text", type=int, default=4, help="words")
    parser.add_argument("--timed", type=int, default=1500, help="triples that the loop is timed on")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    draw = np.random.default_rng(options.seed)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(5000))]
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})

    def text() -> str:
        return " ".join(draw.choice(words[5:], draw.integers(1, options.longest_text + 1)))

    entities, relations = ([text() for _ in range(number)] for number in (options.entities, options.relations))
    # A few entities stand in most triples, as in real graphs.
    shares = 1 / np.arange(1, options.entities + 1)
    columns = [
        draw.choice(options.entities, 4 * options.triples, p=shares / shares.sum()),
        draw.integers(0, options.relations, 4 * options.triples),
        draw.choice(options.entities, 4 * options.triples, p=shares / shares.sum()),
    ]
    known = draw.permutation(np.unique(np.stack(columns, axis=1), axis=0))
    test = known[: options.triples]
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=options.hidden_size,
        num_hidden_layers=options.layers,
        num_attention_heads=max(options.hidden_size // 64, 1),
        intermediate_size=4 * options.hidden_size,
        num_labels=2,
    )
    model = BertForSequenceClassification(config).eval()

    true = set(map(tuple, known.tolist()))
    asked = []
    for head, relation, tail in test.tolist():
        candidates = [(entity, relation, tail) for entity in range(options.entities)]
        candidates += [(head, relation, entity) for entity in range(options.entities)]
        asked += [(head, relation, tail)] * 2
        asked += [one for one in candidates if one not in true]
    chosen = [asked[place] for place in draw.choice(len(asked), min(options.timed, len(asked)), replace=False)]

    def loop() -> list[float]:
        found = []
        with torch.no_grad():
            for head, relation, tail in chosen:
                ids, types = [tokenizer.cls_token_id], [0]
                for part, one in enumerate((entities[head], relations[relation], entities[tail])):
                    pieces = tokenizer(one, add_special_tokens=False)["input_ids"]
                    ids += [*pieces, tokenizer.sep_token_id]
                    types += [part % 2] * (len(pieces) + 1)
                mask = torch.ones(1, len(ids), dtype=torch.long)
                batch = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([types])}
                found.append(model(attention_mask=mask, **batch).logits[0, 1].item())
        return found

    loop_of, chosen = chosen, chosen[:20]
    loop()
    chosen = loop_of
    start = time.perf_counter()
    theirs = loop()
    each = (time.perf_counter() - start) / len(chosen)
    start = time.perf_counter()
    scored: list[int] = []
    scorer = TripleScorer(
        model, TripleEncoder(tokenizer, entities, relations, 64), options.batch_size, on_scored=scored.append
    )
    ranks = scorer.rank(test, known)
    ours = time.perf_counter() - start
    worst = np.abs(scorer(np.array(chosen)) - np.array(theirs)).max()
    naive = each * len(asked)
    print(f"{len(test)} triples, {options.entities} entities; {options.layers} layers of {options.hidden_size}")
    print(f"loop: {1e3 * each:.2f} ms a triple, {len(asked):,} triples, {naive:.1f} s")
    print(
        f"here: {1e3 * ours / sum(scored):.3f} ms a triple, {sum(scored):,} triples, {ours:.1f} s, tokenising included"
    )
    print(f"scores differ by {worst:.1e} at most; MRR {ranks.scores()['mrr']:.4f}")
    met = naive / ours >= GOAL
    print(f"goal: {GOAL:.0f} times the loop; {naive / ours:.1f} times, {'met' if met else 'NOT met'}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
