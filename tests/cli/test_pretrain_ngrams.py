"""`hf-ptm-ext pretrain` on ZEN: the n-grams of the masked text reach the model, and their encoder learns."""

import pytest
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from hf_ptm_ext import ZenTokenizer
from hf_ptm_ext.cli import main
from hf_ptm_ext.data import embedded_corpus, train_wordpiece
from tests.cli.jobs import TINY, flags, read_metrics


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    documents = embedded_corpus("en")[:200]
    vocab = train_wordpiece(documents, vocab_size=400).get_vocab()
    folder = tmp_path_factory.mktemp("tokenizer")
    ZenTokenizer(vocab, ngrams=["of the", "in the", "to the", "a b c"]).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", ["nezha", "zen"])
def test_next_sentences_are_trained_beside_masked_tokens(tokenizer, family, tmp_path, capsys):
    named = {"tokenizer_name": tokenizer, "vocab_size": None} if family == "zen" else {}
    asked = {"objective": "mlm", "family": family, "next_sentence_prediction": True, "max_steps": 2, **named}
    assert main(["pretrain", *flags(output_dir=tmp_path, **asked)]) == 0
    assert "next sentence" in capsys.readouterr().out
    model = AutoModelForPreTraining.from_pretrained(tmp_path)
    assert type(model).__name__ == f"{family.capitalize()}ForPreTraining"
    assert read_metrics(tmp_path)["eval_nsp_targets"] > 0


@pytest.mark.parametrize("packed", [False, True])
def test_the_ngram_encoder_is_trained(tokenizer, packed, tmp_path):
    folder = tmp_path / "zen"
    arguments = flags(
        output_dir=folder,
        objective="mlm",
        family="zen",
        tokenizer_name=tokenizer,
        # A masked token is in no n-gram: it takes a second layer to see one.
        config_overrides=TINY.replace("num_hidden_layers=1", "num_hidden_layers=2,num_hidden_word_layers=1"),
        vocab_size=None,
        pack_rows=packed,
        learning_rate=0.01,
        weight_decay=0.0,
        lr_scheduler_type="constant",
    )
    assert main(["pretrain", *arguments]) == 0
    model = AutoModelForMaskedLM.from_pretrained(folder)
    assert type(model).__name__ == "ZenForMaskedLM"
    assert model.config.word_vocab_size == 5
    assert AutoTokenizer.from_pretrained(folder)("in the light of the harbour")["ngram_ids"] == [2, 1]
    # Biases start at 0, and move only with a gradient.
    moved = {name for name, value in model.named_parameters() if name.endswith("bias") and value.any()}
    assert "bert.word_embeddings.LayerNorm.bias" in moved
    assert "bert.encoder.word_layers.0.attention.self.value.bias" in moved
    assert "bert.encoder.word_layers.0.output.dense.bias" in moved
