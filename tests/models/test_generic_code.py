"""What generic code asks of models on an encoder inside: sizes, PEFT, pipelines, recorded outputs, exported graphs."""

import json

import peft
import pytest
import torch
from transformers import pipeline

from hf_ptm_ext import (
    DistilledBiLstmConfig,
    DistilledBiLstmForSequenceClassification,
    DistilledBiLstmModel,
    KAdapterConfig,
    KAdapterForRelationClassification,
    KAdapterForSequenceClassification,
    KAdapterModel,
    MassConfig,
    MassForSequenceClassification,
    WeightedLayersConfig,
    WeightedLayersForSequenceClassification,
)
from hf_ptm_ext.data import train_wordpiece

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
ENCODER = {"model_type": "bert", **SIZES}
ADAPTERS = {"adapter_hidden_size": 24, "adapter_num_attention_heads": 3, "adapter_intermediate_size": 48}
IDS = torch.tensor([[2, 50, 7, 51, 8, 3], [2, 50, 9, 9, 51, 3], [2, 50, 51, 3, 0, 0]])
MASK = (IDS != 0).long()


def k_adapter(**fields):
    return KAdapterConfig(
        encoder_config=ENCODER, adapters=["fac", "lin"], relation_markers=[50, 51], **ADAPTERS, **fields
    )


def weighted(**fields):
    return WeightedLayersConfig(encoder_config=ENCODER, **fields)


def bilstm(**fields):
    return DistilledBiLstmConfig(vocab_size=60, embedding_size=8, lstm_size=5, **fields)


@pytest.mark.parametrize("make", [k_adapter, weighted])
def test_sizes_are_the_encoders_to_read_and_to_set(make, tmp_path):
    config = make()
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        assert config.to_dict()[name] == getattr(config, name) == SIZES[name]
    config.vocab_size = 77
    config.hidden_size = 64
    assert (config.encoder_config.vocab_size, config.encoder_config.hidden_size) == (77, 64)
    config.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert "hidden_size" not in written
    assert written["encoder_config"]["hidden_size"] == 64
    assert type(config).from_dict(config.to_dict()).to_dict() == config.to_dict()
    assert type(config).from_pretrained(tmp_path, vocab_size=80).encoder_config.vocab_size == 80


def test_the_width_of_a_bilstm_can_be_set():
    config = bilstm()
    config.hidden_size = 12
    assert config.lstm_size == 6
    with pytest.raises(ValueError, match=r"`hidden_size` must be even.*got 7"):
        config.hidden_size = 7


@pytest.mark.parametrize(
    ("cls", "make"),
    [(KAdapterForSequenceClassification, k_adapter), (WeightedLayersForSequenceClassification, weighted)],
)
def test_soft_prompts_find_their_width(cls, make):
    model = peft.get_peft_model(cls(make()), peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3))
    assert model.peft_config["default"].token_dim == 32
    output = model(input_ids=IDS, attention_mask=MASK, labels=torch.tensor([0, 1, 0]))
    output.loss.backward()
    assert model.prompt_encoder["default"].embedding.weight.grad.any()


def test_a_pipeline_of_more_texts_than_adapters():
    tokenizer = train_wordpiece([["low lower lowest"]] * 2, vocab_size=40)
    model = KAdapterModel(k_adapter()).eval()
    extract = pipeline("feature-extraction", model=model, tokenizer=tokenizer, device="cpu")
    texts = ["low", "lower low", "lowest", "low lower lowest", "low"]
    several, single = (
        extract(texts, batch_size=4, return_tensors=True),
        [extract(text, return_tensors=True) for text in texts],
    )
    for one, other in zip(several, single, strict=True):
        torch.testing.assert_close(one[:, : other.shape[1]], other, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_features_of_adapters_are_a_field_by_rows_and_a_tuple_by_adapters():
    output = KAdapterModel(k_adapter()).eval()(IDS, attention_mask=MASK)
    assert output.stacked_features.shape == (3, 2, 6, 32)
    assert len(output.adapter_features) == len(output["adapter_features"]) == 2
    torch.testing.assert_close(output.adapter_features[1], output.stacked_features[:, 1])


@torch.no_grad()
@pytest.mark.parametrize("pairs", [False, True])
def test_a_bilstm_has_hidden_states_and_no_attentions(pairs):
    inputs = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": (IDS == 3).long()}
    config = bilstm(pairs=pairs)
    for cls in (DistilledBiLstmModel, DistilledBiLstmForSequenceClassification):
        model = cls(config).eval()
        assert "hidden_states" not in model(**inputs)
        words, states = model(**inputs, output_hidden_states=True).hidden_states
        assert words.shape == (3, 6, 16)
        assert states.shape == (3, 6, 10)
        assert model(**inputs, output_hidden_states=[-1]).hidden_states[0] is None
        with pytest.raises(ValueError, match="`output_attentions` must be False"):
            model(**inputs, output_attentions=True)
    second = {"second_input_ids": IDS[:, :4], "second_attention_mask": MASK[:, :4]}
    if pairs:
        found = model(IDS, MASK, **second, output_hidden_states=True).hidden_states
        assert [state.shape[1] for state in found] == [10, 10]


@pytest.mark.parametrize(
    ("problem", "labels", "own"),
    [
        ("regression", torch.rand(3, 2), torch.nn.functional.mse_loss),
        ("multi_label_classification", torch.ones(3, 2), torch.nn.functional.binary_cross_entropy_with_logits),
        ("single_label_classification", torch.tensor([0, 1, 1]), torch.nn.functional.cross_entropy),
    ],
)
def test_relations_of_every_problem_type(problem, labels, own):
    output = KAdapterForRelationClassification(k_adapter(problem_type=problem)).eval()(IDS, MASK, labels=labels)
    torch.testing.assert_close(output.loss, own(output.logits, labels))


def test_the_mixtures_own_term_is_not_lost_in_silence(warnings_of_transformers):
    model = WeightedLayersForSequenceClassification(weighted(mix_l2_weight=0.5)).train()
    model(IDS, MASK, labels=torch.tensor([0, 1, 1]))
    assert "mix_l2_weight" not in warnings_of_transformers.text
    model(IDS, MASK)
    assert "`model.regularized(loss)`" in warnings_of_transformers.text


@pytest.mark.parametrize(
    "model",
    [
        lambda: KAdapterForRelationClassification(k_adapter()),
        lambda: KAdapterForSequenceClassification(k_adapter()),
        lambda: WeightedLayersForSequenceClassification(weighted(pooling="first")),
        lambda: WeightedLayersForSequenceClassification(weighted(pooling="mean")),
        lambda: MassForSequenceClassification(
            MassConfig(
                vocab_size=60,
                eos_token_id=3,
                decoder_start_token_id=3,
                d_model=16,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=24,
                decoder_ffn_dim=24,
            )
        ),
    ],
)
@torch.no_grad()
def test_an_exported_graph_takes_batches_of_any_size(model):
    torch.manual_seed(0)
    model, batch = model().eval(), torch.export.Dim("batch", min=2)
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    if isinstance(model, KAdapterForRelationClassification):
        inputs |= {"subject_positions": torch.tensor([1, 1, 1]), "object_positions": torch.tensor([3, 4, 2])}
    graph = torch.export.export(model, (), inputs, dynamic_shapes={name: {0: batch} for name in inputs}, strict=False)
    for rows in ([0, 1], [2, 1, 0, 1, 2]):
        chosen = {name: value[rows] for name, value in inputs.items()}
        torch.testing.assert_close(graph.module()(**chosen)[0], model(**chosen)[0], atol=1e-5, rtol=1e-4)
