"""The build hook for what a package index shows: links to the project, and the README's.

The README's links are relative, so that they work in a checkout. On an index they lead nowhere:
here they become links to the release's files, or plain text while no host is set.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"!\[(?P<words>[^]]*)\]\((?!https?:)(?P<path>[^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[(?P<words>[^]]+)\]\((?!https?:|#)(?P<path>[^)\s]+)\)")
COMMENT = re.compile(r"^<!-- .+ -->\n", re.MULTILINE)
"""Says what tests do with the block below it."""


def readme_for_index(text: str, repository: str, version: str) -> str:
    """Return the README with links that work anywhere; without a repository, with none."""
    text = COMMENT.sub("", text)
    if not repository:
        return LINK.sub(r"\g<words>", IMAGE.sub("", text))
    text = IMAGE.sub(rf"![\g<words>]({repository}/raw/v{version}/\g<path>)", text)
    return LINK.sub(rf"[\g<words>]({repository}/blob/v{version}/\g<path>)", text)


def project_urls(repository: str) -> dict[str, str]:
    """Return the links that the index shows beside the package."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Documentation": f"{repository}/blob/main/docs/index.md",
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
    }


class PackageMetadata(MetadataHookInterface):
    """Fill in the fields of the package that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        repository = self.config["repository"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme_for_index(text, repository, metadata["version"]),
        }
        metadata["urls"] = project_urls(repository)
