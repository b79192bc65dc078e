"""What a job leaves in its folder: the recipe that runs it again, curves, a card; no checkpoints."""

import contextlib
import json

import pytest
import transformers
import yaml
from PIL import Image
from safetensors.torch import load_file

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.recipes import job_of, repeatable
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.trainers import PreTrainingTrainer, ResumableTrainer
from tests.cli.test_finetune import words_of
from tests.cli.test_finetune_seq2seq import RUN as SEQ2SEQ
from tests.cli.test_loading import JOBS, polar, words  # noqa: F401 - a fixture

ALL = (*JOBS, "finetune-seq2seq", "stages")
TRAINED = {"learning_rate": 5e-3, "max_steps": 3, "logging_steps": 1, "warmup_steps": 0}
SECRET = "hf_nobodyMayEverSeeThisOneAnywhere1234"


def command(job, polar, output):  # noqa: F811
    """A small job that learns a little, with a token in its command line."""
    if job == "finetune-seq2seq":
        values = {name: value for name, value in SEQ2SEQ.items() if name != "save_total_limit"}
        values |= {"decoding": "unilm_gigaword", "max_new_tokens": 4, "max_eval_rows": 3, **TRAINED, "save_steps": 1}
        return [job, *words_of(**values, output_dir=output), "--hub_token", SECRET]
    if job == "stages":
        data = {"task": "classification", "train_file": str(polar / "rows.tsv"), "test_file": str(polar / "rows.tsv")}
        stage = {"job": "finetune", **data, "seeds": 0, "hub_token": SECRET, **TRAINED}
        common = {"use_cpu": True, "report_to": "none", "max_seq_length": 16, "disable_tqdm": True}
        more = ("--stages", json.dumps({"one": stage}), "--common", json.dumps(common), "--output_dir", str(output))
        return [job, *more, "--model_name_or_path", str(polar / "classification")]
    line = words(job, polar / ("bert" if job == "pretrain" else "classification"), polar, output)
    line = [word for word in line if word not in ("--save_strategy", "no")]
    return [*line, *words_of(**TRAINED, save_strategy="steps", save_steps=1), "--hub_token", SECRET]


@pytest.fixture(scope="module")
def done(polar, tmp_path_factory):  # noqa: F811
    """Folder of a job, which is run when it is first asked for."""
    folder = tmp_path_factory.mktemp("done")

    def run(job):
        if not (folder / job).exists():
            assert main(command(job, polar, folder / job)) == 0
        return folder / job

    return run


def measured(folder):
    """Weights, and every number that is no time."""
    weights = {file.relative_to(folder): load_file(file) for file in sorted(folder.rglob("*model.safetensors"))}
    names = ("results.json", "all_results.json", "stages.json")
    texts = {
        file.relative_to(folder): json.loads(file.read_text("utf-8")) for name in names for file in folder.rglob(name)
    }
    return weights, {name: timeless(value) for name, value in texts.items()}


