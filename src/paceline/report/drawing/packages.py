"""The packages that draw, which are an extra."""

from types import ModuleType

from paceline.specs import PacelineError


def drawing_packages() -> tuple[ModuleType, ModuleType]:
    """Altair and vl-convert; loaded late, since they take a while."""
    try:
        import altair  # noqa: PLC0415
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        raise PacelineError(
            f"pictures need Altair and vl-convert: {error}",
            fix='pip install "paceline[report]"',
        ) from None
    return altair, vl_convert
