#pragma once

#include <c10/core/Stream.h>

namespace neuron {

// Kernels run on the host before the call that launched them returns, so a stream is never busy; what it has is an
// identity and a place in simulated time. Stream 0 of a device is its default stream.
c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream new_stream(c10::DeviceIndex device);
// On which torch's futures run a callback: at a moment that the host decides, whatever its simulated time.
c10::Stream new_callback_stream(c10::DeviceIndex device);
bool is_callback_stream(c10::Stream stream);
c10::Stream current_stream(c10::DeviceIndex device); // of the calling thread
c10::Stream exchange_stream(c10::Stream stream); // returns the previous one

// Simulated seconds since the process started using the device; never mixed with time measured on the host.
double stream_time(c10::Stream stream);
void advance_stream(c10::Stream stream, double seconds);
// Work enqueued on the stream from now on starts no earlier than `time`.
void hold_stream_until(c10::Stream stream, double time);

struct Event {
  double time = 0;
};

} // namespace neuron
