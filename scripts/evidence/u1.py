"""UniLM's pre-training in several attention modes makes an encoder a better writer than fine-tuning alone does.

The comparison that decides is the same encoder with and without those updates, and with as many in the one mode that
writing uses. An encoder-decoder and a UniLM of random weights have seen no text before.
"""

from typing import Any

from experiment import Job, Lab, main

ABOUT = {
    "id": "U1",
    "order": 3,
    "title": "UniLM before summaries",
    "paper": "Dong et al., 2019, arXiv:1905.03197",
    "systems": ["UniLM"],
    "metric": "test_rouge1",
    "columns": "SciTLDR, all 1,992 rows",
    "set_up": "One-sentence summaries of abstracts, 618 to test on, F1 of ROUGE with stemming, beams of 3. UniLM of "
    "6 layers x 384; the encoder-decoder has 3 + 3 layers of that width. Pre-training: 4,000 updates of "
    "128 x 128 on English text of six sources, the training abstracts among it. 12 or 30 passes at one of "
    "two rates, chosen by the validation data for each arm.",
}
SIZES = "d_model=384,encoder_layers=3,decoder_layers=3,encoder_attention_heads=12,decoder_attention_heads=12"
WIDTHS = ",encoder_ffn_dim=1536,decoder_ffn_dim=1536,max_position_embeddings=512"


def untrained(folder: Any, model: Any) -> None:
    """A model of random weights."""
    import torch
    from transformers import AutoConfig, AutoTokenizer

    from hf_ptm_ext import UniLMForConditionalGeneration

    torch.manual_seed(0)
    UniLMForConditionalGeneration(AutoConfig.from_pretrained(model)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def plan(lab: Lab) -> None:
    """Jobs and arms."""
    start = lab.tool("unilm", "convert unilm", lab.model)
    training: dict[str, Any] = {
        "objective": "unilm",
        "model_name_or_path": start,
        "train_file": [lab.data / "pretrain_en/*.txt.gz"],
        "max_seq_length": 128,
        "max_steps": round(4000 * lab.options.scale),
        "per_device_train_batch_size": 128,
        "learning_rate": 2e-4,
        "bf16": True,
        "torch_compile": True,
        "seeds": None,
        "seed": 0,
    }
    models: dict[str, dict[str, Any]] = {
        "UniLM, pre-trained": {"model_name_or_path": lab.job("pretrained", "pretrain", **training)},
        "UniLM, pre-trained in one mode": {
            "model_name_or_path": lab.job("one-mode", "pretrain", mode_probabilities="seq2seq=1", **training)
        },
        "UniLM from the encoder": {"model_name_or_path": start},
        "UniLM, random": {"model_name_or_path": lab.make("random", untrained, start)},
        "encoder-decoder, random": {
            "family": "bart",
            "config_overrides": SIZES + WIDTHS,
            "tokenizer_name": lab.model,
        },
    }
    jobs: dict[str, Job] = {}
    given: dict[str, Any] = {"target_column": "targets", "bf16": True, "language": "en", "grid": GRID}
    given |= lab.splits("summ_en_scitldr")
    for number, (arm, options) in enumerate(models.items()):
        command = "finetune-seq2seq" + (" unilm_summarization_small.yaml" if "family" not in options else "")
        plain = STOCK if "family" in options else {}
        jobs[arm] = lab.job(f"summaries-{number}", command, **given, **plain, **options)
    for name in ("rouge1", "rouge2", "rougeL"):
        for arm, job in jobs.items():
            lab.arm(name, arm, job, metric=f"test_{name}")
        lab.arm(name, "copies the beginning", job, metric=f"baseline_test_{name}")
    lab.compare(*models)


# The recipe's values, for transformers' own search.
STOCK = {
    "task": "summarization",
    "max_source_length": 160,
    "max_target_length": 40,
    "warmup_steps": 0.1,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "num_beams": 3,
    "no_repeat_ngram_size": 3,
    "min_new_tokens": 5,
    "metric": "rouge",
    "use_stemmer": True,
}
GRID = ["learning_rate=3e-4,1e-3", "num_train_epochs=12,30"]


if __name__ == "__main__":
    raise SystemExit(main(plan, ABOUT, __doc__))
