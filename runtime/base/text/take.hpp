#pragma once

#include "runtime/base/text/options.hpp"

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

/// Functions that store an option's text in a field of the target: the last column of a table's
/// rows.
namespace dlaunch::take {

/// Stores what was read, or hands the complaint on.
template <class T, class Field>
Taken store(Read<T>&& read, Field& field) {
  if (auto* complaint = std::get_if<Complaint>(&read)) return std::move(*complaint);
  field = static_cast<Field>(std::get<T>(std::move(read)));
  return std::nullopt;
}

/// A name of an enumerator on the command line.
template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

template <class Names, class Field>
Taken store_choice(std::string_view value, const Names& names, Field& field) {
  for (const auto& [name, chosen] : names) {
    if (value == name) return field = chosen, std::nullopt;
  }
  return Complaint{in_quotes(value) + " is none of " +
                   joined(names, [](const auto& named) { return std::string(named.name); })};
}

template <auto Member>
constexpr auto flag = [](auto& target, std::string_view value) -> Taken {
  return store(read_flag(value), target.*Member);
};
/// Stores a text that is not empty.
template <auto Member>
constexpr auto text = [](auto& target, std::string_view value) -> Taken {
  if (value.empty()) return Complaint{"the value is empty"};
  target.*Member = std::string(value);
  return std::nullopt;
};
/// Stores a text that may be empty.
template <auto Member>
constexpr auto any_text = [](auto& target, std::string_view value) -> Taken {
  target.*Member = std::string(value);
  return std::nullopt;
};
template <auto Member, long least, long most>
constexpr auto number = [](auto& target, std::string_view value) -> Taken {
  return store(read_integer(value, least, most), target.*Member);
};
template <auto Member>
constexpr auto duration = [](auto& target, std::string_view value) -> Taken {
  return store(read_duration(value), target.*Member);
};
template <auto Member, const auto& names>
constexpr auto choice = [](auto& target, std::string_view value) -> Taken {
  return store_choice(value, names, target.*Member);
};
/// Stores a value read by a function of its own.
template <auto Member, auto reader>
constexpr auto by = [](auto& target, std::string_view value) -> Taken {
  return store(reader(value), target.*Member);
};
/// Stores nothing: the value is read elsewhere, or not at all.
constexpr auto nothing = [](auto&, std::string_view) -> Taken { return std::nullopt; };

}  // namespace dlaunch::take
