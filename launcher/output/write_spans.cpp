#include "launcher/output/write_spans.hpp"

#include <algorithm>
#include <chrono>

namespace dlaunch::launcher {
namespace {

constexpr auto span_least = std::chrono::seconds(1);
constexpr int parts_of_age = 8;

}  // namespace

void WriteSpans::add(std::size_t bytes, Clock::time_point now) {
  if (!spans_.empty() && now - spans_.back().first < span_least) {
    spans_.back().last = now;
  } else {
    spans_.push_back({now, now, total_});
    merge(now);
  }
  total_ += bytes;
}

/// Two neighbours are merged if the result is short for its age.
void WriteSpans::merge(Clock::time_point now) {
  std::vector<Span> kept;
  for (const Span& span : spans_) {
    const Clock::duration longest =
        std::max<Clock::duration>(span_least, (now - span.last) / parts_of_age);
    if (!kept.empty() && span.last - kept.back().first < longest) {
      kept.back().last = span.last;
    } else {
      kept.push_back(span);
    }
  }
  if (kept.size() > spans_max) {
    kept[1].begin = kept[0].begin;
    kept[1].first = kept[0].first;
    kept.erase(kept.begin());
  }
  spans_ = std::move(kept);
}

}  // namespace dlaunch::launcher
