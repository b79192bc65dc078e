"""LayerDrop: which layers stay, sub-networks as plain checkpoints, training with dropped layers on any encoder."""

import copy
import json
import sys

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

import hf_ptm_ext
from hf_ptm_ext import LayerDropCallback, keep_layers
from hf_ptm_ext.compression import LayerDrop, every_other
from tests.processes import leave_the_others
from tests.trainers.test_distributed import launch

SIZES = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
SIZES |= {"num_hidden_layers": 4, "max_position_embeddings": 32}
OTHER = {
    "distilbert": {"vocab_size": 40, "dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 32},
    "xlnet": {"vocab_size": 40, "d_model": 16, "n_layer": 4, "n_head": 2, "d_inner": 32},
    "zen": {**SIZES, "word_vocab_size": 9, "num_hidden_word_layers": 3},
    "ernie_thu": {**SIZES, "entity_hidden_size": 8, "num_attention_heads_ent": 2},
    "ib_bert": {**SIZES, "intra_bottleneck_size": 16, "embedding_size": 8},
}
FAMILIES = ["bert", "roberta", "electra", "mpnet", "distilbert", "xlnet", "deberta-v2"]
FAMILIES += ["spanbert", "unilm", "kbert", "nezha", "zen", "ernie_thu", "ib_bert"]
NGRAMS = {"ngram_ids": [[5, 6]], "ngram_positions": [[1, 1]], "ngram_lengths": [[2, 3]]}


def config_of(model_type, **fields):
    sizes = dict(OTHER.get(model_type, SIZES))
    if model_type == "ernie_thu":
        known = vars(AutoConfig.for_model(model_type))
        sizes = {name: value for name, value in sizes.items() if name in known}
    return AutoConfig.for_model(model_type, **sizes, **fields)


def inputs_of(model_type):
    given = {"input_ids": torch.tensor([[2, 7, 8, 9, 3], [2, 5, 6, 3, 3]])}
    if model_type == "zen":
        given |= {name: torch.tensor(value * 2) for name, value in NGRAMS.items()}
    return given


def model_of(model_type, **fields):
    torch.manual_seed(0)
    return AutoModel.from_config(config_of(model_type, **fields))


@pytest.mark.parametrize(
    ("layers", "rate", "expected"),
    [(12, 0.5, [1, 3, 5, 7, 9, 11]), (12, 0.25, [1, 2, 3, 5, 6, 7, 9, 10, 11]), (6, 0.34, [1, 3, 5])],
)
def test_every_other_layer_of_the_paper(layers, rate, expected):
    assert every_other(layers, rate) == expected


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_sub_network_is_the_model_without_the_layers(tmp_path, model_type):
    whole = model_of(model_type).eval()
    before = copy.deepcopy(whole.state_dict())
    small = keep_layers(whole, [1, 3])
    drop = LayerDrop(whole, 0.5)
    drop.dropped = [True, False, True, False]
    for layer in drop._layers:  # the switch is of training; dropout stays off
        layer.training = True
    expected = whole(**inputs_of(model_type))[0]
    drop.remove()
    small.eval().save_pretrained(tmp_path)
    loaded, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert loaded.config.num_hidden_layers == 2
    torch.testing.assert_close(loaded(**inputs_of(model_type))[0], expected)
    assert all(torch.equal(value, before[name]) for name, value in whole.state_dict().items())
    assert type(whole) is type(small)


def test_layers_by_number_and_fields_of_single_layers():
    assert keep_layers(model_of("bert"), "0,2").config.num_hidden_layers == 2
    assert keep_layers(model_of("bert"), "3").config.num_hidden_layers == 3
    zen = keep_layers(model_of("zen"), [0, 3])
    assert (zen.config.num_hidden_word_layers, len(zen.encoder.word_layers)) == (1, 1)
    spans = keep_layers(hf_ptm_ext.SpanBertForPreTraining(config_of("spanbert", pair_target_layer=2)), "every-other")
    assert spans.config.pair_target_layer == 0
    kinds = keep_layers(model_of("ernie_thu", fusion_layer_types=["sim", "mix", "norm", "sim"]), [1, 3])
    assert kinds.config.fusion_layer_types == ["mix", "sim"]
    unilm = keep_layers(model_of("unilm"), [1, 3])
    assert [layer.attention.self.layer_idx for layer in unilm.encoder.layer] == [0, 1]


def test_knowledge_bases_move_with_the_layer_below_them(tmp_path):
    base = {"entity_vocab_size": 9, "entity_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    bases = {"wiki": {**base, "insert_after_layer": 3}, "wordnet": {**base, "insert_after_layer": 0}}
    whole = hf_ptm_ext.KnowBertModel(hf_ptm_ext.KnowBertConfig(**SIZES, knowledge_bases=bases)).eval()
    shorter = keep_layers(whole, "every-other").eval()
    places = [one["insert_after_layer"] for one in shorter.config.knowledge_bases.values()]
    assert places == [1, 0]
    assert [one["insert_after_layer"] for one in whole.config.knowledge_bases.values()] == [3, 0]
    shorter.save_pretrained(tmp_path)
    ids = torch.tensor([[2, 7, 8, 3]])
    assert torch.equal(AutoModel.from_pretrained(tmp_path).eval()(ids)[0], shorter(ids)[0])


def test_layers_that_others_count_on_are_refused():
    encoder = {"model_type": "bert", **SIZES}
    adapters = hf_ptm_ext.KAdapterModel(hf_ptm_ext.KAdapterConfig(encoder_config=encoder, adapters=["fac"]))
    with pytest.raises(ValueError, match=r"reads hidden states \[0, 1, 2\] of its encoder \(`adapter_layers`\)"):
        keep_layers(adapters)
    words = hf_ptm_ext.AwdLstmModel(
        hf_ptm_ext.AwdLstmConfig(vocab_size=9, embedding_size=8, lstm_size=8, num_hidden_layers=2)
    )
    for function in (keep_layers, LayerDrop):
        with pytest.raises(ValueError, match="AwdLstmModel has recurrent layers"):
            function(words)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([3, 1], "rising numbers from 0 to 3"),
        ([4], "rising numbers"),
        (5, "from 1 to the model's 4"),
        ("x", "got 'x'"),
    ],
)
def test_layers_that_are_none_are_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        keep_layers(model_of("bert"), layers)


