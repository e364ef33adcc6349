#pragma once

#include <cstdint>
#include <functional>

namespace dlaunch::store {

/// Makes recorded changes of a server's namespaces, and its host's decisions, durable some time
/// later. The server holds each message back until every change that it may tell of is durable,
/// those of its job and those that were made in no job's turn, so that nobody learns of a change
/// that could still be lost. Called on the server's thread.
class Commits {
 public:
  virtual ~Commits() = default;
  /// The number of the last change that was recorded; they are counted from 1.
  virtual std::uint64_t recorded() const = 0;
  /// All changes up to this number are durable. It does not shrink, save to 0 while no message may
  /// leave.
  virtual std::uint64_t durable() const = 0;
  /// No request is half carried out: what was recorded up to now may become durable, all of it or,
  /// should everything end, none. May wait while too much is under way, but not while none of it
  /// can become durable.
  virtual void seal() = 0;
  /// How much was recorded from the beginning, and how much of it is durable, in bytes, about.
  virtual std::uint64_t recorded_bytes() const = 0;
  virtual std::uint64_t durable_bytes() const = 0;
  /// Nothing becomes durable for now, and no request makes a change: nobody is to wait for it.
  virtual bool stuck() const = 0;
  /// `told` is called, on the server's thread and from no other call, each time durable() has
  /// grown or stuck() is another; empty: nobody wants to know any more.
  virtual void on_durable(std::function<void()> told) = 0;
};

}  // namespace dlaunch::store
