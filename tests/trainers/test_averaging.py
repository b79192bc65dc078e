"""The moving average of the weights: what it is, that it is what is judged and saved, and that runs go on exactly."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from hf_ptm_ext import PtmTrainer, WeightAverageCallback

ROWS = [{"input_ids": [number % 7 + 1, 3, 5], "labels": number % 2} for number in range(24)]


def model():
    torch.manual_seed(0)
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return BertForSequenceClassification(BertConfig(vocab_size=9, max_position_embeddings=8, **tiny))


class Weights(TrainerCallback):
    """Remembers one weight of every update as it was trained, and at every evaluation."""

    def __init__(self):
        self.trained, self.judged = [], []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.trained.append(model.classifier.weight.detach().clone())

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        self.judged.append(model.classifier.weight.detach().clone())


def trained(folder, cls=PtmTrainer, resume=None, decay=0.6, **options):
    options = {"max_steps": 6, "save_steps": 3, "eval_strategy": "steps", "eval_steps": 2, **options}
    args = TrainingArguments(
        folder, per_device_train_batch_size=4, learning_rate=1e-2, use_cpu=True, report_to="none", **options
    )
    seen = Weights()
    callbacks = [seen, WeightAverageCallback(decay)]
    trainer = cls(model(), args, train_dataset=ROWS, eval_dataset=ROWS[:8], callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, seen


def average(weights, decay):
    factors = [decay ** (len(weights) - 1 - place) for place in range(len(weights))]
    return sum(factor * one for factor, one in zip(factors, weights, strict=True)) / sum(factors)


@pytest.mark.parametrize("cls", [PtmTrainer, Trainer])
def test_what_is_judged_and_saved_is_the_average_and_a_resumed_run_the_whole_one(tmp_path, cls):
    trainer, seen = trained(tmp_path / "whole", cls)
    for number, judged in enumerate(seen.judged):
        torch.testing.assert_close(judged, average(seen.trained[: 2 * number + 2], 0.6))
    torch.testing.assert_close(trainer.model.classifier.weight.detach(), average(seen.trained, 0.6))
    saved = BertForSequenceClassification.from_pretrained(tmp_path / "whole" / "checkpoint-3")
    torch.testing.assert_close(saved.classifier.weight.detach(), average(seen.trained[:3], 0.6))
    again, _ = trained(tmp_path / "whole", cls, resume=str(tmp_path / "whole" / "checkpoint-3"))
    for one, other in zip(again.model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_best_checkpoint_stays_in_the_model(tmp_path):
    options = {"load_best_model_at_end": True, "save_steps": 2, "metric_for_best_model": "loss"}
    trainer, seen = trained(tmp_path, **options)
    best = BertForSequenceClassification.from_pretrained(trainer.state.best_model_checkpoint)
    assert torch.equal(best.classifier.weight, trainer.model.classifier.weight)
    assert len(seen.judged) == 3


def test_what_cannot_be_averaged_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`decay` must be above 0 and below 1, got 1"):
        WeightAverageCallback(1)
    trained(tmp_path)
    (tmp_path / "checkpoint-3" / "weights_before_average.safetensors").unlink()
    with pytest.raises(ValueError, match="must be there to go on with the average"):
        trained(tmp_path, Trainer, resume=str(tmp_path / "checkpoint-3"))
