#include "launcher/hang/flight_dumps.hpp"

#include "launcher/hang/open_call.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr off_t json_bytes_max = 16 << 20;
constexpr auto look_again = std::chrono::milliseconds(50);

std::string value_of(const RecordingRank& rank, std::string_view name) {
  const auto found = rank.variables.find(name);
  return found == rank.variables.end() ? "" : found->second;
}

bool records(const RecordingRank& rank) {
  for (const auto* name : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}) {
    if (const auto size = value_of(rank, name); !size.empty()) return std::atol(size.c_str()) > 0;
  }
  return rank.has_nccl;
}

/// The files into which PyTorch may dump: the configured one, else the defaults of its versions.
std::vector<std::string> files_of(const RecordingRank& rank) {
  const std::string number = std::to_string(rank.rank);
  for (const auto* name : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}) {
    if (const auto stem = value_of(rank, name); !stem.empty()) return {stem + number};
  }
  std::string cache = value_of(rank, "XDG_CACHE_HOME");
  if (cache.empty()) cache = value_of(rank, "HOME") + "/.cache";
  return {cache + "/torch/comm_lib_trace_rank_" + number,
          cache + "/torch/nccl_trace_rank_" + number, "/tmp/nccl_trace_rank_" + number};
}

struct Written {
  timespec at{};
  off_t size = 0;
  bool operator==(const Written& other) const {
    return at.tv_sec == other.at.tv_sec && at.tv_nsec == other.at.tv_nsec && size == other.size;
  }
};

std::optional<Written> written(const std::string& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0) {
    return std::nullopt;
  }
  return Written{found.st_mtim, found.st_size};
}

/// Writes a word into the pipe at which the rank listens.
bool ask_for_dump(const RecordingRank& rank) {
  const std::string stem = value_of(rank, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  if (stem.empty()) return false;
  const std::string pipe = stem + std::to_string(rank.rank) + ".pipe";
  const unique_fd fd(::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  if (!fd || ::fstat(fd.get(), &found) != 0 || !S_ISFIFO(found.st_mode)) return false;
  return ::write(fd.get(), "1\n", 2) == 2;
}

Clock::duration age_of(const Written& what) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto whole = std::chrono::seconds(now.tv_sec - what.at.tv_sec) +
                     std::chrono::nanoseconds(now.tv_nsec - what.at.tv_nsec);
  return std::max<Clock::duration>(whole, Clock::duration::zero());
}

std::string last_open_of(const std::string& file, const Written& what) {
  if (what.size > json_bytes_max) return "";
  std::ifstream in(file, std::ios::binary);
  if (in.peek() != '{') return "";  // A pickle: reading one can run any code.
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return last_open_call(text).value_or("");
}

}  // namespace

std::vector<FlightDump> flight_dumps(const std::vector<RecordingRank>& ranks,
                                     Clock::time_point deadline) {
  struct Expected {
    const RecordingRank* rank;
    std::vector<std::string> files;
    std::vector<std::optional<Written>> before;
    bool asked = false;
    bool is_new() const {
      for (std::size_t i = 0; i < files.size(); ++i) {
        const auto now = written(files[i]);
        if (now && !(now == before[i])) return true;
      }
      return false;
    }
  };
  std::vector<Expected> all;
  for (const auto& rank : ranks) {
    if (!records(rank)) continue;
    Expected one{.rank = &rank, .files = files_of(rank), .before = {}};
    for (const auto& file : one.files) one.before.push_back(written(file));
    one.asked = ask_for_dump(rank);
    all.push_back(std::move(one));
  }
  const auto missing = [](const Expected& one) { return one.asked && !one.is_new(); };
  while (std::ranges::any_of(all, missing) && Clock::now() < deadline) {
    ::poll(nullptr, 0, poll_timeout_ms(std::min(deadline, Clock::now() + look_again)));
  }
  std::vector<FlightDump> dumps;
  for (const auto& one : all) {
    for (const auto& file : one.files) {
      const auto what = written(file);
      if (!what || Clock::now() - age_of(*what) < one.rank->since) continue;
      dumps.push_back({one.rank->rank, file, age_of(*what), last_open_of(file, *what)});
      break;
    }
  }
  return dumps;
}

}  // namespace dlaunch::launcher
