#include "pinned.h"

#include "streams.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace sim {
namespace {

void unpin(void* address);

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    char* address = bytes ? static_cast<char*>(std::malloc(bytes)) : nullptr;
    if (address) {
      std::lock_guard lock(mutex_);
      live_[address] = bytes;
    }
    return {address, address, &unpin, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &unpin;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  void forget(void* address) {
    std::lock_guard lock(mutex_);
    live_.erase(static_cast<const char*>(address));
  }
  bool owns(const void* address) {
    const char* wanted = static_cast<const char*>(address);
    std::lock_guard lock(mutex_);
    auto next = live_.upper_bound(wanted);
    if (next == live_.begin()) {
      return false;
    }
    const auto& [start, bytes] = *std::prev(next);
    return wanted < start + bytes;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> live_;
};

PinnedAllocator& allocator_of_pinned = *new PinnedAllocator;

// A queued copy may still use it: free it when every stream has passed what it has now, as
// ATen/core/CachingHostAllocator.h holds blocks back until the events of their copies.
void unpin(void* address) {
  if (!address || in_bad_fork()) {
    return;
  }
  allocator_of_pinned.forget(address);
  auto last_owner = std::shared_ptr<void>(address, [](void* unused) { std::free(unused); });
  for (int device = 0; device < device_count(); device++) {
    for (Queue* queue : queues_on(device)) {
      queue->order([last_owner] {});
    }
  }
}

}  // namespace

c10::Allocator& pinned_allocator() {
  return allocator_of_pinned;
}

bool is_pinned(const void* address) {
  return allocator_of_pinned.owns(address);
}

}  // namespace sim
