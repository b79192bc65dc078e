"""K-BERT conversion: UER's names old and new, BERT's in every form, LayerNorms, segments, and what does not fit."""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    BertModel,
    pipeline,
)

from hf_ptm_ext import (
    KBertConfig,
    KBertForPreTraining,
    KBertForSequenceClassification,
    KBertModel,
    KnowledgeGraph,
    cli,
)
from hf_ptm_ext.conversion.kbert import (
    convert_checkpoint,
    convert_config,
    convert_state_dict,
    describe_key,
    revert_checkpoint,
    revert_config,
    revert_state_dict,
)
from hf_ptm_ext.hub.model_card import validate_model_card
from tests.models.kbert.test_visibility import randomise
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[1] / "goldens"
UER = {"emb_size": 16, "hidden_size": 16, "feedforward_size": 32, "heads_num": 2, "layers_num": 2, "dropout": 0.1}
TABLES = {"vocab_size": 149, "max_position": 32, "segment_vocab": 3}
BERT = {
    "vocab_size": 149,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
IDS = torch.randint(5, 149, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    return randomise(BertForPreTraining(BertConfig(**BERT)))


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "kbert-a.json").read_text(encoding="utf-8"))
    return facts, load_file(GOLDENS / "kbert-a.safetensors")


def uer_file(bert, layers=2, layout="old", heads=True):
    """The same weights as a UER file that was renamed from BERT, with a segment row for padding."""
    config = KBertConfig(**{**BERT, "num_hidden_layers": layers})
    state = bert.state_dict()
    if layers == 3:
        third = {name: value for name, value in state.items() if ".layer.1." in name}
        state = {**state, **{name.replace(".layer.1.", ".layer.2."): value for name, value in third.items()}}
    if not heads:
        state = {name: value for name, value in state.items() if not name.startswith(("cls.", "bert.pooler"))}
    return revert_state_dict(state, config, layout=layout, fold_layer_norm=False)


# ---- names ----


@pytest.mark.parametrize(
    ("old", "new", "ours"),
    [
        ("embedding.word_embedding.weight", "embedding.word.embedding.weight", "embeddings.word_embeddings.weight"),
        ("embedding.position_embedding.weight", "embedding.pos.embedding.weight", None),
        ("embedding.segment_embedding.weight", "embedding.seg.embedding.weight", None),
        ("embedding.layer_norm.gamma", "embedding.layer_norm.gamma", "embeddings.LayerNorm.weight"),
        ("target.mlm_linear_1.bias", "target.mlm.linear_1.bias", None),
        ("target.layer_norm.beta", "target.mlm.layer_norm.beta", None),
        ("target.mlm_linear_2.weight", "target.mlm.linear_2.weight", None),
        ("target.nsp_linear_1.weight", "target.sp.linear_1.weight", None),
        ("target.nsp_linear_2.bias", "target.sp.linear_2.bias", None),
    ],
)
def test_both_layouts_have_one_name_here(old, new, ours):
    names = {describe_key(key)[0] for key in (old, new, f"module.{old}")}
    assert len(names) == 1
    assert "UER's name to BERT's" in describe_key(old)[1]
    if ours:
        assert names == {f"bert.{ours}"}


@pytest.mark.parametrize("layout", ["old", "new"])
def test_a_uer_file_is_the_bert_that_it_was_renamed_from(bert, layout):
    file = uer_file(bert, layout=layout)
    assert ("embedding.seg.embedding.weight" in file) == (layout == "new")
    config = convert_config({**UER, **TABLES, "type_vocab_size": 2, "layer_norm_style": "hf", "tie_weights": True})
    state = convert_state_dict(file, config, fold_layer_norm=False)
    model = KBertForPreTraining(config).eval()
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        expected, got = bert(IDS), model(IDS)
    assert_agrees(got.prediction_logits, expected.prediction_logits, 1e-5)
    assert_agrees(got.seq_relationship_logits, expected.seq_relationship_logits, 1e-5)
    reverted = revert_state_dict(state, config, layout=layout, fold_layer_norm=False)
    assert reverted.keys() == file.keys()
    assert all(torch.equal(reverted[name], value) for name, value in file.items())


