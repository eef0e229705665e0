// Operators that torch sends elsewhere for this device type than for the CPU, made of others.
#include "fallback.h"
#include "tensors.h"

#include <ATen/ops/bernoulli.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace sim {
namespace {

using at::Tensor;

// The CPU's native_dropout takes no generator, so it would draw from the host's on any thread.
std::tuple<Tensor, Tensor> dropout(const Tensor& input, double p, std::optional<bool> train) {
  const auto mask_options = input.options().dtype(at::kBool);
  if (!train.value_or(true) || p == 0) {
    return {input.clone(), at::ones_like(input, mask_options)};
  }
  Tensor mask = at::empty_like(input, mask_options).bernoulli_(1 - p);
  const double scale = p < 1 ? 1 / (1 - p) : 0.0;
  return {input.mul(mask).mul_(scale), mask};
}

// Convolutions of this device type go to *_overrideable (ATen/native/Convolution.cpp), for which
// the CPU has no kernel.
void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  fallback(op, stack);
}

void convolution_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  // (grad_output, input, weight, stride, ..., output_mask): the plain operator also takes the
  // bias's sizes, after the weight. A transposed convolution has its channels there, too.
  constexpr int kArguments = 10;
  constexpr int kAfterWeight = 7;
  const int64_t channels = (*stack)[stack->size() - kArguments].toTensor().size(1);
  stack->insert(stack->end() - kAfterWeight, c10::IValue(std::vector<int64_t>{channels}));
  fallback(op, stack);
}

// nn.LSTM and nn.GRU take fused cells for this device type (ATen/native/RNN.cpp), which exist for
// CUDA only. The formulas and the contents of `workspace` follow ATen/native/cuda/RNN.cu.
Tensor with_bias(const Tensor& gates, const std::optional<Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  const auto gates =
      (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor in = gates[0].sigmoid();
  const Tensor forget = gates[1].sigmoid();
  const Tensor cell = gates[2].tanh();
  const Tensor out = gates[3].sigmoid();
  const Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const std::optional<Tensor>& grad_hy, const std::optional<Tensor>& grad_cy,
    const Tensor& cx, const Tensor& cy, const Tensor& workspace, bool has_bias) {
  const bool has_hy = grad_hy && grad_hy->defined();
  const bool has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) {
    return {};
  }
  const auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor hidden = has_hy ? *grad_hy : at::zeros_like(cx);
  const Tensor tanh_cy = cy.tanh();
  Tensor carried = hidden * out * (1 - tanh_cy * tanh_cy);
  if (has_cy) {
    carried = carried + *grad_cy;
  }
  const Tensor grad_gates = at::cat(
      {carried * cell * in * (1 - in), carried * cx * forget * (1 - forget),
       carried * in * (1 - cell * cell), hidden * tanh_cy * out * (1 - out)},
      1);
  return {grad_gates, carried * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {
      fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3];
  const Tensor grad_update = grad_hy * (hx - fresh) * update * (1 - update);
  const Tensor grad_fresh = grad_hy * (1 - update) * (1 - fresh * fresh);
  const Tensor grad_reset = grad_fresh * saved[4] * reset * (1 - reset);
  const Tensor to_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const Tensor to_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  return {
      to_input, to_hidden, grad_hy * update, has_bias ? to_input.sum(0) : Tensor(),
      has_bias ? to_hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_dropout", dropout);
  library.impl(
      "convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  library.impl(
      "convolution_backward_overrideable",
      torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace
}  // namespace sim
