"""`pretrain --objective causal_lm`: a language model with a state, its tokenizer, resume and refusals."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_ptm_ext import AwdLstmForCausalLM
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.pretrain import Pretrain, parse
from hf_ptm_ext.cli.text_job import check_known
from hf_ptm_ext.files import read_json
from hf_ptm_ext.hub.fresh_process import fill_missing
from tests.trainers.runs import StopAfter

SIZES = "embedding_size=24,lstm_size=48,num_hidden_layers=2"
JOB = (
    "--objective causal_lm --corpus en --vocab_size 400 --max_seq_length 16 --variable_lengths true --use_cpu true "
    "--per_device_train_batch_size 8 --per_device_eval_batch_size 4 --max_eval_rows 20 --learning_rate 0.01 "
    f"--report_to none --logging_steps 10 --config_overrides {SIZES}"
)


def job(folder, *more):
    return main(["pretrain", *JOB.split(), "--output_dir", str(folder), *more])


def test_it_trains_a_language_model_that_loads(tmp_path):
    assert job(tmp_path / "lm", "--max_steps", "30", "--save_steps", "15") == 0
    results = read_json(tmp_path / "lm" / "all_results.json")
    assert results["eval_lm_loss"] < results["before_lm_loss"] - 0.5
    assert {"baseline_lm_loss", "eval_lm_accuracy"} <= results.keys()
    model = AwdLstmForCausalLM.from_pretrained(tmp_path / "lm")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "lm")
    assert tokenizer.bos_token_id == 2
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.pad_token_id == tokenizer.pad_token_id


def test_jobs_go_on_from_a_transformer_xl_with_clusters_of_words(tmp_path):
    begun = ("--family", "transfo_xl", "--variable_lengths", "false", "--config_overrides", TRANSFO_XL)
    assert job(tmp_path / "lm", *begun, "--max_steps", "2") == 0
    again = ("--model_name_or_path", str(tmp_path / "lm"), "--config_overrides", "mem_len=0", "--vocab_size", "8000")
    assert job(tmp_path / "again", *again, "--variable_lengths", "false", "--max_steps", "1") == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "again").config.mem_len == 0
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "a fine day\tgood\na cold night\tbad\n" * 4, encoding="utf-8")
    words = ["finetune", "--task", "classification", "--model_name_or_path", str(tmp_path / "lm"), "--max_steps", "1"]
    words += ["--train_file", str(rows), "--test_file", str(rows), "--output_dir", str(tmp_path / "classes")]
    assert main([*words, "--seeds", "0", "--max_seq_length", "16", "--use_cpu", "true"]) == 0


TRANSFO_XL = "d_model=32,n_layer=2,n_head=2,d_inner=64,mem_len=24,cutoffs=[20],div_val=2,initial_memory=empty"


def transfo_xl(folder, text, stop=None):
    """A Trainer of the job, and how long the memory before each of its batches is."""
    options = f"--family transfo_xl --train_file {text} --validation_fraction 0 --corpus null --variable_lengths false"
    options += (
        f" --max_steps 4 --save_steps 1 --config_overrides {TRANSFO_XL} --output_dir {folder} --disable_tqdm true"
    )
    job = Pretrain(*parse([*JOB.split(), *options.split()]))
    job.prepare()
    torch.manual_seed(0)
    trainer, _ = job.build("model", job.training_args)
    seen = []
    hook = lambda model, given, named: seen.append(0 if named.get("mems") is None else named["mems"][0].shape[0])  # noqa: E731
    trainer.model.register_forward_pre_hook(hook, with_kwargs=True)
    if stop:
        trainer.add_callback(StopAfter(stop))
    return trainer, seen


def test_transformer_xl_goes_on_from_its_memory_behind_a_checkpoint_too(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(["the light in the harbour was seen from the town"] * 60), encoding="utf-8")
    whole, seen = transfo_xl(tmp_path / "whole", text)
    whole.train()
    assert seen == [0, 16, 24, 24]
    transfo_xl(tmp_path / "parts", text, stop=2)[0].train()
    rest, seen = transfo_xl(tmp_path / "parts", text)
    rest.train(resume_from_checkpoint=True)
    assert seen == [24, 24]
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(rest.model.state_dict()[name], value, rtol=0, atol=0, msg=name)
    rest.save_model(tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer("the light", return_tensors="pt")
    assert tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]) == ["[CLS]", "the", "light"]
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == tokenizer.bos_token_id
    assert model.generate(**inputs, max_new_tokens=3, min_new_tokens=3).shape[1] == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--pack_rows true", "`pack_rows` must be off"),
        ("--max_train_rows 5", "`max_train_rows` is nothing of objective causal_lm"),
        ("--family gpt2 --config_overrides n_embd=32,n_head=2,n_layer=1", "trains models that carry a state"),
    ],
)
def test_what_has_no_place_is_refused(tmp_path, capsys, options, message):
    assert job(tmp_path, "--max_steps", "1", *options.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_what_it_learns_is_in_the_state(tmp_path):
    """Behind every x stands what follows the word before it, so a model that sees x alone cannot know."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["one x two x three x four x five x"] * 400), encoding="utf-8")
    options = "--corpus null --document_separator line --learning_rate 0.02 --max_steps 400 --max_seq_length 10"
    options += f" --train_file {text} --validation_file {text} --config_overrides"
    sizes = "embedding_size=24,lstm_size=48,num_hidden_layers=1,drop_mult=0.0,alpha=0.0,beta=0.0"
    assert job(tmp_path / "lm", *options.split(), sizes) == 0
    results = read_json(tmp_path / "lm" / "all_results.json")
    assert results["eval_lm_loss"] < 0.5 * results["baseline_lm_loss"]
    model = AwdLstmForCausalLM.from_pretrained(tmp_path / "lm").eval()
    ids = AutoTokenizer.from_pretrained(tmp_path / "lm")("one x two x three x four x", return_tensors="pt")[
        "input_ids"
    ]
    right, past = {True: 0, False: 0}, None
    for place in range(ids.shape[1] - 1):
        output = model(ids[:, place : place + 1], past_state=past)
        past, alone = output.past_state, model(ids[:, place : place + 1])
        for carried, found in ((True, output), (False, alone)):
            right[carried] += int(found.logits.argmax() == ids[0, place + 1])
    assert right[True] >= ids.shape[1] - 2
    assert right[False] <= right[True] - 2