def test_the_layers_of_file_and_config_must_agree(bert):
    """Reported case: a converter run with another number of layers cut the model without a word."""
    file = uer_file(bert, layers=3)
    with pytest.raises(ValueError, match=r"`layers_num`.* 3, got 2"):
        convert_state_dict(file, convert_config({**UER, **TABLES}))
    with pytest.raises(ValueError, match=r"`layers_num`.* 2, got 3"):
        convert_state_dict(uer_file(bert), convert_config({**UER, **TABLES, "layers_num": 3}))


def test_segment_rows(bert):
    """Rows 1 and 2 are BERT's; row 0 is kept or dropped as the config says, and comes back as zeros."""
    file = uer_file(bert)
    file["embedding.segment_embedding.weight"][0] = 5.0
    table = file["embedding.segment_embedding.weight"]
    name = "bert.embeddings.token_type_embeddings.weight"
    kept = convert_config({**UER, **TABLES})
    assert (kept.type_vocab_size, kept.first_token_type_id) == (3, 1)
    assert torch.equal(convert_state_dict(file, kept)[name], table)
    assert torch.equal(
        revert_state_dict(convert_state_dict(file, kept), kept)["embedding.segment_embedding.weight"], table
    )
    dropped = convert_config({**UER, **TABLES, "type_vocab_size": 2})
    assert (dropped.type_vocab_size, dropped.first_token_type_id) == (2, 0)
    state = convert_state_dict(file, dropped)
    assert torch.equal(state[name], table[1:])
    reverted = revert_state_dict(state, dropped)
    assert {key: value.shape for key, value in reverted.items()} == {key: value.shape for key, value in file.items()}
    assert not reverted["embedding.segment_embedding.weight"][0].any()


@pytest.mark.parametrize("form", ["plain", "gamma and beta", "module.", "encoder only"])
def test_older_forms_of_bert_files_load(bert, form, tmp_path):
    """By conversion and by `from_pretrained` alike; no weight is new but those of heads that the file lacks."""
    state = {name: value for name, value in bert.state_dict().items() if not name.endswith("decoder.bias")}
    if form != "plain":
        state = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
            for name, value in state.items()
        }
    if form == "module.":
        state = {f"module.{name}": value for name, value in state.items()}
    if form == "encoder only":
        state = {name.removeprefix("bert."): value for name, value in state.items() if name.startswith("bert.")}
    with torch.no_grad():
        expected = bert.bert(IDS).last_hidden_state

    converted = convert_state_dict(state, convert_config(BERT))
    assert all(name in bert.state_dict() for name in converted)
    config = convert_config({**BERT, "model_type": "bert"})
    assert config.layer_norm_style == "hf"
    model = KBertForPreTraining(config).eval()
    report = model.load_state_dict(converted, strict=False)
    assert {name.split(".")[0] for name in report.missing_keys} <= ({"cls"} if form == "encoder only" else set())
    with torch.no_grad():
        assert_agrees(model.bert(IDS).last_hidden_state, expected, 1e-6)

    torch.save(state, tmp_path / "pytorch_model.bin")
    BertConfig(**BERT).save_pretrained(tmp_path)
    loaded, info = KBertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert {name.split(".")[0] for name in info["missing_keys"]} == ({"cls"} if form == "encoder only" else set())
    with torch.no_grad():
        assert_agrees(loaded.bert(IDS).last_hidden_state, expected, 1e-6)


def test_a_parameter_that_is_called_gamma_keeps_its_name(bert):
    assert describe_key("bert.gamma_gate.gamma") == ("bert.gamma_gate.gamma", ())
    state = {**bert.state_dict(), "bert.gamma_gate": torch.ones(1)}
    with pytest.raises(ValueError, match=r"`bert\.gamma_gate`"):
        convert_state_dict(state, convert_config(BERT))


def test_a_uer_file_is_not_loaded_as_it_is(bert, tmp_path):
    torch.save(uer_file(bert), tmp_path / "pytorch_model.bin")
    KBertConfig(**BERT).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="hf-ptm-ext convert kbert"):
        KBertModel.from_pretrained(tmp_path)


# ---- LayerNorm ----


