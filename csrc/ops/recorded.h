#pragma once
// What a front door does where a gradient is to be recorded.

#include "base/convention.h"
#include "base/number.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace clampgrad {

using OptionalTensor = std::optional<at::Tensor>;

// With at least one bound. `self_will_change`: the caller writes the result into self, so that
// nothing may be saved that is self.
at::Tensor recorded_clamp(
    const at::Tensor& self,
    const Number& min,
    const Number& max,
    Convention convention,
    bool self_will_change = false);
at::Tensor recorded_clamp(
    const at::Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max,
    Convention convention,
    bool self_will_change = false);

// Raises, as torch's in-place operators do, where writing to self would change `other`. Nothing is
// looked at but tensors that have memory.
void check_no_overlap(const at::Tensor& self, const at::Tensor& other);

// Of clamp_min and clamp_max: torch takes a CPU scalar beside a Tensor of another device there, as
// every operator of two arguments does, but not in clamp.
at::Tensor on_device_of(const at::Tensor& other, const at::Tensor& t);

// The end of an in-place operator: writes the result into self, or raises where torch would.
at::Tensor& assign(at::Tensor& self, const at::Tensor& result);

} // namespace clampgrad
