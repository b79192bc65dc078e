"""Upstream's options read the output of UniLM and never its source, in every search; outputs asked for come back."""

import pytest
import torch
from transformers import (
    BertTokenizerFast,
    LogitsProcessor,
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
)

from hf_ptm_ext import UniLMConfig, UniLMForConditionalGeneration

PAD, UNK, CLS, SEP, MASK = range(5)
SOURCE = [CLS, 7, 8, 9, 7, 8, 10, SEP]
COPY = SOURCE[1:]
SEARCHES = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 1},
    "beams": {"num_beams": 3},
    "own search": {"search_beam_size": 3},
    "own greedy": {"search_beam_size": 1},
}


class WritesThis(LogitsProcessor):
    """Makes a text by far the likeliest; a caller's own processor, which sees the prompt too."""

    def __init__(self, text, prompt_length):
        self.text, self.prompt_length = text, prompt_length

    def __call__(self, input_ids, scores):
        place = input_ids.shape[1] - self.prompt_length
        assert input_ids[:, 0].eq(CLS).all()
        scores = scores.log_softmax(-1) - 100.0
        scores[:, self.text[min(place, len(self.text) - 1)]] += 100.0
        return scores


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = UniLMConfig(
        vocab_size=24,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        mask_token_id=MASK,
        eos_token_id=SEP,
    )
    return UniLMForConditionalGeneration._from_config(config, attn_implementation="eager").eval()


def written(model, search, text=COPY, more=(), **options):
    """What comes out of a model that would write `text`."""
    processors = LogitsProcessorList([WritesThis(text, len(SOURCE)), *more])
    arguments = {"max_new_tokens": 9, **SEARCHES[search], **options}
    ids = torch.tensor([SOURCE])
    row = model.generate(ids, logits_processor=processors, **arguments)[0, len(SOURCE) :].tolist()
    return row[: row.index(SEP) + 1] if SEP in row else row


@pytest.fixture(params=SEARCHES)
def search(request):
    return request.param


def test_words_of_the_source_may_be_copied(model, search):
    assert written(model, search) == COPY
    assert written(model, search, repetition_penalty=1000.0, text=[7, 8, 9, 10, SEP]) == [7, 8, 9, 10, SEP]
    assert written(model, search, no_repeat_ngram_size=3) == COPY
    assert written(model, search, more=[NoRepeatNGramLogitsProcessor(3)]) == COPY
    assert written(model, search, bad_words_ids=[[10, 7]], text=[7, SEP]) == [7, SEP]
    assert written(model, search, sequence_bias={(10, SEP, 7): -1000.0}, text=[7, SEP]) == [7, SEP]


def test_what_the_output_has_already_counts(model, search):
    twice = [7, 8, 7, 8, SEP]
    assert written(model, search, text=twice) == twice
    for options in ({"no_repeat_ngram_size": 2}, {"more": [NoRepeatNGramLogitsProcessor(2)]}):
        assert written(model, search, text=twice, **options)[:4] != twice[:4]
    assert written(model, search, text=[7, 8, 9, SEP], bad_words_ids=[[7, 8]])[:2] != [7, 8]
    assert written(model, search, text=[7, 8, 9, SEP], sequence_bias={(7, 8): -1000.0})[:2] != [7, 8]


def test_lengths_are_those_of_the_output(model, search):
    for options in ({"min_length": 5}, {"min_new_tokens": 5}, {"min_length": 2, "min_new_tokens": 5}):
        text = written(model, search, text=[7, SEP], **options)
        assert len(text) > 5
        assert SEP not in text[:5], options
    assert written(model, search, text=[7, 8, SEP], min_length=2) == [7, 8, SEP]
    assert written(model, search, text=[7], forced_eos_token_id=SEP, max_new_tokens=4) == [7, 7, 7, SEP]
    assert written(model, search, text=[7], exponential_decay_length_penalty=(3, 1e30))[:4] == [7, 7, 7, 7]


def test_beginnings_are_those_of_the_output(model, search):
    assert written(model, search, text=[7, 8, SEP], forced_bos_token_id=11) == [11, 8, SEP]
    text = written(model, search, text=[7, 7, SEP], begin_suppress_tokens=[7])
    assert text[0] != 7
    assert text[1] == 7
    text = written(model, search, text=[7, 7, SEP], forced_bos_token_id=11, begin_suppress_tokens=[7])
    assert text[0] == 11
    assert text[1] != 7
    seen = []
    allowed = written(model, search, prefix_allowed_tokens_fn=lambda row, ids: seen.append(ids.tolist()) or [12, SEP])
    assert set(allowed) <= {12, SEP}
    assert [] in seen
    assert not any(CLS in ids for ids in seen)


