#include "fallback.h"

#include "generator.h"
#include "notes.h"
#include "plans.h"
#include "streams.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <atomic>
#include <unordered_map>

namespace sim {
namespace {

std::atomic<int64_t> calls{0};

struct Call {
  const c10::OperatorHandle& op;
  const Traits& traits;
  Arguments arguments;
  c10::Device device;
  Queue& queue;
};

// The arguments for the CPU kernel: aliases of the same bytes, and a generator of its own.
torch::jit::Stack host_arguments(const Call& call, bool runs_later) {
  torch::jit::Stack stack;
  for (size_t index = 0; index < call.arguments.size(); index++) {
    const auto& argument = call.arguments[index];
    if (argument.isDevice()) {
      stack.emplace_back(c10::Device(at::kCPU));
    } else if (static_cast<int>(index) == call.traits.generator_argument) {
      stack.emplace_back(kernel_generator(
          argument.isGenerator() ? argument.toGenerator()
                                 : default_generator(call.device.index())));
    } else {
      const bool is_out = call.op.schema().arguments()[index].is_out();
      stack.push_back(map_tensors(argument, [&](const at::Tensor& tensor) {
        if (on_sim(tensor)) {
          return is_out ? resizable_host_alias(tensor) : host_alias(tensor);
        }
        // The host may change its own tensor, such as AdamW's step count, before the kernel runs.
        return tensor.defined() && runs_later ? tensor.clone() : tensor;
      }));
    }
  }
  return stack;
}

// CUDA moves index tensors from the host itself, by a copy that blocks.
void note_host_tensors(const Call& call) {
  bool found = false;
  for (const auto& argument : call.arguments) {
    each_tensor(argument, [&](const at::Tensor& tensor) {
      found |= tensor.defined() && !on_sim(tensor) && tensor.dim() > 0 && tensor.numel() > 0;
    });
  }
  if (found) {
    note_wait("copy", call.op.schema().name() + " of a host tensor");
    call.queue.drain();
  }
}

// Copy a result to where it belongs, unless the kernel has written it there.
void put(const at::Tensor& result, const at::Tensor& target) {
  if (result.const_data_ptr() != target.const_data_ptr()) {
    target.copy_(result);
  }
}

// Run the CPU kernel on this thread, after all that is queued.
void run_now(const Call& call, torch::jit::Stack* stack) {
  call.queue.drain();
  check_healthy(call.device.index());
  auto host = host_arguments(call, /*runs_later=*/false);
  std::unordered_map<c10::TensorImpl*, at::Tensor> originals;
  for (size_t index = 0; index < host.size(); index++) {
    std::vector<at::Tensor> given;
    each_tensor(call.arguments[index], [&](const at::Tensor& tensor) { given.push_back(tensor); });
    size_t position = 0;
    each_tensor(host[index], [&](const at::Tensor& alias) {
      if (alias.defined()) {
        originals[alias.unsafeGetTensorImpl()] = given[position];
      }
      position++;
    });
  }
  {
    WithoutGil released;
    call.op.callBoxed(&host);
  }
  torch::jit::drop(*stack, call.arguments.size());
  for (const auto& value : host) {
    stack->push_back(map_tensors(value, [&](const at::Tensor& result) -> at::Tensor {
      if (!result.defined()) {
        return result;
      }
      auto found = originals.find(result.unsafeGetTensorImpl());
      const bool is_argument = found != originals.end();
      if (is_argument && !on_sim(found->second)) {
        return found->second;
      }
      at::Tensor target = is_argument ? found->second
                                      : empty_strided(
                                            result.sizes(), result.strides(),
                                            result.scalar_type(), call.device);
      if (target.sizes() != result.sizes()) {
        resize_to(target, result.sizes(), result.strides());
      }
      call.queue.drain();  // a reused block is poisoned in the stream's order
      if (result.numel() > 0) {
        put(result, host_alias(target));
      }
      return target;
    }));
  }
}

// Make the outputs that the plan promises, and queue the CPU kernel that fills them.
void run_later(
    const Call& call, const Plan& plan, const std::vector<at::Tensor>& inputs,
    torch::jit::Stack* stack) {
  for (const auto& [index, shape] : plan.resized) {
    resize_to(inputs[index], shape.sizes(), shape.strides());
  }
  auto host = host_arguments(call, /*runs_later=*/true);
  std::vector<at::Tensor> promised;  // where results belong; undefined if they are there
  bool only_views = !plan.outputs.empty();
  torch::jit::drop(*stack, call.arguments.size());
  for (const auto& value : plan.returns) {
    stack->push_back(map_tensors(value, [&](const at::Tensor& meta) -> at::Tensor {
      const Output& output = plan.outputs[promised.size()];
      promised.emplace_back();
      only_views &= output.kind == Output::Kind::kView;
      switch (output.kind) {
        case Output::Kind::kUndefined:
          return meta;
        case Output::Kind::kInput:
          if (call.traits.has_out) {
            promised.back() = host_alias(inputs[output.input]);
          }
          return inputs[output.input];
        case Output::Kind::kView:
          return view_as_planned(inputs[output.input], meta);
        case Output::Kind::kFresh:
          break;
      }
      at::Tensor fresh =
          empty_strided(meta.sizes(), meta.strides(), meta.scalar_type(), call.device);
      if (meta.is_conj()) {
        fresh._set_conj(true);
      }
      if (fresh.numel() > 0) {
        promised.back() = host_alias(fresh);
      }
      return fresh;
    }));
  }
  if (only_views) {
    return;
  }
  call.queue.launch([op = call.op, host = std::move(host),
                     promised = std::move(promised)]() mutable {
    try {
      op.callBoxed(&host);
    } catch (c10::Error& error) {
      error.add_context("in " + op.schema().name());
      throw;
    }
    size_t position = 0;
    for (const auto& value : host) {
      each_tensor(value, [&](const at::Tensor& result) {
        const at::Tensor& target = promised[position++];
        // In evaluation, batch_norm gives no statistics, though its meta kernel promises some.
        if (target.defined() && result.numel() > 0) {
          TORCH_CHECK(
              result.sizes() == target.sizes(), "sim: the meta kernel of ", op.schema().name(),
              " promised ", target.sizes(), ", the CPU kernel gave ", result.sizes());
          put(result, target);
        }
      });
    }
  });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Traits& traits = traits_of(op);
  const auto& name = op.schema().name();
  TORCH_CHECK_NOT_IMPLEMENTED(traits.has_cpu_kernel, "sim: ", name, " has no CPU kernel to run");
  Arguments arguments(stack->end() - op.schema().arguments().size(), stack->end());
  const c10::Device device = common_device(op, traits, arguments);
  check_healthy(device.index());
  c10::DeviceGuard guard(device);
  const Call call{op, traits, std::move(arguments), device, current_queue(device.index())};
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  calls++;

  if (traits.takes_host_tensors) {
    note_host_tensors(call);
  }
  if (traits.is_random && traits.generator_argument < 0) {
    note("random_without_generator", name);  // draws from the host's generator, in any order
  }
  if (must_read(traits, call.arguments)) {
    note_wait("read", name);
    run_now(call, stack);
    return;
  }
  const auto inputs = distinct_tensors(call.arguments);
  const auto plan = plan_of(op, call.arguments, inputs);
  if (!plan->is_known) {
    note("no_meta_kernel", name);
    run_now(call, stack);
    return;
  }
  run_later(call, *plan, inputs, stack);
}

int64_t operator_calls() {
  return calls;
}

}  // namespace sim
