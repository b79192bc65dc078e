"""A BERT can lose 30 to 40 % of its weights by magnitude without harm to a task, and more when it trains meanwhile."""

from experiment import Lab, main
from ld1 import options_of

ABOUT = {
    "id": "PR1",
    "order": 41,
    "title": "Magnitude pruning",
    "paper": "Gordon et al., 2020, arXiv:2002.08307",
    "systems": ["Compressing BERT"],
    "metric": "accuracy",
    "columns": "SST-2, zeros",
    "set_up": "Test accuracy with a share of zeros in each matrix; each arm after 5 epochs over all rows, at the "
    "better of two rates by the validation data.",
}
SHARES = (0.2, 0.4, 0.6, 0.8, 0.9)


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    common = options_of(lab, "cls_en_sst2")
    after = lab.job("after", "compress", methods=["prune-after"], sparsity=list(SHARES), **common)
    for share in SHARES:
        column, pruned = f"{share:.0%}", {"methods": ["prune"], "sparsity": [share], "baseline": False}
        lab.arm(column, "none", after, "uncompressed")
        lab.arm(column, "gradually, while it is fine-tuned", lab.job(f"zeros-{share}", "compress", **pruned, **common))
        lab.arm(column, "at the end", after, f"prune-after {share}")
    lab.compare("gradually, while it is fine-tuned", "none", "at the end")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
