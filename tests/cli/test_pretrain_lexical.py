"""`hf-ptm-ext pretrain` with a lexicon: the plain model and what lies beside it, measured terms, recipes, refusals."""

from pathlib import Path

import pytest
from transformers import AutoModelForMaskedLM

from hf_ptm_ext.cli import main
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.trainers import LexicalInputModel, SentimentEmbeddings, SupersenseEmbeddings
from hf_ptm_ext.trainers.auxiliary import AUXILIARY_FILE
from tests.cli.jobs import flags, read_metrics

LEXICONS = Path(__file__).parents[1] / "fixtures" / "lexicons"
WORDNET = Path(__file__).parents[1] / "fixtures" / "wordnet" / "dict"
WORDS = [LEXICONS / "positive.txt", LEXICONS / "negative.txt"]
JOBS = {
    "sentilare": ({"opinion_words": WORDS}, "word_polarity", SentimentEmbeddings),
    "sensebert": ({"supersenses": LEXICONS / "supersenses.tsv"}, "supersense", SupersenseEmbeddings),
}


@pytest.mark.parametrize("name", JOBS)
def test_recipes_train_plain_models_and_what_lies_beside_them(name, tmp_path, caplog):
    options, term, tables = JOBS[name]
    asked = {**options, "vocab_size": 1000, "max_seq_length": None, "warmup_steps": 0, "max_eval_rows": 64}
    assert main(["pretrain", f"{name}.yaml", *flags(output_dir=tmp_path / "out", **asked)]) == 0
    metrics = read_metrics(tmp_path / "out")
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_mlm_loss"] + metrics[f"eval_{term}_loss"], rel=1e-4)
    assert metrics[f"before_{term}_targets"] > 0
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == "BertForMaskedLM"
    LexicalInputModel(model, tables.from_pretrained(tmp_path / "out"))
    assert (tmp_path / "out" / AUXILIARY_FILE).is_file()
    validate_model_card(tmp_path / "out")
    more = {**options, "config_overrides": None, "vocab_size": None, "model_name_or_path": tmp_path / "out"}
    assert main(["pretrain", *flags(output_dir=tmp_path / "more", objective=name, max_seq_length=64, **more)]) == 0
    assert "Parameters go on beside" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "sentilare"}, "`opinion_words` must name two files"),
        ({"objective": "sentilare", "opinion_words": WORDS[:1]}, "`opinion_words` must name two files"),
        ({"objective": "sentilare", "sentiwordnet": "a.txt"}, "set --tagger nltk"),
        ({"objective": "sensebert"}, "`supersenses` must name WordNet's folder"),
        ({"objective": "sensebert", "supersenses": WORDNET, "supersense_vocab": WORDS[0]}, "must be among"),
    ],
)
def test_lexicons_that_are_missing_or_do_not_fit_are_refused(options, message, tmp_path, capsys):
    assert main(["pretrain", *flags(output_dir=tmp_path / "no", **options)]) != 0
    assert message in capsys.readouterr().err
