#include "hooks.h"

#include "generator.h"
#include "memory.h"
#include "pinned.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

namespace sim {
namespace {

int this_or_current(c10::DeviceIndex index) {
  return index < 0 ? current_device() : index;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    TORCH_CHECK(
        index >= 0 && index < device_count(), "sim: invalid device ordinal ", int(index));
    set_current_device(index);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = getCurrentDevice();
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? c10::DeviceIndex(-1) : exchangeDevice(index);
  }
  bool isPinnedPtr(const void* address) const override {
    return is_pinned(address);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return &pinned_allocator();
  }
  c10::Device getDeviceFromPtr(void*) const override {
    return c10::Device(kSim, getCurrentDevice());
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(this_or_current(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(this_or_current(index));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

}  // namespace

void register_hooks() {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  c10::DeviceGuard guard(storage.device());
  auto block = device_allocator().allocate(bytes);
  if (const size_t kept = std::min(bytes, storage.nbytes())) {
    device_allocator().copy_data(block.get(), storage.data(), kept);
  }
  storage.set_data_ptr_noswap(std::move(block));  // the old block is reused after the copy
  storage.set_nbytes(bytes);
}

}  // namespace sim
