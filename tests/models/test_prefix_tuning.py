"""PEFT's prefix tuning of the families that generate: trained, saved, loaded, and read in every search alike."""

import pytest
import torch
from peft import PeftModel, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers import DynamicCache, EncoderDecoderCache

from hf_ptm_ext import (
    MassConfig,
    MassForConditionalGeneration,
    MassNmtConfig,
    MassNmtForConditionalGeneration,
    UniLMConfig,
    UniLMForConditionalGeneration,
)
from tests.tolerance import assert_agrees

SIDES = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in
         (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))}  # fmt: skip
SPECIAL = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
FAMILIES = {
    "mass": (MassForConditionalGeneration, MassConfig(
        vocab_size=60, d_model=32, init_std=0.3, decoder_start_token_id=3, **SIDES, **SPECIAL)),
    "mass_nmt": (MassNmtForConditionalGeneration, MassNmtConfig(
        vocab_size=60, d_model=32, initializer_range=0.3, decoder_start_token_id=3, mask_token_id=4,
        **SIDES, **SPECIAL)),
    "unilm": (UniLMForConditionalGeneration, UniLMConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        initializer_range=0.3, mask_token_id=4, **SPECIAL)),
}  # fmt: skip
SOURCE = torch.tensor([[2, 7, 8, 9, 3], [0, 0, 2, 7, 3]])


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def adapted(family, seed=0, config=PrefixTuningConfig):
    torch.manual_seed(seed)
    cls, settings = FAMILIES[family]
    task = "CAUSAL_LM" if family == "unilm" else "SEQ_2_SEQ_LM"
    model = get_peft_model(cls(settings).eval(), config(task_type=task, num_virtual_tokens=4))
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.normal_()
    return model


def languages(family):
    return {"langs": torch.tensor([0, 0]), "decoder_langs": torch.tensor([1, 1])} if family == "mass_nmt" else {}


def written(model, family, **options):
    inputs = {"input_ids": SOURCE, "attention_mask": (SOURCE != 0).long(), **languages(family)}
    limits = {"max_new_tokens": 6, "min_new_tokens": 5, "do_sample": False}
    ids = model.generate(**inputs, **{**limits, **options})
    if options.get("return_dict_in_generate"):
        return ids
    return ids[:, SOURCE.shape[1] if family == "unilm" else 1 :]


def scores_of(model, family, text):
    """Log-probabilities `(rows, length, words)` of a text by one forward pass, as in training."""
    mask = (SOURCE != 0).long()
    if family != "unilm":
        fed = torch.cat([torch.full((2, 1), 3), text[:, :-1]], dim=1)
        return model(input_ids=SOURCE, attention_mask=mask, decoder_input_ids=fed, **languages(family)).logits
    logits = []
    for step in range(text.shape[1]):
        ids = torch.cat([SOURCE, text[:, :step], torch.full((2, 1), 4)], dim=1)
        seen = torch.nn.functional.pad(mask, (0, step + 1), value=1)
        outputs = model(input_ids=ids, attention_mask=seen, lm_mode=torch.tensor([3, 3]), source_lengths=mask.sum(1))
        logits.append(outputs.logits[:, -1])
    return torch.stack(logits, dim=1)


def steps_of(model, family, **options):
    """Logits `(rows, steps, words)` of greedy steps, and the text."""
    asked = {"return_dict_in_generate": True, "output_logits": True, "min_new_tokens": None}
    inputs = {"input_ids": SOURCE, "attention_mask": (SOURCE != 0).long(), **languages(family)}
    limits = {"max_new_tokens": 4, "eos_token_id": 59, "do_sample": False}
    output = model.generate(**inputs, **asked, **limits, **options)
    first = SOURCE.shape[1] if family == "unilm" else 1
    return torch.stack(output.logits, dim=1), output.sequences[:, first:]


