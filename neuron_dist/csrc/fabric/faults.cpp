#include "csrc/fabric/faults.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

namespace neuron {

double Strikes::strike(Fault::Point point) const {
  double delayed = 0;
  for (const Fault& fault : faults_) {
    if (fault.point != point) continue;
    if (fault.act == Fault::Act::stop) raise(SIGSTOP);
    if (fault.act == Fault::Act::kill) raise(SIGKILL);
    if (fault.act != Fault::Act::delay) continue;
    std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
    delayed += fault.seconds;
  }
  return delayed;
}

void Strikes::corrupt(const std::vector<Buffer>& outputs) const {
  for (const Fault& fault : faults_) {
    if (fault.act != Fault::Act::corrupt) continue;
    uint64_t bits = 0;
    for (const Buffer& output : outputs) bits += output.bytes * 8;
    if (bits == 0) continue;
    std::mt19937_64 random(fault.seed);
    uint64_t bit = std::uniform_int_distribution<uint64_t>(0, bits - 1)(random);
    for (const Buffer& output : outputs) {
      if (bit < output.bytes * 8) {
        output.data[bit / 8] ^= static_cast<char>(1 << bit % 8);
        break;
      }
      bit -= output.bytes * 8;
    }
  }
}

std::string Strikes::chip_down() const {
  for (const Fault& fault : faults_) {
    if (fault.act == Fault::Act::chip_down) return fault.text;
  }
  return {};
}

Faults& Faults::instance() {
  static auto* faults = new Faults(); // never destroyed: a worker may outlive static objects
  return *faults;
}

void Faults::add(Fault fault) {
  std::lock_guard lock(mutex_);
  if (fault.call > 0) fault.call += calls_.load(std::memory_order_relaxed);
  waiting_.push_back(std::move(fault));
  any_.store(true, std::memory_order_release);
}

Strikes Faults::next_collective(double ready) {
  const uint64_t call = calls_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!any_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  const auto struck = std::stable_partition(waiting_.begin(), waiting_.end(), [&](const Fault& fault) {
    return fault.call > 0 ? call < fault.call : ready < fault.time;
  });
  std::vector<Fault> now;
  for (auto fault = struck; fault != waiting_.end(); ++fault) {
    if (fault->act == Fault::Act::fabric) {
      fabric_.fetch_or(uint64_t{1} << fault->bit, std::memory_order_relaxed);
    } else {
      (fault->act == Fault::Act::chip_down ? lasting_ : now).push_back(std::move(*fault));
    }
  }
  waiting_.erase(struck, waiting_.end());
  now.insert(now.end(), lasting_.begin(), lasting_.end());
  any_.store(!waiting_.empty() || !lasting_.empty(), std::memory_order_release);
  return Strikes(std::move(now));
}

} // namespace neuron
