"""NEZHA checkpoints of the original code (huawei-noah/Pretrained-Language-Model) and of transformers 4, and back.

Old files have the fixed encodings of the distances in every layer, which are no weights.
"""

from typing import Any

from ..models.configuration_nezha import NezhaConfig
from .layout import BERT_FIELDS, BUFFERS, PREFIX, RENAMES, Layout, functions_of


class NezhaLayout(Layout):
    title, family, prefix = "NEZHA", "nezha", "Nezha"
    config_class = NezhaConfig
    fields = (
        *BERT_FIELDS,
        "max_relative_position",
        "tie_word_embeddings",
        "use_relative_position",
        "is_decoder",
    )
    own = ("pad_token_id", "tie_word_embeddings", "is_decoder")
    fixed = ("use_relative_position",)
    renames = (PREFIX, (r"^nezha\.", "bert.", "prefix `nezha.` to `bert.`"), *RENAMES[1:])
    buffers = rf"relative_positions_encoding\.|{BUFFERS}"

    def revert_config(self, config: Any) -> dict[str, Any]:
        return {**super().revert_config(config), "use_relative_position": True}


LAYOUT = NezhaLayout()
globals().update(functions_of(LAYOUT))
