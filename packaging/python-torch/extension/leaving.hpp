#pragma once

#include <c10/util/intrusive_ptr.h>

namespace dlaunch::torch_backend {

class DlaunchBackend;

/// The group, which is noted as long as it lives.
c10::intrusive_ptr<DlaunchBackend> noted(c10::intrusive_ptr<DlaunchBackend> group);

/// This process ends, and its exit code, which Python does not tell, says how its groups do: with 0
/// it leaves them and its job in order, when what it has started is complete. With any other it is
/// lost to the other ranks, to whom its agent tells that code, so nothing is said here, not even
/// while the interpreter drops what it has.
void leave_at_exit();

}  // namespace dlaunch::torch_backend
