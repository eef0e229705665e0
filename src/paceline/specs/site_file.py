"""`site.toml`: what a site's staff, or its user, say once for all runs there."""

from typing import Any

from pydantic import Field

from paceline.specs.base import Spec
from paceline.specs.measurements.prices import Prices


class SiteFile(Spec):
    """Defaults of the commands' options at a site, and its prices."""

    name: str | None = None
    """The site's name in messages and tables."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Values of options by their long names without dashes, for every command that has them; a
    table with a command's name has those of this command."""
    prices: Prices | None = None

    def of_command(self, name: str) -> dict[str, Any]:
        """Return the options of one command; its own table goes before the common ones."""
        common = {key: value for key, value in self.options.items() if not isinstance(value, dict)}
        own = self.options.get(name)
        return common | (own if isinstance(own, dict) else {})
