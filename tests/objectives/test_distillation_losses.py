"""The distillation losses: every value of the golden, other sizes by formulas, gradients, padding, errors."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional

from hf_ptm_ext.objectives import (
    SOFT_LABEL_LOSSES,
    attention_scores,
    cosine_loss,
    feature_map_loss,
    hidden_mse_loss,
    mean_transfer_loss,
    minilm_loss,
    minilm_v2_loss,
    mlm_distillation_loss,
    mobilebert_attention_loss,
    mobilebert_attention_loss_from_projections,
    patience_loss,
    relation_loss,
    score_chunks,
    shared_projection_loss,
    soft_label_loss,
    tinybert_attention_loss,
    tinybert_attention_loss_from_projections,
    variance_transfer_loss,
)
from tests.tolerance import assert_agrees

FOLDER = Path(__file__).parents[1] / "goldens"
GOLDEN = json.loads((FOLDER / "distill-a.json").read_text(encoding="utf-8"))
T = load_file(str(FOLDER / "distill-a.safetensors"))
MASK = T["attention_mask"]
HEADS = GOLDEN["config"]["relation_heads"]


def cls(kind, **options):
    return soft_label_loss(T["cls.student_logits"], T["cls.teacher_logits"], kind=kind, **options)


def mlm(kind, mask, **options):
    return soft_label_loss(T["mlm.student_logits"], T["mlm.teacher_logits"], kind=kind, mask=mask, **options)


def masked_lm():
    return functional.cross_entropy(T["mlm.student_logits"].flatten(0, 1), T["mlm.labels"].flatten())


def tinybert_attention():
    return [
        tinybert_attention_loss(T[f"tinybert.student_scores.{i}"], T[f"tinybert.teacher_scores.{2 * i + 1}"], MASK)
        for i in range(2)
    ]


def tinybert_hidden():
    weight, bias = T["tinybert.fit_dense.weight"], T["tinybert.fit_dense.bias"]
    return [
        hidden_mse_loss(
            functional.linear(T[f"tinybert.student_hidden.{i}"], weight, bias), T[f"tinybert.teacher_hidden.{2 * i}"]
        )
        for i in range(3)
    ]


def projections(side):
    return {name: T[f"minilm.{side}.{name}"] for name in ("query", "key", "value")}


def v2(relations, reduction="sequence_mean"):
    return minilm_v2_loss(
        projections("student"), projections("teacher"), HEADS, relations=relations, mask=MASK, reduction=reduction
    )


LABELLED = T["mlm.labels"] > -1
MOBILE = T["mobilebert.student_hidden"], T["tinybert.teacher_hidden.1"]
MOBILE_SCORES = T["mobilebert.student_raw_scores"], T["mobilebert.teacher_raw_scores"]
LAST = T["mlm.student_last_hidden"], T["mlm.teacher_last_hidden"]
PATIENCE = T["pkd.student_cls"], T["pkd.teacher_cls"]
VALUES = {
    "distilbert.ce_all_tokens": lambda: mlm("hinton_kl", MASK, temperature=2.0),
    "distilbert.mse_all_tokens": lambda: mlm("logit_mse", MASK, reduction="batchmean"),
    "distilbert.ce_restrict_ce_to_mask": lambda: mlm("hinton_kl", LABELLED, temperature=2.0),
    "distilbert.mse_restrict_ce_to_mask": lambda: mlm("logit_mse", LABELLED, reduction="batchmean"),
    "distilbert.mlm": masked_lm,
    "distilbert.cos": lambda: cosine_loss(*LAST, MASK),
    "distilbert.total_5_2_1": lambda: (
        5 * mlm("hinton_kl", MASK, temperature=2.0) + 2 * masked_lm() + cosine_loss(*LAST, MASK)
    ),
    "hinton.kl_batchmean_T2": lambda: cls("hinton_kl", temperature=2.0),
    "tinybert.pred_soft_ce_mean": lambda: cls("tinybert_soft_ce", temperature=2.0),
    "pkd.kd_mean_T2": lambda: cls("pkd_kl", temperature=2.0),
    "pkd.ce": lambda: functional.cross_entropy(T["cls.student_logits"], T["cls.labels"]),
    "pkd.total_alpha0.7": lambda: (
        0.3 * functional.cross_entropy(T["cls.student_logits"], T["cls.labels"]) + 0.7 * cls("pkd_kl", temperature=2.0)
    ),
    "textbrewer.kd_ce": lambda: cls("textbrewer_ce", temperature=2.0),
    "textbrewer.kd_mse": lambda: cls("logit_mse", temperature=2.0),
    "mtdnn.kl_batchmean": lambda: cls("mtdnn_kl"),
    "distilled_bilstm.logit_mse": lambda: cls("logit_mse"),
    "pkd.patience_normalised": lambda: patience_loss(*PATIENCE),
    "pkd.patience_raw": lambda: patience_loss(*PATIENCE, normalize=False),
    "textbrewer.pkd_layer0": lambda: patience_loss(*PATIENCE, reduction="batchmean"),
    "tinybert.att": lambda: sum(tinybert_attention()),
    "tinybert.att_per_layer": tinybert_attention,
    "tinybert.rep": lambda: sum(tinybert_hidden()),
    "tinybert.rep_per_layer_embedding_first": tinybert_hidden,
    "tinybert.intermediate_total": lambda: sum(tinybert_attention()) + sum(tinybert_hidden()),
    "textbrewer.cos_masked": lambda: cosine_loss(*LAST, MASK),
    "mobilebert.feature_map_ln_mse": lambda: feature_map_loss(*MOBILE),
    "mobilebert.mean_transfer": lambda: mean_transfer_loss(*MOBILE),
    "mobilebert.variance_transfer": lambda: variance_transfer_loss(*MOBILE),
    "mobilebert.attention_ce": lambda: mobilebert_attention_loss(*MOBILE_SCORES, MASK),
    "mobilebert.attention_kl": lambda: mobilebert_attention_loss(*MOBILE_SCORES, MASK, divergence=True),
    "mobilebert.mlm_kd_ratio0.5": lambda: mlm("mobilebert_mlm_kd", None, labels=T["mlm.labels"], ratio=0.5),
    "minilm_v1.attention_kl": lambda: v2({"qk": 1.0}),
    "minilm_v1.attention_kl_token_mean": lambda: v2({"qk": 1.0}, "token_mean"),
    "minilm_v1.value_relation_kl": lambda: v2({"vv": 1.0}),
    "minilm_v1.value_relation_kl_token_mean": lambda: v2({"vv": 1.0}, "token_mean"),
    "minilm_v1.total": lambda: minilm_loss(projections("student"), projections("teacher"), HEADS, HEADS, MASK),
    **{f"minilm_v2.{pair}": lambda pair=pair: v2((pair,)) for pair in ("qq", "kk", "vv", "qk")},
    **{
        f"minilm_v2.{pair}_token_mean": lambda pair=pair: v2((pair,), "token_mean")
        for pair in ("qq", "kk", "vv", "qk")
    },
    "minilm_v2.total_unweighted_qq_kk_vv": lambda: v2(("qq", "kk", "vv")),
    "minilm_v2.total_weighted_third": lambda: v2(dict.fromkeys(("qq", "kk", "vv"), 1 / 3)),
}
# TextBrewer's own attention and maximum-mean-discrepancy losses are not part of this package; the other is a value
# that passed through half precision.
ELSEWHERE = {
    "textbrewer.att_mse_masked_layer0",
    "textbrewer.att_ce_masked_layer0",
    "textbrewer.mmd_layers_0_0",
    "pkd.patience_normalised_reference_fp16",
}


def test_the_table_has_the_seven_losses():
    assert set(SOFT_LABEL_LOSSES) == {
        "hinton_kl",
        "tinybert_soft_ce",
        "pkd_kl",
        "textbrewer_ce",
        "mtdnn_kl",
        "logit_mse",
        "mobilebert_mlm_kd",
    }


def test_every_loss_of_the_golden_is_compared():
    assert set(GOLDEN["losses"]) == set(VALUES) | ELSEWHERE


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.golden
def test_losses_are_the_references(name):
    found, expected = VALUES[name](), GOLDEN["losses"][name]
    pairs = zip(found, expected, strict=True) if isinstance(expected, list) else [(found, expected)]
    for one, other in pairs:
        assert_agrees(one, other, **GOLDEN["tolerance"])


def test_scores_with_the_references_large_negative_mask_are_the_same():
    student, teacher = T["tinybert.student_scores.0"], T["tinybert.teacher_scores.1"]
    added = (1 - MASK)[:, None, None, :] * -10000.0
    torch.testing.assert_close(
        tinybert_attention_loss(student + added, teacher + added), tinybert_attention_loss(student, teacher, MASK)
    )


# ---- relations by the formula, at other sizes ----


def naive_relation(student, other, teacher, teacher_other, heads, lengths, reduction):
    """One sequence at a time, without padding."""
    totals = []
    for row, length in enumerate(lengths):
        distributions = []
        for first, second in ((student, other), (teacher, teacher_other)):
            x, y = (e[row, :length].double().reshape(length, heads, -1).transpose(0, 1) for e in (first, second))
            distributions.append((x @ y.transpose(1, 2) / x.shape[-1] ** 0.5).log_softmax(-1))
        own, taught = distributions
        totals.append((taught.exp() * (taught - own)).sum() / heads)
    if reduction == "token_mean":
        return sum(totals) / sum(lengths)
    return sum(total / length for total, length in zip(totals, lengths, strict=True)) / len(lengths)


def test_masked_rows_leave_the_labelled_loss():
    labels = T["mlm.labels"]
    kept = torch.zeros_like(labels).index_fill_(0, torch.tensor([0]), 1)
    found = mlm("mobilebert_mlm_kd", kept, labels=labels)
    expected = mlm_distillation_loss(T["mlm.student_logits"][:1], T["mlm.teacher_logits"][:1], labels[:1])
    torch.testing.assert_close(found, expected)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.sampled_from([1, 2, 3, 6]),
    st.sampled_from([6, 12]),
    st.sampled_from([6, 18]),
    st.sampled_from(["sequence_mean", "token_mean"]),
    st.booleans(),
    st.sampled_from([1, 7, 30, 10**6]),
)
def test_relations_equal_the_formula_whatever_the_chunks(lengths, heads, width, teacher_width, reduction, own, chunk):
    torch.manual_seed(0)
    size = (len(lengths), max(lengths))
    student = torch.randn(*size, width, requires_grad=True)
    other = student if own else torch.randn(*size, width, requires_grad=True)
    teacher, teacher_other = torch.randn(*size, teacher_width), torch.randn(*size, teacher_width)
    mask = (torch.arange(size[1]) < torch.tensor(lengths)[:, None]).long()
    expected = naive_relation(student, other, teacher, teacher_other, heads, lengths, reduction)
    wanted = torch.autograd.grad(expected, [student] if own else [student, other])
    with patch.dict(score_chunks.CHUNK_ENTRIES, cpu=chunk):
        found = relation_loss(student, other, teacher, teacher_other, heads, mask, reduction)
        gradients = torch.autograd.grad(3 * found, [student] if own else [student, other])
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-5)
    for gradient, formula in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, 3 * formula.float(), atol=1e-6, rtol=1e-4)


FORMS = {
    "tinybert": (tinybert_attention_loss, tinybert_attention_loss_from_projections),
    "mobilebert": (mobilebert_attention_loss, mobilebert_attention_loss_from_projections),
}


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(FORMS)),
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.sampled_from([1, 2, 6]),
    st.sampled_from([1.0, 12.0]),  # with large states some scores are as low as those of padding
    st.sampled_from([1, 30, 10**6]),
)
def test_losses_of_projections_are_those_of_their_scores(system, lengths, heads, size, chunk):
    torch.manual_seed(0)
    of_scores, of_projections = FORMS[system]
    shape = (len(lengths), 6)
    own = [(size * torch.randn(*shape, 6)).requires_grad_() for _ in range(2)]
    taught = [size * torch.randn(*shape, 12) for _ in range(2)]
    mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).long()
    expected = of_scores(attention_scores(*own, heads), attention_scores(*taught, heads), mask)
    wanted = torch.autograd.grad(expected, own)
    with patch.dict(score_chunks.CHUNK_ENTRIES, cpu=chunk):
        found = of_projections(*own, *taught, heads, mask)
        gradients = torch.autograd.grad(found, own)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients, wanted, atol=1e-5, rtol=1e-4)


def test_rows_of_padding_alone_give_no_nan_and_no_gradient():
    torch.manual_seed(0)
    student = torch.randn(2, 4, 8, requires_grad=True)
    teacher = torch.randn(2, 4, 8)
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]])
    loss = relation_loss(student, student, teacher, teacher, 2, mask)
    loss.backward()
    alone = relation_loss(student[:1, :2], student[:1, :2], teacher[:1, :2], teacher[:1, :2], 2)
    torch.testing.assert_close(loss, alone / 2)
    assert torch.isfinite(student.grad).all()
    assert student.grad[1].abs().sum() == 0
    assert student.grad[0, 2:].abs().sum() == 0
    for one in (tinybert_attention_loss, mobilebert_attention_loss):
        scores = torch.randn(2, 2, 4, 4)
        assert torch.isfinite(one(scores, scores + 1, mask))
    empty = soft_label_loss(torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3), mask=torch.zeros(2))
    assert empty == 0
    empty.backward()


def test_losses_are_in_single_precision_under_autocast():
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 6, 16), torch.randn(2, 6, 16)
    plain = relation_loss(student, student, teacher, teacher, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(relation_loss(student, student, teacher, teacher, 4), plain)
        half = soft_label_loss(student[0].bfloat16(), teacher[0].bfloat16(), kind="mtdnn_kl")
    assert half.dtype == torch.float32


def test_the_teacher_gets_no_gradient():
    student, teacher = (torch.randn(1, 3, 8, requires_grad=True) for _ in range(2))
    relation_loss(student, student, teacher, teacher, 2).backward()
    assert teacher.grad is None


def test_relations_compile_to_the_same_loss_and_gradient():
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 5, 8)
    compiled = torch.compile(relation_loss, backend="aot_eager")
    for loss in (relation_loss, compiled):
        student.grad = None
        value = loss(student, student, teacher, teacher, 4)
        value.backward()
        if loss is relation_loss:
            expected = value.detach(), student.grad.clone()
    torch.testing.assert_close((value.detach(), student.grad), expected)


def test_scores_are_those_of_the_heads():
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    scores = attention_scores(query, key, heads=2)
    torch.testing.assert_close(scores[1, 1], query[1, :, 4:] @ key[1, :, 4:].T / 2)


# ---- shared projections ----


def test_shared_projections_are_the_papers():
    torch.manual_seed(0)
    down, up = torch.randn(2, 4), torch.randn(4, 2)
    teacher, student = (torch.randn(4, 4), torch.randn(4)), (torch.randn(2, 2), torch.randn(2))
    pairs = list(zip(teacher, student, strict=True))
    expected_down = (down @ teacher[0] @ down.T - student[0]).square().sum()
    expected_down = expected_down + (down @ teacher[1] - student[1]).square().sum()
    expected_up = (teacher[0] - up @ student[0] @ up.T).square().sum()
    expected_up = expected_up + (teacher[1] - up @ student[1]).square().sum()
    torch.testing.assert_close(shared_projection_loss(pairs, down, direction="down"), expected_down)
    torch.testing.assert_close(shared_projection_loss(pairs, up=up, direction="up"), expected_up)
    torch.testing.assert_close(shared_projection_loss(pairs, down, up, "both"), expected_down + expected_up)
    wide = torch.randn(12, 4), torch.randn(6, 2)  # three blocks, as in a feed-forward block
    blocks = sum(
        (up @ wide[1][2 * n : 2 * n + 2] @ up.T - wide[0][4 * n : 4 * n + 4]).square().sum() for n in range(3)
    )
    torch.testing.assert_close(shared_projection_loss([wide], up=up), blocks)
    vocabulary = torch.randn(5, 4), torch.randn(5, 2)
    expected = (vocabulary[0] - vocabulary[1] @ up.T).square().sum()
    torch.testing.assert_close(shared_projection_loss([vocabulary], up=up), expected)


# ---- errors ----

STATES = {name: torch.ones(1, 3, 8) for name in ("query", "key", "value")}
ONES = torch.ones(1, 3, 8)


def mlm_kd(**options):
    labels = torch.tensor([[1, -100, 2]])
    return soft_label_loss(ONES, 2 * ONES, kind="mobilebert_mlm_kd", labels=labels, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: soft_label_loss(ONES, ONES, kind="kl"), "`kind` must be one of"),
        (lambda: soft_label_loss(ONES, ONES[..., :4]), "different vocabularies or classes"),
        (lambda: soft_label_loss(ONES, ONES, temperature=0), "`temperature` must be positive"),
        (lambda: soft_label_loss(ONES, ONES, reduction="none"), "`reduction` must be one of"),
        (lambda: soft_label_loss(ONES, ONES, mask=torch.ones(3)), r"`mask` must have shape \(1, 3\)"),
        (lambda: soft_label_loss(ONES, ONES, kind="mobilebert_mlm_kd"), "`labels` must be given"),
        (lambda: mlm_kd(temperature=2.0), "`temperature` must be 1.0 for `kind` = 'mobilebert_mlm_kd', got 2.0"),
        (lambda: mlm_kd(reduction="mean"), "`reduction` must be None"),
        (lambda: mlm_distillation_loss(ONES, ONES, torch.zeros(1, 3).long(), ratio=2), "`ratio` must lie"),
        (lambda: mlm_distillation_loss(ONES, ONES, torch.zeros(3).long()), "`labels` must have shape"),
        (lambda: hidden_mse_loss(ONES, ONES[..., :4]), "need a projection"),
        (lambda: cosine_loss(ONES, ONES, torch.ones(3)), r"`mask` must have shape \(1, 3\)"),
        (lambda: patience_loss(ONES, ONES, reduction="sum"), "`reduction` must be 'mean' or 'batchmean'"),
        (lambda: attention_scores(ONES, ONES, 3), "`heads` must divide the width, got 3 heads for a width of 8"),
        (lambda: tinybert_attention_loss(torch.ones(1, 12, 2, 2), torch.ones(1, 16, 2, 2)), "12 and 16.*minilm-v2"),
        (lambda: mobilebert_attention_loss(ONES, ONES), r"scores `\(batch, heads, seq_len, seq_len\)`"),
        (lambda: tinybert_attention_loss(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 3)), "the same tokens"),
        (lambda: minilm_loss(STATES, STATES, 12, 16), "got 12 and 16.*minilm-v2"),
        (lambda: minilm_v2_loss({}, STATES, 2), "must have key, query, value, got none and key, query, value"),
        (lambda: minilm_v2_loss(STATES, STATES, 3), "`heads` must divide the width"),
        (lambda: minilm_v2_loss(STATES, STATES, 2, relations=("qx",)), "letters q, k and v"),
        (lambda: relation_loss(ONES, ONES, ONES[:, :2], ONES[:, :2], 2), "of the same tokens"),
        (lambda: relation_loss(ONES, ONES, ONES, ONES, 2, reduction="mean"), "`reduction` must be one of"),
        (lambda: relation_loss(ONES, ONES, ONES, ONES, 2, torch.ones(3)), r"`mask` must have shape \(1, 3\)"),
        (lambda: shared_projection_loss([], up=ONES[0]), "at least one pair"),
        (lambda: shared_projection_loss([(ONES, ONES)], direction="left"), "`direction` must be one of"),
        (lambda: shared_projection_loss([(ONES, ONES)], direction="down"), "`down` must be given"),
        (lambda: shared_projection_loss([(ONES[0], ONES[0, 0])], up=ONES[0]), "as many sides"),
        (lambda: shared_projection_loss([(torch.ones(4), torch.ones(3))], up=torch.ones(4, 2)), "same multiple"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
