"""The KnowBERT family passes the conformance suite, with two knowledge bases and mentions in every batch."""

import pytest
import torch

from hf_ptm_ext import EntityTable
from hf_ptm_ext.models import modeling_knowbert
from hf_ptm_ext.models.configuration_knowbert import KnowBertConfig
from hf_ptm_ext.models.modeling_knowbert import KnowBertForPreTraining
from tests.conformance.bert_like import BertLikeConformance
from tests.conformance.family import LENGTHS, assert_same, prediction, trained

ENTITIES = 21
SMALL = {"entity_vocab_size": ENTITIES, "entity_size": 16, "intermediate_size": 12, "linker_hidden_size": 40}
BASES = {
    "wiki": {**SMALL, "insert_after_layer": 0, "threshold": -990.0},
    "wordnet": {
        **SMALL,
        "insert_after_layer": 0,
        "linking_loss": "softmax",
        "part_of_speech_size": 3,
        "entity_size": 4,
    },
}
BASES["wordnet"]["raw_entity_size"] = 6
COLUMNS = ("candidate_spans", "candidate_entities", "candidate_priors")


def without_mentions(config, inputs):
    return dict.fromkeys(COLUMNS)


class TestKnowBert(BertLikeConformance, modeling=modeling_knowbert, prefix="KnowBert"):
    frozen = frozenset(
        {
            "bert.knowledge.wiki.entity_embeddings.weight",
            "bert.knowledge.wordnet.entity_embeddings.entity_embeddings.weight",
        }
    )
    config_kwargs = {**BertLikeConformance.config_kwargs, "knowledge_bases": BASES}
    structured_inputs = {"no mentions": without_mentions}
    unread_fields = BertLikeConformance.unread_fields | {"knowledge_base_names"}  # the configuration reads it itself
    # The shared layers and heads, compiled for SpanBERT; what is KnowBERT's own is in `test_compiled_graphs...`.
    test_inductor = test_every_head_compiles = None
    test_flex_equals_sdpa = test_a_finished_block_mask_goes_through = None

    def rows(self, lengths=LENGTHS, seed=0, padding="right"):
        """Nested mentions, one fewer in every second row, at the same tokens wherever the padding is."""
        rows = super().rows(lengths, seed, padding)
        spans = torch.full((len(lengths), 2, 3, 2), -1)
        entities = torch.zeros(len(lengths), 2, 3, 4, dtype=torch.long)
        for row, length in enumerate(lengths):
            first = rows["input_ids"].shape[1] - length if padding == "left" else 0
            places = [(1, 2), (1, 1), (length - 1, length - 1)][: 3 - row % 2]
            for number, place in enumerate(places):
                for base in range(2):
                    spans[row, base, number] = torch.tensor(place) + first
                    known = 1 + (number + base) % 4
                    entities[row, base, number, :known] = 2 + (torch.arange(known) * 5 + seed + row + number) % 19
        priors = (entities > 0) * (1.0 + torch.arange(4)) / 10
        return {**rows, **dict(zip(COLUMNS, (spans, entities, priors), strict=True))}

    def pack_column(self, name, value, offsets):
        """Mentions of all sequences side by side, places moved with their tokens."""
        if name == "candidate_spans":
            value = torch.where(value < 0, value, value + offsets[:, None, None, None])
        return value.transpose(0, 1).flatten(1, 2)[None]

    def shuffled(self, batch):
        """Other values; mentions stay in their rows."""
        other = super().shuffled(batch)
        if "sequence_ids" in batch:
            other |= {name: batch[name] for name in batch if name.startswith("candidate")}
        return other

    def attentions(self, config):
        """LoRA on `query` and `value` reaches both attentions of each knowledge base too."""
        return config.num_hidden_layers + 2 * len(BASES)

    def test_every_parameter_gets_a_gradient(self, loss_head):
        """But what is added to all scores of a softmax: over the tokens of a span, its candidates, the spans."""
        model = self.model(loss_head).train()
        model(**self.labelled(loss_head)).loss.backward()
        assert set(dict(model.named_parameters())) - set(trained(model)) == self.frozen
        without = {name for name, value in trained(model).items() if value.grad is None or not value.grad.any()}
        constant = ("key.bias", "span_extractor.bias", "out_layer_2.bias", "qa_outputs.bias", "classifier.bias")
        assert [name for name in without if not name.endswith(constant)] == []

    def test_every_missing_weight_is_initialised_and_reported(self, head, tmp_path, monkeypatch):
        """The projection back begins as an inverse, which has a test of its own."""
        monkeypatch.setattr(modeling_knowbert.KnowBertPreTrainedModel, "_begin_from_others", lambda *_: None)
        super().test_every_missing_weight_is_initialised_and_reported(head, tmp_path)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["vocabulary", "sequence", "encoder"])
    def test_export_with_dynamic_batch_and_length(self, kind):
        """The number of mentions is the one that was exported."""
        head = self.head(kind)
        model, inputs = self.model(head), self.inputs(head)
        batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2, max=16)
        shapes = {name: {0: batch} if name in COLUMNS else {0: batch, 1: length} for name in inputs}
        exported = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)
        for lengths in (LENGTHS, (5, 3), (11, 2, 7, 7)):
            rows = self.rows(lengths)
            with torch.no_grad():
                expected, got = model(**rows), exported.module()(**rows)
            assert_same(prediction(head, got), prediction(head, expected), 1e-5)


