"""MobileBERT's progressive transfer: gates and learning rates are functions of the step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertModel, TrainerCallback

from hf_ptm_ext.distillation import DistillationModel, preset_objectives
from hf_ptm_ext.distillation.progressive import background, learning_rate_factor, phase_of
from tests.distillation.pairs import model, rows, trainer


@given(st.integers(1, 24), st.integers(0, 500), st.data())
def test_every_layer_has_its_turn(layers, more, data):
    total = layers + more
    phases = [phase_of(step, total, layers) for step in range(total)]
    assert sorted(set(phases)) == list(range(layers))
    assert phases == sorted(phases)
    assert all(phases.count(layer) == total // layers for layer in range(layers - 1))
    step = data.draw(st.integers(0, total + 10))
    factors = [learning_rate_factor(layer, step, total, layers) for layer in range(layers)]
    current = phase_of(step, total, layers)
    assert all(factor == 0 for factor in factors[current + 1 :])
    assert factors[:current] == pytest.approx([factors[current] / 10] * current)
    assert learning_rate_factor(None, step, total, layers) == 0


def test_inside_a_phase_the_rate_warms_up_and_stays():
    """Released code: min(sqrt decay from 1 to 0.9, 10 x), 3 times that during the phase, 0.3 times after it."""
    rates = [background(step, 200, 2) for step in range(100)]
    assert rates[:3] == pytest.approx([0.0, 0.1, 0.2])
    assert rates[50] == pytest.approx(0.9 + 0.1 * 0.5**0.5)
    assert 0.9 < rates[99] < 0.911
    assert learning_rate_factor(0, 150, 200, 2) == pytest.approx(0.3 * rates[50])
    assert learning_rate_factor(1, 150, 200, 2) == pytest.approx(3.0 * rates[50])
    with pytest.raises(ValueError, match="got 3 steps for 4 layers"):
        phase_of(0, 3, 4)


def test_only_the_terms_of_the_phase_count():
    student = model(BertModel, 0, 3, 24)
    module = DistillationModel(student, model(BertModel, 1, 3, 24), preset_objectives("mobilebert", student)).train()
    inputs = torch.utils.data.default_collate(rows("mobilebert"))
    whole = module(**inputs)
    parts = []
    for phase in range(3):
        module.phase = phase
        parts.append(module(**inputs))
    for name in module.term_fields:
        torch.testing.assert_close(sum(part[name] for part in parts), whole[name])
    parts[1].loss.backward()
    assert module.model.encoder.layer[1].attention.self.query.weight.grad is not None
    assert module.model.encoder.layer[2].attention.self.query.weight.grad is None


class Watch(TrainerCallback):
    """Weights before every update."""

    def __init__(self, student):
        self.student, self.seen = student, []

    def on_step_begin(self, args, state, control, **kwargs):
        self.seen.append({name: value.clone() for name, value in self.student.state_dict().items()})


def test_in_a_run_layers_move_in_their_turn(tmp_path):
    run = trainer(tmp_path, "mobilebert", max_steps=8, progressive_steps=8, optim="adamw_torch", learning_rate=1e-3)
    watch = Watch(run.student)
    run.add_callback(watch)
    run.train()
    seen = [*watch.seen, run.student.state_dict()]

    def moves(part, start, end):
        return any(not torch.equal(seen[start][name], seen[end][name]) for name in seen[0] if part in name)

    assert moves("layer.0.", 1, 4)
    assert not moves("layer.1.", 0, 4)
    assert moves("layer.1.", 5, 8)
    assert moves("layer.0.", 5, 8), "finished layers go on at a tenth of the rate"
    assert not moves("embeddings", 0, 8)
    embeddings = run.student.embeddings.word_embeddings.weight
    assert embeddings not in run.optimizer.state, "Adam gathers nothing of what is closed"
    logged = [entry["learning_rate"] for entry in run.state.log_history if "learning_rate" in entry]
    assert max(logged) == pytest.approx(3e-3 * background(1, 8, 2))


def test_steps_must_be_known(tmp_path):
    with pytest.raises(ValueError, match="set `max_steps` or `progressive_steps`"):
        trainer(tmp_path, "mobilebert", max_steps=-1, progressive_steps=None, num_train_epochs=1)
