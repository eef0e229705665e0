"""The results of a quality study in words, shared by the terminal and the page."""

from paceline.report.studies.study_tables import point_names
from paceline.specs import Comparison, Interval, StudyResult, units


def said(found: Comparison) -> str:
    """Return `the same within ±0.0005`, `worse by 0.21 ± 0.03` or `too few seeds …`."""
    half = found.difference.half
    match found.verdict:
        case "same":
            return f"the same within ±{short(found.margin)}"
        case "failed":
            return "unknown, since a run failed"
        case "unknown" if half is None:
            return "one seed is too few"
        case "unknown":
            return f"too few seeds for a verdict: {difference(found.difference)}"
        case verdict:
            return f"{verdict} by {short(abs(found.difference.value))} ± {short(half or 0.0)}"


def difference(found: Interval) -> str:
    """Format as `+0.012 ± 0.034`; without the interval for a single seed."""
    return f"{found.value:+.3g}" + (f" ± {short(found.half)}" if found.half is not None else "")


def value(found: Interval) -> str:
    """Format as `0.0512 ± 0.0007`."""
    half = f" ± {short(found.half)}" if found.half is not None else ""
    return units.loss(found.value) + half


def short(number: float) -> str:
    """Format with three significant digits."""
    return f"{number:.3g}"


def quality_findings(result: StudyResult) -> list[str]:
    """Return a sentence that names the base of the comparison, then one per point."""
    quality = result.quality
    assert quality
    names = point_names([each.point for each in result.points])
    if not quality.of_base:
        return []
    values = ", ".join(f"{name} {value(found)}" for name, found in quality.of_base.items())
    words = [
        f"Compared with {names[quality.base]}: {values}. The same: within"
        f" {units.percent(quality.margin)} of that."
    ]
    for name, each in zip(names, quality.points, strict=True):
        if each.comparisons:
            parts = "; ".join(f"{one.measure} {said(one)}" for one in each.comparisons)
            words.append(f"{name}: {parts}.")
    return words
