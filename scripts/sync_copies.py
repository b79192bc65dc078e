"""Write the families' synced copies of the canonical model files, or check that they are up to date.

    python scripts/sync_copies.py          # write
    python scripts/sync_copies.py --check  # exit code 1 and the names of the stale files

A checkpoint carries its family's folder and nothing else of the package, so shared code travels as one copy per
family; this script is the only thing that may write a copy.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "hf_ptm_ext" / "models"
# canonical file stem -> families that carry it, with their class prefixes
COPIES = {
    "encoder": {
        "spanbert": "SpanBert",
        "unilm": "UniLM",
        "ernie_thu": "ErnieThu",
        "kbert": "KBert",
        "nezha": "Nezha",
        "zen": "Zen",
        "k_adapter": "KAdapter",
    },
    "heads": {
        "spanbert": "SpanBert",
        "unilm": "UniLM",
        "ernie_thu": "ErnieThu",
        "kbert": "KBert",
        "nezha": "Nezha",
        "ib_bert": "IBBert",
        "zen": "Zen",
        "k_adapter": "KAdapter",
        "weighted_layers": "WeightedLayers",
    },
    "composite": {"k_adapter": "KAdapter", "weighted_layers": "WeightedLayers"},
    "inner_config": {"k_adapter": "KAdapter", "weighted_layers": "WeightedLayers"},
    "files": {"ernie_thu": "ErnieThu", "kbert": "KBert", "zen": "Zen"},
    "inputs": {"spanbert": "SpanBert", "ernie_thu": "ErnieThu", "kbert": "KBert", "zen": "Zen"},
    "loading": {
        "spanbert": "SpanBert",
        "unilm": "UniLM",
        "mass": "Mass",
        "mass_nmt": "MassNmt",
        "ernie_thu": "ErnieThu",
        "kbert": "KBert",
        "nezha": "Nezha",
        "distilled_bilstm": "DistilledBiLstm",
        "ib_bert": "IBBert",
        "zen": "Zen",
        "k_adapter": "KAdapter",
        "weighted_layers": "WeightedLayers",
    },
    "mask_contract": {
        "spanbert": "SpanBert",
        "unilm": "UniLM",
        "mass": "Mass",
        "mass_nmt": "MassNmt",
        "ernie_thu": "ErnieThu",
        "kbert": "KBert",
        "nezha": "Nezha",
        "distilled_bilstm": "DistilledBiLstm",
        "ib_bert": "IBBert",
        "zen": "Zen",
        "k_adapter": "KAdapter",
        "weighted_layers": "WeightedLayers",
    },
    "matcher": {"ernie_thu": "ErnieThu", "kbert": "KBert"},
    "pickling": {"ernie_thu": "ErnieThu", "kbert": "KBert", "zen": "Zen"},
    "search": {"mass": "Mass", "mass_nmt": "MassNmt"},
    "texts": {"ernie_thu": "ErnieThu", "kbert": "KBert", "zen": "Zen"},
    "pretraining": {"kbert": "KBert", "nezha": "Nezha", "zen": "Zen"},
}
# For families with a block of their own, parts of a canonical file:
# stem of the copy -> canonical file stem, its top-level names in order, docstring, families.
EXTRACTS = {
    "block": (
        "encoder",
        ("UPSTREAM_ARGUMENTS", "refuse_unknown_arguments", "eager_attention_forward", "is_plain_linear"),
        "What every block of ours shares: refusal of unread arguments, eager attention, plain linear modules.",
        ("mass", "mass_nmt", "weighted_layers"),
    ),
    "losses": (
        "heads",
        (
            "EVALUATION_CHUNK",
            "values_can_be_read",
            "select_labelled",
            "check_positions",
            "check_budget",
            "summed_cross_entropy",
            "count_targets",
            "mean_over_targets",
            "classification_loss",
            "soft_classification_loss",
            "problem_type_loss",
            "target_sums",
        ),
        "Losses over labelled targets alone: a sum divided by a count, the caller's `num_items_in_batch` if given.",
        ("mass", "mass_nmt", "distilled_bilstm"),
    ),
    "recording": (
        "composite",
        ("kept_states",),
        "Which hidden states a caller asks for.",
        ("distilled_bilstm",),
    ),
    "arguments": (
        "encoder",
        ("UPSTREAM_ARGUMENTS", "refuse_unknown_arguments"),
        "The refusal of unread arguments.",
        ("distilled_bilstm",),
    ),
    "attention": (
        "encoder",
        (
            "UPSTREAM_ARGUMENTS",
            "refuse_unknown_arguments",
            "eager_attention_forward",
            "is_plain_linear",
            "CanonicalSelfAttention",
            "CanonicalPooler",
        ),
        "Self-attention, BERT's pooler, and the refusal of unread arguments.",
        ("ib_bert",),
    ),
    "rows": (
        "inputs",
        (
            "REFERENCE_PADDING_BIAS",
            "position_ids_of",
            "check_position_ids",
            "visible_function",
            "has_empty_row",
            "build_attention_mask",
            "first_token_states",
        ),
        "Positions, who may look at whom in padded and packed rows, and each sequence's first token.",
        ("ib_bert",),
    ),
    "pretraining": (
        "pretraining",
        ("CanonicalVocabularyModel", "CanonicalForPreTrainingOutput", "pretraining_losses", "pretraining_sums"),
        "BERT's pre-training: masked tokens and next sentence, their losses, and what the model returns.",
        ("ib_bert",),
    ),
    "files": (
        "files",
        ("INDEXES", "relative_name", "read_config_file", "check_shard_index"),
        "Names of files in a checkpoint's JSON: they lead to files inside the checkpoint, and nowhere else.",
        (
            "spanbert",
            "unilm",
            "mass",
            "mass_nmt",
            "nezha",
            "distilled_bilstm",
            "ib_bert",
            "k_adapter",
            "weighted_layers",
        ),
    ),
    "masks": (
        "inputs",
        (
            "REFERENCE_PADDING_BIAS",
            "visible_function",
            "has_empty_row",
            "build_attention_mask",
            "first_token_states",
        ),
        "Who may look at whom in padded and packed rows, and each sequence's first token.",
        ("nezha", "k_adapter"),
    ),
}
HEADER = "# Generated from models/canonical/{stem}_canonical.py by scripts/sync_copies.py; change that file.\n"


def render(stem: str, family: str, prefix: str) -> str:
    """The copy of one canonical file under a family's file suffix and class prefix, formatted as the project is."""
    source = (MODELS / "canonical" / f"{stem}_canonical.py").read_text(encoding="utf-8")
    return formatted(HEADER.format(stem=stem) + in_family(source, family).replace("Canonical", prefix))


