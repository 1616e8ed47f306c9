// An accelerator in the host's memory, as the device "mock": its operators run on the CPU, but its
// Tensors are not the CPU's, and what a GPU refuses, it refuses.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using c10::Device;
using c10::Storage;

constexpr auto MOCK = c10::DeviceType::PrivateUse1;
const Device HOST(c10::DeviceType::CPU), HERE(MOCK, 0);

// ---- Memory ------------------------------------------------------------------------------------

// The same bytes, called memory of that device.
c10::DataPtr as_of(Device device, const Storage& storage) {
  auto release = [](void* held) { delete static_cast<Storage*>(held); };
  return {storage.mutable_data(), new Storage(storage), release, device};
}

Storage twin(const Storage& storage, Device device) {
  auto* allocator = c10::GetAllocator(device.type());
  const auto bytes = storage.nbytes();
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, as_of(device, storage), allocator, true);
}

struct Memory : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    auto found = c10::GetAllocator(HOST.type())->allocate(n);
    found.unsafe_set_device(HERE);
    return found;
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return c10::GetAllocator(HOST.type())->raw_deleter();
  }
  void copy_data(void* to, const void* from, size_t n) const override {
    default_copy_data(to, from, n);
  }
};

// ---- Tensors -----------------------------------------------------------------------------------

struct Impl : c10::TensorImpl {
  static void set_device(c10::TensorImpl& tensor, Device device) {
    tensor.*(&Impl::device_opt_) = device;
    tensor._change_backend_component_keys(device);
  }
};

bool is_ours(const Tensor& t) {
  return t.defined() && t.device().type() == MOCK;
}

// The Tensors of one call, and the same ones on the host.
struct Twins {
  std::vector<std::pair<Tensor, Tensor>> tensors;
  std::vector<std::pair<Storage, Storage>> storages;

  Storage host(const Storage& ours) {
    for (const auto& [here, there] : storages) {
      if (here.is_alias_of(ours)) {
        return there;
      }
    }
    return storages.emplace_back(ours, twin(ours, HOST)).second;
  }

  Tensor host(const Tensor& t) {
    if (!is_ours(t)) {
      return t;
    }
    auto impl = t.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true);
    Impl::set_device(*impl, HOST);
    if (t.has_storage()) {
      impl->set_storage_keep_dtype(host(t.storage()));
    }
    return tensors.emplace_back(t, Tensor(std::move(impl))).second;
  }

  Storage ours(const Storage& host) {
    for (const auto& [here, there] : storages) {
      if (there.unsafeGetStorageImpl() == host.unsafeGetStorageImpl()) {
        return here;
      }
    }
    return storages.emplace_back(twin(host, HERE), host).first;
  }

  Tensor ours(const Tensor& t) {
    if (!t.defined() || t.device() != HOST) {
      return t;
    }
    for (const auto& [here, there] : tensors) {
      if (there.is_same(t)) {
        return here;
      }
    }
    const bool is_plain = t.layout() == at::kStrided && !t.is_quantized() && !t.is_nested();
    TORCH_CHECK_NOT_IMPLEMENTED(is_plain, "The device mock has plain Tensors alone");
    auto impl = t.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true);
    Impl::set_device(*impl, HERE);
    if (t.has_storage()) {
      impl->set_storage_keep_dtype(ours(t.storage()));
    }
    return Tensor(std::move(impl));
  }

  // What the call has resized or pointed elsewhere.
  void update() {
    for (size_t i = 0; i < storages.size(); i++) {
      const auto [here, there] = storages[i];
      if (here.data() != there.data() || here.nbytes() != there.nbytes()) {
        here.set_data_ptr_noswap(as_of(HERE, there));
        here.set_nbytes(there.nbytes());
      }
    }
    for (const auto& [here, there] : tensors) {
      if (here.layout() != at::kStrided) {
        continue;
      }
      if (here.sizes() != there.sizes() || here.strides() != there.strides() ||
          here.storage_offset() != there.storage_offset()) {
        auto* impl = here.unsafeGetTensorImpl();
        impl->set_sizes_and_strides(there.sizes(), there.strides(), there.storage_offset());
      }
      const auto storage = ours(there.storage());
      if (here.storage().unsafeGetStorageImpl() != storage.unsafeGetStorageImpl()) {
        here.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
      }
    }
  }
};

// ---- Operators ---------------------------------------------------------------------------------

// Applies f to each Tensor of a value, which may be a list.
template <typename F>
void replace(c10::IValue& value, F f) {
  if (value.isTensor()) {
    value = f(value.toTensor());
  } else if (value.isList()) {
    const auto list = value.toList();
    c10::impl::GenericList found(list.elementType());
    for (c10::IValue element : list) {
      replace(element, f);
      found.push_back(element);
    }
    value = found;
  }
}

void on_the_host(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto count = schema.arguments().size(), results = schema.returns().size();
  // As on a GPU: a number on the CPU is read, but for these two, and indices are moved.
  const bool indexes = schema.name().find("index") != std::string::npos;
  const bool reads = schema.name().rfind("aten::clamp_m", 0) != 0;
  auto values = stack->end() - count;
  Twins twins;
  bool first = true, any = false;
  for (auto value = values; value != stack->end(); ++value) {
    if (value->isGenerator()) {
      const auto device = value->toGenerator().device();
      TORCH_CHECK(false, "Expected a 'mock' device type for generator but found '", device, "'");
    } else if (value->isDevice()) {
      *value = HOST;
    } else if (value->isStorage() && value->toStorage().device_type() == MOCK) {
      *value = twins.host(value->toStorage());
    }
    replace(*value, [&](const Tensor& t) {
      const bool is_read = !t.defined() || (reads && t.dim() == 0) || (indexes && !first);
      TORCH_CHECK(
          is_ours(t) || is_read,
          "Expected all tensors to be on the same device, but ",
          schema.name(),
          " has one on ",
          t.device());
      first = false;
      any = any || is_ours(t);
      return twins.host(t);
    });
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto value = stack->end() - results; value != stack->end(); ++value) {
    replace(*value, [&](const Tensor& t) { return twins.ours(t); });
  }
  twins.update();
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  Twins twins;
  twins.host(to).copy_(twins.host(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  Twins twins;
  twins.host(to).resize_(from.sizes()).copy_(twins.host(from));
  twins.update();
  return to;
}

// ---- The device --------------------------------------------------------------------------------

struct Guard : c10::impl::NoOpDeviceGuardImpl<MOCK> {
  Device exchangeDevice(Device) const override {
    return HERE;
  }
  Device getDevice() const override {
    return HERE;
  }
  c10::Stream getStream(Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, HERE);
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, HERE);
  }
  void record(
      void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
};

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }
  void resizePrivateUse1Bytes(const Storage& storage, size_t bytes) const override {
    auto data = c10::GetAllocator(MOCK)->allocate(bytes);
    std::memcpy(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};

Memory memory;
const bool registered = [] {
  c10::SetAllocator(MOCK, &memory);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_host>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
}

// Copying on the host reads the bits of these keys; their fallbacks would copy to read them.
#define READS_BITS(Key)                                                     \
  TORCH_LIBRARY_IMPL(aten, Key, m) {                                        \
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());            \
    m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough()); \
  }
READS_BITS(Negative)
READS_BITS(Conjugate)

} // namespace
