"""Where runs begin in packed rows and sentence trees, in operations that other runtimes have too."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_ptm_ext
from hf_ptm_ext.models.inputs_core import position_ids_of, run_starts, sequence_bounds, visible_function
from hf_ptm_ext.models.mask_contract_core import FLEX_BLOCK, packed_flex_mask
from hf_ptm_ext.models.modes_unilm import index_in_sequence
from tests.conformance.flash_kernels import FLASH, use_flash_kernels

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
IDS = torch.arange(5, 29).view(2, 12)
PACKED = {"sequence_ids": torch.tensor([[1] * 4 + [2] * 5 + [3] * 3, [1] * 7 + [2] * 3 + [0] * 2]), "num_sequences": 3}
TREE = {
    "word_index": torch.tensor([[0, 1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 1, 2, 3, 3, 4, 5, 6, 7, -1, -1]]),
    "branch_id": torch.tensor([[0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, -1, -1]]),
}
NGRAMS = {
    "ngram_ids": torch.tensor([[1, 2], [3, 0]]),
    "ngram_positions": torch.tensor([[1, 5], [0, 0]]),
    "ngram_lengths": torch.tensor([[2, 2], [2, 0]]),
}
INPUTS = {
    "SpanBert": PACKED,
    "UniLM": PACKED,
    "Zen": {**PACKED, **NGRAMS},
    "ErnieThu": PACKED,
    "IBBert": PACKED,
    "KBert": {**PACKED, **TREE},
}
OPTIONS = {
    "Zen": {"ngram_vocab_size": 20},
    "IBBert": {"embedding_size": 8, "intra_bottleneck_size": 8, "num_feedforward_networks": 1},
}
ROWS = st.integers(1, 9).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=1, max_size=3)
)


def in_run(row):
    counts = [0]
    for before, own in pairwise(row):
        counts.append(counts[-1] + 1 if own == before else 0)
    return counts


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_each_sequence_counts_from_nought(rows):
    ids = torch.tensor(rows)
    expected = []
    for row in rows:
        expected.append([count if own else 0 for count, own in zip(in_run(row), row, strict=True)])
    assert position_ids_of(ids.shape, ids.device, sequence_ids=ids).tolist() == expected
    assert index_in_sequence(ids.shape, ids.device, ids=ids).tolist() == expected
    begins = [[place - count for place, count in enumerate(in_run(row))] for row in rows]
    assert run_starts(ids).tolist() == begins


def packed_ids(generator, rows, width):
    """Sequences of 1 to 300 tokens, and padding behind them."""
    ids = torch.zeros(rows, width, dtype=torch.long)
    for row in ids:
        at, behind = 0, width - int(torch.randint(200, (), generator=generator))
        for number in range(1, width):
            size = int(torch.randint(1, 300, (), generator=generator))
            row[at : min(at + size, behind)] = number
            at += size
    return ids


@pytest.mark.parametrize("width", [FLEX_BLOCK, 4 * FLEX_BLOCK, 700])
def test_blocks_of_packed_rows_cover_what_is_visible_and_ask_for_no_pair_before(width):
    ids = packed_ids(torch.Generator().manual_seed(width), 3, width)
    seen = torch.zeros(3, width, width, dtype=torch.bool)
    mask = packed_flex_mask(lambda *_: pytest.fail("asked for all pairs"), ids)
    assert mask.seq_lengths == (width, width)
    for counts, blocks, whole in (
        (mask.kv_num_blocks, mask.kv_indices, False),
        (mask.full_kv_num_blocks, mask.full_kv_indices, True),
    ):
        for row, query in torch.cartesian_prod(torch.arange(3), torch.arange(counts.shape[-1])).tolist():
            for key in blocks[row, 0, query, : counts[row, 0, query]].tolist():
                at = (row, *(slice(place * FLEX_BLOCK, (place + 1) * FLEX_BLOCK) for place in (query, key)))
                assert not seen[at].any(), "a block is listed once"
                same = ids[row, at[1], None] == ids[row, None, at[2]]
                assert same.any()
                assert same.all() == whole
                seen[at] = same
    rows, places = torch.arange(3)[:, None, None], torch.arange(width)
    assert torch.equal(seen, visible_function(None, ids)(rows, 0, places[None, :, None], places[None, None]))


def test_bounds_are_the_first_tokens_of_all_runs_of_all_rows_and_of_few_sizes():
    bounds = sequence_bounds(torch.tensor([[1, 1, 2, 0], [1, 1, 1, 1], [1, 2, 3, 3]]))
    assert bounds.offsets.dtype == torch.int32
    assert bounds.offsets.tolist() == [0, 2, 3, 4, 8, 9, 10, 12, 12]
    assert bounds.longest == 128
    sizes = set()
    for number in range(20):
        bounds = sequence_bounds(packed_ids(torch.Generator().manual_seed(number), 4, 1024))
        assert bounds.longest >= bounds.offsets.diff().max() > bounds.longest - 128
        sizes.add((len(bounds.offsets), bounds.longest))
    assert len(sizes) <= 4


@pytest.mark.slow
def test_flash_attention_of_packed_rows_is_compiled_for_few_sizes(monkeypatch):
    use_flash_kernels(monkeypatch)
    torch._dynamo.reset()
    torch.manual_seed(0)
    sizes = {**SIZES, "max_position_embeddings": 300, "num_hidden_layers": 2}
    sdpa, flash = (
        hf_ptm_ext.SpanBertModel(hf_ptm_ext.SpanBertConfig(**sizes, attn_implementation=name)).eval()
        for name in ("sdpa", FLASH)
    )
    flash.load_state_dict(sdpa.state_dict())
    compiled = torch.compile(flash, dynamic=False, backend="eager")
    graphs = []
    for number in range(6):
        rows = {"sequence_ids": packed_ids(torch.Generator().manual_seed(number), 4, 512)}
        rows |= {"input_ids": torch.randint(5, 50, (4, 512)), "num_sequences": 40}
        torch.testing.assert_close(
            compiled(**rows).last_hidden_state, sdpa(**rows).last_hidden_state, atol=1e-5, rtol=0
        )
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert len(set(graphs)) <= 2, "of two or of three blocks at most"
    torch._dynamo.reset()


@pytest.mark.parametrize("family", INPUTS)
def test_packed_rows_and_trees_are_exported_without_what_onnx_lacks(family):
    torch.manual_seed(0)
    config = getattr(hf_ptm_ext, f"{family}Config")(**SIZES, **OPTIONS.get(family, {}))
    model = getattr(hf_ptm_ext, f"{family}Model")(config).eval()
    inputs = {"input_ids": IDS, **INPUTS[family]}
    exported = torch.export.export(model, (), inputs, strict=False)
    assert not [node for node in exported.graph.nodes if "cummax" in str(node.target)]
    with torch.no_grad():
        torch.testing.assert_close(
            exported.module()(**inputs)["last_hidden_state"], model(**inputs).last_hidden_state, atol=1e-6, rtol=0
        )
