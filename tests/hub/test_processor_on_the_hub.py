"""A processor with its vocabulary and dictionary goes to a Hub and comes back, and `verify` looks at it."""

import json

import numpy as np
import pytest

from hf_ptm_ext import (
    DictionaryLinker,
    EntityTable,
    ErnieThuConfig,
    ErnieThuForPreTraining,
    ErnieThuProcessor,
)
from hf_ptm_ext.hub import verify
from tests.hub.checkpoints import run_script, tiny_tokenizer
from tests.hub.loopback_hub import running

REPOSITORY = "tester/processor"
TEXT = "The light was seen from the harbour."

PUSH = """
from hf_ptm_ext import ErnieThuProcessor

ErnieThuProcessor.from_pretrained({folder!r}).{how}
"""

LOAD = f"""
import json
from transformers import AutoProcessor

processor = AutoProcessor.from_pretrained("{REPOSITORY}", trust_remote_code=True)
print(json.dumps(dict(processor("{TEXT}"))))
"""


@pytest.fixture
def processor():
    titles = {"light": "Q9128", "harbour": "Q283202"}
    table = EntityTable.from_arrays(np.eye(2), ids=["Q9128", "Q283202"], titles=titles)
    return ErnieThuProcessor(tiny_tokenizer(), table, linker=DictionaryLinker.from_vocabulary(table.vocabulary))


@pytest.mark.slow
@pytest.mark.parametrize("how", [f"push_to_hub('{REPOSITORY}')", "save_pretrained({folder!r}, push_to_hub=True)"])
def test_a_pushed_processor_loads_by_id_without_the_package(processor, tmp_path, how):
    folder = tmp_path / "processor"
    processor.save_pretrained(folder)
    how = how.format(folder=str(folder)).replace("push_to_hub=True", f"push_to_hub=True, repo_id='{REPOSITORY}'")
    with running() as hub:
        environment = hub.environment(tmp_path / "home")
        run_script(PUSH.format(folder=str(folder), how=how), hidden=False, **environment)
        files = hub.files(REPOSITORY)
        assert {"entity_vocab.safetensors", "entity_linker.safetensors", "processing_ernie_thu.py"} <= set(files)
        found = json.loads(run_script(LOAD, **environment).splitlines()[-1])
    assert found == dict(processor(TEXT))
    assert sum(map(bool, found["entity_ids"])) == 2


@pytest.mark.slow
def test_verify_runs_the_processor_of_a_checkpoint(processor, tmp_path):
    folder = tmp_path / "model"
    config = ErnieThuConfig(
        vocab_size=len(processor.tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        entity_hidden_size=8,
        entity_num_attention_heads=2,
        fusion_layer_types=["mix", "norm"],
    )
    ErnieThuForPreTraining(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    found = verify(folder)
    assert found.ok, found.problems
    assert all(result.resaved for result in found.results)
    (folder / "entity_vocab.safetensors").unlink()
    assert [problem for problem in verify(folder).problems if problem.startswith("AutoProcessor: does not load")]
