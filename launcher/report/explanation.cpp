#include "launcher/report/explanation.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/base/text/control.hpp"

#include <algorithm>
#include <array>
#include <csignal>

namespace dlaunch::launcher {
namespace {

/// What PyTorch says where it was built without libuv, as Debian's is from 2.2 on: it cannot be a
/// client of any launcher's store.
constexpr std::string_view no_libuv = "use_libuv was requested but PyTorch was buil";

std::string why_killed(const std::optional<MemoryKills>& kills) {
  if (!kills) {
    return "dlaunch did not send this signal; the kernel does when memory runs out (see dmesg)";
  }
  if (kills->count == 0) {
    return "neither dlaunch nor, for lack of memory, the kernel sent this signal (oom_kill in " +
           kills->file + " has not grown)";
  }
  const std::string many = std::to_string(kills->count) + " processes";
  return "memory ran out: the kernel killed " + (kills->count == 1 ? "a process" : many) +
         " meanwhile (oom_kill in " + kills->file + ")";
}

/// The usual meaning of an end whose own words do not say it.
std::string why(const WorkerEnd& end, const std::optional<MemoryKills>& kills) {
  for (const auto& line : end.last_lines) {
    if (line.find(no_libuv) == std::string::npos) continue;
    return "this PyTorch has no libuv, so its ranks cannot use a launcher's store; they meet with "
           "USE_LIBUV=0 in the environment and --torch-store rank0";
  }
  switch (end.stopped_by_us ? 0 : end.status.signal) {
    case SIGKILL:
      return why_killed(kills);
    case SIGBUS:
      return "often a full /dev/shm, or a file that was truncated while mapped";
    case SIGILL:
      return "often a program built for another CPU";
    default:
      break;
  }
  // The killed process may be a rank's child, such as a data loader.
  return kills && kills->count > 0 && end.failed() ? why_killed(kills) : "";
}

/// Whether its words are those of a library that lost another rank: gloo's, or a socket's.
bool tells_lost_peer(const WorkerEnd& end) {
  constexpr std::array<std::string_view, 3> words = {"Connection closed by peer",
                                                     "Connection reset by peer", "Broken pipe"};
  return std::ranges::any_of(end.last_lines, [&](const std::string& line) {
    return std::ranges::any_of(words, [&](auto word) { return line.find(word) != line.npos; });
  });
}

/// The explanation for a rank that, by its own words, lost a peer, and a peer that had left before.
std::string why_lost(const WorkerEnd& culprit, const FailureSummary& summary) {
  if (!culprit.failed() || !tells_lost_peer(culprit)) return "";
  std::vector<int> left;
  for (const auto& end : summary.ends) {
    if (&end != &culprit && end.status.succeeded() && end.time <= culprit.time) {
      left.push_back(end.rank);
    }
  }
  if (left.empty()) return "";
  return "it lost another rank; " + ranks_text(left) + " had exited with 0 before";
}

/// The explanation for gloo's ranks that told those of other hosts a loopback address: PyTorch
/// takes the one to which a host's own name leads.
std::string why_at_loopback(const WorkerEnd& culprit, const FailureSummary& summary) {
  const auto says = [&](std::string_view words) {
    return std::ranges::any_of(culprit.last_lines, [&](const std::string& line) {
      return line.find(words) != std::string::npos;
    });
  };
  const bool at_loopback = says("remote=[127.") || says("remote=[::1]");
  if (!summary.several_nodes || !says("connectFullMesh") || !at_loopback) return "";
  return "gloo went to a loopback address, at which no rank of another host is: a host's own name "
         "leads there (/etc/hosts); GLOO_SOCKET_IFNAME=eth0, or what the interface to the others "
         "is called, sets it right";
}

/// The explanation for a rank that printed to a pipe without a reader: for the signal, for a shell
/// that tells of it, and for Python, which ignores the signal. A worker that is alone writes its
/// traceback past us; then the code has to do.
std::string why_unread(const WorkerEnd& culprit, const FailureSummary& summary) {
  if (summary.reader_gone.empty() || !culprit.failed()) return "";
  const bool told = std::ranges::any_of(culprit.last_lines, [](const std::string& line) {
    return line.find("BrokenPipeError") != std::string::npos;
  });
  const int code = culprit.status.shell_code();
  const bool like_python = culprit.last_lines.empty() && (code == 1 || code == 120);
  if (code != 128 + SIGPIPE && !told && !like_python) return "";
  return "the reader of dlaunch's " + summary.reader_gone +
         " has gone, as behind 'dlaunch ... | head': a rank that prints there ends";
}

/// What the first rank to complain of the culprits said, which others may repeat.
std::string why_blamed(const WorkerEnd& culprit, const FailureSummary& summary) {
  constexpr std::size_t shown = 400;
  const WorkerEnd* first = nullptr;
  for (const auto& end : summary.ends) {
    const bool fits = std::ranges::any_of(
        end.blames, [&](int rank) { return std::ranges::count(summary.culprits, rank) > 0; });
    if (end.complaint.empty() || !fits) continue;
    if (first == nullptr || end.complained < first->complained) first = &end;
  }
  if (first == nullptr || !summary.is_told_by_others) return "";
  // The culprit may be the one who said so, and its words are in the block.
  const bool known = std::ranges::any_of(culprit.last_lines, [&](const std::string& line) {
    return line.find(first->complaint) != std::string::npos;
  });
  if (known) return "";
  const bool cut = first->complaint.size() > shown;
  return "rank " + std::to_string(first->rank) +
         " said: " + without_controls(first->complaint.substr(0, shown)) + (cut ? "..." : "");
}

}  // namespace

std::string explanation_of(const WorkerEnd& culprit, const FailureSummary& summary) {
  for (auto text : {why_unread(culprit, summary), why_at_loopback(culprit, summary),
                    why(culprit, summary.memory_kills), why_blamed(culprit, summary),
                    why_lost(culprit, summary)}) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace dlaunch::launcher