def timeless(value):
    if isinstance(value, dict):
        gone = ("runtime", "per_second", "step_seconds", "time")
        return {name: timeless(one) for name, one in value.items() if not name.endswith(gone)}
    return [timeless(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("job", ALL)
def test_the_recipe_runs_the_job_again_exactly(done, tmp_path, job):
    first, again = done(job), tmp_path / "again"
    assert job_of(first / "recipe.yaml") == job
    assert main([job, str(first / "recipe.yaml"), "--output_dir", str(again)]) == 0
    (weights, numbers), (same_weights, same_numbers) = measured(first), measured(again)
    assert weights
    assert numbers
    assert weights.keys() == same_weights.keys()
    for file, tensors in weights.items():
        assert all(tensor.equal(same_weights[file][name]) for name, tensor in tensors.items()), file
    assert numbers == same_numbers
    told, told_again = (yaml.safe_load((folder / "recipe.yaml").read_text("utf-8")) for folder in (first, again))
    assert told == told_again


@pytest.mark.parametrize("job", ALL)
def test_the_recipe_has_every_option_of_the_job_and_no_secret(done, job):
    for file in done(job).rglob("recipe.yaml"):
        text = file.read_text("utf-8")
        assert SECRET not in text
        assert not {"hub_token", "output_dir", "overwrite", "resume_from_checkpoint"} & yaml.safe_load(text).keys()
    values = yaml.safe_load((done(job) / "recipe.yaml").read_text("utf-8"))
    if job != "stages":
        assert values["learning_rate"] == 5e-3, "as it was told"
        assert values["weight_decay"] in (0, 0.01), "the job's default"
        assert "adam_beta1" not in values, "transformers' own default"


def folders_of_models(job, folder):
    return {"multitask": [folder / "one"], "stages": [folder / "one"]}.get(job, [folder])


@pytest.mark.parametrize("job", ALL)
def test_curves_and_a_card_that_names_them_versions_and_options(done, polar, job):  # noqa: F811
    for folder in folders_of_models(job, done(job)):
        with Image.open(folder / "loss_curve.png") as picture:
            grey = picture.convert("L")
            assert grey.getextrema()[0] < 100, "something is drawn"
        validate_model_card(folder)
        text = (folder / "README.md").read_text("utf-8")
        assert "](loss_curve.png)" in text
        assert f"- transformers {transformers.__version__}" in text
        assert "- hf-ptm-ext " in text
        assert "| weight decay |" in text
        assert "Documentation: " in text
        assert str(polar) not in text
        assert str(folder.parent) not in text


# ---- checkpoints ----


@pytest.mark.parametrize("job", ALL)
def test_no_checkpoints_are_left_and_the_same_command_goes_on(done, polar, capfd, job):  # noqa: F811
    folder = done(job)
    assert not list(folder.rglob("checkpoint-*"))
    before = {file: file.read_bytes() for file in folder.rglob("*.safetensors")}
    more = [] if job == "stages" else ["--resume_from_checkpoint", "auto"]
    capfd.readouterr()
    assert main([*command(job, polar, folder), *more]) == 0
    assert {file: file.read_bytes() for file in folder.rglob("*.safetensors")} == before
    assert "train_runtime" not in capfd.readouterr().out, "nothing was trained"


def test_a_run_that_is_through_is_not_taken_for_another(done, polar, tmp_path, capfd):  # noqa: F811
    line = [*command("pretrain", polar, done("pretrain")), "--resume_from_checkpoint", "auto", "--max_steps", "4"]
    for more in ([], ["--accept_changes", "true"]):
        assert main([*line, *more]) == 2
        said = capfd.readouterr().err
        assert "is through" in said
        assert "max_steps = 4 (was 3)" in said


def test_checkpoints_that_are_asked_for_stay(polar, tmp_path):  # noqa: F811
    assert main([*command("pretrain", polar, tmp_path / "out"), "--save_total_limit", "2"]) == 0
    assert {path.name for path in tmp_path.rglob("checkpoint-*")} == {"checkpoint-2", "checkpoint-3"}


def test_an_overwritten_run_that_fails_leaves_the_one_that_is_through(polar, tmp_path, monkeypatch):  # noqa: F811
    line = [*command("pretrain", polar, tmp_path / "out")]
    assert main(line) == 0
    files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    before = {file: file.read_bytes() for file in files}
    assert {"recipe.yaml", "before_results.json"} <= {file.name for file in files}

    def fails(self, *args, **kwargs):
        raise ValueError("wrong")

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainingTrainer, "train", fails)
        for more in ([], ["--weight_decay", "0.2"], ["--seeds", "0", "1"]):
            assert main([*line, "--overwrite", "true", *more]) == 2
            assert {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()} == before
    assert main([*line, "--resume_from_checkpoint", "auto"]) == 0


def test_seeds_over_a_single_run_leave_nothing_of_it(polar, tmp_path):  # noqa: F811
    line = command("pretrain", polar, tmp_path / "out")
    assert main([*line, "--save_total_limit", "2"]) == 0
    assert (tmp_path / "out" / "trainer_state.json").is_file()
    assert main([*line, "--overwrite", "true", "--seeds", "0"]) == 0
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert not left & {"trainer_state.json", "before_results.json", "_runs_before", "checkpoint-2", "checkpoint-3"}
    assert yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text("utf-8"))["seeds"] == [0]


