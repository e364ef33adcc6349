#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// The two wire protocols of PMI, which MPI ranks speak to their launcher. PMI-1 has a command on
/// each line, or on several lines up to "endcmd". PMI-2 puts each command's length, in six
/// characters, before it, and begins as PMI-1 does. Pure.
namespace dlaunch::launcher::pmi {

enum class Version { one = 1, two = 2 };

struct Command {
  using Field = std::pair<std::string, std::string>;
  std::string name;
  std::vector<Field> fields = {};

  /// Empty where the field is missing.
  std::string_view get(std::string_view field) const;
  bool operator==(const Command&) const = default;
};

/// A command of either version may be so long; MPICH's own limits are 1 KiB and 64 KiB.
inline constexpr std::size_t command_bytes_max = 128u << 10;

struct Garbage {
  std::string what;  ///< "a line of more than 131072 bytes".
};
/// Takes the first whole command out of what has come; nullopt while there is none.
std::variant<std::optional<Command>, Garbage> take_command(std::string& came, Version version);

/// The bytes of a command.
std::string written(const Command& command, Version version);

}  // namespace dlaunch::launcher::pmi
