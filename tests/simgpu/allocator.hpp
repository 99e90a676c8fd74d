// Host memory as device memory: limited capacity, a splitting and merging caching allocator, true statistics.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <sstream>
#include <unordered_set>
#include "machine.hpp"

namespace simgpu {
using namespace c10;
using CachingAllocator::Stat;
using CachingAllocator::StatArray;
using CachingDeviceAllocator::DeviceStats;
#ifdef SIM_CUDA
constexpr auto kType = DeviceType::CUDA;
#else
constexpr auto kType = DeviceType::PrivateUse1;
#endif

const DeviceIndex kDevices = (DeviceIndex)device_count();
thread_local DeviceIndex t_current = 0;

// Initialised by the first use, as the real one; a process forked after that may not use the device.
std::atomic<pid_t> g_initialised{0}, g_asked{0};
void initialise() {
  if (!g_initialised) g_initialised = getpid();
}
bool in_bad_fork() {
  const pid_t by = g_initialised ? g_initialised : g_asked;
  return by && by != getpid();
}

// The sizes of torch's CUDA allocator: blocks up to 1 MiB come from 2 MiB segments, larger ones from 20 MiB segments,
// and from 10 MiB on a segment is as large as its block.
constexpr size_t kRound = 512, kSmall = 1 << 20, kSmallSegment = 2 << 20, kLargeSegment = 20 << 20, kOwnSegment = 10 << 20;

struct Segment;
struct Block {
  Segment* segment;
  char* address;
  size_t size, requested;
  bool used;
  Block *previous, *next;
  long long stack = 0;  // of its allocation, where that was recorded
};
struct Segment {
  DeviceIndex device;
  char* address;
  size_t size;
  bool small;
  Block* first;
};
struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  }
};

using OomCallback = void (*)(int device, long long asked, long long total, long long free);
std::atomic<OomCallback> g_oom{nullptr};

// The recording of allocations and frees: bounded, the oldest are forgotten. A stack is a number that Python gave, 0 is
// none: only an allocation asks for one, and holds no lock meanwhile, for Python takes its own.
using StackCallback = long long (*)();
std::atomic<StackCallback> g_stack{nullptr};
std::atomic<size_t> g_most_events{0};
struct Event {
  const char* action;
  size_t address, size;
  long long stack, time_us;
};

void publish_all();

struct Pool {
  int index = 0;
  std::recursive_mutex mutex;
  std::atomic<size_t> capacity{0};  // 0: what the machine says
  std::atomic<size_t> external{0};  // pretend that somebody else holds this much
  std::atomic<double> fraction{1};  // of the total, that this process may reserve
  std::atomic<size_t> held{0};      // reserved, for those who do not hold the mutex
  std::atomic<bool> context{false};
  std::set<Block*, BySize> unused[2];
  std::unordered_set<Segment*> segments;
  std::deque<Event> events;
  DeviceStats stats;

  void record(const char* action, const Block& b) {
    if (!g_stack) return;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
    events.push_back({action, (size_t)b.address, b.requested, b.stack, (long long)us});
    while (events.size() > g_most_events) events.pop_front();
  }

  static void more(StatArray& stat, size_t n, bool small) {
    stat[0].increase(n);
    stat[small ? 1 : 2].increase(n);
  }
  static void less(StatArray& stat, size_t n, bool small) {
    stat[0].decrease(n);
    stat[small ? 1 : 2].decrease(n);
  }
  void count_segment(const Segment& s, bool made) {
    auto change = made ? more : less;
    change(stats.segment, 1, s.small);
    change(stats.reserved_bytes, s.size, s.small);
    (made ? stats.num_device_alloc : stats.num_device_free)++;
    held = (size_t)stats.reserved_bytes[0].current;
  }
  void count_block(const Block& b, bool taken) {
    auto change = taken ? more : less;
    const bool small = b.segment->small;
    change(stats.allocation, 1, small);
    change(stats.active, 1, small);
    change(stats.allocated_bytes, b.size, small);
    change(stats.active_bytes, b.size, small);
    change(stats.requested_bytes, b.requested, small);
  }
  // Blocks that are not in use join and leave the pool only here: those that share a segment count as split.
  void put(Block* b) {
    unused[b->segment->small].insert(b);
    if (b->previous || b->next) count_split(*b, more);
  }
  void take(Block* b) {
    unused[b->segment->small].erase(b);
    if (b->previous || b->next) count_split(*b, less);
  }
  void count_split(const Block& b, void (*change)(StatArray&, size_t, bool)) {
    change(stats.inactive_split, 1, b.segment->small);
    change(stats.inactive_split_bytes, b.size, b.segment->small);
  }

  size_t total() const { return capacity ? capacity.load() : look_outside(index).total; }
  size_t available() const {
    const auto outside = look_outside(index);
    const size_t all = capacity ? capacity.load() : outside.total;
    const size_t taken = held + external + (context ? kContext : 0) + outside.taken;
    return all > taken ? all - taken : 0;
  }