def test_a_vocabulary_of_the_text_itself_is_not_told_to_be_trained(caplog):
    with caplog.at_level("WARNING"):
        check_known(0.4, "training ", trained=True)
    assert "cut Chinese text into words" in caplog.text
    assert "tokenizer_name" not in caplog.text


def test_verify_gives_new_normalisations_a_variance():
    norm = torch.nn.BatchNorm1d(64)
    fill_missing(norm, ["weight", "running_mean", "running_var", "num_batches_tracked"])
    assert norm.eval()(torch.randn(2, 64)).isfinite().all()


def test_a_checkpoint_takes_the_vocabulary_of_another_text(tmp_path):
    """ULMFiT's second stage with the target's own words: known ones keep their rows, others begin with the mean."""
    assert job(tmp_path / "lm", "--max_steps", "2") == 0
    before, old = AwdLstmForCausalLM.from_pretrained(tmp_path / "lm"), AutoTokenizer.from_pretrained(tmp_path / "lm")
    text = tmp_path / "target.txt"
    text.write_text("\n\n".join(["the zeugma of the light", "the light of a zeugma"] * 20), encoding="utf-8")
    words = JOB.split()
    del words[2:4], words[-2:]  # neither corpus nor sizes
    words += ["--model_name_or_path", str(tmp_path / "lm"), "--train_file", str(text), "--max_steps", "2"]
    words += ["--transfer_vocabulary", "true", "--output_dir", str(tmp_path / "target")]
    made = Pretrain(*parse(words))
    made.prepare()
    model = made.build("model", made.training_args)[0].model
    new = made.objective.tokenizer
    rows, bias = model.get_input_embeddings().weight, model.get_output_embeddings().bias
    assert len(rows) == len(bias) == len(new) == model.config.vocab_size != len(old)
    assert "zeugma" in new.get_vocab()
    assert "zeugma" not in old.get_vocab()
    for word, number in new.get_vocab().items():
        known, table = old.get_vocab().get(word), before.get_input_embeddings().weight
        assert torch.allclose(rows[number], table.mean(0) if known is None else table[known])
    assert main(["pretrain", *words]) == 0
    results = read_json(tmp_path / "target" / "all_results.json")
    added = new.get_vocab().keys() - old.get_vocab().keys()
    assert (results["vocabulary"], results["new_tokens"]) == (len(new), len(added))
    assert AutoTokenizer.from_pretrained(tmp_path / "target").get_vocab() == new.get_vocab()


def test_a_vocabulary_is_transferred_to_a_checkpoint_alone(tmp_path, capsys):
    assert job(tmp_path, "--transfer_vocabulary", "true") == 2
    assert "`transfer_vocabulary` gives a checkpoint another vocabulary: name `model_name" in capsys.readouterr().err
