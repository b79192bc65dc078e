"""A model with other modules in it in one checkpoint: its code files, written for each, and the installed classes.

`configuration_adapted.py` and `modeling_adapted.py` subclass the classes of the model, transformers' or a family's of
this package, whose code goes along; `bottleneck_core.py` puts the adapters in. So do `configuration_int8.py`,
`modeling_int8.py` and `int8_core.py` with modules of whole numbers.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parents[1] / "models"
SEQ2SEQ = "AutoModelForSeq2SeqLM"


@dataclass(frozen=True)
class Kind:
    """What stands in a model: `name` of files and of the `model_type`'s beginning, a mixin in its `core` file."""

    name: str
    core: Path
    mixin: str
    holds: str
    field: str

    @property
    def prefix(self) -> str:
        """Of the `model_type`, in front of the model's own."""
        return f"{self.name}_"

    @property
    def named(self) -> str:
        """In front of the names of classes."""
        return self.name.capitalize()


ADAPTED = Kind(
    "adapted",
    MODELS / "bottleneck_core.py",
    "WithAdapters",
    "adapters",
    "`bottlenecks`, where adapters are and how wide",
)
INT8 = Kind("int8", MODELS / "int8_core.py", "WithInt8", "whole numbers", "`int8`, which modules compute with them")
KINDS = (ADAPTED, INT8)


def kind_of(config: Mapping[str, Any]) -> Kind | None:
    """What stands in the model of a `config.json`; none in a plain one."""
    if not isinstance(config.get("auto_map"), Mapping):
        return None
    return next((kind for kind in KINDS if str(config.get("model_type")).startswith(kind.prefix)), None)


def is_adapted(config: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is one of a model with something in it."""
    return kind_of(config) is not None


def model_type_of(config: Mapping[str, Any]) -> Any:
    """The `model_type`, without what stands in the model."""
    model_type, kind = config.get("model_type"), kind_of(config)
    return model_type if kind is None else str(model_type).removeprefix(kind.prefix)


def _kind(config: Mapping[str, Any]) -> Kind:
    kind = kind_of(config)
    if kind is None:
        raise ValueError(f"`model_type` {config.get('model_type')!r} is a plain model's.")
    return kind


def auto_class_of(config_class: type, name: str) -> str | None:
    """The auto class that gives a class of this name; none if there is none."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    # BART is a masked language model too, but nobody loads it as one.
    ordered = sorted(vars(auto), key=lambda one: (one != "AutoModel", one != SEQ2SEQ, one))
    for auto_class in ordered:
        if auto_class.startswith("AutoModel") and name in _classes(getattr(auto, auto_class), config_class):
            return auto_class
    return None


def _classes(auto_class: Any, config_class: type) -> dict[str, type]:
    """The classes that an auto class has for a configuration, by name."""
    mapping = getattr(auto_class, "_model_mapping", None)
    if mapping is None or config_class not in mapping:
        return {}
    found = mapping[config_class]
    return {one.__name__: one for one in (found if isinstance(found, tuple) else (found,))}


def adapted_auto_map(config_class: type, head: type, base: type | None, kind: Kind = ADAPTED) -> dict[str, str]:
    """The auto_map of a model with something in it: its head and, if that is another class, the bare model."""
    auto_class = auto_class_of(config_class, head.__name__)
    if auto_class is None:
        raise ValueError(
            f"`model` must be of a class that one of transformers' Auto classes gives, got a {head.__name__}: nothing "
            f"else loads without its own code.{' Save its adapter alone.' if kind is ADAPTED else ''}"
        )
    models = {auto_class: head}
    if base is not None and base.__name__ in _classes(_auto("AutoModel"), config_class):
        models = {"AutoModel": base, **models}
    return _auto_map(config_class, models, kind)


def _auto_map(config_class: type, models: Mapping[str, type], kind: Kind) -> dict[str, str]:
    return {
        "AutoConfig": f"configuration_{kind.name}.{kind.named}{config_class.__name__}",
        **{name: f"modeling_{kind.name}.{kind.named}{cls.__name__}" for name, cls in models.items()},
    }


def _auto(name: str) -> Any:
    return getattr(importlib.import_module("transformers"), name)


def plain_classes(config: Mapping[str, Any]) -> tuple[type, dict[str, type]]:
    """The plain classes: the configuration's, and the models' by auto class, as they are installed here."""
    import hf_ptm_ext  # noqa: F401 - registers the families

    config_class = _auto("CONFIG_MAPPING")[model_type_of(config)]
    models = {}
    for auto_class, reference in config["auto_map"].items():
        if auto_class.startswith("AutoModel"):
            name = str(reference).rpartition(".")[2].removeprefix(_kind(config).named)
            models[auto_class] = _classes(_auto(auto_class), config_class)[name]
    return config_class, models


def adapted_classes(config: Mapping[str, Any]) -> dict[str, type]:
    """Auto class -> a class of the installed package that does what the checkpoint's own code does."""
    kind = _kind(config)
    mixin = getattr(importlib.import_module(f"hf_ptm_ext.models.{kind.core.stem}"), kind.mixin)
    config_class, models = plain_classes(config)
    own: Any = type(f"{kind.named}{config_class.__name__}", (config_class,), {"model_type": config["model_type"]})
    fields = {"config_class": own, "_auto_class": None}
    return {name: type(f"{kind.named}{cls.__name__}", (mixin, cls), fields) for name, cls in models.items()}


def adapted_files(config: Mapping[str, Any]) -> dict[str, str]:
    """Name and text of the code files, those of the model's own family aside."""
    kind = _kind(config)
    try:
        config_class, models = plain_classes(config)
    except (KeyError, AttributeError):  # a configuration that names no such classes
        return {}
    name = f"{kind.named}{config_class.__name__}"
    entries = "".join(f'    "{key}": "{value}",\n' for key, value in _auto_map(config_class, models, kind).items())
    configuration = (
        f'"""A `{config_class.__name__}` of a model with {kind.holds} in it."""\n\n{_import_of(config_class)}\n'
        f"AUTO_MAP = {{\n{entries}}}\n\n\nclass {name}({config_class.__name__}):\n"
        f'    """With {kind.field}."""\n\n'
        f'    model_type = "{config["model_type"]}"\n'
    )
    classes = list(dict.fromkeys(models.values()))
    modeling = (
        f'"""A model and its {kind.holds} in one."""\n\n{"".join(map(_import_of, classes))}\n'
        f"from .{kind.core.stem} import {kind.mixin}\nfrom .configuration_{kind.name} import AUTO_MAP, {name}\n"
    )
    for cls in classes:
        modeling += (
            f"\n\nclass {kind.named}{cls.__name__}({kind.mixin}, {cls.__name__}):\n"
            f'    """A `{cls.__name__}` with {kind.holds}."""\n\n    config_class = {name}\n    _auto_map = AUTO_MAP\n'
        )
    core = kind.core.read_text(encoding="utf-8")
    return {f"configuration_{kind.name}.py": configuration, f"modeling_{kind.name}.py": modeling, kind.core.name: core}


def _import_of(cls: type) -> str:
    """The line that imports a class: of transformers absolutely, of a family from the folder."""
    module = cls.__module__
    place = module if module.startswith("transformers.") else f".{module.rpartition('.')[2]}"
    return f"from {place} import {cls.__name__}\n"
