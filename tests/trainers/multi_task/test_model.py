"""One encoder under several heads, and the terms beside a task's loss."""

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from hf_ptm_ext import SanConfig, SanForSequenceClassification
from hf_ptm_ext.objectives import smoothness_loss, stable_kl, symmetric_kl
from hf_ptm_ext.trainers import MultiTaskModel, Smart
from tests.trainers.multi_task.small_tasks import SIZES, config, models, rows


def batch(task, number=4):
    return torch.utils.data.default_collate(rows(task, number))


def test_all_tasks_have_one_encoder_and_their_own_heads():
    found = models()
    encoder = found["topic"].bert  # the one with a pooler
    model = MultiTaskModel(found)
    assert all(one.base_model is encoder for one in model.models.values())
    names = model.unique_state_dict()
    assert sum(name.endswith("word_embeddings.weight") for name in names) == 1
    for task, one in found.items():
        given = batch(task)
        torch.testing.assert_close(model(task=task, **given).loss, one(**given).loss)
        assert f"{task}_loss" in model(task=task, **given)


def test_a_batch_without_a_label_has_no_loss():
    """Of masks that are drawn token by token a small batch may have none; upstream's mean is nan there."""
    model = MultiTaskModel(models())
    given = batch("tags")
    loss = model(task="tags", **{**given, "labels": torch.full_like(given["labels"], -100)}).loss
    assert loss.item() == 0
    loss.backward()
    assert all(one.grad is None or not one.grad.any() for one in model.parameters())


def test_activation_checkpointing_reaches_the_encoder():
    model = MultiTaskModel(models())
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    assert model.encoder.is_activation_checkpointing


def test_saved_tasks_are_plain_checkpoints(tmp_path):
    model = MultiTaskModel(models()).eval()
    model.save_tasks(tmp_path)
    for task, auto_class in (("tags", AutoModelForTokenClassification), ("score", AutoModelForSequenceClassification)):
        loaded, report = auto_class.from_pretrained(tmp_path / task, output_loading_info=True)
        assert not report["unexpected_keys"]
        assert not report["missing_keys"]
        given = batch(task)
        torch.testing.assert_close(loaded.eval()(**given).logits, model(task=task, **given).logits)


def test_a_teachers_logits_and_its_probabilities_are_the_same_teacher():
    model = MultiTaskModel(models()).eval()
    for task in ("topic", "tags"):
        given = batch(task)
        answers = torch.randn(model(task=task, **given).logits.shape)
        by_logits = model(task=task, teacher_logits=answers, **given)
        by_probabilities = model(task=task, teacher_probabilities=answers.softmax(-1), **given)
        torch.testing.assert_close(by_logits.loss, by_probabilities.loss, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(by_logits.loss, by_logits[f"{task}_loss"] + by_logits["distillation_loss"])
        same = model(task=task, teacher_logits=by_logits.logits.detach(), **given)
        assert same["distillation_loss"].item() == pytest.approx(0, abs=1e-6)
    only = {name: value for name, value in batch("topic").items() if name != "labels"}
    output = model(task="topic", teacher_logits=torch.zeros(4, 2), **only)
    assert output.loss == output["distillation_loss"]


def test_divergences():
    torch.manual_seed(0)
    first, second = torch.randn(5, 3), torch.randn(5, 3)
    p, q = first.softmax(-1), second.softmax(-1)
    expected = (p * (p / q).log()).sum(-1) + (q * (q / p).log()).sum(-1)
    torch.testing.assert_close(symmetric_kl(first, second), expected)
    odds = (p / (1 - p)).log(), (q / (1 - q)).log()
    torch.testing.assert_close(stable_kl(first, second), 2 * (p * (odds[0] - odds[1])).sum(-1), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("norm", ["inf", "l2", "l1"])
def test_the_ascent_finds_a_worse_point_than_noise_of_its_size_does(norm):
    torch.manual_seed(0)
    weight, embeddings = torch.randn(8, 3) / 8, torch.randn(4, 5, 8)

    def logits_of(states):
        return states.mean(1) @ weight

    logits = logits_of(embeddings)
    found = smoothness_loss(logits_of, embeddings, logits, norm=norm)
    directions = torch.randn(50, *embeddings.shape)
    size = directions.norm(dim=-1, keepdim=True) if norm == "l2" else directions.abs().amax(-1, keepdim=True)
    others = [symmetric_kl(logits_of(embeddings + noise), logits).mean() for noise in directions / size * 1e-5]
    assert found > 2 * torch.stack(others).mean()
    broken = smoothness_loss(lambda states: states.mean(1) @ weight * float("nan"), embeddings, logits, norm=norm)
    assert broken == 0


@pytest.mark.parametrize("task", ["topic", "tags", "score"])
def test_smoothness_is_part_of_the_loss_in_training_only(task):
    torch.manual_seed(0)
    model = MultiTaskModel(models(), {task: 0.5}, smart=Smart(weight=2.0))
    given = batch(task)
    output = model.train()(task=task, **given)
    expected = 0.5 * (output[f"{task}_loss"] + 2.0 * output["smoothness_loss"])
    torch.testing.assert_close(output.loss, expected)
    assert output["smoothness_loss"] > 0
    output.loss.backward()
    assert model.encoder.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    assert "smoothness_loss" not in model.eval()(task=task, **given)


def pair_model(**options):
    torch.manual_seed(0)
    return SanForSequenceClassification.from_encoder(BertModel(config()), num_labels=3, **options)


PAIR = {
    "input_ids": torch.tensor([[2, 5, 6, 3, 7, 8, 3], [2, 9, 3, 10, 3, 0, 0]]),
    "token_type_ids": torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]]),
}


