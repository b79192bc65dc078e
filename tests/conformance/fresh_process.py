"""Run by the remote checks in a process of its own, in which the package cannot be imported."""

import importlib.abc
import json
import shutil
import sys
from pathlib import Path

root = Path(sys.argv[1])
plan = json.loads((root / "jobs.json").read_text(encoding="utf-8"))


class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] == plan["package"]:
            raise ModuleNotFoundError(f"{fullname} is hidden in this process")
        return None


sys.meta_path.insert(0, Hidden())

import torch  # noqa: E402
import transformers  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def check(source: str, job: dict, case: dict) -> "transformers.PreTrainedModel":
    model = getattr(transformers, job["auto_class"]).from_pretrained(source, trust_remote_code=True)
    if type(model).__name__ != job["class"] or not type(model).__module__.startswith("transformers_modules."):
        raise SystemExit(f"{source}: got {type(model)}")
    with torch.no_grad():
        outputs = model(**case["inputs"])
    for name, expected in case["outputs"].items():
        if not torch.allclose(outputs[name], expected, rtol=1e-5, atol=1e-5):
            raise SystemExit(f"{source}: {name} differs by {(outputs[name] - expected).abs().max()}")
    for generated in case.get("generated", ()):
        arguments = generated["arguments"]
        if arguments.get("custom_generate") == "<checkpoint>":
            if not Path(source).is_dir():
                continue
            arguments = {**arguments, "custom_generate": source}
        sequences = model.generate(**arguments)
        if not torch.equal(sequences, generated["sequences"]):
            raise SystemExit(f"{source}: generated {sequences.tolist()} with {sorted(arguments)}")
    return model


def in_hub_cache(folder: Path, name: str) -> str:
    """Lay a folder into the Hub cache as if it had been downloaded from `tests/name`."""
    base = Path(transformers.utils.hub.constants.HF_HUB_CACHE) / f"models--tests--{name}"
    shutil.copytree(folder, base / "snapshots" / COMMIT)
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    return f"tests/{name}"


done = []
for number, job in enumerate(plan["heads"]):
    folder = Path(job["folder"])
    case = torch.load(folder / "case.pt", weights_only=True)
    (folder / "case.pt").unlink()
    try:
        transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ValueError:
        pass
    else:
        raise SystemExit(f"{folder}: code was run without trust_remote_code")
    model = check(str(folder), job, case)
    again = folder.with_name(f"{folder.name}-again")
    model.save_pretrained(again)
    files, resaved = ({path.name for path in place.iterdir()} for place in (folder, again))
    if files != resaved:
        raise SystemExit(f"re-saving {job['class']} lost or added {files ^ resaved}")
    configs = [json.loads((place / "config.json").read_text(encoding="utf-8")) for place in (folder, again)]
    if configs[0]["auto_map"] != configs[1]["auto_map"]:
        raise SystemExit(f"re-saving {job['class']} changed auto_map to {configs[1]['auto_map']}")
    check(str(again), job, case)
    if number == 1:
        # From one head's checkpoint, folder and Hub id, every auto class of the map resolves.
        hub_id = in_hub_cache(folder, "model")
        hub_model = check(hub_id, job, case)
        hub_model.save_pretrained(root / "from-hub")
        check(str(root / "from-hub"), job, case)
        for source in (str(folder), hub_id):
            for other in (head for head in plan["heads"] if not head["variant"]):
                for auto_class in (other["auto_class"], *other["also"]):
                    auto = getattr(transformers, auto_class)
                    name = type(auto.from_pretrained(source, trust_remote_code=True)).__name__
                    if name != other["class"]:
                        raise SystemExit(f"{source}: {auto_class} gives {name}")
    done.append(job["class"])
(root / "report.json").write_text(json.dumps(done), encoding="utf-8")
