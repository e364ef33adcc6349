#pragma once

#include <cstdint>
#include <functional>

namespace dlaunch::store {

/// Makes recorded changes of a server's namespaces, and its host's decisions, durable some time
/// later. The server holds each message back until everything that was recorded before it is
/// durable, so that nobody learns of a change that could still be lost. Called on the server's
/// thread.
class Commits {
 public:
  virtual ~Commits() = default;
  /// The number of the last change that was recorded; they are counted from 1.
  virtual std::uint64_t recorded() const = 0;
  /// All changes up to this number are durable. It does not shrink, save to 0 while no message may
  /// leave.
  virtual std::uint64_t durable() const = 0;
  /// Called when no request is half carried out: the changes up to now may become durable, all or
  /// none of them. May wait while too much is under way.
  virtual void seal() = 0;
  /// `told` is called, on the server's thread and from no other call, each time durable() has
  /// grown; empty: nobody wants to know any more.
  virtual void on_durable(std::function<void()> told) = 0;
};

}  // namespace dlaunch::store
