#include <Python.h>
// It has to come first.
#include "packaging/python-torch/extension/finisher.hpp"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace dlaunch::torch_backend {
namespace {

constexpr std::size_t threads_max = 64;
/// More of them than so many end when there is nothing to do.
constexpr std::size_t idle_max = 2;

class Finisher {
 public:
  void add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (idle_ >= jobs_.size() || threads_ >= threads_max) {
      arrived_.notify_one();
      return;
    }
    ++threads_;
    std::thread([this] { serve(); }).detach();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      while (!jobs_.empty()) {
        auto job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        job = nullptr;  // What it holds may be the last of its kind, and end in a call of ours.
        lock.lock();
      }
      if (idle_ >= idle_max) break;
      ++idle_;
      arrived_.wait(lock, [this] { return !jobs_.empty(); });
      --idle_;
    }
    --threads_;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> jobs_;
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;
};

}  // namespace

void run_beside(std::function<void()> job) {
  // Left where it is at the program's end: a callback may still run in Python then.
  static Finisher* const finisher = new Finisher;
  if (Py_IsInitialized() == 0) {  // There is no callback any more, nor may any be dropped.
    static_cast<void>(new std::function<void()>(std::move(job)));
    return;
  }
  finisher->add(std::move(job));
}

}  // namespace dlaunch::torch_backend
