"""Paceline takes a PyTorch model that trains on one device to a cluster.

The names below are the whole of the library's surface; they load torch when first used, so that
planning and submitting start fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.data.loader import Batch
    from paceline.parallel.step.whole_batch import gather
    from paceline.report.notebook import show
    from paceline.specs import PacelineError
    from paceline.train.fit import fit, start
    from paceline.train.step_output import StepOutput
    from paceline.train.trainer import Trainer
    from paceline.user.growing_batch import grow
    from paceline.user.layerwise import LAMB, LARS
    from paceline.user.parameters import Parameters
    from paceline.user.phase import Phase
    from paceline.user.pretrained import Pretrained
    from paceline.user.training import Training
    from paceline.user.validation import Validation

__version__ = "0.1.0"

__all__ = [
    "LAMB",
    "LARS",
    "Batch",
    "PacelineError",
    "Parameters",
    "Phase",
    "Pretrained",
    "StepOutput",
    "Trainer",
    "Training",
    "Validation",
    "fit",
    "gather",
    "grow",
    "show",
    "start",
]

_HOME = {
    "Batch": "paceline.data.loader",
    "LAMB": "paceline.user.layerwise",
    "LARS": "paceline.user.layerwise",
    "PacelineError": "paceline.specs",
    "Parameters": "paceline.user.parameters",
    "Phase": "paceline.user.phase",
    "Pretrained": "paceline.user.pretrained",
    "StepOutput": "paceline.train.step_output",
    "Trainer": "paceline.train.trainer",
    "Training": "paceline.user.training",
    "Validation": "paceline.user.validation",
    "fit": "paceline.train.fit",
    "gather": "paceline.parallel.step.whole_batch",
    "grow": "paceline.user.growing_batch",
    "show": "paceline.report.notebook",
    "start": "paceline.train.fit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    import_module("paceline.specs.errors").show_mistakes_as_sentences()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
