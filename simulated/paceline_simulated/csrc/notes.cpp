#include "notes.h"

#include <c10/util/Exception.h>

#include <mutex>

namespace sim {
namespace {

std::mutex notes_mutex;
auto& counts = *new std::map<std::string, int64_t>;
pybind11::object* wait_listener = nullptr;  // leaked: the interpreter may be gone at exit

}  // namespace

void note(const std::string& kind, const std::string& what) {
  std::lock_guard lock(notes_mutex);
  counts[kind + ":" + what]++;
}

void note_wait(const std::string& kind, const std::string& what) {
  note(kind, what);
  if (!wait_listener) {
    return;
  }
  std::string refusal;
  {
    pybind11::gil_scoped_acquire gil;
    refusal = pybind11::cast<std::string>((*wait_listener)(kind, what));
  }
  TORCH_CHECK(refusal.empty(), refusal);
}

std::map<std::string, int64_t> notes() {
  std::lock_guard lock(notes_mutex);
  return counts;
}

void clear_notes() {
  std::lock_guard lock(notes_mutex);
  counts.clear();
}

void set_wait_listener(pybind11::object listener) {
  wait_listener = new pybind11::object(std::move(listener));
}

}  // namespace sim
