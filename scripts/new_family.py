"""Write the files of a new family that is a BERT to begin with, and enter it where families are listed.

    python scripts/new_family.py NAME [--title TITLE]   # NAME: its model_type, such as ro_former

What is there then loads by the Auto classes, converts BERT's names and passes the conformance suite; its golden test
fails until the reference's outputs lie in tests/goldens, and says so. CONTRIBUTING.md has the steps.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADS = {
    "PreTraining": "MlmAndNspHead",
    "MaskedLM": "MaskedLMHead",
    "NextSentencePrediction": "NextSentenceHead",
    "SequenceClassification": "SequenceClassificationHead",
    "TokenClassification": "TokenClassificationHead",
    "QuestionAnswering": "QuestionAnsweringHead",
    "MultipleChoice": "MultipleChoiceHead",
}
WHAT = {
    "PreTraining": "its pre-training heads: masked tokens and next sentence",
    "MaskedLM": "the masked-language-model head alone",
    "NextSentencePrediction": "the next-sentence head alone",
    "SequenceClassification": "a classification or regression head on the pooled output",
    "TokenClassification": "a classification head on every token",
    "QuestionAnswering": "start and end logits for extractive question answering",
    "MultipleChoice": "one score per choice on the pooled output",
}
CONFIGURATION = '''"""@TITLE@ configuration: BERT's fields, and what the paper adds."""

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_@NAME@.@PREFIX@Config",
    "AutoModel": "modeling_@NAME@.@PREFIX@Model",
@AUTO@
}


@strict
class @PREFIX@Config(BertFamilyConfig):
    """Configuration of the @TITLE@ family (TODO: authors, year, link of the paper).

    Fields not listed are BERT's, with BERT's defaults.

    Examples:
        >>> from hf_ptm_ext import @PREFIX@Config
        >>> @PREFIX@Config(hidden_size=32, num_attention_heads=4).hidden_size
        32
    """

    model_type = "@NAME@"

    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION
'''
MODELING = '''"""@TITLE@ (TODO: authors, year, link of the paper; reference code OWNER/REPOSITORY).

TODO: in two sentences, what the paper changes in a BERT.
"""

from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .base_core import FamilyPreTrainedModel, encoder_forward
from .configuration_@NAME@ import AUTO_MAP, HF_PTM_EXT_VERSION, @PREFIX@Config
from .encoder_core import Encoder, Pooler
from .inputs_core import Embeddings, build_attention_mask, checked_positions
from .mask_contract_core import read_attention_mask
from .pretraining_core import MlmAndNspHead
from .task_heads_core import (
    MaskedLMHead,
    MultipleChoiceHead,
    NextSentenceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)


class @PREFIX@PreTrainedModel(FamilyPreTrainedModel):
    """Loading, saving and initialisation shared by all @TITLE@ classes."""

    config: @PREFIX@Config
    config_class = @PREFIX@Config
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION


class @PREFIX@Model(@PREFIX@PreTrainedModel):
    """The bare encoder.

    Args:
        config: the configuration.
        add_pooling_layer: whether to have BERT's pooler (default True).

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import @PREFIX@Config, @PREFIX@Model
        >>> config = @PREFIX@Config(
        ...     vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ... )
        >>> model = @PREFIX@Model(config).eval()
        >>> model(torch.tensor([[2, 7, 8, 3]])).last_hidden_state.shape
        torch.Size([1, 4, 32])
    """

    def __init__(self, config: @PREFIX@Config, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config) if add_pooling_layer else None
        self.post_init()

    @encoder_forward
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_sequences: int | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode."""
        words = self.word_states(input_ids, inputs_embeds, kwargs)
        attention_mask = read_attention_mask(self.config, attention_mask, words)
        position_ids = checked_positions(self.config, words, position_ids, attention_mask, sequence_ids)
        embeddings = self.embeddings(words, position_ids, token_type_ids)
        mask = build_attention_mask(self.config, embeddings, attention_mask, sequence_ids)
        hidden_states, _ = self.encoder(embeddings, mask, **kwargs)
        pooled = self.pooled_first(hidden_states, attention_mask, sequence_ids, num_sequences)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)

@CLASSES@
'''
CONVERSION = '''"""@TITLE@ checkpoints of the original code (TODO: OWNER/REPOSITORY) to ours and back."""

from ..models.configuration_@NAME@ import @PREFIX@Config
from .layout import BERT_FIELDS, Layout, functions_of


class @PREFIX@Layout(Layout):
    title, family, prefix = "@TITLE@", "@NAME@", "@PREFIX@"
    config_class = @PREFIX@Config
    fields = (*BERT_FIELDS, "tie_word_embeddings", "is_decoder", "position_embedding_type")
    own = ("pad_token_id", "tie_word_embeddings", "is_decoder", "position_embedding_type")


LAYOUT = @PREFIX@Layout()
globals().update(functions_of(LAYOUT))
'''
TESTS = '''"""The @TITLE@ family passes the conformance suite, and reproduces the reference."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.@NAME@ import convert_config, convert_state_dict
from hf_ptm_ext.models import modeling_@NAME@
from tests.conformance.bert_like import BertLikeConformance
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
MISSING = """There is no tests/goldens/@DASHED@-a.json yet, so nothing shows that this is @TITLE@. Run the
reference code on a tiny random model (3 layers, width 32, rows of several lengths) and save
  @DASHED@-a.json         {"config": its config, "tolerance": 1e-5, "reference": repository and commit}
  @DASHED@-a.safetensors  "model/NAME" each weight under its own name; "in.input_ids", "in.attention_mask" and further
                         inputs; "out.hidden_0" (embeddings), "out.hidden_1" ..., "out.pooled", "out.mlm_logits"
Then write what the paper adds, in models/modeling_@NAME@.py and conversion/@NAME@.py, until this test passes."""


class Test@PREFIX@(BertLikeConformance, modeling=modeling_@NAME@, prefix="@PREFIX@"):
    """Its inputs are BERT's; override `rows`, `config_kwargs` or a check where the paper adds something."""


