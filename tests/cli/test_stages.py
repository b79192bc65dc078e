"""`hf-ptm-ext stages`: pre-training, an intermediate task, the target, each from the model before it; one report."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, BertConfig, BertForMaskedLM

from hf_ptm_ext.cli import finetune, main, pretrain
from hf_ptm_ext.cli.stages_arguments import parse
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.trainers import ResumableTrainer
from tests.cli.jobs import recipes_of

GOOD, BAD = ("bright", "warm", "kind", "glad"), ("dark", "cold", "cruel", "sad")
SHAPE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
COMMON = {
    "max_seq_length": 24,
    "per_device_train_batch_size": 16,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "language": "en",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good and bad sentences with their class and their place, as text too, and a small BERT."""
    folder = tmp_path_factory.mktemp("data")
    kinds, places, texts = [], [], []
    for number in range(64):
        word, place = (GOOD, BAD)[number % 2][number // 2 % 4], ("harbour", "mountain", "town")[number % 3]
        texts.append(f"the light in the {place} was {word}")
        kinds.append({"text": texts[-1], "label": ("good", "bad")[number % 2]})
        places.append({"text": texts[-1], "label": place})
    for name, rows in (("kinds", kinds), ("places", places)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "corpus.txt").write_text("\n\n".join(texts), encoding="utf-8")
    tokenizer = train_wordpiece([texts], 200, model_max_length=32)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, initializer_range=0.2, **SHAPE)
    BertForMaskedLM(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    return folder


def three_stages(data: Path) -> dict[str, dict[str, Any]]:
    task = {"job": "finetune", "task": "classification", "learning_rate": 5e-3, "num_train_epochs": 2}
    return {
        "domain": {"job": "pretrain", "objective": "mlm", "train_file": str(data / "corpus.txt"), "max_steps": 2},
        "intermediate": {**task, "seeds": [0], **both(data / "places.jsonl")},
        "target": {**task, "seeds": [0, 1], **both(data / "kinds.jsonl")},
    }


def both(file: Path) -> dict[str, str]:
    return {"train_file": str(file), "test_file": str(file)}


def words_of(data: Path, output: Path, stages: dict[str, dict[str, Any]], *more: str) -> list[str]:
    words = ["--model_name_or_path", str(data / "bert"), "--output_dir", str(output)]
    return ["--stages", json.dumps(stages), "--common", json.dumps(COMMON), *words, *more]


def run_stages(data: Path, output: Path, stages: dict[str, dict[str, Any]], *more: str) -> dict[str, Any]:
    assert main(["stages", *words_of(data, output, stages, *more)]) == 0
    return json.loads((output / "stages.json").read_text("utf-8"))


def test_each_stage_starts_from_the_one_before_and_is_run_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    starts: list[dict[str, torch.Tensor]] = []
    train = ResumableTrainer.train

    def remembering(self: ResumableTrainer, *args: Any, **kwargs: Any) -> Any:
        starts.append({name: value.clone() for name, value in self.model.state_dict().items() if "encoder" in name})
        return train(self, *args, **kwargs)

    output = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(ResumableTrainer, "train", remembering)
        report = run_stages(data, output, three_stages(data), "--baseline", "true")
    origins = [data / "bert", output / "domain", *[output / "intermediate"] * 2, *[data / "bert"] * 2]
    for start, folder in zip(starts, origins, strict=True):
        weights = load_file(folder / "model.safetensors")
        assert start
        assert all(torch.equal(weights[name], value) for name, value in start.items()), folder.name

    assert [(one["name"], one["from"]) for one in report["stages"]] == [
        ("domain", ["bert"]),
        ("intermediate", ["domain"]),
        ("target", ["intermediate"]),
    ]
    assert (report["baseline"]["name"], report["baseline"]["from"]) == ("target-alone", ["bert"])
    assert set(report["stages"][0]["scores"]) == {"unigram", "before", "after"}
    assert AutoConfig.from_pretrained(output / "target").id2label == {0: "bad", 1: "good"}
    text = (output / "stages.md").read_text("utf-8")
    reached = report["stages"][2]["scores"]["fine-tuned"]["accuracy"]
    assert (
        f"| fine-tuned, after domain, intermediate | {100 * reached['mean']:.1f} ± {100 * reached['std']:.1f}" in text
    )
    assert "| fine-tuned, without |" in text
    assert str(tmp_path) not in text
    assert text in capsys.readouterr().out

    def never(*args: Any) -> int:
        raise AssertionError("a finished stage was run again")

    for module in (pretrain, finetune):
        monkeypatch.setattr(module, "run", never)
    assert run_stages(data, output, three_stages(data), "--baseline", "true") == report
    changed = words_of(data, output, three_stages(data), "--stages.domain.max_steps", "3")
    assert main(["stages", *changed]) == 2
    assert "Stage domain of `output_dir`" in (message := capsys.readouterr().err)
    assert "max_steps = 3 (was 2)" in message


@pytest.mark.slow
def test_an_interrupted_stage_goes_on_and_a_finished_one_gets_more_seeds(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = three_stages(data)
    del stages["domain"]
    whole = run_stages(data, tmp_path / "whole", stages)

    class Killed(BaseException):
        pass

    save = ResumableTrainer._save_checkpoint

    def stopped(self: ResumableTrainer, *args: Any, **kwargs: Any) -> None:
        save(self, *args, **kwargs)
        if "target" in self.args.output_dir and self.state.global_step == 4:
            raise Killed

    output = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(ResumableTrainer, "_save_checkpoint", stopped)
        with pytest.raises(Killed):
            main(["stages", *words_of(data, output, stages)])
    assert not (output / "stages.json").exists()
    resumed: list[Any] = []
    train = ResumableTrainer.train

    def remembering(self: ResumableTrainer, resume_from_checkpoint: Any = None, **kwargs: Any) -> Any:
        resumed.append(resume_from_checkpoint)
        return train(self, resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    monkeypatch.setattr(ResumableTrainer, "train", remembering)
    assert run_stages(data, output, stages)["stages"] == whole["stages"]
    assert [name and Path(name).name for name in resumed] == ["checkpoint-4", None]
    stages["target"]["seeds"] = [0, 1, 2]
    run_stages(data, output, stages)
    assert len(resumed) == 3
    run_stages(data, output, stages, "--overwrite", "true")
    assert len(resumed) == 7


def test_what_follows_each_job_starts_from_its_model(data: Path) -> None:
    task = {"task": "classification", **both(data / "kinds.jsonl")}
    stages = {
        "several": {"job": "multitask", "tasks": {"places": task, "kinds": task}},
        "target": {"job": "finetune", **task},
        "small": {"job": "distill", "stages": {"distil": {"preset": "soft-labels"}}, **task},
        "light": {"job": "adapt", **task},
    }
    _, found = parse(words_of(data, Path("out"), stages))
    assert [stage.source for stage in found] == [
        str(data / "bert"),
        str(Path("out") / "several" / "places"),
        str(Path("out") / "target"),
        str(Path("out") / "small"),
    ]


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ({"target": {"job": "verify"}}, (), "Stage target: `job` must be one of pretrain, finetune, multitask"),
        ({"target": {"task": "parsing"}}, (), "Stage target: `task` must be one of"),
        ({"target": {"output_dir": "elsewhere"}}, (), "`output_dir` must be left to the run of all stages"),
        ({"target": {"recipe": "no_such.yaml"}}, (), "no_such.yaml"),
        ({"target": {"no_such": 1}}, (), "Stage target: "),
        ({"intermediate": {"job": "adapt"}}, (), "Stage target: name the model that it starts from"),
        ({"_first": {"job": "finetune"}}, (), "A stage must be named by"),
        ({"target-alone": {"job": "finetune"}}, (), "A stage must be named by"),
        ({"target": {"job": "distill"}}, ("--baseline", "true"), "`baseline` needs a stage before the last one"),
    ],
)
def test_mistakes_in_any_stage_show_before_the_first_is_run(
    data: Path, tmp_path: Path, capsys: Any, change: dict[str, Any], more: tuple[str, ...], message: str
) -> None:
    stages = three_stages(data)
    for name, values in change.items():
        stages[name] = {**stages.get(name, {}), **values}
    assert main(["stages", *words_of(data, tmp_path / "out", stages, *more)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_to_start_from_is_asked_for(data: Path, tmp_path: Path, capsys: Any) -> None:
    stages = three_stages(data)
    words = ["--output_dir", str(tmp_path / "out"), "--common", json.dumps(COMMON)]
    assert main(["stages", "--stages", json.dumps(stages), *words, "--baseline", "true"]) == 2
    assert "`baseline` needs a model that the first stage starts from" in capsys.readouterr().err
    del stages["domain"]
    assert main(["stages", "--stages", json.dumps(stages), *words]) == 2
    assert "Stage intermediate: `model_name_or_path` must be named" in capsys.readouterr().err
    assert main(["stages", *words]) == 2
    assert "`stages` must name at least one stage" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", sorted(recipes_of("stages")))
def test_the_recipes_parse_with_the_command_in_their_head(recipe: str) -> None:
    args, stages = parse([recipe, *recipes_of("stages")[recipe]])
    if not args.baseline:
        assert [stage.job for stage in stages] == ["pretrain", "pretrain", "finetune"]
        assert stages[0].source is None
        return
    assert [stage.job for stage in stages] == ["pretrain", "finetune", "finetune", "finetune"]
    assert stages[-1].source == stages[0].source == "MODEL"


def test_data_of_a_later_stage_that_are_not_there_are_told_before_the_first_one_trains(
    data: Path, tmp_path: Path, capsys: Any
) -> None:
    stages = three_stages(data)
    stages["target"]["test_file"] = str(tmp_path / "nowhere.jsonl")
    assert main(["stages", *words_of(data, tmp_path / "out", stages)]) == 2
    assert "Stage target: `test_file`" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
