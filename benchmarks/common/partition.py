"""Cuts a testbed in two: nodes that lose all others, and keep each other."""

import subprocess
from collections.abc import Iterable

from paceline import testbed
from paceline.testbed.testbed_spec import HEAD

_OTHER_SWITCH = "other"


def cut_off(box: str, nodes: Iterable[str]) -> None:
    """Put nodes behind a switch of their own."""
    _in_switch(box, "ip", "link", "add", _OTHER_SWITCH, "type", "bridge")
    _in_switch(box, "ip", "link", "set", _OTHER_SWITCH, "up")
    for node in nodes:
        _in_switch(box, "ip", "link", "set", node, "master", _OTHER_SWITCH)


def put_back(box: str, nodes: Iterable[str]) -> None:
    """Mend the cut."""
    for node in nodes:
        _in_switch(box, "ip", "link", "set", node, "master", "switch")
    _in_switch(box, "ip", "link", "delete", _OTHER_SWITCH)


def _in_switch(box: str, *command: str) -> None:
    subprocess.run([*testbed.command_prefix(box, HEAD), *command], check=True, capture_output=True)
