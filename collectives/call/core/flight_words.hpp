#pragma once

#include "runtime/segment/flight.hpp"

namespace dlaunch {

/// The names of operations, element types, reductions and purposes, for readers of a flight ring.
/// Static.
const FlightWords& flight_words() noexcept;

}  // namespace dlaunch
