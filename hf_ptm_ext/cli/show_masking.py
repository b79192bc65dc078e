"""`hf-ptm-ext show masking TEXT --objective X`: what the collator of a pre-training objective does to a text.

Everything is asked of the objective itself (`pretraining.OBJECTIVES`): its rows of the text, its collator's batch.
What is shown follows from the columns of that batch, so an objective that is added is shown without a word here.
"""

import argparse
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .tables import new_figure

# What happened to a token: its letter below it, its colour in a terminal, its colour in a picture.
KINDS = {
    "masked": ("m", "bold white on blue", "#a9c7ea"),
    "replaced": ("r", "bold white on red", "#f2b0a8"),
    "kept": ("k", "bold black on green", "#b5dcae"),
    "moved": ("s", "bold black on yellow", "#f3e2a0"),
    "boundary": ("b", "bold black on bright_yellow", "#f6c28b"),
    "target": ("t", "black on cyan", "#bfe6e6"),
    "special": (".", "dim", "#ececec"),
    "": (" ", "", "#ffffff"),
}
MEANING = {
    "masked": "hidden and predicted",
    "replaced": "another token in its place, predicted",
    "kept": "left as it is and predicted",
    "moved": "another place or token, not asked for",
    "boundary": "beside a span: the loss reads it",
    "target": "what is written or predicted",
}
CJK = re.compile(r"[\u3400-\u9fff]")
WIDTH = 96


@dataclass
class Line:
    """A row of tokens: its name, the tokens, and what happened to each."""

    name: str
    tokens: list[str]
    kinds: list[str]


@dataclass
class Draw:
    """One batch's first row: lines of tokens, and what else the loss is told."""

    lines: list[Line]
    notes: list[str]


def run(arguments: argparse.Namespace) -> int:
    """Print the draws and, if asked, write the picture."""
    if not arguments.subject:
        raise ValueError(f"`show masking` needs a text, got {arguments.subject}: hf-ptm-ext show masking TEXT.")
    if arguments.draws < 1:
        raise ValueError(f"`--draws` must be at least 1, got {arguments.draws}.")
    objective, draws = draws_of(
        arguments.subject,
        arguments.objective,
        arguments.tokenizer,
        arguments.overrides or (),
        segmenter=arguments.segmenter,
        draws=arguments.draws,
        seed=arguments.seed,
    )
    print(f"{objective.name}: {objective.description}\n")
    show(draws)
    if arguments.png is not None:
        write_picture(draws, arguments.png, arguments.font)
        print(f"\nwrote {arguments.png}")
    return 0


