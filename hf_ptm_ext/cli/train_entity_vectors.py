"""`hf-ptm-ext train-entity-vectors`: a TransE on triple files, written as an entity table and measured."""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

from . import COMMANDS
from .console import bar, log_to_console, phase
from .tables import print_table

logger = logging.getLogger(__name__)

TABLE, RESULTS = "entity_table.safetensors", "link_prediction.json"
COLUMNS = ("mrr", "hits@1", "hits@3", "hits@10", "mean_rank")


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command."""
    line = COMMANDS["train-entity-vectors"]
    parser = subparsers.add_parser("train-entity-vectors", help=line, description=line)
    parser.add_argument(
        "train_file", nargs="+", type=Path, help="files of head<TAB>relation<TAB>tail lines, also .gz, to train on"
    )
    parser.add_argument("--output_dir", type=Path, required=True, help=f"folder for {TABLE} and {RESULTS}")
    parser.add_argument("--validation_file", type=Path, help="triples that corruption must not make either")
    parser.add_argument("--test_file", type=Path, help="triples to predict (default: nothing is measured)")
    parser.add_argument("--titles", type=Path, help="title<TAB>entity lines, for look-up by name")
    parser.add_argument("--encoding", default="utf-8", help="of triples and titles (default utf-8)")
    parser.add_argument("--dimension", type=int, default=100, help="length of the vectors (default 100, ERNIE-THU's)")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the triples (default 30)")
    parser.add_argument("--margin", type=float, default=5.0, help="margin of the loss (default 5)")
    parser.add_argument("--norm", type=int, choices=(1, 2), default=1, help="of the distance (default 1)")
    parser.add_argument("--negatives", type=int, default=4, help="corruptions of each triple (default 4)")
    parser.add_argument("--batch_size", type=int, default=2048, help="triples of an update (default 2048)")
    parser.add_argument("--learning_rate", type=float, default=0.02, help="of Adam, falls to 0 (default 0.02)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same vectors (default 0)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32", help="of the table")
    parser.add_argument("--max_test_triples", type=int, default=5000, help="measure on the first (default 5000)")
    parser.add_argument("--overwrite", action="store_true", help="replace a table that is there")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Train, write the table, print how well it predicts links beside a random order."""
    from .runs import own_folder

    with own_folder(arguments.output_dir):
        return _train(arguments)


def _train(arguments: argparse.Namespace) -> int:
    """`run` in a folder that no other job writes to."""
    import numpy as np

    from ..conversion.entity_tables import EntityTable, read_titles
    from ..data.triples import NegativeSampler, read_triples
    from ..trainers.transe import TransEOptions, train_transe
    from .curves import CURVE, draw_curves
    from .runs import written_aside

    log_to_console()
    options = TransEOptions(
        **{name: getattr(arguments, name) for name in TransEOptions.__dataclass_fields__}  # the same names
    )
    output = arguments.output_dir
    if (output / TABLE).exists() and not arguments.overwrite:
        raise FileExistsError(f"{output / TABLE} exists. Pass --overwrite to replace it, or name another folder.")
    others = [path for path in (arguments.validation_file, arguments.test_file) if path is not None]
    with phase("reading the triples"):
        read = read_triples(*arguments.train_file, *others, encoding=arguments.encoding)
    train = np.concatenate([triples.rows for triples in read[: len(arguments.train_file)]])
    entities, relations = read[0].entities, read[0].relations
    test = read[-1].rows if arguments.test_file is not None else None
    known = np.concatenate([triples.rows for triples in (read if test is None else read[:-1])])
    titles = None
    if arguments.titles is not None:
        with phase("reading the titles"):
            titles = read_titles(arguments.titles, arguments.encoding)
    logger.info("%s triples, %s entities, %s relations", *(f"{len(x):,}" for x in (train, entities, relations)))
    trained = np.zeros(len(entities), dtype=bool)
    trained[train[:, [0, 2]]] = True
    untrained = [entity for entity, there in zip(entities, trained, strict=True) if not there]
    if untrained:
        logger.warning(
            "%d of %d entities are in no training triple, such as %s: their vectors are never trained and not saved.",
            len(untrained),
            len(entities),
            ", ".join(untrained[:3]),
        )

    sampler = NegativeSampler(known, len(entities), len(relations))
    started = time.time()
    with phase("training"), bar(None, "epochs", options.epochs) as epochs:

        def on_epoch(epoch: int, loss: float) -> None:
            epochs.update()
            logger.info("epoch %d of %d: loss %.4f", epoch, options.epochs, loss)

        vectors = train_transe(
            *(train, len(entities), len(relations), sampler.draw, options, arguments.device), on_epoch=on_epoch
        )
    seconds = time.time() - started
    results: dict[str, Any] = {"options": vars(options), "losses": vectors.losses, "seconds": round(seconds, 1)}
    if test is not None:
        with phase("measuring"):
            results |= measured(vectors, test[: arguments.max_test_triples], known, options.norm, arguments.device)
        there = trained[test[: arguments.max_test_triples][:, [0, 2]]].all(axis=1)
        results["queries_of_untrained_entities"] = 2 * int((~there).sum())
        if not there.all():
            logger.warning("%d of %d test triples have such an entity: they are guesses.", (~there).sum(), len(there))
    results["untrained_entities"] = untrained
    saved = [entity for entity, there in zip(entities, trained, strict=True) if there]
    named = set(saved)
    titles = None if titles is None else [(title, entity) for title, entity in titles if entity in named]
    with phase("saving"), written_aside(output) as folder:
        table = EntityTable.from_arrays(vectors.entities[trained], saved, titles, dtype=arguments.dtype)
        table.save(folder / TABLE)
        history = [{"step": epoch, "loss": loss} for epoch, loss in enumerate(vectors.losses, 1)]
        draw_curves(folder / CURVE, [{"variant": "", "history": history}], step="epoch")
        text = json.dumps({**results, "entities": len(saved), "relations": len(relations), "triples": len(train)})
        (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
    print_results(results)
    print(f"\nSaved {len(saved):,} vectors of {options.dimension} numbers to {output / TABLE}.")
    return 0


def measured(vectors: Any, test: Any, known: Any, norm: int, device: str) -> dict[str, Any]:
    """Filtered link prediction of the vectors and of a random order."""
    import torch

    from ..metrics.link_prediction import filtered_ranks, link_prediction_scores, random_scores

    entities = torch.from_numpy(vectors.entities).to(device)
    relations = torch.from_numpy(vectors.relations).to(device)

    def distances(fixed: Any, relation: Any, heads: bool) -> Any:
        moved = relations[relation]
        answer = entities[fixed] - moved if heads else entities[fixed] + moved
        return torch.cdist(answer, entities, p=float(norm)).cpu().numpy()

    ranks, candidates = filtered_ranks(test, known, len(vectors.entities), distances)
    return {
        "transe": link_prediction_scores(ranks),
        "random": random_scores(candidates),
        "queries": len(ranks),
    }


def print_results(results: dict[str, Any]) -> None:
    """Print the scores of link prediction, if it was measured."""
    if "transe" not in results:
        return
    rows = [
        [name, *(f"{scores[column]:.4f}" if column != "mean_rank" else f"{scores[column]:.0f}" for column in COLUMNS)]
        for name, scores in (("TransE", results["transe"]), ("random order", results["random"]))
    ]
    title = f"Filtered link prediction, {results['queries']:,} queries (head and tail of each test triple)"
    print_table(title, ["", *COLUMNS], rows)
