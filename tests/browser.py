"""A real Chromium, started once and told what to open: looks at pages as a reader would."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader, BufferedWriter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# Pictures come when the page stands, each when its program is done with it.
DRAWN = """document.readyState === "complete" && ("drawn" in document.documentElement.dataset
  || !document.querySelector("[data-spec]"))"""


@dataclass
class Browser:
    """Speaks Chromium's debugging protocol through two pipes, to nobody else."""

    _asks: BufferedWriter
    _answers: BufferedReader
    _heard: bytes = b""
    _number: int = 0
    _session: dict[str, str] = field(default_factory=dict)

    def attach(self) -> None:
        """Open an empty page."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self.ask("Page.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One question, and its answer; what Chromium says meanwhile is of no interest."""
        self._number += 1
        question = {"id": self._number, "method": method, "params": params, **self._session}
        self._asks.write(json.dumps(question).encode() + b"\0")
        self._asks.flush()
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def value(self, expression: str) -> Any:
        """What JavaScript makes of an expression."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def show(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size, and wait until its pictures are drawn."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.ask("Emulation.setDeviceMetricsOverride", mobile=width < 500, **size)
        self.ask("Page.navigate", url=page.absolute().as_uri())
        end = time.monotonic() + 60
        while self.value(f"location.href !== 'about:blank' && {DRAWN}") is not True:
            assert time.monotonic() < end, "its pictures are not drawn"
            time.sleep(0.01)

    def drawn_seconds(self) -> float:
        """From the beginning of the page's loading until its last picture stood."""
        drawn = "Number(document.documentElement.dataset.drawn)"
        return float(self.value(drawn)) / 1000

    def screenshot(self, *, whole: bool = True) -> bytes:
        """What is seen, as PNG; the whole page, or the window."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _next(self) -> bytes:
        while b"\0" not in self._heard:
            more = self._answers.read1(65536)
            assert more, "Chromium has ended"
            self._heard += more
        said, _, self._heard = self._heard.partition(b"\0")
        return said


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A Chromium of its own, without a network to load anything from."""
    assert CHROMIUM is not None
    its_asks, asks = os.pipe()
    answers, its_answers = os.pipe()
    temporary = TemporaryDirectory(prefix="chromium-")  # a short name, for its socket
    # Chromium reads what it is asked from 3 and answers on 4.
    process = subprocess.Popen(
        [
            *("bash", "-c", f'exec "$@" 3<&{its_asks} 4>&{its_answers}', "chromium"),
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder / 'profile'}",
            "--remote-debugging-pipe",
        ],
        pass_fds=(its_asks, its_answers),
        env=os.environ | {"TMPDIR": temporary.name},  # it leaves folders there
        stderr=subprocess.DEVNULL,
    )
    os.close(its_asks)
    os.close(its_answers)
    with os.fdopen(asks, "wb") as to, os.fdopen(answers, "rb") as back:
        try:
            opened = Browser(to, back)
            opened.attach()
            yield opened
        finally:
            process.terminate()
            process.wait(timeout=20)
            temporary.cleanup()
