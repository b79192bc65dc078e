"""Three terms with three denominators: accumulation and several processes change nothing, whatever the rows hold."""

import json

import pytest
import torch

from tests.models.ernie_thu.one_update import one_update
from tests.trainers.test_distributed import launch


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return one_update(tmp_path_factory.mktemp("whole"), 8, 1, "indices")


@pytest.mark.parametrize(("size", "steps"), [(4, 2), (2, 4), (1, 8)])
def test_every_term_is_a_mean_over_the_update(whole, size, steps, tmp_path):
    """The last micro-batches have no entity at all."""
    trainer, evaluation = one_update(tmp_path, size, steps, "indices")
    for (name, value), expected in zip(trainer.model.named_parameters(), whole[0].model.parameters(), strict=True):
        torch.testing.assert_close(value, expected, atol=1e-6, rtol=1e-5, msg=lambda text, n=name: f"{n}: {text}")
    first, logged = whole[0].state.log_history[0], trainer.state.log_history[0]
    for name in ("loss", "mlm_loss", "nsp_loss", "entity_loss", "grad_norm"):
        assert logged[name] == pytest.approx(first[name], rel=1e-4), name
    assert evaluation["eval_loss"] == pytest.approx(whole[1]["eval_loss"], rel=1e-4)


def test_ids_of_no_entity_are_no_targets(tmp_path):
    """Clean ids as labels have zeros: the update counts entities alone. Each micro-batch has candidates of its own."""
    for size, steps in ((8, 1), (1, 8)):
        trainer, _ = one_update(tmp_path, size, steps, "ids")
        logged = trainer.state.log_history[0]
        total = logged["mlm_loss"] + logged["nsp_loss"] + logged["entity_loss"]
        assert logged["loss"] == pytest.approx(total, rel=1e-4)
        # About log(candidates): 6 in the batch of eight, 2 to 4 in a row. Zeros as targets would shrink it tenfold.
        assert 0.5 < logged["entity_loss"] < 2.5


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["indices", "ids"])
def test_two_processes_make_the_update_of_one(labels, tmp_path, whole):
    """One of them has nearly all entities; evaluation gathers logits although numbers of candidates differ."""
    words = ["-m", "tests.models.ernie_thu.one_update", str(tmp_path), "2", "2", labels]
    output = launch(29631, *words)
    result = json.loads(output.partition("RESULT")[2].splitlines()[0])
    assert result["shapes"] == [[8, 14, 60]]
    assert 0 < result["eval_loss"] < 20
    assert all(torch.tensor(value).isfinite().all() for value in result["weights"].values())
    if labels == "ids":
        return  # the candidates of a process are its own: another loss by definition
    for name, value in whole[0].model.named_parameters():
        assert result["weights"][name] == pytest.approx(value.flatten()[:50].tolist(), rel=1e-4, abs=2e-6), name
    for name, value in result["logged"].items():
        assert value == pytest.approx(whole[0].state.log_history[0][name], rel=1e-4), name
