"""`hf-ptm-ext show knowledge TEXT --kg FILE`: what a graph injects into a text, as a tree and as a matrix."""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from .tables import HIDDEN, SEEN, new_figure

# The first of these that is installed draws Chinese, Japanese and Korean.
FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "SimHei",
    "Arial Unicode MS",
)


def run(arguments: argparse.Namespace) -> int:
    """Print the tree and the visible matrix, or the counts of the graph, and write the picture if asked to."""
    from ..models.knowledge_graph_kbert import KnowledgeGraph

    if not arguments.kg and not arguments.tokenizer:
        raise ValueError(
            f"`--kg` must name at least one triple file, got {arguments.kg}, or `--tokenizer` one with a graph."
        )
    if arguments.subject is None and arguments.kg and len(arguments.kg) > 1 and is_text(arguments.kg[-1]):
        raise ValueError(
            f"`--kg` must name files, got {arguments.kg[-1]}. A text stands before the options: hf-ptm-ext show "
            "knowledge TEXT --kg FILE."
        )
    graph = KnowledgeGraph.from_files(*arguments.kg, encoding=arguments.encoding) if arguments.kg else None
    if arguments.subject is None:
        if graph is None:
            raise ValueError(
                f"`--kg` must name the triple files to count, or give a text to show, got {arguments.kg}."
            )
        print_counts(graph)
        return 0
    tokenizer = tokenizer_for(arguments, graph)
    options = {"max_entities": arguments.max_entities, "use_predicate": arguments.use_predicate}
    row = tokenizer(arguments.subject, **options)
    columns: Any = [row.tokens(), row["position_ids"], row["word_index"], row["branch_id"]]
    print(tokenizer.explain(arguments.subject, **options))
    if not any(row["branch_id"]):
        print("nothing is injected: no subject of the graph stands in this text")
    matrix = matrix_of(row["word_index"], row["branch_id"])
    print(f"\na row is a token that looks, {SEEN} is a token that it sees")
    print(
        "\n".join(
            " ".join(SEEN if seen else HIDDEN for seen in line) + f"  {token}"
            for token, line in zip(columns[0], matrix, strict=True)
        )
    )
    if arguments.png is not None:
        write_picture(columns, matrix, arguments.png, arguments.font)
        print(f"\nwrote {arguments.png}")
    return 0


def is_text(name: str) -> bool:
    """Whether an argument is rather a text than the name of a file."""
    return not Path(name).exists() and not Path(name).suffix


def print_counts(graph: Any) -> None:
    """Print what is in a graph and what the readers found in its files."""
    for report in graph.reports:
        print(report)
    print(f"{len(graph)} triples of {len(graph.subjects)} subjects, {len(graph.predicates)} predicates")


