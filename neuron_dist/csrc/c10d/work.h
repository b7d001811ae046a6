#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace neuron {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// What a group knows of its works.
class WorksOfGroup {
 public:
  // Set when Python gets the future of an operation before its end: it may attach callbacks that call collectives.
  std::atomic<bool> followed{false};
  std::atomic<int> waiters{0}; // the program, if it waits for a collective

  void started() { ++unawaited_; }
  void awaited() { --unawaited_; }
  void dropped(const std::string& what);
  // Works that nobody waited for or asked about: their number, and the first that was dropped, if any.
  int64_t unawaited() const { return unawaited_; }
  std::string first_dropped() const;

 private:
  std::atomic<int64_t> unawaited_{0};
  mutable std::mutex mutex_;
  std::string first_dropped_;
};

// One operation under way: a collective, several coalesced ones, or a transfer.
class Work : public c10d::Work {
 public:
  // `outputs` are the tensors that the future yields, as a list. In simulated time the operation runs on `stream`;
  // whoever waits has its own stream held until its end. `is_async`: the program is to wait for it.
  Work(
      int rank, c10d::OpType type, uint64_t sequence_number, const char* title, const std::vector<at::Tensor>& inputs,
      std::vector<at::Tensor> outputs, c10::Stream stream, std::shared_ptr<WorksOfGroup> group, bool is_async);
  ~Work() override;

  std::vector<at::Tensor> result() override { return outputs_; }
  FuturePtr getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_number_; }
  int sourceRank() const override { return source_; }

  bool isCompleted() override;
  // Python's main thread handles signals while it waits.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;

  // Returns once somebody waits for the operation, or after so long.
  void await_waiter(std::chrono::milliseconds most);
  // Ends the operation, once, at the simulated time `end`. Callbacks on the future run on this thread.
  void complete(std::exception_ptr error, double end = 0);
  void complete_receive(std::exception_ptr error, int source, double end);

 private:
  void settle(c10::ivalue::Future& future);
  void note_awaited();

  uint64_t sequence_number_;
  std::vector<at::Tensor> outputs_;
  FuturePtr future_; // made when asked for
  int source_ = -1;
  c10::Stream stream_;
  std::shared_ptr<WorksOfGroup> group_;
  std::atomic<bool> unawaited_;
  const char* title_;
  bool waited_for_ = false;
  std::condition_variable waiter_came_;
  double end_ = 0; // simulated seconds
};

// Works that were issued between startCoalescing and endCoalescing, as one.
class CoalescedWork : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  std::vector<at::Tensor> result() override;
  FuturePtr getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

} // namespace neuron
