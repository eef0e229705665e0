"""The errors that a failed process group raises. Does not import torch.

Code that waits for other workers raises one of these where torch raises a plain RuntimeError, so
that callers decide by type. Any other error in a training is the user's own.
"""


class CommunicationError(RuntimeError):
    """A collective, the store or the creation of a process group failed."""


class PeerLost(CommunicationError):
    """The connection to another worker broke, or the worker does not answer."""


class GroupAborted(CommunicationError):
    """This worker's process groups were aborted, because their generation has ended."""


def drop_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error and its causes: their frames keep process groups alive."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