def test_the_prefix_is_read_in_generation_as_in_training(family):
    model = adapted(family).eval()
    for search in ({}, {"use_cache": False}):
        logits, text = steps_of(model, family, **search)
        with torch.no_grad():
            assert_agrees(scores_of(model, family, text), logits, 1e-4)
        assert (steps_of(adapted(family, seed=1).eval(), family, **search)[0] - logits).abs().max() > 0.1


@pytest.mark.parametrize("search", [{"num_beams": 2}, {"search_beam_size": 2}])
def test_beams_read_the_prefix(family, search):
    """The score of a text is that of a forward pass with the prefix."""
    model = adapted(family).eval()
    output = written(model, family, return_dict_in_generate=True, output_scores=True, length_penalty=0.0, **search)
    text = output.sequences[:, SOURCE.shape[1] if family == "unilm" else 1 :]
    for row, score in enumerate(output.sequences_scores.tolist()):
        words = [word for word in text[row].tolist() if word not in (0, 1, 3)]
        with torch.no_grad():
            steps = scores_of(model, family, torch.tensor([words, words]))[row].log_softmax(-1)
        total = sum(steps[step, word].item() for step, word in enumerate(words))
        assert score <= total + 1e-3
        assert score > total - 12  # the end's own share at most


def test_a_prefix_is_trained_saved_and_loaded(family, tmp_path):
    model = adapted(family).eval()
    labels = torch.tensor([[9, 8, 3], [7, 3, -100]])
    batch = {"input_ids": SOURCE, "attention_mask": (SOURCE != 0).long(), "labels": labels, **languages(family)}
    if family == "unilm":
        target = torch.tensor([[4, 8, 4], [7, 4, 0]])
        batch["input_ids"] = torch.cat([SOURCE, target], dim=1)
        batch["attention_mask"] = (batch["input_ids"] != 0).long()
        batch["labels"] = torch.cat([torch.full_like(SOURCE, -100), torch.tensor([[9, -100, 3], [-100, 3, -100]])], 1)
        batch |= {"lm_mode": torch.tensor([3, 3]), "source_lengths": torch.tensor([5, 3])}
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.02)
    losses = []
    for _ in range(8):
        loss = model(**batch).loss
        loss.backward()
        assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in trained)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    model.eval()
    expected = written(model, family)
    model.save_pretrained(tmp_path / "prefix")
    model.get_base_model().save_pretrained(tmp_path / "base")
    loaded = PeftModel.from_pretrained(FAMILIES[family][0].from_pretrained(tmp_path / "base"), tmp_path / "prefix")
    assert torch.equal(written(loaded.eval(), family), expected)


def test_prompt_tuning_counts_its_tokens_or_is_refused(family):
    model = adapted(family, config=PromptTuningConfig).eval()
    if family == "unilm":
        with pytest.raises(ValueError, match="PrefixTuningConfig"):
            scores_of(model, family, torch.tensor([[7], [7]]))
        with pytest.raises(ValueError, match="PrefixTuningConfig"):
            written(model, family)
        return
    logits, text = steps_of(model, family)
    with torch.no_grad():
        assert_agrees(scores_of(model, family, text), logits, 1e-4)


def test_the_old_name_of_an_empty_cache(family):
    model = FAMILIES[family][0](FAMILIES[family][1]).eval()
    inputs = {"input_ids": SOURCE, **languages(family)}
    if family != "unilm":
        inputs["decoder_input_ids"] = torch.tensor([[3, 7], [3, 8]])
    caches = [
        DynamicCache() if family == "unilm" else EncoderDecoderCache(DynamicCache(), DynamicCache()) for _ in range(2)
    ]
    with torch.no_grad():
        expected = model(**inputs, cache=caches[0]).logits
        with pytest.warns(FutureWarning, match="past_key_values"):
            assert torch.equal(model(**inputs, past_key_values=caches[1]).logits, expected)
    assert caches[1].get_seq_length() == caches[0].get_seq_length() > 0
