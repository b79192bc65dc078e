"""What a job says of a checkpoint or tokenizer that is not where it was looked for."""

from types import SimpleNamespace

import pytest

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.checkpoint_names import check_names, load_tokenizer, tokenizer_of
from hf_ptm_ext.data import train_wordpiece


def model_args(**names):
    return SimpleNamespace(**{"tokenizer_name": None, "model_revision": "main", "trust_remote_code": False, **names})


@pytest.mark.parametrize("field", ["model_name_or_path", "tokenizer_name", "config_name"])
@pytest.mark.parametrize("name", ["/no/such", "./nowhere", "runs/of/mine"])
def test_a_folder_that_does_not_exist_is_named_with_its_argument(field, name):
    with pytest.raises(ValueError, match=f"`{field}` = {name} does not exist. Name the folder"):
        check_names(model_args(**{field: name}))


def test_a_file_is_no_checkpoint_but_may_be_a_config(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"is a file\. Name the folder that it is in.*convert"):
        check_names(model_args(model_name_or_path=str(path)))
    check_names(model_args(config_name=str(path)))


def test_names_of_the_hub_and_folders_pass(tmp_path):
    check_names(model_args(model_name_or_path="owner/name", tokenizer_name="name", config_name=str(tmp_path)))


def test_the_named_tokenizer_goes_before_the_models_own(tmp_path):
    for size in (60, 70):
        train_wordpiece([["the light of the lighthouse went out"] * 9], vocab_size=size).save_pretrained(
            tmp_path / str(size)
        )
    first, second = str(tmp_path / "60"), str(tmp_path / "70")
    assert load_tokenizer(model_args(model_name_or_path=first)).name_or_path == first
    assert load_tokenizer(model_args(model_name_or_path=first, tokenizer_name=second)).name_or_path == second


def test_a_folder_without_a_tokenizer_says_how_to_give_it_one(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "unilm"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"`model_name_or_path` = .* has no tokenizer\. Name another folder's by"):
        load_tokenizer(model_args(model_name_or_path=str(tmp_path)))


def test_what_is_neither_a_folder_nor_within_reach_is_said_to_be_both():
    with pytest.raises(ValueError, match="`model_name_or_path` = no-such-folder is no folder here, and as a repo"):
        load_tokenizer(model_args(model_name_or_path="no-such-folder"))


@pytest.mark.parametrize(
    "command",
    [
        ["pretrain", "--objective", "mass", "--corpus", "en"],
        ["finetune-seq2seq", "--train_file", "t.jsonl"],
        ["finetune", "--task", "classification", "--train_file", "t.jsonl", "--test_file", "t.jsonl"],
        ["finetune-relations", "--train_file", "t.jsonl", "--test_file", "t.jsonl"],
    ],
)
def test_every_job_looks_before_it_reads_anything(tmp_path, capsys, command):
    assert main([*command, "--model_name_or_path", "/no/such", "--output_dir", str(tmp_path / "out")]) == 2
    assert "`model_name_or_path` = /no/such does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["NaN", "1e400", r'"\ud800"'])
def test_what_a_tokenizers_config_could_not_be_saved_with_is_told_before_training(tmp_path, value):
    (tmp_path / "tokenizer_config.json").write_text(f'{{"more": {value}}}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json must be JSON"):
        tokenizer_of(str(tmp_path), "model_name_or_path")


def test_a_tokenizer_without_its_vocabulary_is_told_before_training(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"has no vocabulary: none of .*tokenizer\.json.* is a file there"):
        tokenizer_of(str(tmp_path), "model_name_or_path")
