// Streams: queues of work, each with a thread that runs it in order, later.
#pragma once

#include "devices.h"

#include <c10/core/Stream.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace sim {

using Job = std::function<void()>;

// A point in a stream: what an event records.
class Mark {
 public:
  void reach();
  void wait();
  bool reached();
  std::chrono::steady_clock::time_point reached_at();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::chrono::steady_clock::time_point at_;
};

class Queue {
 public:
  explicit Queue(int device);

  // A kernel or copy: slowed by the device's delay, and dropped when the device is sick.
  void launch(Job kernel);
  // Work that orders streams or memory: it also runs on a sick device, so that no wait hangs.
  void order(Job job);

  std::shared_ptr<Mark> mark();
  void wait_for(std::shared_ptr<Mark> mark);

  bool idle();
  // Block this thread until all work queued so far is done.
  void drain();
  // Drop what is queued, and wait for the running job until the deadline.
  void halt(std::chrono::steady_clock::time_point deadline);

 private:
  struct Entry {
    Job job;
    bool is_kernel;
  };
  void push(Entry entry);
  void run();
  void run_one(Entry& entry);

  const int device_;
  std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable progressed_;
  std::deque<Entry> entries_;
  uint64_t pushed_ = 0;
  uint64_t finished_ = 0;
};

// The queue behind a stream; its thread starts at the first use.
Queue& queue_of(const c10::Stream& stream);
// The queues of a device that have been used.
std::vector<Queue*> queues_on(int device);
void drain_device(int device);
// Drop all work, at the exit of the process: a GPU's context drops it, too.
void halt_all(std::chrono::milliseconds patience);

// Threads do not survive a fork: as with CUDA, a child cannot use a device that its parent used.
bool in_bad_fork();

int current_device();
void set_current_device(int device);
c10::Stream current_stream(int device);
Queue& current_queue(int device);
void set_current_stream(const c10::Stream& stream);
c10::Stream default_stream(int device);
// One of 32 streams per device and priority in turn, as c10/cuda/CUDAStream.cpp gives them out.
c10::Stream pooled_stream(int device, bool high_priority);

}  // namespace sim
