#include "runtime/store/client/watched.hpp"

#include <utility>

namespace dlaunch::store {

void Watched::changed(KeyChange change) {
  known_ = true;
  last_ = change.value;
  if (changes_.size() >= unread_changes_max) changes_.pop_front();
  changes_.push_back(std::move(change));
}

void Watched::is_now(std::optional<Bytes> value) {
  if (!std::exchange(known_, true)) {
    last_ = std::move(value);
    return;
  }
  if (value == last_) return;
  const auto kind = !value   ? KeyChange::Kind::deleted
                    : !last_ ? KeyChange::Kind::created
                             : KeyChange::Kind::updated;
  changed({kind, key_, std::move(value)});
}

KeyChange Watched::take() {
  KeyChange change = std::move(changes_.front());
  changes_.pop_front();
  return change;
}

}  // namespace dlaunch::store