def draws_of(
    text: str,
    name: str = "mlm",
    tokenizer: str | None = None,
    overrides: Sequence[str] = (),
    *,
    segmenter: str | None = None,
    draws: int = 1,
    seed: int = 0,
) -> tuple[Any, list[Draw]]:
    """The objective, and what it made of a text several times.

    ` ||| ` stands between documents, or between a sentence and its translation. A pair needs a second document: one of
    the embedded corpus, on which the built-in tokenizer is trained too, unless it is given.
    """
    objective, documents = _prepared(text, name, tokenizer, overrides, segmenter)
    rows = objective.rows(documents, seed)
    if not len(rows):
        raise ValueError(f"The text gives no row of objective {name}, got {text[:40]!r}: give a longer one.")
    counts = np.ones(len(objective.tokenizer), dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collator = objective.collator(seed, counts)
        batch = objective.alike([rows[number] for number in range(min(8, len(rows)))])[0]
        found = [collator(batch, return_tensors="np") for _ in range(draws)]
    original = next((list(batch[0][column]) for column in objective.columns if column in batch[0]), [])
    return objective, [_describe(one, original, objective.tokenizer) for one in found]


def _prepared(text: str, name: str, tokenizer: str | None, overrides: Sequence[str], segmenter: str | None) -> Any:
    """An objective with a tokenizer and a model of no weights, and the documents."""
    from datasets import disable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    from ..data import embedded_corpus, train_wordpiece
    from .checkpoint_names import tokenizer_of
    from .options import read_options
    from .pretrain_arguments import GROUPS
    from .pretraining import OBJECTIVES

    language = "zh" if CJK.search(text) else "en"
    words = ["--objective", name, *(["--segmenter", segmenter] if segmenter else [])]
    if name in OBJECTIVES and OBJECTIVES[name].parallel and not any(one.startswith("languages=") for one in overrides):
        words += ["--languages", "en", "zh" if language == "zh" else "de"]  # two numbers of the model
    words += ["--overrides", *overrides] if overrides else []
    model, data, options, _ = read_options(words, GROUPS, "pretrain")
    objective = OBJECTIVES[options.objective](model, data, options)
    objective.check()
    if not objective.hides:
        raise ValueError(f"Objective {name} hides nothing, so there is no mask to show: {objective.description}")
    options.check_files()
    own = [re.split(r"(?<=[.!?。！？])\s*(?=\S)|\n", part.strip()) for part in text.split("|||") if part.strip()]
    corpus = embedded_corpus(language)[:300]
    if tokenizer is None:
        trained = train_wordpiece([*own * 3, *corpus], 6000)
        objective.prepare(objective.fit(trained))
    else:
        objective.prepare(tokenizer_of(tokenizer, "--tokenizer"))
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bars()
    disable_progress_bar()
    with torch.device("meta"):
        objective.model = objective.load()
    if objective.parallel:
        if len(own) != 2:
            raise ValueError(f"Objective {name} needs a sentence and its translation, 'A ||| B', got {text[:40]!r}.")
        return objective, [[" ".join(part) for part in own]]
    more = corpus[:1] if options.pair_kind is not None and len(own) < 2 else []
    return objective, [*own, *more]


def _describe(batch: Any, original: list[int], tokenizer: Any) -> Draw:
    """What is to be seen of the first row of a batch."""
    row = {name: np.asarray(values)[0] for name, values in batch.items() if np.ndim(values) >= 1}
    shown = _text_of(row)
    special = set(tokenizer.all_special_ids) - {tokenizer.mask_token_id, tokenizer.unk_token_id}
    labels: Any = row.get("labels")
    aligned = labels is not None and labels.shape == row["input_ids"].shape and "decoder_input_ids" not in row
    lines, notes = [], []
    if aligned:
        before = np.where(labels[: len(shown)] >= 0, labels[: len(shown)], shown)
        if len(original) == len(shown):
            before = np.array(original)
        kinds = list(_kinds(shown, before, labels, tokenizer.mask_token_id, special))
        for left, right in row.get("span_boundaries", ()):
            for place in {int(left), int(right)} - {0}:
                kinds[place] = kinds[place] or "boundary"
        targets = [int(label) if label >= 0 else -1 for label in labels[: len(shown)]]
        lines.append(_line("text", before, [""] * len(shown), tokenizer))
        lines.append(_line("input", shown, kinds, tokenizer))
        lines.append(_line("predicted", targets, ["target" if one >= 0 else "" for one in targets], tokenizer))
    else:
        hidden = {tokenizer.mask_token_id, *_sentinels(tokenizer)} - {None}
        kinds = ["masked" if one in hidden else "special" if one in special else "" for one in shown.tolist()]
        if original:
            lines.append(_line("text", original, [""] * len(original), tokenizer))
        lines.append(_line("input", shown, kinds, tokenizer))
        if labels is not None and "target_mapping" in row:  # of a permutation
            targets = [-1] * len(shown)
            for place, label in zip(row["target_mapping"].argmax(axis=-1), labels, strict=True):
                targets[place] = max(targets[place], int(label))
            lines.append(_line("predicted", targets, ["target" if one >= 0 else "" for one in targets], tokenizer))
        elif labels is not None:
            written = labels[labels >= 0]
            lines.append(_line("written", written, ["target"] * len(written), tokenizer))
    lines += _orders(row, len(shown))
    notes += _notes(row, tokenizer)
    return Draw(lines, notes)


def _text_of(row: dict[str, np.ndarray]) -> np.ndarray:
    """The tokens of a row without padding at its ends."""
    mask = row.get("attention_mask")
    ids = row["input_ids"]
    return ids if mask is None or mask.ndim != 1 else ids[: int(mask.nonzero()[0].max(initial=-1)) + 1]


def _kinds(shown: Any, before: Any, labels: Any, mask: Any, special: set[int]) -> Iterator[str]:
    """What happened to each token."""
    for now, was, label in zip(shown.tolist(), before.tolist(), labels.tolist(), strict=False):
        if label >= 0:
            yield "masked" if now == mask else "kept" if now == was == label else "replaced"
        elif now != was:
            yield "moved"
        else:
            yield "special" if now in special else ""


def _sentinels(tokenizer: Any) -> set[int]:
    return {index for piece, index in tokenizer.get_vocab().items() if piece.startswith("<extra_id_")}


def _line(name: str, ids: Any, kinds: list[str], tokenizer: Any) -> Line:
    ids = [int(one) for one in ids]
    tokens = ["" if one < 0 else str(tokenizer.convert_ids_to_tokens(one)) for one in ids]
    return Line(name, tokens, kinds)


def _orders(row: dict[str, np.ndarray], length: int) -> list[Line]:
    """Of a permutation: how many tokens each sees, the more the later it comes in its half of the row."""
    if "perm_mask" not in row:
        return []
    seen = (row["perm_mask"][:length, :length] == 0).sum(axis=1)
    return [Line("tokens it sees", [str(int(one)) for one in seen], [""] * length)]


def _notes(row: dict[str, np.ndarray], tokenizer: Any) -> list[str]:
    """What else the loss is told: labels of the row and of its tokens, spans, modes."""
    found = []
    for name, values in row.items():
        if name == "span_boundaries":
            pairs = [(int(a), int(b)) for a, b in values if a or b]
            found.append(f"spans between tokens: {', '.join(f'{a} and {b}' for a, b in pairs) or 'none'}")
        elif name.endswith(("label", "labels", "mode")) and name not in ("labels", "span_labels"):
            told = np.atleast_1d(values)
            places = [f"{place}: {value}" for place, value in enumerate(told.tolist()) if value != -100]
            listed = ", ".join(places[:24]) if values.ndim else str(told[0])
            if places:
                found.append(f"{name}: {listed}{', ...' * (len(places) > 24)}")
    return found


# ---- drawing ----


def show(draws: Sequence[Draw]) -> None:
    """Print draws, in colours on a terminal, with a letter below each token everywhere."""
    from rich.console import Console
    from rich.text import Text

    console, used = Console(highlight=False, soft_wrap=True), set[str]()
    for number, draw in enumerate(draws):
        if len(draws) > 1:
            console.print(f"draw {number + 1}", style="bold")
        for group in _groups(draw.lines):
            margin = max(len(line.name) for line in group)
            for start, stop in _pieces(group):
                widths = [
                    max(_cells(line.tokens[at]) for line in group if at < len(line.tokens))
                    for at in range(start, stop)
                ]
                for line in group:
                    text = Text(f"{line.name:<{margin}}  ")
                    for width, at in zip(widths, range(start, stop), strict=True):
                        token = line.tokens[at] if at < len(line.tokens) else ""
                        text.append(token, KINDS[line.kinds[at]][1] if at < len(line.kinds) and token else "")
                        text.append(" " * (width - _cells(token) + 1))
                    console.print(text.plain.rstrip() if not console.is_terminal else text)
                marked = [line for line in group if any(line.kinds[start:stop])][:1]
                for line in marked:
                    used |= set(line.kinds)
                    letters = [f"{KINDS[line.kinds[at]][0]:<{width}}" for width, at in zip(
                        widths, range(start, min(stop, len(line.kinds))), strict=False)]  # fmt: skip
                    console.print(f"{'':<{margin}}  {' '.join(letters)}".rstrip())
                console.print()
        for note in draw.notes:
            console.print(f"  {note}")
    legend = Text()
    for kind in MEANING:
        if kind in used or (kind == "target"):
            legend.append(f" {KINDS[kind][0]} ", KINDS[kind][1]).append(f" {MEANING[kind]}   ")
    console.print(legend)


def _cells(token: str) -> int:
    """Columns of a terminal that a token takes: two for each character of Chinese."""
    from rich.cells import cell_len

    return cell_len(token)


def _groups(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines of one length stand below each other."""
    found: list[list[Line]] = []
    for line in lines:
        if found and len(found[-1][0].tokens) == len(line.tokens):
            found[-1].append(line)
        else:
            found.append([line])
    return found


def _pieces(group: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Parts of lines that fit into the width."""
    start, used = 0, 0
    length = len(group[0].tokens)
    for at in range(length):
        width = max(_cells(line.tokens[at]) for line in group) + 1
        if used + width > WIDTH and at > start:
            yield start, at
            start, used = at, 0
        used += width
    yield start, length


def draw_on(figure: Any, draws: Sequence[Draw]) -> None:
    """Draw them on a figure of matplotlib, a box for each token."""
    from matplotlib.patches import Patch, Rectangle

    rows = [(number, line) for number, draw in enumerate(draws) for line in draw.lines]
    longest = max(len(line.tokens) for _, line in rows)
    axes = figure.subplots()
    axes.set_xlim(-2.2, longest)
    axes.set_ylim(-len(rows) - 0.35 * len(draws), 0.6)
    axes.axis("off")
    for place, (number, line) in enumerate(rows):
        y = -place - 0.35 * number
        axes.text(-0.7, y, line.name, ha="right", va="center", fontsize=8)
        for x, (token, kind) in enumerate(zip(line.tokens, line.kinds, strict=True)):
            if token:
                edge: dict[str, Any] = {"facecolor": KINDS[kind][2], "edgecolor": "#777777", "linewidth": 0.6}
                axes.add_patch(Rectangle((x - 0.48, y - 0.34), 0.96, 0.68, **edge))
                size = min(7, 4 + 18 / max(_cells(token), 1))
                axes.text(x, y, token, ha="center", va="center", fontsize=size)
    used = {kind for _, line in rows for kind in line.kinds}
    told: dict[str, Any] = {
        kind: {"facecolor": KINDS[kind][2], "edgecolor": "#777777"} for kind in MEANING if kind in used
    }
    shown = [Patch(label=MEANING[kind], **colours) for kind, colours in told.items()]
    axes.legend(handles=shown, loc="lower center", ncols=3, frameon=False, fontsize=7, bbox_to_anchor=(0.5, -0.12))


def write_picture(draws: Sequence[Draw], path: Path, font: Path | None = None) -> None:
    """Write them as a picture."""
    from .show_knowledge import picture_fonts

    lines = [line for draw in draws for line in draw.lines]
    width = max(5.0, 0.62 * (2 + max(len(line.tokens) for line in lines)))
    figure = new_figure("The picture", width, 1.0 + 0.42 * len(lines) + 0.15 * len(draws))
    with picture_fonts([token for line in lines for token in line.tokens], font):
        draw_on(figure, draws)
        figure.savefig(path, dpi=140)
