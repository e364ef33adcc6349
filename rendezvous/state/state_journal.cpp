#include "rendezvous/state/state_journal.hpp"

#include <map>
#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::rendezvous {
namespace {

/// The journal of one namespace: turns its events into changes.
class Space final : public store::SpaceJournal {
 public:
  Space(Writer& writer, change::Space number, std::map<std::uint64_t, std::uint64_t> answers)
      : writer_(writer), number_(number), answers_(std::move(answers)) {}

  void stored(std::string_view key, BytesView value, std::uint64_t owner,
              std::chrono::milliseconds lease) override {
    writer_.append(
        change::Stored{number_, std::string(key), {value.begin(), value.end()}, owner, lease});
  }
  void erased(std::string_view key) override {
    writer_.append(change::Erased{number_, std::string(key)});
  }
  void pushed(std::string_view queue, BytesView value) override {
    writer_.append(change::Pushed{number_, std::string(queue), {value.begin(), value.end()}});
  }
  void popped(std::string_view queue) override {
    writer_.append(change::Popped{number_, std::string(queue)});
  }
  void completed(const store::CompleteRound& round) override {
    writer_.append(change::Completed{number_, round.gathers, std::string(round.name), round.round,
                                     round.block, std::string(round.too_big)});
  }
  void answered(std::uint64_t session, std::uint64_t request, wire::Type type,
                BytesView payload) override {
    const std::uint64_t count = answers_[session]++;
    writer_.append(
        change::Answered{number_, session, count, request, type, {payload.begin(), payload.end()}});
  }
  void forgot(std::uint64_t session) override {
    if (answers_.erase(session) != 0) writer_.append(change::Forgot{number_, session});
  }
  void dropped() override { writer_.append(change::SpaceDropped{number_}); }
  std::string refusal() const override { return writer_.refusal(); }

 private:
  Writer& writer_;
  const change::Space number_;
  std::map<std::uint64_t, std::uint64_t> answers_;  ///< How many, by session.
};

}  // namespace

StateJournal::StateJournal(boost::asio::io_context& io, std::unique_ptr<StatePlace> place,
                           Service::Log log)
    : io_(io), log_(std::move(log)), found_(place->load()) {
  writer_ = std::make_unique<Writer>(std::move(place), events());
}

StateJournal::~StateJournal() = default;

/// The callbacks run on the loop.
Writer::Events StateJournal::events() {
  return {.written =
              [this] {
                boost::asio::post(io_, [this] {
                  if (told_) told_();
                });
              },
          .failed =
              [this](const std::string& why) {
                boost::asio::post(io_, [why] { throw StateLost(Errc::internal, why); });
              },
          .log =
              [this](LogLine::Level level, const std::string& sentence) {
                boost::asio::post(io_, [this, line = LogLine{level, "", sentence}] { log_(line); });
              }};
}

std::vector<JobRecord> StateJournal::load() { return found_.jobs; }

void StateJournal::job_opened(const std::string& job, std::uint64_t incarnation) {
  writer_->append(change::JobOpened{job, incarnation});
}

void StateJournal::epoch_closed(const std::string& job, std::uint64_t epoch) {
  writer_->append(change::EpochClosed{job, epoch});
}

void StateJournal::job_finished(const std::string& job, int exit_code) {
  writer_->append(change::JobFinished{job, exit_code});
}

void StateJournal::job_forgotten(const std::string& job) {
  writer_->append(change::JobForgotten{job});
}

void StateJournal::drained(const std::string& job, const std::optional<std::string>& why) {
  writer_->append(change::Drained{job, why});
}

store::KeptSpace StateJournal::space(const std::string& job, std::uint64_t incarnation,
                                     std::uint64_t epoch) {
  if (const auto found = found_.spaces.find({job, incarnation, epoch});
      found != found_.spaces.end()) {
    StateContents::Space kept = std::move(found->second);
    found_.spaces.erase(found);
    return {std::move(kept.contents),
            std::make_unique<Space>(*writer_, kept.number, std::move(kept.answers))};
  }
  const change::Space number = found_.next_space++;
  writer_->append(change::SpaceOpened{number, job, incarnation, epoch});
  return {{}, std::make_unique<Space>(*writer_, number, std::map<std::uint64_t, std::uint64_t>())};
}

void StateJournal::forget_unclaimed() {
  for (const auto& [name, space] : std::exchange(found_.spaces, {})) {
    writer_->append(change::SpaceDropped{space.number});
  }
}

}  // namespace dlaunch::rendezvous
