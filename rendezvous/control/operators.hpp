#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::rendezvous {

/// The operators, who may act on the daemon over HTTP: names and tokens from a file that has a line
/// for each, "NAME TOKEN". A value; copies are wiped like the original.
class Operators {
 public:
  static constexpr std::size_t operators_max = 64, name_bytes_max = 64;
  /// The shortest token: 16 random characters are more than anybody can try out.
  static constexpr std::size_t token_bytes_min = 16, token_bytes_max = 256;

  /// Throws Error{misuse} that names `where` and the line, and quotes no token.
  static Operators parse(std::string_view text, const std::string& where);

  /// The name of the operator with this token; nullopt if nobody has it. A wrong token takes as
  /// long as a right one.
  std::optional<std::string> name_of(std::string_view token) const;

 private:
  struct Entry {
    std::string name, token;
    ~Entry();
    Entry(std::string its_name, std::string its_token);
    Entry(const Entry&) = default;
    Entry& operator=(const Entry&) = default;
  };
  std::vector<Entry> entries_;
};

/// From a regular file that belongs to this user or root, and to which nobody else has access.
/// Throws Error{misuse}.
Operators read_operators_file(const std::string& path);
/// From a credential that systemd has put there, and guards. Throws Error{misuse}.
Operators read_operators_credential(const std::string& path);

}  // namespace dlaunch::rendezvous
