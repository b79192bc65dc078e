"""Slanted triangles, rates by layer, unfreezing: the papers' formulas, and what the Trainer makes of them."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from hf_ptm_ext.cli.finetune import FinetuneArguments
from hf_ptm_ext.trainers import (
    GradualUnfreezingCallback,
    PtmTrainer,
    SequentialUnfreezingCallback,
    discriminative_learning_rates,
    encoder_layers,
    get_slanted_triangular_schedule,
    gradual_start_epochs,
    layerwise_parameter_groups,
    number_of_updates,
    parameter_depths,
    slanted_triangular_factor,
    trainable_layers,
)
from tests.trainers.runs import StopAfter

GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "transfer-schedules.json").read_text(encoding="utf-8"))
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.mark.parametrize("case", GOLDEN["stlr"], ids=lambda case: f"T{case['T']}")
def test_the_slanted_triangle_is_the_papers(case):
    rates = [
        case["lr_max"] * slanted_triangular_factor(step, case["T"], case["cut_frac"], case["ratio"])
        for step in range(case["T"])
    ]
    assert rates == pytest.approx(case["lr"], rel=1e-6)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=case["lr_max"])
    schedule = get_slanted_triangular_schedule(optimizer, case["T"], case["cut_frac"], case["ratio"])
    seen = []
    for _ in range(case["T"]):
        seen += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    assert seen == pytest.approx(case["lr"], rel=1e-6)


@given(st.integers(1, 500), st.floats(0.01, 0.99), st.floats(1, 100))
def test_every_triangle_stays_between_its_lowest_and_its_highest_rate(steps, cut_frac, ratio):
    factors = [slanted_triangular_factor(step, steps, cut_frac, ratio) for step in range(steps + 1)]
    assert all(1 / ratio - 1e-9 <= factor <= 1 + 1e-9 for factor in factors)


def test_rates_by_layer_are_the_papers():
    for case in GOLDEN["discriminative"]:
        rates = discriminative_learning_rates(case["layers"], case["lr_top"], case["factor"])
        assert rates == pytest.approx(case["lr_bottom_to_top"], rel=1e-6)


def test_gradual_unfreezing_is_the_papers():
    case = GOLDEN["gradual_unfreezing"]
    for epoch, layers in enumerate(case["trainable_layers_by_epoch (0=bottom)"]):
        assert trainable_layers(epoch, case["layers"]) == layers
        depths = gradual_start_epochs(case["layers"])
        assert [depth - 1 for depth in range(1, case["layers"] + 1) if depths[depth] <= epoch] == layers


@given(st.integers(1, 24), st.integers(1, 5), st.integers(0, 30))
def test_the_callbacks_epochs_are_those_of_the_function(layers, layers_per_epoch, epoch):
    depths = gradual_start_epochs(layers, layers_per_epoch)
    trained = [depth - 1 for depth in range(1, layers + 1) if depths[depth] <= epoch]
    assert trained == trainable_layers(epoch, layers, layers_per_epoch)
    assert depths[layers + 1] == 0
    assert depths[0] >= depths[1]


TINY = {
    "bert": SIZES,
    "roberta": SIZES,
    "electra": SIZES | {"embedding_size": 8},
    "distilbert": {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32},
    "xlm": {"emb_dim": 16, "n_layers": 3, "n_heads": 2},
    "spanbert": SIZES,
    "kbert": SIZES,
    "nezha": SIZES,
    "unilm": SIZES,
    "gpt2": {"n_embd": 16, "n_layer": 3, "n_head": 2},
    "bart": {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
    },
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 2},
}


@pytest.mark.parametrize("model_type", TINY)
def test_layers_are_found_in_every_model(model_type):
    import hf_ptm_ext  # noqa: F401  (registers the families)

    model = AutoModelForSequenceClassification.from_config(AutoConfig.for_model(model_type, **TINY[model_type]))
    assert len(encoder_layers(model)) == 3
    depths = parameter_depths(model)
    assert set(depths.values()) == {0, 1, 2, 3, 4}
    numbered = {name: depth for name, depth in depths.items() if 0 < depth < 4}
    for depth in (1, 2, 3):
        assert any(name.endswith("weight") and place == depth for name, place in numbered.items())
    words = next(name for name, value in model.named_parameters() if value is model.get_input_embeddings().weight)
    assert depths[words] == 0
    groups = layerwise_parameter_groups(model, 1e-2, factor=2.0, weight_decay=0.1)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert {round(group["lr"], 9) for group in groups} == {1e-2 / 2**n for n in range(5)}
    plain = {id(parameter) for group in groups if not group["weight_decay"] for parameter in group["params"]}
    for name, parameter in model.named_parameters():
        vector = name.endswith("bias") or any(norm in name.lower() for norm in ("norm", "ln_"))
        assert (id(parameter) in plain) == vector, name


class Recorder(TrainerCallback):
    """What is trained at each update, and which weights have moved since the last one."""

    def __init__(self):
        self.trained, self.moved, self.before = [], [], None

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        self.before = {name: value.detach().clone() for name, value in model.named_parameters()}

    def on_step_end(self, args, state, control, model=None, **kwargs):
        depths = parameter_depths(model)
        self.trained.append({depths[name] for name, value in model.named_parameters() if value.requires_grad})
        self.moved.append(
            {depths[name] for name, value in model.named_parameters() if not torch.equal(value, self.before[name])}
        )


def run(folder, callback, *, stop=None, resume=None, epochs=5):
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=40, **SIZES))
    rows = [{"input_ids": torch.randint(5, 40, (8,)), "labels": number % 2} for number in range(8)]
    args = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=4,
        save_steps=1,
        weight_decay=0.1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    optimizer = torch.optim.AdamW(layerwise_parameter_groups(model, 1e-2, factor=1.5, weight_decay=0.1))
    schedule = get_slanted_triangular_schedule(optimizer, number_of_updates(args, len(rows)))
    recorder = Recorder()
    callbacks = [callback, recorder, *([StopAfter(stop)] if stop else [])]
    trainer = Trainer(
        model=model, args=args, train_dataset=rows, optimizers=(optimizer, schedule), callbacks=callbacks
    )
    trainer.train(resume_from_checkpoint=resume)
    assert all(parameter.requires_grad for parameter in model.parameters()), "the model is left as it was found"
    return trainer, recorder


def test_gradual_unfreezing_trains_one_more_layer_each_epoch(tmp_path):
    _, recorder = run(tmp_path, GradualUnfreezingCallback())
    expected = [{4, 3}, {4, 3, 2}, {4, 3, 2, 1}, {4, 3, 2, 1, 0}, {4, 3, 2, 1, 0}]
    assert recorder.trained == [depths for depths in expected for _ in range(2)]
    assert recorder.moved == recorder.trained, "nothing frozen moves, weight decay included"


def test_sequential_unfreezing_trains_head_then_layers_then_embeddings(tmp_path):
    _, recorder = run(tmp_path, SequentialUnfreezingCallback())  # SiATL: layers from its 2nd epoch, embeddings its 5th
    expected = [{4}, {4, 3, 2, 1}, {4, 3, 2, 1}, {4, 3, 2, 1}, {4, 3, 2, 1, 0}]
    assert recorder.moved == [depths for depths in expected for _ in range(2)]


@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a_resumed_run_is_the_whole_run(tmp_path, stop):
    whole, _ = run(tmp_path / "whole", GradualUnfreezingCallback())
    run(tmp_path / "parts", GradualUnfreezingCallback(), stop=stop)
    resumed, recorder = run(
        tmp_path / "parts", GradualUnfreezingCallback(), resume=str(tmp_path / "parts" / f"checkpoint-{stop}")
    )
    assert len(recorder.trained) == 10 - stop
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("layer_decay", [1.5, 1 / 1.5])
def test_arguments_of_our_trainer_are_the_same_as_objects_of_upstreams(tmp_path, layer_decay):
    parts, _ = run(tmp_path / "parts", GradualUnfreezingCallback())
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=40, **SIZES))
    rows = [{"input_ids": torch.randint(5, 40, (8,)), "labels": number % 2} for number in range(8)]
    ways = {"lr_schedule": "slanted_triangular", "layer_decay": layer_decay, "gradual_unfreezing": 1}
    args = FinetuneArguments(
        output_dir=str(tmp_path / "whole"),
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        weight_decay=0.1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **ways,
    )
    trainer = PtmTrainer(model=model, args=args, train_dataset=rows)
    trainer.train()
    for name, value in parts.model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], value, rtol=0, atol=1e-6)


def test_too_few_epochs_to_unfreeze_all_are_told(tmp_path, caplog):
    run(tmp_path, GradualUnfreezingCallback(), epochs=3)
    assert "What is unfrozen in epoch 4 is not trained: the run has 3." in caplog.text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: slanted_triangular_factor(0, 10, cut_frac=0), "`cut_frac` must lie between 0 and 1, got 0"),
        (lambda: slanted_triangular_factor(0, 10, ratio=0.5), "`ratio` must be at least 1"),
        (lambda: slanted_triangular_factor(0, 0), "`num_training_steps` must be positive"),
        (lambda: discriminative_learning_rates(0, 1.0), "`factor` and `layers` must be positive"),
        (lambda: GradualUnfreezingCallback(0), "`layers_per_epoch` must be at least 1"),
        (lambda: SequentialUnfreezingCallback(3, 1), "`unfreeze_layers` must be at least 1 and not above"),
        (lambda: SequentialUnfreezingCallback(0, 1), "counted from 1"),
        (lambda: encoder_layers(torch.nn.Linear(2, 2)), "Linear has none"),
    ],
)
def test_impossible_options_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_number_of_updates_is_the_trainers(tmp_path, accumulation, drop_last):
    model = BertForSequenceClassification(BertConfig(vocab_size=40, **SIZES))
    rows = [{"input_ids": torch.arange(5, 9), "labels": 0} for _ in range(13)]
    args = TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=2,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=accumulation,
        dataloader_drop_last=drop_last,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=args, train_dataset=rows)
    trainer.train()
    assert trainer.state.max_steps == number_of_updates(args, len(rows))
