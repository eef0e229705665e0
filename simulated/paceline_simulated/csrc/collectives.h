// The collectives' classes that torch's process groups need in C++.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace sim {

// Add them to the extension; collectives.py uses them.
void bind_collectives(pybind11::module_& module);

}  // namespace sim
