"""Storage by its place: a folder's path, or a bucket's URL."""

from pathlib import Path

from paceline.checkpoints.bucket import Bucket
from paceline.checkpoints.folder import Folder


def opened(place: str | Path, *, share: bool = False) -> Folder | Bucket:
    """Return the storage at a path or URL; `share`: let the group read a folder."""
    folder = folder_at(place)
    return Bucket(str(place)) if folder is None else Folder(folder, share=share)


def folder_at(place: str | Path) -> Path | None:
    """Return the folder at a path or URL; None if it is a bucket."""
    if "://" not in str(place) or str(place).startswith("file://"):
        return Path(str(place).removeprefix("file://"))
    return None
