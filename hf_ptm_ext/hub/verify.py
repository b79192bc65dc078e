"""Does a checkpoint work where this package is not installed? A fresh process that cannot import it says so.

A head that the file lacks would be random: both processes give such weights the same values, so that its code is
compared too. The fresh process gets no token, key or password of the environment; it is no sandbox.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..hints import did_you_mean
from ..redaction import may_be_secret
from . import fresh_process
from .adapted import adapted_classes, auto_class_of, is_adapted
from .export import code_files, families, pipeline_files, read_config, written_files
from .static_checks import pipeline_code, reads_code, static_problems

# Auto classes whose entries are no models.
NO_MODELS = ("AutoConfig", "AutoTokenizer", "AutoProcessor", "AutoFeatureExtractor", "AutoImageProcessor")
TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "vocab.txt")
# What is downloaded to verify a repository: no weights of other frameworks, no pictures.
DOWNLOADED = ("*.json", "*.py", "*.safetensors", "*.bin", "*.txt", "*.model", "*.md")
TOLERANCE = 1e-5
AS_INSTALLED = "as installed"
# Variables that the fresh process keeps: paths, language, and what decides how numbers are computed.
KEPT_VARIABLES = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|(DY)?LD_\w+|VIRTUAL_ENV|"
    r"CONDA_PREFIX|PROCESSOR_\w+|NUMBER_OF_PROCESSORS|PYTHON\w+|(ATEN|BLIS|CUBLAS|CUDA|CUDNN|DNNL|GOMP|HIP|HSA|KMP|MKL|"
    r"NCCL|NUMEXPR|NVIDIA|OMP|ONEDNN|OPENBLAS|PYTORCH|ROCR|TORCH|TORCHINDUCTOR|TRITON|VECLIB|XLA)_\w+",
    re.IGNORECASE,
)
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

    Examples:
        >>> Verification("folder", problems=["config.json is missing."]).ok
        False

    Args:
        source: the folder or Hub id.
        commit: the commit of the Hub id, `None` for a folder.
        code: code file -> SHA-256.
        results: one entry per auto class.
        problems: what is wrong, a sentence each; empty if the checkpoint is fine.
        unread: tensors of the file that no class reads, which is no problem of what loads it, but rarely meant.
    """

    source: str
    commit: str | None = None
    code: dict[str, str] = field(default_factory=dict)
    results: list[AutoClassResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

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

    The checkpoint is loaded through every auto class of its auto_map, its outputs are compared with those of the
    installed classes, it is re-saved, and the copy is loaded again. Code of another repository is never run.

    Args:
        source: a folder, or a Hub id.
        trust_remote_code: needed for a Hub id, and for a folder with any code file that is not, byte for byte, one of
            the installed package (default False).
        revision: branch, tag or commit of a Hub id; it is resolved to a commit once, and only that commit is run.
        timeout: seconds that the fresh process may take (default 600).
        tolerance: largest difference of an output that passes (default 1e-5).
        announce: called, before anything is run, with each line about what will be (commit, code files, SHA-256).

    Returns:
        The findings; `ok` is the verdict.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: `trust_remote_code` is needed and was not given; nothing was run.

    Examples:
        >>> import tempfile
        >>> from hf_ptm_ext import SpanBertConfig, SpanBertModel
        >>> sizes = dict(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     SpanBertModel(SpanBertConfig(**sizes)).save_pretrained(folder)
        ...     (Path(folder) / "boundary_spanbert.py").unlink()
        ...     print(verify(folder).problems)
        ['boundary_spanbert.py is missing: another code file imports it.']
    """
    folder, commit = _fetch(str(source), trust_remote_code, revision)
    found = Verification(str(source), commit, fresh_process.digests(folder))
    try:
        config = read_config(folder)
    except (FileNotFoundError, ValueError) as error:
        found.problems.append(str(error))
        config = {}
    remarks = _remarks(found.code, config)
    for line in _announcement(found, remarks):
        if announce is not None:
            announce(line)
    found.problems += static_problems(folder, config) if config else []
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
    job = _job(found, folder, auto_classes)
    with tempfile.TemporaryDirectory(prefix="hf-ptm-ext-verify-") as temporary:
        report = _run_fresh(job, Path(temporary), timeout, found)
        adapted = adapted_classes(config) if is_adapted(config) and written_files(config) else {}
        if not auto_map or adapted or config.get("model_type") in families():
            comparison = _Comparison(folder, auto_map, job, report, Path(temporary), found.code, adapted)
            with _quiet():
                _compare(comparison, tolerance, found)
        else:
            found.problems.append(
                f"`model_type` {config.get('model_type')!r} is not a family of the installed package: its outputs "
                "cannot be compared."
            )
    return found


def _job(found: Verification, folder: Path, auto_classes: list[str]) -> dict[str, Any]:
    """What the fresh process is told."""
    return {
        "source": str(folder.resolve()) if found.commit is None else found.source,
        "revision": found.commit,
        "auto_classes": auto_classes,
        # A checkpoint that names no code needs none.
        "trust_remote_code": reads_code(folder),
        "has_tokenizer": any((folder / name).is_file() for name in TOKENIZER_FILES),
        "has_processor": (folder / "processor_config.json").is_file(),
    }


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
        folders = [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
        raise ValueError(
            f"There is no folder {source}.{did_you_mean(path.name, folders)} If a repository of the Hub is meant, "
            "verifying it runs the code in it: read that code, then pass `--trust_remote_code`, best with the "
            "`--revision` that was read."
        )
    from huggingface_hub import HfApi, snapshot_download

    commit = HfApi().model_info(source, revision=revision).sha
    return Path(snapshot_download(source, revision=commit, allow_patterns=list(DOWNLOADED))), commit


def _remarks(code: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, str]:
    """How each code file stands to the installed package, and to what it writes for such a checkpoint."""
    paths = [*pipeline_files(), *(path for family in families() for path in code_files(family))]
    installed = {path.name: fresh_process.code_digest(path) for path in paths}
    installed |= {name: fresh_process.text_digest(text) for name, text in written_files(config).items()}

    def remark(name: str, digest: str) -> str:
        if installed.get(name) == digest or (name == CUSTOM_GENERATE and digest in installed.values()):
            return AS_INSTALLED
        return "differs from the installed package" if name in installed else "not in the installed package"

    return {name: remark(name, digest) for name, digest in code.items()}


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
            f"{', '.join(foreign)}. Read them, then pass `--trust_remote_code`. Nothing was run."
        )


def _upstream_auto_classes(config: Mapping[str, Any]) -> list[str]:
    """Auto classes for a checkpoint of one of transformers' own classes, which needs no code: the bare model, and one
    that gives the class that was saved."""
    import transformers

    model_type, architectures = config.get("model_type"), config.get("architectures") or []
    if not model_type or model_type not in transformers.CONFIG_MAPPING or model_type in families():
        return []
    found = [auto_class_of(transformers.CONFIG_MAPPING[model_type], str(name)) for name in architectures]
    return list(dict.fromkeys(["AutoModel", *filter(None, found[:1])]))


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
        if KEPT_VARIABLES.fullmatch(name) and not may_be_secret(name) and "://" not in value
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


def _compare(comparison: "_Comparison", tolerance: float, found: Verification) -> None:
    """Add results and problems."""
    for auto_class in comparison.job["auto_classes"]:
        result = comparison.result(auto_class)
        found.results.append(result)
        if auto_class not in comparison.report:  # it was said why
            continue
        if result.error:
            found.problems.append(f"{auto_class}: {result.error}")
        elif result.difference is None or not result.difference <= tolerance:
            found.problems.append(
                f"{auto_class}: outputs differ from those of the installed {result.class_name} by "
                f"{result.difference:.2g}, more than {tolerance:g}."
            )
    found.problems += comparison.problems_beside_the_model()
    unread = [comparison.report.get(name, {}).get("unread", ()) for name in comparison.job["auto_classes"]]
    found.unread = sorted(set(unread[0]).intersection(*unread[1:]))


@dataclass
class _Comparison:
    """What the fresh process reported beside what the installed classes give, for a checkpoint in `folder`."""

    folder: Path
    auto_map: Mapping[str, Any]
    job: Mapping[str, Any]
    report: Mapping[str, Any]
    outputs: Path
    code: Mapping[str, str]
    adapted: Mapping[str, type]  # auto class -> the installed class with adapters

    def result(self, auto_class: str) -> AutoClassResult:
        """What was found for an auto class."""
        from safetensors.torch import load_file

        import hf_ptm_ext  # noqa: F401 - registers the installed classes

        entry = self.report.get(auto_class)
        if entry is None:
            return AutoClassResult(auto_class, error="not reached")
        if "error" in entry:
            return AutoClassResult(auto_class, error=f"does not load in a fresh process: {entry['error']}")
        found = AutoClassResult(auto_class, entry["class_name"])
        if not entry["module"].startswith("transformers_modules." if self.auto_map else "transformers."):
            return replace(found, error=f"came from {entry['module']}, not its own code")
        try:
            loader = self.adapted.get(auto_class, auto_class)
            installed, missing, _ = fresh_process.load_filled(loader, str(self.folder), None, False)
        except Exception as error:  # whatever goes wrong in loading is the finding
            return replace(found, error=f"the installed class does not load it: {error}")
        heads, problem = _missing_heads(installed, missing)
        found = replace(found, new_heads=heads)
        if not type(installed).__module__.startswith("hf_ptm_ext." if self.auto_map else "transformers."):
            return replace(found, error="the package has no class for it")
        try:
            expected = fresh_process.outputs_of(installed)
        except Exception as error:
            return replace(found, error=f"the installed class fails: {error}")
        difference = fresh_process.largest_difference(expected, load_file(self.outputs / f"{auto_class}.safetensors"))
        problem = problem or self.resave_problem(entry)
        return replace(found, difference=difference, resaved=not problem, error=problem)

    def resave_problem(self, entry: Mapping[str, Any]) -> str:
        """What is wrong with the re-saved copy."""
        resaved, pipeline = entry["resaved"], pipeline_code(self.folder)
        wanted = ["config.json", *(name for name in self.code if "/" not in name and name not in pipeline)]
        wanted += [name for name in ("tokenizer_config.json",) if (self.folder / name).is_file()]
        if lacking := [name for name in wanted if name not in resaved]:
            return f"the re-saved copy lacks {', '.join(lacking)}"
        if changed := [name for name, digest in self.code.items() if resaved.get(name, digest) != digest]:
            return f"the re-saved copy has another {', '.join(changed)}"
        if lost := sorted(self.auto_map.keys() - entry["auto_map"].keys() - {"AutoTokenizer", "AutoProcessor"}):
            return f"the `auto_map` of the re-saved copy lacks {', '.join(lost)}"
        if not entry["resave_difference"] <= TOLERANCE:
            return f"the re-saved copy gives other outputs, by {entry['resave_difference']:.2g}"
        return ""

    def problems_beside_the_model(self) -> Iterator[str]:
        """What is wrong with the checkpoint's tokenizer or processor."""
        for name, (present, use) in fresh_process.BESIDE_THE_MODEL.items():
            entry = self.report.get(name)
            if not self.job[present]:
                continue
            if entry is None:
                yield f"{name}: not reached in the fresh process."
            elif "error" in entry:
                yield f"{name}: does not load in a fresh process: {entry['error']}"
            else:
                try:
                    _, output = use(str(self.folder), None, False)
                except Exception as error:  # a class that the package has not, or files that it cannot read
                    message = " ".join(str(error).split())
                    yield f"{name}: loads as {entry['class_name']}, but not with the installed classes: {message}"
                    continue
                if output != entry["output"]:
                    what = f"{name}: {entry['class_name']}"
                    yield f"{what} gives another output than the installed one for a fixed text."


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
