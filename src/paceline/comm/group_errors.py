"""The errors that a failed process group raises. Does not import torch.

Code that waits for other workers raises one of these where torch raises a plain RuntimeError, so
that callers decide by type. Any other error in a training is the user's own.
"""

from collections.abc import Iterator


class CommunicationError(RuntimeError):
    """A collective, the store or the creation of a process group failed."""


class PeerLost(CommunicationError):
    """The connection to another worker broke, or the worker does not answer."""


class GroupAborted(CommunicationError):
    """This worker's process groups were aborted, because their generation has ended."""


def with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what led to it, from the last to the first."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__ or each.__context__


def drop_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error and its causes: their frames keep process groups alive."""
    for each in with_causes(error):
        each.__traceback__ = None
