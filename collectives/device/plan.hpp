#pragma once

#include "collectives/call/collective_call.hpp"
#include "collectives/device/library.hpp"

#include <dlaunch/communicator.hpp>

#include <functional>
#include <span>

/// What each collective and message is on a device: its fingerprint, its checks, and the steps of
/// this rank. Pure.
namespace dlaunch::device {

/// Whether any of these lies on a device.
bool any_on_device(std::span<const Transfer> transfers) noexcept;
/// One call, before it is made. What it was made of is borrowed until it is.
struct Request {
  transport::Fingerprint fingerprint;
  int device = -1;
  int peer = any_source;  ///< The peer of a message.
  /// Throws Error{misuse} or Error{unsupported}.
  std::function<Plan(const Call&)> plan;
};

/// The streams sum that byte, which is on the device. Null: only prepares the device.
Request barrier(int device, void* byte);
/// A buffer lies on a device. The call has forgotten what this rank does not use.
Request request(const CollectiveCall& what);
/// All at once; at least one of them on a device, and so all.
Request messages(std::span<const Transfer> transfers);

}  // namespace dlaunch::device
