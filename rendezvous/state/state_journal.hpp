#pragma once

#include "rendezvous/service/job_journal.hpp"
#include "rendezvous/service/service.hpp"
#include "rendezvous/state/writer.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

/// Keeps jobs and keys in a place, over restarts and crashes. One thread: that of `io`.
class StateJournal final : public JobJournal, private store::Commits {
 public:
  /// `io` and `log` outlive this; `io` does not run after this has ended. Throws Error as
  /// StatePlace::load. Should writing fail later, io.run() throws StateLost.
  StateJournal(boost::asio::io_context& io, std::unique_ptr<StatePlace> place, Service::Log log);
  ~StateJournal() override;

  std::vector<JobRecord> load() override;
  void job_opened(const std::string& job, std::uint64_t incarnation) override;
  void epoch_closed(const std::string& job, std::uint64_t epoch) override;
  void job_finished(const std::string& job, int exit_code) override;
  void job_forgotten(const std::string& job) override;
  void drained(const std::string& job, const std::optional<std::string>& why) override;
  std::string refusal() const override { return writer_->lasting_refusal(); }
  std::string trouble() const override { return writer_->trouble(); }
  std::uint64_t memory() const override { return found_.memory; }
  store::KeptSpace space(const std::string& job, std::uint64_t incarnation,
                         std::uint64_t epoch) override;
  void forget_unclaimed() override;
  store::Commits* commits() override { return this; }
  std::optional<Clock::time_point> held_since() const override { return writer_->held_since(); }
  bool await_durable(std::uint64_t recorded, Clock::time_point deadline) override {
    return writer_->await_durable(recorded - 1, deadline);
  }
  std::string back_up(const std::string& name) override { return writer_->back_up(name); }
  BackupStatus backup() const override { return writer_->backup(); }
  std::optional<StateFigures> figures() const override { return writer_->figures(); }

 private:
  /// Reports one change more than there are, durable only while the place is ours. So while it is
  /// not, even messages that follow from no change wait.
  std::uint64_t recorded() const override { return writer_->recorded() + 1; }
  std::uint64_t durable() const override { return writer_->is_ours() ? writer_->durable() + 1 : 0; }
  void seal() override { writer_->seal(); }
  std::uint64_t recorded_bytes() const override { return writer_->recorded_bytes(); }
  std::uint64_t durable_bytes() const override { return writer_->durable_bytes(); }
  bool stuck() const override { return writer_->blocked(); }
  void on_durable(std::function<void()> told) override { told_ = std::move(told); }
  Writer::Events events();

  boost::asio::io_context& io_;
  const Service::Log log_;
  StateContents found_;  ///< Contents that nobody has asked for yet.
  std::function<void()> told_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace dlaunch::rendezvous
