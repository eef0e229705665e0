// What Python sees; core.py documents it.
#include "collectives.h"
#include "fallback.h"
#include "generator.h"
#include "hooks.h"
#include "memory.h"
#include "notes.h"
#include "streams.h"
#include "tensors.h"

#include <torch/csrc/utils/pybind.h>

namespace sim {
namespace {

namespace py = pybind11;

// A Python function as a kernel. It is called and dropped with the GIL, on a stream's thread.
Job python_kernel(py::function kernel) {
  auto held = std::shared_ptr<py::function>(
      new py::function(std::move(kernel)), [](py::function* last) {
        py::gil_scoped_acquire gil;
        delete last;
      });
  return [held] {
    py::gil_scoped_acquire gil;
    try {
      (*held)();
    } catch (const py::error_already_set& error) {
      // Python's error must not outlive the GIL: the queue makes the device sick of its text.
      throw std::runtime_error(error.what());
    }
  };
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  register_hooks();
  module.def("device_count", &device_count);
  module.def("set_device_count", &set_device_count);
  module.def("set_delay_us", &set_delay_us);
  module.def("set_limit", &set_limit);
  module.def("set_poison", [](int mode) { set_poison(static_cast<Poison>(mode)); });
  module.def("sicken", &sicken);
  module.def("heal", &heal);
  module.def("notes", &notes);
  module.def("clear_notes", &clear_notes);
  module.def("set_wait_listener", &set_wait_listener);
  module.def("operator_calls", &operator_calls);
  module.def("alias", &host_alias);
  module.def("enqueue", [](int device, py::function kernel) {
    check_healthy(device);
    current_queue(device).launch(python_kernel(std::move(kernel)));
  });
  module.def("drain_all", [] {
    for (int device = 0; device < device_count(); device++) {
      drain_device(device);
    }
  });
  module.def("halt_all", [](int patience_ms) {
    halt_all(std::chrono::milliseconds(patience_ms));
  });
  module.def("in_bad_fork", &in_bad_fork);
  module.def("default_generator", &default_generator);
  bind_collectives(module);
}

}  // namespace
}  // namespace sim