# ---- what only KnowBERT has ----


def test_knowledge_bases_keep_their_order_in_a_file(tmp_path):
    small = {"entity_vocab_size": ENTITIES, "insert_after_layer": 0}
    KnowBertConfig(knowledge_bases={"wordnet": small, "wiki": small}).save_pretrained(tmp_path)
    assert list(KnowBertConfig.from_pretrained(tmp_path).knowledge_bases) == ["wordnet", "wiki"]
    given = {"z": small, "a": small}
    assert list(KnowBertConfig.from_pretrained(tmp_path, knowledge_bases=given).knowledge_bases) == ["z", "a"]


def tiny(bases=BASES, **fields):
    torch.manual_seed(0)
    config = KnowBertConfig(**{**BertLikeConformance.config_kwargs, "knowledge_bases": bases, **fields})
    return KnowBertForPreTraining(config).eval()


@pytest.mark.parametrize("inverse", [True, False])
def test_a_new_projection_back_is_the_inverse(inverse, tmp_path):
    """Also where the projection into the knowledge base was trained, and its bias."""
    model = tiny(inverse_bias=inverse)
    layer = model.bert.knowledge["wiki"]
    into, back = layer.bert_to_kg_projector, layer.kg_to_bert_projection
    assert_same(into.weight @ back.weight, torch.eye(16), 1e-4)
    with torch.no_grad():
        into.weight.normal_()
        into.bias.normal_()
        layer.table.weight.normal_()
    state = {n: v for n, v in model.state_dict().items() if ".kg_to_bert_projection." not in n}
    loaded = KnowBertForPreTraining.from_pretrained(None, config=model.config, state_dict=state)
    layer = loaded.bert.knowledge["wiki"]
    assert_same(into.weight @ layer.kg_to_bert_projection.weight, torch.eye(16), 1e-4)
    assert_same(into.weight @ layer.kg_to_bert_projection.bias, -into.bias if inverse else into.bias, 1e-4)
    with torch.no_grad():
        model.bert.knowledge["wiki"].kg_to_bert_projection.weight.fill_(0.5)
    model.save_pretrained(tmp_path)
    again = KnowBertForPreTraining.from_pretrained(tmp_path)
    assert (again.bert.knowledge["wiki"].kg_to_bert_projection.weight == 0.5).all()
    assert not again.bert.knowledge["wiki"].table.weight.requires_grad


def test_a_bert_becomes_one_and_its_tables_are_taken(tmp_path):
    plain = tiny(bases={})
    plain.save_pretrained(tmp_path)
    model = KnowBertForPreTraining.from_pretrained(tmp_path, knowledge_bases=BASES)
    table = EntityTable.from_arrays(torch.randn(ENTITIES - 4, 16).numpy(), [f"Q{n}" for n in range(ENTITIES - 4)])
    model.set_entity_table("wiki", table)
    layer = model.bert.knowledge["wiki"]
    assert_same(layer.table.weight[4:], table.weight()[1:], 0.0)
    assert not layer.table.weight[0].any()
    assert_same(layer.dot_attention_with_prior.null_embedding, layer.table.weight[2], 0.0)
    with pytest.raises(ValueError, match=r"`table` must have the shape \(21, 6\) for `wordnet`, got \(3, 6\)"):
        model.set_entity_table("wordnet", torch.zeros(3, 6))
    with pytest.raises(ValueError, match="`name` must be one of the knowledge bases"):
        model.set_entity_table("yago", table)
    model.train_linkers_only()
    trained_now = {name for name, value in model.named_parameters() if value.requires_grad}
    assert all(".knowledge." in name and "kg_to_bert" not in name for name in trained_now)
    assert not any("wiki.entity_embeddings" in name for name in trained_now)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"insert_after_layer": 2}, "`insert_after_layer` must be a layer's number, 0 to 1, got 2"),
        ({"entity_vocab_size": 3}, "`entity_vocab_size` must be the rows"),
        ({"loss": "margin"}, r"has \['loss'\], which nothing reads"),
        ({"linking_loss": "hinge"}, "`linking_loss` must be one of"),
        ({"entity_size": 9}, "`num_attention_heads` must divide `entity_size`, got 4 and 9"),
        ({"intermediate_size": "4"}, "`intermediate_size` must be an integer of at least 1, got '4'"),
        ({"raw_entity_size": 5}, "`raw_entity_size` must be `entity_size`"),
    ],
)
def test_values_of_a_knowledge_base_are_checked(values, message):
    with pytest.raises(ValueError, match=message):
        tiny(bases={"wiki": {**BASES["wiki"], **values}})


