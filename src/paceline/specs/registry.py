"""A registry: the variants of one kind, built in or added by other packages.

Each file of a folder is a built-in variant, named after the file. Other packages add variants
through entry points. A variant is imported only when it is requested.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from paceline.specs.errors import PacelineError

_Variant = TypeVar("_Variant")


class Registry(Generic[_Variant]):
    """The variants of one kind, by name.

    `what`: the kind in words, for messages. `group`: the entry point group of other packages.
    `package`: the folder whose files are the built-in variants, each as the file's `attribute`.
    Files whose names start with an underscore are not variants.
    """

    def __init__(
        self, what: str, *, group: str, package: str, attribute: str, kind: type[_Variant]
    ) -> None:
        self.what, self.group = what, group
        self._package, self._attribute, self._kind = package, attribute, kind
        self._loaded: dict[str, _Variant] = {}

    @cached_property
    def builtin(self) -> tuple[str, ...]:
        """Names of the built-in variants."""
        path = importlib.import_module(self._package).__path__
        names = (module.name for module in pkgutil.iter_modules(path))
        return tuple(sorted(name for name in names if not name.startswith("_")))

    @cached_property
    def outside(self) -> dict[str, EntryPoint]:
        """Variants from other packages."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self.builtin or point.name in found:
                raise PacelineError(
                    f"{_package_of(point)} adds the {self.what} {point.name!r}, which exists",
                    fix=f"uninstall {_package_of(point)}, or rename its entry point",
                )
            found[point.name] = point
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """All names, built-in ones first."""
        return (*self.builtin, *sorted(self.outside))

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self.outside

    def __iter__(self) -> Iterator[_Variant]:
        for name in self.builtin:  # entry points are read only if this finds nothing
            yield self.get(name)
        for name in sorted(self.outside):
            yield self.get(name)

    def get(self, name: str) -> _Variant:
        """Return a variant by its name."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> _Variant:
        if name in self.builtin:
            found = getattr(importlib.import_module(f"{self._package}.{name}"), self._attribute)
        elif name in self.outside:
            found = self._load_outside(self.outside[name])
        else:
            raise self._unknown(name)
        if not isinstance(found, self._kind):
            raise PacelineError(
                f"the {self.what} {name!r} is a {type(found).__name__}, not a"
                f" {self._kind.__module__}.{self._kind.__name__}",
                fix="update the package that adds it to this version of Paceline",
            )
        return found

    def _load_outside(self, point: EntryPoint) -> object:
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise PacelineError(
                f"the {self.what} {point.name!r} of {_package_of(point)} cannot be loaded: {error}",
                fix=f"reinstall {_package_of(point)}, or update it to this version of Paceline",
            ) from error

    def _unknown(self, name: str) -> PacelineError:
        near = difflib.get_close_matches(name, self.names, n=1)
        hint = f"use {near[0]!r}, or one of" if near else "use one of"
        return PacelineError(
            f"unknown {self.what} {name!r}", fix=f"{hint}: {', '.join(self.names)}"
        )


def _package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
