"""UniLM on random inputs is what the plain implementation beside this file says, in every mode and decoding."""

from itertools import chain

import numpy as np
import pytest
import torch

from hf_ptm_ext import UniLMConfig, UniLMForConditionalGeneration, UniLMForPreTraining
from tests.models.unilm import plain_reference
from tests.models.unilm.plain_reference import SEQ2SEQ, beam_search, greedy_search, options
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden

PAD, CLS, SEP, MASK, WORDS = 0, 3, 4, 5, 24
TOLERANCE = 1e-12  # in double precision, where rounding decides nothing


def model_of(model_class, seed=0, attention="sdpa"):
    torch.manual_seed(seed)
    config = UniLMConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.4,
        mask_token_id=MASK,
        eos_token_id=SEP,
        pad_token_id=PAD,
    )
    model = model_class._from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and LayerNorms too
            parameter.add_(torch.randn(parameter.shape) * 0.05)
    return model


def random_sequences(rng, count):
    """Mode, source length, pseudo tokens and ids of sequences of odd lengths; some have no second segment."""
    sequences = []
    for _ in range(count):
        mode = int(rng.integers(4))
        source = int(rng.integers(1, 9))  # 1: [CLS] alone
        rest = int(rng.choice([0, 1, 2, 3, 7]))
        pseudo = rest if mode == SEQ2SEQ and rng.random() < 0.5 else 0
        ids = rng.integers(6, WORDS, source + rest + pseudo).tolist()
        sequences.append((mode, source, pseudo, ids))
    return sequences


def padded(rows, left):
    width = max(map(len, rows))
    fill = [[0] * (width - len(row)) for row in rows]
    return torch.tensor([gap + list(row) if left else list(row) + gap for row, gap in zip(rows, fill, strict=True)])


@pytest.mark.parametrize("layout", ["right", "left", "packed"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_logits_of_mixed_modes(layout, attention):
    rng = np.random.default_rng(0)
    model = model_of(UniLMForPreTraining, attention=attention).double()
    pseudo_seen = 0
    for _ in range(12):
        sequences = random_sequences(rng, 5)
        modes, sources, pseudo, rows = (list(values) for values in zip(*sequences, strict=True))
        columns = {"lm_mode": modes, "source_lengths": sources, "pseudo_lengths": pseudo}
        inputs = {name: torch.tensor(values) for name, values in columns.items()}
        if layout == "packed":
            gap = [0, 0]
            inputs = {name: values[None] for name, values in inputs.items()}
            inputs["input_ids"] = torch.tensor([[*chain(*rows), *gap]])
            inputs["sequence_ids"] = torch.tensor(
                [[*chain(*([n + 1] * len(row) for n, row in enumerate(rows))), *gap]]
            )
            got = model(**inputs).prediction_logits[0, :-2].split([len(row) for row in rows])
        else:
            inputs["input_ids"] = padded(rows, layout == "left")
            inputs["attention_mask"] = padded([[1] * len(row) for row in rows], layout == "left")
            logits = model(**inputs).prediction_logits
            got = [row[mask.bool()] for row, mask in zip(logits, inputs["attention_mask"], strict=True)]
        for (mode, source, count, ids), found in zip(sequences, got, strict=True):
            expected = plain_reference.logits(model, ids, mode, source, count)
            assert_agrees(found, expected, TOLERANCE, name=f"mode {mode}")
            pseudo_seen += count
    assert pseudo_seen > 9


def random_sources(rng):
    """Unequal sources, the smallest of one token, some with a [SEP] inside."""
    lengths = [1, 2, *rng.integers(3, 14, 2).tolist()]
    sources = [rng.choice([SEP, *range(6, WORDS)], length).tolist() for length in lengths]
    return [[CLS, *source[1:]] for source in sources]


def random_case(rng):
    """Options of a beam search."""
    case = {"alpha": float(rng.choice([0.0, 0.6, 1.0])), "min_len": int(rng.choice([0, 0, 4]))}
    if rng.random() < 0.6:
        case |= {"forbid": True, "n": int(rng.integers(1, 4))}
        case["exempt"] = tuple(rng.choice(np.arange(6, WORDS), int(rng.integers(3)), replace=False).tolist())
    case["not_predict"] = tuple(rng.choice(np.arange(6, WORDS), int(rng.integers(3)), replace=False).tolist())
    return case


@pytest.mark.parametrize("seed", range(3))
def test_decoding(seed):
    """Greedy and every kind of beam search, with and without cache, both paddings, sources of unequal length."""
    rng = np.random.default_rng(seed)
    model = model_of(UniLMForConditionalGeneration, seed, attention=("sdpa", "eager")[seed % 2]).double()
    with torch.no_grad():
        model.cls.predictions.bias[SEP] += float(rng.choice([2.0, 4.0]))
    lengths = set()
    for trial in range(4):
        sources, steps = random_sources(rng), int(rng.integers(1, 10))
        left, use_cache = bool(trial % 2), trial < 2
        inputs = {
            "input_ids": padded(sources, left),
            "attention_mask": padded([[1] * len(source) for source in sources], left),
            "max_new_tokens": steps,
            "use_cache": use_cache,
        }
        width = inputs["input_ids"].shape[1]
        case, beams = random_case(rng), int(rng.choice([2, 3, 5]))
        runs = {
            "greedy": ({"do_sample": False}, lambda s, steps=steps: greedy_search(model, s, steps)),
            "one beam": (
                {"search_beam_size": 1, "not_predict": case["not_predict"]},
                lambda s, steps=steps, case=case: greedy_search(model, s, steps, case["not_predict"]),
            ),
            "beams": (
                {"search_beam_size": beams, **options(case)},
                lambda s, steps=steps, case=case, beams=beams: beam_search(model, s, steps, beams, **case),
            ),
        }
        for name, (arguments, plainly) in runs.items():
            expected = [plainly(source) for source in sources]
            longest = max(map(len, expected))
            got = model.generate(**inputs, **arguments)[:, width:].tolist()
            assert got == [text + [PAD] * (longest - len(text)) for text in expected], (name, trial, beams, case)
            lengths |= {len(text) == steps for text in expected}
    assert lengths == {True, False}  # some end by themselves, others at the limit