def test_models_whose_layers_are_one_are_refused():
    with pytest.raises(ValueError, match="all its layers are one"):
        keep_layers(AlbertModel(AlbertConfig(**SIZES, embedding_size=8)))
    with pytest.raises(ValueError, match="`rate` must be a probability below 1, got 1"):
        LayerDropCallback(1.0)
    drop = LayerDrop(model := model_of("bert"), 0.2)
    with pytest.raises(ValueError, match="has LayerDrop already"):
        LayerDrop(model)
    drop.remove()


def rows(number=24):
    generator = torch.Generator().manual_seed(1)
    return [
        {"input_ids": torch.randint(5, 40, (8,), generator=generator), "labels": torch.tensor(place % 2)}
        for place in range(number)
    ]


def train(folder, *callbacks, model_type="bert", resume=None, dropout=None, **fields):
    torch.manual_seed(0)
    if dropout is None:
        dropout = {"hidden_dropout_prob": 0.1} if model_type == "bert" else {}
    config = config_of(model_type, **dropout)
    args = {"output_dir": str(folder), "max_steps": 6, "per_device_train_batch_size": 4, "learning_rate": 1e-3}
    args |= {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "seed": 3}
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_config(config),
        args=TrainingArguments(**{**args, **fields}),
        train_dataset=rows(),
        callbacks=list(callbacks),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.mark.parametrize("model_type", ["bert", "mpnet", "ernie_thu", "zen"])
def test_training_leaves_layers_out_and_the_model_as_it_was(tmp_path, model_type):
    fresh = AutoModelForSequenceClassification.from_config(config_of(model_type))
    trainer = train(tmp_path, LayerDropCallback(0.5), model_type=model_type)
    assert [type(one) for one in trainer.model.modules()] == [type(one) for one in fresh.modules()]
    assert list(trainer.model.state_dict()) == list(fresh.state_dict())
    plain = train(tmp_path, model_type=model_type)
    assert trainer.state.log_history[-1]["train_loss"] != plain.state.log_history[-1]["train_loss"]


def test_a_dropped_layer_has_a_gradient_of_zeros():
    model = BertForSequenceClassification(BertConfig(**SIZES))
    drop = LayerDrop(model)
    drop.dropped = [False, True, True, False]
    model.train()(input_ids=torch.tensor([[2, 7, 3]]), labels=torch.tensor([1])).loss.backward()
    for number, layer in enumerate(model.bert.encoder.layer):
        gradients = [value.grad for value in layer.parameters()]
        assert all(one is not None for one in gradients)
        assert any(one.any() for one in gradients) == (number in (0, 3))


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_resumed_run_is_the_whole_run(tmp_path, accumulation):
    options = {"save_strategy": "steps", "save_steps": 3, "gradient_accumulation_steps": accumulation}
    whole = train(tmp_path, LayerDropCallback(0.5), **options)
    again = train(tmp_path, LayerDropCallback(0.5), resume=str(tmp_path / "checkpoint-3"), **options)
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[name], value, rtol=0, atol=0)


