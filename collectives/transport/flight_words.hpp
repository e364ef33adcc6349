#pragma once

#include "runtime/segment/flight.hpp"

namespace dlaunch::transport {

/// The names of operations, element types and reductions, for who reads a flight ring. Static.
const FlightWords& flight_words() noexcept;

}  // namespace dlaunch::transport
