// Plans: what an operator returns for arguments of these shapes, as its meta kernel says.
#pragma once

#include "operators.h"

#include <memory>

namespace sim {

// One tensor that an operator returns.
struct Output {
  enum class Kind { kUndefined, kInput, kView, kFresh };
  Kind kind = Kind::kUndefined;
  size_t input = 0;  // for kInput and kView: the position among the distinct input tensors
};

struct Plan {
  bool is_known = false;                           // false: no meta kernel, or a user's mistake
  torch::jit::Stack returns;                       // meta tensors, in the operator's structure
  std::vector<Output> outputs;                     // one for each tensor in `returns`
  std::vector<std::pair<size_t, at::Tensor>> resized;  // inputs (out=) that get another shape
};

// The distinct tensors among the arguments, in order.
std::vector<at::Tensor> distinct_tensors(const Arguments& arguments);

// The plan for a call, remembered by the metadata of its arguments. torch registers most meta
// kernels in Python (torch/_meta_registrations.py): 0.1 to 2.5 ms a call, against a few µs here.
std::shared_ptr<const Plan> plan_of(
    const c10::OperatorHandle& op, const Arguments& arguments,
    const std::vector<at::Tensor>& inputs);

}  // namespace sim
