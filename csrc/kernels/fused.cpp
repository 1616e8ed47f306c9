#include "kernels/fused.h"

#include "Kernels.h"
#include "base/bounds.h"
#include "kernels/constant.h"
#include "kernels/memory_order.h"

#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>

namespace clampgrad {

using at::Tensor;

namespace {

// Of several arguments, each has a plane.
template <typename Call>
int planes_of(const Call& call) {
  if constexpr (Call::kIn * Call::kOut == 1) {
    return planes(call.gate);
  } else {
    return Call::kIn * Call::kOut;
  }
}

// Writes y and returns the bits.
template <typename Call, typename... In>
Tensor encode(const Call& call, const Tensor& y, const In&... in) {
  const auto n = y.numel();
  const c10::SymInt bytes = planes_bytes(planes_of(call), n);
  auto bits = empty_in_order(bytes, kContiguousOrder, y.options().dtype(at::kByte));
  if (y.is_meta()) {
    return bits;
  }
  auto* out = y.mutable_data_ptr(); // before the inputs: in place, this may be what copies them
  auto* to = static_cast<uint64_t*>(bits.mutable_data_ptr());
  const MemoryOf<Call> memory = {
      {in.tensor.const_data_ptr()...}, {words(in.period)...}, {out}, to, n};
  CLAMPGRAD_CALL_KERNEL(run, y.device(), y.scalar_type(), memory, call);
  return bits;
}

void check_alike(const Tensor& self, const Tensor& t) {
  TORCH_CHECK(
      t.sizes() == self.sizes() && t.scalar_type() == self.scalar_type() &&
          t.device() == self.device(),
      "clampgrad: expected Tensors of one shape, dtype and device, got ",
      self.toString(),
      self.sizes(),
      " and ",
      t.toString(),
      t.sizes());
}

template <typename Call, typename... Others>
std::tuple<Tensor, Tensor> encoded(
    const Call& call, int64_t order, const Tensor& self, const Others&... others) {
  (check_alike(self, others), ...);
  // As TensorIterator does: the strides of the arguments where they agree.
  const bool alike = order != kContiguousOrder && (... && (others.strides() == self.strides()));
  auto y = alike ? empty_like_in_order(self, order)
                 : empty_in_order(self.sym_sizes(), order, self.options());
  auto bits = encode(
      call, y, repeated_in_memory_order(self, order), repeated_in_memory_order(others, order)...);
  return {std::move(y), std::move(bits)};
}

template <typename T>
Lane<T> lane(T value) {
  if constexpr (sizeof(T) == 2) {
    return value.x;
  } else {
    return value;
  }
}

GateEncode gate_encode(const Tensor& x, const Number& min, const Number& max, Gate gate) {
  GateEncode call = {0, 0, min.has_value(), max.has_value(), gate};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "clamp", [&] {
    const auto in_lane = [&](const Number& bound) {
      return bound ? lane(in_dtype(bound, x)->to<scalar_t>()) : Lane<scalar_t>();
    };
    call.lo = in_lane(min);
    call.hi = in_lane(max);
  });
  return call;
}

// The bits of the elements of `of`, after a check that this is what was saved: a saved-tensor hook
// may move or cast it.
c10::MaybeOwned<Tensor> checked_bits(const Tensor& bits, const Tensor& of, int planes) {
  const auto bytes = planes_bytes(planes, of.numel());
  TORCH_CHECK(
      bits.scalar_type() == at::kByte && bits.is_contiguous() && bits.numel() == bytes &&
          bits.device() == of.device(),
      "clampgrad: what was saved for ",
      of.numel(),
      " elements on ",
      of.device(),
      " came back as ",
      bits.toString(),
      " of ",
      bits.numel(),
      " elements on ",
      bits.device(),
      " instead of ",
      bytes,
      " bytes; a saved-tensor hook must return what it was given");
  // It may have put them at any address, and kernels read whole words.
  const bool aligned = reinterpret_cast<uintptr_t>(bits.const_data_ptr()) % alignof(uint64_t) == 0;
  return aligned ? c10::MaybeOwned<Tensor>::borrowed(bits)
                 : c10::MaybeOwned<Tensor>::owned(bits.clone());
}

const uint64_t* words_of(const c10::MaybeOwned<Tensor>& bits) {
  return static_cast<const uint64_t*>(bits->const_data_ptr());
}

} // namespace

// ---- Forward: one pass for the result and the bits ----------------------------------------------