def test_folding_gives_the_same_function(golden):
    """UER's LayerNorm with UER's gammas, and BERT's with folded ones; unfolded the two differ visibly."""
    facts, tensors = golden
    state = {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
    ids = tensors["cls.in.input_ids"][:, :6]
    outputs = {}
    for name, fields, fold in (
        ("uer", {}, None),
        ("folded", {"layer_norm_style": "hf"}, None),
        ("renamed", {"layer_norm_style": "hf"}, False),
    ):
        config = convert_config({**facts["config"], **fields})
        model = KBertForPreTraining(config).eval()
        model.load_state_dict(convert_state_dict(state, config, fold_layer_norm=fold), strict=True)
        with torch.no_grad():
            outputs[name] = model(ids).prediction_logits
    assert_agrees(outputs["folded"], outputs["uer"], 5e-5)
    assert (outputs["renamed"] - outputs["uer"]).abs().max() > 1e-2


def test_folding_scales_every_layer_norm_and_nothing_else(bert):
    file = uer_file(bert)
    config = convert_config({**UER, **TABLES, "layer_norm_style": "hf", "tie_weights": True})
    plain, folded = (convert_state_dict(file, config, fold_layer_norm=fold) for fold in (False, True))
    norms = {name for name in plain if name.endswith("LayerNorm.weight")}
    assert len(norms) == 2 + 2 * 2
    for name, value in plain.items():
        expected = value * math.sqrt(15 / 16) if name in norms else value
        assert_agrees(folded[name], expected, 1e-6)
    back = revert_state_dict(folded, config)
    for name, value in file.items():
        assert_agrees(back[name], value, 1e-6)


def test_a_file_that_uers_own_converter_renamed_can_be_folded(bert):
    """UER's names were lost there, and its LayerNorm with them."""
    state, config = bert.state_dict(), convert_config(BERT)
    assert torch.equal(
        convert_state_dict(state, config)["bert.embeddings.LayerNorm.weight"],
        state["bert.embeddings.LayerNorm.weight"],
    )
    folded = convert_state_dict(state, config, fold_layer_norm=True)["bert.embeddings.LayerNorm.weight"]
    torch.testing.assert_close(folded, state["bert.embeddings.LayerNorm.weight"] * math.sqrt(15 / 16))
    with pytest.raises(ValueError, match="`fold_layer_norm` must be False under `layer_norm_style='uer'`"):
        convert_state_dict(state, convert_config({**BERT, "layer_norm_style": "uer"}), fold_layer_norm=True)
    with pytest.raises(ValueError, match="`fold_layer_norm` must be False"):
        revert_state_dict(state, convert_config({**BERT, "layer_norm_style": "uer"}), fold_layer_norm=True)


# ---- configurations ----


def test_uers_json_is_read():
    config = convert_config({**UER, "data_processor": "bert", "embedding": ["word", "pos", "seg"], "target": ["mlm"]})
    assert (config.num_hidden_layers, config.num_attention_heads, config.intermediate_size) == (2, 2, 32)
    assert (config.vocab_size, config.max_position_embeddings, config.type_vocab_size) == (21128, 512, 3)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.classifier_dropout) == (
        0.1,
        0.1,
        0,
    )
    assert (config.layer_norm_style, config.reference_padding, config.tie_word_embeddings) == ("uer", True, False)
    read = convert_config({**UER, "pooling": "max", "no_vm": True, "labels_num": 5, "max_seq_length": 128})
    assert (read.pooling, read.use_visible_matrix, read.num_labels, read.max_position_embeddings) == (
        "max",
        False,
        5,
        128,
    )
    again = convert_config(revert_config(config))
    assert again.to_dict() == config.to_dict()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("emb_size", 8),
        ("layernorm_positioning", "pre"),
        ("embedding", ["word", "sinusoidalpos"]),
        ("mask", "causal"),
        ("encoder", "lstm"),
        ("feed_forward", "gated"),
        ("relative_position_embedding", True),
        ("layernorm", "rms"),
    ],
)
def test_other_architectures_of_uer_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        convert_config({**UER, name: value})


def test_missing_sizes_are_named():
    with pytest.raises(ValueError, match="`layers_num`"):
        convert_config({name: value for name, value in UER.items() if name != "layers_num"})
    with pytest.raises(ValueError, match="`max_position_embeddings`"):
        convert_config({name: value for name, value in BERT.items() if name != "max_position_embeddings"})
    with pytest.raises(TypeError, match="a list"):
        convert_config([])


# ---- what does not fit ----