  size_t allowed() const { return (size_t)(fraction * (double)total()); }

  void make_context() {
    if (!context.exchange(true)) publish_all();
  }
  void release_segments() {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    for (auto it = segments.begin(); it != segments.end();) {
      Segment* s = *it;
      if (s->first->used || s->first->next) {
        ++it;
        continue;
      }
      take(s->first);
      count_segment(*s, false);
      std::free(s->address);
      delete s->first;
      delete s;
      it = segments.erase(it);
    }
    if (context) publish_all();
  }
  // A segment whose only block is `first`; nullptr if the device has no room.
  Block* new_segment(size_t size, bool small) {
    const MachineLock machine;
    const auto no_room = [&] { return size > available() || (fraction < 1 && held + size > allowed()); };
    if (no_room()) {
      stats.num_alloc_retries++;
      release_segments();
    }
    if (no_room()) return nullptr;
    void* memory = nullptr;
    TORCH_CHECK(posix_memalign(&memory, 4096, size) == 0, "simgpu: host memory exhausted");
    auto* s = new Segment{(DeviceIndex)index, (char*)memory, size, small, nullptr};
    s->first = new Block{s, (char*)memory, size, 0, false, nullptr, nullptr};
    segments.insert(s);
    count_segment(*s, true);
    publish_all();
    return s->first;
  }
  Block* malloc(size_t nbytes) {
    const auto ask = g_stack.load();
    const long long stack = ask ? ask() : 0;
    std::unique_lock<std::recursive_mutex> lock(mutex);
    make_context();
    const size_t size = (nbytes + kRound - 1) / kRound * kRound;
    const bool small = size <= kSmall;
    Block wanted{nullptr, nullptr, size, 0, false, nullptr, nullptr};
    const auto fit = unused[small].lower_bound(&wanted);
    Block* b = nullptr;
    if (fit != unused[small].end()) {
      b = *fit;
      take(b);
    } else {
      const size_t own = (size + kSmallSegment - 1) / kSmallSegment * kSmallSegment;
      b = new_segment(small ? kSmallSegment : size < kOwnSegment ? kLargeSegment : own, small);
      if (!b) {
        stats.num_ooms++;
        out_of_memory(nbytes, lock);
      }
    }
    if (small ? b->size - size >= kRound : b->size - size > kSmall) {  // give the rest back to the pool
      auto* rest = new Block{b->segment, b->address + size, b->size - size, 0, false, b, b->next};
      if (b->next) b->next->previous = rest;
      b->next = rest;
      b->size = size;
      put(rest);
    }
    b->used = true;
    b->requested = nbytes;
    b->stack = stack;
    count_block(*b, true);
    record("alloc", *b);
    return b;
  }
  [[noreturn]] void out_of_memory(size_t asked, std::unique_lock<std::recursive_mutex>& lock) {
    constexpr double MiB = 1 << 20;
    const size_t all = total(), free = available(), allocated = (size_t)stats.allocated_bytes[0].current, reserved = held;
    std::ostringstream limit;
    if (fraction < 1) limit << (double)allowed() / MiB << " MiB allowed; ";
    lock.unlock();  // the callback may ask the allocator
    if (const auto callback = g_oom.load()) callback(index, (long long)asked, (long long)all, (long long)free);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated device out of memory. Tried to allocate ", asked / MiB,
      " MiB. Device ", index, " has a total capacity of ", all / MiB, " MiB of which ", free / MiB,
      " MiB is free. ", limit.str(), "Of the allocated memory ", allocated / MiB, " MiB is allocated by PyTorch, and ",
      (reserved - allocated) / MiB, " MiB is reserved by PyTorch but unallocated.");
    std::abort();  // not reached
  }
  void free(Block* b) {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    count_block(*b, false);
    record("free_requested", *b);
    record("free_completed", *b);
    b->used = false;
    b->requested = 0;
    if (b->next && !b->next->used) {
      take(b->next);
      absorb(b, b->next);
    }
    if (b->previous && !b->previous->used) {
      Block* before = b->previous;
      take(before);
      absorb(before, b);
      b = before;
    }
    put(b);
  }
  static void absorb(Block* into, Block* b) {
    into->size += b->size;
    into->next = b->next;
    if (b->next) b->next->previous = into;
    delete b;
  }
};

Pool* pools() {
  static Pool* made = [] {
    auto* all = new Pool[kDevices];  // never destroyed: tensors may outlive every static
    for (int i = 0; i < kDevices; i++) all[i].index = i;
    return all;
  }();
  return made;
}
Pool& pool_at(int i) {
  TORCH_CHECK(i >= 0 && i < kDevices, "invalid device ordinal ", i);
  return pools()[i];
}
void publish_all() {
  static std::mutex one_at_a_time;
  std::lock_guard<std::mutex> lock(one_at_a_time);
  std::ostringstream lines;
  for (int i = 0; i < kDevices; i++) {
    const Pool& p = pools()[i];
    if (p.context || p.external) lines << i << " " << (p.context ? p.held + kContext : 0) << " " << p.external << "\n";
  }
  publish(lines.str());
}

