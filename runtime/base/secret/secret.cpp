#include "runtime/base/secret/secret.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/base/secret/crypto.hpp"
#include "runtime/base/secret/secrets.hpp"

#include <algorithm>
#include <cstring>

namespace dlaunch {
namespace {

constexpr std::string_view job_key_prefix = "dlk1:";
constexpr std::size_t text_key_bytes_min = 16;  ///< 128 bits.
constexpr std::size_t raw_key_bytes_min = 32;

constexpr std::string_view base64_alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

constexpr const char* how_to_make_one = "; 'openssl rand -hex 32 > FILE; chmod 600 FILE' makes one";

/// Bytes of a secret while it is read; they are wiped however the reading ends.
struct WipedBytes {
  Bytes bytes;
  ~WipedBytes() { wipe(bytes); }
};

bool is_hex(std::string_view text) {
  return text.size() % 2 == 0 && !text.empty() &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

bool is_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return false;
  const auto end = text.find_first_not_of(base64_alphabet);
  return end == std::string_view::npos || text.substr(end) == "=" || text.substr(end) == "==";
}

bool is_text(std::string_view content) {
  return std::all_of(content.begin(), content.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code >= 0x80 || (code >= 0x20 && code != 0x7f) || c == '\n' || c == '\r' || c == '\t';
  });
}

unsigned nibble(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  return static_cast<unsigned>((c | 0x20) - 'a') + 10;
}

Bytes from_hex(std::string_view text) {
  Bytes out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    out.push_back(static_cast<std::byte>(nibble(text[i]) << 4 | nibble(text[i + 1])));
  }
  return out;
}

Bytes from_base64(std::string_view text) {
  Bytes out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int count = 0;  // Number of trailing bits that fill no byte yet.
  for (const char c : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<std::uint32_t>(base64_alphabet.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<std::byte>(bits >> count));
  }
  return out;
}

/// The text of 32 bytes: the last group of three has two, so one '=' ends it.
std::string to_base64(Key::View bytes) {
  std::string text;
  text.reserve(44);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) {
      return i + k < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0;
    };
    const std::uint32_t bits = at(0) << 16 | at(1) << 8 | at(2);
    for (const int shift : {18, 12, 6, 0}) text += base64_alphabet[bits >> shift & 63];
  }
  text.back() = '=';
  return text;
}

std::string_view trimmed(std::string_view text) {
  const auto last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

/// Whether it would be a key without its blanks: what may be words stays a passphrase.
bool is_key_with_blanks(std::string_view text) {
  WipedBytes rest;
  for (const char c : text) {
    if (c != ' ' && c != '\t' && c != '\r') rest.bytes.push_back(static_cast<std::byte>(c));
  }
  const std::string_view key = as_text(rest.bytes);
  const auto first = text.find_first_not_of(" \t");
  return key.size() < text.size() && (is_hex(key) || is_base64(text.substr(first)));
}

[[noreturn]] void unusable(const std::string& where, const std::string& why) {
  throw Error(Errc::misuse, "the secret in " + where + " cannot be used: " + why);
}

/// The bytes of a master key, however it is written.
Bytes master_bytes(BytesView content, const std::string& where) {
  const std::string_view text = trimmed(as_text(content));
  const bool hex = is_hex(text);
  if (hex || is_base64(text)) {
    Bytes bytes = hex ? from_hex(text) : from_base64(text);
    if (bytes.size() >= text_key_bytes_min) return bytes;
    const std::size_t bits = bytes.size() * 8;
    wipe(bytes);
    unusable(where, "it has " + std::to_string(bits) + " bits, and " +
                        std::to_string(text_key_bytes_min * 8) + " is the least" + how_to_make_one);
  }
  if (text.empty()) unusable(where, std::string("it is empty") + how_to_make_one);
  if (is_text(text)) {
    if (text.starts_with(byte_order_mark)) {
      unusable(where,
               "it begins with a byte order mark, as some editors put it there; save it "
               "without");
    }
    if (is_key_with_blanks(text)) {
      unusable(where, "it has a blank, which a secret has only at its end: take it out");
    }
    unusable(where, std::string("it is neither hexadecimal nor base64, and what one can remember, "
                                "others can guess") +
                        how_to_make_one);
  }
  if (content.size() < raw_key_bytes_min) {
    unusable(where, "it has " + std::to_string(content.size()) + " bytes, and " +
                        std::to_string(raw_key_bytes_min) + " is the least" + how_to_make_one);
  }
  return Bytes(content.begin(), content.end());
}

}  // namespace

