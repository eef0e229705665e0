"""A real S3 server on loopback: `rclone serve s3`, whose buckets are folders."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KEY, _SECRET = "paceline-test-key", "paceline-test-secret"


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and the folder of its buckets."""

    folder: Path
    url: str

    @property
    def storage_options(self) -> dict[str, Any]:
        """What s3fs needs to talk to it; it knows nothing of the newer checksums."""
        return {
            "key": _KEY,
            "secret": _SECRET,
            "client_kwargs": {"endpoint_url": self.url, "region_name": "us-east-1"},
            "config_kwargs": {
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same for programs that are told by their environment."""
        return {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }


@contextmanager
def serving(
    folder: Path,
    rate: str = "off",
    *,
    written_to: bool = False,
    hashed: bool = True,
    address: str = "127.0.0.1",
    prefix: Sequence[str] = (),
) -> Iterator[S3Server]:
    """Serve the sub-folders of a folder as buckets, on a port of the system's choice.

    It sends no faster than the rate, such as "20M" for 20 MiB/s. Unless it is `written_to`, it sees
    at once what others change in the folder; both together would keep it busy for seconds a file.
    If it is not `hashed`, it need not read a file to list it. It listens at the `address` of a
    testbed's node if its command has that node's `prefix`.
    """
    rclone = Path(sys.executable).parent / "rclone"
    server = subprocess.Popen(
        [*prefix, rclone, "serve", "s3", "--config", "", "--addr", f"{address}:0",
         "--dir-cache-time", "5m" if written_to else "0s", "--bwlimit", rate,
         "--etag-hash", "MD5" if hashed else "", "--auth-key", f"{_KEY},{_SECRET}", "-v", folder],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert server.stderr is not None
    try:
        lines = []
        for line in server.stderr:
            lines.append(line)
            if found := re.search(rf"http://{re.escape(address)}:\d+", line):
                # Once the pipe of its messages is full, it answers nothing more.
                rest = threading.Thread(target=server.stderr.read, daemon=True)
                rest.start()
                yield S3Server(folder, found[0])
                return
        raise RuntimeError(f"rclone did not start: {''.join(lines)}")
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
