"""finetune-seq2seq with multilingual models: languages are named, marked or numbered, learnt, and saved."""

import json

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
)
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART50_LANGUAGES

from hf_ptm_ext import MassNmtConfig, MassNmtForConditionalGeneration
from hf_ptm_ext.cli.seq2seq_models import language_inputs
from hf_ptm_ext.data import train_wordpiece
from tests.cli.jobs import read_metrics
from tests.cli.test_finetune_seq2seq import flags, main, predictions

PAIRS = [("der hund", "the dog"), ("ein haus", "a house"), ("die katze", "the cat"), ("das meer", "the sea")]
LETTERS = sorted({letter for pair in PAIRS for text in pair for letter in text.replace(" ", "▁")})
BEGIN = ["<s>", "<pad>", "</s>", "<unk>", *LETTERS]
SIZES = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in
         (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))}  # fmt: skip
KINDS = {
    "mbart": (MBartTokenizer, MBartForConditionalGeneration, "de_DE", "en_XX"),
    "mbart50": (MBart50Tokenizer, MBartForConditionalGeneration, "de_DE", "en_XX"),
    "nllb": (NllbTokenizer, M2M100ForConditionalGeneration, "deu_Latn", "eng_Latn"),
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folders = {}
    for kind, (tokenizer_class, model_class, *_) in KINDS.items():
        if kind == "nllb":
            tokenizer = NllbTokenizer(vocab={token: number for number, token in enumerate(BEGIN)}, merges=[])
        else:
            vocab = [(token, 0.0 if token[0] == "<" else -2.0) for token in BEGIN]
            tokenizer = tokenizer_class(vocab=[*vocab, *((code, 0.0) for code in MBART50_LANGUAGES)])
        config = (MBartConfig if model_class is MBartForConditionalGeneration else M2M100Config)(
            vocab_size=len(tokenizer), d_model=16, max_position_embeddings=64, decoder_start_token_id=2, **SIZES
        )
        torch.manual_seed(0)
        folders[kind] = tmp_path_factory.mktemp(kind)
        model_class(config).save_pretrained(folders[kind])
        tokenizer.save_pretrained(folders[kind])
    return folders


def run(tmp_path, folder, **options):
    data = tmp_path / "pairs.jsonl"
    rows = [json.dumps({"source": source, "target": target}) for source, target in PAIRS]
    data.write_text("\n".join(rows), encoding="utf-8")
    chosen = {"train_file": data, "validation_file": data, "model_name_or_path": folder, "max_steps": 2}
    none = dict.fromkeys(("config_overrides", "vocab_size", "save_steps"))
    arguments = {**none, **chosen, "save_strategy": "no", "max_target_length": 16, **options}
    return main(["finetune-seq2seq", *flags(output_dir=tmp_path / "run", **arguments)])


@pytest.mark.parametrize("kind", KINDS)
def test_languages_are_learnt_and_saved(checkpoints, kind, tmp_path):
    _, _, source, target = KINDS[kind]
    assert run(tmp_path, checkpoints[kind], source_lang=source, target_lang=target) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == (source, target)
    mark = tokenizer.convert_tokens_to_ids(target)
    assert tokenizer.convert_tokens_to_ids(source) in tokenizer("der hund")["input_ids"]
    assert mark in tokenizer(text_target="the dog")["input_ids"]
    generated = model.generate(**tokenizer("der hund", return_tensors="pt"), max_new_tokens=5)
    assert mark in generated[0, :2].tolist()  # the first thing that is written, or fed
    assert read_metrics(tmp_path / "run")["metric_signature"].startswith("rouge_score|")


@pytest.mark.parametrize("kind", KINDS)
def test_a_language_that_is_missing_or_unknown_is_refused(checkpoints, kind, tmp_path, capsys):
    _, _, source, target = KINDS[kind]
    for given, name in (
        ({}, "source_lang"),
        ({"source_lang": source}, "target_lang"),
        ({"source_lang": source, "target_lang": "tlh_Latn"}, "target_lang"),
        ({"source_lang": target[:2] + "x", "target_lang": target}, "source_lang"),
    ):
        assert run(tmp_path, checkpoints[kind], **given) == 2
        assert f"`{name}` must be a language" in capsys.readouterr().err


def test_more_tokens_than_positions_are_refused_before_anything_is_read(checkpoints, tmp_path, capsys):
    options = {"source_lang": "de_DE", "target_lang": "en_XX", "train_file": tmp_path / "is_not_there.jsonl"}
    assert run(tmp_path, checkpoints["mbart"], max_source_length=65, **options) == 2
    assert "`max_source_length` = 65 must not exceed" in capsys.readouterr().err


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """A MASS-NMT of three languages, whose tokenizer marks none."""
    folder = tmp_path_factory.mktemp("mass_nmt")
    tokenizer = train_wordpiece([text for pair in PAIRS for text in pair], 90)
    names = ("vocab_size", "pad_token_id", "mask_token_id", "eos_token_id", "bos_token_id", "forced_eos_token_id")
    ids = (len(tokenizer), tokenizer.pad_token_id, tokenizer.mask_token_id, *[tokenizer.sep_token_id] * 3)
    torch.manual_seed(0)
    lang2id = {"en": 0, "de": 1, "fr": 2}
    config = MassNmtConfig(
        d_model=16, max_position_embeddings=64, n_langs=3, lang2id=lang2id, init_std=0.3, **SIZES,
        **dict(zip(names, ids, strict=True)),
    )  # fmt: skip
    MassNmtForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_numbered_languages_are_fed_in_training_and_in_generation_and_saved(numbered, tmp_path):
    texts = {}
    for source, target in (("de", "en"), ("fr", "en"), ("de", "fr")):
        folder = tmp_path / f"{source}-{target}"
        folder.mkdir()
        options = {"source_lang": source, "target_lang": target, "max_new_tokens": 6, "min_new_tokens": 4}
        assert run(folder, numbered, search="mass_nmt", num_beams=2, learning_rate=0.01, **options) == 0
        model = AutoModelForSeq2SeqLM.from_pretrained(folder / "run")
        before = AutoModelForSeq2SeqLM.from_pretrained(numbered)
        for side, language in (("encoder", source), ("decoder", target)):
            moved = [getattr(one.model, side).embed_languages.weight for one in (model, before)]
            changed = (moved[0] - moved[1]).abs().amax(dim=1) > 1e-3
            assert [code for code, number in model.config.lang2id.items() if changed[number]] == [language]
        tokenizer = AutoTokenizer.from_pretrained(folder / "run")
        ids = tokenizer("der hund", return_tensors="pt")["input_ids"]
        got = model.generate(ids, search_beam_size=2)
        assert torch.equal(got, model.generate(ids, langs=source, decoder_langs=target, search_beam_size=2))
        texts[source, target] = predictions(folder / "run")
        assert tokenizer.decode(got[0], skip_special_tokens=True) == texts[source, target][0]["prediction"]
        assert f"{source} to {target}" in (folder / "run" / "README.md").read_text("utf-8")


def test_a_numbered_language_that_is_missing_or_unknown_is_refused_before_anything_is_read(numbered, tmp_path, capsys):
    for given, name in (({}, "source_lang"), ({"source_lang": "de"}, "target_lang"),
                        ({"source_lang": "de", "target_lang": "it"}, "target_lang")):  # fmt: skip
        assert run(tmp_path, numbered, train_file=tmp_path / "is_not_there.jsonl", **given) == 2
        assert f"`{name}` must be a language of the model (de, en, fr), got" in capsys.readouterr().err
    new = {"family": "mass_nmt", "train_file": tmp_path / "is_not_there.jsonl", "model_name_or_path": None}
    assert run(tmp_path, None, **new, source_lang="0", target_lang="2") == 2
    assert "`target_lang` must be a language of the model (0, 1), got 2" in capsys.readouterr().err


def test_models_of_one_language_are_fed_none():
    class Given:
        source_lang = target_lang = None

    assert language_inputs(MassNmtConfig(n_langs=1), Given) == language_inputs(MBartConfig(), Given) == {}
