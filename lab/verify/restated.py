"""What the code that is proved calls, that libtorch does not export and that no hunk shows whole.

Ours, and held to stock: the control, the same code without the patch, must have stock's gradients.
"""

# Under the names that compile.py gives their calls. The last is without its in-place shortcut.
HELPERS = """
Tensor& proved_unpack(Tensor& t, const char* name, int pos) {
  TORCH_CHECK(t.defined(), "undefined tensor for argument '", name, "' (position ", pos, ")");
  return t;
}
const Tensor& proved_unpack(const Tensor& t, const char* name, int pos) {
  TORCH_CHECK(t.defined(), "undefined tensor for argument '", name, "' (position ", pos, ")");
  return t;
}
std::vector<Tensor> proved_unpack(at::ITensorListRef tl, const char*, int) {
  return std::vector<Tensor>(tl.begin(), tl.end());
}
Tensor proved_unpack_opt(const std::optional<Tensor>& t, const char*, int) {
  return t.value_or(Tensor());
}
Tensor proved_masked_fill_inplace_if_safe(const Tensor& t, const Tensor& mask, const Scalar& value) {
  return t.masked_fill(mask, value);
}
"""
CALLS = r"(?<![.\w])(unpack|unpack_opt|masked_fill_inplace_if_safe)\("

# symbolic_script.cpp has it among its functions; there `torch.` alone reaches every operator.
SCRIPT_HELPER = """def AD_sizes_if_not_equal_multi_0(t1, t2, result):
    first = torch.ops.aten._size_if_not_equal(t1.size(), result.size())
    return first, torch.ops.aten._size_if_not_equal(t2.size(), result.size())
"""
