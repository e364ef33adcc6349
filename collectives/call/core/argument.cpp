#include "collectives/call/core/argument.hpp"

#include "collectives/reduce/reduce_ops.hpp"

#include <cstdio>

namespace dlaunch {
namespace {

constexpr std::size_t named_numbers_max = 32;

template <class Number>
std::string list_text(const char* what, std::span<const Number> numbers) {
  std::string text = what;
  for (std::size_t i = 0; i < numbers.size() && i < named_numbers_max; ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(numbers[i]);
  }
  if (numbers.size() > named_numbers_max) {
    text += " and " + std::to_string(numbers.size() - named_numbers_max) + " more";
  }
  return text;
}

std::string reduction_text(const Reduction& reduction) {
  std::string text;
  switch (traits_of(reduction.op()).needs) {
    case Needs::nothing:
      text = "a " + reduction.name();
      break;
    case Needs::factor: {
      char factor[64];
      std::snprintf(factor, sizeof factor, "the factor %.17g", reduction.factor());
      text = factor;
      break;
    }
    case Needs::function:
      text = "the operation '" + reduction.name() + "'";
      if (const std::size_t own = reduction.element_bytes(); own != 0) {
        text += " of elements of " + std::to_string(own) + " bytes";
      }
      break;
  }
  if (reduction.is_any_order()) return text + " in any order";
  return text + (reduction.is_canonical() ? " in canonical order" : " in the order of ranks");
}

}  // namespace

std::string Argument::text() const {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " and ") + part; };
  if (!counts.empty()) add(list_text("counts", counts));
  if (reduction != nullptr) add(reduction_text(*reduction));
  if (!ranks.empty()) add(list_text("ranks", ranks));
  return text;
}

}  // namespace dlaunch
