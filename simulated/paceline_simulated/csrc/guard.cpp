// torch's view of devices, streams and events (c10/core/impl/DeviceGuardImplInterface.h).
#include "memory.h"
#include "notes.h"
#include "streams.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace sim {
namespace {

struct Event {
  std::shared_ptr<Mark> last;
  int device;
};

// Null for an event that was never recorded, which counts as reached (cudaEventQuery).
std::shared_ptr<Mark> mark_of(void* event) {
  return event ? static_cast<Event*>(event)->last : nullptr;
}

void check_healthy_event(void* event) {
  if (event) {
    check_healthy(static_cast<Event*>(event)->device);
  }
}

int index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kSim;
  }
  c10::Device getDevice() const override {
    return c10::Device(kSim, static_cast<c10::DeviceIndex>(current_device()));
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < device_count(), "sim: invalid device ordinal ", device.index());
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) {
      set_current_device(device.index());
    }
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(index_of(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(index_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return pooled_stream(index_of(device), priority < 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return pooled_stream(index_of(device), high_priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = current_stream(stream.device_index());
    set_current_stream(stream);
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &queue_of(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    check_healthy(stream.device_index());
    return queue_of(stream).idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    note_wait("synchronize", "stream");
    queue_of(stream).drain();
    check_healthy(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    note_wait("synchronize", "device");
    drain_device(device);
    check_healthy(device);
  }

  void record(
      void** event, const c10::Stream& stream, const c10::DeviceIndex,
      const c10::EventFlag) const override {
    check_healthy(stream.device_index());
    if (!*event) {
      *event = new Event;
    }
    *static_cast<Event*>(*event) = {queue_of(stream).mark(), stream.device_index()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    check_healthy(stream.device_index());
    if (auto mark = mark_of(event)) {
      queue_of(stream).wait_for(std::move(mark));
    }
  }
  bool queryEvent(void* event) const override {
    check_healthy_event(event);
    auto mark = mark_of(event);
    return !mark || mark->reached();
  }
  void synchronizeEvent(void* event) const override {
    note_wait("synchronize", "event");
    if (auto mark = mark_of(event)) {
      WithoutGil released;
      mark->wait();
    }
    check_healthy_event(event);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    auto first = mark_of(begin);
    auto last = mark_of(end);
    TORCH_CHECK(
        first && last && first->reached() && last->reached(),
        "sim: both events must be recorded and completed before the time between them is known");
    const auto between = last->reached_at() - first->reached_at();
    return std::chrono::duration<double, std::milli>(between).count();
  }
  void recordDataPtrOnStream(
      const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    record_stream(pointer, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace sim
