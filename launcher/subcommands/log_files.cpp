#include "launcher/subcommands/log_files.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace dlaunch::launcher {
namespace {

namespace fs = std::filesystem;

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && value >= 0;
  return whole ? std::optional<int>(value) : std::nullopt;
}

/// A file in which nothing was written since then is left out whole.
std::uint64_t begin_within(Clock::duration since, const std::vector<JobRanks::LogSpan>& spans) {
  if (since == Clock::duration::zero()) return 0;
  for (const auto& span : spans) {
    if (std::chrono::milliseconds(span.age_ms) <= since) return span.begin;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

/// The names of the folders in a folder, sorted; none where it cannot be read.
std::vector<std::string> folders_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code other;
    if (at->is_directory(other)) names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The number and the epoch of "attempt_0" and "attempt_0_epoch_3"; nullopt for another name.
std::optional<std::pair<int, int>> attempt_of(std::string_view name) {
  constexpr std::string_view begins = "attempt_", within = "_epoch_";
  if (!name.starts_with(begins)) return std::nullopt;
  name.remove_prefix(begins.size());
  const auto epoch_at = name.find(within);
  const auto attempt = number(name.substr(0, epoch_at));
  if (!attempt) return std::nullopt;
  if (epoch_at == std::string_view::npos) return std::pair(*attempt, 0);
  const auto epoch = number(name.substr(epoch_at + within.size()));
  return epoch ? std::optional(std::pair(*attempt, *epoch)) : std::nullopt;
}

/// The folder of the last attempt; empty where there is none.
std::string last_attempt_in(const fs::path& directory) {
  std::map<std::pair<int, int>, std::string> attempts;
  for (auto& name : folders_in(directory)) {
    if (const auto attempt = attempt_of(name)) attempts[*attempt] = std::move(name);
  }
  return attempts.empty() ? "" : (directory / attempts.rbegin()->second).string();
}

std::vector<LogFile> log_files_of_attempt(const fs::path& directory) {
  std::vector<LogFile> files;
  std::vector<int> ranks;
  for (const auto& name : folders_in(directory)) {
    if (const auto rank = number(name)) ranks.push_back(*rank);
  }
  std::sort(ranks.begin(), ranks.end());
  for (const int rank : ranks) {
    const fs::path own = directory / std::to_string(rank);
    const std::string prefix = ranks.size() > 1 ? "[" + std::to_string(rank) + "] " : "";
    for (const auto& [stream, name] :
         {std::pair(Stream::out, "stdout.log"), std::pair(Stream::err, "stderr.log")}) {
      const std::string path = (own / name).string();
      if (::access(path.c_str(), F_OK) == 0) files.push_back({rank, stream, prefix, path, 0});
    }
  }
  return files;
}

}  // namespace

std::vector<LogFile> log_files_of(const JobRanks& ranks, Clock::duration since) {
  std::vector<LogFile> files;
  for (const auto& rank : ranks.ranks) {
    if (!rank.out_file.empty()) {
      files.push_back({rank.rank, Stream::out, rank.prefix, rank.out_file,
                       begin_within(since, rank.out_spans)});
    }
    if (!rank.err_file.empty()) {
      files.push_back({rank.rank, Stream::err, rank.prefix, rank.err_file,
                       begin_within(since, rank.err_spans)});
    }
  }
  return files;
}

Read<std::vector<LogFile>> log_files_below(const std::string& directory) {
  const fs::path given(directory);
  std::error_code error;
  if (!fs::is_directory(given, error)) {
    return Complaint{directory + " is no folder that can be read"};
  }
  std::string attempt = last_attempt_in(given);
  // A path may end in '/'.
  const fs::path own = given.has_filename() ? given : given.parent_path();
  if (attempt.empty() && attempt_of(own.filename().string())) attempt = directory;
  std::vector<std::string> jobs;
  if (attempt.empty()) {
    for (const auto& name : folders_in(given)) {
      const auto last = last_attempt_in(given / name);
      if (last.empty()) continue;
      attempt = last;
      jobs.push_back(name);
    }
  }
  if (jobs.size() > 1) {
    constexpr std::size_t shown = 8;
    return Complaint{
        directory +
        " has the logs of several jobs, or nodes; name the folder of one: " + listed(jobs, shown)};
  }
  if (attempt.empty()) {
    return Complaint{directory + " has no attempt_<n> folder, so it is none of --log-dir"};
  }
  auto files = log_files_of_attempt(attempt);
  if (files.empty()) {
    return Complaint{attempt + " has no log files; --tee 3 or --redirects 3 makes them"};
  }
  return files;
}

}  // namespace dlaunch::launcher
