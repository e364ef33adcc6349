#pragma once

#include "runtime/base/secret/crypto.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch {

/// Overwrites what must not stay in memory; the compiler cannot leave it out.
void wipe(std::span<std::byte> secret) noexcept;
void wipe(std::string& secret) noexcept;

/// 32 secret bytes, wiped when the key is destroyed. It has no output and no comparison: knowledge
/// of it is proved by TLS or by an HMAC.
class Key {
 public:
  static constexpr std::size_t size = key_bytes;
  using View = KeyView;

  explicit Key(View bytes);
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key() { wipe(bytes_); }

  View bytes() const { return bytes_; }

 private:
  std::array<std::byte, size> bytes_;
};

/// HKDF-SHA256 (RFC 5869, no salt) of a key for one purpose, which `info` names.
Key derive_key(BytesView from, std::string_view info);
/// The key of this epoch, which its ranks prove to each other. Epoch numbers start again if a
/// rendezvous has lost its memory, but `incarnation`, the use of the job's id, never repeats.
Key derive_data_key(const Key& job_key, std::uint64_t incarnation, std::uint64_t epoch);

/// HMAC-SHA256.
using Mac = std::array<std::byte, mac_bytes>;
Mac mac_of(const Key& key, BytesView message);
/// Compares in a time that does not depend on the bytes.
bool same_mac(const Mac& one, const Mac& other);

/// The content of a secret file: the master key, from which each job's key is derived, or the key
/// of one job alone.
class Secret {
 public:
  /// `content` is a job's key as job_key_text writes it, or a master key: hexadecimal or base64
  /// text of at least 128 bits, or else at least 32 bytes that are not text. `where` names it in
  /// messages, which never quote it. Throws Error{misuse} with what to do instead.
  static Secret parse(BytesView content, const std::string& where);

  /// That job's key. Throws Error{misuse} where this is the key of another job alone.
  Key job_key(std::string_view job) const;
  /// The only job whose key this is; nullopt for a master key.
  const std::optional<std::string>& only_job() const { return only_job_; }

 private:
  Secret(Key key, std::optional<std::string> only_job)
      : key_(std::move(key)), only_job_(std::move(only_job)) {}
  Key key_;
  std::optional<std::string> only_job_;
};

/// "dlk1:<job>:<base64>", which Secret::parse reads: gives away one job's key instead of all.
std::string job_key_text(std::string_view job, const Key& key);

/// A regular file that belongs to this user or root, and to which nobody else has access.
Secret read_secret_file(const std::string& path);
/// A systemd credential; `directory` is the value of CREDENTIALS_DIRECTORY, null if it is not set.
/// systemd sees to who may read it.
Secret read_secret_credential(const std::string& name, const char* directory);
/// An inherited descriptor, a pipe perhaps, which is read to its end and closed. Throws
/// Error{timeout} when the end has not come by the deadline.
Secret read_secret_descriptor(int fd, Clock::time_point deadline);

}  // namespace dlaunch
