"""Asynchronous checkpoint saving: copy between steps, then hash and write in the background."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from blake3 import blake3

from paceline.checkpoints.manifest import MOST_MANIFEST_BYTES, FileRecord, Manifest, Scalar
from paceline.checkpoints.pages.collection import Collector, check_size
from paceline.checkpoints.pages.handed_in import HandedIn, handed_in_part, root_of
from paceline.checkpoints.pages.outline import Outline
from paceline.checkpoints.pages.page import Root
from paceline.checkpoints.retention import expired
from paceline.checkpoints.staging import Staging
from paceline.checkpoints.storage import Damaged, Draft, Storage
from paceline.checkpoints.tensor_extent import Piece
from paceline.checkpoints.tensor_files import TensorFile
from paceline.checkpoints.verification import HASHING_THREADS, NewerFormat, saved_at
from paceline.specs import PacelineError, Saving
from paceline.specs.owned_files import NotOwned


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


@dataclass(frozen=True)
class _Written:
    """One worker's part of a checkpoint."""

    files: dict[str, FileRecord]
    linked_bytes: int
    handed_in: HandedIn


class Saver:
    """Writes one worker's part of every checkpoint, and collects those of others.

    The first worker of a node writes the node's page of the manifest; worker 0 commits the
    checkpoints.

    `on_saved` receives the cost of every complete checkpoint on worker 0, and the reason of a
    failed one on any worker.
    """

    def __init__(
        self,
        storage: Storage,
        saving: Saving,
        *,
        worker: int,
        nodes: Iterable[Sequence[int]],
        attempt: int,
        check: Callable[[], None] = lambda: None,
        on_saved: Callable[[int, Cost | str], None],
    ) -> None:
        """`nodes`: the workers of each node. `check` raises, before a commit, if this run may no
        longer write checkpoints."""
        self._storage, self._saving, self._on_saved = storage, saving, on_saved
        self._check = check
        self._attempt = attempt
        self._thread: threading.Thread | None = None
        self._abandoned = threading.Event()
        self._collector = Collector(worker, nodes, attempt, self._abandoned)
        self._outline = Outline(worker)
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
            if self._collector.commits:
                own, completed = self._complete(snapshot, draft)
            else:
                own = self._hand_in(snapshot, draft)
        except Exception as error:
            self._on_saved(step, describe(error))
            return
        self._before, self.last = (step, own.files), step
        if completed is None:
            return
        self._remove_expired(completed)
        self._on_saved(
            step,
            Cost(
                bytes=completed.total_bytes,
                linked_bytes=own.linked_bytes,
                seconds=time.perf_counter() - began,
                stall_seconds=stall_seconds,
            ),
        )

    def _hand_in(self, snapshot: Snapshot, draft: Draft) -> _Written:
        """Write this worker's part, and hand it in; report a failure, too, to the worker that waits
        for it."""
        try:
            own = self._write_part(snapshot, draft)
            self._collector.hand_in(self._collector.collect(own.handed_in, draft), draft)
        except Exception as error:
            self._collector.hand_in_error(error, describe(error), draft)
            raise
        return own

    def _complete(self, snapshot: Snapshot, draft: Draft) -> tuple[_Written, Root]:
        """Write worker 0's part and commit the checkpoint with all parts; remove it on failure."""
        try:
            own = self._write_part(snapshot, draft)
            root = root_of(snapshot.head, self._collector.collect(own.handed_in, draft))
            text = root.text()
            check_size(text, MOST_MANIFEST_BYTES)
            self._check()
            draft.commit(text)
        except Exception:
            draft.abandon()  # the disk may be full
            self._abandoned_draft = draft
            raise
        return own, root

    def _write_part(self, snapshot: Snapshot, draft: Draft) -> _Written:
        outline = self._outline
        outline.follow(snapshot.sections)
        with ThreadPoolExecutor(HASHING_THREADS) as threads:
            written = list(threads.map(lambda file: self._write_file(file, draft), outline.files))
        records = [record for record, _ in written]
        return _Written(
            files={file.name: each for file, each in zip(outline.files, records, strict=True)},
            linked_bytes=sum(record.bytes for record, linked in written if linked),
            handed_in=handed_in_part(outline, records, snapshot.scalars),
        )

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

    def _remove_expired(self, newest: Manifest) -> None:
        if self._figures is None:
            self._figures = {}
            for step in self._storage.steps():
                try:
                    self._figures[step] = saved_at(self._storage, step).manifest.metrics
                except (Damaged, NotOwned, NewerFormat):
                    continue
        self._figures[newest.step] = newest.metrics
        for step in expired(self._figures, self._saving):
            try:
                self._storage.remove(step)
            except OSError:
                continue  # retry after the next checkpoint
            del self._figures[step]


def describe(error: Exception) -> str:
    """Return the reason of a failure as text."""
    if isinstance(error, OSError | PacelineError | Damaged):
        return str(error)
    return f"{type(error).__name__}: {error}"
