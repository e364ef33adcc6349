#pragma once

#include "launcher/report/summary.hpp"

#include <string>

namespace dlaunch::launcher {

/// What the culprit's end usually means, or what others say of it, where the cause and its own
/// words do not tell: the first that fits. Empty where nothing is known.
std::string explanation_of(const WorkerEnd& culprit, const FailureSummary& summary);

}  // namespace dlaunch::launcher
