#include "collectives/transport/progress_thread.hpp"

#include <exception>

namespace dlaunch::transport {

ProgressThread::~ProgressThread() {
  thread_.request_stop();
  mesh_.wake();
}

void ProgressThread::add(const Receive& receive) {
  if (!receive.pending()) return;
  receives_.push_back(&receive);
  begin();
}

void ProgressThread::add(const Outgoing& outgoing) {
  if (!outgoing.pending()) return;
  outgoings_.push_back(&outgoing);
  begin();
}

void ProgressThread::begin() {
  failed_ = false;
  if (!used_) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    used_ = true;
    mesh_.control().note_started();
  }
  mesh_.progress_lock().want();
}

/// Completed entries are dropped from the end of the lists, so that looking costs little.
bool ProgressThread::is_wanted() {
  while (!receives_.empty() && !receives_.back()->pending()) receives_.pop_back();
  while (!outgoings_.empty() && !outgoings_.back()->pending()) outgoings_.pop_back();
  return !failed_ && (!receives_.empty() || !outgoings_.empty());
}

void ProgressThread::run(const std::stop_token& stop) {
  const auto lock = mesh_.lock();
  const auto wanted = [this] { return is_wanted(); };
  while (!stop.stop_requested()) {
    try {
      if (mesh_.progress_lock().take_when_quiet(stop, wanted)) mesh_.step_in_turn();
    } catch (const std::exception&) {
      // Not lost: it comes again to whoever waits next, in a call that can tell it.
      failed_ = true;
    }
  }
}

}  // namespace dlaunch::transport
