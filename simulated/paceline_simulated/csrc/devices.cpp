#include "devices.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <mutex>

namespace sim {
namespace {

struct State {
  std::atomic<int> delay_us{0};
  std::atomic<bool> sick{false};
  int code = 0;
  std::string why;
};

std::atomic<int> count{1};
std::mutex sickness_mutex;
// Leaked, as all state here: stream threads outlive static destructors.
auto& states = *new std::array<State, kMostDevices>;

State& state_of(int device) {
  TORCH_CHECK(device >= 0 && device < count, "sim: no device ", device, " of ", count.load());
  return states[device];
}

}  // namespace

int device_count() {
  return count;
}

void set_device_count(int wanted) {
  TORCH_CHECK(wanted >= 1 && wanted <= kMostDevices, "sim: 1 to ", kMostDevices, " devices");
  count = wanted;
}

void set_delay_us(int microseconds, int device) {
  if (device != kEveryDevice) {
    state_of(device).delay_us = microseconds;
    return;
  }
  for (auto& state : states) {
    state.delay_us = microseconds;
  }
}

int delay_us(int device) {
  return states[device].delay_us;
}

void sicken(int device, int code, const std::string& why) {
  State& state = state_of(device);
  std::lock_guard lock(sickness_mutex);
  if (!state.sick) {
    state.code = code;
    state.why = why;
    state.sick = true;
  }
}

void heal(int device) {
  State& state = state_of(device);
  std::lock_guard lock(sickness_mutex);
  state.sick = false;
}

bool is_sick(int device) {
  return states[device].sick;
}

void check_healthy(int device) {
  State& state = state_of(device);
  if (!state.sick) {
    return;
  }
  std::lock_guard lock(sickness_mutex);
  throw c10::AcceleratorError(
      {__func__, __FILE__, __LINE__}, state.code,
      "sim:" + std::to_string(device) + ": " + state.why);
}

}  // namespace sim
