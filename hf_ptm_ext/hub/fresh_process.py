"""The part of `verify` that runs in both processes; run as a script, it is the fresh one.

As a script it first makes `hf_ptm_ext` impossible to import, so that a checkpoint must live on the code files that it
carries. Nothing of the package may be imported here, and nothing heavy above `main`.
"""

import hashlib
import importlib.abc
import inspect
import json
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGE = "hf_ptm_ext"
SEED = 20190724
TEXT = "The light was seen from the harbour, and from the ships."


class PackageBlocker(importlib.abc.MetaPathFinder):
    """Makes every import of the package fail, however it is installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == PACKAGE or fullname.startswith(f"{PACKAGE}."):
            raise ModuleNotFoundError(
                f"No module named {fullname!r} (hidden while a checkpoint is verified)", name=fullname
            )


def hide_package() -> None:
    """Block the package and make sure that it is gone."""
    if PACKAGE in sys.modules:
        raise RuntimeError(f"{PACKAGE} was imported before it could be hidden.")
    sys.meta_path.insert(0, PackageBlocker())
    try:
        importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        return
    raise RuntimeError(f"{PACKAGE} can be imported although it was hidden.")


def seeded_inputs(model: Any) -> dict[str, Any]:
    """The same inputs for every copy of a model."""
    import torch

    config = model.config
    generator = torch.Generator().manual_seed(SEED)
    choices = (3,) if type(model).__name__.endswith("ForMultipleChoice") else ()
    encoder = getattr(config, "encoder_config", config)  # the one inside has the sizes
    shape = (2, *choices, min(16, getattr(encoder, "max_position_embeddings", 16)))
    names = inspect.signature(model.forward).parameters
    mask = torch.ones(shape, dtype=torch.long)
    mask[1, ..., -shape[-1] // 4 :] = 0
    inputs = {
        "input_ids": torch.randint(config.vocab_size, shape, generator=generator),
        "attention_mask": mask,
    }
    if hasattr(encoder, "max_characters_per_token"):
        characters = (*shape, encoder.max_characters_per_token)
        inputs["input_ids"] = torch.randint(1, encoder.n_characters, characters, generator=generator)
    if "token_type_ids" in names:
        kinds = max(getattr(encoder, "type_vocab_size", 1), 1)
        inputs["token_type_ids"] = torch.randint(kinds, shape, generator=generator)
    if "decoder_input_ids" in names:
        size = getattr(config, "target_vocab_size", config.vocab_size)
        inputs["decoder_input_ids"] = torch.randint(size, shape, generator=generator)
    for name in {"next_labels", "previous_labels"}.intersection(names):
        inputs[name] = inputs["input_ids"]
    if "decoder_langs" in names:
        inputs |= {"langs": torch.zeros(2, dtype=torch.long), "decoder_langs": torch.arange(2) % config.n_langs}
    if "entity_embeds" in names:
        vectors = torch.randn(*shape, config.entity_hidden_size, generator=generator)
        inputs["entity_embeds"] = vectors * (torch.rand(*shape, 1, generator=generator) < 0.3)
    if "branch_id" in names:
        branches = torch.zeros(shape, dtype=torch.long)
        branches[..., 2:4] = 1
        inputs |= {"branch_id": branches, "word_index": (branches == 0).long().cumsum(-1) - 1}
    if "ngram_ids" in names:
        places = torch.tensor([1, 1, 3]).expand(2, *choices, 3)
        inputs |= {"ngram_positions": places, "ngram_lengths": torch.tensor([2, 4, 2]).expand_as(places)}
        inputs["ngram_ids"] = torch.randint(config.word_vocab_size, places.shape, generator=generator)
    if "span_boundaries" in names:
        inputs["span_boundaries"] = torch.tensor([[[1, shape[-1] // 2]], [[0, 2]]])
    if "subject_positions" in names:
        inputs |= {"subject_positions": torch.tensor([1, 2]), "object_positions": torch.tensor([3, 4])}
    return inputs


def fill_missing(model: Any, missing: Any) -> None:
    """Give weights that the checkpoint lacks values that depend on their names alone, the same in every process."""
    import torch

    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    with torch.no_grad():
        for name in sorted(missing):
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            values = 0.02 * torch.randn(tensors[name].shape, generator=generator)
            tensors[name].copy_(1 + values if name.endswith("running_var") else values)  # no variance is negative


def load_filled(
    auto_class: Any, source: str, revision: str | None, trust_remote_code: bool
) -> tuple[Any, list[str], list[str]]:
    """Load a model in float32 by an auto class's name or by a class, with known values for what its file lacks.

    Beside it what the file lacks, and the tensors of the file that the class does not read.

    A head of the file that has another shape belongs to another task (a classifier of seven classes, to multiple
    choice): it is new here, like one that the file lacks.
    """
    import torch
    import transformers

    named = isinstance(auto_class, str)
    loader = getattr(transformers, auto_class) if named else auto_class
    model, info = loader.from_pretrained(
        source,
        revision=revision or "main",
        **({"trust_remote_code": trust_remote_code} if named else {}),
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        dtype=torch.float32,
    )
    mismatched = sorted(name for name, *_ in info["mismatched_keys"])
    prefix = f"{model.base_model_prefix}."
    encoder = [name for name in mismatched if model.base_model is model or name.startswith(prefix)]
    if encoder:
        raise ValueError(f"`{encoder[0]}` has another shape in the file than the config says")
    heads = tuple(f"{'.'.join(name.split('.')[: 2 if name.startswith('cls.') else 1])}." for name in mismatched)
    of_other_tasks = [name for name, _ in model.named_parameters() if name.startswith(heads or ("\0",))]
    missing = sorted({*info["missing_keys"], *mismatched, *of_other_tasks})
    fill_missing(model, missing)
    return model.eval(), missing, sorted(info["unexpected_keys"])


def outputs_of(model: Any) -> dict[str, Any]:
    """What a model computes from the seeded inputs."""
    import torch

    with torch.no_grad():
        outputs = model(**seeded_inputs(model), return_dict=True)
    return {
        name: value.contiguous()
        for name, value in outputs.items()
        if torch.is_tensor(value) and value.is_floating_point()
    }


def largest_difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Compare two sets of outputs."""
    import torch

    if first.keys() != second.keys():
        return float("inf")
    largest = 0.0
    for name, value in first.items():
        if value.shape != second[name].shape or not torch.isfinite(value).all():
            return float("inf")
        if value.numel():
            difference = (value - second[name]).abs().max().item()
            largest = max(largest, difference if difference == difference else float("inf"))
    return largest


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each code file of a checkpoint's folder."""
    files = sorted(path for pattern in ("*.py", "custom_generate/**/*.py") for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix(): code_digest(path) for path in files if path.is_file()}


