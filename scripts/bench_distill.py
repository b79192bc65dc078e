"""Memory and time of distillation steps: the presets' hooks beside attention outputs, all in one run.

    python scripts/bench_distill.py                  # CPU: 4 rows of 512, teacher 12 x 384, student 6 x 192
    python scripts/bench_distill.py --device cuda    # GPU: 32 rows of 512, teacher 12 x 768, student 6 x 384

Models are random and rows are random ids of several lengths: nothing is loaded. Four tables:

* MiniLM and TinyBERT's attention loss, by preset and by what models return (`output_attentions=True` under eager
  attention; for TinyBERT an eager attention that returns the scores before the softmax). Both ways must give one loss.
* MiniLM v2's three relations in 48 heads beside one relation, forward and backward of the loss alone.
* A step of each preset beside forward and backward of the same models without an objective.
* Goals, met or not; the exit status is 1 if one is not.

Extra memory is the peak of a step over what is allocated before it: of the process (Linux) on the CPU, each way in a
process of its own; of the allocator on a GPU. Time is the median over rounds in which every way takes its turn; on the
CPU processor time, so a busy machine does not tilt it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
)
from transformers.masking_utils import eager_mask

from hf_ptm_ext.distillation import Capture, DistillationModel, preset_objectives
from hf_ptm_ext.objectives import minilm_v2_loss

LENGTH = 512
SIZES = {"cpu": (4, 384, 192), "cuda": (32, 768, 384)}
VOCAB_SIZE = 30522
HEADS, TEACHER_LAYERS, STUDENT_LAYERS, RELATION_HEADS = 12, 12, 6, 48
SCORES = "scores"
Step = Callable[[], torch.Tensor]
Pair = tuple[str, str]


class Measured(NamedTuple):
    """A line of a table: extra MiB, milliseconds and loss of a step."""

    name: str
    memory: float
    time: float
    loss: float


# ---- batches and models ----


def make_batch(rows: int, device: str) -> dict[str, torch.Tensor]:
    """Rows of 512, 448, 384 and 320 tokens in turns; 15 % of the tokens have labels."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, VOCAB_SIZE, (rows, LENGTH), generator=generator)
    lengths = LENGTH - 64 * (torch.arange(rows) % 4)
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    labels = torch.where((torch.rand(ids.shape, generator=generator) < 0.15) & (mask > 0), ids, -100)
    batch = {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}
    return {name: value.to(device) for name, value in batch.items()}


def make_model(
    width: int, layers: int, device: str, kind: type = BertModel, attention: str = "sdpa", **more: float
) -> nn.Module:
    """A random BERT without dropout, so that both ways see one network."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=4 * width,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
        **more,
    )
    options = {"add_pooling_layer": False} if kind is BertModel else {}
    return kind(config, **options).to(device).train()


def scores_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Eager attention that returns the scores, as TinyBERT's own model class does."""
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    masked = scores if attention_mask is None else scores + attention_mask
    return (masked.softmax(-1).to(value.dtype) @ value).transpose(1, 2).contiguous(), masked


# ---- MiniLM and TinyBERT, both ways ----


