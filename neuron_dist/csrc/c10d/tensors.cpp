#include "csrc/c10d/tensors.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "csrc/device/arena.h"
#include "csrc/fabric/checks.h"

namespace neuron {

namespace {

// None of this is an operation of the user's program: no gradient, no version, on whatever thread.
struct OutsideTheProgram {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
};

bool lies_in_hbm(const at::Tensor& tensor) {
  return tensor.numel() == 0 || (Arena::exists() && Arena::instance().contains(tensor.const_data_ptr()));
}

bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

std::vector<Buffer> sizes_of(const std::vector<Segments>& list) {
  std::vector<Buffer> buffers;
  for (const auto& segments : list) {
    for (const uint64_t bytes : segments.bytes) buffers.push_back({nullptr, bytes});
  }
  return buffers;
}

// Sets the addresses of the buffers that `tensor` holds, from `next` on.
void place(std::vector<Buffer>& buffers, size_t& next, const Segments& segments, const at::Tensor& tensor) {
  char* address = static_cast<char*>(tensor.mutable_data_ptr());
  for (const uint64_t bytes : segments.bytes) {
    buffers[next++].data = address;
    address += bytes;
  }
}

} // namespace

at::Tensor lend(const at::Tensor& tensor, bool in_hbm, bool filled) {
  if (is_plain(tensor) && (!in_hbm || lies_in_hbm(tensor))) return tensor;
  const OutsideTheProgram guard;
  const auto device = in_hbm && tensor.is_cpu() ? at::Device(at::kPrivateUse1) : tensor.device();
  auto copy = at::empty(tensor.sizes(), tensor.options().device(device).memory_format(at::MemoryFormat::Contiguous));
  if (filled) copy.copy_(tensor);
  return copy;
}

void give_back(const at::Tensor& tensor, const at::Tensor& lent) {
  if (lent.is_same(tensor)) return;
  const OutsideTheProgram guard;
  tensor.copy_(lent);
}

Buffer buffer_of(const at::Tensor& lent) { return {static_cast<char*>(lent.mutable_data_ptr()), lent.nbytes()}; }

void check_no_nan(const at::Tensor& tensor, const std::string& what, const std::string& whose) {
  const OutsideTheProgram guard;
  const bool narrow = tensor.element_size() == 1; // isnan takes no 8-bit floats
  if (!at::isFloatingType(tensor.scalar_type()) && !at::isComplexType(tensor.scalar_type())) return;
  const auto found = (narrow ? tensor.to(at::kFloat) : tensor).isnan().nonzero();
  if (found.size(0) == 0) return;
  const auto first = found[0].cpu().contiguous();
  const std::vector<int64_t> index(first.data_ptr<int64_t>(), first.data_ptr<int64_t>() + first.numel());
  TORCH_CHECK_VALUE(
      false, what, " of ", whose, " (", tensor.scalar_type(), " ", tensor.sizes(), ") has a NaN at index ",
      at::IntArrayRef(index), ", the first of ", found.size(0));
}

void TensorCollective::check_call(const std::string& rank_name) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_no_nan(inputs[i].tensor, c10::str(name(call.op), " input ", i), rank_name);
  }
  const OutsideTheProgram guard;
  for (const Segments& output : outputs) {
    const bool in_place = std::any_of(inputs.begin(), inputs.end(), [&](const Segments& input) {
      return input.tensor.storage().is_alias_of(output.tensor.storage());
    });
    if (in_place || output.tensor.numel() == 0) continue;
    if (at::isFloatingType(output.tensor.scalar_type())) {
      output.tensor.fill_(std::numeric_limits<double>::quiet_NaN());
    } else {
      output.tensor.fill_(output.tensor.scalar_type() == at::kBool ? 1 : 0x7b);
    }
  }
}

void TensorCollective::prepare(Communicator& communicator) {
  call.inputs = sizes_of(inputs);
  call.outputs = sizes_of(outputs);
  prepared_ = communicator.prepare(call);
}

void TensorCollective::issue(Communicator& communicator, double ready, bool in_program_order) {
  ready_ = in_program_order ? communicator.issue(*prepared_, ready) : ready;
}

double TensorCollective::seconds() const { return prepared_->plan ? prepared_->plan->seconds : 0; }

Outcome TensorCollective::run(Communicator& communicator, const Deadline& deadline, const CallSite& call_site) {
  try {
    check_unchanged();
  } catch (const c10::Error& error) {
    communicator.run_invalid(error.what_without_backtrace(), call_site());
    throw;
  }
  const bool inputs_shared = communicator.peers_read_inputs(call);
  const bool outputs_shared = communicator.peers_write_outputs(call);

  std::vector<at::Tensor> lent_inputs, lent_outputs;
  size_t next = 0;
  for (const auto& segments : inputs) {
    lent_inputs.push_back(lend(factor ? scaled(segments.tensor) : segments.tensor, inputs_shared, /*filled=*/true));
    place(call.inputs, next, segments, lent_inputs.back());
  }
  next = 0;
  std::vector<const void*> filled; // where the outputs lie
  for (const auto& segments : outputs) {
    lent_outputs.push_back(lend(segments.tensor, outputs_shared, /*filled=*/false));
    place(call.outputs, next, segments, lent_outputs.back());
    filled.push_back(lent_outputs.back().const_data_ptr());
  }
  if (checking()) check_overlaps(call, communicator.rank());
  auto outcome = communicator.run(call, prepared_, ready_, strikes, deadline, call_site);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (lent_outputs[i].is_same(outputs[i].tensor)) {
      TORCH_CHECK_VALUE(
          outputs[i].tensor.const_data_ptr() == filled[i], name(call.op), ": an output tensor of this rank, now of ",
          outputs[i].tensor.sizes(), ", got other memory while the collective was under way; wait() for it first");
    } else {
      give_back(outputs[i].tensor, lent_outputs[i]);
    }
  }
  return outcome;
}

void TensorCollective::check_unchanged() const {
  for (const auto* list : {&inputs, &outputs}) {
    for (const Segments& segments : *list) {
      const auto bytes = std::accumulate(segments.bytes.begin(), segments.bytes.end(), uint64_t{0});
      const bool has_memory = bytes == 0 || segments.tensor.storage().nbytes() >= bytes;
      TORCH_CHECK_VALUE(
          segments.tensor.nbytes() == bytes && has_memory, "a tensor changed its shape after ", name(call.op),
          " was called with it and before it ran, from ", bytes, " bytes to ", segments.tensor.sizes(),
          has_memory ? "" : " without memory", "; wait() for the collective first");
    }
  }
}

at::Tensor TensorCollective::scaled(const at::Tensor& tensor) const {
  const OutsideTheProgram guard;
  return tensor.mul(*factor);
}

} // namespace neuron
