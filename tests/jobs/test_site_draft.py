"""A first site file: certain values, choices as comments, all of it valid."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.jobs.site_draft import draft_site
from paceline.schedulers.kinds.slurm.slurm import Slurm
from paceline.schedulers.scheduler import SiteChoice
from paceline.specs import PacelineError
from paceline.specs.site_file import SiteFile


@dataclass(frozen=True)
class Told(Slurm):
    """A site that says what it has."""

    def choices(self) -> list[SiteChoice]:
        return [
            SiteChoice("account", ("art", "chem"), needed=True),
            SiteChoice("partition", ("gpu", "long"), "gpu", needed=True),
            SiteChoice("constraint", ("a100", "h100")),
        ]


def test_what_is_certain_is_set_and_the_rest_is_asked_for() -> None:
    draft = draft_site(Told())
    written = SiteFile.checked(tomllib.loads(draft.text), Path("site.toml"))
    assert written.options["partition"] == "gpu"
    assert "account" not in written.options
    assert "account: art, chem" in draft.missing
    assert "# constraint: a100, h100" in draft.text


def test_every_comment_is_a_line_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMOD_CMD", "lmod")
    text = draft_site(Told()).text
    uncommented = re.sub(r"^# (?=\[?\w+\]?( = .*)?$)", "", text, flags=re.MULTILINE)
    written = SiteFile.checked(tomllib.loads(uncommented), Path("site.toml"))
    assert {"account", "partition", "constraint", "runs", "setup"} <= written.options.keys()
    assert written.prices is not None


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    draft = draft_site(None)
    draft.write(tmp_path / "site.toml")
    assert SiteFile.read(tmp_path / "site.toml", own=True).options == {}
    with pytest.raises(PacelineError, match="exists already"):
        draft.write(tmp_path / "site.toml")
