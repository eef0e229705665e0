#include "memory.h"

#include "notes.h"

#include <c10/core/alignment.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

namespace sim {
namespace {

constexpr size_t kRounding = 512;  // kMinBlockSize of c10/core/AllocatorConfig.h
constexpr int kPoisonByte = 0xFF;
constexpr size_t kDefaultLimit = size_t(8) << 30;

std::atomic<size_t> limit_bytes{kDefaultLimit};
std::atomic<Poison> poison_mode{Poison::kAtReuse};

struct Block {
  void* address;
  size_t bytes;
  size_t requested;
  c10::Stream home;            // the stream that allocated it, and may reuse it without waiting
  std::set<int64_t> others{};  // streams of record_stream()
};

struct Waiting {
  Block block;
  std::vector<std::shared_ptr<Mark>> marks;
};

void release(void* address);

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    check_healthy(device);
    const c10::Device where(kSim, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) {
      return {nullptr, nullptr, &release, where};
    }
    const size_t rounded = (bytes + kRounding - 1) / kRounding * kRounding;
    Block block{nullptr, rounded, bytes, current_stream(device)};
    if (!take(block)) {
      note_wait("memory", "alloc_retry");
      stats_[device].num_alloc_retries++;
      release_cached(device);
      if (!take(block)) {
        out_of_memory(device, bytes);
      }
    }
    return {block.address, block.address, &release, where};
  }

  void free(void* address) {
    std::unique_lock lock(mutex_);
    auto found = live_.find(address);
    Block block = std::move(found->second);
    live_.erase(found);
    auto& stats = stats_[block.home.device_index()];
    stats.allocation[0].decrease(1);
    stats.allocated_bytes[0].decrease(block.bytes);
    stats.requested_bytes[0].decrease(block.requested);
    if (block.others.empty()) {
      cache(block);
      return;
    }
    lock.unlock();
    // As insert_events() in c10/cuda/CUDACachingAllocator.cpp: the block is held back until the
    // other streams have passed what they have been given so far.
    Waiting waiting{std::move(block), {}};
    for (const int64_t id : waiting.block.others) {
      const c10::Stream other(c10::Stream::UNSAFE, waiting.block.home.device(), id);
      waiting.marks.push_back(queue_of(other).mark());
    }
    lock.lock();
    waiting_.push_back(std::move(waiting));
  }

  void record(const c10::DataPtr& pointer, const c10::Stream& stream) {
    std::lock_guard lock(mutex_);
    auto found = live_.find(pointer.get());
    if (found != live_.end() && found->second.home != stream) {
      found->second.others.insert(stream.id());
    }
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    current_queue(current_device()).launch([=] { std::memcpy(to, from, bytes); });
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {
    note_wait("memory", "empty_cache");
    for (int device = 0; device < device_count(); device++) {
      release_cached(device);
    }
  }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    record(pointer, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    return stats_[device];
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    each_stat(device, [](auto& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    each_stat(device, [](auto& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    const size_t reserved = stats_[device].reserved_bytes[0].current;
    return {limit_bytes > reserved ? limit_bytes - reserved : 0, limit_bytes.load()};
  }

 private:
  using CacheKey = std::tuple<int, int64_t, size_t>;  // device, stream, bytes

  // Give the block an address from the cache or fresh memory; false if the limit forbids it.
  bool take(Block& block) {
    const int device = block.home.device_index();
    bool reused = false;
    {
      std::lock_guard lock(mutex_);
      collect_passed();
      auto& stats = stats_[device];
      auto& cached = cache_[{device, block.home.id(), block.bytes}];
      if (!cached.empty()) {
        block.address = cached.back();
        cached.pop_back();
        reused = true;
      } else {
        if (stats.reserved_bytes[0].current + block.bytes > limit_bytes) {
          return false;
        }
        block.address = std::aligned_alloc(kRounding, block.bytes);
        TORCH_CHECK(block.address, "sim: the host itself is out of memory");
        stats.reserved_bytes[0].increase(block.bytes);
        stats.num_device_alloc++;
      }
      live_.emplace(block.address, block);
      stats.allocation[0].increase(1);
      stats.allocated_bytes[0].increase(block.bytes);
      stats.requested_bytes[0].increase(block.requested);
    }
    if (!reused && poison_mode != Poison::kNever) {
      std::memset(block.address, kPoisonByte, block.bytes);
    } else if (reused && poison_mode == Poison::kAtReuse) {
      poison_in_order(block);
    }
    return true;
  }

  static void poison_in_order(const Block& block) {
    queue_of(block.home).order([address = block.address, bytes = block.bytes] {
      std::memset(address, kPoisonByte, bytes);
    });
  }

  void cache(const Block& block) {
    cache_[{block.home.device_index(), block.home.id(), block.bytes}].push_back(block.address);
    if (poison_mode == Poison::kAtFree) {
      poison_in_order(block);
    }
  }

  // As process_events() there: give blocks back whose other streams have passed.
  void collect_passed() {
    for (size_t index = 0; index < waiting_.size();) {
      auto& marks = waiting_[index].marks;
      while (!marks.empty() && marks.back()->reached()) {
        marks.pop_back();
      }
      if (!marks.empty()) {
        index++;
        continue;
      }
      cache(waiting_[index].block);
      std::swap(waiting_[index], waiting_.back());
      waiting_.pop_back();
    }
  }

  void release_cached(int device) {
    drain_device(device);  // queued kernels do not own the memory that they use
    std::lock_guard lock(mutex_);
    collect_passed();
    auto& stats = stats_[device];
    for (auto& [key, addresses] : cache_) {
      if (std::get<0>(key) != device) {
        continue;
      }
      for (void* address : addresses) {
        std::free(address);
        stats.reserved_bytes[0].decrease(std::get<2>(key));
        stats.num_device_free++;
      }
      addresses.clear();
    }
  }

  [[noreturn]] void out_of_memory(int device, size_t bytes) {
    size_t used = 0;
    {
      std::lock_guard lock(mutex_);
      stats_[device].num_ooms++;
      used = stats_[device].allocated_bytes[0].current;
    }
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "sim:", device, " out of memory. Tried to allocate ", bytes,
        " bytes. The device has ", limit_bytes.load(), " bytes, of which tensors use ", used, ".");
  }

  template <class F>
  void each_stat(int device, const F& change) {
    auto& stats = stats_[device];
    for (auto* array :
         {&stats.allocation, &stats.allocated_bytes, &stats.reserved_bytes,
          &stats.requested_bytes}) {
      change((*array)[0]);
    }
  }

  std::mutex mutex_;
  std::unordered_map<void*, Block> live_;
  std::map<CacheKey, std::vector<void*>> cache_;
  std::vector<Waiting> waiting_;
  std::array<c10::CachingDeviceAllocator::DeviceStats, kMostDevices> stats_;
};

Allocator& allocator = *new Allocator;

void release(void* address) {  // runs on any thread, with or without the GIL
  if (address && !in_bad_fork()) {
    allocator.free(address);
  }
}

REGISTER_ALLOCATOR(kSim, &allocator);

}  // namespace

c10::DeviceAllocator& device_allocator() {
  return allocator;
}

void record_stream(const c10::DataPtr& pointer, const c10::Stream& stream) {
  allocator.record(pointer, stream);
}

void set_limit(size_t bytes) {
  limit_bytes = bytes;
}

void set_poison(Poison mode) {
  poison_mode = mode;
}

}  // namespace sim
