#pragma once

#include "runtime/base/secret/secret.hpp"

#include <cstddef>
#include <string>
#include <vector>

/// A secret, or two while it is being changed: both are known for a while, and the first is the one
/// to use.
namespace dlaunch {

constexpr std::size_t secrets_max = 2;

/// Text of one or two secrets, one a line, or a secret that is not text. Throws as Secret::parse.
std::vector<Secret> parse_secrets(BytesView content, const std::string& where);
/// From where read_secret_file and read_secret_credential read, under the same conditions.
std::vector<Secret> read_secrets_file(const std::string& path);
std::vector<Secret> read_secrets_credential(const std::string& name, const char* directory);

}  // namespace dlaunch
