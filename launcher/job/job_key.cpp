#include "launcher/job/job_key.hpp"

#include "runtime/base/deadline.hpp"

#include <chrono>
#include <cstdlib>

namespace dlaunch::launcher {
namespace {

/// How long the descriptor's writer may take; it was started together with us.
constexpr auto descriptor_timeout = std::chrono::seconds(10);

std::optional<Secret> read_secret(const JobSpec& spec) {
  const int given = (spec.secret_file.empty() ? 0 : 1) + (spec.secret_credential.empty() ? 0 : 1) +
                    (spec.secret_fd ? 1 : 0);
  if (given > 1) {
    throw Error(Errc::misuse,
                "--secret-file, --secret-credential and --secret-fd exclude each other: give one");
  }
  if (!spec.secret_file.empty()) return read_secret_file(spec.secret_file);
  if (!spec.secret_credential.empty()) {
    return read_secret_credential(spec.secret_credential, std::getenv("CREDENTIALS_DIRECTORY"));
  }
  if (spec.secret_fd) {
    return read_secret_descriptor(*spec.secret_fd, deadline_after(descriptor_timeout));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Key> read_job_key(const JobSpec& spec) {
  if (spec.meeting.kind == Meeting::Kind::one_node) return std::nullopt;
  const auto secret = read_secret(spec);
  if (!secret) return std::nullopt;
  // A key that belongs to one job names that job, so it needs no --rdzv-id.
  return secret->job_key(spec.job_id.value_or(secret->only_job().value_or("")));
}

}  // namespace dlaunch::launcher
