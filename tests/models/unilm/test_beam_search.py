"""UniLM's own beam search is the reference's, token by token, and travels with the checkpoint."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSeq2SeqLM,
    BertTokenizerFast,
    LogitsProcessor,
    LogitsProcessorList,
    pipeline,
)

import hf_ptm_ext
from hf_ptm_ext import UniLMConfig, UniLMForConditionalGeneration
from hf_ptm_ext.conversion.unilm import convert_config, convert_state_dict
from hf_ptm_ext.models.beam_search_unilm import _best_hypotheses, unilm_beam_search
from hf_ptm_ext.models.custom_generate_unilm import generate as generate_of_checkpoint
from tests.models.unilm.plain_reference import beam_search, options
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
FACTS = json.loads((GOLDENS / "unilm-a.json").read_text(encoding="utf-8"))
SETTINGS = FACTS["generation"]
PAD, CLS, SEP, MASK = 0, 3, 4, 5


@pytest.fixture(scope="module")
def tensors():
    return load_file(GOLDENS / "unilm-a.safetensors")


def golden_model(tensors, attention):
    config = convert_config(FACTS["config"])
    config.mask_token_id, config.eos_token_id, config.pad_token_id = MASK, SEP, PAD
    original = {name.removeprefix("state."): value for name, value in tensors.items() if name.startswith("state.")}
    model = UniLMForConditionalGeneration._from_config(config, attn_implementation=attention)
    model.load_state_dict(convert_state_dict(original, config), strict=False)
    return model.eval()


def padded_left(ids):
    width = ids.shape[1]
    return torch.stack([row.roll(width - int((row != PAD).sum())) for row in ids])


def without_final_padding(row):
    row = list(row)
    while row and row[-1] == PAD:
        row.pop()
    return row


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.golden
def test_every_setting_of_the_golden(tensors, setting, attention, padding, use_cache):
    model, expected = golden_model(tensors, attention), SETTINGS[setting]
    ids = tensors["decode.input_ids"]
    ids = padded_left(ids) if padding == "left" else ids
    steps = len(SETTINGS["greedy"]["output_ids"][0])
    output = model.generate(
        ids,
        max_new_tokens=steps,
        use_cache=use_cache,
        custom_generate=unilm_beam_search,
        return_dict_in_generate=True,
        **expected["params"],
    )
    texts = [without_final_padding(row) for row in output.sequences[:, ids.shape[1] :].tolist()]
    assert output.sequences[:, : ids.shape[1]].equal(ids)
    reference = expected.get("pred_seq_padded", expected.get("output_ids"))
    assert texts == [without_final_padding(row) for row in reference]
    if "step_scores" in expected:
        scores = torch.tensor(expected["step_scores"])
        alive = scores > -1000
        got = output.step_scores
        assert got.shape == scores.shape
        assert_agrees(got[alive], scores[alive], 1e-3)
        assert output.step_tokens[alive].equal(torch.tensor(expected["step_word_ids"])[alive])
        assert output.step_back_pointers[alive].equal(torch.tensor(expected["step_back_pointers"])[alive])


def test_a_sequence_alone_gives_what_it_gives_in_a_batch(tensors):
    model, expected = golden_model(tensors, "sdpa"), SETTINGS["beam4_ngram3_lp0.6"]
    for row, reference in zip(tensors["decode.input_ids"], expected["pred_seq_padded"], strict=True):
        source = row[row != PAD][None]
        output = model.generate(source, max_new_tokens=20, custom_generate=unilm_beam_search, **expected["params"])
        assert output[0, source.shape[1] :].tolist() == without_final_padding(reference)


@pytest.mark.parametrize(
    ("scores", "words", "text"),
    [
        # Equal scores: the earlier step wins, then the lower beam.
        ([[-1.0, -2.0], [-1.0, -1.0]], [[SEP, 7], [SEP, 8]], [SEP]),
        ([[-3.0, -2.0], [-1.0, -1.0]], [[9, 7], [8, SEP]], [9, 8]),
        # Steps behind one in which every beam ended do not count.
        ([[-3.0, -2.0], [-1.0, -1.0]], [[SEP, SEP], [8, SEP]], [SEP]),
        # Beams that go on count in the last step only.
        ([[-0.5, -2.0], [-3.0, -4.0]], [[9, SEP], [8, 7]], [SEP]),
    ],
)
def test_the_final_choice(scores, words, text):
    pointers = torch.zeros(1, 2, 2, dtype=torch.long)
    texts, _ = _best_hypotheses(
        torch.tensor([scores]), torch.tensor([words]), pointers, torch.tensor([words]) == SEP, 0.0, greedy=False
    )
    assert texts == [text]


def test_one_beam_is_greedy_up_to_the_end_token():
    model = small_model()
    with torch.no_grad():
        model.cls.predictions.bias[SEP] += 6.0
    sources = torch.tensor([[CLS, 7, 8, SEP], [CLS, 9, 10, SEP], [CLS, 20, 21, SEP]])
    ours = model.generate(sources, max_new_tokens=9, custom_generate=unilm_beam_search)
    assert ours.tolist() == model.generate(sources, max_new_tokens=9, do_sample=False).tolist()
    without = model.generate(sources, max_new_tokens=9, custom_generate=unilm_beam_search, not_predict=[SEP])
    assert SEP not in without[:, 4:]
    assert without.shape == (3, 13)


def small_model(seed=0, **fields):
    torch.manual_seed(seed)
    config = UniLMConfig(
        vocab_size=24,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.6,
        **{"mask_token_id": MASK, "eos_token_id": SEP, "pad_token_id": PAD, **fields},
    )
    return UniLMForConditionalGeneration(config).eval()


class CopiesTheSource(LogitsProcessor):
    """Makes the word of the source that stands where the output has got to far more likely."""

    def __init__(self, source_length, bonus):
        self.source_length, self.bonus = source_length, bonus

    def __call__(self, input_ids, scores):
        place = input_ids.shape[1] - self.source_length
        scores = scores.clone()
        if 1 + place < self.source_length:
            rows = torch.arange(len(scores))
            scores[rows, input_ids[:, 1 + place]] += self.bonus
        return scores


CASES = {
    "plain": {},
    "length penalty": {"alpha": 1.0},
    "bigrams": {"forbid": True, "n": 2},
    "bigrams, some exempt": {"forbid": True, "n": 2, "exempt": (7, 8, 9, 10, 11)},
    "words": {"forbid": True, "n": 1},
    "minimum": {"min_len": 6},
    "forbidden words": {"not_predict": (12, 13, 14)},
    "all": {"alpha": 0.6, "forbid": True, "min_len": 3, "exempt": (9,), "not_predict": (12, PAD)},
}


@pytest.mark.parametrize("beams", [2, 5])
@pytest.mark.parametrize("case", CASES)
def test_a_slow_implementation_agrees(case, beams):
    sources = [[CLS, 7, 8, 9, 10, 11, SEP], [CLS, SEP], [CLS, 20, 21, SEP]]
    width = max(len(source) for source in sources)
    ids = torch.tensor([[PAD] * (width - len(source)) + source for source in sources])
    ended = alive = 0
    for seed in range(2):
        model = small_model(seed)
        with torch.no_grad():
            model.cls.predictions.bias[SEP] += 6.0
        output = model.generate(
            ids,
            attention_mask=torch.tensor([[0] * (width - len(source)) + [1] * len(source) for source in sources]),
            max_new_tokens=9,
            custom_generate=unilm_beam_search,
            search_beam_size=beams,
            return_dict_in_generate=True,
            **options(CASES[case]),
        )
        expected = [beam_search(model, source, 9, beams, **CASES[case]) for source in sources]
        longest = max(len(text) for text in expected)
        assert output.sequences[:, width:].tolist() == [text + [PAD] * (longest - len(text)) for text in expected]
        ended += int((output.step_tokens[:, :-1] == SEP).any(dim=-1).sum())
        alive += int((output.step_tokens[:, -1] != SEP).any(dim=-1).sum())
    assert ended > 2  # the rules about ended beams were at work
    assert alive > 0  # so were those about the last step


@pytest.mark.parametrize("use_cache", [True, False])
def test_blocking_sees_the_output_and_not_the_source(use_cache):
    model = small_model()
    source = [CLS, 7, 8, 9, 10, 7, 8, 11, 7, 8, 12, SEP]
    fresh = [CLS, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, SEP]
    processor, known = CopiesTheSource(len(source), 40.0), {}

    def run(case):
        return model.generate(
            torch.tensor([source, fresh]),
            max_new_tokens=11,
            use_cache=use_cache,
            custom_generate=unilm_beam_search,
            search_beam_size=5,
            logits_processor=LogitsProcessorList([processor]),
            **options(case),
        )[:, len(source) :].tolist()

    def slow(text, case):
        return beam_search(model, text, 11, 5, processor=processor, known=known, **case)

    for case in (
        {},
        {"forbid": True, "n": 3},
        {"forbid": True, "n": 2},
        {"forbid": True, "n": 2, "exempt": (8,)},
        {"forbid": True, "n": 2, "not_predict": (9,)},
    ):
        assert run(case) == [slow(source, case), slow(fresh, case)]
    copies = run({"forbid": True, "n": 3})
    assert copies == [source[1:], fresh[1:]]  # every trigram is the source's, none comes twice in the output
    assert run({"forbid": True, "n": 2})[0] != source[1:]  # "7 8" comes twice in the output
    assert run({"forbid": True, "n": 2})[1] == fresh[1:]
    assert run({"forbid": True, "n": 2, "exempt": (8,)})[0] == source[1:]
    assert 9 not in run({"not_predict": (9,)})[1]


def test_a_beam_in_left_to_right_mode_continues_the_text():
    model = small_model()
    prompt = torch.tensor([[CLS, 7, 8]])
    with_cache, without = (
        model.generate(
            prompt,
            lm_mode=1,
            max_new_tokens=6,
            use_cache=use_cache,
            custom_generate=unilm_beam_search,
            search_beam_size=4,
            min_len=6,
        )
        for use_cache in (True, False)
    )
    assert with_cache.tolist() == without.tolist()
    assert with_cache.shape == (1, 9)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"search_beam_size": 0}, "search_beam_size"),
        ({"search_beam_size": 25}, "search_beam_size"),
        ({"search_beam_size": 2, "length_penalty": -1.0}, "length_penalty"),
        ({"search_beam_size": 2, "min_len": -1}, "min_len"),
        ({"search_beam_size": 2, "ngram_size": 0}, "ngram_size"),
        ({"search_beam_size": 2, "not_predict": [24]}, "not_predict"),
        ({"search_beam_size": 2, "forbid_ignore_set": [-1]}, "forbid_ignore_set"),
        ({"search_beam_size": 2, "num_beams": 2}, "num_beams"),
        ({"search_beam_size": 2, "do_sample": True}, "do_sample"),
    ],
)
def test_what_cannot_be_is_refused(given, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        small_model().generate(
            torch.tensor([[CLS, 7, SEP]]), max_new_tokens=3, custom_generate=unilm_beam_search, **given
        )


def test_a_model_without_an_end_token_is_refused():
    with pytest.raises(ValueError, match="`eos_token_id`"):
        small_model(eos_token_id=None).generate(
            torch.tensor([[CLS, 7, SEP]]), max_new_tokens=3, custom_generate=unilm_beam_search, search_beam_size=2
        )


def test_an_option_without_a_beam_size_is_refused():
    source = torch.tensor([[CLS, 7, SEP]])
    for call in (
        lambda: small_model().generate(source, max_new_tokens=3, min_len=2),
        lambda: small_model().generate(source, max_new_tokens=3, num_beams=2, not_predict=[7]),
        lambda: generate_of_checkpoint(source, model=small_model(), max_new_tokens=3, min_len=2),
    ):
        with pytest.raises(ValueError, match="needs `search_beam_size`"):
            call()


def test_every_way_of_asking_for_the_search(tmp_path):
    """An option is enough; so is the search's name; a checkpoint loaded without trusting its code has them too."""
    model, source = small_model(), torch.tensor([[CLS, 7, 8, 9, SEP]])
    options = {"max_new_tokens": 9, "length_penalty": 0.6, "min_len": 3}
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, trust_remote_code=False).eval()
    expected = model.generate(source, custom_generate=hf_ptm_ext.unilm_beam_search, search_beam_size=4, **options)
    for generator in (model, loaded):
        for asked in (
            {"search_beam_size": 4},
            {"search_beam_size": 4, "custom_generate": "unilm_beam_search"},
            {"search_beam_size": 4, "not_predict": None},
        ):
            assert generator.generate(source, **asked, **options).tolist() == expected.tolist()
    one_beam = model.generate(source, custom_generate=hf_ptm_ext.unilm_beam_search, not_predict=[7], **options)
    named = model.generate(source, custom_generate="unilm_beam_search", not_predict=[7], **options)
    assert named.tolist() == one_beam.tolist()


def test_the_search_in_a_pipeline():
    vocab = {token: number for number, token in enumerate(["[PAD]", "[UNK]", "unused", "[CLS]", "[SEP]", "[MASK]"])}
    vocab |= {f"w{number}": number for number in range(6, 24)}
    tokenizer = BertTokenizerFast(vocab=vocab, padding_side="left")
    model = small_model()
    generator = pipeline("text-generation", model, tokenizer=tokenizer, device="cpu")
    arguments = {"do_sample": False, "max_new_tokens": 9, "search_beam_size": 4}
    texts = ["w7 w8 w9 w10", "w20"]
    together = generator(texts, batch_size=2, return_tensors=True, **arguments)
    for text, answers in zip(texts, together, strict=True):
        expected = model.generate(**tokenizer(text, return_tensors="pt"), **arguments)[0].tolist()
        got = answers[0]["generated_token_ids"]
        assert without_final_padding([token for token in got if token != PAD]) == without_final_padding(expected)


def test_a_pushed_checkpoint_uploads_the_search(tmp_path):
    model = small_model()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "custom_generate" / "generate.py").is_file()
    assert "custom_generate" not in model._get_files_timestamps(tmp_path)  # counts as changed
