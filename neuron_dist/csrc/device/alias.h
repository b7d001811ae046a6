#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace neuron {

inline bool is_neuron(const at::Tensor& tensor) { return tensor.defined() && tensor.is_privateuseone(); }

// A CPU tensor over the memory of a neuron tensor, for code that only reads and writes elements.
at::Tensor cpu_alias(const at::Tensor& tensor);

// The neuron tensors that take part in one call of a CPU kernel, and their CPU aliases. The kernel sees ordinary CPU
// tensors over the same memory; what it returns or does to their shapes and storages is carried over to neuron tensors.
// Nothing is copied, except an output that lies outside the HBM. The caller keeps the arguments alive: one more
// reference to a tensor that Python alone holds would cost torch two turns of Python's lock.
class Aliases {
 public:
  // A tensor given twice has one alias, and tensors that share a storage have aliases that share one. What the kernel
  // does to the sizes and the storage of an argument that it may write, write_back applies to the tensor.
  const at::Tensor& alias(const at::Tensor& tensor, bool written);
  const c10::Storage& alias(const c10::Storage& storage);

  // What the kernel returned, as a tensor of `device`: an argument it was given, a view of one, or a new tensor.
  at::Tensor adopt(at::Tensor output, c10::Device device);
  void write_back(c10::Device device);

 private:
  struct AliasedTensor {
    c10::TensorImpl* tensor;
    at::Tensor alias;
    bool written;
  };
  struct AliasedStorage {
    c10::StorageImpl* storage;
    c10::Storage alias;
  };

  c10::Storage adopt(const c10::Storage& storage, c10::Device device);
  void write_back(const AliasedTensor& argument, c10::Device device);

  c10::SmallVector<AliasedTensor, 4> tensors_;
  c10::SmallVector<AliasedStorage, 4> storages_;
};

// Refuses a tensor that lies elsewhere than a call's `device`, unless it is a host scalar that is only read.
void check_joins(
    const at::Tensor& tensor, c10::Device device, bool written, std::string_view name, std::string_view overload);

// What is done with before a kernel is called; redispatched operators must not meet it again inside.
const c10::DispatchKeySet kAboveKernels =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);

} // namespace neuron
