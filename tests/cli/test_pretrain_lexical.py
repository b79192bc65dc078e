"""`hf-ptm-ext pretrain` with a lexicon: the plain model and what lies beside it, measured terms, recipes, refusals."""

from pathlib import Path

import numpy as np
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


@pytest.fixture
def relations(tmp_path):
    """Related words of the embedded corpus, and vectors of all but one."""
    words = ["house", "home", "man", "woman", "sea", "ocean", "ship", "boat"]
    words += ["night", "dark", "day", "light", "old", "ancient", "small", "little"]
    pairs = [f"en_{first} en_{second}" for first, second in zip(words[::2], words[1::2], strict=True)]
    (tmp_path / "pairs.txt").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    rows = np.random.default_rng(0).normal(size=(len(words), 5))
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words[1:], rows[1:], strict=True)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"lexical_constraints": tmp_path / "pairs.txt", "word_vectors": tmp_path / "vectors.txt"}


@pytest.mark.parametrize("recipe", [True, False])
def test_related_words_take_turns_with_text(recipe, relations, tmp_path, caplog):
    words = ["pretrain", "libert.yaml"] if recipe else ["pretrain"]
    kind = {} if recipe else {"objective": "libert", "corpus": "en", "family": "roberta"}
    asked = {**relations, "vocab_size": 1000, "max_seq_length": 64, "max_eval_rows": 32, "validation_fraction": 0.25}
    assert main([*words, *flags(output_dir=tmp_path / "out", **asked, **kind)]) == 0
    metrics = read_metrics(tmp_path / "out")
    assert metrics["eval_relation_targets"] > 2  # two pairs, and what is near
    assert metrics["baseline_relation_loss"] < 2
    assert ("eval_nsp_loss" in metrics) == recipe
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == ("BertForMaskedLM" if recipe else "RobertaForMaskedLM")
    assert (tmp_path / "out" / AUXILIARY_FILE).is_file()
    validate_model_card(tmp_path / "out")
    more = {**relations, "config_overrides": None, "vocab_size": None, "model_name_or_path": tmp_path / "out"}
    more |= {"objective": "libert", "max_seq_length": 64} | ({"sentence_pairs": "next"} if recipe else {})
    assert main(["pretrain", *flags(output_dir=tmp_path / "more", **more)]) == 0
    assert "Parameters go on beside" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "libert"}, "`lexical_constraints` must be named for objective libert"),
        ({"objective": "libert", "lexical_constraints": WORDS}, "`word_vectors` must be named for objective libert"),
        (
            {"objective": "libert", "lexical_constraints": WORDS, "word_vectors": WORDS[0], "sentence_pairs": "order"},
            "`sentence_pairs` = order is none of objective libert",
        ),
        (
            {"objective": "libert", "lexical_constraints": WORDS, "word_vectors": WORDS[0], "streaming": True},
            "takes turns with pairs of words: set streaming off",
        ),
        ({"objective": "sentilare"}, "`opinion_words` must name two files"),
        ({"objective": "sentilare", "opinion_words": WORDS[:1]}, "`opinion_words` must name two files"),
        ({"objective": "sentilare", "sentiwordnet": WORDS[0]}, "set --tagger nltk"),
        ({"objective": "sensebert"}, "`supersenses` must name WordNet's folder"),
        ({"objective": "sensebert", "supersenses": WORDNET, "supersense_vocab": WORDS[0]}, "must be among"),
        ({"objective": "sensebert", "supersenses": "nowhere"}, "`supersenses` = nowhere is no file here"),
        ({"objective": "mlm", "supersenses": WORDNET}, "`supersenses` goes with objective sensebert, got "),
        (
            {"objective": "sensebert", "supersenses": WORDNET, "family": "spanbert", "pack_rows": True},
            "`pack_rows` must be off with objective sensebert, got True",
        ),
        ({"objective": "wwm", "sample_alpha": 0.5}, "`sample_alpha` goes with objective mlm, infoword, tlm, unicoder"),
        (
            {"objective": "sentilare", "opinion_words": [WORDNET / "noun.exc", WORDS[0]], "corpus": "zh"},
            "none of its w",
        ),
    ],
)
def test_lexicons_that_are_missing_or_do_not_fit_are_refused(options, message, tmp_path, capsys):
    assert main(["pretrain", *flags(output_dir=tmp_path / "no", **options)]) != 0
    assert message in capsys.readouterr().err
