#include "rendezvous/daemon/status_server.hpp"

#include "rendezvous/http/request.hpp"
#include "runtime/base/os/random.hpp"

#include <chrono>
#include <csignal>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace dlaunch::rendezvous {

namespace {

/// So many pages of one snapshot are kept.
constexpr std::size_t rendered_max = 64;

std::int64_t wall_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

/// Signals are the loop's.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

StatusServer::StatusServer(boost::asio::io_context& loop, unique_fd listener, Snapshots::Look look,
                           HttpServer::Trouble trouble)
    : events_(std::make_shared<EventRing>(fmt::format("{:08x}", random_number() & 0xffffffffu))),
      snapshots_(loop, std::move(look)),
      http_(
          io_, std::move(listener),
          [this](const PageRequest& request) { return counted_page(request); },
          [&loop, trouble = std::move(trouble)](const std::string& sentence) {
            boost::asio::post(loop, [trouble, sentence] { trouble(sentence); });
          }),
      thread_([this] {
        block_signals();
        io_.run();
      }) {}

StatusServer::~StatusServer() {
  snapshots_.stop();
  io_.stop();
}

void StatusServer::turned(std::string unready) {
  const std::lock_guard lock(mutex_);
  turned_ = Clock::now();
  unready_ = std::move(unready);
}

void StatusServer::note(const LogLine& line) {
  if (line.event == LogLine::Event::other) return;
  events_->add(event_json(line, wall_ms()));
  if (news_posted_.exchange(true)) return;
  boost::asio::post(io_, [this] {
    news_posted_ = false;
    http_.news();
  });
}

void StatusServer::stop() {
  snapshots_.stop();
  boost::asio::post(io_, [this] { http_.stop(); });
}

// ---- On the thread of the pages ----

std::string StatusServer::unhealthy() {
  const std::lock_guard lock(mutex_);
  const auto still = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - turned_);
  if (still < standstill_max) return "";
  return fmt::format("the loop that serves the agents has stood still for {} s", still.count());
}

std::string StatusServer::unready() {
  const std::lock_guard lock(mutex_);
  return unready_;
}

Page StatusServer::counted_page(const PageRequest& request) {
  const auto began = Clock::now();
  Page page = page_for(request);
  page_times_.add(Clock::now() - began);
  return page;
}

Page StatusServer::page_for(const PageRequest& request) {
  if (auto refusal = refusal_of_foreign(request)) return *std::move(refusal);
  const bool of_jobs = request.target.starts_with("/api/");
  if (of_jobs) {
    auto latest = snapshots_.get();
    if (latest != rendered_from_) rendered_.clear();
    rendered_from_ = std::move(latest);
    const auto found = rendered_.find(request.target);
    if (found != rendered_.end()) return found->second;
  }
  const StatusSource source{
      .status = [&] { return of_jobs ? rendered_from_ : snapshots_.get(); },
      .figures =
          [this] {
            return ServingFigures{http_.connections(), http_.followers(), page_times_,
                                  process_figures()};
          },
      .unhealthy = [this] { return unhealthy(); },
      .unready = [this] { return unready(); },
      .events =
          [this](std::string_view last) { return std::make_shared<EventFeed>(events_, last); }};
  Page page = page_at(request, source);
  if (of_jobs && rendered_from_ && rendered_.size() < rendered_max) {
    rendered_.emplace(request.target, page);
  }
  return page;
}

}  // namespace dlaunch::rendezvous
