"""An endpoint for Prometheus to scrape: one address, protected by the run's token."""

import hmac
import secrets
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import psutil

from paceline.observe.digest import FIGURES, Observation
from paceline.observe.listener import ListenerKind
from paceline.observe.metric_names import LOGGED
from paceline.specs import PacelineError, Run
from paceline.specs.owned_files import open_owned, read_bounded

DEFAULT_PLACE = "127.0.0.1:9464"
_EVERYWHERE = ("", "*", "0.0.0.0", "::")  # noqa: S104 -- refused
_REQUEST_SECONDS = 10.0
_MOST_TOKEN_BYTES = 1024
_LOOK_SECONDS = 0.05
"""How often the server checks whether to shut down."""

_App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Prometheus:
    """Serves the newest metrics as gauges, such as `paceline_loss`, without per-worker labels."""

    def __init__(self, run: Run, place: str | None) -> None:
        from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app  # noqa: PLC0415

        self._registry = CollectorRegistry()
        self._gauge = Gauge
        self._gauges: dict[str, Gauge] = {}
        about = Gauge("paceline_run", "The run.", ["run"], registry=self._registry)
        about.labels(run.name).set(1)
        words = "The training's own metrics, of trainer.log and of evaluations."
        self._own = Gauge("paceline_metric", words, ["name"], registry=self._registry)
        host, port = _address(place)
        token = _token(run.metrics_token_file)
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as error:
            raise PacelineError(
                f"port {port} of {host} cannot be listened on: {error.strerror}",
                fix="give another one: --to prometheus:HOST:PORT",
            ) from None
        self._server.set_app(_guarded(make_wsgi_app(self._registry), token))
        port = self._server.server_port
        self.where = f"http://{host}:{port}/metrics, with the token in {run.metrics_token_file}"
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(_LOOK_SECONDS,), daemon=True)
        self._thread.start()

    def take(self, news: Sequence[Observation]) -> None:
        """Set each gauge to its newest value."""
        newest: dict[str, float] = {}
        for seen in news:
            newest |= seen.figures
        for name, value in newest.items():
            if name not in FIGURES:
                self._own.labels(name.removeprefix(LOGGED)).set(value)
                continue
            if name not in self._gauges:
                metric = f"paceline_{name.replace('/', '_')}"
                self._gauges[name] = self._gauge(metric, FIGURES[name], registry=self._registry)
            self._gauges[name].set(value)

    def close(self) -> None:
        """Shut down the server and release the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_SECONDS  # a silent client cannot hold a thread forever

    def log_message(self, *words: Any) -> None:
        """Do not log scrapes."""


def _guarded(app: _App, token: str) -> _App:
    expected = f"Bearer {token}".encode()

    def guarded(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        given = str(environment.get("HTTP_AUTHORIZATION", "")).encode(errors="replace")
        if hmac.compare_digest(given, expected):
            return app(environment, start_response)
        headers = [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")]
        start_response("401 Unauthorized", headers)
        return [b"the token of the run is needed\n"]

    return guarded


def _address(place: str | None) -> tuple[str, int]:
    """Parse HOST:PORT, where HOST may be the name of an interface: a job script knows the interface
    but not the node that it will run on."""
    host, _, port = (place or DEFAULT_PLACE).rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise PacelineError(
            f"--to prometheus:{place} is not HOST:PORT",
            fix=f"give both, such as --to prometheus:{DEFAULT_PLACE}, or neither",
        )
    if host in _EVERYWHERE:
        raise PacelineError(
            f"--to prometheus:{place} would listen on all interfaces of the machine",
            fix="give the address or the name of one interface, such as eth0",
        )
    for one in psutil.net_if_addrs().get(host, ()):
        if one.family.name == "AF_INET":
            return str(one.address), int(port)
    return host, int(port)


def _token(file: Path) -> str:
    """Return the run's token; create it if there is none."""
    try:
        stream = open_owned(file, "x", share=False)
    except FileExistsError:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise PacelineError(
                f"{file} can be read by others",
                fix="delete it; the next start creates a new token",
            ) from None
        return read_bounded(file, _MOST_TOKEN_BYTES, own=True).decode()
    with stream:
        token = secrets.token_hex(32)
        stream.write(token)
    return token


def _check(place: str | None) -> None:
    """Reject an invalid HOST:PORT, and addresses that mean all interfaces."""
    _address(place)


LISTENER = ListenerKind(package="prometheus_client", open=Prometheus, check=_check)
