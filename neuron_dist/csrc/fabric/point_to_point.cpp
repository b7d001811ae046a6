#include "csrc/fabric/point_to_point.h"

#include <algorithm>
#include <cstring>

#include <pthread.h>

#include <c10/util/Exception.h>

#include "csrc/device/arena.h"

namespace neuron {

namespace {

std::exception_ptr backend_error(const std::string& text) {
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, text));
}

// While nothing is pending the thread sleeps until its bell rings.
const Deadline kForever(std::chrono::hours(24 * 365));

} // namespace

PointToPoint::PointToPoint(Communicator& communicator) : communicator_(communicator), sent_(communicator.size()) {}

PointToPoint::~PointToPoint() { stop(); }

void PointToPoint::submit(Transfer transfer) {
  Transfers ended;
  {
    std::lock_guard lock(mutex_);
    communicator_.check();
    TORCH_CHECK_WITH(DistBackendError, !stopping_, communicator_.group_label(), " has been destroyed");
    if (transfer.is_send) transfer.number = ++sent_[transfer.peer];
    pending_.push_back(std::move(transfer));
    ended = progress();
    if (!pending_.empty()) {
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
      communicator_.control().rank(communicator_.rank()).bell.increment();
    }
  }
  finish(ended);
}

void PointToPoint::run() {
  pthread_setname_np(pthread_self(), "neuron-p2p");
  Signal& bell = communicator_.control().rank(communicator_.rank()).bell;
  bool check_due = false;
  while (true) {
    const uint32_t heard = bell.load();
    Transfers ended;
    bool idle;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      ended = progress();
      if (check_due) check_pending();
      check_due = false;
      ended.splice(ended.end(), progress());
      idle = pending_.empty();
    }
    finish(ended);
    bell.wait(
        idle ? SpinPolicy{0, 0} : communicator_.spin(), kForever, [heard](uint32_t value) { return value != heard; },
        [&] {
          check_due = true;
          bell.increment();
        });
  }
}

void PointToPoint::stop() {
  Transfers ended;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& transfer : pending_) {
      while (!transfer.error) give_up(transfer, communicator_.group_label() + " was destroyed");
    }
    ended = std::move(pending_);
    pending_.clear();
    communicator_.control().rank(communicator_.rank()).bell.increment();
  }
  finish(ended);
  if (thread_.joinable()) thread_.join();
}

PointToPoint::Transfers PointToPoint::progress() {
  Transfers ended;
  try {
    communicator_.check();
  } catch (...) {
    for (auto& transfer : pending_) transfer.error = std::current_exception();
  }
  for (auto position = pending_.begin(); position != pending_.end();) {
    const auto current = position++;
    const bool over =
        current->error != nullptr || (current->is_send ? advance_send(*current) : advance_receive(*current, current));
    if (over) ended.splice(ended.end(), pending_, current);
  }
  return ended;
}

bool PointToPoint::advance_send(Transfer& transfer) {
  if (transfer.announced) {
    const uint32_t state = transfer.announced->state.load(std::memory_order_acquire);
    if (state == Message::sent || state == Message::taking) return false;
    if (state == Message::refused) {
      transfer.error = backend_error(
          describe(transfer) + ": the receiver expects another size or dtype; see the error on " +
          communicator_.rank_name(transfer.peer));
    }
    transfer.end = transfer.announced->end;
    transfer.announced->state.store(Message::free, std::memory_order_release);
    return true;
  }
  const bool overtakes = std::any_of(pending_.begin(), pending_.end(), [&](const Transfer& other) {
    return other.is_send && other.peer == transfer.peer && !other.announced && other.number < transfer.number;
  });
  if (overtakes) return false;
  Mailbox& mailbox = communicator_.control().mailbox(transfer.peer, communicator_.rank());
  for (Message& message : mailbox.messages) {
    if (message.state.load(std::memory_order_acquire) != Message::free) continue;
    message.tag = transfer.tag;
    message.number = transfer.number;
    message.bytes = transfer.buffer.bytes;
    message.dtype = static_cast<int8_t>(transfer.dtype);
    message.ready = transfer.ready;
    transfer.end = transfer.ready + seconds(communicator_.rank(), transfer.peer, transfer.buffer.bytes);
    const bool large = is_large(transfer.buffer.bytes);
    if (large) {
      message.offset = Arena::instance().offset_of(transfer.buffer.data);
      transfer.announced = &message;
    } else if (transfer.buffer.bytes > 0) {
      std::memcpy(message.payload, transfer.buffer.data, transfer.buffer.bytes);
    }
    message.state.store(Message::sent, std::memory_order_release);
    communicator_.control().rank(transfer.peer).bell.increment();
    return !large;
  }
  return false; // the mailbox is full; the receiver rings when it has taken a message
}

