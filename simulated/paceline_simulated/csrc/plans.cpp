#include "plans.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>

#include <mutex>
#include <string>
#include <unordered_map>

namespace sim {
namespace {

constexpr size_t kMostPlans = 1 << 16;  // shapes that change with every batch must not fill memory

size_t position_of(const at::Tensor& tensor, const std::vector<at::Tensor>& inputs) {
  size_t position = 0;
  while (position < inputs.size() && !inputs[position].is_same(tensor)) {
    position++;
  }
  return position;
}

// Everything that shapes and types of results depend on, as bytes.
class Key {
 public:
  Key(const c10::OperatorHandle& op, const Arguments& arguments,
      const std::vector<at::Tensor>& inputs)
      : inputs_(inputs) {
    // A learning rate is a float that changes with every step, and no shape depends on it; but the
    // length of a range does.
    const auto& name = op.schema().name();
    floats_matter_ = name == "aten::arange" || name == "aten::range";
    add(reinterpret_cast<int64_t>(&op.schema()));
    add(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
    for (const auto& argument : arguments) {
      add(argument);
    }
  }
  bool is_complete() const {
    return is_complete_;
  }
  const std::string& bytes() const {
    return bytes_;
  }

 private:
  template <class T>
  void add_raw(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void add(int64_t number) {
    add_raw(number);
  }
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      bytes_ += 'u';
      return;
    }
    bytes_ += 't';
    add(static_cast<int64_t>(position_of(tensor, inputs_)));
    add(static_cast<int64_t>(tensor.scalar_type()));
    add(tensor.dim());
    for (const int64_t size : tensor.sizes()) {
      add(size);
    }
    for (const int64_t stride : tensor.strides()) {
      add(stride);
    }
    bytes_ += static_cast<char>(
        on_sim(tensor) | tensor.is_conj() << 1 | tensor.is_neg() << 2 |
        tensor.unsafeGetTensorImpl()->is_wrapped_number() << 3);
  }
  void add(const c10::IValue& value) {
    bytes_ += '|';
    if (value.isTensor() || value.isTensorList()) {
      each_tensor(value, [this](const at::Tensor& tensor) { add(tensor); });
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        add(tensor.value_or(at::Tensor()));
      }
    } else if (value.isInt()) {
      bytes_ += 'i';
      add(value.toInt());
    } else if (value.isBool()) {
      bytes_ += value.toBool() ? 'T' : 'F';
    } else if (value.isDouble()) {
      bytes_ += 'd';
      if (floats_matter_) {
        add_raw(value.toDouble());
      }
    } else if (value.isIntList()) {
      bytes_ += 'I';
      for (const int64_t number : value.toIntVector()) {
        add(number);
      }
    } else if (value.isBoolList()) {
      bytes_ += 'B';
      for (const bool flag : value.toBoolList()) {
        bytes_ += flag ? '1' : '0';
      }
    } else if (value.isDoubleList()) {
      bytes_ += 'E';
      for (const double number : value.toDoubleVector()) {
        add_raw(number);
      }
    } else if (value.isString()) {
      bytes_ += 's';
      bytes_ += value.toStringRef();
    } else if (value.isNone() || value.isGenerator() || value.isDevice()) {
      bytes_ += 'n';
    } else {
      is_complete_ = false;
    }
  }

  const std::vector<at::Tensor>& inputs_;
  bool floats_matter_ = false;
  bool is_complete_ = true;
  std::string bytes_;
};

Output output_of(
    const at::Tensor& result, const std::vector<at::Tensor>& inputs,
    const std::vector<at::Tensor>& metas) {
  if (!result.defined()) {
    return {};
  }
  Output output{Output::Kind::kFresh};
  for (size_t index = 0; index < inputs.size(); index++) {
    if (metas[index].is_same(result)) {
      return {Output::Kind::kInput, index};
    }
    const bool shares_storage = on_sim(inputs[index]) &&
        metas[index].storage().unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl();
    if (shares_storage) {
      output = {Output::Kind::kView, index};
    }
  }
  return output;
}

// Results are recognized by identity: a returned meta tensor that is an argument's is in place or
// out=, one that shares its storage is a view. Schemas do not tell all of these.
std::shared_ptr<const Plan> make_plan(
    const c10::OperatorHandle& op, const Arguments& arguments,
    const std::vector<at::Tensor>& inputs) {
  auto plan = std::make_shared<Plan>();
  std::vector<at::Tensor> metas;
  for (const at::Tensor& input : inputs) {
    if (!on_sim(input) && input.dim() == 0) {
      metas.push_back(input);  // meta kernels may read a number on the host
      continue;
    }
    metas.push_back(at::empty_strided(
        input.sizes(), input.strides(),
        at::TensorOptions().dtype(input.scalar_type()).device(at::kMeta)));
    keep_wrapped_number(input, metas.back());
  }
  torch::jit::Stack stack;
  for (const auto& argument : arguments) {
    if (argument.isDevice()) {
      stack.emplace_back(c10::Device(at::kMeta));
    } else if (argument.isGenerator()) {
      stack.emplace_back();
    } else {
      stack.push_back(map_tensors(argument, [&](const at::Tensor& tensor) {
        return tensor.defined() ? metas[position_of(tensor, inputs)] : tensor;
      }));
    }
  }
  try {
    op.callBoxed(&stack);
  } catch (const std::exception&) {
    return plan;  // the CPU kernel, run at once, tells a missing meta kernel from a mistake
  }
  plan->is_known = true;
  for (size_t index = 0; index < inputs.size(); index++) {
    if (on_sim(inputs[index]) && metas[index].sizes() != inputs[index].sizes()) {
      plan->resized.emplace_back(index, metas[index].detach());
    }
  }
  for (const auto& value : stack) {
    each_tensor(value, [&](const at::Tensor& result) {
      plan->outputs.push_back(output_of(result, inputs, metas));
    });
  }
  plan->returns = std::move(stack);
  return plan;
}

}  // namespace

std::vector<at::Tensor> distinct_tensors(const Arguments& arguments) {
  std::vector<at::Tensor> distinct;
  for (const auto& argument : arguments) {
    each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined() && position_of(tensor, distinct) == distinct.size()) {
        distinct.push_back(tensor);
      }
    });
  }
  return distinct;
}

std::shared_ptr<const Plan> plan_of(
    const c10::OperatorHandle& op, const Arguments& arguments,
    const std::vector<at::Tensor>& inputs) {
  static std::mutex mutex;
  static auto& plans = *new std::unordered_map<std::string, std::shared_ptr<const Plan>>;
  const Key key(op, arguments, inputs);
  if (!key.is_complete()) {
    return make_plan(op, arguments, inputs);
  }
  {
    std::lock_guard lock(mutex);
    if (auto found = plans.find(key.bytes()); found != plans.end()) {
      return found->second;
    }
  }
  auto plan = make_plan(op, arguments, inputs);
  std::lock_guard lock(mutex);
  if (plans.size() >= kMostPlans) {
    plans.clear();
  }
  return plans.emplace(key.bytes(), std::move(plan)).first->second;
}

}  // namespace sim
