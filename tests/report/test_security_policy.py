"""The pages' Content-Security-Policy: nothing runs or styles a page but what Paceline put there."""

import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from browser import CHROMIUM, Browser, browser
from paceline.report import render
from paceline.report.formats import comparison_report, run_report, study_report, write
from report.comparisons import three_runs
from report.folders import empty_run, failed_run, realistic_run
from report.studies import THREE, study_result

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
VIOLATIONS = """window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  violations.push(event.effectiveDirective + ": " + event.sample));"""


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path) as opened:
        opened.ask("Page.addScriptToEvaluateOnNewDocument", source=VIOLATIONS)
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    reports = [
        run_report(realistic_run(folder / "one")),
        run_report(failed_run(folder / "failed")),
        study_report(study_result(varied=THREE)),
        comparison_report(three_runs(folder / "three")),
    ]
    return [write(each, "html", folder / f"{number}.html") for number, each in enumerate(reports)]


def policy_of(page: str) -> str:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert found
    return unescape(found[1])


def test_policies_allow_neither_eval_nor_other_inline_texts(pages: list[Path]) -> None:
    for page in pages:
        text = page.read_text()
        policy = policy_of(text)
        assert "unsafe-inline" not in policy
        assert "unsafe-eval" not in policy
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        # A browser ignores them under this policy.
        assert " style=" not in text.split('<script type="module">')[0]


def test_a_page_without_charts_allows_no_script(tmp_path: Path) -> None:
    assert "script-src 'none';" in policy_of(render(empty_run(tmp_path)))


@pytest.mark.browser
@needs_chromium
def test_charts_draw_and_respond_within_the_policy(chromium: Browser, pages: list[Path]) -> None:
    for page in pages:
        chromium.show(page)
        places, charts = "[data-spec]", ".picture svg.marks"
        assert count(chromium, charts) == count(chromium, places) > 0
        assert chromium.value("violations") == []
    study = pages[2]
    chromium.show(study)
    x, y = chromium.value("""(() => {
      const bar = document.querySelector("#parts [aria-roledescription=bar]");
      bar.scrollIntoView({block: "center"});
      const {x, y, width, height} = bar.getBoundingClientRect();
      return [x + width / 2, y + height / 2];})()""")
    chromium.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    until(chromium, "document.querySelector('.vg-tooltip.visible td.value') !== null")
    chromium.value("""{
      document.querySelector("#parts summary").click();
      const svg = document.querySelector("#parts .vega-actions a");
      svg.dispatchEvent(new MouseEvent("mousedown"));}""")
    until(chromium, "document.querySelector('#parts a').href.startsWith('blob:')")
    assert chromium.value("violations") == []


@pytest.mark.browser
@needs_chromium
def test_foreign_scripts_and_styles_have_no_effect(
    chromium: Browser, pages: list[Path], tmp_path: Path
) -> None:
    foreign = "<script>window.foreign = 1</script><p style='color: red'>"
    page = tmp_path / "changed.html"
    page.write_text(pages[0].read_text().replace("<main>", f"<main>{foreign}"))
    chromium.show(page)
    assert chromium.value("window.foreign ?? null") is None
    blocked = {each.split(":")[0] for each in chromium.value("violations")}
    assert blocked == {"script-src-elem", "style-src-attr"}


def count(chromium: Browser, selector: str) -> int:
    return int(chromium.value(f"document.querySelectorAll({selector!r}).length"))


def until(chromium: Browser, condition: str) -> None:
    end = time.monotonic() + 20
    while not chromium.value(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.02)
