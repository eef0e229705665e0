#include "generator.h"

#include "devices.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <mutex>

namespace sim {
namespace {

struct SimGenerator final : at::CPUGeneratorImpl {
  explicit SimGenerator(int device) : CPUGeneratorImpl(c10::default_rng_seed_val) {
    device_ = c10::Device(kSim, static_cast<c10::DeviceIndex>(device));
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
  static c10::DeviceType device_type() {
    return kSim;
  }

 private:
  SimGenerator* clone_impl() const override {
    auto* copy = new SimGenerator(device_.index());
    copy->set_state(*get_state());
    return copy;
  }
};

}  // namespace

const at::Generator& default_generator(int device) {
  static std::mutex mutex;
  static auto& generators = *new std::array<at::Generator, kMostDevices>;
  std::lock_guard lock(mutex);
  at::Generator& generator = generators.at(device);
  if (!generator.defined()) {
    generator = new_generator(device);
  }
  return generator;
}

at::Generator new_generator(int device) {
  return at::make_generator<SimGenerator>(device);
}

at::Generator kernel_generator(const at::Generator& source) {
  auto* state = static_cast<at::CPUGeneratorImpl*>(source.unsafeGetGeneratorImpl());
  std::lock_guard lock(state->mutex_);
  return at::detail::createCPUGenerator(state->random64());
}

}  // namespace sim
