"""Help that one can read, spellings that are forgiven, and mistakes that are answered with what was meant."""

import shlex

import pytest

from hf_ptm_ext import cli
from hf_ptm_ext.cli.help import EXAMPLES
from hf_ptm_ext.cli.pretraining import OBJECTIVES
from hf_ptm_ext.cli.recipes import jobs_of_recipes
from tests.test_docs import PARSERS, parse_command

JOBS = cli.RAW


def printed(capsys, *words):
    with pytest.raises(SystemExit) as end:
        cli.main(list(words))
    assert not end.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("job", JOBS)
def test_help_fits_on_two_screens_and_has_groups_recipes_and_examples(capsys, job):
    text = printed(capsys, job, "--help")
    assert len(text.splitlines()) <= 120
    assert "Recipes: " in text
    assert text.count("\n  hf-ptm-ext ") == 3
    assert "--seed " not in text  # transformers' own
    assert ("--seed " in printed(capsys, job, "--help-all")) == (job != "stages")


@pytest.mark.parametrize(("task", "flag"), [("triples", "--num_negatives"), ("extraction", "--doc_stride")])
@pytest.mark.parametrize("job", ["finetune", "adapt", "distill"])
def test_options_of_one_task_are_told_behind_it(capsys, job, task, flag):
    text = printed(capsys, job, "--help")
    assert flag not in text
    told = "options that are the own ones of one task: question-answering, extraction, triples"
    assert (told in " ".join(text.split())) == (job != "distill")  # which has none of them
    if job != "distill":
        assert flag in printed(capsys, job, "--task", task, "--help")
    assert flag in printed(capsys, job, "--help-all")


def test_options_of_one_objective_are_told_behind_it(capsys):
    assert "--mass_variant" not in printed(capsys, "pretrain", "--help")
    assert "options that are the own ones of one objective: span, " in " ".join(
        printed(capsys, "pretrain", "--help").split()
    )
    for objective in OBJECTIVES:
        text = printed(capsys, "pretrain", "--objective", objective, "--help")
        assert len(text.splitlines()) <= 120
    assert "--mass_variant summarization|" in printed(capsys, "pretrain", "--objective", "mass", "--help")


@pytest.mark.parametrize("example", [example for examples in EXAMPLES.values() for example in examples])
def test_examples_parse(example):
    if "my.yaml" not in example:
        parse_command(shlex.split(example))


def test_the_program_names_recipes_documentation_and_examples(capsys):
    text = " ".join(printed(capsys, "--help").split())
    assert all(word in text for word in ("recipes", "docs", "examples"))


def test_every_recipe_names_its_job_and_is_read_by_it():
    jobs = jobs_of_recipes()
    assert set(jobs.values()) == set(JOBS)
    assert set(PARSERS) <= set(JOBS)


def test_a_recipe_is_printed_to_be_copied(capsys):
    assert cli.main(["recipes", "quickstart"]) == 0
    assert capsys.readouterr().out.startswith("# A small SpanBERT")
    assert cli.main(["recipes"]) == 0
    assert "kbert_ner.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pretrain quickstrat.yaml", "Did you mean 'quickstart.yaml'?"),
        ("pretrain kbert_ner.yaml", "is a recipe of `hf-ptm-ext finetune`, not of `pretrain`"),
        ("pretrain --max_step 3", "Did you mean '--max_steps'?"),
        ("pretrain --config quickstart.yaml --learning-rat 3", "Did you mean '--learning_rate'?"),
        ("finetun bert_classification.yaml", "Did you mean 'finetune'?"),
        ("pretrain --objective spam", "`objective` must be one of span, mlm, wwm, ngram, macbert, unilm, "),
        ("pretrain --objective spam", "got 'spam'. Did you mean 'span'?"),
        ("pretrain --family spanbrt", "got 'spanbrt'. Did you mean 'spanbert'?"),
        ("finetune-seq2seq --family bartt --train_file a", "Did you mean 'bart'?"),
        ("finetune --lr_scheduler_type linaer", "Did you mean 'linear'?"),
        (
            'adapt --methods ["lora","huolsby"]',
            "must be one of houlsby, pfeiffer, lora, full, got 'huolsby'.",
        ),
        ("convert spanbert a b --encodr c", "Did you mean '--encoder'?"),
        ("show mask", "Did you mean 'masks'?"),
        ("systems spanbrt", "Did you mean 'spanbert'?"),
    ],
)
def test_what_was_meant_is_named(capsys, words, message):
    assert cli.main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_closed_sets_are_choices_that_the_help_shows(capsys):
    assert "--task classification|tagging|question-answering|extraction|regression" in printed(
        capsys, "finetune", "--help"
    )
    assert "--methods houlsby|pfeiffer|lora|full ..." in printed(capsys, "adapt", "--help")
    assert f"--objective {'|'.join(OBJECTIVES)}\n" in printed(capsys, "pretrain", "--help")


def test_help_of_convert_shows_the_options_of_the_family_that_is_named(capsys):
    own = {"kbert": "--reference_parity", "mass": "--codes", "k_adapter": "--encoder", "spanbert": None, None: None}
    for family, flag in own.items():
        text = printed(capsys, "convert", *([family] if family else []), "--help")
        assert [one for one in own.values() if one and one in text] == ([flag] if flag else [])
        assert "--vocab" in text


def test_kebab_case_and_config_are_understood_everywhere():
    parsed = parse_command(["pretrain", "--config", "quickstart.yaml", "--max-seq-length", "32"])
    assert parsed[1].max_seq_length == 32
    assert parsed[2].objective == "span"
    assert parse_command(["convert", "kbert", "a.bin", "b", "--to-original"]).to_original
    assert cli.in_snake_case("--tasks.my-task.train-file=a-b") == "--tasks.my-task.train_file=a-b"


def test_the_environment_is_told(capsys):
    assert cli.main(["env"]) == 0
    assert "transformers" in capsys.readouterr().out
