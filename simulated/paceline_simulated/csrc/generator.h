// Random numbers: a device's generator lives on the host and gives each kernel a seed.
#pragma once

#include <ATen/core/Generator.h>

namespace sim {

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);
// A CPU generator for one kernel: CPU kernels refuse a generator of another device
// (check_generator in ATen/core/Generator.h), and a shared one would race between streams.
at::Generator kernel_generator(const at::Generator& source);

}  // namespace sim
