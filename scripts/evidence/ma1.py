"""Writing hidden fragments (MASS) first helps translation where pairs are few, more than restoring single tokens.

Text of each language comes from other sentences than that of the other: of half of the corpus the English side, of the
other half the German one. Up to 10,000 pairs are drawn from the first half, so that no German side was seen; of 29,000
half of the German sides were.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from experiment import Lab, main

ABOUT = {
    "id": "MA1",
    "order": 5,
    "title": "MASS before translation",
    "paper": "Song et al., 2019, arXiv:1905.02450",
    "systems": ["MASS", "BART denoising"],
    "metric": "test_bleu",
    "columns": "English to German, pairs",
    "models": (),
    "seeds": [0, 1, 2],
    "set_up": "Multi30k, 1,000 test sentences, sacreBLEU, beams of 5. Encoder-decoders of 3 + 3 layers x 256 with a "
    "vocabulary of 8,000 pieces, the same for all. Pre-training: 6,000 updates of 128 x 64 on 14,500 "
    "sentences of each language. Each arm at the better of two rates by the validation data. Three seeds, "
    "as a run of 29,000 pairs is long.",
}
UPDATES = {1000: 1000, 2900: 1500, 10000: 3000, 29000: 6000}
SIZES = "d_model=256,encoder_layers=3,decoder_layers=3,encoder_attention_heads=4,decoder_attention_heads=4"
FIELDS = SIZES + ",encoder_ffn_dim=1024,decoder_ffn_dim=1024"
# BART's infilling without its permuted sentences: a row is one.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "MASS": {"objective": "mass", "mass_variant": "paper"},
    "BART's infilling": {"objective": "text_infilling", "family": "mass", "permute_sentence_ratio": 0},
    "MASS, one token hidden": {"objective": "mass", "mass_variant": "paper", "mask_prob": 0.001},
}


def texts(folder: Path, data: Path) -> None:
    """Pairs of each size and split, and text of the halves."""

    def lines(split: str, language: str) -> list[str]:
        with gzip.open(data / f"{split}.{language}.gz", "rt", encoding="utf-8") as found:
            return [line.strip() for line in found]

    for split in ("train", "valid", "test"):
        pairs = zip(lines(split, "en"), lines(split, "de"), strict=True)
        rows = [json.dumps({"source": one, "target": other}, ensure_ascii=False) + "\n" for one, other in pairs]
        for name, some in {
            split: rows,
            **({f"train-{size}": rows[:size] for size in UPDATES} if split == "train" else {}),
        }.items():
            (folder / f"{name}.jsonl").write_text("".join(some), encoding="utf-8")
    half = len(lines("train", "en")) // 2
    for name, split, start in (("text", "train", half), ("held-out", "valid", 0)):
        alone = lines(split, "en")[:half] + lines(split, "de")[start:]
        (folder / f"{name}.txt").write_text("".join(f"{line}\n\n" for line in alone), encoding="utf-8")


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    data = lab.make("texts", texts, lab.data / "parallel_multi30k")
    training: dict[str, Any] = {
        "train_file": lab.file(data, "text.txt"),
        "validation_file": lab.file(data, "held-out.txt"),
        "config_overrides": FIELDS,
        "max_seq_length": 64,
        "max_steps": round(6000 * lab.options.scale),
        "per_device_train_batch_size": 128,
        "learning_rate": 1e-3,
        "bf16": True,
        "torch_compile": True,
        "seeds": None,
        "seed": 0,
    }
    models: dict[str, dict[str, Any]] = {}
    vocabulary: dict[str, Any] = {"vocab_size": 8000}
    for number, (arm, options) in enumerate(OBJECTIVES.items()):
        job = lab.job(f"pretrained-{number}", "pretrain", **training, **vocabulary, **options)
        models[arm] = {"model_name_or_path": job}
        vocabulary = {"tokenizer_name": models["MASS"]["model_name_or_path"]}
    models["no pre-training"] = {"family": "mass", "config_overrides": FIELDS, **vocabulary}
    for size, updates in UPDATES.items():
        for number, (arm, options) in enumerate(models.items()):
            given: dict[str, Any] = {
                "train_file": lab.file(data, f"train-{size}.jsonl"),
                "validation_file": lab.file(data, "valid.jsonl"),
                "test_file": lab.file(data, "test.jsonl"),
                "task": "translation",
                "max_source_length": 64,
                "max_target_length": 64,
                "max_steps": updates,
                "per_device_train_batch_size": 128,
                "per_device_eval_batch_size": 250,
                "warmup_steps": 0.1,
                "num_beams": 5,
                "early_stopping": True,
                "metric": "sacrebleu",
                "bf16": True,
                "grid": ["learning_rate=3e-4,1e-3"],
            }
            lab.arm(f"{size:,}", arm, lab.job(f"{size}-{number}", "finetune-seq2seq", **given, **options), factor=1)
    lab.compare("MASS", "no pre-training", "BART's infilling", "MASS, one token hidden")
    lab.figure("pairs to train on")


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
