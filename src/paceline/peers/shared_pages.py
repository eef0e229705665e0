"""Pages about the parts of a moment, which the members that restore it make for each other.

A member needs the descriptions of a few parts. To find out of which, all members would have to read
those of all workers. Instead, one member in 64 reads the descriptions of 64 workers and serves a
page about them. The first of these members serves a root about all pages, and the others pass it
on to 64 members each. What a member cannot get from another, it reads itself.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Self

from blake3 import blake3
from pydantic import model_validator

from paceline.checkpoints.manifest import Manifest, Scalar
from paceline.checkpoints.pages.packed import packed, unpacked
from paceline.checkpoints.pages.page import Page, PageEntry, check_page, tensors_of
from paceline.checkpoints.pages.structure import Structure, StructureId
from paceline.checkpoints.storage import Damaged
from paceline.peers.inventory import Moment
from paceline.peers.memory_client import PeerFailed
from paceline.peers.part_files import PartDescription
from paceline.specs.base import Spec

WORKERS_PER_PAGE = 64
MOST_PAGE_BYTES = 1 << 30
_ROOT = -1
"""The number of the root, beside those of the pages."""


class PartsPage(Spec):
    """Descriptions of many workers' parts, or the root about pages of them."""

    head: Manifest
    structures: dict[StructureId, Structure]
    scalars: dict[str, Scalar]
    page: Page

    @model_validator(mode="after")
    def _fits(self) -> Self:
        try:
            check_page(self.page, self.structures, "a page of peers")
        except Damaged as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def manifest(self) -> Manifest:
        """The manifest that a checkpoint of these parts would have."""
        tensors = tensors_of(self.structures.values())
        return self.head.model_copy(update={"tensors": tensors, "scalars": self.scalars})

    def descriptions(self) -> dict[int, PartDescription]:
        """Return the description of each worker's part, without scalars."""
        return {
            part.worker: PartDescription(
                head=self.head, part=part, structure=self.structures[part.structure], scalars={}
            )
            for part in self.page.workers
        }


class PublishedPages:
    """The pages that a member serves during a restore; any thread may wait for one."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], bytes] = {}
        self._withdrawn = -1
        self._changed = threading.Condition()

    def publish(self, generation: int, number: int, body: bytes) -> None:
        """Serve a page in the restore of a generation."""
        with self._changed:
            self._pages[generation, number] = body
            self._changed.notify_all()

    def withdraw(self, generation: int) -> None:
        """Serve no more pages in this generation and older ones."""
        with self._changed:
            self._pages = {key: body for key, body in self._pages.items() if key[0] > generation}
            self._withdrawn = max(self._withdrawn, generation)
            self._changed.notify_all()

    def close(self) -> None:
        """Serve no more pages at all."""
        self.withdraw(sys.maxsize)

    def find(self, generation: int, number: int, wait_seconds: float) -> bytes | None:
        """Return a page; empty if it is not there in time, None if it will never be."""

        def found() -> bool:
            return self._withdrawn >= generation or (generation, number) in self._pages

        with self._changed:
            self._changed.wait_for(found, wait_seconds)
            if self._withdrawn >= generation:
                return None
            return self._pages.get((generation, number), b"")


class SharedPages:
    """A member's view of the pages in one restore.

    `together`: the members that restore, in order. `ask` reads a page of one of them. `describe`
    returns a worker's description.
    """

    def __init__(
        self,
        published: PublishedPages,
        moment: Moment,
        generation: int,
        *,
        me: str,
        together: Sequence[str],
        ask: Callable[[str, int], bytes],
        describe: Callable[[int], PartDescription],
    ) -> None:
        self._published, self._moment, self._generation = published, moment, generation
        self._me, self._ask, self._describe = me, ask, describe
        count = -(-moment.workers // WORKERS_PER_PAGE)
        place = together.index(me) if me in together else 0
        if count == 1 or not together:
            self._servers = [me] * count
        else:
            self._servers = [together[each * len(together) // count] for each in range(count)]
        self._contact = self._servers[place * count // max(1, len(together))]
        self._pages: dict[int, PartsPage] = {}

    def root(self) -> PartsPage:
        """Return the page about all parts."""
        if len(self._servers) == 1:
            return self.page(0)
        for number, server in enumerate(self._servers):
            if server == self._me:
                self._publish(number, packed(self.page(number)))
        source = self._servers[0] if self._me in self._servers else self._contact
        body = None if source == self._me else self._asked(source, _ROOT)
        root = self._merged() if body is None else body
        if self._me in self._servers:
            self._publish(_ROOT, packed(root))
        return root

    def page_of(self, rank: int) -> PartsPage:
        """Return the page with a worker's description."""
        return self.page(rank // WORKERS_PER_PAGE)

    def read(self, entry: PageEntry) -> Page:
        """Return the page that an entry of the root is about."""
        return self.page(int(entry.name.rpartition("-")[2])).page

    def page(self, number: int) -> PartsPage:
        """Return a page, from its server or from the descriptions themselves."""
        if number not in self._pages:
            server = self._servers[number]
            found = None if server == self._me else self._asked(server, number)
            self._pages[number] = found or self._described(number)
        return self._pages[number]

    def _described(self, number: int) -> PartsPage:
        first = number * WORKERS_PER_PAGE
        ranks = range(first, min(first + WORKERS_PER_PAGE, self._moment.workers))
        found = [self._describe(rank) for rank in ranks]
        return PartsPage(
            head=found[0].head,
            structures={each.part.structure: each.structure for each in found},
            scalars={name: one for each in found for name, one in each.scalars.items()},
            page=Page(workers=tuple(each.part for each in found)),
        )

    def _merged(self) -> PartsPage:
        """Return the root about all pages."""
        pages = [self.page(number) for number in range(len(self._servers))]
        return PartsPage(
            head=pages[0].head,
            structures={name: one for each in pages for name, one in each.structures.items()},
            scalars={name: one for each in pages for name, one in each.scalars.items()},
            page=Page(
                pages=tuple(
                    _entry(number, each.page)
                    for number, each in enumerate(pages)
                    if each.page.files
                )
            ),
        )

    def _asked(self, server: str, number: int) -> PartsPage | None:
        """Return another member's page; None if that member cannot give it."""
        try:
            found, _ = unpacked(PartsPage, self._ask(server, number), MOST_PAGE_BYTES)
        except (PeerFailed, ValueError):
            return None
        return found if found.head.step == self._moment.step else None

    def _publish(self, number: int, body: bytes) -> None:
        self._published.publish(self._generation, number, body)


def _entry(number: int, page: Page) -> PageEntry:
    text = page.model_dump_json().encode()
    return PageEntry(
        name=f"page-{number}",
        bytes=len(text),
        blake3=blake3(text).hexdigest(),
        files=page.files,
        bounds=page.bounds(),
    )
