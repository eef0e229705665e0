"""Fuzz one target with Atheris, in a process of its own: `python -m fuzzing.one NAME INPUTS`."""

import json
import resource
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["paceline", "json", "tomllib"]):
    from fuzzing.target import named

    target = named(sys.argv[1])  # imports the reader, inside the block that instruments it

MEGABYTES = 512
"""Memory that an input may take beyond what the process needs to start."""
SECONDS = 10
_RAM = Path("/dev/shm")


def main() -> None:
    """Fuzz, and print the peak of memory as JSON; libFuzzer ends the process at a crash."""
    name, inputs = sys.argv[1], int(sys.argv[2])
    before = _megabytes()
    with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None) as folder:
        corpus, work = Path(folder) / "corpus", Path(folder) / "work"
        corpus.mkdir()
        work.mkdir(mode=0o700)
        for number, seed in enumerate(target.seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)
            target.consume(seed, work)
        left = inputs

        def consume(data: bytes) -> None:
            nonlocal left
            left -= 1
            target.consume(data, work)
            if left == 0:
                peak = _megabytes() - before
                print(json.dumps({"inputs": inputs, "peak_megabytes": peak}), flush=True)

        limits = (f"-rss_limit_mb={int(before) + MEGABYTES}", f"-timeout={SECONDS}")
        atheris.Setup(
            [
                sys.argv[0],
                f"-runs={inputs + 100}",
                *limits,
                "-max_len=65536",
                "-verbosity=0",
                f"-artifact_prefix={name}-",
                str(corpus),
            ],
            consume,
        )
        atheris.Fuzz()


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
