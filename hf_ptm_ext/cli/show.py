"""`hf-ptm-ext show masks unilm`: a picture of UniLM's attention modes, in the terminal and as PNG."""

import argparse
from pathlib import Path
from typing import Any

from . import COMMANDS

MODES = {"bidirectional": 0, "left-to-right": 1, "right-to-left": 2, "seq2seq": 3}
TOKENS = ("[CLS]", "s1", "s2", "s3", "[SEP]", "t1", "t2", "[SEP]")
SOURCE_LENGTH = 5
SEEN, HIDDEN = "■", "·"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command.

    Args:
        subparsers: what `add_subparsers` gave.

    Returns:
        Its parser.
    """
    parser = subparsers.add_parser("show", help=COMMANDS["show"], description=COMMANDS["show"])
    parser.add_argument("what", choices=("masks",), help="what is shown")
    parser.add_argument("family", choices=("unilm",), help="the family")
    parser.add_argument("--mode", choices=tuple(MODES), help="one mode only (default: all four)")
    parser.add_argument("--png", type=Path, help="also write this picture (needs the extra viz)")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Print the masks and, if asked, write the picture.

    Args:
        arguments: the parsed command line.

    Returns:
        0.

    Raises:
        ImportError: `--png` without matplotlib.
    """
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

    from ..models.unilm.modeling_unilm import unilm_attention_mask

    mask = unilm_attention_mask(
        torch.tensor([MODES[mode]]), torch.tensor([len(TOKENS)]), torch.tensor([SOURCE_LENGTH])
    )
    return mask[0, 0].tolist()


def drawing(mask: list[list[bool]]) -> str:
    """The mask in characters.

    Args:
        mask: query by key.

    Example:
        >>> print(drawing([[True, False], [True, True]]))
        [CLS]  ■ ·
        s1     ■ ■
    """
    width = max(len(token) for token in TOKENS)
    return "\n".join(
        f"{token:<{width}}  " + " ".join(SEEN if seen else HIDDEN for seen in row)
        for token, row in zip(TOKENS, mask, strict=False)
    )


def write_picture(masks: dict[str, list[list[bool]]], path: Path) -> None:
    """Draw the masks side by side."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("The picture needs matplotlib: pip install hf-ptm-ext[viz]") from error
    figure = Figure(figsize=(3 * len(masks), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(masks), squeeze=False)[0]
    for axes, (name, mask) in zip(panels, masks.items(), strict=True):
        axes.imshow(mask, cmap="Blues", vmin=0, vmax=1.4)
        axes.set_title(name, fontsize=9)
        axes.set_xticks(range(len(TOKENS)), TOKENS, rotation=90, fontsize=7)
        axes.set_yticks(range(len(TOKENS)), TOKENS, fontsize=7)
    figure.savefig(path, dpi=140)
