"""The check before a run: in a forked process, so that nothing of it stays in the worker.

The model is built and the first samples are read once more. In a process of its own this takes no
memory of the training, and changes neither random numbers nor the state of a dataset.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from select import select
from typing import NoReturn

import torch

from paceline.comm.device_kind import DeviceKind, device_kind
from paceline.parallel.check.check import COPIES, check
from paceline.parallel.check.refusal import refuse_bad
from paceline.specs import Layout, PacelineError
from paceline.specs.finding import Finding
from paceline.user.training import Training

_MOST_SECONDS = 10.0
_MOST_BYTES = 2**30
"""Size of weights up to which the values are compared; larger models would delay the start."""

Bind = Callable[[], tuple[torch.device, int]]
"""Bind this process to a device; return the device and its memory in bytes."""


def refuse_differences(training: Training, layout: Layout, bind: Bind) -> list[Finding]:
    """Raise an error if this training would differ on several workers, or fail; return the notes.

    It computes on the device that `bind` returns. A check that takes too long is given up.
    """
    findings = _forked(training, layout, bind)
    refuse_bad(findings)
    return [each for each in findings if each.state == "note"]


def _forked(training: Training, layout: Layout, bind: Bind) -> list[Finding]:
    kind = device_kind()  # the forked process could not tell which
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.close(reader)
        _report(training, layout, bind, kind, writer)
    os.close(writer)
    try:
        return _received(reader)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _report(
    training: Training, layout: Layout, bind: Bind, kind: DeviceKind, writer: int
) -> NoReturn:
    """Check, write the findings to a pipe and exit."""
    try:
        signal.alarm(round(2 * _MOST_SECONDS))  # in case the worker is killed meanwhile
        # Threads of the parent do not exist here, and a pool of them would be waited for.
        torch.set_num_threads(1)
        with Path(os.devnull).open("wb") as nothing:  # the training itself prints it
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        findings: list[Finding] = []
        try:
            findings += _checked(training, layout, bind, kind)
        except PacelineError as error:
            if error.__cause__ is not None:
                traceback.print_exception(error.__cause__)
            findings.append(Finding("failed", "bad", error.problem, error.fix))
        except Exception:
            traceback.print_exc()
            findings.append(Finding("failed", "note", "the check itself failed; see the log"))
        with os.fdopen(writer, "w") as file:
            json.dump([each.to_dict() for each in findings], file)
        sys.stderr.flush()
    finally:
        os._exit(0)


def _checked(training: Training, layout: Layout, bind: Bind, kind: DeviceKind) -> list[Finding]:
    if kind.is_lost_by_fork():
        text = f"skipped, because the script has used {kind.torch_type} devices already"
        return [Finding("check", "note", text)]
    if not _computes_gradients():
        text = "skipped, because the script has computed gradients already"
        return [Finding("check", "note", text, "`paceline check TRAIN` checks without a run")]
    device, memory_bytes = bind()
    most = min(_MOST_BYTES, memory_bytes // COPIES)
    return list(check(training, layout, device, most_bytes=most, quick=True))


def _computes_gradients() -> bool:
    """Return whether gradients can be computed here.

    They cannot where there are accelerators and the first backward came before the fork: torch's
    threads for them, which it started, do not exist here.
    """
    try:
        torch.autograd.backward(torch.zeros(1, requires_grad=True))
    except RuntimeError:
        return False
    return True


def _received(reader: int) -> list[Finding]:
    deadline, text = time.monotonic() + _MOST_SECONDS, b""
    while True:
        ready, _, _ = select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            late = f"not finished within {_MOST_SECONDS:.0f} s, and given up"
            return [Finding("check", "note", late, "`paceline check TRAIN` has no limit")]
        chunk = os.read(reader, 2**16)
        if not chunk:
            break
        text += chunk
    if not text:  # killed, for example for lack of memory
        return [Finding("check", "note", "ended without a result")]
    return [Finding(**each) for each in json.loads(text)]