def test_the_answer_network_gives_probabilities_and_reads_no_padding():
    model = pair_model().eval()
    logits = model(**PAIR).logits
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(2))
    alone = model(**{name: value[1:, :5] for name, value in PAIR.items()}).logits
    torch.testing.assert_close(alone, logits[1:], atol=1e-5, rtol=1e-5)


def test_turns_are_left_out_in_training_only():
    model = pair_model(turn_dropout=0.5, classifier_dropout=0.0)
    torch.manual_seed(1)
    outputs = [model.train()(**PAIR).logits for _ in range(4)]
    assert any(not torch.equal(outputs[0], other) for other in outputs[1:])
    assert all(torch.allclose(output.exp().sum(-1), torch.ones(2)) for output in outputs)
    assert torch.equal(model.eval()(**PAIR).logits, model(**PAIR).logits)


def test_an_answer_network_is_saved_and_read(tmp_path):
    model = pair_model(turns=2).eval()
    wrapper = MultiTaskModel({"pairs": model})
    (folder,) = wrapper.save_tasks(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(folder)
    assert type(again) is SanForSequenceClassification
    assert again.classifier.turns == 2
    torch.testing.assert_close(again(**PAIR).logits, model(**PAIR).logits)


def test_an_answer_network_shares_an_encoder_and_keeps_its_own_file(tmp_path):
    """The other task's encoder has a pooler, which is no part of this one's checkpoint."""
    wrapper = MultiTaskModel({"pairs": pair_model(), "topic": models()["topic"]}).eval()
    assert wrapper.models["pairs"].encoder is wrapper.models["topic"].bert
    wrapper.save_tasks(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "pairs")
    assert not [name for name in again.state_dict() if "pooler" in name]
    torch.testing.assert_close(again(**PAIR).logits, wrapper(task="pairs", **PAIR).logits)


def test_what_does_not_fit_is_refused():
    found = models()
    roberta = RobertaForSequenceClassification(RobertaConfig(vocab_size=40, **SIZES))
    wide = BertForSequenceClassification(config(hidden_size=32))
    with pytest.raises(ValueError, match="at least one task"):
        MultiTaskModel({})
    with pytest.raises(ValueError, match="without dots"):
        MultiTaskModel({"a.b": found["topic"]})
    with pytest.raises(ValueError, match="must have one encoder, got a roberta for `other`"):
        MultiTaskModel({"topic": found["topic"], "other": roberta})
    with pytest.raises(ValueError, match="encoders of one size; that of"):
        MultiTaskModel({"topic": models()["topic"], "other": wide})
    model = MultiTaskModel(models(), smart=Smart())
    with pytest.raises(ValueError, match="`task` must be one of"):
        model(task="none", **batch("topic"))
    with pytest.raises(ValueError, match="must have the shape of the logits"):
        model(task="topic", teacher_logits=torch.zeros(4, 3), **batch("topic"))
    questions = MultiTaskModel({"qa": BertForQuestionAnswering(config())}, smart=Smart()).train()
    with pytest.raises(ValueError, match="gives no `logits`"):
        questions(task="qa", input_ids=torch.tensor([[2, 5]]))
    with pytest.raises(ValueError, match="must have two segments"):
        SanConfig(encoder_config=BertConfig(vocab_size=40, type_vocab_size=1, **SIZES))
    with pytest.raises(ValueError, match="mark a second text"):
        pair_model()(input_ids=torch.tensor([[2, 5]]), token_type_ids=torch.tensor([[0, 0]]))
    with pytest.raises(ValueError, match="must have the tensors of the tasks"):
        model.load_unique_state_dict({})
