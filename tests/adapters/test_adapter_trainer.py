"""AdapterTrainer: what it optimises, what its checkpoints hold, exact resume, cards, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, BertModel, TrainingArguments

from hf_ptm_ext.adapters import AdapterTrainer, HoulsbyConfig, PfeifferConfig, adapter_parameter_groups
from hf_ptm_ext.adapters.trained import is_layer_norm
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.trainers import last_complete_checkpoint
from tests.adapters.architectures import config_of, make_model

ADAPTER_FILES = {"README.md", "adapter_config.json", "adapter_model.safetensors"}
STATE_FILES = {
    *("data_state_0.json", "optimizer.pt", "rng_state.pth", "scheduler.pt", "trainer_state.json", "training_args.bin"),
    "checkpoint_manifest.json",
}
LABELS = ("bad", "good")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without a head."""
    folder = tmp_path_factory.mktemp("base")
    BertModel(config_of("bert", initializer_range=0.2)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rows() -> Dataset:
    """The class is whether token 7 is there."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(8, 60, (64, 8), generator=generator)
    labels = torch.arange(64) % 2
    ids[labels == 1, 3] = 7
    return Dataset.from_dict({"input_ids": ids.tolist(), "labels": labels.tolist()})


def classifier(base: Path, seed: int = 1) -> Any:
    torch.manual_seed(seed)
    return AutoModelForSequenceClassification.from_pretrained(
        base, id2label=dict(enumerate(LABELS)), problem_type="single_label_classification"
    )


def trainer(folder: Path, base: Path, rows: Dataset, config: Any = None, **options: Any) -> AdapterTrainer:
    model = get_peft_model(classifier(base), config or HoulsbyConfig(init_weights="bert"))
    args = {
        "max_steps": 6,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "weight_decay": 0.1,
        "save_steps": 2,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    made = {name: options.pop(name) for name in ("card", "head_learning_rate", "compute_metrics") if name in options}
    arguments = TrainingArguments(str(folder), **{**args, **options})
    return AdapterTrainer(model, arguments, train_dataset=rows, eval_dataset=rows, **made)


class TestParameterGroups:
    def test_the_papers_collections(self) -> None:
        model = get_peft_model(make_model("bert"), HoulsbyConfig(ln_before=True, modules_to_save=["pooler"]))
        groups = {group["name"]: group for group in adapter_parameter_groups(model, weight_decay=0.1)}
        names = {id(value): name for name, value in model.named_parameters()}
        found = {kind: {names[id(value)] for value in group["params"]} for kind, group in groups.items()}
        trained = {name for name, value in model.named_parameters() if value.requires_grad}
        assert set().union(*found.values()) == trained
        assert sum(map(len, found.values())) == len(trained)
        assert all("_down." in name or "_up." in name for name in found["adapters"])
        assert all("houlsby_" in name for name in found["adapters"] | found["adapters_no_decay"])
        assert len(found["layer_norms"]) == 2 * 5
        assert all("LayerNorm" in name for name in found["layer_norms"])
        assert all("pooler" in name for name in found["head"] | found["head_no_decay"])
        assert {kind: group["weight_decay"] for kind, group in groups.items()} == {
            "adapters": 0.1,
            "adapters_no_decay": 0.0,
            "layer_norms": 0.0,
            "head": 0.1,
            "head_no_decay": 0.0,
        }

    def test_rms_norms_are_no_matrices_to_decay(self) -> None:
        model = get_peft_model(make_model("t5"), HoulsbyConfig())
        groups = {group["name"]: group["params"] for group in adapter_parameter_groups(model)}
        norms = [part for part in model.modules() if is_layer_norm(part) and part.weight.requires_grad]
        assert len(groups["layer_norms"]) == len(norms) > 0

    def test_the_trainer_uses_them(self, base: Path, rows: Dataset, tmp_path: Path) -> None:
        run = trainer(tmp_path, base, rows, head_learning_rate=0.5)
        run.create_optimizer()
        rates = {group["name"]: group["lr"] for group in run.optimizer.param_groups}
        assert rates["head"] == rates["head_no_decay"] == 0.5
        assert rates["adapters"] == rates["layer_norms"] == 1e-2

    def test_nothing_to_train(self) -> None:
        model = get_peft_model(make_model("bert"), PfeifferConfig()).requires_grad_(False)
        with pytest.raises(ValueError, match="is_trainable=True"):
            adapter_parameter_groups(model)


def test_it_learns_and_leaves_the_base_alone(base: Path, rows: Dataset, tmp_path: Path) -> None:
    config = HoulsbyConfig(init_weights="bert", reduction_factor=2)
    run = trainer(tmp_path, base, rows, config, max_steps=120, save_strategy="no")
    before = {name: value.clone() for name, value in run.model.get_base_model().state_dict().items()}
    run.train()
    losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    after = run.model.get_base_model().state_dict()
    for name, value in before.items():
        if "modules_to_save" not in name and "houlsby_" not in name:
            assert torch.equal(after[name], value), name


def test_checkpoints_hold_the_adapter_alone(base: Path, rows: Dataset, tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", base, rows)
    run.train()
    for step in (2, 4, 6):
        files = {path.name for path in (tmp_path / "run" / f"checkpoint-{step}").iterdir()}
        assert files == ADAPTER_FILES | STATE_FILES
    run.save_model()
    assert {path.name for path in (tmp_path / "run").iterdir() if path.is_file()} == ADAPTER_FILES | {
        "training_args.bin"
    }
    stored = load_file(tmp_path / "run" / "adapter_model.safetensors")
    assert all("houlsby_" in name or "LayerNorm" in name or "classifier" in name for name in stored)
    again = PeftModel.from_pretrained(classifier(base, seed=2), tmp_path / "run").eval()
    ids = torch.tensor(rows["input_ids"][:4])
    with torch.no_grad():
        assert torch.equal(again(input_ids=ids).logits, run.model.eval()(input_ids=ids).logits)


@pytest.mark.parametrize("config", [HoulsbyConfig, PfeifferConfig])
def test_resume_is_exact(base: Path, rows: Dataset, tmp_path: Path, config: type) -> None:
    def losses(run: AdapterTrainer) -> list[float]:
        return [entry["loss"] for entry in run.state.log_history if "loss" in entry]

    whole = trainer(tmp_path / "whole", base, rows, config())
    whole.train()
    folder = tmp_path / "pieces"
    seen: list[float] = []
    for last in (2, 4, 6):
        run = trainer(folder, base, rows, config())
        if last < 6:
            run.add_callback(StopAt(last))
        checkpoint = last_complete_checkpoint(folder)
        run.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        seen += losses(run)[len(seen) :]
    assert seen == losses(whole)
    expected = whole.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in run.model.state_dict().items())


def StopAt(step: int) -> Any:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = state.global_step >= step

    return Stop()


def accuracy_of(evaluation: Any) -> dict[str, float]:
    return {"accuracy": float((evaluation.predictions.argmax(1) == evaluation.label_ids).mean())}


def test_the_card_says_what_to_import_and_what_was_measured(base: Path, rows: Dataset, tmp_path: Path) -> None:
    run = trainer(
        tmp_path / "run",
        base,
        rows,
        compute_metrics=lambda evaluation: {
            "accuracy": float((evaluation.predictions.argmax(1) == evaluation.label_ids).mean())
        },
        card={"language": "en", "license": "apache-2.0", "data": {"name": "made up", "license": "cc0-1.0"}},
        hub_model_id="someone/adapter",
    )
    run.train()
    accuracy = run.evaluate()["eval_accuracy"]
    run.save_model()
    validate_model_card(tmp_path / "run")
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert "library_name: peft" in card
    assert "pipeline_tag: text-classification" in card
    assert "import hf_ptm_ext  # first" in card
    assert f"| accuracy | {accuracy:.4g} |" in card
    assert 'AutoModelForSequenceClassification.from_pretrained("BASE_MODEL", num_labels=2' in card
    assert "{0: 'bad', 1: 'good'}" in card
    assert 'PeftModel.from_pretrained(base, "someone/adapter"' in card
    assert str(tmp_path) not in card
    run.save_model()  # PEFT adds to a card that it finds
    validate_model_card(tmp_path / "run")
    assert (tmp_path / "run" / "README.md").read_text("utf-8") == card


def test_a_model_without_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"`model` must be adapted, got BertForSequenceClassification.*get_peft_model"):
        AdapterTrainer(classifier(base), TrainingArguments(str(tmp_path)))


def test_a_new_head_that_is_not_trained_is_refused(base: Path, rows: Dataset, tmp_path: Path) -> None:
    """PEFT freezes and forgets the head of a LoRA without a task type, without a word."""
    with pytest.raises(ValueError, match=r"`classifier` of the model is new.*`modules_to_save=\['classifier'\]`"):
        trainer(tmp_path, base, rows, LoraConfig(target_modules=["query"]))
    trainer(tmp_path, base, rows, LoraConfig(target_modules=["query"], task_type="SEQ_CLS"))
