"""Registration with transformers' Auto classes and with PEFT, without importing a line before it is needed.

A post-import hook on transformers' auto modules (and `peft`) adds our configurations, model classes as entries that
are imported on first look-up, and adapters. Classes are marked for their auto class as their module is imported.
"""

import ast
import importlib
import importlib.abc
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Family:
    """One model family: its classes by auto class; `variants` are told by the config's `architectures`."""

    model_type: str
    config: str
    models: dict[str, str]
    tokenizer: str | None = None
    processor: str | None = None
    variants: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def module(self, kind: str) -> str:
        """Name of the family's `configuration`, `modeling`, `tokenization` or `processing` module."""
        return f"hf_ptm_ext.models.{kind}_{self.model_type}"

    def model_classes(self) -> list[tuple[str, str]]:
        """Pairs of auto class and model class, variants included."""
        return self.parts()["modeling"]

    def parts(self) -> dict[str, list[tuple[str, str]]]:
        """Kind of module -> pairs of auto class and class in it, variants included."""
        variants = [(auto_class, name) for auto_class, names in self.variants.items() for name in names]
        parts = {"configuration": [("AutoConfig", self.config)], "modeling": [*self.models.items(), *variants]}
        if self.tokenizer is not None:
            parts["tokenization"] = [("AutoTokenizer", self.tokenizer)]
        if self.processor is not None:
            parts["processing"] = [("AutoProcessor", self.processor)]
        return parts

    def load(self, kind: str, name: str) -> Any:
        """Import one class of the family."""
        return getattr(importlib.import_module(self.module(kind)), name)


MODELS = Path(__file__).with_name("models")
# Model classes outside a family's auto_map: their checkpoints name them in `architectures`.
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "ernie_thu": {"AutoModelForSequenceClassification": ("ErnieThuForEntityTyping",)},
    "k_adapter": {
        "AutoModelForSequenceClassification": ("KAdapterForRelationClassification",),
        "AutoModelForTokenClassification": ("KAdapterForDependencyHeads",),
    },
}
# `model_type` in checkpoints of transformers 4 -> the family that reads them.
TYPES_BEFORE = {"transfo-xl": "transfo_xl"}


def _family(configuration: Path) -> Family:
    """A family as its configuration's file and the files beside it describe it; nothing is imported."""
    model_type = configuration.stem.removeprefix("configuration_")
    text = configuration.read_text(encoding="utf-8")
    start = text.index("{", text.index("\nAUTO_MAP"))
    auto_map = ast.literal_eval(text[start : text.index("}", start) + 1])
    classes = {auto_class: name.rpartition(".")[2] for auto_class, name in auto_map.items()}
    config = classes.pop("AutoConfig")
    prefix = config.removesuffix("Config")
    return Family(
        model_type,
        config,
        classes,
        tokenizer=f"{prefix}Tokenizer" if (MODELS / f"tokenization_{model_type}.py").is_file() else None,
        processor=f"{prefix}Processor" if (MODELS / f"processing_{model_type}.py").is_file() else None,
        variants=VARIANTS.get(model_type, {}),
    )


FAMILIES = tuple(
    _family(path) for path in sorted(MODELS.glob("configuration_*.py")) if not path.stem.endswith("_core")
)

AUTO = "transformers.models.auto"
PEFT_VERSIONS = "peft>=0.21,<0.23"


class _PostImportLoader(importlib.abc.Loader):
    """Runs callbacks after the wrapped loader has executed a module."""

    def __init__(self, loader: importlib.abc.Loader, callbacks: list[Callable[[ModuleType], None]]):
        self._loader = loader
        self._callbacks = callbacks

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        while self._callbacks:
            self._callbacks.pop(0)(module)


class _PostImportFinder(importlib.abc.MetaPathFinder):
    """Finds modules that somebody waits for and wraps their loader."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callable[[ModuleType], None]]] = {}
        self._searched: set[str] = set()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        callbacks = self.callbacks.get(fullname)
        if not callbacks or fullname in self._searched:
            return None
        self._searched.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searched.remove(fullname)
        if spec is not None and spec.loader is not None:
            # Looking for a module is not importing it: the callbacks stay until one of the loaders runs it.
            spec.loader = _PostImportLoader(spec.loader, callbacks)
        return spec


_FINDER = _PostImportFinder()


def when_imported(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call `callback(module)` once the module is imported; at once if it already is."""
    if name in sys.modules:
        callback(sys.modules[name])
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.callbacks.setdefault(name, []).append(callback)


