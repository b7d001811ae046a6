#include "csrc/device/alias.h"

#include <cstring>

#include <c10/core/CPUAllocator.h>

#include "csrc/device/allocator.h"
#include "csrc/device/arena.h"

namespace neuron {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::TensorImpl;

const uint64_t kCpuKeys =
    DispatchKeySet(c10::BackendComponent::CPUBit).raw_repr() | DispatchKeySet(DispatchKey::AutocastCPU).raw_repr();
const uint64_t kNeuronKeys = DispatchKeySet(c10::BackendComponent::PrivateUse1Bit).raw_repr() |
    DispatchKeySet(DispatchKey::AutocastPrivateUse1).raw_repr();

// torch lets an implementation's keys and device only be chosen when it is made; a change afterwards saves making
// another one for every output.
struct OpenImpl : TensorImpl {
  static void retarget(TensorImpl* impl, c10::Device device) {
    const bool to_cpu = device.is_cpu();
    DispatchKeySet& keys = impl->*(&OpenImpl::key_set_);
    const uint64_t kept = keys.raw_repr() & ~(to_cpu ? kNeuronKeys : kCpuKeys);
    keys = DispatchKeySet(DispatchKeySet::RAW, kept | (to_cpu ? kCpuKeys : kNeuronKeys));
    impl->*(&OpenImpl::device_opt_) = device;
  }
  static void set_storage(TensorImpl* impl, c10::Storage storage) { impl->*(&OpenImpl::storage_) = std::move(storage); }
};

void release_storage(void* storage) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(storage)); }

// Holds the neuron storage for as long as the alias lives, so that a kernel may keep it.
c10::Storage make_alias(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  c10::raw::intrusive_ptr::incref(impl);
  c10::DataPtr data(impl->_mutable_data_ptr_no_checks().get(), impl, &release_storage, c10::kCPU);
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), impl->sym_nbytes(), std::move(data), c10::GetCPUAllocator(),
      impl->resizable());
}

at::Tensor make_alias(const at::Tensor& tensor, c10::Storage storage) {
  // Kernels run below the bookkeeping of versions, which stays with the neuron tensor.
  auto impl = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(c10::VariableVersion::DISABLED), /*allow_tensor_metadata_change=*/true);
  OpenImpl::retarget(impl.get(), c10::kCPU);
  OpenImpl::set_storage(impl.get(), std::move(storage));
  return at::Tensor(std::move(impl));
}

void check_dense(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.has_storage(), "the neuron device has dense tensors only, none of layout ", tensor.layout());
}

// Whether a CPU storage can become a neuron storage as it is. torch's zero tensors have a size but no memory.
bool has_landed(const c10::StorageImpl& storage) {
  return !storage.data() || (Arena::exists() && Arena::instance().contains(storage.data()));
}

// The storage itself, made a neuron one, or a copy in the HBM of one that lies elsewhere.
c10::Storage adopt_new(const c10::Storage& storage, c10::Device device) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (impl->device_type() == device.type()) return storage;
  if (has_landed(*impl)) {
    impl->_mutable_data_ptr_no_checks().unsafe_set_device(device);
    impl->set_allocator(allocator());
    return storage;
  }
  c10::DataPtr data = allocate_on(device.index(), impl->nbytes(), device);
  std::memcpy(data.get(), impl->data(), impl->nbytes());
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), impl->nbytes(), std::move(data), allocator(), /*resizable=*/true);
}

} // namespace

at::Tensor cpu_alias(const at::Tensor& tensor) {
  check_dense(tensor);
  return make_alias(tensor, make_alias(tensor.storage()));
}

void check_joins(
    const at::Tensor& tensor, c10::Device device, bool written, std::string_view name, std::string_view overload) {
  TORCH_CHECK(
      !tensor.is_privateuseone() && (!tensor.is_cpu() || (tensor.dim() == 0 && !written)),
      "Expected all tensors to be on the same device, but found at least two devices, ", device, " and ",
      tensor.device(), "! (when running ", name, overload.empty() ? "" : ".", overload, ")");
}

const c10::Storage& Aliases::alias(const c10::Storage& storage) {
  for (const AliasedStorage& known : storages_) {
    if (known.storage == storage.unsafeGetStorageImpl()) return known.alias;
  }
  storages_.push_back({storage.unsafeGetStorageImpl(), make_alias(storage)});
  return storages_.back().alias;
}

const at::Tensor& Aliases::alias(const at::Tensor& tensor, bool written) {
  for (AliasedTensor& known : tensors_) {
    if (known.tensor != tensor.unsafeGetTensorImpl()) continue;
    known.written |= written;
    return known.alias;
  }
  check_dense(tensor);
  tensors_.push_back({tensor.unsafeGetTensorImpl(), make_alias(tensor, alias(tensor.storage())), written});
  return tensors_.back().alias;
}

c10::Storage Aliases::adopt(const c10::Storage& storage, c10::Device device) {
  for (const AliasedStorage& known : storages_) {
    if (known.alias.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(known.storage));
    }
  }
  return adopt_new(storage, device);
}

at::Tensor Aliases::adopt(at::Tensor output, c10::Device device) {
  if (!output.defined() || !output.is_cpu()) return output;
  check_dense(output);
  for (const AliasedTensor& known : tensors_) {
    if (known.alias.is_same(output)) {
      return at::Tensor(c10::intrusive_ptr<TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(known.tensor));
    }
  }
  c10::Storage storage = adopt(output.storage(), device);
  if (output.use_count() > 1) { // the kernel, or another output, holds it too
    output = at::Tensor(output.unsafeGetTensorImpl()->shallow_copy_and_detach(
        c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
  }
  OpenImpl::retarget(output.unsafeGetTensorImpl(), device);
  OpenImpl::set_storage(output.unsafeGetTensorImpl(), std::move(storage));
  return output;
}

void Aliases::write_back(c10::Device device) {
  for (const AliasedTensor& argument : tensors_) {
    if (argument.written) write_back(argument, device);
  }
}

void Aliases::write_back(const AliasedTensor& argument, c10::Device device) {
  TensorImpl* impl = argument.tensor;
  const TensorImpl* alias = argument.alias.unsafeGetTensorImpl();
  c10::StorageImpl* changed = alias->unsafe_storage().unsafeGetStorageImpl();
  const c10::Storage storage = adopt(alias->unsafe_storage(), device);
  c10::StorageImpl* own = storage.unsafeGetStorageImpl();
  if (own != impl->unsafe_storage().unsafeGetStorageImpl()) impl->set_storage_keep_dtype(storage);
  if (changed != own && changed->data() != own->data()) { // resized: the alias holds new memory
    const c10::Storage landed = adopt_new(alias->unsafe_storage(), device);
    own->set_data_ptr_noswap(landed.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, c10::kCPU)));
    own->set_nbytes(landed.nbytes());
  }
  if (impl->sizes() != alias->sizes() || impl->strides() != alias->strides() ||
      impl->storage_offset() != alias->storage_offset()) {
    impl->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
  }
  if (impl->is_conj() != alias->is_conj()) impl->_set_conj(alias->is_conj());
}

} // namespace neuron
