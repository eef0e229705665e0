"""How well measured kernels predict kernels and models that were not measured, beside formulas.

The device is probed as `paceline probe --kernels` does it. Then single kernels of other sizes, and
whole models, are predicted and measured; `sizes.py` and `models.py` say which, and what the null
model is. Formulas and kernels have the same probed rates and the same priors; nothing is fitted.
"""

import json

import torch

from benchmarks.common.output import argument_parser
from benchmarks.planner.kernels.device import probed, show
from benchmarks.planner.kernels.models import models
from benchmarks.planner.kernels.sizes import sizes
from paceline.comm.device_kind import device_kind
from paceline.specs import Placement
from paceline.train.probing.kernel_table import CPU_SECONDS

PARTS = {"sizes": sizes, "models": models}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--part", choices=PARTS, help="one part only (default: both)")
    parser.add_argument(
        "--seconds", type=float, default=CPU_SECONDS, help="time to measure kernels (default: 10)"
    )
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = device_kind().bind(Placement())
    plain, with_kernels = probed(device, options.seconds)
    parts = [options.part] if options.part else list(PARTS)
    rows = [row for name in parts for row in PARTS[name](plain, with_kernels, device)]
    if options.json:
        print(json.dumps([each._asdict() for each in rows], indent=2))
        return
    show(rows)


if __name__ == "__main__":
    main()
