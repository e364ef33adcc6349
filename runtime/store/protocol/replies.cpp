#include "runtime/store/protocol/replies.hpp"

#include <algorithm>

namespace dlaunch::store {
namespace {

constexpr std::size_t big_bytes_max = wire::frame_bytes_max;

}  // namespace

std::optional<Replies::Reply> Replies::find(std::uint64_t request) const {
  if (request > highest_) return std::nullopt;
  const auto kept = std::ranges::find(kept_, request, &Kept::request);
  if (kept == kept_.end()) return std::nullopt;
  const BytesView payload =
      kept->big.empty() ? BytesView(kept->small).first(kept->small_size) : BytesView(kept->big);
  return Reply{kept->type, payload, kept->forgotten};
}

void Replies::remember(std::uint64_t request, wire::Type type, BytesView payload) {
  highest_ = std::max(highest_, request);
  if (kept_.size() >= wire::unanswered_changes_max) {
    big_bytes_ -= kept_.front().big.size();
    kept_.pop_front();
  }
  Kept& kept = kept_.emplace_back();
  kept.request = request;
  kept.type = type;
  if (payload.size() <= kept.small.size()) {
    std::ranges::copy(payload, kept.small.begin());
    kept.small_size = static_cast<std::uint8_t>(payload.size());
    return settle();
  }
  kept.big.assign(payload.begin(), payload.end());
  big_bytes_ += kept.big.size();
  if (big_bytes_ > big_bytes_max) forget_big();
  settle();
}

void Replies::settle() { charge_.set(sizeof(Replies) + kept_.size() * sizeof(Kept) + big_bytes_); }

/// Keeps the newest, however big it is.
void Replies::forget_big() {
  for (auto kept = kept_.begin(); kept + 1 != kept_.end() && big_bytes_ > big_bytes_max; ++kept) {
    if (kept->big.empty()) continue;
    big_bytes_ -= kept->big.size();
    Bytes().swap(kept->big);
    kept->forgotten = true;
  }
}

}  // namespace dlaunch::store
