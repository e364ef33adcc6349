#pragma once

#include "collectives/communicator/work_state.hpp"
#include "collectives/device/device_calls.hpp"
#include "collectives/transport/message/message.hpp"

#include <dlaunch/communicator.hpp>

#include <exception>
#include <memory>

namespace dlaunch {

/// A call that was put on a stream, and the mark behind it. The communicator lists it until it is
/// known to be complete; one that was captured is never asked for, and complete at once.
class DeviceWork final : public WorkState {
 public:
  DeviceWork(std::shared_ptr<Communicator::State> owner, const transport::Fingerprint& call,
             const Options& options, const device::Mark& mark);
  ~DeviceWork() override;

  void wait() override;
  bool wait_until(Clock::time_point until) override;
  bool test() override { return is_done(); }
  bool is_done() noexcept override;
  void on_complete(Work::Completion completion) override;
  void order_before(void* cuda_stream) override;
  /// Its communicator ends.
  void end() noexcept;

 private:
  /// Whether the device is done with it.
  bool settle();

  std::shared_ptr<Communicator::State> owner_;  ///< Null once it is complete.
  transport::Fingerprint fingerprint_;
  Options options_;
  std::shared_ptr<device::Event> mark_;
  std::exception_ptr error_;
};

}  // namespace dlaunch
