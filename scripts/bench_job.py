"""Time the JOBS that users run, beside what upstream's Trainer gives on the same text, in one run.

    python scripts/bench_job.py --text 'corpus/*.txt.gz'                           # one GPU: BERT-base, 64 rows of 512
    python scripts/bench_job.py --text FILE --jobs upstream_full mlm --device cpu  # two tiny jobs
    python scripts/bench_job.py --text FILE --jobs seq2seq distill --eager         # other jobs, padded rows
    torchrun --nproc_per_node 2 scripts/bench_job.py --text FILE --jobs mlm        # several GPUs

Each job runs in a process of its own. Windows of `--window` updates are timed after `--warm_up` of them; the table
has the median window's tokens that are not padding per second, the slowest window, how long an update waits for its
batch, the job's speed as a share of its own step (the same batches, already on the device), peak memory,
recompilations after the warm-up, how often an update waits for the device (torch's sync debug mode, over a window
without logs), and the share of the measured rate of matrix products (MFU).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainingArguments, set_seed

SIZES = {
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
}
# Name -> command and its words, in which {names} are files that `make_files` writes; those of upstream are made here.
JOBS = {
    "mlm": "pretrain --objective mlm --pack_rows true",
    "wwm": "pretrain --objective wwm --pack_rows true",
    "span": "pretrain --objective span --pack_rows true",
    "span_blocks": "pretrain --objective span",
    "unilm": "pretrain --objective unilm --family unilm --pack_rows true",
    "ernie_thu": "pretrain --objective ernie_thu --entity_table {table} --min_entities 1 --pack_rows true",
    "ernie_thu_pairs": "pretrain --objective ernie_thu --entity_table {table} --min_entities 1",
    "mlm_no_dropout": "pretrain --objective mlm --pack_rows true --dropout 0",
    "mlm_bf16_weights": "pretrain --objective mlm --pack_rows true --weights bf16",
    "mlm_bf16_weights_no_dropout": "pretrain --objective mlm --pack_rows true --weights bf16 --dropout 0",
    "finetune": "finetune --model_name_or_path {model}",
    "finetune_kg": "finetune --model_name_or_path {model} --kg {graph}",
    "distill_minilm": "distill --teacher_name_or_path {model} --student_layers {half} --stages {minilm}",
    "distill_tinybert": "distill --teacher_name_or_path {model} --student_layers {half} --stages {tinybert}",
    "seq2seq": "finetune-seq2seq --model_name_or_path {unilm}",
    "seq2seq_mass": "finetune-seq2seq --model_name_or_path {mass}",
}
STAGES = {"minilm": '{"all":{"preset":"minilm"}}', "tinybert": '{"all":{"preset":"tinybert-intermediate"}}'}
TARGET = 0.25  # of a row's tokens, in pairs of texts
UPSTREAM = ("upstream_full", "upstream_padded")


class Watch(TrainerCallback):
    """Times windows of updates, and what each waits for its batch."""

    def __init__(self, warm_up: int, window: int):
        self.warm_up, self.window = warm_up, window
        self.marks: list[float] = []
        self.waits: list[float] = []
        self.compiled: list[int] = []
        self.reads: Counter[str] = Counter()  # place in the source -> how often the host waited there for the device

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
        if (
            self.warm_up <= state.global_step < state.max_steps
            and (state.global_step - self.warm_up) % self.window == 0
        ):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.marks.append(time.perf_counter())
            self.compiled.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
            if len(self.marks) == 1:
                self.waits.clear()
        if torch.cuda.is_available() and state.global_step == state.max_steps - self.window:
            torch.cuda.set_sync_debug_mode("warn")
            warnings.showwarning = self.note
            warnings.simplefilter("always")
        elif torch.cuda.is_available() and state.global_step == state.max_steps:
            torch.cuda.set_sync_debug_mode("default")

    def note(self, message: Any, category: Any, filename: str, line: int, *more: Any) -> None:
        """Count a warning of the sync debug mode."""
        if "synchronizing CUDA" in str(message):
            self.reads[f"{filename}:{line}"] += 1


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
        "max_steps": options.warm_up + (options.windows + 1) * options.window,
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


def make_files(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What other jobs than `pretrain` read, made of the text: labelled rows, pairs, a graph, entities, models."""
    import numpy as np
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    import hf_ptm_ext
    from hf_ptm_ext.conversion.unilm_tokenizer import unilm_tokenizer
    from hf_ptm_ext.data import FileDocuments

    files = {name: folder / name for name in ("model", "unilm", "mass", "graph.spo", "table.safetensors")}
    named = {
        **{name.partition(".")[0]: str(path) for name, path in files.items()},
        **STAGES,
        "half": SIZES[options.size]["num_hidden_layers"] // 2,
    }
    if folder.is_dir():  # of the job before
        return named
    folder.mkdir()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    words = [word for document in FileDocuments(options.text) for line in document for word in line.split()]
    random, size = np.random.default_rng(0), int(0.7 * options.length)
    starts = np.arange(0, len(words) - size, size)
    texts = [" ".join(words[start : start + int(random.integers(size // 4, size))]) for start in starts]
    lines = {
        "rows.jsonl": [{"text": text, "label": number % 2} for number, text in enumerate(texts)],
        "pairs.jsonl": [{"source": text, "target": text[: int(TARGET * len(text))]} for text in texts],
    }
    for name, found in lines.items():
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    names = sorted({word.lower() for word in words if word.isalpha()})
    triples = (f"{name}\tbeside\t{other}\n" for name, other in pairwise(names))
    (folder / "graph.spo").write_text("".join(triples), encoding="utf-8")
    usual = {word for word, _ in Counter(word.lower() for word in words).most_common(500)}
    names = [name for name in names if name not in usual][::4]  # entities at about every tenth word, as in linked text
    vectors = random.normal(size=(len(names), 100)).astype("float32")
    hf_ptm_ext.EntityTable.from_arrays(vectors, names, {name: name for name in names}).save(
        folder / "table.safetensors"
    )
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": max(options.length, 512), **SIZES[options.size]}
    target = unilm_tokenizer(AutoTokenizer.from_pretrained(options.tokenizer))
    unilm = hf_ptm_ext.UniLMConfig(
        type_vocab_size=6, mask_token_id=target.mask_token_id, eos_token_id=target.sep_token_id, **sizes
    )
    layers, heads = sizes["num_hidden_layers"] // 2, sizes["num_attention_heads"]
    mass = hf_ptm_ext.MassConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        decoder_start_token_id=tokenizer.sep_token_id,
        d_model=sizes["hidden_size"],
        **{f"{side}_layers": layers for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": sizes["intermediate_size"] for side in ("encoder", "decoder")},
    )
    models = {
        "model": (BertForSequenceClassification(BertConfig(**sizes)), tokenizer),
        "unilm": (hf_ptm_ext.UniLMForConditionalGeneration(unilm), target),
        "mass": (hf_ptm_ext.MassForConditionalGeneration(mass), tokenizer),
    }
    for name, parts in models.items():
        for part in parts:
            part.save_pretrained(folder / name)
    return named


def ours(options: argparse.Namespace, folder: str) -> tuple[Any, Any]:
    """Our job up to its Trainer, and the number of real tokens of a row."""
    import numpy as np

    from hf_ptm_ext.cli import distill, finetune, finetune_seq2seq, pretrain

    command, *words = JOBS[options.child].split()
    beside = Path(options.tokenizer).parent / "files"
    files = make_files(options, beside) if "{" in JOBS[options.child] else {}
    words = [word.format(**files) if word.startswith("{") else word for word in words]
    sizes = ",".join(f"{name}={value}" for name, value in SIZES[options.size].items())
    if command == "pretrain":
        words += ["--tokenizer_name", options.tokenizer, "--train_file", *options.text, "--validation_fraction", "0"]
        words += ["--config_overrides", sizes]
    if command == "finetune-seq2seq":
        longest = int(TARGET * options.length)
        words += ["--train_file", f"{beside}/pairs.jsonl", "--predict_with_generate", "false"]
        words += ["--max_source_length", str(options.length - longest), "--max_target_length", str(longest)]
    else:
        words += ["--max_seq_length", str(options.length)]
    if command in ("finetune", "distill"):
        words += ["--train_file", f"{beside}/rows.jsonl", "--validation_file", f"{beside}/rows.jsonl"]
        words += ["--task", "classification"]
    for name, value in training_words(options, folder).items():
        words += [f"--{name}", str(value)]
    words += options.more
    module, name = {
        "pretrain": (pretrain, "Pretrain"),
        "finetune": (finetune, "Finetune"),
        "distill": (distill, "Distill"),
        "finetune-seq2seq": (finetune_seq2seq, "FinetuneSeq2Seq"),
    }[command]
    job = getattr(module, name)(*module.parse(words))
    job.prepare()
    trainer, _ = job.build(job.variants[0], job.training_args)
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
        with trainer.compute_loss_context_manager():  # a teacher's forward is a part of the step
            loss = trainer.compute_loss(model, dict(batches[number % len(batches)]))
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
        "waits": watch.reads.total() / options.window,
        "loss": trainer.state.log_history[-2].get("loss"),
    }
    for place, times in watch.reads.most_common(10):
        print(f"{options.child}: the host waited {times} times in {options.window} updates at {place}")
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
    first_process = int(os.environ.get("RANK", "0")) == 0
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = tokenizer_of(options, str(Path(folder) / "tokenizer"))
        for name in options.jobs:
            result = Path(folder) / f"{name}.json"
            words = [*sys.argv[1:], "--child", name, "--result", str(result), "--tokenizer", tokenizer]
            if "--" in sys.argv:
                split = sys.argv.index("--")
                words = [*sys.argv[1:split], *words[len(sys.argv) - 1 :], *sys.argv[split:]]
            if subprocess.run([sys.executable, __file__, *words], check=False).returncode:
                print(f"{name} failed")
            elif first_process:
                table[name] = json.loads(result.read_text(encoding="utf-8"))
                tell(options, table, name)


def tell(options: argparse.Namespace, table: dict[str, dict[str, float]], name: str) -> None:
    """Print a job's row, the head of the table before the first, and write what is known so far."""
    if options.output:
        Path(options.output).write_text(json.dumps(table, indent=1), encoding="utf-8")
    first, found = next(iter(table.values())), table[name]
    found["/ first"] = found["tokens"] / first["tokens"]
    columns = {"k tok/s": "tokens", "slowest": "slowest", "/ first": "/ first", "ms": "ms", "wait ms": "wait_ms"}
    columns |= {"of step": "of_step", "GiB": "memory", "recompiled": "recompiled", "waits": "waits", "MFU": "mfu"}
    if len(table) == 1:
        card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        print(f"{card}, {options.size}, {options.rows} rows of {options.length}")
        print(f"{'':<28}" + "".join(f"{title:>11}" for title in (*columns, "loss")))
    cells = [found[key] / (1e3 if title in ("k tok/s", "slowest") else 1) for title, key in columns.items()]
    print(f"{name:<28}" + "".join(f"{cell:>11.2f}" for cell in (*cells, found["loss"] or 0.0)), flush=True)


if __name__ == "__main__":
    main()
