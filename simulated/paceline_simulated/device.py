"""Registers the simulated devices with torch, as `torch.device("sim")` and `torch.sim`.

Import this before the first backward of the process: autograd counts the devices only then
(`Engine::start_device_threads` in torch/csrc/autograd/engine.cpp).
"""

import atexit
import os

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from paceline_simulated import core, torch_module
from paceline_simulated.waits import HostWait, host_waits, listen, reset, strict

__all__ = ["DEVICES_VARIABLE", "HostWait", "host_waits", "reset", "strict"]

DEVICES_VARIABLE = "PACELINE_SIM_DEVICES"
"""The environment variable with the number of devices; 1 by default."""

_PATIENCE_AT_EXIT_MS = 1000

listen()
core.set_devices(int(os.environ.get(DEVICES_VARIABLE, "1")))
rename_privateuse1_backend("sim")
torch._register_device_module("sim", torch_module)  # type: ignore[no-untyped-call]
generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
# `module.to` on CUDA keeps each parameter and exchanges its data, which a device of a package
# cannot (`has_compatible_shallow_copy_type` in c10/core/TensorImpl.h): it would untie weights.
torch.__future__.set_swap_module_params_on_conversion(True)
# torch has no meta kernel for these, and an operator without one waits here, but not on CUDA.
_meta_kernels = torch.library.Library("aten", "IMPL", "Meta")  # type: ignore[no-untyped-call]
for _name in ("_fused_sgd_", "_fused_sgd_.tensor_lr"):
    _meta_kernels.impl(_name, lambda *_arguments, **_more: None)  # type: ignore[no-untyped-call]
# Stream threads must not ask for the GIL of an interpreter that ends.
atexit.register(core.halt_all, _PATIENCE_AT_EXIT_MS)
