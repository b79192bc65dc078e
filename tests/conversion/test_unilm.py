"""UniLM checkpoints in the shapes in which people have them."""

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForPreTraining, BertTokenizerFast

from hf_ptm_ext.cli import main
from hf_ptm_ext.conversion.unilm import convert_checkpoint, convert_config, convert_state_dict
from hf_ptm_ext.models.modeling_unilm import UniLMForConditionalGeneration, UniLMForPreTraining

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    return BertForPreTraining(BertConfig(**SIZES)).state_dict()


@pytest.fixture
def options():
    return {**SIZES, "type_vocab_size": 6, "layer_norm_epsilon": 1e-5}


def test_a_berts_two_token_types_become_six(bert, options):
    tensors = convert_state_dict(bert, convert_config(options))
    old = bert["bert.embeddings.token_type_embeddings.weight"]
    new = tensors["bert.embeddings.token_type_embeddings.weight"]
    assert torch.equal(new, old[[0, 1, 0, 0, 0, 1]])


def test_older_names_prefixes_and_buffers(bert, options):
    def older(name):
        return f"module.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )

    old = {older(name): value for name, value in bert.items()}
    old["module.crit_mask_lm_smoothed.one_hot"] = torch.zeros(1, 60)
    config = convert_config(options)
    expected, got = convert_state_dict(bert, config), convert_state_dict(old, config)
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_the_fused_projection_is_split_with_a_zero_key_bias(bert, options):
    fused = dict(bert)
    for layer in range(2):
        base = f"bert.encoder.layer.{layer}.attention.self"
        parts = [fused.pop(f"{base}.{part}.weight") for part in ("query", "key", "value")]
        fused[f"{base}.qkv_linear.weight"] = torch.cat(parts)
        for part, short in (("query", "q_bias"), ("value", "v_bias")):
            fused[f"{base}.{short}"] = fused.pop(f"{base}.{part}.bias").reshape(1, 1, -1)
        del fused[f"{base}.key.bias"]
    config = convert_config(options)
    expected, got = convert_state_dict(bert, config), convert_state_dict(fused, config)
    for name, value in expected.items():
        if not name.endswith("key.bias"):
            assert torch.equal(got[name], value), name
    # A key bias shifts all scores of a query alike: outputs do not change.
    ids = torch.tensor([[2, 7, 3, 9, 3]])
    outputs = []
    for tensors in (expected, got):
        model = UniLMForPreTraining(config).eval()
        model.load_state_dict(tensors)
        with torch.no_grad():
            outputs.append(model(ids, lm_mode=torch.tensor([3]), source_lengths=torch.tensor([3])).prediction_logits)
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [16, 40])
def test_position_tables_are_cut_or_extended_from_the_start(bert, options, rows):
    table = bert["bert.embeddings.position_embeddings.weight"]
    config = convert_config({**options, "max_position_embeddings": rows})
    got = convert_state_dict(bert, config)["bert.embeddings.position_embeddings.weight"]
    assert got.shape[0] == rows
    assert torch.equal(got[:16], table[:16])
    if rows > 24:
        assert torch.equal(got[24:], table[:16])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 3}, "num_hidden_layers"),
        ({"vocab_size": 61}, "vocab_size"),
        ({"type_vocab_size": 9}, "type_vocab_size"),
    ],
)
def test_sizes_that_do_not_fit_are_named(bert, options, change, message):
    with pytest.raises(ValueError, match=message):
        convert_state_dict(bert, convert_config({**options, **change}))


def test_names_of_another_model_are_refused(options):
    with pytest.raises(ValueError, match=r"not in the file|layers"):
        convert_state_dict({"net.weight": torch.zeros(2)}, convert_config(options))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (
            "bert.encoder.rel_pos_bias.weight",
            (2, 32),
            "`bert.encoder.rel_pos_bias.weight` is a relative position bias",
        ),
        ("bert.rel_pos_bias.weight", (2, 32), "UniLMv2"),
        ("bert.encoder.layer.0.attention.self.second_query.weight", (16, 16), "no UniLM model reads: .*second_query"),
        ("cls2.predictions.bias", (60,), "no UniLM model reads: `cls2"),
        ("bert.embeddings.position_embeddings.weight", (24, 64), r"has the shape \(24, 64\)"),
    ],
)
def test_what_the_family_has_no_place_for_is_refused(bert, options, name, shape, message):
    with pytest.raises(ValueError, match=message):
        convert_state_dict({**bert, name: torch.zeros(shape)}, convert_config(options))


def test_an_encoder_without_prefix_says_that_its_head_is_new(bert):
    encoder = {name.removeprefix("bert."): value for name, value in bert.items() if name.startswith("bert.")}
    conversion = convert_checkpoint(encoder, {**SIZES, "type_vocab_size": 2})
    assert conversion.architecture == "UniLMModel"
    assert conversion.config.type_vocab_size == 6
    assert "cls.predictions.*" in conversion.initialised


def test_special_tokens_of_the_configuration_are_kept(options):
    assert convert_config(options).mask_token_id == 103, "BERT's, where nothing is said"
    config = convert_config({**options, "pad_token_id": 1, "mask_token_id": 5, "eos_token_id": 4})
    assert (config.pad_token_id, config.mask_token_id, config.eos_token_id) == (1, 5, 4)


def test_the_command_gives_a_folder_of_transformers_its_tokenizer(tmp_path):
    vocab = {piece: number for number, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])}
    BertForPreTraining(BertConfig(**SIZES)).save_pretrained(tmp_path / "bert")
    BertTokenizerFast(vocab=vocab).save_pretrained(tmp_path / "bert")
    assert main(["convert", "unilm", str(tmp_path / "bert"), str(tmp_path / "unilm")]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "unilm")
    assert tokenizer(["a b", "a"], padding=True)["input_ids"] == [[2, 5, 6, 3], [0, 2, 5, 3]]
    config = UniLMForConditionalGeneration.from_pretrained(tmp_path / "unilm").config
    assert (config.mask_token_id, config.eos_token_id) == (4, 3)


def test_the_command_writes_a_folder_that_generates(tmp_path):
    source = tmp_path / "bert"
    BertForPreTraining(BertConfig(**SIZES)).save_pretrained(source)
    assert main(["convert", "unilm", str(source), str(tmp_path / "unilm")]) == 0
    model = UniLMForConditionalGeneration.from_pretrained(tmp_path / "unilm").eval()
    model.config.mask_token_id = 4
    ids = torch.tensor([[2, 7, 8, 3]])
    assert model.generate(input_ids=ids, max_new_tokens=3, do_sample=False, eos_token_id=None).shape == (1, 7)
