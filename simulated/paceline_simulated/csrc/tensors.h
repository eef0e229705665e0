// Tensors on the device: their memory and views, none of which needs a kernel.
#pragma once

#include "devices.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace sim {

inline bool on_sim(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim;
}

// The device that was asked for, or the current one if it has no index.
c10::Device with_index(std::optional<c10::Device> device);

at::Tensor empty_strided(
    at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type, c10::Device device);

// A CPU tensor over the same bytes. It does not own them: as on a GPU, a queued kernel keeps no
// memory alive, so memory that is freed too early is seen to be.
at::Tensor host_alias(const at::Tensor& tensor);

// The same for an out= argument: a CPU kernel may use it for a larger intermediate result, as
// mse_loss does, and then leaves its result in memory of its own.
at::Tensor resizable_host_alias(const at::Tensor& tensor);

// Python numbers promote types differently from tensors. The setter asserts dim() == 0
// (c10/core/TensorImpl.h), so the mark is set only where it is.
void keep_wrapped_number(const at::Tensor& from, const at::Tensor& to);

void resize_to(
    const at::Tensor& tensor, at::IntArrayRef sizes, std::optional<at::IntArrayRef> strides);

// A view of `base` with the type, sizes, strides and relative offset of a meta tensor.
at::Tensor view_as_planned(const at::Tensor& base, const at::Tensor& plan);

}  // namespace sim
