// What is known of an operator before it runs, and the tensors among its arguments.
#pragma once

#include "tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace sim {

using Arguments = std::vector<c10::IValue>;

struct Traits {
  bool has_cpu_kernel = false;
  bool is_random = false;
  int generator_argument = -1;
  bool has_out = false;             // writes to an out= argument
  bool reads_device = false;        // the result's shape or value depends on data
  bool reads_mask_indices = false;  // only if an index is a mask
  bool takes_host_tensors = false;  // beside tensors on the device, as on CUDA
};

const Traits& traits_of(const c10::OperatorHandle& op);

// Whether this call must wait for data before its outputs are known, as on CUDA.
bool must_read(const Traits& traits, const Arguments& arguments);

// The device of a call: its tensors', or the one it names, or the current one. Throws if they
// disagree: the meta kernels that plan a call do not know devices.
c10::Device common_device(
    const c10::OperatorHandle& op, const Traits& traits, const Arguments& arguments);

// The value with each tensor replaced.
template <class F>
c10::IValue map_tensors(const c10::IValue& value, const F& replace) {
  if (value.isTensor()) {
    return replace(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> replaced;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      replaced.push_back(replace(tensor));
    }
    return replaced;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> replaced;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      replaced.push_back(tensor ? std::optional<at::Tensor>(replace(*tensor)) : std::nullopt);
    }
    return replaced;
  }
  return value;
}

template <class F>
void each_tensor(const c10::IValue& value, const F& visit) {
  map_tensors(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
}

}  // namespace sim
