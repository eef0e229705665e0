"""Full fp32 for comparisons of a divided computation with the whole one."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute products of fp32 in fp32 inside the block, whatever the user has chosen.

    With TF32, inputs of products are rounded to 10 bits, and whether a kernel does so depends on
    the shapes, which differ between the whole and its parts. cuDNN's convolutions use it by
    default. Torch has two interfaces, and reading the older one fails while the newer one has
    another value, so both are set.
    """
    backends: Any = torch.backends
    cudnn = backends.cudnn
    settings = (backends.cuda.matmul, backends.mkldnn.matmul, cudnn.conv, cudnn.rnn)
    before = [each.fp32_precision for each in settings]
    of_matmul = of_cudnn = None
    with suppress(RuntimeError):  # chosen by the newer interface only
        of_matmul = torch.get_float32_matmul_precision()
    with suppress(RuntimeError):
        of_cudnn = cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    cudnn.allow_tf32 = False
    for setting in settings:
        setting.fp32_precision = "ieee"
    try:
        yield
    finally:
        if of_matmul is not None:
            torch.set_float32_matmul_precision(of_matmul)
        if of_cudnn is not None:
            cudnn.allow_tf32 = of_cudnn
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision
