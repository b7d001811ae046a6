#include "csrc/c10d/worker.h"

#include <chrono>
#include <utility>

#include <pthread.h>

namespace neuron {

void Worker::submit(Task task) {
  if (inside_task()) return task();
  std::lock_guard lock(mutex_);
  enqueue(std::move(task));
}

bool Worker::run_here_if_idle(const Task& task) {
  if (inside_task()) {
    task();
    return true;
  }
  {
    std::lock_guard lock(mutex_);
    if (busy_ || !queue_.empty()) {
      enqueue(task);
      return false;
    }
    started();
  }
  task();
  finished();
  return true;
}

void Worker::drain(const std::function<void()>& meanwhile) {
  if (inside_task()) return;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return queue_.empty() && !busy_; })) {
    lock.unlock();
    meanwhile();
    lock.lock();
  }
}

bool Worker::on_callers_thread() const {
  std::lock_guard lock(mutex_);
  return thread_.get_id() != std::this_thread::get_id();
}

bool Worker::idle() const {
  std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void Worker::stop() {
  drain();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Worker::enqueue(Task task) {
  queue_.push_back(std::move(task));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "neuron-comm");
      on_start_();
      run();
    });
  }
  changed_.notify_all();
}

void Worker::run() {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return (!queue_.empty() && !busy_) || (stopping_ && queue_.empty()); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
      started();
    }
    task();
    task = nullptr; // its tensors go before anyone who drains goes on
    finished();
  }
}

void Worker::started() {
  busy_ = true;
  runner_ = std::this_thread::get_id();
}

void Worker::finished() {
  std::lock_guard lock(mutex_);
  busy_ = false;
  runner_ = std::thread::id();
  changed_.notify_all();
}

} // namespace neuron
