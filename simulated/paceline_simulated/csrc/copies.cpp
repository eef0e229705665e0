// Copies between host and devices, and single values read by the host.
#include "memory.h"
#include "notes.h"
#include "pinned.h"
#include "tensors.h"

#include <ATen/ops/clone.h>
#include <torch/library.h>

namespace sim {
namespace {

using at::Tensor;

// As copy_device_to_device in ATen/native/cuda/Copy.cu: the copy runs on the source's current
// stream, after the work queued on the destination's, which then waits for the copy.
void copy_between_devices(const Tensor& source, const Tensor& target) {
  Queue& queue = current_queue(source.device().index());
  const bool same = source.device() == target.device();
  if (!same) {
    queue.wait_for(current_queue(target.device().index()).mark());
  }
  queue.launch([from = host_alias(source), to = host_alias(target)] { to.copy_(from); });
  if (!same) {
    current_queue(target.device().index()).wait_for(queue.mark());
  }
}

// "API synchronization behavior" of the CUDA runtime: from pinned memory, an asynchronous copy
// returns at once; from pageable memory, the driver stages the bytes and may wait for the stream
// before. Here it does not wait, but the note tells. torch adds a wait for the stream unless the
// copy is non_blocking (copy_kernel_cuda in ATen/native/cuda/Copy.cu).
void copy_to_device(const Tensor& source, const Tensor& target, bool non_blocking) {
  Queue& queue = current_queue(target.device().index());
  const bool staged = non_blocking && !is_pinned(source.const_data_ptr());
  if (!non_blocking) {
    note_wait("copy", "host_to_device");
  } else if (staged) {
    note("may_wait", "host_to_device from pageable memory");
  }
  queue.launch([from = staged ? source.clone() : source.detach(), to = host_alias(target)] {
    to.copy_(from);
  });
  if (!non_blocking) {
    queue.drain();
    check_healthy(target.device().index());
  }
}

// The same page up to CUDA 11.0: to pageable memory, an asynchronous copy returns only when it is
// complete. Newer ones say that it may be so: code must not count on either.
void copy_to_host(const Tensor& source, const Tensor& target, bool non_blocking) {
  Queue& queue = current_queue(source.device().index());
  const bool returns_at_once = non_blocking && is_pinned(target.const_data_ptr());
  if (!returns_at_once) {
    note_wait("read", "device_to_host");
  }
  queue.launch([from = host_alias(source), to = target.detach()] { to.copy_(from); });
  if (!returns_at_once) {
    queue.drain();
    check_healthy(source.device().index());
  }
}

Tensor copy_from(const Tensor& source, const Tensor& target, bool non_blocking) {
  const int device = (on_sim(target) ? target : source).device().index();
  check_healthy(device);
  if (target.numel() == 0) {
    return target;
  }
  if (on_sim(source) && on_sim(target)) {
    check_healthy(source.device().index());
    copy_between_devices(source, target);
  } else if (on_sim(target)) {
    copy_to_device(source, target, non_blocking);
  } else {
    copy_to_host(source, target, non_blocking);
  }
  return target;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  if (target.sizes() != source.sizes()) {
    target.resize_(source.sizes());
  }
  return copy_from(source, target, /*non_blocking=*/false);
}

at::Scalar read_scalar(const Tensor& tensor) {
  const int device = tensor.device().index();
  check_healthy(device);
  note_wait("read", "item");
  current_queue(device).drain();
  check_healthy(device);
  return host_alias(tensor).item();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", read_scalar);
}

// Without these, resolve_conj copies, whose Conjugate fallback calls resolve_conj, and so on until
// the stack ends (aten/src/ATen/native/MathBitsFallback.h).
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace sim
