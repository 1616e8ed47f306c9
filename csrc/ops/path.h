#pragma once
// Which of the two paths behind a front door a tensor takes (docs/architecture.md).

#include <ATen/core/Tensor.h>

namespace clampgrad {

// An ordinary strided tensor of a backend with kernels here, no mode of this thread in between
// (tracing, a functorch level, a dispatch mode).
bool is_plain(const at::Tensor& self);

// False where no gradient can be recorded, so that the front door is the ATen operator and no more.
bool may_need_gradient(const at::Tensor& self);

bool has_kernels(at::ScalarType dtype);

// A plain tensor of a dtype with kernels here, that carries no tangent.
bool takes_fast_path(const at::Tensor& self);

} // namespace clampgrad
