#include "rendezvous/control/operators.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/private_file.hpp"
#include "runtime/base/secret/secret.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch::rendezvous {
namespace {

constexpr std::size_t file_bytes_max = 64u << 10;
constexpr const char* what = "the tokens of the operators";

std::string_view take_word(std::string_view& line) {
  constexpr std::string_view blank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(blank), line.size()));
  const auto word = line.substr(0, line.find_first_of(blank));
  line.remove_prefix(word.size());
  return word;
}

bool is_operator_name(std::string_view word) {
  return word.size() <= Operators::name_bytes_max && std::ranges::all_of(word, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-' || c == '@';
         });
}

/// Whether an Authorization header can carry the word as it is.
bool is_token(std::string_view word) {
  return word.size() >= Operators::token_bytes_min && word.size() <= Operators::token_bytes_max &&
         std::ranges::all_of(word, [](char c) { return c > ' ' && c < '\x7f'; });
}

/// Compares in a time that depends on neither token.
bool same_token(std::string_view one, std::string_view other) {
  unsigned difference = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < Operators::token_bytes_max; ++i) {
    const auto a = static_cast<unsigned char>(i < one.size() ? one[i] : 0);
    const auto b = static_cast<unsigned char>(i < other.size() ? other[i] : 0);
    difference |= static_cast<unsigned>(a ^ b);
  }
  return difference == 0;
}

Operators read_and_parse(int fd, const std::string& path) {
  std::string text(file_bytes_max + 1, '\0');
  std::size_t size = 0;
  ssize_t n = 1;
  while (size < text.size() && n != 0) {
    n = ::read(fd, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw unreadable_secret(what, path, errno_text(errno));
    size += static_cast<std::size_t>(n);
  }
  if (size > file_bytes_max) throw unreadable_secret(what, path, "it is longer than 64 KiB");
  try {
    auto operators = Operators::parse(std::string_view(text).substr(0, size), path);
    wipe(text);
    return operators;
  } catch (...) {
    wipe(text);
    throw;
  }
}

}  // namespace

Operators::Entry::Entry(std::string its_name, std::string its_token)
    : name(std::move(its_name)), token(std::move(its_token)) {}

Operators::Entry::~Entry() { wipe(token); }

Operators Operators::parse(std::string_view text, const std::string& where) {
  Operators all;
  all.entries_.reserve(operators_max);
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto name = take_word(line);
    if (name.empty() || name.starts_with('#')) continue;
    const auto token = take_word(line);
    const auto wrong = [&](const std::string& why) {
      return Error(Errc::misuse, where + ":" + std::to_string(number) + ": " + why);
    };
    if (!is_operator_name(name)) {
      throw wrong("an operator's name has at most 64 letters, digits and . _ - @");
    }
    if (!is_token(token) || !take_word(line).empty()) {
      throw wrong(
          "a line is NAME TOKEN, and a token has 16 to 256 visible characters; 'openssl rand -hex "
          "32' makes one");
    }
    for (const Entry& other : all.entries_) {
      if (other.name == name) throw wrong("the operator " + other.name + " is there already");
      if (other.token == token) throw wrong("the operator " + other.name + " has the same token");
    }
    if (all.entries_.size() == operators_max) throw wrong("there may be 64 operators");
    all.entries_.emplace_back(std::string(name), std::string(token));
  }
  if (all.entries_.empty()) {
    throw Error(Errc::misuse, where + ": no operator is named there; a line is NAME TOKEN");
  }
  return all;
}

std::optional<std::string> Operators::name_of(std::string_view token) const {
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (same_token(entry.token, token)) found = &entry;
  }
  if (found == nullptr || token.size() > token_bytes_max) return std::nullopt;
  return found->name;
}

Operators read_operators_file(const std::string& path) {
  return read_and_parse(open_private_file(what, path).get(), path);
}

Operators read_operators_credential(const std::string& path) {
  const unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) throw unreadable_secret(what, path, errno_text(errno));
  return read_and_parse(fd.get(), path);
}

}  // namespace dlaunch::rendezvous
