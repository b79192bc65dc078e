"""Cached teacher outputs: the same run as with the teacher, under shuffling, and never those of other rows."""

import pytest
import torch

from hf_ptm_ext.distillation.cache import row_digests
from tests.distillation.pairs import pair, rows, trainer


def numbered(data):
    return [{**row, "sample_id": torch.tensor(100 - 7 * number)} for number, row in enumerate(data)]


def run(folder, cache, data=None, models=None, **more):
    data = numbered(rows("pkd")) if data is None else data
    return trainer(folder, "pkd", 4, data=data, models=models, max_steps=6, teacher_cache=str(cache), **more)


def test_a_cached_run_is_the_run_with_the_teacher(tmp_path):
    live = trainer(tmp_path / "live", "pkd", 4, data=numbered(rows("pkd")), max_steps=6)
    live.train()
    cache = tmp_path / "cache" / "teacher.safetensors"
    first = run(tmp_path / "first", cache, eval_dataset=rows("pkd"), teacher_in_eval=True)
    first.train()
    assert [path.name for path in cache.parent.iterdir()] == ["teacher.safetensors"]
    again = run(tmp_path / "again", cache)
    again._run_teachers = None  # it must not run
    again.train()
    for name, value in live.student.state_dict().items():
        torch.testing.assert_close(first.student.state_dict()[name], value, rtol=1e-5, atol=1e-7)
        assert torch.equal(again.student.state_dict()[name], first.student.state_dict()[name])
    assert "eval_patience_loss" in first.evaluate(), "rows of evaluation are not in the cache: the teacher runs"


def test_stale_caches_are_refused(tmp_path):
    cache = tmp_path / "teacher.safetensors"
    run(tmp_path, cache).train()
    changed = numbered(rows("pkd"))
    changed[2] = {**changed[2], "input_ids": changed[2]["input_ids"].flip(0)}
    with pytest.raises(ValueError, match=r"is stale: row 86 has other tokens"):
        run(tmp_path, cache, data=changed).train()
    more = numbered([*rows("pkd"), rows("pkd")[0]])
    with pytest.raises(ValueError, match=r"has no row 44"):
        run(tmp_path, cache, data=more).train()
    student, teacher = pair("pkd")
    teacher.bert.embeddings.word_embeddings.weight.data[7] += 1
    with pytest.raises(ValueError, match="written by another teacher"):
        run(tmp_path, cache, models=(student, teacher)).train()
    with pytest.raises(ValueError, match=r"other objectives: no \['first.1'\]"):
        run(tmp_path, cache, preset_options={"layers": [[1, 1]]}).train()


def test_what_cannot_be_cached_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"objectives need hidden\.0"):
        trainer(tmp_path, "tinybert-intermediate", teacher_cache=str(tmp_path / "c"))
    with pytest.raises(ValueError, match=r"column of numbers `sample_id`"):
        run(tmp_path, tmp_path / "c", data=rows("pkd")).train()
    same = [{**row, "sample_id": torch.tensor(3)} for row in rows("pkd")]
    with pytest.raises(ValueError, match="3 occurs twice"):
        run(tmp_path, tmp_path / "c", data=same).train()
    tokens = {"objectives": {"soft_labels": 1}, "teacher_cache": str(tmp_path / "c")}
    with pytest.raises(ValueError, match="predictions for every token are not cached"):
        trainer(tmp_path, "", models=pair("distilbert"), data=numbered(rows("distilbert")), **tokens).train()
    assert not list(tmp_path.glob("c*")), "nothing half-written stays"


def test_a_row_is_known_whatever_it_is_padded_to():
    ids = torch.tensor([[5, 6, 7, 0], [5, 7, 6, 0]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]])
    right = row_digests({"input_ids": ids, "attention_mask": mask})
    left = row_digests({"input_ids": ids.roll(1, 1), "attention_mask": mask.roll(1, 1)})
    longer = row_digests({"input_ids": ids, "attention_mask": torch.ones_like(mask)})
    assert torch.equal(right, left)
    assert right[0] != right[1], "order counts"
    assert not (longer == right).any()
    types = torch.tensor([[0, 0, 1, 0]] * 2)
    assert not (row_digests({"input_ids": ids, "attention_mask": mask, "token_type_ids": types}) == right).any()