class _LazyClasses(dict):
    """The extra entries of an auto mapping, where an entry of ours is a function that imports its class."""

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, _Importer):
            value = value()
            self[key] = value
        return value

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(super().keys()))

    def keys(self) -> Any:
        return tuple(super().keys())

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 (dict.get would not import)


@dataclass(frozen=True)
class _Importer:
    """Imports one class when called; with variants, a tuple of classes, as upstream has for such cases."""

    family: Family
    kind: str
    name: str
    variants: tuple[str, ...] = ()

    def __call__(self) -> Any:
        loaded = tuple(self.family.load(self.kind, name) for name in (self.name, *self.variants))
        return loaded if self.variants else loaded[0]


def _register_configs(module: ModuleType) -> None:
    for family in FAMILIES:
        module.AutoConfig.register(family.model_type, family.load("configuration", family.config), exist_ok=True)
    for name, model_type in TYPES_BEFORE.items():
        module.CONFIG_MAPPING.register(name, module.CONFIG_MAPPING[model_type], exist_ok=True)


def _register_models(module: ModuleType) -> None:
    for family in FAMILIES:
        config = family.load("configuration", family.config)
        for auto_class, name in family.models.items():
            mapping = getattr(module, auto_class)._model_mapping
            variants = family.variants.get(auto_class, ())
            if not isinstance(mapping._extra_content, _LazyClasses):
                mapping._extra_content = _LazyClasses(mapping._extra_content)
            mapping.register(config, _Importer(family, "modeling", name, variants), exist_ok=True)


def _register_tokenizers(module: ModuleType) -> None:
    """Under a placeholder configuration: under the real one a checkpoint's copy goes before the installed class."""
    from transformers.configuration_utils import PreTrainedConfig

    for family in FAMILIES:
        if family.tokenizer is None:
            continue
        tokenizer = family.load("tokenization", family.tokenizer)
        placeholder = type(
            f"{family.tokenizer}PlaceholderConfig",
            (PreTrainedConfig,),
            {"model_type": f"{family.model_type}-tokenizer"},
        )
        module.AutoTokenizer.register(placeholder, tokenizer_class=tokenizer, exist_ok=True)


def _register_processors(module: ModuleType) -> None:
    for family in FAMILIES:
        if family.processor is not None:
            config = family.load("configuration", family.config)
            module.AutoProcessor.register(config, family.load("processing", family.processor), exist_ok=True)


def _register_pipelines(module: ModuleType) -> None:
    """Enter the pipeline by its name, as upstream enters its own: it is imported when it is asked for."""
    module.PIPELINE_REGISTRY.supported_tasks.setdefault(
        "extractive-question-answering",
        {
            "impl": "hf_ptm_ext.pipelines.pipeline_question_answering.ExtractiveQuestionAnsweringPipeline",
            "pt": (module.AutoModelForQuestionAnswering,),
            "type": "text",
        },
    )


def _register_peft_methods(module: ModuleType) -> None:
    """Make PEFT know the adapters of this package; a PEFT that they do not fit stays usable for all else."""
    try:
        importlib.import_module("hf_ptm_ext.adapters.peft_methods").register()
    except (ImportError, AttributeError, TypeError) as error:
        warnings.warn(
            f"hf_ptm_ext's adapters need `{PEFT_VERSIONS}`, got peft {getattr(module, '__version__', '')}: {error}",
            stacklevel=2,
        )


def _mark_auto_classes(classes: list[tuple[str, str]]) -> Callable[[ModuleType], None]:
    def mark(module: ModuleType) -> None:
        for auto_class, name in classes:
            getattr(module, name).register_for_auto_class(auto_class)

    return mark


def register() -> None:
    """Make every family known to transformers' Auto classes, and the adapters to PEFT; safe to call again."""
    when_imported(f"{AUTO}.configuration_auto", _register_configs)
    when_imported(f"{AUTO}.modeling_auto", _register_models)
    when_imported(f"{AUTO}.tokenization_auto", _register_tokenizers)
    when_imported(f"{AUTO}.processing_auto", _register_processors)
    when_imported("transformers.pipelines", _register_pipelines)
    when_imported("peft", _register_peft_methods)
    for family in FAMILIES:
        for kind, classes in family.parts().items():
            when_imported(family.module(kind), _mark_auto_classes(classes))
