"""Transformer-XL's memory lowers the loss of held-out text: a model that reads the segments before it, trained to.

Beside it: the same model trained without a memory, and the one with a memory measured without it.
"""

from typing import Any

from experiment import Lab, main

ABOUT = {
    "id": "TX1",
    "order": 31,
    "title": "Transformer-XL's memory",
    "paper": "Dai et al., 2019, arXiv:1901.02860",
    "systems": ["Transformer-XL"],
    "metric": "eval_loss",
    "columns": "nats a token (less is better)",
    "digits": 3,
    "seeds": [0, 1, 2],
    "models": (),
    "set_up": "Six layers of 256, segments of 64 tokens, batches of 64, a vocabulary of 16,000; English text of six "
    "sources, the last 5 % of the documents held out.",
}
SIZES = "d_model=256,n_layer=6,n_head=8,d_inner=1024,div_val=1,initial_memory=empty"


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    with_memory, without, taken_away = [], [], []
    text: dict[str, Any] = {
        "train_file": [lab.data / "pretrain_en/*.txt.gz"],
        "max_seq_length": 64,
        "per_device_eval_batch_size": 10,  # streams, which every arm is measured on
        "bf16": True,
    }
    for seed in lab.seeds:
        common = {
            **text,
            "vocab_size": 16000,
            "max_steps": int(4000 * lab.options.scale),
            "per_device_train_batch_size": 64,
            "warmup_steps": 0.05,
            "seeds": [seed],
        }
        for length, found in ((128, with_memory), (0, without)):
            fields = f"{SIZES},mem_len={length}"
            found.append(
                lab.job(f"memory-{length}-{seed}", "pretrain transfo_xl.yaml", config_overrides=fields, **common)
            )
        measured = {**text, "model_name_or_path": with_memory[-1], "learning_rate": 0, "max_steps": 1, "seeds": [seed]}
        off = {"config_overrides": "mem_len=0", "objective": "causal_lm"}
        taken_away.append(lab.job(f"taken-away-{seed}", "pretrain", **measured, **off))
    lab.arm("held-out text", "memory of 128 tokens", with_memory, factor=1)
    lab.arm("held-out text", "the same, measured without it", taken_away, factor=1)
    lab.arm("held-out text", "trained without a memory", without, factor=1)
    lab.arm("held-out text", "unigrams", with_memory, metric="baseline_lm_loss", factor=1)
    lab.compare("memory of 128 tokens", "the same, measured without it", "trained without a memory")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
