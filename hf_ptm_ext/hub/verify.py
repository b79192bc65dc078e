"""Does a checkpoint work where this package is not installed?

The checkpoint is loaded through every auto class of its auto_map in a fresh process that cannot import the package;
its outputs are compared with those of the installed classes, it is re-saved, and the copy is loaded again. A head that
the file lacks would be random: both processes give such weights the same values, made from their names, so that its
code is compared too.

Code is announced before it runs, and runs only where that was asked for: files that are byte for byte those of the
installed package are ours, any other needs `trust_remote_code`. Nothing that a checkpoint takes from another
repository is ever run. The fresh process gets no token, key or password of the environment; it is no sandbox.
"""

import json
import os
import re
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import fresh_process
from .export import code_files, families, read_config
from .pipelines import pipeline_files
from .static_checks import pipeline_code, reads_code, static_problems

# Auto classes whose entries are no models.
NO_MODELS = ("AutoConfig", "AutoTokenizer", "AutoProcessor", "AutoFeatureExtractor", "AutoImageProcessor")
TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "vocab.txt")
# What is downloaded to verify a repository: no weights of other frameworks, no pictures.
DOWNLOADED = ("*.json", "*.py", "*.safetensors", "*.bin", "*.txt", "*.model", "*.md")
TOLERANCE = 1e-5
AS_INSTALLED = "as installed"
SEQ2SEQ = "AutoModelForSeq2SeqLM"
# Variables that the fresh process keeps: paths, language, and what decides how numbers are computed.
KEPT_VARIABLES = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|(DY)?LD_\w+|VIRTUAL_ENV|"
    r"CONDA_PREFIX|PROCESSOR_\w+|NUMBER_OF_PROCESSORS|PYTHON\w+|(ATEN|BLIS|CUBLAS|CUDA|CUDNN|DNNL|GOMP|HIP|HSA|KMP|MKL|"
    r"NCCL|NUMEXPR|NVIDIA|OMP|ONEDNN|OPENBLAS|PYTORCH|ROCR|TORCH|TORCHINDUCTOR|TRITON|VECLIB|XLA)_\w+",
    re.IGNORECASE,
)
SECRET_NAMES = re.compile("TOKEN|KEY|SECRET|PASS|CRED|AUTH|COOKIE|SESSION|PRIVATE", re.IGNORECASE)
# What `generate(custom_generate=...)` runs; a family's search is in its checkpoints under this name too.
CUSTOM_GENERATE = "custom_generate/generate.py"


@dataclass(frozen=True)
class AutoClassResult:
    """What was found for one auto class.

    Args:
        auto_class: its name.
        class_name: the class that it gave, empty if it did not load.
        new_heads: heads that the file lacks.
        difference: largest absolute difference of its outputs from those of the installed class; `None` if unknown.
        resaved: whether the re-saved copy is complete and gives the same outputs.
        error: why it failed, empty if it did not.
    """

    auto_class: str
    class_name: str = ""
    new_heads: tuple[str, ...] = ()
    difference: float | None = None
    resaved: bool = False
    error: str = ""


