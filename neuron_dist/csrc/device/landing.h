#pragma once

#include <c10/core/Device.h>

namespace neuron {

// While one lives, what the calling thread allocates as CPU memory comes out of a neuron device's HBM: the outputs of a
// CPU kernel land where they will stay. Everything else on the host allocates as before.
class Landing {
 public:
  explicit Landing(c10::DeviceIndex device) noexcept;
  ~Landing();
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

 private:
  c10::DeviceIndex previous_;
};

} // namespace neuron