def in_family(source: str, family: str) -> str:
    """Source whose imports of canonical files are imports of the family's copies."""
    return re.sub(r"(?<=from \.)(\w+)_canonical\b", rf"\1_{family}", source)


def extract(stem: str, names: tuple[str, ...], docstring: str, family: str) -> str:
    """Some top-level definitions of a canonical file, with the imports that they need and the comments above them."""
    source = (MODELS / "canonical" / f"{stem}_canonical.py").read_text(encoding="utf-8")
    lines = source.splitlines()
    imports, parts = [], {}
    for node in ast.parse(source).body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) - 1
        while lines[first - 1].startswith("#"):
            first -= 1
        text = "\n".join(lines[first : node.end_lineno])
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        name = node.targets[0].id if isinstance(node, ast.Assign) else getattr(node, "name", None)
        if name in names:
            parts[name] = text
    body = "\n\n\n".join(parts[name] for name in names)
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    kept = []
    for node in imports:
        node.names = [alias for alias in node.names if (alias.asname or alias.name).split(".")[0] in used]
        kept += [ast.unparse(node)] if node.names else []
    imported = in_family("\n".join(kept), family)
    copy = f'"""{docstring}"""\n\n{imported}\n\n{body}\n'.replace("Canonical", COPIES["loading"][family])
    return formatted(HEADER.format(stem=stem) + copy)


def formatted(text: str) -> str:
    """A module as the project formats it, imports sorted."""
    text = ruff(text, "check", "--select", "I", "--fix", "--quiet")
    return ruff(text, "format")


def ruff(text: str, *command: str) -> str:
    """What ruff makes of a module."""
    result = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "pyproject.toml"), "-"],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        cwd=ROOT,
    )
    return result.stdout


def copies() -> Iterator[tuple[Path, str]]:
    """Every generated file, with what it must hold."""
    for stem, families in COPIES.items():
        for family, prefix in families.items():
            yield MODELS / family / f"{stem}_{family}.py", render(stem, family, prefix)
    for name, (stem, parts, docstring, owners) in EXTRACTS.items():
        for family in owners:
            yield MODELS / family / f"{name}_{family}.py", extract(stem, parts, docstring, family)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if a copy is stale")
    options = parser.parse_args(arguments)
    stale = []
    for target, text in copies():
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(target.relative_to(ROOT)))
        if not options.check:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text, encoding="utf-8")
    for name in stale:
        print(("stale: " if options.check else "wrote: ") + name)
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
