// Operators: those that make or reshape storages, and the CPU's for all the rest.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>
#include "device.hpp"

#ifdef SIM_CUDA
#define SIM_KEY CUDA
#else
#define SIM_KEY PrivateUse1
#endif

namespace simgpu {
using at::Tensor;
using Shape = at::IntArrayRef;
constexpr DispatchKeySet kKeys(DispatchKey::SIM_KEY);

Tensor host(const Tensor& t) {  // the same memory as a CPU tensor
  if (t.is_cpu()) return t;
  auto same = at::from_blob(t.data_ptr(), t.sizes(), t.strides(), t.options().device(kCPU).requires_grad(false));
  same._set_conj(t.is_conj());
  same._set_neg(t.is_neg());
  return same;
}
Tensor to_device(const Tensor& t, c10::Device d) { return t.defined() ? t.to(d) : t; }

void only_strided(std::optional<Layout> layout) {
  TORCH_CHECK(layout_or_default(layout) == Layout::Strided, "simgpu: only strided tensors");
}
Tensor empty(Shape size, std::optional<ScalarType> dtype, std::optional<Layout> layout, std::optional<c10::Device> device,
             std::optional<bool>, std::optional<MemoryFormat> format) {
  only_strided(layout);
  const DeviceGuard guard(device_or_default(device));
  return at::detail::empty_generic(size, &allocator(), kKeys, dtype_or_default(dtype), format);
}
Tensor empty_strided(Shape size, Shape stride, std::optional<ScalarType> dtype, std::optional<Layout> layout,
                     std::optional<c10::Device> device, std::optional<bool>) {
  only_strided(layout);
  const DeviceGuard guard(device_or_default(device));
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys, dtype_or_default(dtype));
}
const Tensor& resize_(const Tensor& t, Shape size, std::optional<MemoryFormat> format) {
  const DeviceGuard guard(t.device());
  return at::native::resize_(t, size, format);
}
Tensor as_strided(const Tensor& t, Shape size, Shape stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(t, size, stride, offset);
}
Tensor& set_empty(Tensor& t) {
  const DeviceGuard guard(t.device());
  const Storage none(Storage::use_byte_size_t(), 0, allocator().allocate(0), &allocator(), true);
  return at::native::set_storage_cpu_(t, none, 0, {0}, {});
}
Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (to.numel()) host(to).copy_(host(from), non_blocking);
  return to;
}
Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  const_cast<Tensor&>(to).resize_(from.sizes());
  return copy_from(from, to, false);
}
Tensor& copy_(Tensor& to, const Tensor& from, bool non_blocking) {
  copy_from(from, to, non_blocking);
  return to;
}
at::Scalar local_scalar(const Tensor& t) { return at::native::_local_scalar_dense_cpu(host(t)); }
void record_stream(Tensor&, Stream) {}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, Shape stride, Shape padding,
                   Shape dilation, bool transposed, Shape output_padding, int64_t groups) {
  const auto b = bias && bias->defined() ? std::optional<Tensor>(host(*bias)) : std::nullopt;
  return to_device(at::convolution(host(input), host(weight), b, stride, padding, dilation, transposed, output_padding,
                                   groups), input.device());
}
std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& input, const Tensor& weight, Shape stride, Shape padding, Shape dilation,
    bool transposed, Shape output_padding, int64_t groups, std::array<bool, 3> mask) {
  const auto device = input.device();
  const int64_t channels = gradient.size(1);
  auto [a, b, c] = at::convolution_backward(host(gradient), host(input), host(weight), Shape(&channels, 1), stride,
                                            padding, dilation, transposed, output_padding, groups, mask);
  return {to_device(a, device), to_device(b, device), to_device(c, device)};
}
void on_the_cpu(const OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(aten, SIM_KEY, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", at::native::view);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", resize_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("copy_", copy_);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("record_stream", record_stream);
  m.impl("set_", set_empty);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", TORCH_FN((Tensor & (*)(Tensor&, at::Storage)) at::native::set_));
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}
TORCH_LIBRARY_IMPL(_, SIM_KEY, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>()); }
#ifndef SIM_CUDA
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
#endif

}  // namespace simgpu
