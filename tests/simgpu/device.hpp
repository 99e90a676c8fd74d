// What torch asks a device for beside memory: which one is current, streams and events (that do nothing), hooks.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include "allocator.hpp"

namespace simgpu {

void set_current(DeviceIndex i) {
  if (i < 0) return;
  pool_at(i);  // complains about a device that is not there
  t_current = i;
}

struct Guard final : impl::DeviceGuardImplInterface {
  using Device = c10::Device;
  static Stream stream(Device d) { return Stream(Stream::DEFAULT, d.index() < 0 ? Device(kType, t_current) : d); }

  DeviceType type() const override { return kType; }
  Device getDevice() const override { return {kType, t_current}; }
  Device exchangeDevice(Device d) const override {
    const Device old = getDevice();
    set_current(d.index());
    return old;
  }
  void setDevice(Device d) const override { set_current(d.index()); }
  void uncheckedSetDevice(Device d) const noexcept override {
    if (d.index() >= 0) t_current = d.index();
  }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void synchronizeDevice(const DeviceIndex) const override {}

  Stream getStream(Device d) const override { return stream(d); }
  Stream getDefaultStream(Device d) const override { return stream(d); }
  Stream getStreamFromGlobalPool(Device d, bool) const override { return stream(d); }
  Stream getNewStream(Device d, int) const override { return stream(d); }
  Stream exchangeStream(Stream s) const override { return stream(s.device()); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}

  void record(void** event, const Stream&, const DeviceIndex, const EventFlag) const override { *event = (void*)1; }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void*, void*, const DeviceIndex) const override { return 0; }
};

#ifdef SIM_CUDA
using HooksBase = at::CUDAHooksInterface;
#else
using HooksBase = at::PrivateUse1HooksInterface;
void resize_storage(const Storage& storage, size_t n) {
  const DeviceGuard guard(storage.device());
  DataPtr fresh = allocator().allocate(n);
  if (n && storage.data()) std::memcpy(fresh.get(), storage.data(), std::min(n, storage.nbytes()));
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
  storage.unsafeGetStorageImpl()->set_nbytes(n);
}
#endif
struct Hooks final : HooksBase {
#ifdef SIM_CUDA
  Hooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  int getNumGPUs() const override { return kDevices; }
  DeviceIndex current_device() const override { return t_current; }
  Allocator* getCUDADeviceAllocator() const override { return &allocator(); }
  void deviceSynchronize(DeviceIndex) const override {}
#else
  void resizePrivateUse1Bytes(const Storage& storage, size_t n) const override { resize_storage(storage, n); }
#endif
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return kDevices > 0; }
  void init() const override { initialise(); }
  bool hasPrimaryContext(DeviceIndex i) const override { return pool_at(i).context; }
  DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(DeviceIndex i) const override { set_current(i); }
  DeviceIndex getCurrentDevice() const override { return t_current; }
  DeviceIndex exchangeDevice(DeviceIndex i) const override {
    const auto old = t_current;
    set_current(i);
    return old;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex i) const override {
    const auto old = t_current;
    if (i >= 0 && i < kDevices) t_current = i;
    return old;
  }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  Allocator* getPinnedMemoryAllocator() const override { return GetAllocator(DeviceType::CPU); }
  c10::Device getDeviceFromPtr(void*) const override { return {kType, t_current}; }
};

}  // namespace simgpu