void wipe(std::span<std::byte> secret) noexcept {
  // The C library's: OpenSSL's does the same, and may not be loaded.
  if (!secret.empty()) ::explicit_bzero(secret.data(), secret.size());
}

void wipe(std::string& secret) noexcept { ::explicit_bzero(secret.data(), secret.size()); }

Key::Key(View bytes) { std::copy(bytes.begin(), bytes.end(), bytes_.begin()); }

Key derive_key(BytesView from, std::string_view info) {
  std::array<std::byte, Key::size> out{};
  std::string why;
  if (!crypto().derive(from, info, out, why)) {
    throw Error(Errc::internal, "cannot derive a key: " + why);
  }
  Key key(out);
  wipe(out);
  return key;
}

Key derive_data_key(const Key& job_key, std::uint64_t incarnation, std::uint64_t epoch) {
  return derive_key(job_key.bytes(),
                    "dlaunch 1 data:" + std::to_string(incarnation) + ":" + std::to_string(epoch));
}

Mac mac_of(const Key& key, BytesView message) {
  Mac mac{};
  std::string why;
  if (crypto().authenticate(key.bytes(), message, mac, why)) return mac;
  throw Error(Errc::internal, "cannot make an HMAC: " + why);
}

bool same_mac(const Mac& one, const Mac& other) { return crypto().same(one, other); }

Secret Secret::parse(BytesView content, const std::string& where) {
  const std::string_view text = trimmed(as_text(content));
  if (!text.starts_with(job_key_prefix)) {
    const WipedBytes master{master_bytes(content, where)};
    const bool constant = std::adjacent_find(master.bytes.begin(), master.bytes.end(),
                                             std::not_equal_to<>()) == master.bytes.end();
    if (constant) unusable(where, std::string("all its bytes are the same") + how_to_make_one);
    return {derive_key(master.bytes, "dlaunch 1 master"), std::nullopt};
  }
  const std::string_view rest = text.substr(job_key_prefix.size());
  const auto colon = rest.rfind(':');
  const std::string_view encoded =
      colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  if (!is_base64(encoded)) unusable(where, "it begins as a job's key, dlk1:JOB:KEY, but is none");
  const WipedBytes bytes{from_base64(encoded)};
  if (bytes.bytes.size() != Key::size) {
    unusable(where, "it begins as a job's key, but has not the " + std::to_string(Key::size) +
                        " bytes of one; was it cut?");
  }
  return {Key(Key::View(bytes.bytes)), std::string(rest.substr(0, colon))};
}

std::vector<Secret> parse_secrets(BytesView content, const std::string& where) {
  if (!is_text(as_text(content))) return {Secret::parse(content, where)};
  std::vector<std::string_view> lines;
  for (std::string_view rest = as_text(content); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!trimmed(line).empty()) lines.push_back(line);
  }
  if (lines.size() < 2) return {Secret::parse(content, where)};
  if (lines.size() > secrets_max) {
    unusable(where, "it has " + std::to_string(lines.size()) + " lines, and " +
                        std::to_string(secrets_max) +
                        " is the most: a secret, and the one whose place it takes");
  }
  std::vector<Secret> secrets;
  for (const std::string_view line : lines) {
    const auto number = std::to_string(secrets.size() + 1);
    secrets.push_back(Secret::parse(as_bytes(line), where + ", line " + number + ","));
  }
  return secrets;
}

Key Secret::job_key(std::string_view job) const {
  if (!only_job_) return derive_key(key_.bytes(), "dlaunch 1 job:" + std::string(job));
  if (*only_job_ == job) return key_;
  throw Error(Errc::misuse, "this secret is the key of the job " + in_quotes(*only_job_) +
                                " alone, not of " + in_quotes(job));
}

std::string job_key_text(std::string_view job, const Key& key) {
  std::string encoded = to_base64(key.bytes());
  std::string text = std::string(job_key_prefix).append(job).append(":").append(encoded);
  wipe(encoded);
  return text;
}

}  // namespace dlaunch
