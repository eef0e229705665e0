// Page-locked host memory: what lets a copy run while the host goes on.
#pragma once

#include <c10/core/Allocator.h>

namespace sim {

c10::Allocator& pinned_allocator();
bool is_pinned(const void* address);

}  // namespace sim
