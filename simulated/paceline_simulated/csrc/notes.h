// What the host is told about itself: how often it waited for a device, and where.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace sim {

// Release the GIL, if this thread has it. Stream threads run Python kernels and may drop Python
// objects, so a thread that waits for them with the GIL waits forever.
class WithoutGil {
 public:
  WithoutGil() {
    if (PyGILState_Check()) {
      released_.emplace();
    }
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

// Count something that a GPU would not do, such as a kernel that runs at once.
void note(const std::string& kind, const std::string& what);

// Count a wait of the host, and tell Python, which knows the line. Throws in strict mode.
void note_wait(const std::string& kind, const std::string& what);

std::map<std::string, int64_t> notes();  // "kind:what" -> times
void clear_notes();

// listener(kind, what) returns the text of the error to raise, or "" to go on.
void set_wait_listener(pybind11::object listener);

}  // namespace sim
