"""Detection of out-of-memory errors, which a restart would repeat. Does not import torch, which may
not be loaded yet."""

import errno

from paceline.comm.group_errors import with_causes

# PyTorch has an exception class for accelerator memory, but only these texts for host memory.
_SIGNS = ("can't allocate memory", "not enough memory", "out of memory")


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error or one of its causes is an out-of-memory error."""
    return any(_says_so(each) for each in with_causes(error))


def advice(error: BaseException) -> str:
    """Return a message with the error and the options that take less memory."""
    first = next((each for each in with_causes(error) if _says_so(each)), error)
    said = (str(first).splitlines() or [""])[0]
    return (
        f"out of memory{': ' + said if said else ''}\n  -> give a smaller --micro-batch,"
        " --recompute block, or --shards N to divide the model; `paceline plan` shows what fits."
        " The worker is not restarted, since it would fail again"
    )


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
