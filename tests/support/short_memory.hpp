#pragma once

#include <cstddef>
#include <limits>

/// A program that has short_memory.cpp takes all its memory by an operator new that can be told to
/// fail, for the thread that asks for it.
namespace dlaunch::test {

inline constexpr long never = std::numeric_limits<long>::max();

/// After so many allocations of this thread one fails, and so do those behind it, `failures` in
/// all; then it begins anew after each `every`.
struct Shortage {
  long until = never;
  long failures = 1;
  long every = never;
};

/// For the calling thread.
void run_short(Shortage shortage);
/// There is memory again. Whether an allocation has failed since the shortage was asked for.
bool have_enough();
/// Whether an allocation of so many bytes is to fail now, for allocators beside operator new.
bool allocation_fails(std::size_t bytes);
/// The size of this thread's largest allocation since run_short().
std::size_t largest_allocation();

}  // namespace dlaunch::test
