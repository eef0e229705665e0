"""Commit and tag a release: `make cut VERSION=0.2.0`. Pushing the tag publishes it.

Writes the version wherever it stands, and dates the changelog's unreleased part.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

VERSIONS = {
    "pyproject.toml": r'^version = "(.+)"$',
    "src/paceline/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "packaging/conda/recipe.yaml": r'^  version: "(.+)"$',
    "packaging/spack/package.py": r'^    version\("(\d.*)"\)$',
}
"""Files that name the version, and the only line of each that does."""
UNRELEASED = "## Unreleased\n"


def git(root: Path, *arguments: str) -> str:
    """Run git and return what it prints."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def with_version(text: str, pattern: str, version: str) -> str:
    """Return a file's text with another version."""
    (found,) = re.finditer(pattern, text, re.MULTILINE)
    return text[: found.start(1)] + version + text[found.end(1) :]


def dated_changelog(text: str, version: str, date: str) -> str:
    """Return the changelog with its unreleased part under the version."""
    before, _, after = text.partition(UNRELEASED)
    return f"{before}{UNRELEASED}\n## {version} - {date}\n{after}"


def objections(root: Path, version: str) -> list[str]:
    """Return what keeps a release from being cut, in words."""
    found = []
    try:
        Version(version)
    except InvalidVersion:
        return [f"{version} is no version: give one such as 0.2.0 or 1.0.0rc1"]
    released = [Version(tag.removeprefix("v")) for tag in git(root, "tag", "-l", "v*").split()]
    if released and Version(version) <= max(released):
        found.append(f"{version} is not newer than the last release, {max(released)}")
    if git(root, "status", "--porcelain"):
        found.append("there are uncommitted changes: commit them")
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    if not settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]:
        found.append("pyproject.toml does not say where the project is hosted: set `repository`")
    notes = (root / "CHANGELOG.md").read_text().partition(UNRELEASED)[2]
    if not notes.split("\n## ")[0].strip():
        found.append("CHANGELOG.md has nothing under Unreleased")
    return found


def cut(root: Path, version: str, date: str) -> None:
    """Write, commit and tag."""
    for name, pattern in VERSIONS.items():
        file = root / name
        file.write_text(with_version(file.read_text(), pattern, version))
    citation = root / "CITATION.cff"
    undated = re.sub(r"^date-released: .+\n", "", citation.read_text(), flags=re.MULTILINE)
    citation.write_text(f"{undated}date-released: {date}\n")
    changelog = root / "CHANGELOG.md"
    changelog.write_text(dated_changelog(changelog.read_text(), version, date))
    git(root, "commit", "--all", "--message", f"release: {version}")
    git(root, "tag", "--annotate", f"v{version}", "--message", f"Paceline {version}")


def main() -> None:
    """Cut the release of the checkout in the current folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version")
    version = parser.parse_args().version
    root = Path.cwd()
    if found := objections(root, version):
        sys.exit("\n".join(found))
    cut(root, version, datetime.now(UTC).date().isoformat())
    print(f"publish it with: git push origin HEAD v{version}")


if __name__ == "__main__":
    main()
