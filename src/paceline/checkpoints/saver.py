"""Saving while training goes on: copied at the edge of a step, then hashed and written aside."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from blake3 import blake3

from paceline.checkpoints.manifest import FileRecord, Manifest, Part, Scalar, merged, together
from paceline.checkpoints.retention import expired
from paceline.checkpoints.staging import Staging
from paceline.checkpoints.storage import Draft, Storage
from paceline.checkpoints.tensor_extent import Piece
from paceline.checkpoints.tensor_files import TensorFile, in_files
from paceline.checkpoints.verification import HASHING_THREADS, Damaged, manifest_of
from paceline.specs import PacelineError, Saving
from paceline.specs.base import Spec

_POLL_SECONDS = 0.02
_PEERS_TIMEOUT_SECONDS = 600.0
"""How long worker 0 waits for what the others write of a checkpoint."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a training at the edge of a step, as far as this worker writes it."""

    head: Manifest
    """All but the files; the same on every worker."""
    sections: dict[str, list[Piece]]
    """Tensors that change and stay together."""
    scalars: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What a complete checkpoint took."""

    bytes: int
    linked_bytes: int
    """Of these, what had not changed on this worker since the checkpoint before."""
    seconds: float
    """From the edge of the step until it was complete."""
    stall_seconds: float
    """How long this worker stood still for it."""


class Saver:
    """Writes one worker's part of every checkpoint; worker 0 completes them.

    `tell` hears from every complete checkpoint what it took, on worker 0, and on any worker why one
    could not be written.
    """

    def __init__(
        self,
        storage: Storage,
        saving: Saving,
        *,
        worker: int,
        workers: int,
        attempt: int,
        tell: Callable[[int, Cost | str], None],
    ) -> None:
        self._storage, self._saving, self._tell = storage, saving, tell
        self._worker, self._workers, self._attempt = worker, workers, attempt
        self._thread: threading.Thread | None = None
        self._abandoned = threading.Event()
        self._staging = Staging()
        self._before: tuple[int, dict[str, FileRecord]] | None = None
        """The last checkpoint that this worker wrote, and its files."""
        self._changing: set[str] = set()
        """Files that have changed once, and are no longer compared before they are written."""
        self._figures: dict[int, dict[str, float]] | None = None
        self.last: int | None = None
        """The step of the last complete checkpoint, as far as this worker knows."""

    def save(self, snapshot: Snapshot) -> None:
        """Begin to save; the tensors may change again when this returns."""
        began = time.perf_counter()
        self.wait()
        staged = self._staging.copied(snapshot.sections)
        stall = time.perf_counter() - began
        self._thread = threading.Thread(
            target=self._write,
            args=(Snapshot(snapshot.head, staged, snapshot.scalars), began, stall),
            name="checkpoint",
        )
        self._thread.start()

    def wait(self) -> None:
        """Until this worker has no more to write, and worker 0's checkpoint is complete."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def abandon(self) -> None:
        """Give up what is being saved: workers that it needs are gone."""
        self._abandoned.set()

    def _write(self, snapshot: Snapshot, began: float, stall_seconds: float) -> None:
        step, completed = snapshot.head.step, None
        try:
            draft = self._storage.draft(step, self._attempt)
            if self._worker:
                files = self._hand_in(snapshot, draft)
            else:
                completed, linked_bytes = self._complete(snapshot, draft)
                files = completed.files
        except Exception as error:
            self._tell(step, describe(error))
            return
        self._before, self.last = (step, files), step
        if completed is None:
            return
        self._remove_expired(completed)
        self._tell(
            step,
            Cost(
                bytes=completed.bytes,
                linked_bytes=linked_bytes,
                seconds=time.perf_counter() - began,
                stall_seconds=stall_seconds,
            ),
        )

    def _hand_in(self, snapshot: Snapshot, draft: Draft) -> dict[str, FileRecord]:
        """Write this worker's part and tell worker 0, which waits for it, also when it failed."""
        part = Part(error="it was not written")
        try:
            part, _ = self._write_part(snapshot, draft)
        except Exception as error:
            part = Part(error=describe(error))
            raise
        finally:
            draft.write(_part_name(self._attempt, self._worker), [_json(part)])
        return part.files

    def _complete(self, snapshot: Snapshot, draft: Draft) -> tuple[Manifest, int]:
        """Write worker 0's part and, with the others', make it a checkpoint; or leave nothing."""
        try:
            own, linked_bytes = self._write_part(snapshot, draft)
            whole = merged([own, *self._parts_of_others(draft)])
            manifest = snapshot.head.model_copy(
                update={"files": whole.files, "tensors": whole.tensors, "scalars": whole.scalars}
            )
            draft.commit(_json(manifest))
        except Exception:
            draft.abandon()  # a disk that is full has no room for it
            raise
        return manifest, linked_bytes

    def _write_part(self, snapshot: Snapshot, draft: Draft) -> tuple[Part, int]:
        files = [
            file
            for section, pieces in snapshot.sections.items()
            for file in in_files(section, self._worker, pieces)
        ]
        with ThreadPoolExecutor(HASHING_THREADS) as threads:
            written = list(threads.map(lambda file: self._write_file(file, draft), files))
        records = {file.name: record for file, (record, _) in zip(files, written, strict=True)}
        tensors = together(stored for file in files for stored in file.stored())
        linked_bytes = sum(record.bytes for record, linked in written if linked)
        return Part(files=records, tensors=tensors, scalars=snapshot.scalars), linked_bytes

    def _write_file(self, file: TensorFile, draft: Draft) -> tuple[FileRecord, bool]:
        before = self._before[1].get(file.name) if self._before else None
        if self._before and before and file.name not in self._changing:
            record = file.record()
            if record == before:
                with suppress(OSError):  # that checkpoint is gone, or was never completed
                    draft.link(file.name, self._before[0])
                    return record, True
            self._changing.add(file.name)
            draft.write(file.name, file.chunks)
            return record, False
        digest = blake3()
        draft.write(file.name, file.hashed_chunks(digest))
        return FileRecord(bytes=file.bytes, blake3=digest.hexdigest()), False

    def _parts_of_others(self, draft: Draft) -> list[Part]:
        names = {_part_name(self._attempt, worker): worker for worker in range(1, self._workers)}
        deadline = time.monotonic() + _PEERS_TIMEOUT_SECONDS
        while missing := names.keys() - draft.names():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(missing)} workers did not write their part in time")
            if self._abandoned.wait(_POLL_SECONDS):
                raise OSError("workers were lost before they had written their part")
        parts = []
        for name, worker in names.items():
            part = Part.model_validate_json(draft.read(name))
            if part.error is not None:
                raise OSError(f"worker {worker}: {part.error}")
            parts.append(part)
            draft.delete(name)
        return parts

    def _remove_expired(self, newest: Manifest) -> None:
        if self._figures is None:
            self._figures = {}
            for step in self._storage.steps():
                try:
                    self._figures[step] = manifest_of(self._storage, step).metrics
                except Damaged:
                    continue
        self._figures[newest.step] = newest.metrics
        for step in expired(self._figures, self._saving):
            try:
                self._storage.remove(step)
            except OSError:
                continue  # another time
            del self._figures[step]


def _part_name(attempt: int, worker: int) -> str:
    return f"part-{attempt}-{worker:05d}.json"


def _json(spec: Spec) -> bytes:
    return spec.model_dump_json().encode()


def describe(error: Exception) -> str:
    """Why something could not be done, in words."""
    if isinstance(error, OSError | PacelineError):
        return str(error)
    return f"{type(error).__name__}: {error}"
