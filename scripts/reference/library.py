"""The page of the Python API, which mkdocstrings fills from the docstrings."""

import paceline


def page() -> str:
    """Return the page with a section for each public name of `paceline`."""
    lines = ["# Python API", "", "The names of `paceline` are the whole of its surface.", ""]
    for name in sorted(paceline.__all__, key=str.lower):
        home = paceline._HOME[name]
        if name == "PacelineError":
            home = "paceline.specs.errors"
        lines += [f"[](){{#{name}}}", "", f"::: {home}.{name}", "    options:"]
        lines += [f"      heading: paceline.{name}", f"      toc_label: {name}", ""]
    return "\n".join(lines)
