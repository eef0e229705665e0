// A device's memory: bounded, cached, and ordered by streams as in CUDA's caching allocator.
#pragma once

#include "streams.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace sim {

// When memory is overwritten with 0xFF bytes (NaN, or -1), so that a use after free shows.
enum class Poison {
  kNever = 0,
  kAtReuse = 1,  // what a GPU may do
  kAtFree = 2,   // stricter: fails code that is right because its stream waits before it allocates
};

c10::DeviceAllocator& device_allocator();
// Keep a block from reuse until the stream has passed the work that it has when the block is freed.
void record_stream(const c10::DataPtr& pointer, const c10::Stream& stream);
// Bytes that each device may reserve.
void set_limit(size_t bytes);
void set_poison(Poison mode);

}  // namespace sim
