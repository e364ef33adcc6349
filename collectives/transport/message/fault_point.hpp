#pragma once

#include <atomic>

namespace dlaunch::transport {

/// A test's interference with a rank in the midst of its calls: called before each step that a call
/// takes, from whichever thread makes it; it may throw, or never return. Not armed, it costs a load
/// and a branch.
using FaultPoint = void (*)();
inline std::atomic<FaultPoint> armed_fault_point{nullptr};

inline bool is_armed() { return armed_fault_point.load(std::memory_order_relaxed) != nullptr; }

inline void at_step() {
  if (const FaultPoint fault = armed_fault_point.load(std::memory_order_relaxed)) [[unlikely]]
    fault();
}

}  // namespace dlaunch::transport
