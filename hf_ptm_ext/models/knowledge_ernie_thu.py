"""How a model gets at entity vectors: a table outside, or a small one of its own inside the checkpoint.

The outside table is neither parameter nor buffer: it is not saved, not moved, not broadcast.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.utils import logging

from .entity_table_ernie_thu import EntityTable
from .files_core import path_inside, relative_name
from .losses_core import values_can_be_read

if TYPE_CHECKING:
    from .base_core import FamilyPreTrainedModel
else:
    FamilyPreTrainedModel = object

logger = logging.get_logger(__name__)

# Weights, and what a processor or another tokenizer saves, in safetensors files too.
_OWN_FILES = re.compile(
    r"(adapter_)?model([-.].*)?\.safetensors|(entity_vocab|entity_linker|knowledge_graph)\.safetensors", re.IGNORECASE
)
_SOURCE = "`entity_embeddings_source` (pass a table from elsewhere to `set_entity_table`)"
SOURCE_FIELDS = ("path", "repo_id", "repo_type", "filename", "revision", "sha256", "num_rows", "dim")


@torch.compiler.disable
def look_up(table: Any, entity_ids: torch.Tensor) -> torch.Tensor:
    """Vectors of a table outside the model; files are read, so no graph can hold it."""
    vectors = table.copy_on(entity_ids.device)
    return table.lookup(entity_ids) if vectors is None else vectors[entity_ids].float()


def table_name(source: Mapping[str, Any]) -> PurePosixPath:
    """The name of a table that is a file of the checkpoint."""
    name = relative_name(source["path"], _SOURCE)
    if name.suffix.lower() != ".safetensors" or _OWN_FILES.fullmatch(name.name):
        raise ValueError(
            "`entity_embeddings_source` must name a .safetensors file of its own, such as entity_table.safetensors: "
            f"saving writes the table there, got {source['path']!r}, where other files of a checkpoint are."
        )
    return name


def source_file(source: Mapping[str, Any], checkpoint: str, commit: str | None, allow_external: bool) -> Path:
    """The file of `config.entity_embeddings_source`, downloaded if it has to be."""
    unknown = sorted(set(source) - set(SOURCE_FIELDS))
    if unknown or ("path" in source) == ("repo_id" in source):
        raise ValueError(
            "`entity_embeddings_source` must have `path` (a file of the checkpoint), or `repo_id`, `filename`, "
            f"`revision` and `sha256` (of another repository), got {dict(source)}."
        )
    if "path" in source:
        name = table_name(source)
        if not checkpoint:
            raise ValueError(
                f"`entity_embeddings_source` names {source['path']!r} inside the checkpoint, and this model was not "
                "loaded from one. Open the table with `EntityTable.from_file` and pass it to `set_entity_table`."
            )
        if Path(checkpoint).is_dir() or not re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", checkpoint):
            return path_inside(checkpoint, str(name), _SOURCE)
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(checkpoint, str(name), revision=commit))
    lacking = [name for name in ("filename", "revision", "sha256") if not source.get(name)]
    if lacking:
        raise ValueError(
            f"`entity_embeddings_source` must pin a table of another repository; {source['repo_id']} comes without "
            f"{', '.join(lacking)}."
        )
    if not allow_external:
        raise ValueError(
            f"The entity table of this model is in another repository, {source['repo_id']} "
            f"({source['filename']}, revision {source['revision']}, sha256 {source['sha256']}), which is not asked "
            "without your consent: call `model.load_entity_table(allow_external=True)`, or pass a table of your own "
            "to `model.set_entity_table`."
        )
    from huggingface_hub import hf_hub_download

    return Path(
        hf_hub_download(
            source["repo_id"], source["filename"], revision=source["revision"], repo_type=source.get("repo_type")
        )
    )


class ErnieThuKnowledge(FamilyPreTrainedModel):
    """Mixin in front of `PreTrainedModel`: the entity table of a model, on its base model for every head."""

    _entity_table: Any = None

    @property
    def entity_table(self: Any) -> Any:
        """The table outside the checkpoint, `None` as long as none is set or opened."""
        return self.base_model._entity_table

    def set_entity_table(self: Any, table: Any, source: Mapping[str, Any] | None = None) -> None:
        """Use a table outside the checkpoint from now on; it replaces whatever the model had."""
        base = self.base_model
        if source is not None and "path" in source:
            table_name(source)
        if table is not None:
            if not (hasattr(table, "dim") and hasattr(table, "lookup")):
                raise TypeError(
                    f"`table` must be an `EntityTable`, got {type(table).__name__}. Open a file of one with "
                    "`EntityTable.from_file(path)`, or make one with `EntityTable.from_arrays(vectors, ids)`."
                )
            if table.dim != base.config.entity_hidden_size:
                raise ValueError(
                    f"`table` must have vectors of `entity_hidden_size` = {base.config.entity_hidden_size} numbers, "
                    f"got {table.dim}. Use the table that belongs to the model, or a config with that size."
                )
            base.entity_embeddings = None
            self._note_table(entity_embeddings_in_checkpoint=False, entity_vocab_size=len(table))
            if source is not None:
                self._note_table(entity_embeddings_source={**source, **table.describe()})
        base._entity_table = table

    def load_entity_table(self: Any, allow_external: bool = False) -> Any:
        """Open the table that the config names; the first use of `entity_ids` does it by itself."""
        base = self.base_model
        source = base.config.entity_embeddings_source
        if source is None:
            raise ValueError(
                "`entity_ids` need an entity table, and this model has none. Get one with "
                "`EntityTable.from_file(path)`, or from your own vectors with `EntityTable.from_arrays(vectors, ids)` "
                "(also `from_kg_embed`, `from_openke`, `from_word2vec`), and pass it to `set_entity_table(table)`. "
                "Or pass vectors as `entity_embeds`."
            )
        commit = getattr(base.config, "_commit_hash", None)
        file = source_file(source, self.name_or_path or base.name_or_path, commit, allow_external)
        table = EntityTable.from_file(file, sha256=source.get("sha256"), dim=base.config.entity_hidden_size)
        if source.get("num_rows") not in (None, len(table)):
            raise ValueError(
                f"{file} must have {source['num_rows']} rows, as `entity_embeddings_source` says, got {len(table)}."
            )
        base._entity_table = table
        return table

    def save_pretrained(  # type: ignore[override]
        self: Any,
        save_directory: Any,
        is_main_process: bool = True,
        state_dict: Mapping[str, torch.Tensor] | None = None,
        push_to_hub: bool = False,
        **kwargs: Any,
    ) -> None:
        """As upstream; a table that the config names as a file of the checkpoint is written there."""
        source = self.base_model.config.entity_embeddings_source
        options = {"is_main_process": is_main_process, "state_dict": state_dict, **kwargs}
        if source is None or "path" not in source:
            super().save_pretrained(save_directory, push_to_hub=push_to_hub, **options)
            return
        target = Path(save_directory) / table_name(source)
        used = self.base_model._entity_table
        if isinstance(used, EntityTable) and used.sha256 != source.get("sha256"):
            self._note_table(entity_embeddings_source={**source, **used.describe()})
        super().save_pretrained(save_directory, **options)
        if is_main_process:
            table = self._table_to_save(source)
            if table is not None:
                table.save_as_is(target)
            elif not target.is_file():
                logger.warning(
                    f"`entity_embeddings_source` names {source['path']!r} in the checkpoint, and there is no such "
                    f"table here to save. Write it to {target} with `EntityTable.save`."
                )
        if push_to_hub:  # upstream would upload before the table is there
            names = ("commit_message", "private", "token", "revision", "create_pr")
            upload = {name: kwargs[name] for name in names if name in kwargs}
            self.push_to_hub(kwargs.get("repo_id", Path(save_directory).name), **upload)

    def _table_to_save(self: Any, source: Mapping[str, Any]) -> Any:
        """The table in use or, unopened so far, the checkpoint's own; `None` if neither is at hand."""
        table = self.base_model._entity_table
        if table is not None:
            return table if isinstance(table, EntityTable) else None
        checkpoint = self.name_or_path or self.base_model.name_or_path
        if not checkpoint:
            return None
        try:
            file = source_file(source, checkpoint, getattr(self.base_model.config, "_commit_hash", None), False)
            return EntityTable.from_file(file)
        except OSError:
            return None

    def prune_entity_table(
        self: Any, entity_ids: torch.Tensor | Iterable[int] | None = None, freeze: bool | None = None
    ) -> Any:
        """Put the rows that are used into the checkpoint, as `entity_embeddings.weight`.

        Kept rows are numbered anew in their old order: give the processor the table that is returned.
        """
        base = self.base_model
        if base.entity_embeddings is not None:
            table = EntityTable(base.entity_embeddings.weight.detach().float().cpu().numpy())
        else:
            table = base._entity_table if base._entity_table is not None else self.load_entity_table()
        if entity_ids is not None:
            table = table.prune(entity_ids if torch.is_tensor(entity_ids) else list(entity_ids))
        like = base.embeddings.word_embeddings.weight
        weight = table.weight().to(device=like.device, dtype=like.dtype)
        base.entity_embeddings = nn.Embedding.from_pretrained(weight, padding_idx=0)
        base._entity_table = None
        self._note_table(
            entity_embeddings_in_checkpoint=True, entity_vocab_size=len(table), entity_embeddings_source=None
        )
        if freeze is not None:
            self._note_table(freeze_entity_embeddings=freeze)
        base.entity_embeddings.weight.requires_grad_(not base.config.freeze_entity_embeddings)
        return table

    def entity_vectors(self: Any, entity_ids: torch.Tensor) -> torch.Tensor:
        """Vectors of entities, from the table inside the checkpoint or from the one outside."""
        base = self.base_model
        if base.entity_embeddings is None:
            if base._entity_table is None:
                base.load_entity_table()
            return look_up(base._entity_table, entity_ids)
        rows = base.entity_embeddings.num_embeddings
        if values_can_be_read(entity_ids) and entity_ids.numel():
            lowest, highest = int(entity_ids.min()), int(entity_ids.max())
            if lowest < 0 or highest >= rows:
                raise ValueError(
                    f"`entity_ids` must be 0 to {rows - 1}, the rows of the entity table, got {lowest} to {highest}. "
                    "Is the table the one that the processor's entity vocabulary belongs to?"
                )
        return base.entity_embeddings(entity_ids)

    def _note_table(self: Any, **fields: Any) -> None:
        """Write to the config of the head and of its encoder, which may be two objects."""
        for model in (self, self.base_model):
            for name, value in fields.items():
                setattr(model.config, name, value)
