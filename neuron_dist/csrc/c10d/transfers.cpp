// Send and receive of ProcessGroupNeuron.

#include "csrc/c10d/arguments.h"
#include "csrc/c10d/process_group.h"
#include "csrc/device/stream.h"
#include "csrc/fabric/checks.h"
#include "csrc/fabric/traffic.h"

namespace neuron {

using c10d::OpType;

namespace {

Outcome at(double end) {
  Outcome outcome;
  outcome.start = outcome.end = end;
  return outcome;
}

} // namespace

// When a transfer that is called now can begin, as far as this rank knows.
double ProcessGroupNeuron::issue_transfer(int from, int to, uint64_t bytes) {
  const c10::Stream stream = current_stream(device_);
  const double ready = stream_time(stream);
  if (from == PointToPoint::kAnySource || is_callback_stream(stream)) return ready;
  const auto plan = communicator_->plan_transfer(from, to, bytes);
  return plan ? Traffic::instance().issue(*plan, ready) : ready;
}

WorkPtr ProcessGroupNeuron::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = single(tensors, "send");
  check_peer(to, "send to");
  if (checking()) check_no_nan(tensor, "send", communicator_->rank_name(rank_));
  auto work = c10::make_intrusive<Work>(
      rank_, OpType::SEND, sequence_number_.load(), "neuron:send", tensors, tensors, stream_, works_, !coalescing_);
  auto record = begin_transfer("send", "->", to, tensors);
  auto lent = lend(tensor, PointToPoint::is_large(tensor.nbytes()), /*filled=*/true);
  transfers_->send(
      {to, tag, tensor.scalar_type(), buffer_of(lent), issue_transfer(rank_, to, tensor.nbytes()),
       deadline(c10d::kUnsetTimeout), [work, lent, record](std::exception_ptr error, int, double end) {
         Recorder::instance().end(record, at(end));
         work->complete(error, end);
       }});
  return issued(work);
}

WorkPtr ProcessGroupNeuron::recv(Tensors& tensors, int from, int tag) {
  check_peer(from, "recv from");
  return receive(OpType::RECV, "neuron:recv", tensors, from, tag);
}

WorkPtr ProcessGroupNeuron::recvAnysource(Tensors& tensors, int tag) {
  return receive(OpType::RECVANYSOURCE, "neuron:recv_any_source", tensors, PointToPoint::kAnySource, tag);
}

WorkPtr ProcessGroupNeuron::receive(OpType type, const char* title, Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = single(tensors, "recv");
  auto work = c10::make_intrusive<Work>(
      rank_, type, sequence_number_.load(), title, tensors, tensors, stream_, works_, !coalescing_);
  auto record = begin_transfer("recv", "<-", from, tensors);
  auto lent = lend(tensor, /*in_hbm=*/false, /*filled=*/false);
  transfers_->receive(
      {from, tag, tensor.scalar_type(), buffer_of(lent), issue_transfer(from, rank_, tensor.nbytes()),
       deadline(c10d::kUnsetTimeout), [work, tensor, lent, record](std::exception_ptr error, int source, double end) {
         Recorder::instance().end(record, at(end));
         if (!error) give_back(tensor, lent);
         work->complete_receive(error, source, end);
       }});
  return issued(work);
}

std::shared_ptr<Record> ProcessGroupNeuron::begin_transfer(
    const char* op, const char* arrow, int peer, const Tensors& tensors) {
  auto& recorder = Recorder::instance();
  const bool named = peer != PointToPoint::kAnySource;
  const auto flight_op = named ? c10::str(op, " ", rank_, arrow, peer) : std::string();
  auto record = recorder.begin(
      recorded_group(), op, flight_op, ++transfer_number_, tensors, tensors, options_->timeout, /*is_transfer=*/true);
  recorder.start(*record);
  return record;
}

void ProcessGroupNeuron::check_peer(int rank, const char* what) const {
  TORCH_CHECK_VALUE(
      rank >= 0 && rank < size_ && rank != rank_, what, " rank ", rank, " from rank ", rank_, " of a group of ", size_,
      " ranks");
}

} // namespace neuron
