#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "csrc/device/arena.h"
#include "csrc/device/process.h"
#include "csrc/device/stream.h"

namespace neuron {

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

c10::Device checked(Device device) {
  TORCH_INTERNAL_ASSERT(device.is_privateuseone());
  if (device.has_index()) check_device(device.index());
  return device;
}

DeviceIndex index_or_current(Device device) { return device.has_index() ? device.index() : current_device(); }

struct NeuronGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  Device exchangeDevice(Device device) const override {
    return neuron_device(exchange_device(index_or_current(checked(device))));
  }
  Device getDevice() const override { return neuron_device(current_device()); }
  void setDevice(Device device) const override { exchangeDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override { exchange_device(index_or_current(device)); }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(Arena::device_count()); }

  Stream getStream(Device device) const override { return current_stream(index_or_current(device)); }
  Stream getDefaultStream(Device device) const override { return default_stream(index_or_current(device)); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { // which only futures ask for
    return new_callback_stream(index_or_current(checked(device)));
  }
  Stream getNewStream(Device device, int) const override { return new_stream(index_or_current(checked(device))); }
  Stream exchangeStream(Stream stream) const override { return exchange_stream(stream); }
  void* getStreamNativeHandle(const Stream stream) const override { return reinterpret_cast<void*>(stream.id()); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}

  void record(void** event, const Stream& stream, const DeviceIndex device, const c10::EventFlag) const override {
    TORCH_CHECK(
        device == -1 || device == stream.device_index(), "an event of neuron:", static_cast<int>(device),
        " cannot be recorded on a stream of neuron:", static_cast<int>(stream.device_index()));
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->time = stream_time(stream);
  }
  void block(void* event, const Stream& stream) const override {
    if (event) hold_stream_until(stream, static_cast<Event*>(event)->time);
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    TORCH_CHECK(start && end, "both events must be recorded before the time between them is known");
    return (static_cast<Event*>(end)->time - static_cast<Event*>(start)->time) * 1e3; // milliseconds
  }

  c10::DeviceCapability getDeviceCapability(Device) const override { return {}; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuard);

} // namespace

} // namespace neuron
