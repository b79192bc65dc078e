"""MASS's own beam search is fairseq's: against the golden, and against a plain search written from its description."""

import math

import pytest
import torch
from transformers import BertTokenizerFast, GenerationConfig

from hf_ptm_ext import MassConfig, MassForConditionalGeneration
from tests.models.mass.test_mass_golden import SEARCHES, close, golden, load  # noqa: F401
from tests.tolerance import assert_agrees

PAD, UNK, CLS, SEP = range(4)


@pytest.mark.golden
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_the_golden(golden, search, use_cache, padding):  # noqa: F811
    expected = golden[0]["generation"][search]
    params = expected["params"]
    source = golden[1]["finetune.src_tokens" if padding == "left" else "finetune.src_tokens_right_padded"]
    result = load(golden).generate(
        source,
        search_beam_size=params["beam_size"],
        num_return_sequences=params["beam_size"],
        length_penalty=params.get("len_penalty", 1.0),
        no_repeat_ngram_size=params.get("no_repeat_ngram_size", 0),
        max_new_tokens=params["max_len_b"] + 1,
        min_new_tokens=params["min_len"],
        use_cache=use_cache,
        return_dict_in_generate=True,
    )
    texts = [tokens for row in expected["nbest_tokens"] for tokens in row]
    assert [[token for token in row if token != PAD] for row in result.sequences[:, 1:].tolist()] == texts
    close(result.sequences_scores, [score for row in expected["nbest_scores"] for score in row], golden)


def model_of(seed, **fields):
    torch.manual_seed(seed)
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIZES.items()}
    special = {"bos_token_id": CLS, "eos_token_id": SEP, "decoder_start_token_id": SEP}
    config = MassConfig(
        vocab_size=16, d_model=32, init_std=0.5, max_position_embeddings=40, **sizes, **special, **fields
    )
    model = MassForConditionalGeneration(config).eval()
    with torch.no_grad():  # ends come early and late
        for name, value in model.named_parameters():
            if "norm" not in name:
                value.normal_(0, 0.45)
    return model


SIZES = {"layers": 1, "attention_heads": 4, "ffn_dim": 32}


def plain_search(model, source, beams, max_len, lenpen=1.0, min_len=1, unkpen=0.0, ngram=0):
    """One sentence, no cache, no batch: every beam is a list; all finished hypotheses, the first K of them."""
    live, finished, step = [(0.0, [SEP])], [], 0
    while len(finished) < beams and step <= max_len:
        candidates = []
        for total, text in live:
            with torch.no_grad():
                logits = model(source[None], decoder_input_ids=torch.tensor([text])).logits[0, -1]
            scores = logits.log_softmax(-1).tolist()
            scores[PAD] = -math.inf
            scores[UNK] -= unkpen
            if step == max_len:
                scores = [score if word == SEP else -math.inf for word, score in enumerate(scores)]
            if step < min_len:
                scores[SEP] = -math.inf
            for start in range(len(text) - ngram + 1 if ngram else 0):
                if text[start : start + ngram - 1] == text[len(text) - ngram + 1 :]:
                    scores[text[start + ngram - 1]] = -math.inf
            candidates += [(total + score, text, word) for word, score in enumerate(scores)]
        candidates = sorted(candidates, key=lambda one: -one[0])[: 2 * beams]
        for total, text, word in candidates[:beams]:
            if word == SEP and total > -math.inf and len(finished) < beams:
                finished.append((total / (step + 1) ** lenpen, [*text[1:], SEP]))
        live = [(total, [*text, word]) for total, text, word in candidates if word != SEP][:beams]
        step += 1
    return sorted(finished, key=lambda one: -one[0])


