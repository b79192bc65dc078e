"""`hf-ptm-ext show`: pictures in the terminal and as PNG.

show masks unilm               UniLM's attention modes
show knowledge TEXT --kg FILE  what a graph injects into a text (see `show_knowledge`)
show masking TEXT --objective  what a pre-training objective does to a text (see `show_masking`)
"""

import argparse
from pathlib import Path
from typing import Any

from . import COMMANDS
from .tables import HIDDEN, SEEN, new_figure

FAMILIES = ("unilm",)
MODES = {"bidirectional": 0, "left-to-right": 1, "right-to-left": 2, "seq2seq": 3}
TOKENS = ("[CLS]", "s1", "s2", "s3", "[SEP]", "t1", "t2", "[SEP]")
SOURCE_LENGTH = 5
# argparse would put the subject last, where `--kg` takes it for one more file.
USAGE = """hf-ptm-ext show masks unilm [--mode MODE] [--png PNG]
       hf-ptm-ext show knowledge [TEXT] --kg FILE [FILE ...] [--tokenizer TOKENIZER] [--png PNG] ...
       hf-ptm-ext show masking TEXT [--objective OBJECTIVE] [--draws N] [--seed N] [--png PNG] ..."""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command."""
    parser = subparsers.add_parser("show", help=COMMANDS["show"], description=COMMANDS["show"], usage=USAGE)
    parser.add_argument("what", choices=("masks", "knowledge", "masking"), help="what is shown")
    text = "masks: unilm; knowledge: a text, or none to count the graph; masking: a text"
    parser.add_argument("subject", nargs="?", help=text)
    parser.add_argument("--png", type=Path, help="also write this picture (needs the extra viz)")
    parser.add_argument("--mode", choices=tuple(MODES), help="masks: one mode only (default: all four)")
    parser.add_argument("--kg", nargs="+", metavar="FILE", help="knowledge: triple files, or a saved graph")
    parser.add_argument("--encoding", default="utf-8", help="knowledge: of the triple files (default utf-8)")
    parser.add_argument("--objective", default="mlm", help="masking: as of `pretrain` (default mlm)")
    parser.add_argument("--draws", type=int, default=1, help="masking: how often the text is masked (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="masking: of all draws (default 0)")
    parser.add_argument("--segmenter", choices=("jieba",), help="masking: words of unspaced text")
    parser.add_argument(
        "--overrides", nargs="+", metavar="NAME=VALUE", help="masking: options of `pretrain`, as mlm_probability=0.3"
    )
    parser.add_argument("--tokenizer", help="knowledge, masking: whose tokens (default: one that knows every word)")
    parser.add_argument("--max_entities", type=int, help="knowledge: objects of a word (default: the tokenizer's, 2)")
    parser.add_argument(
        "--use_predicate",
        action="store_const",
        const=True,
        help="knowledge: write predicates before objects (default: the tokenizer's, no)",
    )
    parser.add_argument(
        "--no_use_predicate", dest="use_predicate", action="store_const", const=False, help="knowledge: do not"
    )
    parser.add_argument(
        "--granularity",
        choices=("wordpiece", "char"),
        help="knowledge: what a token is (default: the tokenizer's, wordpiece)",
    )
    parser.add_argument(
        "--font",
        type=Path,
        metavar="FILE",
        help="a .ttf or .otf with the text's characters, for --png",
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Print what was asked for and, if asked, write the picture."""
    png = arguments.png
    if png is not None and (png.suffix.lower() != ".png" or png.is_dir() or not png.parent.is_dir()):
        raise ValueError(f"`--png` must be a .png file in a folder that is there, got {png}.")
    if arguments.what == "knowledge":
        from .show_knowledge import run as show_knowledge

        return show_knowledge(arguments)
    if arguments.what == "masking":
        from .show_masking import run as show_masking

        return show_masking(arguments)
    if arguments.subject not in FAMILIES:
        raise ValueError(f"`show masks` must name one of {', '.join(FAMILIES)}, got {arguments.subject}.")
    masks = {name: mask_of(name) for name in ([arguments.mode] if arguments.mode else MODES)}
    for name, mask in masks.items():
        print(f"\n{name}: a row is a query, {SEEN} is a key that it sees")
        print(drawing(mask))
    if arguments.png is not None:
        write_picture(masks, arguments.png)
        print(f"\nwrote {arguments.png}")
    return 0


def mask_of(mode: str) -> list[list[bool]]:
    """The mask of the example sequence, query by key."""
    import torch

    from ..models.modes_unilm import unilm_attention_mask

    mask = unilm_attention_mask(
        torch.tensor([MODES[mode]]), torch.tensor([len(TOKENS)]), torch.tensor([SOURCE_LENGTH])
    )
    return mask[0, 0].tolist()


def drawing(mask: list[list[bool]]) -> str:
    """The mask in characters."""
    width = max(len(token) for token in TOKENS)
    return "\n".join(
        f"{token:<{width}}  " + " ".join(SEEN if seen else HIDDEN for seen in row)
        for token, row in zip(TOKENS, mask, strict=False)
    )


def write_picture(masks: dict[str, list[list[bool]]], path: Path) -> None:
    """Draw the masks side by side."""
    figure = new_figure("The picture", 3 * len(masks), 3.2)
    panels = figure.subplots(1, len(masks), squeeze=False)[0]
    for axes, (name, mask) in zip(panels, masks.items(), strict=True):
        axes.imshow(mask, cmap="Blues", vmin=0, vmax=1.4)
        axes.set_title(name, fontsize=9)
        axes.set_xticks(range(len(TOKENS)), TOKENS, rotation=90, fontsize=7)
        axes.set_yticks(range(len(TOKENS)), TOKENS, fontsize=7)
    figure.savefig(path, dpi=140)
