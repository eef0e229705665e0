// Every operator without a kernel of its own: queue the CPU kernel on the same bytes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>

namespace sim {

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// Kernels and host reads that went through fallback().
int64_t operator_calls();

}  // namespace sim