def test_it_compiles_once_for_all_draws(tmp_path):
    torch._dynamo.reset()
    fields = {"torch_compile": True, "torch_compile_backend": "eager", "max_steps": 12, "num_train_epochs": 2}
    compiled = train(tmp_path, LayerDropCallback(0.5), **fields)
    frames = torch._dynamo.utils.counters["frames"]
    assert frames["total"] > 0
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    eager = train(tmp_path, LayerDropCallback(0.5), max_steps=12, num_train_epochs=2)
    torch.testing.assert_close(compiled.model.state_dict(), eager.model.state_dict(), rtol=1e-4, atol=1e-5)
    assert graphs < 30


@pytest.mark.slow
def test_a_model_trained_with_layer_drop_can_be_cut(tmp_path):
    """Each position tells the token at its mirrored place: without LayerDrop half of the layers cannot."""
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(5, 40, (8,), generator=generator) for _ in range(900)]
    data = [{"input_ids": row, "labels": row.flip(0).roll(1)} for row in texts]
    fields = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True, "max_steps": 400}
    fields |= {"learning_rate": 3e-3, "per_device_train_batch_size": 16, "output_dir": str(tmp_path)}

    def lost(*callbacks):
        torch.manual_seed(0)
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = BertForMaskedLM(BertConfig(**{**SIZES, "hidden_size": 32, "intermediate_size": 64}, **dropout))
        args = TrainingArguments(**fields)
        Trainer(model=model, args=args, train_dataset=data[:800], callbacks=list(callbacks)).train()
        batch = {name: torch.stack([row[name] for row in data[800:]]) for name in ("input_ids", "labels")}
        with torch.inference_mode():
            return [float(one.eval()(**batch).loss) for one in (model, keep_layers(model, "every-other"))]

    (_, with_drop), (whole, without) = lost(LayerDropCallback(0.5)), lost()
    assert whole < 0.2
    assert with_drop < 0.3
    assert without > 1


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("model_type", ["bert", "spanbert", "ernie_thu"])
def test_checkpointed_gradients_are_those_of_the_same_layers(model_type, reentrant):
    """What the backward pass computes again leaves out what the forward pass left out."""

    def gradients(checkpointing):
        model = AutoModelForSequenceClassification.from_config(config_of(model_type, hidden_dropout_prob=0.0))
        torch.manual_seed(1)
        for value in model.parameters():
            torch.nn.init.normal_(value, std=0.1)
        drop = LayerDrop(model)
        drop.dropped = [False, True, False, True]
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        for _ in range(2):  # the second time it is known what a layer gives
            model.train()(**inputs_of(model_type), labels=torch.tensor([1, 0])).loss.backward()
        return [torch.zeros_like(value) if value.grad is None else value.grad for value in model.parameters()]

    for one, other in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_two_processes_leave_the_same_layers_out(tmp_path):
    """An update of two processes, each with half of the rows, is that of one: weights after all of them are equal."""
    whole = train(tmp_path / "one", LayerDropCallback(0.5), **TWO)
    output = launch(29641, "-m", "tests.compression.test_layer_drop", str(tmp_path / "two"))
    found = json.loads(output.partition("RESULT")[2].splitlines()[0])
    for name, value in whole.model.named_parameters():
        assert found[name] == pytest.approx(value.flatten()[:20].tolist(), rel=1e-4, abs=1e-5), name


TWO = {"dropout": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}, "optim": "sgd", "max_steps": 4}
TWO |= {"per_device_train_batch_size": 24, "learning_rate": 0.1}  # all rows are in each update
TWO |= {"average_tokens_across_devices": False}  # the head's loss is a mean over rows


if __name__ == "__main__":
    one = train(sys.argv[1], LayerDropCallback(0.5), **{**TWO, "per_device_train_batch_size": 12})
    if one.is_world_process_zero():
        values = {name: value.flatten()[:20].tolist() for name, value in one.model.named_parameters()}
        print("RESULT" + json.dumps(values))
    del one
    leave_the_others()
