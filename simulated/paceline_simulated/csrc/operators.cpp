#include "operators.h"

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace sim {
namespace {

// Their CUDA kernels move index tensors to the device themselves, or read lengths on the host.
const std::unordered_set<std::string> kTakeHostTensors = {
    "aten::index",           "aten::index_put_",          "aten::_index_put_impl_",
    "aten::_ctc_loss",       "aten::_ctc_loss_backward",  "aten::_pack_padded_sequence",
    "aten::index_put",       "aten::_unsafe_index",       "aten::_unsafe_index_put",
    "aten::_pack_padded_sequence_backward",
};

// Tagged dynamic_output_shape for their masks: with integers they do not read (expandTensors in
// ATen/native/IndexingUtils.h).
const std::unordered_set<std::string> kIndexLike = {
    "aten::index", "aten::_unsafe_index", "aten::index_put_", "aten::_index_put_impl_",
    "aten::index_put", "aten::_unsafe_index_put",
};

Traits find_traits(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  Traits traits;
  traits.has_cpu_kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  traits.is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  traits.takes_host_tensors = kTakeHostTensors.count(schema.name()) > 0;
  for (size_t index = 0; index < schema.arguments().size(); index++) {
    const auto& argument = schema.arguments()[index];
    traits.has_out |= argument.is_out();
    if (argument.name() == "generator") {
      traits.generator_argument = static_cast<int>(index);
    }
  }
  if (kIndexLike.count(schema.name()) > 0) {
    traits.reads_mask_indices = true;
    return traits;
  }
  traits.reads_device = op.hasTag(at::Tag::data_dependent_output) ||
      op.hasTag(at::Tag::dynamic_output_shape);
  for (const auto& result : schema.returns()) {
    const auto kind = result.type()->kind();
    traits.reads_device |= kind == c10::TypeKind::BoolType ||
        kind == c10::TypeKind::NumberType || kind == c10::TypeKind::FloatType;
  }
  return traits;
}

bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() &&
      (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
}

}  // namespace

const Traits& traits_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<const c10::FunctionSchema*, Traits>;
  std::lock_guard lock(mutex);
  auto [found, is_new] = known.try_emplace(&op.schema());
  if (is_new) {
    found->second = find_traits(op);
  }
  return found->second;
}

bool must_read(const Traits& traits, const Arguments& arguments) {
  if (!traits.reads_mask_indices) {
    return traits.reads_device;
  }
  bool masked = false;
  each_tensor(arguments[1], [&](const at::Tensor& index) { masked |= is_mask(index); });
  // `x[mask] = number` becomes masked_fill_ (canDispatchToMaskedFill in
  // ATen/native/TensorAdvancedIndexingUtils.h), on CUDA for numbers on the host only; here torch
  // has put them on the device before.
  const bool is_put = arguments.size() > 2;
  const bool puts_number = is_put && arguments[2].isTensor() && arguments[2].toTensor().dim() == 0;
  return masked && !puts_number;
}

c10::Device common_device(
    const c10::OperatorHandle& op, const Traits& traits, const Arguments& arguments) {
  std::optional<c10::Device> device;
  std::optional<c10::Device> named;
  bool has_host_tensor = false;
  for (const auto& argument : arguments) {
    each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!on_sim(tensor)) {
        // Numbers on the host may be mixed with any device, and so may the empty tensors that cat
        // ignores.
        has_host_tensor |= tensor.defined() && tensor.dim() > 0 && tensor.numel() > 0;
        return;
      }
      TORCH_CHECK(
          !device || *device == tensor.device(),
          "Expected all tensors to be on the same device, but found at least two devices, ",
          *device, " and ", tensor.device(), "! (", op.schema().name(), ")");
      device = tensor.device();
    });
    if (argument.isDevice() && argument.toDevice().type() == kSim) {
      named = argument.toDevice();
    }
  }
  TORCH_CHECK(
      !device || !has_host_tensor || traits.takes_host_tensors,
      "Expected all tensors to be on the same device, but found at least two devices, ",
      device.value_or(with_index(named)), " and cpu! (", op.schema().name(), ")");
  return device ? *device : with_index(named);
}

}  // namespace sim
