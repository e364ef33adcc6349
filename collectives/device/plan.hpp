#pragma once

#include "collectives/call/collective_call.hpp"
#include "collectives/device/library.hpp"

#include <dlaunch/communicator.hpp>

#include <functional>
#include <span>

/// The forms of collectives and messages on a device: fingerprint, checks, and this rank's steps.
/// Pure.
namespace dlaunch::device {

/// Whether any of these lies on a device.
bool any_on_device(std::span<const Transfer> transfers) noexcept;
/// One call before it is made. It borrows its arguments until then.
struct Request {
  transport::Fingerprint fingerprint;
  int device = -1;
  int peer = any_source;  ///< The peer of a message.
  /// Throws Error{misuse} or Error{unsupported}.
  std::function<Plan(const Call&)> plan;
};

/// A barrier: the streams sum that byte on the device. Null: only prepares the device.
Request barrier(int device, void* byte);
/// A collective with a buffer on a device. To be called after forget_unused().
Request request(const CollectiveCall& what);
/// A batch of messages, all at once. At least one lies on a device, and so all do.
Request messages(std::span<const Transfer> transfers);

}  // namespace dlaunch::device
