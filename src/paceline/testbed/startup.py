"""Start of a testbed's holder process; a failure halfway leaves nothing behind."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

import paceline
from paceline.specs.errors import PacelineError
from paceline.specs.owned_files import open_owned, write_owned
from paceline.testbed.commands import (
    HOLDER_MODULE,
    KEEP,
    end_holders,
    holders_of,
    namespace_options,
    search_path,
)
from paceline.testbed.requests import connect
from paceline.testbed.state_folder import (
    StateFolder,
    locked_parent_folder,
    remove_empty_parent_folder,
)
from paceline.testbed.testbed_spec import TestbedSpec

# A process briefly shows no arguments during exec.
_LOOKS = 3


class HolderStart:
    """A holder during its start; leaving the block without `keep` ends it."""

    def __init__(self, state: StateFolder, spec: TestbedSpec) -> None:
        self._state = state
        self._spec = spec
        self._lifeline: int | None = None

    def __enter__(self) -> Self:
        with locked_parent_folder():
            if holders_of(self._state.path):
                raise PacelineError(
                    f"the testbed {self._spec.name!r} is up already, or being started",
                    fix=f"take it down first: paceline testbed down --name {self._spec.name}"
                    ", or choose another --name",
                )
            self._state.remove()  # leftovers of an `up` that was killed halfway
            self._state.create()
            write_owned(self._state.path / "spec.json", json.dumps(asdict(self._spec)))
            self._lifeline = _start_holder(self._state)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            end_holders(self._state.path)
            self._state.remove()
            remove_empty_parent_folder()

    def wait_until_it_answers(self, deadline: float) -> None:
        """Wait until the holder accepts requests: switch, nodes and slurmctld are running."""
        looks_in_vain = 0
        while True:
            try:
                connect(self._state.socket).close()
                return
            except (FileNotFoundError, ConnectionRefusedError):
                looks_in_vain = 0 if holders_of(self._state.path) else looks_in_vain + 1
            if looks_in_vain == _LOOKS:
                raise self.failure("its first process ended")
            if time.monotonic() > deadline:
                raise self.failure("it took too long")
            time.sleep(0.05)

    def keep(self) -> None:
        """Let the testbed outlive this process."""
        assert self._lifeline is not None
        os.write(self._lifeline, KEEP)
        os.close(self._lifeline)
        self._lifeline = None

    def failure(self, reason: str) -> PacelineError:
        """Return the error for a failed start: the reason, and the end of each log."""
        return PacelineError(
            f"the testbed {self._spec.name!r} did not start: {reason}\n"
            + self._state.last_log_lines(),
            fix="fix the problem in the logs above; see 'Troubleshooting' in docs/testbed.md",
        )


def _start_holder(state: StateFolder) -> int:
    """Start the holder, detached; return a pipe end: closing it before "keep" ends the holder."""
    package_parent = str(Path(paceline.__file__).parents[1])
    modules = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
    in_namespaces = ["setsid", "--fork", "unshare", *namespace_options()]
    holder = [sys.executable, "-P", "-m", HOLDER_MODULE, str(state.path)]
    its_end, our_end = os.pipe()
    try:
        with open_owned(state.log("holder"), "ab") as log:
            subprocess.run(
                [*in_namespaces, *holder],
                stdin=its_end,
                stdout=log,
                stderr=log,
                cwd="/",  # it must not block unmounting the caller's folder
                env={**os.environ, "PATH": search_path(), "PYTHONPATH": modules},
                check=True,
                timeout=15,
            )
    except BaseException:
        os.close(our_end)
        raise
    finally:
        os.close(its_end)
    return our_end
