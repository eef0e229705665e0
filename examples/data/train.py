"""A byte-level GPT on a mixture: three parts of program text, one part of prose.

Both come with every Python, as token files that are written on the first start: the source of the
standard library, and the chapters of the language reference that `help()` shows.
"""

import os
import sys
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch

import paceline
from paceline.data import Mixture, Tokens

sys.path.insert(0, str(Path(__file__).parent.parent / "gpt"))
from model import GPT, next_byte_loss

CONTEXT = 64
CORPUS = Path("corpus")


def written(name: str, text: str) -> Path:
    """A token file: here a token is a byte, in 16 bits as tokenizers' numbers need them."""
    path = CORPUS / f"{name}.bin"
    if not path.exists():
        CORPUS.mkdir(exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")  # workers may be at it together
        np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint16).tofile(part)
        part.replace(path)
    return path


def program_text() -> str:
    library = Path(sysconfig.get_path("stdlib"))
    return "".join(path.read_text() for path in sorted(library.glob("[a-d]*.py")))


def prose() -> str:
    return "".join(topics[name] for name in sorted(topics))


def training() -> paceline.Training:
    code = Tokens(written("code", program_text()), length=CONTEXT)
    text = Tokens(written("prose", prose()), length=CONTEXT)
    return paceline.Training(
        model=lambda: GPT(layers=2, width=64, heads=4, context=CONTEXT),
        loss=next_byte_loss,
        data=Mixture([(code, 3), (text, 1)]),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        batch=32,
        steps=100,
        clip=1.0,
    )


if __name__ == "__main__":
    paceline.fit(training())
