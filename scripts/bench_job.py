"""Time the pre-training JOB that users run, beside what upstream's Trainer gives on the same text, in one run.

    python scripts/bench_job.py --text 'corpus/*.txt.gz'                           # one GPU: BERT-base, 64 rows of 512
    python scripts/bench_job.py --text FILE --jobs upstream_full mlm --device cpu  # two tiny jobs
    torchrun --nproc_per_node 2 scripts/bench_job.py --text FILE --jobs mlm        # several GPUs

Each job runs in a process of its own. Windows of `--window` updates are timed after `--warm_up` of them; the table
has the median window's tokens that are not padding per second, the slowest window, how long an update waits for its
batch, the job's speed as a share of its own step (the same batches, already on the device), peak memory,
recompilations after the warm-up, and the share of the measured rate of matrix products (MFU).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainingArguments, set_seed

SIZES = {
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
}
# Name -> words of `hf-ptm-ext pretrain`; those of upstream are made here.
JOBS = {
    "mlm": "--objective mlm --pack_rows true",
    "wwm": "--objective wwm --pack_rows true",
    "span": "--objective span --pack_rows true",
    "span_blocks": "--objective span",
    "unilm": "--objective unilm --family unilm --pack_rows true",
    "mlm_no_dropout": (
        "--objective mlm --pack_rows true --config_overrides hidden_dropout_prob=0,attention_probs_dropout_prob=0"
    ),
}
UPSTREAM = ("upstream_full", "upstream_padded")


class Watch(TrainerCallback):
    """Times windows of updates, and what each waits for its batch."""

    def __init__(self, warm_up: int, window: int):
        self.warm_up, self.window = warm_up, window
        self.marks: list[float] = []
        self.waits: list[float] = []
        self.compiled: list[int] = []

    def watch(self, trainer: Any) -> Any:
        """Add itself to a Trainer."""
        trainer.add_callback(self)
        inner = trainer.get_batch_samples

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            found = inner(*args, **kwargs)
            self.waits.append(time.perf_counter() - start)
            return found

        trainer.get_batch_samples = timed
        return trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the time at the ends of windows."""
        if state.global_step >= self.warm_up and (state.global_step - self.warm_up) % self.window == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.marks.append(time.perf_counter())
            self.compiled.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
            if len(self.marks) == 1:
                self.waits.clear()


def matrix_rate(device: str) -> float:
    """Measured bf16 matrix products, in floating point operations per second."""
    size, rounds = (8192, 20) if device == "cuda" else (512, 3)
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        left @ right
    if device == "cuda":
        torch.cuda.synchronize()
    return 2 * size**3 * rounds / (time.perf_counter() - start)


def training_words(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """The arguments of training that all jobs share."""
    cuda = options.device == "cuda"
    return {
        "output_dir": folder,
        "max_steps": options.warm_up + options.windows * options.window,
        "per_device_train_batch_size": options.rows,
        "learning_rate": 1e-4,
        "warmup_steps": 10,
        "logging_steps": options.window,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "bf16": cuda,
        "use_cpu": not cuda,
        "torch_compile": cuda and not options.eager,
        "seed": 0,
    }


def ours(options: argparse.Namespace, folder: str) -> tuple[Any, Any]:
    """Our job up to its Trainer, and the number of real tokens of a row."""
    import numpy as np

    from hf_ptm_ext.cli.pretrain import Pretrain, parse

    sizes = ",".join(f"{name}={value}" for name, value in SIZES[options.size].items())
    words = f"{JOBS[options.child]} --max_seq_length {options.length} --tokenizer_name {options.tokenizer}".split()
    if "--config_overrides" in words:
        words[words.index("--config_overrides") + 1] += f",{sizes}"
    else:
        words += ["--config_overrides", sizes]
    words += ["--train_file", *options.text, "--validation_fraction", "0", *options.more]
    for name, value in training_words(options, folder).items():
        words += [f"--{name}", str(value)]
    job = Pretrain(*parse(words))
    job.prepare()
    trainer, _ = job.build(*job.variants, job.training_args)
    rows = trainer.train_dataset
    lengths = [
        np.count_nonzero(row["sequence_ids"]) if "sequence_ids" in row else len(row["input_ids"])
        for row in (rows[number] for number in range(min(len(rows), 1000)))
    ]
    return trainer, statistics.mean(int(length) for length in lengths)


def upstream(options: argparse.Namespace, folder: str) -> tuple[Any, Any]:
    """Upstream's Trainer and masking: full rows cut across documents, or a document's block a row, padded."""
    from datasets import Dataset
    from transformers import (
        AutoTokenizer,
        BertConfig,
        BertForMaskedLM,
        DataCollatorForLanguageModeling,
        Trainer,
    )

    from hf_ptm_ext.data import FileDocuments, encode_documents, pack_documents

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    encoded = encode_documents(FileDocuments(options.text), tokenizer)
    mode = {"mode": "full_sentences", "separator_id": tokenizer.sep_token_id} if "full" in options.child else {}
    blocks = pack_documents(encoded, options.length - 2, **mode)
    if "full" in options.child:  # the usual script: one stream of tokens, cut into rows
        stream = [token for block in blocks for token in block]
        size = options.length - 2
        blocks = (stream[start : start + size] for start in range(0, len(stream) - size, size))
    rows = Dataset.from_list(
        [{"input_ids": [tokenizer.cls_token_id, *block, tokenizer.sep_token_id]} for block in blocks]
    )
    sizes = SIZES[options.size]
    trainer = Trainer(
        model=BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes)),
        args=TrainingArguments(**training_words(options, folder)),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer, pad_to_multiple_of=options.length),
        processing_class=tokenizer,
    )
    return trainer, statistics.mean(len(row) for row in rows["input_ids"])