def divergence(own: torch.Tensor, taught: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """KL of distributions over valid rows: mean over heads and rows of a sequence, then over sequences."""
    own, taught = own.float(), taught.float()
    lowest = torch.finfo(torch.float32).tiny
    terms = torch.where(taught > 0, taught * (taught.clamp_min(lowest).log() - own.clamp_min(lowest).log()), 0.0)
    rows = terms.sum(-1) * mask[:, None, :]
    return (rows.sum((1, 2)) / (own.shape[1] * mask.sum(1))).mean()


def value_relation(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """softmax(V V^T / sqrt(d)) of each head."""
    heads = values.float().unflatten(-1, (HEADS, -1)).transpose(1, 2)
    scores = (heads @ heads.transpose(2, 3)).float() / heads.shape[-1] ** 0.5  # half precision under autocast
    return scores.masked_fill(mask[:, None, None, :] == 0, torch.finfo(torch.float32).min).softmax(-1)


def minilm_by_outputs(batch: dict[str, torch.Tensor], width: int, student_width: int, device: str) -> Step:
    """MiniLM from `output_attentions=True` under eager attention; values from a hook, as no output has them."""
    teacher = make_model(width, TEACHER_LAYERS, device, attention="eager").eval().requires_grad_(False)
    student = make_model(student_width, STUDENT_LAYERS, device, attention="eager")
    captures = [
        Capture(model, [f"value.{layers - 1}"])
        for model, layers in ((student, STUDENT_LAYERS), (teacher, TEACHER_LAYERS))
    ]
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    mask = batch["attention_mask"]

    def step() -> torch.Tensor:
        for capture in captures:
            capture.start()
        with torch.no_grad():
            taught = teacher(**inputs, output_attentions=True).attentions
        own = student(**inputs, output_attentions=True).attentions
        of_student, of_teacher = (next(iter(capture.take().values())) for capture in captures)
        loss = divergence(own[-1], taught[-1], mask)
        with torch.no_grad():
            relation = value_relation(of_teacher, mask)
        loss = loss + divergence(value_relation(of_student, mask), relation, mask)
        loss.backward()
        student.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def tinybert_by_outputs(batch: dict[str, torch.Tensor], width: int, student_width: int, device: str) -> Step:
    """TinyBERT's attention loss on scores that the models return, as in its own code."""
    AttentionInterface.register(SCORES, scores_attention)
    AttentionMaskInterface.register(SCORES, eager_mask)
    teacher = make_model(width, TEACHER_LAYERS, device, attention="eager").eval().requires_grad_(False)
    student = make_model(student_width, STUDENT_LAYERS, device, attention="eager")
    for model in (teacher, student):
        model.set_attn_implementation(SCORES)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    every = TEACHER_LAYERS // STUDENT_LAYERS

    own: list[torch.Tensor] = []
    taught: list[torch.Tensor] = []
    for model, seen in ((student, own), (teacher, taught)):
        for layer in model.encoder.layer:
            layer.attention.self.register_forward_hook(lambda module, args, output, seen=seen: seen.append(output[1]))

    def step() -> torch.Tensor:
        with torch.no_grad():
            teacher(**inputs)
        student(**inputs)
        loss = own[0].new_zeros(())
        for index in range(STUDENT_LAYERS):
            pair = [own[index].float(), taught[index * every + every - 1].float()]
            pair = [torch.where(scores <= -100, torch.zeros_like(scores), scores) for scores in pair]
            loss = loss + nn.functional.mse_loss(*pair)
        loss.backward()
        student.zero_grad(set_to_none=True)
        own.clear()
        taught.clear()
        return loss.detach()

    return step


def by_preset(
    batch: dict[str, torch.Tensor],
    width: int,
    student_width: int,
    device: str,
    preset: str,
    only: str | None = None,
    kind: type = BertModel,
    layers: int = STUDENT_LAYERS,
    bare: bool = False,
) -> Step:
    """A step of a preset, or of the same models without an objective."""
    teacher = make_model(width, TEACHER_LAYERS, device, kind)
    student = make_model(student_width, layers, device, kind)
    objectives = [each for each in preset_objectives(preset, student) if only in (None, each["objective"])]
    model = DistillationModel(student, teacher, objectives).to(device).train()
    inputs = dict(batch)
    if kind is BertForSequenceClassification:
        inputs["labels"] = torch.arange(len(batch["input_ids"]), device=device) % 2
    elif kind is BertModel:
        del inputs["labels"]
    plain = {name: value for name, value in inputs.items() if name != "labels"}

    def step() -> torch.Tensor:
        loss = model(**inputs).loss
        loss.backward()
        model.zero_grad(set_to_none=True)
        return loss.detach()

    def bare_step() -> torch.Tensor:
        with torch.no_grad():
            teacher(**plain)
        loss = student(**plain)[0].float().mean()
        loss.backward()
        student.zero_grad(set_to_none=True)
        return loss.detach()

    return bare_step if bare else step


def relations_alone(
    batch: dict[str, torch.Tensor], width: int, student_width: int, device: str, relations: tuple[str, ...]
) -> Step:
    """Forward and backward of MiniLM v2's loss on given projections."""
    generator = torch.Generator().manual_seed(0)
    size = batch["input_ids"].shape
    names = ("query", "key", "value")
    taught = {name: torch.randn(*size, width, generator=generator).to(device) for name in names}
    own = {name: torch.randn(*size, student_width, generator=generator).to(device).requires_grad_() for name in names}

    def step() -> torch.Tensor:
        loss = minilm_v2_loss(own, taught, RELATION_HEADS, relations=relations, mask=batch["attention_mask"])
        loss.backward()
        for value in own.values():
            value.grad = None
        return loss.detach()

    return step


MINILM = ("MiniLM, output_attentions", "MiniLM, preset minilm")
TINYBERT = ("TinyBERT attention, returned scores", "TinyBERT attention, preset tinybert-general")
RELATIONS = ("MiniLM v2, one relation of 48 heads", "MiniLM v2, three relations of 48 heads")
# preset -> (class of the models, whether the student is as wide as the teacher, whether it has as many layers)
PRESETS = {
    "minilm": (BertModel, False, False),
    "minilm-v2": (BertModel, False, False),
    "tinybert-general": (BertModel, False, False),
    "mobilebert": (BertModel, True, True),
    "pkd": (BertForSequenceClassification, True, False),
    "soft-labels": (BertForSequenceClassification, False, False),
    "distilbert": (BertForMaskedLM, True, False),
}
BARE = "{}: models alone"


def builders(rows: int, width: int, student_width: int, device: str) -> dict[str, Callable[[], Step]]:
    """Every way by name."""
    batch = make_batch(rows, device)
    sizes = (batch, width, student_width, device)
    ways: dict[str, Callable[[], Step]] = {
        MINILM[0]: lambda: minilm_by_outputs(*sizes),
        MINILM[1]: lambda: by_preset(*sizes, preset="minilm"),
        TINYBERT[0]: lambda: tinybert_by_outputs(*sizes),
        TINYBERT[1]: lambda: by_preset(*sizes, preset="tinybert-general", only="attention_scores"),
        RELATIONS[0]: lambda: relations_alone(*sizes, ("qq",)),
        RELATIONS[1]: lambda: relations_alone(*sizes, ("qq", "kk", "vv")),
    }
    for preset, (kind, wide, deep) in PRESETS.items():

        def build(bare: bool, preset: str = preset, kind: type = kind, wide: bool = wide, deep: bool = deep) -> Step:
            own = width if wide else student_width
            layers = TEACHER_LAYERS if deep else STUDENT_LAYERS
            return by_preset(batch, width, own, device, preset, kind=kind, layers=layers, bare=bare)

        ways[BARE.format(preset)] = lambda build=build: build(True)
        ways[preset] = lambda build=build: build(False)
    return ways


# ---- measuring ----


def resident(name: str) -> int:
    """A field of the process's status in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def extra_memory(step: Step, device: str) -> tuple[float, float]:
    """Peak bytes of a step over what was there before it, and its loss; after one step to warm up."""
    step()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss = step().item()
        return torch.cuda.max_memory_allocated() - before, loss
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts from here
    loss = step().item()
    return resident("VmHWM") - before, loss


def in_own_process(name: str) -> tuple[float, float]:
    """`extra_memory` of one way in a fresh process, in which freed tensors go back to the system at once."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, __file__, *sys.argv[1:], "--memory-of", name]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    memory, loss = json.loads(done.stdout.splitlines()[-1])
    return memory, loss


def timed_rounds(steps: dict[str, Step], rounds: int, device: str) -> dict[str, float]:
    """Median seconds of each way."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    repeat = 5 if device == "cuda" else 1
    for number in range(rounds + 1):
        for name, step in steps.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter() if device == "cuda" else time.process_time()
            for _ in range(repeat):
                step()
            if device == "cuda":
                torch.cuda.synchronize()
            end = time.perf_counter() if device == "cuda" else time.process_time()
            if number:
                times[name].append((end - start) / repeat)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(group: Pair, ways: dict[str, Callable[[], Step]], rounds: int, device: str) -> list[Measured]:
    """Extra MiB, milliseconds and loss of each way of a group; they take turns, and leave before the next group."""
    steps, memory = {}, {}
    for name in group:
        steps[name] = ways[name]()
        memory[name] = extra_memory(steps[name], device) if device == "cuda" else in_own_process(name)
    times = timed_rounds(steps, rounds, device)
    return [Measured(name, memory[name][0] / 2**20, 1e3 * times[name], memory[name][1]) for name in group]


# ---- tables ----


def print_table(title: str, beside: str, groups: Iterable[list[Measured]]) -> None:
    print(f"\n| {title} | extra MiB | ms | loss | memory / {beside} | time / {beside} |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for group in groups:
        for way in group:
            print(
                f"| {way.name} | {way.memory:.0f} | {way.time:.1f} | {way.loss:.6f} | "
                f"{way.memory / group[0].memory:.2f} | {way.time / group[0].time:.2f} |",
                flush=True,
            )


def run(options: argparse.Namespace, dtype: torch.dtype) -> int:
    device = options.device
    rows, width, student_width = SIZES[device]
    ways = builders(options.rows or rows, width, student_width, device)
    place = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        if options.memory_of:
            print(json.dumps(extra_memory(ways[options.memory_of](), device)))
            return 0
        print(
            f"\n{place}; torch {torch.__version__}; {str(dtype).removeprefix('torch.')}; {options.rows or rows} rows "
            f"of {LENGTH}; teacher {TEACHER_LAYERS} x {width}, student {STUDENT_LAYERS} x {student_width}"
        )
        minilm, tinybert, relations = (
            measure(group, ways, options.rounds, device) for group in (MINILM, TINYBERT, RELATIONS)
        )
        print_table("one loss, two ways", "outputs", [minilm, tinybert])
        print_table("forward and backward of the loss alone", "one relation", [relations])
        if not options.no_presets:
            pairs = ((BARE.format(preset), preset) for preset in PRESETS)
            steps = (measure(pair, ways, options.rounds, device) for pair in pairs)
            print_table("a step of a preset", "models alone", steps)
    # Half precision rounds the returned distributions; the hooks' scores are made in single precision.
    tolerance = 1e-3 if dtype == torch.float32 else 5e-2
    checks = {}
    for outputs, preset in (minilm, tinybert):
        ratio = preset.loss / outputs.loss
        checks[f"{preset.name}: the same loss within {tolerance:g} (ratio {ratio:.5f})"] = abs(ratio - 1) <= tolerance
    memory, duration = minilm[1].memory / minilm[0].memory, minilm[1].time / minilm[0].time
    three = relations[1].memory / relations[0].memory
    checks[f"MiniLM: at most 0.5x the extra memory of output_attentions ({memory:.2f}x)"] = memory <= 0.5
    checks[f"MiniLM: at most 0.8x its time ({duration:.2f}x)"] = duration <= 0.8
    checks[f"MiniLM v2: at most 1.5x the memory of one relation ({three:.2f}x)"] = three <= 1.5
    print()
    for text, met in checks.items():
        print(f"goal: {text}; {'met' if met else 'NOT met'}")
    return int(not all(checks.values()))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default 5)")
    parser.add_argument("--rows", type=int, help="rows of 512 (default: 4 on the CPU, 32 on a GPU)")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="default: float32 on the CPU, both on a GPU, one by one"
    )
    parser.add_argument("--no-presets", action="store_true", help="leave the table of presets out")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = [options.dtype] if options.dtype else ["float32"] if options.device == "cpu" else ["float32", "bfloat16"]
    return max(run(options, getattr(torch, name)) for name in names)


if __name__ == "__main__":
    sys.exit(main())