def test_candidates_that_do_not_fit_are_refused():
    model, ids = tiny({"wiki": BASES["wiki"]}), torch.tensor([[2, 7, 8, 3]])
    spans, rows = torch.tensor([[[1, 2]]]), torch.tensor([[[7, 9]]])
    refused = {
        "must come together": {"candidate_spans": spans},
        "rows of its table, got 21": {"candidate_spans": spans, "candidate_entities": rows + 12},
        "first and last token": {"candidate_spans": spans + 2, "candidate_entities": rows},
        "or -1 and -1 for padding": {
            "candidate_spans": torch.tensor([[[-1, 2]]]),
            "candidate_entities": rows,
        },
        "`gold_entities` need `candidate_entities`": {"gold_entities": torch.tensor([[9]])},
        "at least one span": {"candidate_spans": spans, "candidate_entities": rows[:, :0]},
        "must have the shape of `candidate_entities`": {
            **{"candidate_spans": spans, "candidate_entities": rows},
            "candidate_priors": torch.ones(1, 1, 3),
        },
        "must name the knowledge bases": {"candidate_spans": {"x": spans}, "candidate_entities": {"x": rows}},
    }
    for message, columns in refused.items():
        with pytest.raises(ValueError, match=message):
            model(ids, **columns)
    softmax = tiny({"wiki": {**BASES["wiki"], "linking_loss": "softmax"}})
    with pytest.raises(ValueError, match="must be among the candidates of each mention, got 5 for span 0 of row 0"):
        softmax(ids, candidate_spans=spans, candidate_entities=rows, gold_entities=torch.tensor([[5]]))
    ignored = softmax(ids, candidate_spans=spans, candidate_entities=rows, gold_entities=torch.tensor([[-100]]))
    assert ignored.linking_loss == 0
    unknown = [model(ids, next_sentence_label=torch.tensor([label])).loss for label in (-1, -100)]
    assert unknown == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["margin", "softmax"])
def test_the_layer_learns_to_link_by_the_text(loss):
    """Which of two entities a mention means, the word beside it tells, in pairs of words that training never had."""
    torch.manual_seed(0)
    bases = {"wiki": {**SMALL, "insert_after_layer": 1, "linking_loss": loss}}
    model = tiny(bases, vocab_size=60).train()

    def batch(contexts):
        sense = contexts % 2
        mention = torch.randint(5, 9, sense.shape)
        ids = torch.stack([torch.full_like(sense, 2), mention, contexts + 20, torch.full_like(sense, 3)], 1)
        rows = torch.stack([4 + 2 * (mention - 5), 5 + 2 * (mention - 5)], 1)
        columns = {
            "candidate_spans": torch.tensor([[[1, 1]]]).expand(len(ids), 1, 2),
            "candidate_entities": rows[:, None],
        }
        return {"input_ids": ids, **columns, "gold_entities": rows.gather(1, sense[:, None])}

    held_out = batch(torch.arange(200) % 16)
    optimizer = torch.optim.AdamW((value for value in model.parameters() if value.requires_grad), lr=2e-3)
    before = model.eval()(**held_out).linking_loss.item()
    model.train()
    for _ in range(150):
        model(**batch(torch.randint(0, 16, (32,)))).linking_loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    found = model.eval()(**held_out)
    assert found.linking_loss.item() < 0.3 * before
    right = found.linking_scores.argmax(-1) == (
        held_out["candidate_entities"] == held_out["gold_entities"][..., None]
    ).long().argmax(-1)
    assert right.float().mean() > 0.95
    blind = model(**{**held_out, "input_ids": held_out["input_ids"].index_fill(1, torch.tensor([2]), 11)})
    assert blind.linking_loss.item() > 3 * found.linking_loss.item()
