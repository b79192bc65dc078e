"""KEPLER's objective reproduces the reference: scores, losses, gradients; its other variants follow its arithmetic."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.objectives import knowledge_embedding_loss, knowledge_embedding_scores, masked_lm_loss, transe_score
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[1] / "goldens"
FACTS = json.loads((GOLDENS / "kepler-a.json").read_text(encoding="utf-8"))
TENSORS = load_file(GOLDENS / "kepler-a.safetensors")


def close(got, name):
    assert_agrees(got, TENSORS[name], FACTS["tolerance"], name=name)


@pytest.fixture
def inputs():
    """First-token states and relation table, as leaves."""
    hidden = {name: TENSORS[f"in.{name}_hidden"] for name in ("head", "tail", "neg_head", "neg_tail")}
    leaves = {name: states[:, 0].clone().requires_grad_() for name, states in hidden.items()}
    leaves["table"] = TENSORS["sd.ke_heads.wikiData.relation_emb.weight"].clone().requires_grad_()
    return leaves


def test_scores_losses_and_gradients_are_the_references(inputs):
    relation = inputs["table"][TENSORS["in.relations"]]
    positive, negative = knowledge_embedding_scores(
        inputs["head"],
        relation,
        inputs["tail"],
        inputs["neg_head"],
        inputs["neg_tail"],
        gamma=FACTS["config"]["gamma"],
    )
    close(positive, "out.pos_scores")
    close(negative, "out.neg_scores")
    targets = TENSORS["in.mlm_targets_pad1"].clone()
    targets[targets == FACTS["config"]["pad_id"]] = -100
    ke_loss = knowledge_embedding_loss(positive, negative)
    mlm_loss = masked_lm_loss(TENSORS["in.mlm_logits"], targets)
    close(ke_loss, "out.ke_loss")
    close(mlm_loss, "out.mlm_loss")
    close(ke_loss + mlm_loss, "out.total_loss")
    ke_loss.backward()
    close(inputs["head"].grad, "out.grad_head_first_token")
    close(inputs["neg_tail"].grad, "out.grad_neg_tail_first_token")
    close(inputs["table"].grad, "out.grad_relation_emb")


def reference(head, relation, tail, heads, tails, head_r, tail_r, gamma, norm=2):
    """The formulas of the paper's code, one triple and one corruption at a time."""

    def score(h, r, t):
        return gamma - (h + r - t).norm(p=norm)

    positives, negatives = [], []
    per_side = len(heads) // len(head)
    for i in range(len(head)):
        positives.append((score(head_r[i], relation[i], tail[i]) + score(head[i], relation[i], tail_r[i])) / 2)
        rows = range(i * per_side, (i + 1) * per_side)
        negatives.append(
            torch.stack(
                [score(heads[j], relation[i], tail_r[i]) for j in rows]
                + [score(head_r[i], relation[i], tails[j]) for j in rows]
            )
        )
    positive, negative = torch.stack(positives)[:, None], torch.stack(negatives)
    log_sigmoid = torch.nn.functional.logsigmoid
    loss = -(log_sigmoid(positive).mean() + log_sigmoid(-negative).mean(1).mean()) / 2
    return positive, negative, loss


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("grouped", [True, False], ids=["rows of an example together", "an axis of their own"])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize("variant", ["plain", "cond", "rel"])
def test_every_variant_follows_the_formulas(variant, negatives, norm, grouped):
    head, relation, tail, head_r, tail_r = (vectors(4, 16, seed=n) for n in range(5))
    heads, tails = vectors(4 * negatives, 16, seed=5), vectors(4 * negatives, 16, seed=6)
    together = (head_r, tail_r) if variant == "cond" else (None, None)
    shaped = [x if grouped else x.reshape(4, negatives, 16) for x in (heads, tails)]
    positive, negative = knowledge_embedding_scores(head, relation, tail, *shaped, *together, gamma=12.0, norm=norm)
    x_r = (head_r, tail_r) if variant == "cond" else (head, tail)
    expected = reference(head, relation, tail, heads, tails, *x_r, gamma=12.0, norm=norm)
    torch.testing.assert_close((positive, negative, knowledge_embedding_loss(positive, negative)), expected)


def test_micro_batches_of_any_size_add_up():
    positive, negative = vectors(5, 1), vectors(5, 4, seed=1)
    parts = [knowledge_embedding_loss(positive[rows], negative[rows], 5) for rows in (slice(0, 1), slice(1, 5))]
    torch.testing.assert_close(sum(parts), knowledge_embedding_loss(positive, negative))


def test_half_precision_is_scored_in_single_precision():
    x = [vectors(2, 16, seed=n).half() for n in range(3)]
    assert transe_score(*x).dtype == torch.float32


def test_a_vector_that_fits_exactly_has_a_finite_gradient():
    head = torch.zeros(1, 4, requires_grad=True)
    transe_score(head, torch.zeros(1, 4), torch.zeros(1, 4)).sum().backward()
    assert torch.isfinite(head.grad).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": 3}, "`norm` must be 1 or 2, got 3"),
        ({"negative_heads": torch.zeros(3, 8)}, "`negative_heads` must have the same number of rows"),
        ({"head_with_relation": torch.zeros(2, 8)}, "must be given together"),
    ],
)
def test_errors_say_what_to_do(change, message):
    x = torch.zeros(2, 8)
    arguments = {"head": x, "relation": x, "tail": x, "negative_heads": x, "negative_tails": x, **change}
    with pytest.raises(ValueError, match=message):
        knowledge_embedding_scores(**arguments)
