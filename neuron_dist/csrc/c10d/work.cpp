#include "csrc/c10d/work.h"

#include <algorithm>

#include <ATen/core/ivalue.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/device/stream.h"

namespace neuron {

namespace {

std::vector<c10::Device> accelerators(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const auto& tensor : tensors) {
    const auto device = tensor.device();
    if (!device.is_cpu() && std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
    }
  }
  return devices;
}

} // namespace

Work::Work(
    int rank, c10d::OpType type, uint64_t sequence_number, const char* title, const std::vector<at::Tensor>& inputs,
    std::vector<at::Tensor> outputs, c10::Stream stream, std::shared_ptr<std::atomic<bool>> followed)
    : c10d::Work(rank, type, title, inputs),
      sequence_number_(sequence_number),
      outputs_(std::move(outputs)),
      stream_(stream),
      followed_(std::move(followed)) {}

void Work::synchronize() { hold_stream_until(current_stream(stream_.device_index()), end_); }

FuturePtr Work::getFuture() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), accelerators(outputs_));
  if (completed_) {
    settle(*future_);
  } else if (PyGILState_Check()) { // given to Python; the futures of DDP's reducer get no callbacks
    *followed_ = true;
  }
  return future_;
}

void Work::complete(std::exception_ptr error, double end) {
  end_ = end;
  finish(error);
  FuturePtr waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = future_;
  }
  if (waiting && !waiting->completed()) settle(*waiting);
}

void Work::complete_receive(std::exception_ptr error, int source, double end) {
  source_ = source;
  complete(error, end);
}

void Work::settle(c10::ivalue::Future& future) {
  hold_stream_until(stream_, end_);
  const c10::Stream previous = exchange_stream(stream_); // the future's events record the current stream
  if (exception_) {
    future.setError(exception_);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
  exchange_stream(previous);
}

CoalescedWork::CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_) {
    if (auto error = work->exception()) return error;
  }
  return nullptr;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  for (const auto& work : works_) work->wait(timeout);
  return true;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    for (auto& tensor : work->result()) all.push_back(tensor);
  }
  return all;
}

FuturePtr CoalescedWork::getFuture() {
  c10::List<FuturePtr> futures(c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  return c10::collectAll(futures);
}

} // namespace neuron