struct SimAllocator final : DeviceAllocator {
  DataPtr allocate(size_t n) override {
    initialise();
    const c10::Device device(kType, t_current);
    if (!n) return {nullptr, nullptr, [](void*) {}, device};
    Block* b = pool_at(t_current).malloc(n);
    return {b->address, b, &give_back, device};  // the context of a pointer is its block
  }
  static void give_back(void* context) {
    auto* b = (Block*)context;
    pools()[b->segment->device].free(b);
  }
  DeleterFnPtr raw_deleter() const override { return nullptr; }  // raw allocation is not offered
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
  bool initialized() override { return g_initialised; }
  void emptyCache(MempoolId_t) override {
    for (int i = 0; i < kDevices; i++) pools()[i].release_segments();
  }
  void recordStream(const DataPtr&, Stream) override {}
  DeviceStats getDeviceStats(DeviceIndex i) override {
    auto& p = pool_at(i);
    std::lock_guard<std::recursive_mutex> lock(p.mutex);
    return p.stats;
  }
  template <class F>
  void each_stat(DeviceIndex i, F function) {
    auto& p = pool_at(i);
    std::lock_guard<std::recursive_mutex> lock(p.mutex);
    auto& s = p.stats;
    for (auto* array : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes, &s.reserved_bytes,
                        &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes})
      for (auto& stat : *array) function(stat);
  }
  void resetAccumulatedStats(DeviceIndex i) override {
    each_stat(i, [](Stat& stat) { stat.reset_accumulated(); });
    auto& s = pool_at(i).stats;
    s.num_alloc_retries = s.num_ooms = s.num_device_alloc = s.num_device_free = 0;
  }
  void resetPeakStats(DeviceIndex i) override {
    each_stat(i, [](Stat& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex i) override {  // the real one makes a context too
    auto& p = pool_at(i);
    p.make_context();
    return {p.available(), p.total()};
  }
};
SimAllocator& allocator() {
  static auto* made = new SimAllocator;
  return *made;
}

// The segments with the field names of torch.cuda.memory._snapshot()["segments"].
std::string snapshot_json() {
  std::ostringstream out;
  const char* comma = "";
  out << "[";
  for (int i = 0; i < kDevices; i++) {
    auto& p = pools()[i];
    std::lock_guard<std::recursive_mutex> lock(p.mutex);
    for (const Segment* s : p.segments) {
      size_t used = 0, requested = 0;
      std::ostringstream blocks;
      for (const Block* b = s->first; b; b = b->next) {
        if (b->used) used += b->size, requested += b->requested;
        blocks << (b == s->first ? "" : ",") << "{\"address\":" << (size_t)b->address << ",\"size\":" << b->size
               << ",\"requested_size\":" << b->requested << ",\"stack\":" << (b->used ? b->stack : 0) << ",\"state\":\"" << (b->used ? "active_allocated" : "inactive")
               << "\"}";
      }
      out << comma << "{\"device\":" << i << ",\"address\":" << (size_t)s->address << ",\"total_size\":" << s->size
          << ",\"allocated_size\":" << used << ",\"active_size\":" << used << ",\"requested_size\":" << requested
          << ",\"stream\":0,\"segment_type\":\"" << (s->small ? "small" : "large") << "\",\"blocks\":[" << blocks.str()
          << "]}";
      comma = ",";
    }
  }
  out << "]";
  return out.str();
}

// The recording with the field names of torch.cuda.memory._snapshot()["device_traces"], but a stack's number for frames.
std::string trace_json() {
  std::ostringstream out;
  for (int i = 0; i < kDevices; i++) {
    auto& p = pools()[i];
    std::lock_guard<std::recursive_mutex> lock(p.mutex);
    out << (i ? "," : "[") << "[";
    const char* comma = "";
    for (const Event& e : p.events) {
      out << comma << "{\"action\":\"" << e.action << "\",\"addr\":" << e.address << ",\"size\":" << e.size
          << ",\"stream\":0,\"time_us\":" << e.time_us << ",\"stack\":" << e.stack << "}";
      comma = ",";
    }
    out << "]";
  }
  out << "]";
  return out.str();
}
// A callback begins the recording anew, none ends it.
void record(StackCallback stack, size_t most) {
  g_stack = nullptr;
  for (int i = 0; i < kDevices; i++) {
    std::lock_guard<std::recursive_mutex> lock(pools()[i].mutex);
    pools()[i].events.clear();
  }
  g_most_events = most;
  g_stack = stack;
}

}  // namespace simgpu
