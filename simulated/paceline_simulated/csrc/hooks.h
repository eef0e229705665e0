// What torch asks of an accelerator beside its guard (ATen/detail/PrivateUse1HooksInterface.h).
#pragma once

#include <c10/core/Storage.h>

namespace sim {

void register_hooks();
// Move a storage to a block of another size; the copy runs on the current stream.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace sim
