"""Asynchronous checkpoint saving: copy between steps, then hash and write in the background."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from blake3 import blake3

from paceline.checkpoints.manifest import (
    MOST_MANIFEST_BYTES,
    FileRecord,
    Manifest,
    Part,
    Scalar,
    merged,
    together,
)
from paceline.checkpoints.retention import expired
from paceline.checkpoints.staging import Staging
from paceline.checkpoints.storage import Damaged, Draft, Storage
from paceline.checkpoints.tensor_extent import Piece
from paceline.checkpoints.tensor_files import TensorFile, in_files
from paceline.checkpoints.verification import HASHING_THREADS, manifest_of
from paceline.specs import PacelineError, Saving
from paceline.specs.base import Spec
from paceline.specs.owned_files import NotOwned

_POLL_SECONDS = 0.02
_PEERS_TIMEOUT_SECONDS = 600.0
"""How long worker 0 waits for the other workers' parts of a checkpoint."""


@dataclass(frozen=True)
class Snapshot:
    """The part of the training state that this worker writes, as it is between two steps."""

    head: Manifest
    """The manifest without files; identical on every worker."""
    sections: dict[str, list[Piece]]
    """Tensors by section; tensors in a section change together."""
    scalars: dict[str, Scalar] = field(default_factory=dict)
    on_device: Callable[[], dict[str, Scalar]] = dict
    """Return the scalars that were on the device, once the sections are on the host; raise if the
    state must not be kept, which the workers may learn only now. Called by the thread that reads
    the snapshot."""

    def arrived(self) -> "Snapshot":
        """Return the snapshot with all scalars."""
        return replace(self, scalars=self.scalars | self.on_device())


@dataclass(frozen=True)
class Cost:
    """The size and duration of a complete checkpoint."""

    bytes: int
    linked_bytes: int
    """Bytes of this worker's files that were unchanged since the previous checkpoint."""
    seconds: float
    """Time from the end of the step until the checkpoint was complete."""
    stall_seconds: float
    """How long this worker's training was blocked."""


class Saver:
    """Writes one worker's part of every checkpoint; worker 0 commits the checkpoints.

    `on_saved` receives the cost of every complete checkpoint on worker 0, and the reason of a
    failed one on any worker.
    """

    def __init__(
        self,
        storage: Storage,
        saving: Saving,
        *,
        worker: int,
        workers: int,
        attempt: int,
        check: Callable[[], None] = lambda: None,
        on_saved: Callable[[int, Cost | str], None],
    ) -> None:
        """`check` raises, before a commit, if this run may no longer write checkpoints."""
        self._storage, self._saving, self._on_saved = storage, saving, on_saved
        self._check = check
        self._worker, self._workers, self._attempt = worker, workers, attempt
        self._thread: threading.Thread | None = None
        self._abandoned = threading.Event()
        self._abandoned_draft: Draft | None = None
        """Worker 0's last draft, if it could not be committed."""
        self._staging = Staging()
        self._before: tuple[int, dict[str, FileRecord]] | None = None
        """The last checkpoint that this worker wrote, and its files."""
        self._changing: set[str] = set()
        """Files that have changed once; they are written without comparing them first."""
        self._figures: dict[int, dict[str, float]] | None = None
        self.last: int | None = None
        """The step of the last complete checkpoint, as far as this worker knows."""

    def save(self, snapshot: Snapshot) -> None:
        """Wait for the previous save, then start one. The tensors may change after this returns;
        those of a device after `state_copies.let_end`."""
        began = time.perf_counter()
        self.wait()
        staged = self._staging.copied(snapshot.sections)
        stall = time.perf_counter() - began
        self._thread = threading.Thread(
            target=self._write,
            args=(replace(snapshot, sections=staged), began, stall),
            name="checkpoint",
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until this worker's part, or on worker 0 the whole checkpoint, is written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def abandon(self) -> None:
        """Abandon the save in progress, because workers that it needs are lost."""
        self._abandoned.set()

    def _write(self, snapshot: Snapshot, began: float, stall_seconds: float) -> None:
        step, completed = snapshot.head.step, None
        try:
            if self._abandoned_draft is not None:
                self._abandoned_draft.abandon()  # another worker may have written to it since
                self._abandoned_draft = None
            self._staging.wait(self._abandoned.is_set)
            snapshot = snapshot.arrived()
            draft = self._storage.draft(step, self._attempt)
            if self._worker:
                files = self._hand_in(snapshot, draft)
            else:
                completed, linked_bytes = self._complete(snapshot, draft)
                files = completed.files
        except Exception as error:
            self._on_saved(step, describe(error))
            return
        self._before, self.last = (step, files), step
        if completed is None:
            return
        self._remove_expired(completed)
        self._on_saved(
            step,
            Cost(
                bytes=completed.bytes,
                linked_bytes=linked_bytes,
                seconds=time.perf_counter() - began,
                stall_seconds=stall_seconds,
            ),
        )

    def _hand_in(self, snapshot: Snapshot, draft: Draft) -> dict[str, FileRecord]:
        """Write this worker's part. Report to worker 0, which waits for it, even after a
        failure."""
        name = _part_name(self._attempt, self._worker)
        try:
            part, _ = self._write_part(snapshot, draft)
            draft.write(name, [_json(part)])
        except Exception as error:
            _hand_in_error(draft, name, describe(error))
            raise
        return part.files

    def _complete(self, snapshot: Snapshot, draft: Draft) -> tuple[Manifest, int]:
        """Write worker 0's part and commit the checkpoint with all parts; remove it on failure."""
        try:
            own, linked_bytes = self._write_part(snapshot, draft)
            whole = merged([own, *self._parts_of_others(draft)])
            manifest = snapshot.head.model_copy(
                update={"files": whole.files, "tensors": whole.tensors, "scalars": whole.scalars}
            )
            text = _json(manifest)
            if len(text) > MOST_MANIFEST_BYTES:
                raise PacelineError(
                    f"its manifest would have {len(text):,} bytes, and no worker reads more than"
                    f" {MOST_MANIFEST_BYTES:,}",
                    fix="divide the state into fewer shards (--shards), with more replicas",
                )
            self._check()
            draft.commit(text)
        except Exception:
            draft.abandon()  # the disk may be full
            self._abandoned_draft = draft
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
                with suppress(OSError):  # that checkpoint was deleted or never committed
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
        parts, left_bytes = [], MOST_MANIFEST_BYTES  # together they are the manifest
        for name, worker in names.items():
            text = draft.read(name, left_bytes)
            left_bytes -= len(text)
            part = Part.model_validate_json(text) if text else Part(error="its disk is full")
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
                except (Damaged, NotOwned):
                    continue
        self._figures[newest.step] = newest.metrics
        for step in expired(self._figures, self._saving):
            try:
                self._storage.remove(step)
            except OSError:
                continue  # retry after the next checkpoint
            del self._figures[step]


def _part_name(attempt: int, worker: int) -> str:
    return f"part-{attempt}-{worker:05d}.json"


def _hand_in_error(draft: Draft, name: str, why: str) -> None:
    for chunks in ([_json(Part(error=why))], []):  # an empty file fits on a full disk
        with suppress(OSError):  # or worker 0 has abandoned the draft
            draft.write(name, chunks)
            return


def _json(spec: Spec) -> bytes:
    return spec.model_dump_json().encode()


def describe(error: Exception) -> str:
    """Return the reason of a failure as text."""
    if isinstance(error, OSError | PacelineError | Damaged):
        return str(error)
    return f"{type(error).__name__}: {error}"
