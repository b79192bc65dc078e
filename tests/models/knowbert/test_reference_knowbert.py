"""KnowBERT reproduces the reference: the golden, and the formulas at other sizes, losses, places and bases."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.knowbert import convert_checkpoint, convert_config, revert_checkpoint, revert_state_dict
from hf_ptm_ext.models.modeling_knowbert import KnowBertForPreTraining
from tests.models.knowbert.reference import Reference
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"
TOLERANCE = 2e-5  # the golden's own


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "knowbert-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "knowbert-a.safetensors")
    state = {name.removeprefix("param."): value for name, value in tensors.items() if name.startswith("param.")}
    return facts, tensors, state


def loaded(converted, attention="sdpa"):
    model = KnowBertForPreTraining._from_config(converted.config, attn_implementation=attention)
    wrong = model.load_state_dict(converted.tensors, strict=False)
    assert not wrong.unexpected_keys
    assert set(wrong.missing_keys) <= set(model.all_tied_weights_keys)
    return model.eval()


def close(got, expected):
    assert_agrees(got, expected, TOLERANCE)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_the_golden(golden, attention):
    facts, tensors, state = golden
    assert facts["tolerance"]["atol"] == TOLERANCE
    model = loaded(convert_checkpoint(state, facts), attention)
    ids, wiki = tensors["input.tokens"], "input.wiki.candidate_"
    inputs = {"input_ids": ids, "attention_mask": ids > 0, "token_type_ids": tensors["input.segment_ids"]}
    inputs |= {"candidate_spans": tensors[f"{wiki}spans"], "candidate_entities": tensors[f"{wiki}entities"]}
    inputs |= {"candidate_priors": tensors[f"{wiki}entity_priors"]}
    labels = tensors["input.lm_labels"].masked_fill(tensors["input.lm_labels"] == 0, -100)
    found = model(
        **inputs,
        labels=labels,
        next_sentence_label=tensors["input.next_sentence_label"],
        gold_entities=tensors["input.wiki.gold_entities"],
    )
    encoded = model.bert(**inputs)
    close(found.loss, torch.tensor(facts["scalars"]["loss_total"]))
    close(found.linking_loss, torch.tensor(facts["scalars"]["loss_linking_sum"]))
    close(found.mlm_loss + found.nsp_loss, torch.tensor(facts["scalars"]["loss_mlm_plus_nsp"]))
    close(found.linking_scores, tensors["out.wiki.linking_scores"])
    close(found.prediction_logits, tensors["out.mlm_logits"])
    close(found.seq_relationship_logits, tensors["out.nsp_logits"])
    close(encoded.entity_attentions, tensors["out.wiki.entity_attention_probs"])
    close(encoded.last_hidden_state, tensors["out.contextual_embeddings"])
    close(encoded.pooler_output, tensors["out.pooled_output"])
    links = model.decode_links(found.linking_scores, inputs["candidate_spans"], inputs["candidate_entities"])
    assert [[row, [*span], entity] for row, span, entity in links["wiki"]] == facts["decoded_links"]["wiki"]


def test_the_golden_goes_back_to_its_own_names(golden):
    facts, _, state = golden
    converted = convert_checkpoint(state, facts)
    reverted, options = revert_checkpoint(converted.tensors, converted.config)
    assert reverted.keys() == state.keys()
    assert all(torch.equal(reverted[name], state[name]) for name in state)
    assert convert_config(options).to_dict() == converted.config.to_dict()


BASE = {"entity_vocab_size": 17, "entity_size": 8, "intermediate_size": 10, "linker_hidden_size": 7}
WORDNET = {**BASE, "linking_loss": "softmax", "part_of_speech_size": 3, "raw_entity_size": 5, "num_attention_heads": 2}
CASES = {
    "margin": {"wiki": {**BASE, "insert_after_layer": 0}},
    "softmax": {"wordnet": {**WORDNET, "insert_after_layer": 2}},
    "both": {
        "wiki": {**BASE, "insert_after_layer": 1, "num_hidden_layers": 2},
        "wordnet": {**WORDNET, "insert_after_layer": 2},
    },
    "other order, one layer": {
        "wordnet": {**WORDNET, "insert_after_layer": 1},
        "wiki": {**BASE, "insert_after_layer": 1},
    },
}


@pytest.mark.parametrize("form", ["stacked", "by name"])
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_any_number_of_bases_and_rows_without_candidates(case, form):
    bases = CASES[case]
    options = {"bert_config": {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}}
    options["bert_config"] |= {"intermediate_size": 20, "max_position_embeddings": 16}
    config = convert_config({**options["bert_config"], "knowledge_bases": bases})
    torch.manual_seed(1)
    made = KnowBertForPreTraining(config).state_dict()
    state = {
        n: v + 0.2 * torch.randn(v.shape) if v.is_floating_point() else torch.randint(9, v.shape)
        for n, v in made.items()
    }
    for name in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        state.pop(name)
    ids = torch.randint(1, 40, (3, 11))
    ids[1, 7:] = 0
    types = torch.randint(0, 2, ids.shape)
    candidates, gold = {}, {}
    for number, name in enumerate(bases):
        spans = torch.tensor([[[1, 2], [2, 2], [4, 10]], [[3, 6], [-1, -1], [-1, -1]], [[-1, -1]] * 3])
        rows = torch.randint(1, 17, (3, 3, 4)) * (torch.arange(4) < torch.tensor([[[4], [1], [2]]]) + 0)
        rows = rows * (spans[..., :1] >= 0)
        rows[0, 1] *= number  # a mention without candidates
        priors = (rows > 0) * torch.rand(rows.shape)
        candidates[name], gold[name] = (spans, rows, priors), rows[..., 0]
    reference = Reference(
        revert_state_dict(state, config),
        4,
        {
            n: (b["insert_after_layer"], b["linking_loss"], b["num_attention_heads"], 2)
            for n, b in config.knowledge_bases.items()
        },
    )
    states, scores, weights = reference.forward(ids, types, candidates)
    columns = {
        column: {name: one[place] for name, one in candidates.items()}
        for place, column in enumerate(("candidate_spans", "candidate_entities", "candidate_priors"))
    }
    columns["gold_entities"] = gold
    if form == "stacked":
        columns = {column: torch.stack(list(given.values()), 1) for column, given in columns.items()}
    model = KnowBertForPreTraining(config).eval()
    model.load_state_dict(state, strict=False)
    given = columns.pop("gold_entities")
    encoded = model.bert(ids, ids > 0, types, **columns)
    found = model(ids, ids > 0, types, **columns, gold_entities=given)
    real = (ids > 0)[..., None]
    close(encoded.last_hidden_state * real, states * real)
    for number, name in enumerate(bases):
        close(encoded.linking_scores[name] if form == "by name" else encoded.linking_scores[:, number], scores[name])
        close(
            encoded.entity_attentions[name]
            if isinstance(encoded.entity_attentions, dict)
            else encoded.entity_attentions[:, number],
            weights[name],
        )
    wanted = sum(reference.linking_loss(name, scores[name], candidates[name][1], gold[name]) for name in bases)
    close(found.linking_loss, wanted)


def test_an_archive_of_the_original_is_understood(golden):
    """AllenNLP's options: sizes are the weights' own."""
    _, _, state = golden
    linker = {
        "entity_embedding": {"embedding_dim": 16},
        "span_encoder_config": {"num_attention_heads": 4},
        "margin": 0.3,
    }
    soldered = {"wiki": {"entity_linker": linker}}
    model = {"type": "knowbert", "soldered_layers": {"wiki": 1}, "soldered_kgs": soldered}
    with pytest.raises(ValueError, match="num_attention_heads"):  # 32 is no width of BERT's
        convert_checkpoint(state, {"model": model})
    found = convert_checkpoint(state, {"model": model, "bert_config": {"num_attention_heads": 4}}).config
    wiki = found.knowledge_bases["wiki"]
    assert (wiki["entity_vocab_size"], wiki["entity_size"], wiki["margin"], found.num_hidden_layers) == (
        30,
        16,
        0.3,
        4,
    )
    damaged = {**state, "pooler.dense.bias": state["pooler.dense.bias"] + 1}
    with pytest.raises(ValueError, match=r"`pooler.dense.bias` differs from `pretrained_bert.bert.pooler.dense.bias`"):
        convert_checkpoint(damaged, {"model": model, "bert_config": {"num_attention_heads": 4}})
