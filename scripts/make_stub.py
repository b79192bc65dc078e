"""Write `hf_ptm_ext/__init__.pyi`, from which type checkers and editors know the names that the root imports lazily.

python scripts/make_stub.py
"""

from pathlib import Path

import hf_ptm_ext

STUB = Path(hf_ptm_ext.__file__).with_name("__init__.pyi")


def stub() -> str:
    """The text: one import for each module, its names exported."""
    modules: dict[str, list[str]] = {}
    for name, module in hf_ptm_ext._EXPORTS.items():
        modules.setdefault(module.removeprefix(hf_ptm_ext.__name__), []).append(name)
    imports = [
        f"from {module} import " + ", ".join(f"{name} as {name}" for name in sorted(names))
        for module, names in sorted(modules.items())
    ]
    listed = ", ".join(f'"{name}"' for name in hf_ptm_ext.__all__)
    return "\n".join(
        [
            "# Written by scripts/make_stub.py: names that `__init__.py` imports on first use.",
            *sorted([*imports, "from .version import __version__ as __version__"]),
            "",
            f"__all__ = [{listed}]",
            "",
        ]
    )


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