@pytest.mark.parametrize("job", ["pretrain", "finetune"])
def test_an_interrupted_job_has_its_recipe(polar, tmp_path, monkeypatch, job):  # noqa: F811
    """From its first checkpoint on; without one nothing is left."""
    line, recipe = command(job, polar, tmp_path / "out"), tmp_path / "out" / "recipe.yaml"
    step, left = ResumableTrainer.training_step, [0]

    def interrupted(self, *args, **kwargs):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return step(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(ResumableTrainer, "training_step", interrupted)
        assert main(line) == 130
        assert not recipe.exists()
        left[0] = 2
        assert main(line) == 130
    told = yaml.safe_load(recipe.read_text("utf-8"))
    assert main([*line, "--resume_from_checkpoint", "auto"]) == 0
    assert yaml.safe_load(recipe.read_text("utf-8")) == told


# ---- a second try ----


def entity_vectors(polar, output, *more):  # noqa: F811
    (polar / "triples.tsv").write_text("".join(f"a{n}\tr\tb{n % 3}\n" for n in range(20)), encoding="utf-8")
    return ["train-entity-vectors", str(polar / "triples.tsv"), "--output_dir", str(output), "--epochs", "1", *more]


def wrong_tries(job, polar, output):  # noqa: F811
    """Command lines with a mistake: a path, a column, an option; and the right one."""
    if job == "train-entity-vectors":
        right = entity_vectors(polar, output)
        return [[*right, "--titles", str(polar / "no")], [*right, "--test_file", "no"], [*right, "--norm", "3"]], right
    right = command(job, polar, output)
    if job == "stages":
        two = json.loads(right[right.index("--stages") + 1])
        two["two"] = dict(two["one"])
        right[right.index("--stages") + 1] = json.dumps(two)
        column, path, option = ("--stages.two.label_column", "--stages.two.test_file", "--stages.two.max_seq_length")
    else:
        column = {"pretrain": "--text_column", "finetune-seq2seq": "--source_column"}.get(job, "--label_column")
        column = {"multitask": "--tasks.one.label_column", "finetune-relations": "--wordnet_senses"}.get(job, column)
        path = "--tasks.one.test_file" if job == "multitask" else "--validation_file"
        option = "--metric_for_best_model"
    mistakes = [[*right, column, "nowhere"], [*right, path, str(polar / "no.tsv")], [*right, option, "99999"]]
    return mistakes[job == "pretrain" :], right  # a text has no columns


@pytest.mark.parametrize("job", [*ALL, "train-entity-vectors"])
def test_the_right_command_runs_after_every_mistake_in_the_same_folder(polar, tmp_path, capfd, job):  # noqa: F811
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".gitkeep").touch()
    mistakes, right = wrong_tries(job, polar, tmp_path / "out")
    for line in mistakes:
        with contextlib.suppress(SystemExit):  # argparse's
            assert main(line) == 2, line
        of_stages = {"one", "_stages", "recipe.yaml"} if job == "stages" else set()
        assert {path.name for path in (tmp_path / "out").iterdir()} - of_stages == {".gitkeep"}, line
    assert main(right) == 0, capfd.readouterr().err


def test_tasks_of_any_name_stay_in_the_recipe_and_secrets_do_not():
    tasks = {name: {"train_file": "a.tsv"} for name in ("hub_quality", "overwrite", "write_token")}
    told = {"tasks": tasks, "hub_token": "secret", "overwrite": True, "report": {"api_token": "secret"}}
    assert repeatable(told) == {"tasks": tasks, "report": {}}
