// The machine that processes share: the one of the mock NVML (../fakenvml), where $NVML_MOCK_STATE names it.
//
// What a device has and what others hold of it is read from there; what this process reserves (and a context, once it
// has used a device) is written to <state>.d/<pid>, where the mock and other processes find it. Without such a machine
// each process has devices of its own, of $SIMGPU_MEM_MB.
#pragma once
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include "../fakenvml/machine.h"

namespace simgpu {

inline int env_int(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? std::atoi(value) : otherwise;
}
const size_t kContext = (size_t)env_int("SIMGPU_CONTEXT_MB", 8) << 20;
const size_t kMemory = (size_t)env_int("SIMGPU_MEM_MB", 256) << 20;

// Read anew each time, so that a process can join a machine while it runs.
inline const char* state_path() {
  const char* path = std::getenv("NVML_MOCK_STATE");
  return path && *path ? path : nullptr;
}
inline std::string shared_folder() { return state_path() ? std::string(state_path()) + ".d" : ""; }

using MachineFile = std::unique_ptr<Machine, decltype(&std::free)>;
inline MachineFile machine_file() { return {read_machine(state_path()), &std::free}; }

// How many devices there are: simulated device i is the machine's GPU i.
inline int device_count() {
  const auto machine = machine_file();
  return env_int("SIMGPU_DEVICES", machine && machine->ngpu ? machine->ngpu : 2);
}

struct Outside {  // a device, as far as this process does not decide it
  size_t total = kMemory;
  size_t taken = 0;  // by others
  std::string name, uuid;
};

inline Outside look_outside(int device) {
  Outside out;
  char uuid[64];
  std::snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012d", device);  // the mock's own default
  out.uuid = uuid;
  out.name = "Simulated GPU " + std::to_string(device);
  const auto machine = machine_file();
  if (!machine || device >= MAXGPU || !machine->gpu[device].on) return out;
  const Device& gpu = machine->gpu[device];
  out.name = gpu.name;
  out.uuid = gpu.uuid;
  if (gpu.total != NA64) out.total = gpu.total - std::min(gpu.total, gpu.reserved);
  const auto live = std::make_unique<Live>();
  read_live(live.get(), state_path(), getpid());
  out.taken = (gpu.used == NA64 ? 0 : gpu.used) + live_bytes(live.get(), device);
  return out;
}

// Held while a process looks what is free and takes it, so that two cannot take the same bytes.
class MachineLock {
 public:
  MachineLock() {
    const auto folder = shared_folder();
    if (folder.empty()) return;
    mkdir(folder.c_str(), 0777);
    file_ = open((folder + "/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (file_ >= 0) flock(file_, LOCK_EX);
  }
  ~MachineLock() {
    if (file_ >= 0) close(file_);
  }
  MachineLock(const MachineLock&) = delete;

 private:
  int file_ = -1;
};

// Say what this process holds: lines "<device> <bytes> <bytes of nobody>". Replaced as a whole, so that none reads half.
inline void publish(const std::string& lines) {
  const auto folder = shared_folder();
  if (folder.empty()) return;
  mkdir(folder.c_str(), 0777);
  const auto pid = std::to_string(getpid()), part = folder + "/part-" + pid;
  {
    std::ofstream file(part);
    file << "since " << process_started(getpid()) << "\n" << lines;
  }
  std::rename(part.c_str(), (folder + "/" + pid).c_str());
}

}  // namespace simgpu