def test_what_does_not_fit_is_named(bert):
    config, file = convert_config({**UER, **TABLES, "tie_weights": True}), uer_file(bert)

    def changed(**more):
        return {**copy.copy(file), **more}

    with pytest.raises(ValueError, match="`vocab_size` is 150 in the config, 149 in the file"):
        convert_state_dict(file, convert_config({**UER, **TABLES, "vocab_size": 150}))
    with pytest.raises(ValueError, match=r"fit nowhere in K-BERT: `embedding.mystery`"):
        convert_state_dict(changed(**{"embedding.mystery": torch.ones(1)}), config)
    with pytest.raises(ValueError, match=r"both stand for `bert.embeddings.word_embeddings.weight`"):
        convert_state_dict(changed(**{"embedding.word.embedding.weight": torch.ones(149, 16)}), config)
    half = {name: value for name, value in file.items() if name != "target.mlm_linear_1.bias"}
    with pytest.raises(ValueError, match=r"lacks weights: `cls.predictions.transform.dense.bias`"):
        convert_state_dict(half, config)
    with pytest.raises(ValueError, match="no encoder layer"):
        convert_state_dict({"lstm.weight": torch.ones(1)}, config)
    untied = changed(**{"target.mlm_linear_2.weight": file["target.mlm_linear_2.weight"] + 1})
    with pytest.raises(ValueError, match="`tie_word_embeddings`"):
        convert_state_dict(untied, config)
    with pytest.raises(ValueError, match="not of a K-BERT model"):
        revert_state_dict({"lstm.weight": torch.ones(1)}, config)
    with pytest.raises(ValueError, match="`layout` must be one of old, new"):
        revert_state_dict({}, config, layout="2021")
    answers = {"qa_outputs.weight": torch.ones(2, 16), "qa_outputs.bias": torch.ones(2)}
    with pytest.raises(ValueError, match=r"`qa_outputs.weight` has no name in K-BERT's code"):
        revert_state_dict(answers, config)


# ---- whole checkpoints ----


def test_a_file_is_read_without_any_options(bert):
    """Its sizes are in the weights, but for the number of heads."""
    conversion = convert_checkpoint(uer_file(bert), {})
    config = conversion.config
    assert (config.vocab_size, config.num_hidden_layers, config.intermediate_size) == (149, 2, 32)
    assert (config.max_position_embeddings, config.type_vocab_size) == (32, 2)
    assert config.num_attention_heads == 1
    assert "64 wide" in conversion.assumed["heads_num"]
    assert conversion.architecture == "KBertForPreTraining"
    assert config.tie_word_embeddings
    assert not convert_checkpoint(uer_file(bert), UER).assumed


@pytest.mark.parametrize(
    ("heads", "architecture", "labels"),
    [
        ({"output_layer_1": 16, "output_layer_2": 3}, "KBertForSequenceClassification", 3),
        ({"output_layer": 7}, "KBertForTokenClassification", 7),
        ({}, "KBertModel", 2),
    ],
)
def test_the_class_is_seen_from_the_heads(bert, heads, architecture, labels):
    file = uer_file(bert, heads=False)
    for name, size in heads.items():
        file |= {f"{name}.weight": torch.randn(size, 16), f"{name}.bias": torch.randn(size)}
    conversion = convert_checkpoint(file, UER)
    assert (conversion.architecture, conversion.config.num_labels) == (architecture, labels)
    assert conversion.initialised.keys() == {"cls.predictions.*", "cls.seq_relationship.*"}
    reverted, options = revert_checkpoint(conversion.tensors, conversion.config)
    assert reverted.keys() == file.keys()
    assert options["layers_num"] == 2


VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x4E00 + number) for number in range(144))]