def test_each_text_of_a_batch_has_its_own_allowed_words(model, search):
    allowed = [[10, 11, SEP], [20, 21, SEP]]
    ids = torch.tensor([SOURCE, SOURCE])
    options = {"max_new_tokens": 5, "min_new_tokens": 3, **SEARCHES[search]}
    texts = model.generate(ids, prefix_allowed_tokens_fn=lambda row, _: allowed[row], **options)[:, len(SOURCE) :]
    for text, words in zip(texts.tolist(), allowed, strict=True):
        assert {*text} - {PAD} <= {*words}


def test_options_about_the_source_read_the_source(model, search):
    assert written(model, search, text=[7, 8, 9, SEP], encoder_no_repeat_ngram_size=2)[:2] != [7, 8]
    assert written(model, search, text=[8, 7, SEP], encoder_no_repeat_ngram_size=2) == [8, 7, SEP]


def test_a_stop_string_of_the_source_stops_nothing(model, search):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "abcdef", "y", *(f"w{number}" for number in range(7, 24))]
    tokenizer = BertTokenizerFast(vocab={token: number for number, token in enumerate(tokens)})
    stop = {"stop_strings": ["w7 w8"], "tokenizer": tokenizer}
    text = written(model, search, text=[9, 7, 8, 9, 10, SEP], **stop)
    assert [token for token in text if token != PAD] == [9, 7, 8]


def test_criteria_of_a_callers_own_see_all(model):
    class Sees(StoppingCriteria):
        def __call__(self, input_ids, scores, **kwargs):
            assert input_ids[:, : len(SOURCE)].tolist() == [SOURCE]
            return torch.tensor([input_ids.shape[1] == len(SOURCE) + 2])

    assert written(model, "greedy", stopping_criteria=StoppingCriteriaList([Sees()])) == COPY[:2]


@pytest.mark.parametrize("search", ["greedy", "sampling", "beams"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_attentions_and_hidden_states_come_back(model, search, use_cache):
    asked = {"output_attentions": True, "output_hidden_states": True, "return_dict_in_generate": True}
    ids = torch.tensor([SOURCE])
    output = model.generate(ids, max_new_tokens=4, min_new_tokens=4, use_cache=use_cache, **asked, **SEARCHES[search])
    rows = SEARCHES[search].get("num_beams", 1)
    for step, (weights, states) in enumerate(zip(output.attentions, output.hidden_states, strict=True)):
        keys = len(SOURCE) + step + 1  # the text and [MASK]
        fed = 2 if use_cache and step else keys
        assert [tuple(value.shape) for value in weights] == [(rows, 4, fed, keys)] * 2
        assert [tuple(value.shape) for value in states] == [(rows, fed, 32)] * 3
    assert len(output.attentions) == 4


def test_positions_that_generation_counts_itself_pass(model):
    ids = torch.tensor([[PAD, PAD, *SOURCE], [*SOURCE[:-1], 11, 12, SEP]])
    mask = (ids != PAD).long()
    for search in ({}, {"search_beam_size": 2}):
        expected = model.generate(ids, max_new_tokens=4, **search)
        for filler in (0, 1):  # what stands on padding says nothing
            positions = (mask.cumsum(1) - 1).masked_fill(mask == 0, filler)
            assert torch.equal(model.generate(ids, position_ids=positions, max_new_tokens=4, **search), expected)
    for wrong in (positions + 1, positions[:, 1:], torch.arange(10)[None]):
        with pytest.raises(ValueError, match="`position_ids` must count the real tokens"):
            model.generate(ids, position_ids=wrong, max_new_tokens=4)


def test_a_steps_inputs_hold_what_the_caller_asked_for(model):
    """Also without what `generate` adds, as generic code calls the hook."""
    asked = {"output_attentions": True, "output_hidden_states": True, "return_dict": True, "logits_to_keep": 0}
    inputs = model.prepare_inputs_for_generation(torch.tensor([SOURCE]), **asked, is_first_iteration=True)
    assert {name: inputs[name] for name in asked} == asked
    outputs = model(**inputs)
    assert outputs.logits.shape[1] == len(SOURCE) + 1  # and the [MASK]
    assert len(outputs.attentions) == len(outputs.hidden_states) - 1 == 2
    plain = model.generate(torch.tensor([SOURCE]), max_new_tokens=3)
    assert torch.equal(model.generate(torch.tensor([SOURCE]), max_new_tokens=3, logits_to_keep=0), plain)
