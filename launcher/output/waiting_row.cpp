#include "launcher/output/waiting_row.hpp"

#include "runtime/base/phrases.hpp"

#include <utility>

namespace dlaunch::launcher {
namespace {

constexpr auto redrawn_every = std::chrono::seconds(1);

}  // namespace

void WaitingRow::show(std::string sentence) {
  end();
  if (!console_.shows_rows()) return console_.say(sentence);
  sentence_ = std::move(sentence);
  since_ = Clock::now();
  draw();
}

void WaitingRow::change(std::string sentence) {
  if (sentence_.empty() || sentence_ == sentence) return;
  sentence_ = std::move(sentence);
  draw();
}

void WaitingRow::end() {
  timer_.cancel();
  if (!std::exchange(sentence_, {}).empty()) console_.end_row();
}

void WaitingRow::draw() {
  const auto waited = Clock::now() - since_;
  console_.show_row(sentence_ +
                    (waited < redrawn_every ? "" : "; " + age_text(waited) + " so far"));
  timer_.expires_after(redrawn_every);
  timer_.async_wait([this](auto error) {
    if (!error && !sentence_.empty()) draw();
  });
}

}  // namespace dlaunch::launcher