namespace native {

std::tuple<Tensor, Tensor> clamp_gate(
    const Tensor& self, const Number& min, const Number& max, int64_t gate_, int64_t order) {
  const auto gate = checked_enum<Gate>(gate_, kGates);
  check_has_bound(min, max);
  TORCH_CHECK_VALUE(!is_nan(min) && !is_nan(max), "clampgrad: a bound of NaN has no gate");
  if (memory_order(self) == order) {
    return encoded(gate_encode(self, min, max, gate), order, self);
  }
  // Not dense, or in another order than the caller says.
  const auto y = order == order_of_copy(self)
      ? self.clone()
      : empty_in_order(self.sym_sizes(), order, self.options()).copy_(self);
  return {y, clamp_gate_(y, min, max, gate, order)};
}

std::tuple<Tensor, Tensor> extremum_shares(
    const Tensor& self,
    const Tensor& other,
    bool greater_wins,
    bool nan_loses,
    int64_t tie,
    int64_t nan,
    int64_t sharing,
    int64_t order) {
  PairCodes codes = {checked_enum<int>(tie, kBoth + 1), checked_enum<int>(nan, kBoth + 1)};
  if (checked_enum<Sharing>(sharing, kSharings) == Sharing::nan_to_both) {
    codes.nan = 0; // the bits of a tie are taken
  }
  return encoded(PairEncode{greater_wins, nan_loses, codes}, order, self, other);
}

std::tuple<Tensor, Tensor> clamp_shares(
    const Tensor& self,
    const Tensor& min,
    const Tensor& max,
    int64_t rule,
    int64_t among,
    int64_t sharing,
    int64_t order) {
  checked_enum<Sharing>(sharing, kSharings);
  const TripleEncode call = {
      checked_enum<Gradient>(rule, kGradients), checked_enum<int>(among, kAll + 1)};
  TORCH_CHECK_VALUE(call.rule == triple_rule(call.rule), "clampgrad: no rule of three is ", rule);
  return encoded(call, order, self, min, max);
}

Tensor mask(
    const Tensor& bits, c10::SymIntArrayRef size, int64_t codes, int64_t planes, int64_t order) {
  TORCH_CHECK_VALUE(planes >= 1 && planes <= 3, "clampgrad: nothing has ", planes, " bit planes");
  const auto mask = empty_in_order(size, order, bits.options().dtype(at::kBool));
  if (mask.is_meta()) {
    return mask;
  }
  const auto count = static_cast<int>(planes);
  const auto saved = checked_bits(bits, mask, count);
  auto* to = mask.mutable_data_ptr<bool>();
  CLAMPGRAD_CALL_KERNEL(unpack, mask.device(), mask.numel(), words_of(saved), count, codes, to);
  return mask;
}

} // namespace native

Tensor clamp_gate_(
    const Tensor& self, const Number& min, const Number& max, Gate gate, int64_t order) {
  at::assert_no_internal_overlap(self);
  const auto view = permuted(self, order);
  const auto x = view.contiguous();
  const auto bits = encode(gate_encode(x, min, max, gate), x, Repeated{x, x.numel()});
  if (!x.is_alias_of(self)) {
    view.copy_(x);
  }
  return bits;
}

// ---- Backward: one pass for all gradients -------------------------------------------------------

template <typename Call>
std::array<Tensor, Call::kOut> decode(
    const Recorded<Call>& of, const Tensor& grad, const std::array<bool, Call::kOut>& wanted) {
  const auto [g, period] = repeated_in_memory_order(grad, of.order);
  const auto bits = checked_bits(of.bits, grad, planes_of(of.call));
  MemoryOf<Call> memory = {{g.const_data_ptr()}, {words(period)}, {}, words_of(bits), grad.numel()};
  std::array<Tensor, Call::kOut> to;
  for (int i = 0; i < Call::kOut; ++i) {
    if (wanted[i]) {
      to[i] = empty_in_order(grad.sym_sizes(), of.order, grad.options());
      memory.out[i] = to[i].mutable_data_ptr();
    }
  }
  CLAMPGRAD_CALL_KERNEL(run, grad.device(), grad.scalar_type(), memory, of.call);
  return to;
}

template std::array<Tensor, 1> decode(
    const RecordedGate&, const Tensor&, const std::array<bool, 1>&);
template std::array<Tensor, 2> decode(
    const RecordedPair&, const Tensor&, const std::array<bool, 2>&);
template std::array<Tensor, 3> decode(
    const RecordedTriple&, const Tensor&, const std::array<bool, 3>&);

} // namespace clampgrad