@dataclass
class Verification:
    """Result of `verify`.

    Example:
        >>> Verification("folder", problems=["config.json is missing."]).ok
        False

    Args:
        source: the folder or Hub id.
        commit: the commit of the Hub id, `None` for a folder.
        code: code file -> SHA-256.
        results: one entry per auto class.
        problems: what is wrong, a sentence each; empty if the checkpoint is fine.
    """

    source: str
    commit: str | None = None
    code: dict[str, str] = field(default_factory=dict)
    results: list[AutoClassResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(
    source: str | Path,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
    timeout: float = 600.0,
    tolerance: float = TOLERANCE,
    announce: Callable[[str], None] | None = None,
) -> Verification:
    """Verify a checkpoint's folder or a repository of the Hub. This runs the code that it carries.

    Args:
        source: a folder, or a Hub id.
        trust_remote_code: needed for a Hub id, and for a folder with any code file that is not, byte for byte, one of
            the installed package (default False).
        revision: branch, tag or commit of a Hub id; it is resolved to a commit once, and only that commit is run.
        timeout: seconds that the fresh process may take (default 600).
        tolerance: largest difference of an output that passes (default 1e-5).
        announce: called with each line about what will be run (commit, code files and their SHA-256) before anything
            is run.

    Returns:
        The findings; `ok` is the verdict.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: `trust_remote_code` is needed and was not given; nothing was run.

    Example:
        >>> import tempfile
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertModel
        >>> sizes = dict(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     SpanBertModel(SpanBertConfig(**sizes)).save_pretrained(folder)
        ...     (Path(folder) / "boundary_spanbert.py").unlink()
        ...     print(verify(folder).problems)
        ['boundary_spanbert.py is missing: another code file imports it.']
    """
    announce = announce or (lambda line: None)
    folder, commit = _fetch(str(source), trust_remote_code, revision)
    found = Verification(str(source), commit, fresh_process.digests(folder))
    remarks = _remarks(found.code)
    for line in _announcement(found, remarks):
        announce(line)
    try:
        config = read_config(folder)
    except (FileNotFoundError, ValueError) as error:
        found.problems.append(str(error))
        return found
    found.problems += static_problems(folder, config)
    if found.problems:
        return found
    auto_map = config.get("auto_map") or {}
    auto_classes = [name for name in auto_map if name not in NO_MODELS] or _upstream_auto_classes(config)
    if not auto_classes:
        found.problems.append(
            f"config.json has no `auto_map`, and transformers has no `model_type` {config.get('model_type')!r} of its "
            "own: without the package nothing can be loaded."
        )
        return found
    _check_trust(found, remarks, trust_remote_code)
    job = {
        "source": str(folder.resolve()) if commit is None else str(source),
        "revision": commit,
        "auto_classes": auto_classes,
        # A checkpoint that names no code needs none.
        "trust_remote_code": reads_code(folder),
        "has_tokenizer": any((folder / name).is_file() for name in TOKENIZER_FILES),
        "has_processor": (folder / "processor_config.json").is_file(),
    }
    with tempfile.TemporaryDirectory(prefix="hf-ptm-ext-verify-") as temporary:
        report = _run_fresh(job, Path(temporary), timeout, found)
        if not auto_map or config.get("model_type") in families():
            with _quiet():
                _compare(report, job, folder, auto_map, Path(temporary), tolerance, found)
        else:
            found.problems.append(
                f"`model_type` {config.get('model_type')!r} is not a family of the installed package: its outputs "
                "cannot be compared."
            )
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Context without progress bars and loading reports: what they say is in the findings."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _fetch(source: str, trust_remote_code: bool, revision: str | None) -> tuple[Path, str | None]:
    """The folder to look at, and the commit if it was downloaded. Nothing is run."""
    path = Path(source)
    if path.is_dir():
        return path, None
    if path.exists() or not re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", source):
        raise FileNotFoundError(f"`source` must be a checkpoint's folder or a Hub id, got {source}: no such folder.")
    if not trust_remote_code:
        raise ValueError(
            f"{source} is no folder, so it is a repository of the Hub, and verifying it runs the code in it. Read "
            "that code, then pass `--trust-remote-code`, best with the `--revision` that was read."
        )
    from huggingface_hub import HfApi, snapshot_download

    commit = HfApi().model_info(source, revision=revision).sha
    return Path(snapshot_download(source, revision=commit, allow_patterns=list(DOWNLOADED))), commit


def _remarks(code: Mapping[str, str]) -> dict[str, str]:
    """How each code file stands to the installed package."""
    paths = [*pipeline_files(), *(path for family in families() for path in code_files(family))]
    installed = {path.name: fresh_process.code_digest(path) for path in paths}
    remarks = {}
    for name, digest in code.items():
        if name == CUSTOM_GENERATE and digest in installed.values():  # a copy of the family's own search
            remarks[name] = AS_INSTALLED
        elif name not in installed:
            remarks[name] = "not in the installed package"
        else:
            remarks[name] = AS_INSTALLED if installed[name] == digest else "differs from the installed package"
    return remarks


def _announcement(found: Verification, remarks: Mapping[str, str]) -> list[str]:
    lines = [f"source  {found.source}"]
    if found.commit is not None:
        lines.append(f"commit  {found.commit}")
    lines += [f"code    {digest}  {name}  ({remarks[name]})" for name, digest in found.code.items()]
    if not found.code:
        lines.append("code    none")
    return lines


def _check_trust(found: Verification, remarks: Mapping[str, str], trust_remote_code: bool) -> None:
    foreign = [f"{name} ({remark})" for name, remark in remarks.items() if remark != AS_INSTALLED]
    if foreign and not trust_remote_code:
        raise ValueError(
            f"{found.source} has code files that are not those of the installed package, and verifying runs them: "
            f"{', '.join(foreign)}. Read them, then pass `--trust-remote-code`. Nothing was run."
        )


def _upstream_auto_classes(config: Mapping[str, Any]) -> list[str]:
    """Auto classes for a checkpoint of one of transformers' own classes, which needs no code: the bare model, and one
    that gives the class that was saved."""
    import transformers

    model_type, architectures = config.get("model_type"), config.get("architectures") or []
    if model_type not in transformers.CONFIG_MAPPING or model_type in families():
        return []
    config_class = transformers.CONFIG_MAPPING[model_type]
    # BART is a masked language model too, but nobody loads it as one.
    by_use = sorted(vars(transformers.models.auto.modeling_auto), key=lambda name: (name != SEQ2SEQ, name))
    for name in by_use:
        mapping = getattr(getattr(transformers.models.auto.modeling_auto, name), "_model_mapping", None)
        if name.startswith("AutoModelFor") and mapping is not None and config_class in mapping:
            classes = mapping[config_class]
            classes = classes if isinstance(classes, tuple) else (classes,)
            if any(item.__name__ in architectures for item in classes):
                return ["AutoModel", name]
    return ["AutoModel"]


def _run_fresh(job: Mapping[str, Any], folder: Path, timeout: float, found: Verification) -> dict[str, Any]:
    """Run the other half; its report is empty if it could not be run at all."""
    job_file = folder / "job.json"
    job_file.write_text(json.dumps(job), encoding="utf-8")
    environment = {
        **_environment_without_secrets(folder),
        # The code comes from the folder or from the commit that was shown, never from an older copy or the network.
        "HF_MODULES_CACHE": str(folder / "modules"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, "-P", fresh_process.__file__, str(job_file)]
    try:
        finished = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        found.problems.append(f"The fresh process did not finish within {timeout:g} s (`--timeout`).")
        finished = None
    report_file = folder / "report.json"
    report = json.loads(report_file.read_text(encoding="utf-8")) if report_file.is_file() else {}
    if finished is not None and finished.returncode != 0:
        last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        found.problems.append(f"The fresh process failed with exit code {finished.returncode}: {last}")
    elif finished is not None and not report.get("package_was_hidden"):
        found.problems.append("The package was imported in the process in which it should be hidden.")
    return report


def _environment_without_secrets(folder: Path) -> dict[str, str]:
    """What a process needs to run Python and torch, and no more: trusted code is trusted to compute, not with tokens.

    Home directory and Hugging Face's own are empty ones in `folder`, so that no file of tokens is found by its name;
    what was downloaded is found in the cache itself.
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    home = folder / "home"
    home.mkdir()
    kept = {
        name: value
        for name, value in os.environ.items()
        if KEPT_VARIABLES.fullmatch(name) and not SECRET_NAMES.search(name) and "://" not in value
    }
    return kept | {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "PYTHONUSERBASE": site.getuserbase(),
        "HF_HOME": str(home),
        "HF_TOKEN_PATH": str(home / "no_token"),
        "HF_HUB_CACHE": HF_HUB_CACHE,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _compare(
    report: Mapping[str, Any],
    job: Mapping[str, Any],
    folder: Path,
    auto_map: Mapping[str, Any],
    outputs: Path,
    tolerance: float,
    found: Verification,
) -> None:
    """Compare the report with the installed classes, and add results and problems."""
    for auto_class in job["auto_classes"]:
        entry = report.get(auto_class)
        if entry is None:
            found.results.append(AutoClassResult(auto_class, error="not reached"))
            continue
        result = _result(auto_class, entry, folder, auto_map, outputs, found.code)
        found.results.append(result)
        if result.error:
            found.problems.append(f"{auto_class}: {result.error}")
        elif result.difference is None or not result.difference <= tolerance:
            found.problems.append(
                f"{auto_class}: outputs differ from those of the installed {result.class_name} by "
                f"{result.difference:.2g}, more than {tolerance:g}."
            )
    for name, (present, _) in fresh_process.BESIDE_THE_MODEL.items():
        if job[present]:
            found.problems += _problems_beside_the_model(name, report.get(name), folder)


def _result(
    auto_class: str,
    entry: Mapping[str, Any],
    folder: Path,
    auto_map: Mapping[str, Any],
    outputs: Path,
    code: Mapping[str, str],
) -> AutoClassResult:
    from safetensors.torch import load_file

    import hf_ptm_ext  # noqa: F401 - registers the installed classes

    if "error" in entry:
        return AutoClassResult(auto_class, error=f"does not load in a fresh process: {entry['error']}")
    if not entry["module"].startswith("transformers_modules." if auto_map else "transformers."):
        return AutoClassResult(auto_class, entry["class_name"], error=f"came from {entry['module']}, not its own code")
    try:
        installed, missing = fresh_process.load_filled(auto_class, str(folder), None, False)
    except Exception as error:  # whatever goes wrong in loading is the finding
        return AutoClassResult(auto_class, entry["class_name"], error=f"the installed class does not load it: {error}")
    heads, error = _missing_heads(installed, missing)
    if not type(installed).__module__.startswith("hf_ptm_ext." if auto_map else "transformers."):
        return AutoClassResult(auto_class, entry["class_name"], heads, error="the package has no class for it")
    try:
        expected = fresh_process.outputs_of(installed)
    except Exception as error:
        return AutoClassResult(auto_class, entry["class_name"], heads, error=f"the installed class fails: {error}")
    difference = fresh_process.largest_difference(expected, load_file(outputs / f"{auto_class}.safetensors"))
    error = error or _resave_problem(entry, auto_map, code, folder)
    return AutoClassResult(auto_class, entry["class_name"], heads, difference, not error, error)


def _missing_heads(model: Any, missing: list[str]) -> tuple[tuple[str, ...], str]:
    """Heads that are wholly absent, and a complaint if weights of the encoder or a part of a head are."""
    names = set(model.state_dict())
    tied = {name for name in names if name in (model.all_tied_weights_keys or {})}

    def head_of(name: str) -> str:
        parts = name.split(".")
        if parts[0] == "pooler" or (len(parts) > 1 and parts[1] == "pooler"):
            return name[: name.index("pooler") + len("pooler")]
        return ".".join(parts[:2]) if len(parts) > 3 or parts[0] == "cls" else parts[0]

    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    body = [name for name in missing if name.startswith(prefix) and "pooler" not in name]
    if body:
        return (), f"the file lacks weights of the encoder: {', '.join(body[:4])}"
    heads = sorted({head_of(name) for name in missing})
    for head in heads:
        present = [name for name in names - tied if head_of(name) == head and name not in missing]
        if present:
            lacking = next(name for name in missing if head_of(name) == head)
            return (), f"the file has only a part of {head}: it lacks {lacking}"
    return tuple(heads), ""


def _resave_problem(
    entry: Mapping[str, Any], auto_map: Mapping[str, Any], code: Mapping[str, str], folder: Path
) -> str:
    resaved = entry["resaved"]
    wanted = [
        "config.json",
        *(name for name in code if "/" not in name and name not in pipeline_code(folder)),
        *(["tokenizer_config.json"] if (folder / "tokenizer_config.json").is_file() else []),
    ]
    lacking = [name for name in wanted if name not in resaved]
    if lacking:
        return f"the re-saved copy lacks {', '.join(lacking)}"
    changed = [name for name, digest in code.items() if resaved.get(name, digest) != digest]
    if changed:
        return f"the re-saved copy has another {', '.join(changed)}"
    lost = [
        name for name in auto_map if name not in entry["auto_map"] and name not in ("AutoTokenizer", "AutoProcessor")
    ]
    if lost:
        return f"the `auto_map` of the re-saved copy lacks {', '.join(lost)}"
    if not entry["resave_difference"] <= TOLERANCE:
        return f"the re-saved copy gives other outputs, by {entry['resave_difference']:.2g}"
    return ""


def _problems_beside_the_model(name: str, entry: Mapping[str, Any] | None, folder: Path) -> list[str]:
    """What is wrong with the checkpoint's tokenizer or processor."""
    if entry is None:
        return [f"{name}: not reached in the fresh process."]
    if "error" in entry:
        return [f"{name}: does not load in a fresh process: {entry['error']}"]
    try:
        _, output = fresh_process.BESIDE_THE_MODEL[name][1](str(folder), None, False)
    except Exception as error:  # a class that the package has not, or files that it cannot read
        message = " ".join(str(error).split())
        return [f"{name}: loads as {entry['class_name']}, but not with the installed classes: {message}"]
    if output != entry["output"]:
        return [f"{name}: {entry['class_name']} gives another output than the installed one for a fixed text."]
    return []


__all__ = ["AutoClassResult", "Verification", "verify"]
