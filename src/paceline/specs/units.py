"""Numbers with their units, formatted the same in the terminal and on the page."""

import datetime
import math
from collections.abc import Iterable


def duration(seconds: float) -> str:
    """Format a duration: `840 ms`, `1.84 s`, `12.3 s`, `4 min 05 s`, `3 h 07 min`, `2 d 04 h`."""
    if seconds < 0.9995:
        return "less than 1 ms" if 0 < seconds < 0.0005 else f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"


def milliseconds(seconds: float) -> str:
    """Format milliseconds without the unit: `0.42`, `8.31`, `123`, `12,040`."""
    value = seconds * 1000
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rate(per_second: float) -> str:
    """Format a rate without the unit: `0.42`, `81.3`, `12,040`."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def large(number: float) -> str:
    """Format a number such as that of tokens: `340`, `12,040`, `20M`, `300B`, `1.41T`."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if number >= scale:
            return (
                f"{number / scale:,.0f}{unit}"
                if number >= 999.5 * scale
                else (f"{number / scale:.3g}{unit}")
            )
    return rate(number)


def loss(value: float | None) -> str:
    """Format a loss with four significant digits; a dash for None."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    return f"{value:#.4g}".rstrip(".")


def size(number_of_bytes: float) -> str:
    """Format a number of bytes: `812 B`, `4.1 kB`, `2.0 MB`."""
    value = float(number_of_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def energy(joules: float) -> str:
    """Format an energy: `812 mJ`, `4.1 J`, `2.3 kJ`, `1.1 MJ`, `12.4 kWh`."""
    if joules >= 3.6e6:
        return f"{joules / 3.6e6:,.3g} kWh" if joules < 3.6e9 else f"{joules / 3.6e6:,.0f} kWh"
    for unit, scale in (("MJ", 1e6), ("kJ", 1e3), ("J", 1.0)):
        if joules >= scale:
            return f"{joules / scale:.3g} {unit}"
    return f"{joules * 1e3:.3g} mJ"


def money(amount: float) -> str:
    """Format an amount in the currency of the prices: `less than 0.01`, `0.42`, `1,234.50`."""
    return f"{amount:,.2f}" if amount >= 0.01 or not amount else "less than 0.01"


def mass(grams: float) -> str:
    """Format a mass: `0.42 g`, `81.3 g`, `2.1 kg`, `4.3 t`."""
    for unit, scale in (("t", 1e6), ("kg", 1e3)):
        if grams >= scale:
            return f"{grams / scale:,.3g} {unit}"
    return f"{grams:.3g} g"


def moment(unix_seconds: float) -> str:
    """Format a time in UTC: `2026-01-05 10:15`."""
    return f"{datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC):%Y-%m-%d %H:%M}"


def or_dash(number: int | None) -> str:
    """Format a number: `12,040`; a dash for `None`."""
    return "–" if number is None else f"{number:,}"


def shortened(text: str, longest: int) -> str:
    """Cut a text off after `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def count(number: int, thing: str) -> str:
    """Format a count with its noun: `1 worker`, `4 workers`."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def bounded(value: float | None, low: float, high: float | None) -> str:
    """Format a number with its interval: `1,200 (850–1,900)`; `at least 850` without an end."""
    if value is None or high is None:
        return f"at least {low:,.0f}"
    return f"{value:,.0f} ({low:,.0f}–{high:,.0f})"


def first_few(names: Iterable[str], most: int = 3) -> str:
    """List the first names and count the others: `a, b, c and 4 more`."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def percent(share: float) -> str:
    """Format a fraction as a percentage: `0 %`, `0.03 %`, `1.2 %`, `48 %`, `100 %`."""
    value = 100 * share
    if value and value < 0.01:
        return "less than 0.01 %"
    return f"{value:.0f} %" if value >= 10 or not value else f"{value:.2g} %"