@pytest.fixture
def source(bert, tmp_path):
    """A fine-tuned classifier as K-BERT leaves it, with UER's json and the vocabulary beside it."""
    folder = tmp_path / "original"
    folder.mkdir()
    generator = torch.Generator().manual_seed(3)
    head = {
        f"output_layer_{number}.{name}": torch.randn(shape, generator=generator)
        for number, size in ((1, 16), (2, 3))
        for name, shape in (("weight", (size, 16)), ("bias", (size,)))
    }
    torch.save({**uer_file(bert, heads=False), **head}, folder / "classifier_model.bin")
    (folder / "config.json").write_text(json.dumps(UER), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return folder


def test_the_command_makes_a_folder_ready_for_the_hub(source, tmp_path, capsys):
    target = tmp_path / "target"
    assert cli.main(["convert", "kbert", str(source), str(target), "--language", "zh", "--license", "apache-2.0"]) == 0
    said = capsys.readouterr().out
    for words in ("to KBertForSequenceClassification", "UER's name to BERT's", "sqrt((N - 1) / N): 5", "row 0 of"):
        assert words in said
    names = {path.name for path in target.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "visibility_kbert.py"} <= names
    stored = json.loads((target / "config.json").read_text(encoding="utf-8"))
    assert len(stored["auto_map"]) == 8
    validate_model_card(target)
    card = (target / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in card
    assert "word_index" in card
    model, info = AutoModelForSequenceClassification.from_pretrained(target, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert (model.config.layer_norm_style, model.config.type_vocab_size, model.num_labels) == ("hf", 2, 3)
    answer = pipeline("text-classification", model=str(target))("一丁七")
    assert answer[0]["label"] in model.config.label2id


def test_the_folders_tokenizer_takes_a_graph(source, tmp_path):
    """One that travels with its code, and makes the token types that the converted table has."""
    graph = KnowledgeGraph([(VOCAB[5], "", VOCAB[6])])
    for name, *flags in (("ours",), ("parity", "--reference-parity")):
        assert cli.main(["convert", "kbert", str(source), str(tmp_path / name), *flags]) == 0
    plain = AutoTokenizer.from_pretrained(tmp_path / "ours")
    text = VOCAB[5]
    assert plain(text).tokens() == ["[CLS]", text, "[SEP]"]
    stored = json.loads((tmp_path / "ours" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert "KBertTokenizer" in str(stored["auto_map"]["AutoTokenizer"])
    assert (tmp_path / "ours" / "tokenization_kbert.py").is_file()
    knowing = AutoTokenizer.from_pretrained(tmp_path / "ours", kg=graph)
    assert knowing(text).tokens() == ["[CLS]", text, VOCAB[6], "[SEP]"]
    parity = AutoTokenizer.from_pretrained(tmp_path / "parity", kg=graph)
    assert (parity.reference, parity.use_predicate) == ("classification", True)
    got = parity(text, padding="max_length", max_length=4)
    assert got["token_type_ids"] == [1, 1, 1, 0]


def test_parity_is_kept_on_request(source, tmp_path):
    """The same classifier as it is in the reference: at the first token the two agree."""
    for name, *flags in (("ours",), ("parity", "--reference-parity"), ("renamed", "--no-fold-layer-norm")):
        assert cli.main(["convert", "kbert", str(source), str(tmp_path / name), *flags]) == 0
    ours, parity, renamed = (
        KBertForSequenceClassification.from_pretrained(tmp_path / name) for name in ("ours", "parity", "renamed")
    )
    assert (parity.config.layer_norm_style, parity.config.type_vocab_size) == ("uer", 3)
    assert parity.config.reference_padding
    assert not ours.config.reference_padding
    with torch.no_grad():
        expected = parity(IDS).logits
        assert_agrees(ours(IDS).logits, expected, 2e-4)
        assert (renamed(IDS).logits - expected).abs().max() > 1e-3


def test_back_to_the_original_by_command(source, tmp_path):
    target, back = tmp_path / "target", tmp_path / "back"
    assert cli.main(["convert", "kbert", str(source), str(target)]) == 0
    assert cli.main(["convert", "kbert", str(target), str(back), "--to-original"]) == 0
    original = torch.load(source / "classifier_model.bin", weights_only=True)
    reverted = torch.load(back / "model.pt", weights_only=True)
    assert reverted.keys() == original.keys()
    for name, value in original.items():
        assert_agrees(reverted[name], value, 1e-6)
    assert json.loads((back / "config.json").read_text(encoding="utf-8"))["layers_num"] == 2


def test_a_bert_folder_becomes_a_k_bert_with_equal_outputs(bert, tmp_path, capsys):
    bert.save_pretrained(tmp_path / "bert")
    assert cli.main(["convert", "kbert", str(tmp_path / "bert"), str(tmp_path / "kbert")]) == 0
    assert "sqrt" not in capsys.readouterr().out
    model = KBertForPreTraining.from_pretrained(tmp_path / "kbert")
    with torch.no_grad():
        expected = BertModel.from_pretrained(tmp_path / "bert")(IDS).last_hidden_state
        assert_agrees(model.bert(IDS).last_hidden_state, expected, 1e-6)


def test_options_of_this_family_are_refused_for_others(source, tmp_path, capsys):
    assert cli.main(["convert", "spanbert", str(source), str(tmp_path / "no"), "--reference-parity"]) == 2
    assert "options of kbert" in capsys.readouterr().err