def own_step(trainer: Any, batches: list[Any], updates: int) -> float:
    """Seconds of an update on batches that lie on the device: forward, backward, clipping, optimiser."""
    model, optimizer = trainer.model_wrapped, trainer.optimizer
    model.train()
    for number in range(updates + 5):
        if number == 5:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            start = time.perf_counter()
        with trainer.compute_loss_context_manager():
            loss = model(**batches[number % len(batches)]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / updates


def child(options: argparse.Namespace) -> None:
    """One job, measured; writes what was found as JSON."""
    set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer, tokens = (upstream if options.child in UPSTREAM else ours)(options, folder)
        watch = Watch(options.warm_up, options.window)
        watch.watch(trainer)
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
        memory = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else 0.0
        loader = iter(trainer.get_train_dataloader())
        batches = [trainer._prepare_inputs(next(loader)) for _ in range(6)]
        step = own_step(trainer, batches, options.window)
        if options.profile:
            profile(trainer, batches, options)
    seconds = [(after - before) / options.window for before, after in zip(watch.marks, watch.marks[1:], strict=False)]
    real = tokens * options.rows * int(os.environ.get("WORLD_SIZE", "1"))
    model = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    width = SIZES[options.size]["hidden_size"]
    layers = SIZES[options.size]["num_hidden_layers"]
    parameters = sum(value.numel() for name, value in model.named_parameters() if ".layer." in name)
    # Matrix products of the layers and of attention, forward and backward; the vocabulary at 16 % of the positions.
    flops = options.rows * options.length * (6 * parameters + 12 * layers * width * options.length)
    flops += 6 * 0.16 * options.rows * options.length * width * model.config.vocab_size
    found = {
        "tokens": real / statistics.median(seconds),
        "slowest": real / max(seconds),
        "ms": 1000 * statistics.median(seconds),
        "wait_ms": 1000 * statistics.mean(watch.waits),
        "of_step": step / statistics.median(seconds),
        "memory": memory,
        "recompiled": watch.compiled[-1] - watch.compiled[0],
        "mfu": flops / statistics.median(seconds) / matrix_rate(options.device),
        "loss": trainer.state.log_history[-2].get("loss"),
    }
    if int(os.environ.get("RANK", "0")) == 0:
        Path(options.result).write_text(json.dumps(found), encoding="utf-8")


def profile(trainer: Any, batches: list[Any], options: argparse.Namespace) -> None:
    """Print where the time of a few training steps goes, device and host."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        own_step(trainer, batches, 5)
    print(recorded.key_averages().table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=60))


def tokenizer_of(options: argparse.Namespace, folder: str) -> str:
    """A WordPiece tokenizer of the text."""
    from hf_ptm_ext.data import FileDocuments, train_wordpiece

    trained = train_wordpiece(FileDocuments(options.text), 30522, lowercase=True, model_max_length=options.length)
    trained.save_pretrained(folder)
    return folder


def main() -> None:
    """Run the jobs one after the other and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--jobs", nargs="+", default=[*UPSTREAM, "mlm", "wwm", "span", "unilm"])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=tuple(SIZES), default="base" if torch.cuda.is_available() else "tiny")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--warm_up", type=int, default=20)
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--output", help="Where the figures go, as JSON.")
    parser.add_argument("--tokenizer", help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("more", nargs="*", help="Behind `--`: further words of our jobs.")
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = options.tokenizer or tokenizer_of(options, str(Path(folder) / "tokenizer"))
        for name in options.jobs:
            result = Path(folder) / f"{name}.json"
            words = [*sys.argv[1:], "--child", name, "--result", str(result), "--tokenizer", tokenizer]
            if "--" in sys.argv:
                split = sys.argv.index("--")
                words = [*sys.argv[1:split], *words[len(sys.argv) - 1 :], *sys.argv[split:]]
            if subprocess.run([sys.executable, __file__, *words], check=False).returncode:
                print(f"{name} failed")
                continue
            table[name] = json.loads(result.read_text(encoding="utf-8"))
    if options.output:
        Path(options.output).write_text(json.dumps(table, indent=1), encoding="utf-8")
    first = next(iter(table.values()))["tokens"] if table else 1.0
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{card}, {options.size}, {options.rows} rows of {options.length}")
    columns = ("k tok/s", "/ first", "slowest", "ms", "wait ms", "of step", "GiB", "recompiled", "MFU", "loss")
    print(f"{'':<18}" + "".join(f"{name:>11}" for name in columns))
    for name, found in table.items():
        cells = (found["tokens"] / 1e3, found["tokens"] / first, found["slowest"] / 1e3, found["ms"], found["wait_ms"])
        cells += (found["of_step"], found["memory"], found["recompiled"], found["mfu"], found["loss"] or 0.0)
        print(f"{name:<18}" + "".join(f"{cell:>11.2f}" for cell in cells))


if __name__ == "__main__":
    main()
