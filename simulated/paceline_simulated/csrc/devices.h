// The devices of this process: their number, and whether one is slow or sick.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <string>

namespace sim {

inline constexpr auto kSim = c10::DeviceType::PrivateUse1;
inline constexpr int kMostDevices = 16;
inline constexpr int kEveryDevice = -1;

// Codes of cudaError_t, so that code that classifies AcceleratorError.error_code can be tried.
inline constexpr int kErrorUncorrectableEcc = 214;
inline constexpr int kErrorAssert = 710;

int device_count();
void set_device_count(int count);

// Sleep this long before each kernel and copy of a device.
void set_delay_us(int microseconds, int device);
int delay_us(int device);

// The first error stays until heal(), as a CUDA context stays corrupted until the process ends.
void sicken(int device, int code, const std::string& why);
void heal(int device);
bool is_sick(int device);

// Throw c10::AcceleratorError if the device is sick; every call to a device begins with it.
void check_healthy(int device);

}  // namespace sim
