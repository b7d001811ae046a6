#include "csrc/c10d/work.h"

#include <algorithm>
#include <cstring>

#include <ATen/core/ivalue.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/c10d/interrupts.h"
#include "csrc/device/stream.h"
#include "csrc/fabric/deadline.h"
#include "csrc/fabric/standstill.h"

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

struct Waiter {
  Waiter(WorksOfGroup& group, bool counts) : group(group), counted(counts ? 1 : 0) { group.waiters += counted; }
  ~Waiter() { group.waiters -= counted; }
  WorksOfGroup& group;
  int counted;
};

bool is_transfer(c10d::OpType type) {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE;
}

} // namespace

void WorksOfGroup::dropped(const std::string& what) {
  std::lock_guard lock(mutex_);
  if (first_dropped_.empty()) first_dropped_ = what;
}

std::string WorksOfGroup::first_dropped() const {
  std::lock_guard lock(mutex_);
  return first_dropped_;
}

Work::Work(
    int rank, c10d::OpType type, uint64_t sequence_number, const char* title, const std::vector<at::Tensor>& inputs,
    std::vector<at::Tensor> outputs, c10::Stream stream, std::shared_ptr<WorksOfGroup> group, bool is_async)
    : c10d::Work(rank, type, title, inputs),
      sequence_number_(sequence_number),
      outputs_(std::move(outputs)),
      stream_(stream),
      group_(std::move(group)),
      unawaited_(is_async),
      title_(title) {
  if (is_async) group_->started();
}

Work::~Work() {
  if (unawaited_) group_->dropped(c10::str(title_ + std::strlen("neuron:"), " #", sequence_number_));
}

void Work::note_awaited() {
  if (unawaited_.load(std::memory_order_relaxed) && unawaited_.exchange(false)) group_->awaited();
}

bool Work::isCompleted() {
  note_awaited();
  return c10d::Work::isCompleted();
}

bool Work::wait(std::chrono::milliseconds timeout) {
  note_awaited();
  {
    const Deadline deadline(timeout == kNoTimeout ? std::chrono::hours(24 * 365) : timeout);
    std::unique_lock lock(mutex_);
    waited_for_ = true;
    waiter_came_.notify_all();
    const Waiter waiter(*group_, is_calling_thread() && !is_transfer(retrieveOpType()));
    while (!completed_) {
      const auto slice = std::min(deadline.left(), std::chrono::milliseconds(100));
      if (cv_.wait_for(lock, slice, [this] { return completed_; })) break;
      TORCH_CHECK_WITH(DistBackendError, !deadline.passed(), "Operation timed out!");
      lock.unlock();
      check_signals();
      lock.lock();
    }
    if (exception_) std::rethrow_exception(exception_);
  }
  synchronize();
  return true;
}

void Work::await_waiter(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  waiter_came_.wait_for(lock, most, [this] { return waited_for_; });
}

void Work::synchronize() {
  note_awaited();
  hold_stream_until(current_stream(stream_.device_index()), end_);
}

FuturePtr Work::getFuture() {
  note_awaited();
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), accelerators(outputs_));
  if (completed_) {
    settle(*future_);
  } else if (PyGILState_Check()) { // given to Python; the futures of DDP's reducer get no callbacks
    group_->followed = true;
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
