#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>

#include "csrc/device/allocator.h"
#include "csrc/device/arena.h"
#include "csrc/device/generator.h"
#include "csrc/device/pinned.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

using c10::DeviceIndex;

struct NeuronHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return Arena::device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex device) const override { return heap_exists(device); }
  void init() const override { check_not_forked(); }

  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(Arena::device_count()); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(DeviceIndex device) const override { exchangeDevice(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    check_device(device);
    return exchange_device(device);
  }
  // A negative index changes nothing.
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    const DeviceIndex index = device < 0 ? current_device() : device;
    check_device(index);
    return at::make_generator<NeuronGenerator>(index);
  }

  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* address) const override {
    TORCH_CHECK(
        Arena::exists() && Arena::instance().contains(address), "the address ", address,
        " is not in the HBM of neuron");
    return neuron_device(static_cast<DeviceIndex>(Arena::instance().device_of(address)));
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    check_not_forked();
    const DeviceIndex previous = exchange_device(storage.device().index());
    try {
      at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), bytes); // generic: asks the storage's allocator
    } catch (...) {
      exchange_device(previous);
      throw;
    }
    exchange_device(previous);
  }
};

NeuronHooks instance;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&instance), true);

} // namespace

} // namespace neuron