def tokenizer_for(arguments: argparse.Namespace, graph: Any) -> Any:
    """The tokenizer that was named, or one that knows every word that is needed."""
    from ..models.tokenization_kbert import KBertTokenizer

    options: dict[str, Any] = {} if arguments.granularity is None else {"granularity": arguments.granularity}
    if graph is not None:
        options["kg"] = graph
    if arguments.tokenizer:
        return KBertTokenizer.from_pretrained(arguments.tokenizer, **options)
    from tokenizers.pre_tokenizers import BertPreTokenizer

    from ..models.lexicon_kbert import Lexicon

    lexicon = Lexicon(graph)
    words = [lexicon.names[number] for _, _, number in lexicon.find([arguments.subject])[0]]
    texts = [arguments.subject, *(text for word in words for text in graph.lookup(word, use_predicate=True))]
    plain = KBertTokenizer({}, do_lower_case=False, kg=None)
    pieces: dict[str, None] = dict.fromkeys(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    for text in texts:
        normalized = plain.backend_tokenizer.normalizer.normalize_str(text)
        pieces.update(dict.fromkeys(piece for piece, _ in BertPreTokenizer().pre_tokenize_str(normalized)))
        pieces.update(dict.fromkeys(normalized))
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return KBertTokenizer(vocabulary, do_lower_case=False, **options)


def matrix_of(words: list[int], branches: list[int]) -> list[list[bool]]:
    """Who sees whom."""
    import torch

    from ..models.visibility_kbert import kbert_visible_matrix

    return kbert_visible_matrix(torch.tensor([words]), torch.tensor([branches]))[0].tolist()


def write_picture(columns: Any, matrix: Any, path: Path, font: Path | None = None) -> None:
    """Draw the tree, by position and branch, above the heat map of the matrix."""
    tokens, positions, words, branches = columns
    from ..models.encoding_kbert import words_of

    groups = words_of(words, branches)
    levels = levels_of(
        [[(positions[branch[0]], positions[branch[-1]]) for branch in hanging.values()] for _, hanging in groups]
    )
    depth = max((level for of_word in levels for level in of_word), default=0)
    size = max(4.0, 0.42 * (max(positions) + 1))
    figure = new_figure("The picture", size, 1 + 0.45 * (depth + 1) + size)
    with picture_fonts(tokens, font):
        tree, heat = figure.subplots(2, 1, height_ratios=[0.6 + 0.45 * (depth + 1), size])
        tree.set_xlim(-1, max(positions) + 1)
        tree.set_ylim(-depth - 0.7, 0.7)
        tree.axis("off")
        trunk = [place for own, _ in groups for place in own]
        tree.plot([positions[trunk[0]], positions[trunk[-1]]], [0, 0], color="0.85", zorder=0)
        for (own, hanging), of_word in zip(groups, levels, strict=True):
            for level, branch in zip(of_word, hanging.values(), strict=True):
                places = [own[-1], *branch]
                for one, other in pairwise(places):
                    height = 0 if one == own[-1] else -level
                    tree.plot(
                        [positions[one], positions[other]], [height, -level], color="tab:orange", lw=0.8, zorder=0
                    )
                for place in branch:
                    box(tree, positions[place], -level, tokens[place], "moccasin")
        for own, hanging in groups:
            for place in own:
                box(tree, positions[place], 0, tokens[place], "lightsteelblue" if hanging else "whitesmoke")
        heat.imshow(matrix, cmap="Blues", vmin=0, vmax=1.4)
        heat.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
        heat.set_yticks(range(len(tokens)), tokens, fontsize=7)
        figure.savefig(path, dpi=140)


@contextmanager
def picture_fonts(tokens: Sequence[str], font: Path | None = None) -> Iterator[None]:
    """Draw with a named font, or with what is installed for these tokens."""
    from matplotlib import font_manager, rc_context

    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    family = [*(name for name in FONTS if name in installed), "DejaVu Sans"]
    if font is not None:
        try:
            font_manager.fontManager.addfont(font)
            family.insert(0, font_manager.FontProperties(fname=font).get_name())
        except (OSError, RuntimeError) as error:
            raise ValueError(f"`--font` must be a font's file (.ttf, .otf, .ttc), got {font}: {error}.") from error
    if len(family) == 1 and not "".join(tokens).isascii():
        print(
            "no font with Chinese characters is installed (Noto Sans CJK, ...): the picture has boxes in their place. "
            "Name the file of one by --font."
        )
    with rc_context({"font.family": family}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph.*")
        yield


def levels_of(spans: list[list[tuple[int, int]]]) -> list[list[int]]:
    """How far below the trunk each branch is drawn, so that none lies on another."""
    ends: list[int] = []
    levels: list[list[int]] = []
    for of_word in spans:
        levels.append([])
        for first, last in of_word:
            level = next((level for level, end in enumerate(ends) if end < first), len(ends))
            ends[level : level + 1] = [last]
            levels[-1].append(level + 1)
    return levels


def box(axes: Any, x: float, y: float, text: str, color: str) -> None:
    """Write a token at its place in the tree."""
    axes.text(
        x, y, text, ha="center", va="center", fontsize=8, bbox={"boxstyle": "round,pad=0.25", "fc": color, "ec": "0.6"}
    )
