#include "launcher/report/flight_report.hpp"
#include "launcher/watch/core/questions.hpp"
#include "launcher/watch/job_entry.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>

/// Any bytes as what agents ask and answer each other, `dlaunch status`, `ps` and `stop`: what
/// decodes must encode to the same bytes again, and can be shown.

namespace {

using namespace dlaunch;
using namespace dlaunch::launcher;

template <class Value>
void check(const std::optional<Value>& value, BytesView bytes) {
  if (!value || std::ranges::equal(encode(*value), bytes)) return;
  std::fputs("questions_fuzz: what was decoded encodes differently\n", stderr);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(decode_question(bytes), bytes);
  check(decode_farewell(bytes), bytes);
  if (const auto entry = decode_entry(bytes)) {
    check(entry, bytes);
    list_text({{.entry = *entry}}, WallClock::now());
    list_json({{.entry = *entry}}, WallClock::now());
  }
  const auto answer = decode_answer(bytes);
  check(answer, bytes);
  const auto snapshot = decode_snapshot(bytes);
  check(snapshot, bytes);
  JobSnapshot job = snapshot.value_or(JobSnapshot{});
  if (answer && std::holds_alternative<NodeSnapshot>(*answer)) {
    job.add(std::get<NodeSnapshot>(*answer));
  }
  // A world as large as it claims takes long to tell of who is missing.
  constexpr int shown_max = 4096;
  if (std::ranges::any_of(job.nodes, [](const auto& n) { return n.world_size > shown_max; })) {
    return 0;
  }
  flight_json(job);
  status_json(job);
  status_text(job);
  return 0;
}