def code_digest(path: Path) -> str:
    """SHA-256 of a code file, the same whether its lines end as in git or as a checkout on Windows writes them."""
    return text_digest(path.read_bytes())


def text_digest(text: str | bytes) -> str:
    """SHA-256 of a code file's text."""
    data = text.encode("utf-8") if isinstance(text, str) else text
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def tokenize(source: str, revision: str | None, trust_remote_code: bool) -> tuple[Any, list[int]]:
    """Load the checkpoint's tokenizer and use it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, revision=revision or "main", trust_remote_code=trust_remote_code)
    return tokenizer, list(tokenizer(TEXT)["input_ids"])


def process(source: str, revision: str | None, trust_remote_code: bool) -> tuple[Any, dict[str, list[int]]]:
    """Load the checkpoint's processor and use it."""
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(source, revision=revision or "main", trust_remote_code=trust_remote_code)
    return processor, {name: list(values) for name, values in processor(TEXT).items()}


# Auto class of what is beside the model -> the job's field that says whether it is there, and how it is used.
BESIDE_THE_MODEL = {"AutoTokenizer": ("has_tokenizer", tokenize), "AutoProcessor": ("has_processor", process)}


def check_auto_class(auto_class: str, job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Load, run, re-save and reload through one auto class; write the outputs to `folder`."""
    from safetensors.torch import save_file

    trust = job["trust_remote_code"]
    model, missing, unread = load_filled(auto_class, job["source"], job["revision"], trust)
    outputs = outputs_of(model)
    save_file(outputs, folder / f"{auto_class}.safetensors")
    saved = folder / f"{auto_class}.saved"
    model.save_pretrained(saved)
    for present, use in BESIDE_THE_MODEL.values():
        if job[present]:
            use(job["source"], job["revision"], trust)[0].save_pretrained(saved)
    reloaded, still_missing, _ = load_filled(auto_class, str(saved), None, trust)
    if still_missing:
        raise ValueError(f"the re-saved copy lacks {', '.join(still_missing[:4])}")
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    return {
        "class_name": type(model).__name__,
        "module": type(model).__module__,
        "missing": missing,
        "unread": unread,
        "resave_difference": largest_difference(outputs, outputs_of(reloaded)),
        "resaved": {**{path.name: "" for path in saved.iterdir()}, **digests(saved)},
        "auto_map": config.get("auto_map", {}),
    }


def main(job_file: str) -> None:
    """Do the whole job and write `report.json` beside the job's file, an entry per auto class as it is finished.

    Args:
        job_file: JSON with `source`, `revision`, `trust_remote_code`, `auto_classes`, `has_tokenizer` and
            `has_processor`.
    """
    hide_package()
    folder = Path(job_file).parent
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))

    import shutil

    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    report: dict[str, Any] = {}

    def write() -> None:
        (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")

    for auto_class in job["auto_classes"]:
        try:
            report[auto_class] = check_auto_class(auto_class, job, folder)
        except Exception as error:  # whatever the checkpoint's code raises is the finding
            report[auto_class] = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        shutil.rmtree(folder / f"{auto_class}.saved", ignore_errors=True)
        write()
    for name, (present, use) in BESIDE_THE_MODEL.items():
        if not job[present]:
            continue
        try:
            loaded, output = use(job["source"], job["revision"], job["trust_remote_code"])
            report[name] = {"class_name": type(loaded).__name__, "output": output}
        except Exception as error:
            report[name] = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    report["package_was_hidden"] = PACKAGE not in sys.modules
    write()


if __name__ == "__main__":
    main(sys.argv[1])