CASES = {
    "plain": {},
    "no length penalty": {"lenpen": 0.0},
    "long texts liked": {"lenpen": 2.0},
    "minimum": {"min_len": 5},
    "unknown words dear": {"unkpen": 3.0},
    "bigrams once": {"ngram": 2},
    "all": {"lenpen": 0.6, "min_len": 3, "unkpen": 1.0, "ngram": 3},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("beams", [1, 3, 5])
def test_every_hypothesis_of_a_plain_search(case, beams):
    options = {"lenpen": 1.0, "min_len": 1, "unkpen": 0.0, "ngram": 0, **CASES[case]}
    sources = [[5, 6, 7, 8, 9, SEP], [12, 11, SEP], [14, 5, 14, 5, 9, 10, 11, SEP]]
    width = max(map(len, sources))
    batch = torch.tensor([[PAD] * (width - len(source)) + source for source in sources])
    for seed in (0, 1):
        model = model_of(seed)
        result = model.generate(
            batch,
            search_beam_size=beams,
            num_return_sequences=beams,
            length_penalty=options["lenpen"],
            max_new_tokens=11,
            min_new_tokens=options["min_len"],
            no_repeat_ngram_size=options["ngram"],
            sequence_bias={(UNK,): -options["unkpen"]} if options["unkpen"] else None,
            return_dict_in_generate=True,
        )
        expected = [
            entry for source in sources for entry in plain_search(model, torch.tensor(source), beams, 10, **options)
        ]
        got = [[token for token in row if token != PAD] for row in result.sequences[:, 1:].tolist()]
        assert got == [tokens for _, tokens in expected], seed
        assert_agrees(result.sequences_scores, torch.tensor([score for score, _ in expected]), 1e-4)


def test_the_first_hypotheses_are_kept_where_upstream_keeps_the_best():
    differ = 0
    for seed in range(8):
        model, source = model_of(seed), torch.tensor([[5, 6, 7, 8, 9, SEP]])
        limits = {"max_new_tokens": 11, "min_new_tokens": 1, "num_return_sequences": 4, "suppress_tokens": [PAD]}
        own = model.generate(source, search_beam_size=4, **limits).tolist()
        stock = model.generate(source, num_beams=4, early_stopping=True, eos_at_limit=True, **limits).tolist()
        trimmed = [[[token for token in row if token != PAD] for row in rows] for rows in (own, stock)]
        differ += trimmed[0] != trimmed[1]
    assert differ


@pytest.mark.parametrize("search", [{}, {"num_beams": 2}, {"do_sample": True}, {"search_beam_size": 2}])
def test_stop_strings(search):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "abcdef", *(f"w{number}" for number in range(5, 16))]
    tokenizer = BertTokenizerFast(vocab={token: number for number, token in enumerate(tokens)})
    model = model_of(0)
    arguments = {"max_new_tokens": 6, "min_new_tokens": 6, "sequence_bias": {(7,): 100.0}, **search}
    output = model.generate(torch.tensor([[5, 6, SEP]]), stop_strings=["w7"], tokenizer=tokenizer, **arguments)
    assert output[0, :2].tolist() == [SEP, 7]
    assert set(output[0, 2:].tolist()) <= {SEP, PAD}


def test_a_tokenizers_zeros_and_its_own_arguments_pass():
    model, source = model_of(0), torch.tensor([[5, 6, SEP]])
    expected = model.generate(source, max_new_tokens=5)
    assert torch.equal(model.generate(source, token_type_ids=torch.zeros_like(source), max_new_tokens=5), expected)
    with pytest.raises(TypeError, match="`token_type_ids`"):
        model.generate(source, token_type_ids=torch.ones_like(source), max_new_tokens=5)


def test_a_minimum_that_leaves_no_room_for_the_end_gives_texts_all_the_same():
    output = model_of(0).generate(torch.tensor([[5, 6, SEP]]), search_beam_size=2, max_new_tokens=4, min_new_tokens=4)
    assert output.shape == (1, 5)
    assert output[0, [0, -1]].tolist() == [SEP, SEP]


@pytest.mark.parametrize("configured", [True, False])
def test_guidance_is_refused_by_its_name(configured):
    given = {"guidance_scale": 1.5}
    options = {"generation_config": GenerationConfig(max_new_tokens=3, **given)} if configured else given
    with pytest.raises(ValueError, match="`guidance_scale`"):
        model_of(0).generate(torch.tensor([[5, 6, SEP]]), **options)
    model_of(0).generate(torch.tensor([[5, 6, SEP]]), guidance_scale=1.0, max_new_tokens=3)
