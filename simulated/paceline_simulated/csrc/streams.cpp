#include "streams.h"

#include "notes.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <thread>

namespace sim {
namespace {

constexpr int kStreamsPerPool = 32;
constexpr int kStreamsPerDevice = 1 + 2 * kStreamsPerPool;  // the default stream, two pools

using DeviceQueues = std::array<std::atomic<Queue*>, kStreamsPerDevice>;
auto& all_queues = *new std::array<DeviceQueues, kMostDevices>;
std::mutex creation_mutex;
std::atomic<bool> any_started{false};
std::atomic<bool> forked_after_start{false};
std::array<std::array<std::atomic<uint32_t>, 2>, kMostDevices> next_in_pool;

thread_local int thread_device = 0;
thread_local std::array<int64_t, kMostDevices> thread_streams{};

}  // namespace

void Mark::reach() {
  std::lock_guard lock(mutex_);
  reached_ = true;
  at_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

bool Mark::reached() {
  std::lock_guard lock(mutex_);
  return reached_;
}

std::chrono::steady_clock::time_point Mark::reached_at() {
  std::lock_guard lock(mutex_);
  return at_;
}

Queue::Queue(int device) : device_(device) {
  std::thread([this] { run(); }).detach();
}

void Queue::launch(Job kernel) {
  push({std::move(kernel), true});
}

void Queue::order(Job job) {
  push({std::move(job), false});
}

void Queue::push(Entry entry) {
  std::lock_guard lock(mutex_);
  entries_.push_back(std::move(entry));
  pushed_++;
  queued_.notify_one();
}

std::shared_ptr<Mark> Queue::mark() {
  auto mark = std::make_shared<Mark>();
  order([mark] { mark->reach(); });
  return mark;
}

void Queue::wait_for(std::shared_ptr<Mark> mark) {
  order([mark = std::move(mark)] { mark->wait(); });
}

bool Queue::idle() {
  std::lock_guard lock(mutex_);
  return finished_ == pushed_;
}

void Queue::drain() {
  WithoutGil released;
  std::unique_lock lock(mutex_);
  progressed_.wait(lock, [this, target = pushed_] { return finished_ >= target; });
}

void Queue::halt(std::chrono::steady_clock::time_point deadline) {
  WithoutGil released;
  std::deque<Entry> dropped;  // destroyed after the lock is released: it may need the GIL
  std::unique_lock lock(mutex_);
  dropped.swap(entries_);
  finished_ += dropped.size();
  progressed_.wait_until(lock, deadline, [this] { return finished_ == pushed_; });
}

void Queue::run() {
  at::init_num_threads();  // OpenMP keeps the number of threads per calling thread
  // The exclusion of autograd is per thread, too: without it, kernels would record a graph.
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      queued_.wait(lock, [this] { return !entries_.empty(); });
      entry = std::move(entries_.front());
      entries_.pop_front();
    }
    run_one(entry);
    entry.job = nullptr;  // what the job holds is gone before anyone sees it finished
    std::lock_guard lock(mutex_);
    finished_++;
    progressed_.notify_all();
  }
}

void Queue::run_one(Entry& entry) {
  if (entry.is_kernel && is_sick(device_)) {
    return;
  }
  try {
    if (const int delay = entry.is_kernel ? delay_us(device_) : 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
    }
    entry.job();
  } catch (const c10::Error& error) {
    sicken(device_, kErrorAssert, error.what_without_backtrace());
  } catch (const std::exception& error) {
    sicken(device_, kErrorAssert, error.what());
  }
}

Queue& queue_of(const c10::Stream& stream) {
  TORCH_CHECK(
      !forked_after_start,
      "sim: a forked process cannot use the devices that its parent has used; "
      "start it by 'spawn' or 'forkserver'");
  auto& slot = all_queues[stream.device_index()][stream.id()];
  Queue* queue = slot.load();
  if (!queue) {
    std::lock_guard lock(creation_mutex);
    queue = slot.load();
    if (!queue) {
      if (!any_started.exchange(true)) {
        pthread_atfork(nullptr, nullptr, [] { forked_after_start = true; });
      }
      queue = new Queue(stream.device_index());
      slot = queue;
    }
  }
  return *queue;
}

std::vector<Queue*> queues_on(int device) {
  std::vector<Queue*> found;
  for (auto& slot : all_queues[device]) {
    if (Queue* queue = slot.load()) {
      found.push_back(queue);
    }
  }
  return found;
}

void drain_device(int device) {
  for (Queue* queue : queues_on(device)) {
    queue->drain();
  }
}

void halt_all(std::chrono::milliseconds patience) {
  if (forked_after_start) {
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (int device = 0; device < device_count(); device++) {
    for (Queue* queue : queues_on(device)) {
      queue->halt(deadline);
    }
  }
}

bool in_bad_fork() {
  return forked_after_start;
}

int current_device() {
  return thread_device;
}

void set_current_device(int device) {
  thread_device = device;
}

c10::Stream current_stream(int device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSim, device), thread_streams[device]);
}

Queue& current_queue(int device) {
  return queue_of(current_stream(device));
}

void set_current_stream(const c10::Stream& stream) {
  thread_streams[stream.device_index()] = stream.id();
}

c10::Stream default_stream(int device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSim, device), 0);
}

c10::Stream pooled_stream(int device, bool high_priority) {
  const auto turn = next_in_pool[device][high_priority]++ % kStreamsPerPool;
  const int64_t id = 1 + high_priority * kStreamsPerPool + turn;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSim, device), id);
}

}  // namespace sim
