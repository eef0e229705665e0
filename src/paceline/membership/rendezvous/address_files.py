"""Signed addresses of workers in the run folder, and how often they are looked for."""

import json
import time
from pathlib import Path

from paceline.comm.signing import ForgedValue, sign, verified
from paceline.membership.rendezvous.pauses import Pauses
from paceline.specs import TOO_FEW_EXIT_CODE, Member, PacelineError, Run, RunOver
from paceline.specs.owned_files import read_bounded, write_owned

RENDEZVOUS_TIMEOUT_SECONDS = 300.0
LOOKS_PER_SECOND = 2000
"""Most listings of the run folder per second by all nodes of a run together, after the first one of
each. A metadata server of a parallel file system serves some 200,000 operations per second."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 0.5
_MOST_BYTES = 64 << 10
"""Maximum size of the secret and of a signed address, which have hundreds of bytes."""


class RendezvousTimeout(PacelineError):
    """Some workers did not arrive in time; a retry may succeed."""

    exit_code = TOO_FEW_EXIT_CODE
    class_topic = "network"


def secret_of(run: Run) -> bytes:
    """Return the secret by which the workers of a run authenticate each other."""
    return bytes.fromhex(read_bounded(run.secret_file, _MOST_BYTES, own=True).decode())


def pauses_between_looks(nodes: int) -> Pauses:
    """Return the pauses of a contact that looks into the run folder, one of this many."""
    least = 2 * nodes / LOOKS_PER_SECOND  # a pause takes at least half of its length
    return Pauses(
        max(_FIRST_PAUSE_SECONDS, least),
        max(_LONGEST_PAUSE_SECONDS, least),
        RENDEZVOUS_TIMEOUT_SECONDS,
    )


def publish_address(
    run: Run, secret: bytes, generation: int, node: int, address: tuple[str, int]
) -> None:
    """Publish where a node's contact listens in a generation."""
    where = json.dumps(address)
    _write_signed(_file(run, generation, node), secret, _key(generation, node), where)


def found_address(run: Run, secret: bytes, generation: int, node: int) -> tuple[str, int] | None:
    """Return where a node's contact listens; None if it has not published that yet."""
    path = _file(run, generation, node)
    # Listing the folder makes a network file system ask its server; a plain open may be answered
    # from a cache that still says "no such file".
    if path not in run.rendezvous.iterdir():
        return None
    return published_address(read_bounded(path, _MOST_BYTES), generation, node, secret)


def published_address(text: bytes, generation: int, node: int, secret: bytes) -> tuple[str, int]:
    """Return the address in a contact's file; raise `ForgedValue` if it is forged."""
    host, port = json.loads(_read_signed(text, secret, _key(generation, node)))
    return str(host), int(port)


def announce_leader(run: Run, secret: bytes, generation: int, leader: Member) -> None:
    """Publish a generation's leader in the run folder, for processes that want to join."""
    path = run.rendezvous / f"leader-{generation}.json"
    _write_signed(path, secret, _leader_key(generation), leader.model_dump_json())


def found_leader(run: Run, secret: bytes) -> Member | None:
    """Return the latest generation's leader; None if this start of the run has none yet."""
    newest = run.newest_generation
    if newest is None or newest < run.job.first_generation:
        return None
    text = read_bounded(run.rendezvous / f"leader-{newest}.json", _MOST_BYTES)
    said = _read_signed(text, secret, _leader_key(newest))
    return Member.model_validate_json(said)


def awaited_leader(run: Run, secret: bytes) -> Member:
    """Wait for the latest generation's leader; raise `RunOver` if the run has ended."""
    pauses = pauses_between_looks(run.job.nodes + run.job.spares)
    problem = "none has published its address"
    while pauses.seconds_left:
        try:
            leader = found_leader(run, secret)
            if leader is not None:
                return leader
            if run.outcome_file.exists():
                raise RunOver
        except PermissionError:
            raise
        except OSError as error:  # a shared file system may come back
            problem = f"the run's folder cannot be read: {error}"
        time.sleep(pauses.next_seconds())
    raise RendezvousTimeout(
        f"found no workers to join within {RENDEZVOUS_TIMEOUT_SECONDS:.0f} s: {problem}",
        fix=f"see the workers' logs in {run.logs}",
    )


def _leader_key(generation: int) -> str:
    return f"leader/{generation}"


def _key(generation: int, node: int) -> str:
    return f"rendezvous/{generation}/{node}"


def _file(run: Run, generation: int, node: int) -> Path:
    return run.rendezvous / (f"{generation}-{node}.json" if node else f"{generation}.json")


def _write_signed(path: Path, secret: bytes, key: str, where: str) -> None:
    signature = sign(secret, key, where.encode()).hex()
    write_owned(path, json.dumps({"where": where, "signature": signature}))


def _read_signed(text: bytes, secret: bytes, key: str) -> bytes:
    """Return the contents of a signed file; raise `ForgedValue` if the signature is wrong."""
    try:
        said = json.loads(text)
        signed = bytes.fromhex(said["signature"]) + said["where"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ForgedValue("a worker's address file is malformed") from None
    return verified(secret, key, signed)
