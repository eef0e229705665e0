"""A worker that comes while others train lets them go first."""

import os
import threading

import pytest

from paceline.train.worker import trainer_loading


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_only_the_loading_is_gentle(monkeypatch: pytest.MonkeyPatch) -> None:
    before, meanwhile = _priority(), list[int]()
    monkeypatch.setattr(trainer_loading, "load_torch", lambda: meanwhile.append(_priority()))
    trainer_loading.load_gently()
    assert meanwhile[0] > before
    assert _priority() == before
