#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace neuron {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// One operation under way: a collective, several coalesced ones, or a transfer.
class Work : public c10d::Work {
 public:
  // `outputs` are the tensors that the future yields, as a list.
  Work(
      int rank, c10d::OpType type, uint64_t sequence_number, const char* title,
      const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs);

  std::vector<at::Tensor> result() override { return outputs_; }
  FuturePtr getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_number_; }
  int sourceRank() const override { return source_; }

  // Ends the operation, once. Callbacks on the future run on this thread.
  void complete(std::exception_ptr error = nullptr);
  void complete_receive(std::exception_ptr error, int source);

 private:
  static void settle(c10::ivalue::Future& future, const std::vector<at::Tensor>& outputs, std::exception_ptr error);

  uint64_t sequence_number_;
  std::vector<at::Tensor> outputs_;
  FuturePtr future_; // made when asked for
  int source_ = -1;
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
