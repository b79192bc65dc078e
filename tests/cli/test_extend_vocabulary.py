"""`pretrain --extend_vocabulary`: new pieces of a domain for a checkpoint, measured by words, resumed exactly."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    ElectraConfig,
    ElectraForPreTraining,
)

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.extension import Extension
from hf_ptm_ext.cli.pretrain_arguments import DataArguments
from hf_ptm_ext.cli.pretrain_data import Documents
from hf_ptm_ext.data import embedded_corpus, embedded_corpus_path, train_wordpiece
from tests.cli.jobs import flags, read_metrics

CORPUS = embedded_corpus("en")[:150]
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small BERT with few pieces."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = train_wordpiece(CORPUS[:30], 300)
    BertForPreTraining(BertConfig(vocab_size=len(tokenizer), type_vocab_size=6, **SIZES)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "domain.txt"
    file.write_text("\n\n".join("\n".join(document) for document in CORPUS), encoding="utf-8")
    return file


def job(checkpoint, text, folder, **more):
    """Flags of a small job; of `config_overrides` and the like a checkpoint has its own."""
    given = {"objective": "mlm", "model_name_or_path": checkpoint, "train_file": text, "output_dir": folder}
    return ["pretrain", *flags(config_overrides=None, vocab_size=None, **{**given, "extend_vocabulary": 60, **more})]


@pytest.fixture(scope="module")
def extended(checkpoint, text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("job") / "extended"
    assert main(job(checkpoint, text, folder, max_steps=4, save_steps=2)) == 0
    return folder


def test_the_folder_has_the_longer_vocabulary_and_loads(checkpoint, extended):
    old, new = AutoTokenizer.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(extended)
    assert len(new) == len(old) + 60
    model = AutoModelForMaskedLM.from_pretrained(extended)
    assert model.get_input_embeddings().weight.shape[0] == model.config.vocab_size == len(new)
    assert model(**new("a text", return_tensors="pt")).logits.shape[-1] == len(new)


def test_results_tell_tokens_and_losses_per_word_before_and_after(extended):
    found = read_metrics(extended)
    assert found["new_pieces"] == 60
    assert 1 <= found["tokens_per_word"] < found["tokens_per_word_before"]
    assert found["before_word_words"] == found["extended_word_words"] == found["eval_word_words"]
    for name in ("before_word_loss", "extended_word_loss", "eval_word_loss", "before_mlm_loss", "eval_mlm_loss"):
        assert 0 < found[name] < 40
    card = (extended / "README.md").read_text(encoding="utf-8")
    assert "pieces added to the vocabulary" in card
    assert "tokens a word" in card


def test_the_job_without_new_pieces_is_measured_alike(checkpoint, text, extended, tmp_path):
    assert main(job(checkpoint, text, tmp_path, extend_vocabulary=0)) == 0
    found, other = read_metrics(tmp_path), read_metrics(extended)
    assert found["new_pieces"] == 0
    assert found["before_word_loss"] == pytest.approx(other["before_word_loss"], rel=1e-5), "the same checkpoint"
    assert found["before_word_words"] == other["before_word_words"]
    assert found["extended_word_loss"] == found["before_word_loss"]
    assert len(AutoTokenizer.from_pretrained(tmp_path)) == len(AutoTokenizer.from_pretrained(checkpoint))


def test_a_stopped_run_goes_on_exactly(checkpoint, text, extended, tmp_path):
    folder = tmp_path / "stopped"
    assert main(job(checkpoint, text, folder, max_steps=4, save_steps=2)) == 0
    for path in folder.iterdir():  # as if it had been killed behind its first checkpoint
        if path.name == "model.safetensors" or path.name in ("all_results.json", "README.md", "checkpoint-4"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert main(job(checkpoint, text, folder, max_steps=4, save_steps=2, resume_from_checkpoint="auto")) == 0
    one, other = (load_file(path / "model.safetensors") for path in (extended, folder))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    left_out = ("runtime", "_per_second", "train_loss", "total_flos", "epoch")
    scores = [{k: v for k, v in read_metrics(f).items() if not k.endswith(left_out)} for f in (extended, folder)]
    assert scores[0] == scores[1]


def test_other_pieces_than_the_checkpoint_has_are_refused(checkpoint, extended):
    data = DataArguments(extend_vocabulary=60)
    same = Extension(AutoTokenizer.from_pretrained(checkpoint), Documents([CORPUS], [1.0], None), data)
    other = Extension(AutoTokenizer.from_pretrained(checkpoint), Documents([CORPUS[:20]], [1.0], None), data)
    with pytest.raises(ValueError, match="`extend_vocabulary` finds other pieces than"):
        other.check_checkpoint(str(extended))
    assert same.notes() == {"new_pieces": 60}, "no text is held out"


@pytest.mark.parametrize("objective", ["span", "wwm", "ngram", "unilm"])
def test_every_objective_of_encoders_takes_new_pieces(checkpoint, text, tmp_path, objective):
    assert main(job(checkpoint, text, tmp_path, objective=objective, max_steps=1, max_train_rows=24)) == 0
    found = read_metrics(tmp_path)
    assert found["new_pieces"] == 60
    assert found["eval_word_loss"] > 0


def test_electra_gives_them_to_its_generator_too(checkpoint, text, tmp_path):
    start = tmp_path / "electra"
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    ElectraForPreTraining(ElectraConfig(vocab_size=len(tokenizer), embedding_size=16, **SIZES)).save_pretrained(start)
    tokenizer.save_pretrained(start)
    assert main(job(start, text, tmp_path / "out", objective="electra", max_steps=1, max_train_rows=24)) == 0
    assert read_metrics(tmp_path / "out")["new_pieces"] == 60
    for folder in (tmp_path / "out", tmp_path / "out" / "generator"):
        assert AutoConfig.from_pretrained(folder).vocab_size == len(tokenizer) + 60


def test_streams_learn_pieces_too(checkpoint, text, tmp_path):
    assert main(job(checkpoint, text, tmp_path, streaming=True, max_train_rows=None)) == 0
    assert read_metrics(tmp_path)["new_pieces"] == 60


@pytest.mark.parametrize(
    "words", [["--corpus", "en"], ["--model_name_or_path", "BERT", "--train_tokenizer", "true", "--corpus", "en"]]
)
def test_a_vocabulary_of_its_own_is_not_extended(words, capsys):
    assert main(["pretrain", *words, "--extend_vocabulary", "100"]) == 2
    assert "`extend_vocabulary` = 100 adds pieces to the tokenizer of a checkpoint" in capsys.readouterr().err


@pytest.mark.slow
def test_new_pieces_are_learnt_and_pay(tmp_path):
    """On real text: the loss per word falls, and further than with the old pieces in the same number of updates."""
    base, found, text = tmp_path / "base", {}, embedded_corpus_path("en")
    common = {"train_file": text, "max_seq_length": 64, "per_device_train_batch_size": 16, "learning_rate": 2e-3}
    common |= {"max_train_rows": None, "max_eval_rows": 200, "save_steps": 1000, "dropout": 0}
    sizes = "hidden_size=64,num_hidden_layers=2,num_attention_heads=2,intermediate_size=128"
    start = {"objective": "mlm", "family": "nezha", "vocab_size": 300, "config_overrides": sizes, "max_steps": 100}
    assert main(["pretrain", *flags(**{**common, **start, "output_dir": base})]) == 0
    for pieces in (0, 600):
        folder = tmp_path / str(pieces)
        assert main(job(base, text, folder, **{**common, "extend_vocabulary": pieces, "max_steps": 120})) == 0
        found[pieces] = read_metrics(folder)
    assert found[600]["tokens_per_word"] < 0.8 * found[0]["tokens_per_word"]
    assert found[600]["eval_word_loss"] < found[600]["extended_word_loss"] - 0.2
    assert found[600]["eval_word_loss"] < found[0]["eval_word_loss"] - 0.2


def test_a_new_vocabulary_keeps_the_rows_of_known_pieces(checkpoint, text, tmp_path):
    """`--transfer_vocabulary`, of a masked language model whose head is tied."""
    words = job(checkpoint, text, tmp_path / "new", extend_vocabulary=None, transfer_vocabulary=True, max_steps=1)
    assert main([*words, "--vocab_size", "500", "--learning_rate", "0"]) == 0
    old, new = (AutoTokenizer.from_pretrained(folder).get_vocab() for folder in (checkpoint, tmp_path / "new"))
    before, after = (AutoModelForMaskedLM.from_pretrained(folder) for folder in (checkpoint, tmp_path / "new"))
    rows, table = (model.get_input_embeddings().weight for model in (after, before))
    assert len(new) == len(rows) == len(after.cls.predictions.bias) > len(old)
    assert after.get_output_embeddings().weight is rows
    for piece, number in new.items():
        expected = table[old[piece]] if piece in old else table.mean(0)
        torch.testing.assert_close(rows[number], expected)
    results = read_metrics(tmp_path / "new")
    assert (results["vocabulary"], results["new_tokens"]) == (len(new), len(new.keys() - old.keys()))


@pytest.mark.parametrize("more", [{}, {"extend_vocabulary": None, "transfer_vocabulary": True}])
def test_more_seeds_go_on_from_a_checkpoint_that_was_moved(checkpoint, text, tmp_path, more):
    given = {"max_steps": 1, "save_steps": 10, "max_eval_rows": 4, **more}
    assert main(job(checkpoint, text, tmp_path / "out", seeds=0, **given)) == 0
    shutil.copytree(checkpoint, tmp_path / "moved")
    again = {**given, "seeds": [0, 1], "resume_from_checkpoint": "auto"}
    assert main(job(tmp_path / "moved", text, tmp_path / "out", **again)) == 0