bool PointToPoint::advance_receive(Transfer& transfer, const Transfers::iterator& position) {
  // An earlier receive that wants the same message goes first.
  const bool overtakes = std::any_of(pending_.begin(), position, [&](const Transfer& other) {
    return !other.is_send && other.tag == transfer.tag &&
        (other.peer == transfer.peer || other.peer == kAnySource || transfer.peer == kAnySource);
  });
  if (overtakes) return false;
  const bool any = transfer.peer == kAnySource;
  for (int from = any ? 0 : transfer.peer; from < (any ? communicator_.size() : transfer.peer + 1); ++from) {
    Message* message = find_message(from, transfer.tag);
    uint32_t state = Message::sent;
    if (message && message->state.compare_exchange_strong(state, Message::taking)) {
      take(transfer, *message, from);
      return true;
    }
  }
  return false;
}

Message* PointToPoint::find_message(int from, int tag) {
  Message* first = nullptr;
  for (Message& message : communicator_.control().mailbox(communicator_.rank(), from).messages) {
    if (message.state.load(std::memory_order_acquire) != Message::sent || message.tag != tag) continue;
    if (!first || message.number < first->number) first = &message;
  }
  return first;
}

void PointToPoint::take(Transfer& transfer, Message& message, int from) {
  const bool large = is_large(message.bytes);
  const bool fits = message.bytes == transfer.buffer.bytes && message.dtype == static_cast<int8_t>(transfer.dtype);
  if (fits && large) {
    std::memcpy(transfer.buffer.data, communicator_.peer(from).map(message.offset, message.bytes), message.bytes);
  } else if (fits && message.bytes > 0) {
    std::memcpy(transfer.buffer.data, message.payload, message.bytes);
  } else if (!fits) {
    const auto sent_dtype = static_cast<c10::ScalarType>(message.dtype);
    transfer.error = backend_error(
        describe(transfer) + ": " + communicator_.rank_name(from) + " sent " +
        std::to_string(message.bytes / c10::elementSize(sent_dtype)) + " elements of " + c10::toString(sent_dtype));
  }
  transfer.peer = from;
  transfer.end = std::max(transfer.ready, message.ready) + seconds(from, communicator_.rank(), message.bytes);
  message.end = transfer.end;
  message.state.store(!large ? Message::free : fits ? Message::received : Message::refused, std::memory_order_release);
  communicator_.control().rank(from).bell.increment();
}

double PointToPoint::seconds(int from, int to, uint64_t bytes) {
  const auto plan = communicator_.plan_transfer(from, to, bytes);
  return plan ? plan->seconds : 0;
}

void PointToPoint::check_pending() {
  for (auto& transfer : pending_) {
    if (transfer.error) continue;
    if (!transfer.doom.empty()) {
      give_up(transfer, transfer.doom);
    } else if (transfer.deadline.passed()) {
      give_up(transfer, "reached its timeout of " + std::to_string(transfer.deadline.timeout().count()) + " ms");
    } else {
      // A peer may have left its message and then gone, so a doomed transfer gets one more round.
      const bool any = transfer.peer == kAnySource;
      for (int rank = any ? 0 : transfer.peer; rank < (any ? communicator_.size() : transfer.peer + 1); ++rank) {
        if (transfer.doom.empty()) transfer.doom = communicator_.cannot_answer(rank);
      }
    }
  }
}

void PointToPoint::give_up(Transfer& transfer, const std::string& reason) {
  if (transfer.announced) { // take the offer back, unless the receiver is reading our memory just now
    uint32_t state = Message::sent;
    const bool withdrawn = transfer.announced->state.compare_exchange_strong(state, Message::free);
    if (!withdrawn && state == Message::taking && !communicator_.peer(transfer.peer).dead()) return;
  }
  transfer.error = backend_error(describe(transfer) + ": " + reason);
}

std::string PointToPoint::describe(const Transfer& transfer) const {
  const uint64_t elements = transfer.buffer.bytes / c10::elementSize(transfer.dtype);
  return std::string(transfer.is_send ? "send of " : "recv of ") + std::to_string(elements) + " elements of " +
      c10::toString(transfer.dtype) + (transfer.is_send ? " to " : " from ") +
      (transfer.peer == kAnySource ? "any rank" : communicator_.rank_name(transfer.peer)) + " with tag " +
      std::to_string(transfer.tag) + " in " + communicator_.group_label();
}

void PointToPoint::finish(Transfers& ended) {
  for (auto& transfer : ended) transfer.done(transfer.error, transfer.peer, transfer.end);
}

} // namespace neuron
