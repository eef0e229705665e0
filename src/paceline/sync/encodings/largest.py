"""Select the largest numbers of each chunk of 4096, and put them back."""

import torch

from paceline.sync.encodings.pieces import pieces, scratch_for

CHUNK = 4096
"""An index into a chunk takes 12 bits."""


def kept_of(elements: int, keep: float) -> int:
    """Return how many of a chunk's elements are kept; at least one."""
    return max(1, round(keep * elements))


def kept_of_all(elements: int, keep: float) -> int:
    """Return how many elements are kept, over all full chunks and the shorter last one."""
    whole, rest = divmod(elements, CHUNK)
    return whole * kept_of(CHUNK, keep) + (kept_of(rest, keep) if rest else 0)


def largest(values: torch.Tensor, keep: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the kept numbers, chunk by chunk, and their indices within their chunks."""
    numbers, indices, scratch = [], [], scratch_for(values)
    for piece in pieces(len(values), CHUNK):
        rows = piece.of(values)
        magnitudes = torch.abs(rows, out=piece.room_in(scratch))
        # Read as integers, the bits of nonnegative floats sort as the floats do, with NaN above
        # infinity; and torch compares integers faster.
        at = _largest_of_rows(magnitudes.view(torch.int32), kept_of(piece.width, keep))
        numbers.append(rows.gather(1, at).view(-1))
        indices.append(at.view(-1))
    return torch.cat(numbers), torch.cat(indices)


def put_back(
    numbers: torch.Tensor, indices: torch.Tensor, elements: int, keep: float
) -> torch.Tensor:
    """Return all elements: the kept ones at their indices, zero elsewhere."""
    starts = torch.arange(0, elements, CHUNK, device=indices.device)
    starts = starts.repeat_interleave(kept_of(CHUNK, keep))[: len(indices)]
    return torch.zeros(elements, device=numbers.device).scatter_(0, starts + indices, numbers)


def _largest_of_rows(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices of each row's largest elements: exact, in no particular order.

    They lie in the groups of four with the largest maxima. Finding these groups is the same task on
    a row a quarter as long, so torch.topk, which is slow, sees only short rows.
    """
    width = rows.shape[1]
    quarter = width // 4
    if width % 4 or quarter < 2 * count:
        return rows.topk(count, sorted=False).indices
    groups = _largest_of_rows(rows.view(-1, 4, quarter).amax(1), count)
    members = torch.arange(0, width, quarter, device=rows.device)
    candidates = (groups[:, None, :] + members[:, None]).view(len(rows), -1)
    best = rows.gather(1, candidates).topk(count, sorted=False).indices
    return candidates.gather(1, best)
