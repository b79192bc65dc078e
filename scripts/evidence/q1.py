"""Q8BERT: a model trained to compute with 8 bits is as good as in 32, and better than one quantised after training."""

from experiment import Lab, main
from ld1 import SETS, options_of

ABOUT = {
    "id": "Q1",
    "order": 42,
    "title": "Whole numbers",
    "paper": "Zafrir et al., 2019, arXiv:1910.06188",
    "systems": ["Q8BERT"],
    "metric": "accuracy",
    "columns": "test accuracy",
    "set_up": "Weights and activations of all products in 8 bits; each arm after 5 epochs over all rows, at the "
    "better of two rates by the validation data; ranges after training from 128 training rows.",
}


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    for name, folder in SETS.items():
        common = {"requantize_output": True, **options_of(lab, folder)}
        after = lab.job(f"{folder}-after", "compress", methods=["quantise-after"], **common)
        trained = lab.job(f"{folder}-trained", "compress", methods=["quantise"], baseline=False, **common)
        lab.arm(name, "32 bits", after, "uncompressed")
        lab.arm(name, "trained with 8 bits (Q8BERT)", trained)
        lab.arm(name, "8 bits after training", after)
    lab.compare("trained with 8 bits (Q8BERT)", "8 bits after training", "32 bits")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
