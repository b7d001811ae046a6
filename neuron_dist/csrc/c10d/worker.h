#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace neuron {

// Runs the collectives of one communicator, one at a time and in the order of their calls. A thread of its own, so
// that two groups never wait for each other; it starts with the first task that nobody runs on the calling thread.
// A task that another one starts, as a callback on a future may, runs at once, as a part of that one.
class Worker {
 public:
  using Task = std::function<void()>; // must not throw

  // `on_start` runs first on the worker's thread.
  explicit Worker(Task on_start) : on_start_(std::move(on_start)) {}
  ~Worker() { stop(); }

  // Queues the task.
  void submit(Task task);
  // Runs the task on this thread if nothing is queued or under way; else queues it and returns false.
  bool run_here_if_idle(const Task& task);
  // Returns when all that was submitted has run; calls `meanwhile`, which may throw, every 100 ms. A task cannot wait
  // for itself, so for it this does nothing.
  void drain(const std::function<void()>& meanwhile = [] {});
  // Whether the calling thread runs one of the tasks.
  bool inside_task() const { return runner_ == std::this_thread::get_id(); }
  // For a task: whether it runs on the thread of the caller, whom it holds up.
  bool on_callers_thread() const;
  bool idle() const;
  // Drains, then ends the thread.
  void stop();

 private:
  void enqueue(Task task);
  void run();
  void started();
  void finished();

  Task on_start_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool busy_ = false; // a task is under way, here or on a caller's thread
  std::atomic<std::thread::id> runner_{}; // the thread that runs it
  bool stopping_ = false;
  std::thread thread_;
};

} // namespace neuron
