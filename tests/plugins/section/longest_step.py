"""The longest step of a run, as a section of its report."""

from paceline.report import Content, ReportedRun, Section


class LongestStep(Section[dict[str, float] | None]):
    """Which step took longest."""

    order = 75
    key = "longest_step"

    def figures(self, run: ReportedRun) -> dict[str, float] | None:
        """Return its number and its seconds; `None` before the first step."""
        steps = dict(zip(run.state.seconds, run.state.step, strict=True))
        return {"step": steps[max(steps)], "seconds": max(steps)} if steps else None

    def content(self, run: ReportedRun, figures: dict[str, float] | None) -> Content | None:
        """Return a tile and a sentence."""
        if figures is None:
            return None
        took = f"{figures['seconds']:.2f} s"
        return Content(
            title="Longest step",
            words=[f"Step {figures['step']} took longest: {took}."],
            tiles=[("Longest step", took, f"step {figures['step']}", "")],
        )


SECTION = LongestStep()
