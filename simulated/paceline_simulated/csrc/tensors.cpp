#include "tensors.h"

#include "hooks.h"
#include "memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace sim {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

Tensor empty_formatted(
    at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
    std::optional<c10::Device> device, std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(with_index(device));
  return at::detail::empty_generic(
      sizes, &device_allocator(), kKeys, c10::dtype_or_default(type), format);
}

Tensor empty_with_strides(
    at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
    std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  return empty_strided(sizes, strides, c10::dtype_or_default(type), with_index(device));
}

const Tensor& resize(
    const Tensor& tensor, SymIntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  resize_to(tensor, C10_AS_INTARRAYREF_SLOW(sizes), std::nullopt);
  if (format && *format != at::MemoryFormat::Preserve) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return tensor;
}

Tensor as_strided(
    const Tensor& tensor, SymIntArrayRef sizes, SymIntArrayRef strides,
    std::optional<SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      tensor, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}

Tensor view(const Tensor& tensor, SymIntArrayRef sizes) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(sizes));
}

Tensor reshape_alias(const Tensor& tensor, SymIntArrayRef sizes, SymIntArrayRef strides) {
  return at::native::_reshape_alias(
      tensor, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

Tensor& set_storage(
    Tensor& tensor, c10::Storage storage, SymInt offset, SymIntArrayRef sizes,
    SymIntArrayRef strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset.expect_int());
  if (strides.empty() && !sizes.empty()) {
    impl->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(sizes));
  } else {
    impl->set_sizes_and_strides(
        C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
  }
  return tensor;
}

Tensor& set_whole_storage(Tensor& tensor, c10::Storage storage) {
  const SymInt elements(static_cast<int64_t>(storage.nbytes() / tensor.itemsize()));
  return set_storage(tensor, std::move(storage), 0, {elements}, {SymInt(1)});
}

Tensor& set_tensor(Tensor& tensor, const Tensor& source) {
  return set_storage(
      tensor, source.storage(), source.storage_offset(), source.sym_sizes(),
      source.sym_strides());
}

void record_stream_of(Tensor& tensor, at::Stream stream) {
  record_stream(tensor.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty_formatted);
  library.impl("empty_strided", empty_with_strides);
  library.impl("resize_", resize);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("is_set_to", at::native::is_set_to);
  library.impl("record_stream", record_stream_of);
}

}  // namespace

c10::Device with_index(std::optional<c10::Device> device) {
  if (device && device->has_index()) {
    return *device;
  }
  return c10::Device(kSim, static_cast<c10::DeviceIndex>(current_device()));
}

at::Tensor empty_strided(
    at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type, c10::Device device) {
  c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(), kKeys, type);
}

at::Tensor host_alias(const at::Tensor& tensor) {
  at::Tensor alias;
  if (tensor.numel() == 0) {
    alias = at::detail::empty_strided_cpu(
        tensor.sizes(), tensor.strides(), tensor.scalar_type());
  } else {
    auto* bytes = static_cast<char*>(tensor.storage().mutable_data());
    alias = at::from_blob(
        bytes + tensor.storage_offset() * tensor.itemsize(), tensor.sizes(), tensor.strides(),
        at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU));
  }
  if (tensor.is_conj()) {
    alias._set_conj(true);
  }
  if (tensor.is_neg()) {
    alias._set_neg(true);
  }
  keep_wrapped_number(tensor, alias);
  return alias;
}

at::Tensor resizable_host_alias(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return host_alias(tensor);
  }
  auto* bytes = static_cast<char*>(tensor.storage().mutable_data()) +
      tensor.storage_offset() * tensor.itemsize();
  const size_t size =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), size, c10::DataPtr(bytes, c10::Device(at::kCPU)),
      c10::GetCPUAllocator(), /*resizable=*/true);
  auto alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return alias;
}

void keep_wrapped_number(const at::Tensor& from, const at::Tensor& to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) {
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
}

void resize_to(
    const at::Tensor& tensor, at::IntArrayRef sizes, std::optional<at::IntArrayRef> strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (strides) {
    impl->set_sizes_and_strides(sizes, *strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  const size_t needed = tensor.numel() == 0
      ? 0
      : at::detail::computeStorageNbytes(
            tensor.sizes(), tensor.strides(), tensor.itemsize(), tensor.storage_offset());
  if (needed > tensor.storage().nbytes()) {
    resize_storage(tensor.storage(), needed);
  }
}

at::Tensor view_as_planned(const at::Tensor& base, const at::Tensor& plan) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), plan.dtype());
  auto* impl = view.unsafeGetTensorImpl();
  // view_as_real and view_as_complex change the size of an element.
  impl->set_storage_offset(
      base.storage_offset() * static_cast<int64_t>(base.itemsize()) /
          static_cast<int64_t>(plan.itemsize()) +
      plan.storage_offset());
  impl->set_sizes_and_strides(plan.sizes(), plan.strides());
  return view;
}

}  // namespace sim
