#pragma once

#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/fabric/collective.h"
#include "csrc/fabric/communicator.h"

namespace neuron {

// Send and receive within a group. A small message is copied into the receiver's mailbox and the send is over; a
// larger one is announced there, and the receiver reads it from the sender's HBM. Transfers between the same two ranks
// with one tag match in the order of their calls; others overtake freely. What cannot finish in the call is finished
// by a thread that starts with the first such transfer.
class PointToPoint {
 public:
  static constexpr int kAnySource = -1;
  // Called once, without locks held, on whichever thread ends the transfer; at the simulated time `end`.
  using Done = std::function<void(std::exception_ptr error, int source, double end)>;

  struct Request {
    int peer; // or kAnySource
    int tag;
    c10::ScalarType dtype;
    Buffer buffer; // of a send, in the arena if is_large; stays until `done`
    double ready; // simulated time at which this side can start
    Deadline deadline;
    Done done;
  };

  explicit PointToPoint(Communicator& communicator);
  ~PointToPoint();

  static bool is_large(uint64_t bytes) { return bytes > Message::kEagerBytes; }
  void send(Request request) { submit({std::move(request), /*is_send=*/true}); }
  void receive(Request request) { submit({std::move(request), /*is_send=*/false}); }
  // Ends what is pending with an error. Later calls fail.
  void stop();

 private:
  struct Transfer : Request {
    Transfer(Request request, bool is_send) : Request(std::move(request)), is_send(is_send) {}

    bool is_send;
    double end = 0; // simulated
    uint64_t number = 0; // of a send, among those to the same peer
    Message* announced = nullptr; // of a large send that waits for its receiver
    std::string doom; // why it cannot end any more
    std::exception_ptr error = nullptr;
  };
  using Transfers = std::list<Transfer>;

  void submit(Transfer transfer);
  void run();
  Transfers progress(); // advances what can be advanced; returns what has ended
  bool advance_send(Transfer& transfer);
  bool advance_receive(Transfer& transfer, const Transfers::iterator& position);
  Message* find_message(int from, int tag);
  void take(Transfer& transfer, Message& message, int from);
  double seconds(int from, int to, uint64_t bytes); // simulated
  void check_pending(); // gives up those that can never end
  void give_up(Transfer& transfer, const std::string& reason);
  std::string describe(const Transfer& transfer) const;
  static void finish(Transfers& ended);

  Communicator& communicator_;
  std::mutex mutex_;
  Transfers pending_; // in the order of the calls
  std::vector<uint64_t> sent_; // messages per receiver
  std::thread thread_;
  bool stopping_ = false;
};

} // namespace neuron
