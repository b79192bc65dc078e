"""`hf-ptm-ext pretrain --objective mass|text_infilling|span_corruption|tlm`: folders that load, metrics, arguments."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.pretrain import parse
from hf_ptm_ext.hub import validate_model_card
from tests.cli.jobs import flags, read_metrics

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAIRS = FIXTURES / "xquad_pairs_240.jsonl"
BART_LIKE = "d_model=32,encoder_layers=1,decoder_layers=1,encoder_attention_heads=2,decoder_attention_heads=2"
BART_LIKE += ",encoder_ffn_dim=64,decoder_ffn_dim=64"
TINY = {
    "mass": BART_LIKE,
    "text_infilling": BART_LIKE,
    "span_corruption": "d_model=32,d_kv=16,d_ff=64,num_layers=1,num_heads=2",
    "tlm": "emb_dim=32,n_layers=1,n_heads=2",
    "unicoder": "emb_dim=32,n_layers=1,n_heads=2",
}
TERMS = {"mass": "mass", "text_infilling": "denoising", "span_corruption": "denoising", "tlm": "mlm"}
TERMS["unicoder"] = "mlm"
TRANSLATIONS = ("tlm", "unicoder")


def job(folder, objective, **options):
    """A job of a few updates; its metrics."""
    values = {"objective": objective, "config_overrides": TINY[objective], "output_dir": folder, **options}
    if objective in TRANSLATIONS:
        values = {"train_file": PAIRS, "languages": ["en", "zh"], **values}
    assert main(["pretrain", *flags(**values)]) == 0
    return read_metrics(folder)


@pytest.fixture(scope="module", params=TINY)
def finished(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("job") / f"tiny-{request.param}"
    return request.param, folder, job(folder, request.param)


def test_the_folder_loads_and_the_card_is_right(finished):
    objective, folder, _ = finished
    auto_class = AutoModelForMaskedLM if objective in TRANSLATIONS else AutoModelForSeq2SeqLM
    model = auto_class.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer)
    validate_model_card(folder / "README.md")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert auto_class.__name__ in card
    if objective not in TRANSLATIONS:
        inputs = tokenizer(["the people of the united states"], return_tensors="pt")
        text = model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=4)
        assert text.shape[0] == 1
        assert model.config.decoder_start_token_id == (
            tokenizer.pad_token_id if objective == "span_corruption" else tokenizer.sep_token_id
        )
    else:
        assert model.config.lang2id == {"en": 0, "zh": 1}
    if objective == "mass":
        assert tokenizer("the people")["input_ids"][-1] == tokenizer.sep_token_id
        assert tokenizer.cls_token_id not in tokenizer("the people")["input_ids"]
    if objective == "span_corruption":
        assert tokenizer.convert_tokens_to_ids("<extra_id_99>") == len(tokenizer) - 1


def test_metrics_stand_beside_a_baseline_of_the_same_targets(finished):
    objective, _, metrics = finished
    term = TERMS[objective]
    for prefix in ("before", "eval", "baseline"):
        assert metrics[f"{prefix}_{term}_loss"] > 0
        assert 0 <= metrics[f"{prefix}_{term}_accuracy"] <= 1
    # An untrained model is near the uniform distribution over its vocabulary; the unigram one is below that.
    assert metrics[f"baseline_{term}_loss"] < metrics[f"before_{term}_loss"]


def test_a_checkpoint_is_continued_under_its_own_class(finished, tmp_path):
    objective, folder, metrics = finished
    again = job(tmp_path / "out", objective, model_name_or_path=folder, config_overrides=None, vocab_size=None)
    term = TERMS[objective]
    assert again[f"before_{term}_loss"] == pytest.approx(metrics[f"eval_{term}_loss"], abs=0.35)


def test_a_stream_without_short_rows(tmp_path):
    text = tmp_path / "lines.txt"
    text.write_text("\n\n".join(["the light of the harbour", "a", "the keepers sleep"] * 40), encoding="utf-8")
    metrics = job(
        tmp_path / "out",
        "span_corruption",
        train_file=text,
        vocab_size=60,
        streaming=True,
        max_train_rows=None,
        max_steps=3,
    )
    assert metrics["eval_denoising_loss"] > 0


def test_aligned_files_and_compiled_shapes(tmp_path):
    """Two files line by line; the options reach the collator."""
    (tmp_path / "a.en").write_text("the light\nthe harbour\n" * 30, encoding="utf-8")
    (tmp_path / "a.de").write_text("das licht\nder hafen\n" * 30, encoding="utf-8")
    metrics = job(
        tmp_path / "out",
        "tlm",
        train_file=tmp_path / "a.en",
        target_train_file=tmp_path / "a.de",
        languages=["en", "de"],
        vocab_size=60,
    )
    assert metrics["eval_mlm_targets"] > 0


def test_losses_of_a_batch_do_not_depend_on_its_accumulation(tmp_path):
    """Rows of different length: 8 rows at once and 4 times 2 rows change the weights alike (case G07)."""
    weights = []
    for batch, accumulation in ((8, 1), (2, 4)):
        folder = tmp_path / f"{batch}"
        job(
            folder,
            "text_infilling",
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            max_steps=1,
            max_train_rows=8,
            lr_scheduler_type="constant",
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0,
            mask_ratio=0.0,
            permute_sentence_ratio=0.0,
            config_overrides=f"{BART_LIKE},dropout=0.0",
        )
        weights.append(AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict())
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "tlm"], "`languages` must be two languages"),
        (["--objective", "tlm", "--languages", "en", "zh"], "needs parallel text"),
        (["--objective", "tlm", "--languages", "en", "en", "--train_file", "x"], "`languages` must be two languages"),
        (["--objective", "mass", "--mass_variant", "bert"], "`mass_variant` must be one of"),
        (["--objective", "mass", "--pack_rows", "true"], "leave `pack_rows` out"),
        (["--objective", "mlm", "--target_train_file", "x"], "set --objective tlm"),
        (
            ["--objective", "tlm", "--languages", "en", "zh", "--train_file", "x", "--streaming", "true"],
            "reads all pairs at once",
        ),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    with pytest.raises(ValueError, match=message):
        parse(arguments)


def test_models_that_do_not_fit(tmp_path, capsys):
    arguments = flags(objective="mass", output_dir=tmp_path / "out", family="bart", config_overrides=BART_LIKE)
    assert main(["pretrain", *arguments]) == 2
    assert "`decoder_position_ids`, which BartForConditionalGeneration does not take" in capsys.readouterr().err
    arguments = flags(objective="text_infilling", output_dir=tmp_path / "out", family="bert", config_overrides=None)
    assert main(["pretrain", *arguments]) == 2
    assert "trains an encoder-decoder, got a bert model" in capsys.readouterr().err


def test_unicoder_measures_each_task_on_models_with_and_without_languages(tmp_path):
    tiny = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64"
    metrics = job(tmp_path / "bert", "unicoder", family="bert", config_overrides=tiny, recovery_loss_weight=2)
    terms = {"mlm": 1, "recovery": 2, "paraphrase": 1, "mixed": 1}
    total = sum(weight * metrics[f"eval_{term}_loss"] for term, weight in terms.items())
    assert metrics["eval_loss"] == pytest.approx(total, rel=1e-5)
    assert (tmp_path / "bert" / "auxiliary_heads.safetensors").is_file()
    metrics = job(tmp_path / "some", "unicoder", recovery_loss_weight=0, mixed_loss_weight=0)
    assert {name for name in terms if f"eval_{name}_loss" in metrics} == {"mlm", "paraphrase"}
