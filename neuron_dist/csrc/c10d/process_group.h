#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/c10d/options.h"
#include "csrc/c10d/planner.h"
#include "csrc/c10d/recorder.h"
#include "csrc/c10d/tensors.h"
#include "csrc/c10d/work.h"
#include "csrc/c10d/worker.h"
#include "csrc/fabric/communicator.h"
#include "csrc/fabric/point_to_point.h"

namespace neuron {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

// The torch.distributed backend "neuron": turns c10d's calls into collectives of the fabric. Serves neuron and CPU
// tensors. Ranks are those of the group.
class ProcessGroupNeuron : public c10d::Backend {
 public:
  using Options = ::neuron::Options;

  // Blocks until all ranks have come, or throws DistBackendError at the timeout.
  ProcessGroupNeuron(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~ProcessGroupNeuron() override;

  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  const c10::intrusive_ptr<Options>& options() const { return options_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
      const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(
      const c10::intrusive_ptr<c10d::Store>& store, const c10::intrusive_ptr<c10d::Backend::Options>& options,
      const int& rank, const int& size) override;

  void setSequenceNumberForGroup() override {} // counts from zero on every rank
  uint64_t getSequenceNumberForGroup() override { return sequence_number_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  c10d::ErrorType getError() override;
  void abort() override;
  // Between the two, collectives are priced instead of run; returns the sum in simulated microseconds.
  bool supportsTimeEstimation() const override { return true; }
  void start_time_estimate();
  double end_time_estimate();

  // Waits for what was issued before, then leaves the group.
  void shutdown() override;
  // Leaves the group at once: works under way end with an error.
  void leave();

 private:
  struct Request {
    c10d::OpType type;
    const char* title; // for the profiler
    std::chrono::milliseconds timeout; // or kUnsetTimeout
    bool async;
  };

  // Builds the collectives of a call and starts them as one work. What `build` throws, the call throws, and the peers
  // are told why this rank does not take part. `outputs` are what the work's future yields.
  template <class Build>
  WorkPtr start(const Request& request, const Tensors& inputs, Tensors outputs, Build build);
  WorkPtr run(
      const Request& request, std::vector<TensorCollective> collectives, const Tensors& inputs, Tensors outputs);
  void run_callbacks_first();
  void report_invalid(const std::string& why);
  void warn_of_unawaited() const;
  TensorCollective gathering(const at::Tensor& output, const at::Tensor& input) const;
  TensorCollective scattering(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& reduce_op) const;
  void check_peer(int rank, const char* what) const;
  WorkPtr receive(c10d::OpType type, const char* title, Tensors& tensors, int from, int tag);
  double issue_transfer(int from, int to, uint64_t bytes);
  std::shared_ptr<Record> begin_transfer(const char* op, const char* arrow, int peer, const Tensors& tensors);
  WorkPtr issued(WorkPtr work);
  Recorder::Group recorded_group() const;
  Deadline deadline(std::chrono::milliseconds timeout) const;

  c10::intrusive_ptr<Options> options_;
  PlannerChoice planner_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<PointToPoint> transfers_;
  c10::DeviceIndex device_; // current when the group was made
  c10::Stream stream_; // of its operations, in simulated time
  Worker worker_;
  std::atomic<uint64_t> sequence_number_{0};
  std::atomic<uint64_t> transfer_number_{0};
  std::atomic<bool> failed_{false};
  std::shared_ptr<WorksOfGroup> works_ = std::make_shared<WorksOfGroup>();
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
  std::optional<double> estimate_; // seconds so far, while estimating
  std::map<std::string, std::optional<c10::weak_intrusive_ptr<c10d::Backend>>> splits_; // by group name
};

} // namespace neuron
