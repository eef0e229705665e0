"""`--to`: forward a run's metrics to listeners."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.cli.console import say

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.specs import Run


def follow(run: "Run", to: Sequence[str], console: "Console") -> None:
    """Show a run as `watch` does and forward it to listeners, until the run is over.

    End earlier if the launcher that started this process has ended, or if all listeners have failed
    and there is no terminal.
    """
    import os
    import signal
    import sys

    from paceline import report
    from paceline.observe.audience import Audience
    from paceline.specs.owned_files import private_umask

    os.umask(private_umask(share=run.job.share))  # their packages create files by it
    launcher = os.environ.get("PACELINE_FOLLOWER_OF")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    audience = Audience(run, to, say)

    def in_vain() -> bool:
        alone = launcher is not None and os.getppid() != int(launcher)
        return alone or (audience.empty and not console.is_terminal)

    try:
        report.watch(run, console, until=in_vain, on_events=audience.forward)
    finally:
        audience.close()
    if audience.failed:
        sys.exit(1)