@pytest.mark.golden
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_the_golden(attention):
    if not (GOLDENS / "@DASHED@-a.json").is_file():
        pytest.fail(MISSING, pytrace=False)
    facts = json.loads((GOLDENS / "@DASHED@-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "@DASHED@-a.safetensors")
    state = {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
    config = convert_config(facts["config"])
    model = modeling_@NAME@.@PREFIX@ForPreTraining._from_config(config, attn_implementation=attention).eval()
    model.load_state_dict(convert_state_dict(state, config))
    inputs = {name.removeprefix("in."): value for name, value in tensors.items() if name.startswith("in.")}
    outputs = model(**inputs, output_hidden_states=True)
    found = {f"out.hidden_{number}": value for number, value in enumerate(outputs.hidden_states)}
    found |= {"out.pooled": model.bert(**inputs).pooler_output, "out.mlm_logits": outputs.prediction_logits}
    wanted = {name: value for name, value in tensors.items() if name.startswith("out.")}
    assert wanted.keys() <= found.keys()
    for name, value in wanted.items():
        assert_agrees(found[name], value, facts["tolerance"], name=name)
'''
PAGE = """# @TITLE@

@TITLE@ (TODO: authors and year, linked to the paper; code: OWNER/REPOSITORY) is a BERT that ... (TODO: what the paper
adds, in two sentences, and what it is for).

## Smallest example

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

from hf_ptm_ext import @PREFIX@Config, @PREFIX@ForMaskedLM, DataCollatorForMaskedLanguageModeling
from hf_ptm_ext.data import embedded_corpus, pretraining_dataset, train_wordpiece

documents = embedded_corpus("en")[:200]
tokenizer = train_wordpiece(documents, vocab_size=500)
rows = pretraining_dataset(documents, tokenizer, max_seq_length=64)
sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
model = @PREFIX@ForMaskedLM(@PREFIX@Config(vocab_size=len(tokenizer), **sizes))
batch = DataCollatorForMaskedLanguageModeling(tokenizer, seed=0)([rows[0], rows[1]])
print(f"loss {model(**batch).loss:.2f}")

model.save_pretrained("tiny")
tokenizer.save_pretrained("tiny")
model = AutoModelForMaskedLM.from_pretrained("tiny", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("tiny")
```

## Checkpoints

```bash
hf-ptm-ext convert @NAME@ pytorch_model.bin @DASHED@-base
hf-ptm-ext pretrain --objective mlm --model_name_or_path @DASHED@-base --train_file "corpus/*.txt.gz"
```

## Differences to the reference

* TODO: what is other than in the released code, and why.

## Citation

```bibtex
TODO
```
"""
CARD = """---
{{ card_data }}
---

# {{ title }}

{{ description }}

@TITLE@ is a BERT that ... (TODO: what the paper adds, and its link).

{% include "_loading.md" %}

{% include "_results.md" %}

{% include "_training.md" %}

## Limitations

{% for limitation in limitations -%}
- {{ limitation }}
{% endfor -%}
- A head that the checkpoint lacks is initialised at random and its predictions are noise; loading says which one.
- The model repeats what its training text says, including its errors and prejudices.
"""
SYSTEM = """@TITLE@ | @NAME@ | @PREFIX@ForPreTraining
    | DataCollatorForMaskedLanguageModeling | mlm | trainers.PreTrainingTrainer
    | https://github.com/TODO | TODO: title of the paper
    | families/@NAME@ | pretrain --objective mlm --family @NAME@ --train_file corpus.txt
"""
FILES = {
    "hf_ptm_ext/models/configuration_@NAME@.py": CONFIGURATION,
    "hf_ptm_ext/models/modeling_@NAME@.py": MODELING,
    "hf_ptm_ext/conversion/@NAME@.py": CONVERSION,
    "tests/models/@NAME@/test_modeling_@NAME@.py": TESTS,
    "docs/families/@NAME@.md": PAGE,
    "model_cards/@NAME@.md": CARD,
}
# File -> what the new line stands in front of, and the line.
ENTRIES = {
    "hf_ptm_ext/cli/convert.py": ('    "zen",\n', '    "@NAME@",\n'),
    "hf_ptm_ext/systems.py": ("BERT masked language model | ", SYSTEM),
    "mkdocs.yml": ("      - IB-BERT: families/", "      - @TITLE@: families/@NAME@.md\n"),
}
NEXT = """Next: 1. what the paper adds, in models/configuration_@NAME@.py and models/modeling_@NAME@.py; 2. the golden:
the failing test of tests/models/@NAME@ says how; 3. the renames of the original's files, in conversion/@NAME@.py;
4. the TODOs of systems.py, docs/families/@NAME@.md and model_cards/@NAME@.md; 5. a line in CHANGELOG.md."""


def main() -> int:
    """Write and enter the family."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="its model_type: small letters, digits and _")
    parser.add_argument("--title", help="its name in the paper (default: NAME in capitals)")
    arguments = parser.parse_args()
    name = arguments.name
    problem = refused(name)
    if problem:
        print(f"new_family.py: error: {problem}", file=sys.stderr)
        return 2
    words = {
        "NAME": name,
        "TITLE": arguments.title or name.upper().replace("_", "-"),
        "DASHED": name.replace("_", "-"),
    }
    words["PREFIX"] = prefix = "".join(part.capitalize() for part in name.split("_"))
    words["AUTO"] = "\n".join(f'    "AutoModelFor{one}": "modeling_{name}.{prefix}For{one}",' for one in HEADS)
    words["CLASSES"] = "\n\n".join(
        f"\nclass {prefix}For{one}({head}, {prefix}PreTrainedModel, encoder={prefix}Model):\n"
        f'    """{words["TITLE"]} with {WHAT[one]}."""'
        for one, head in HEADS.items()
    )
    for file, template in FILES.items():
        path = ROOT / filled(file, words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(filled(template, words), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    for file, (place, line) in ENTRIES.items():
        path = ROOT / file
        before, found, behind = path.read_text(encoding="utf-8").partition(place)
        path.write_text(before + filled(line, words) + found + behind, encoding="utf-8")
        print(f"entered in {file}")
    for command in (["scripts/make_stub.py"], ["-m", "tests.test_public_api"]):
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    print(filled(NEXT, words))
    return 0


def refused(name: str) -> str | None:
    """Why a name cannot be that of a new family."""
    from transformers import CONFIG_MAPPING

    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or name.endswith("core"):
        return f"NAME must be small letters, digits and single _, and not end in core, got {name!r}."
    if any((ROOT / file.replace("@NAME@", name)).exists() for file in FILES):
        return f"there is a family {name!r} already."
    if name in CONFIG_MAPPING:
        return f"transformers has a model {name!r} already: choose another name."
    return None


def filled(text: str, words: dict[str, str]) -> str:
    """A template with its words."""
    return re.sub(r"@([A-Z]+)@", lambda match: words[match[1]], text)


if __name__ == "__main__":
    sys.exit(main())
