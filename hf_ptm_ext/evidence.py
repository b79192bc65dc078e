"""What the experiments of the evidence page have shown, as they were published from `scripts/evidence`."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from .files import resource_folder
from .hints import did_you_mean

# Of an experiment; what was not run has no table.
VERDICTS = SHOWN, IN_PART, NOT_SHOWN, NOT_RUN = ("shown", "shown in part", "not shown", "not run")


@cache
def experiments() -> dict[str, dict[str, Any]]:
    """Id -> experiment, in the order of the page."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in resource_folder("evidence").glob("*.json")]
    return {one["id"]: one for one in sorted(found, key=lambda one: (one.get("order", 99), one["id"]))}


def find_experiment(name: str) -> dict[str, Any]:
    """An experiment by its id, whatever its case."""
    known = experiments()
    if name.upper() not in known:
        raise ValueError(
            f"there is no experiment {name!r}.{did_you_mean(name.upper(), known)} There are: {', '.join(known)}."
        )
    return known[name.upper()]


def evidence_of(system: str) -> str:
    """What was shown of a system: the verdicts of its experiments."""
    found = [f"{one['verdict']} ({one['id']})" for one in experiments().values() if system in one["systems"]]
    return ", ".join(found) or NOT_RUN


def differences(experiment: Mapping[str, Any]) -> list[str]:
    """Each comparison as a line, with its interval in every column."""
    lines: dict[str, list[str]] = {}
    digits = experiment.get("digits", 1)
    for one in experiment.get("differences", ()):
        told = "{mean:+.{d}f} ({low:+.{d}f} .. {high:+.{d}f})".format(**one, d=digits)
        many = len(experiment["header"]) > 2
        lines.setdefault(f"{one['first']} less {one['other']}", []).append(
            f"{one['column']}: {told}" if many else told
        )
    return [f"{what}: {'; '.join(told)}" for what, told in lines.items()]


def section(experiment: Mapping[str, Any]) -> str:
    """The section of the page, Markdown."""
    title = f"## {experiment['id']}: {experiment['title']}"
    parts = [title, f"**Claim** ({experiment['paper']}): {' '.join(experiment['claim'].split())}"]
    parts.append(f"**Verdict: {experiment.get('verdict', 'none yet')}.** {experiment.get('says', '')}".strip())
    if experiment.get("rows"):
        by = f"{len(experiment['seeds'])} seeds; {experiment['model'] or 'no model'}; {experiment['device']}"
        parts.append(f"{experiment['set_up']} Mean and standard deviation of {by}.")
        width = len(experiment["header"])
        table = [experiment["header"], ["---", *["---:"] * (width - 1)], *experiment["rows"]]
        parts.append("\n".join(f"| {' | '.join(map(str, row))} |" for row in table))
        if lines := differences(experiment):
            parts.append("Paired differences with their 95 % interval:\n\n" + "\n".join(f"* {one}" for one in lines))
        if figure := experiment.get("figure"):
            parts.append(f"![{experiment['title']}]({figure})")
        parts += [f"{name}: {value}" for name, value in experiment.get("notes", {}).items()]
    parts.append(
        f"`python scripts/evidence/{experiment['id'].lower()}.py --data DATA --output OUT{needs(experiment)}`"
    )
    return "\n\n".join(parts) + "\n"


def needs(experiment: Mapping[str, Any]) -> str:
    """The options of the command that name models."""
    return "".join(f" --{name} {name.upper()}" for name in experiment.get("models", ("model",)))
