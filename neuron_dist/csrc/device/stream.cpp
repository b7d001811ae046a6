#include "csrc/device/stream.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "csrc/device/process.h"

namespace neuron {

namespace {

std::mutex mutex;
c10::StreamId newest_id = 0;
std::unordered_map<c10::Stream, double> times; // streams that have not moved are at 0

thread_local std::unordered_map<c10::DeviceIndex, c10::Stream> current; // where it is not the default stream

} // namespace

c10::Stream default_stream(c10::DeviceIndex device) { return c10::Stream(c10::Stream::DEFAULT, neuron_device(device)); }

c10::Stream new_stream(c10::DeviceIndex device) {
  std::lock_guard<std::mutex> lock(mutex);
  return c10::Stream(c10::Stream::UNSAFE, neuron_device(device), ++newest_id);
}

c10::Stream new_callback_stream(c10::DeviceIndex device) {
  std::lock_guard<std::mutex> lock(mutex);
  return c10::Stream(c10::Stream::UNSAFE, neuron_device(device), -++newest_id);
}

bool is_callback_stream(c10::Stream stream) { return stream.id() < 0; }

c10::Stream current_stream(c10::DeviceIndex device) {
  const auto found = current.find(device);
  return found == current.end() ? default_stream(device) : found->second;
}

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::Stream previous = current_stream(stream.device_index());
  current.insert_or_assign(stream.device_index(), stream);
  return previous;
}

double stream_time(c10::Stream stream) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = times.find(stream);
  return found == times.end() ? 0 : found->second;
}

void advance_stream(c10::Stream stream, double seconds) {
  std::lock_guard<std::mutex> lock(mutex);
  times[stream] += seconds;
}

void hold_stream_until(c10::Stream stream, double time) {
  std::lock_guard<std::mutex> lock(mutex);
  double& now = times[stream];
  now = std::max(now, time);
}

} // namespace neuron
