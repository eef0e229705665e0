"""A file that cannot be written is refused before a command spends time on its contents."""

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cli.options.output_file import check_output
from paceline.specs import PacelineError

NOBODY = 65534
CHECK = """
import sys
from pathlib import Path
from paceline.cli.options.output_file import check_output
check_output(Path(sys.argv[1]))
"""


@pytest.mark.root
def test_a_folder_of_another_user_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK, "/etc/cluster.toml"],
        user=NOBODY,
        group=NOBODY,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PacelineError: you may not write /etc/cluster.toml" in done.stderr


def test_a_new_and_an_old_file_are_accepted(tmp_path: Path) -> None:
    check_output(tmp_path / "new.toml")
    (tmp_path / "old.toml").touch()
    check_output(tmp_path / "old.toml")
    with pytest.raises(PacelineError, match="there is no folder"):
        check_output(tmp_path / "no" / "new.toml")
