"""A package's public names, each taken from its home when it is first used, so that importing the package is cheap."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType


def export_on_first_use(package: str, homes: Mapping[str, Sequence[str]]) -> None:
    """Make a package give out names without importing the modules that define them before that.

    A public name stays what it is when a module of the same name is imported: ``mirror.verify`` is the function.

    Args:
        package: the package's ``__name__``.
        homes: module -> the names that it defines.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    class Exporting(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name not in home_of:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            value = getattr(import_module(home_of[name]), name)
            self.__dict__[name] = value
            return value

        def __setattr__(self, name: str, value: object) -> None:
            if name in home_of and isinstance(value, ModuleType):
                return  # the import system binds a submodule to its package
            super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *home_of})

    sys.modules[package].__class__ = Exporting
