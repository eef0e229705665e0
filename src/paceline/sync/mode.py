"""The protocol of a synchronization mode."""

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from paceline.specs import SyncSettings

if TYPE_CHECKING:
    from paceline.sync.hook import Hook, HookContext


class SyncMode(SyncSettings):
    """The base of every synchronization mode.

    To add one, write a file in `sync/modes`, or a package with an entry point in the group
    `paceline.sync`, that has:

    - a frozen subclass of this with `mode: Literal["NAME"] = "NAME"`, and a field for each of its
      settings, with a default and a docstring;
    - `MODE`, an instance of it: the mode with its default settings. The name of the file or of the
      entry point, which leads to `MODE`, is the mode's name.

    The mode must define `words` (a phrase for `paceline plan`), `traffic` (a round's transfers, for
    the planner) and `hook_path` (the hook that trains). It may override the rest of
    `SyncSettings`:

    - `title`: its name in tables;
    - `by_engine`, `replicas_differ`, `replicas_suffice`, `undecided`, `has_servers`,
      `batch_parts`: properties that the trainer and the planner read;
    - `check`, `check_shared_weights`: conflicts, raised as `PacelineError`; call `super().check`;
    - `state_bytes`, `extra_samples`: memory and samples, for the planner;
    - `candidates`, `overlapping`: settings that the planner and `auto` try.

    Modes that average gradients or changes of weights may derive from
    `paceline.sync.compression.CompressedSync`, which adds the settings of compression.

    Planning must not load torch: the module of `hook_path` may.
    """

    hook_path: ClassVar[str]
    """`module:name` of a factory, which takes the settings and a `HookContext`."""

    def hook(self, context: "HookContext") -> "Hook":
        """Return the hook that the trainer calls in every step; a collective call."""
        module, _, name = self.hook_path.partition(":")
        made: Hook = getattr(import_module(module), name)(self, context)
        return made
