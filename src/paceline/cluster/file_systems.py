"""File systems: their kinds, and whether other machines see them."""

from pathlib import Path

MEMORY = frozenset({"tmpfs", "ramfs", "overlay", "aufs"})
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "vfat"})


def file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`, as the kernel names it."""
    path = path.resolve()
    best, kind = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        mount = fields.split()[4].replace("\\040", " ")
        inside = path == Path(mount) or Path(mount) in path.parents
        if inside and len(mount) >= len(best):
            best, kind = mount, tail.split()[0]
    return kind
