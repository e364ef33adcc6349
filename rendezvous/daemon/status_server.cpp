#include "rendezvous/daemon/status_server.hpp"

#include "rendezvous/control/action_pages.hpp"
#include "rendezvous/http/request.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/phrases.hpp"

#include <chrono>
#include <csignal>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace dlaunch::rendezvous {

namespace {

/// The most rendered pages of one snapshot that are kept.
constexpr std::size_t rendered_max = 64;

std::int64_t wall_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

/// Leaves signals to the loop's thread.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

StatusServer::StatusServer(boost::asio::io_context& loop, unique_fd listener, Snapshots::Look look,
                           ActionDoor::Act act, HttpServer::Trouble trouble)
    : events_(std::make_shared<EventRing>(fmt::format("{:08x}", random_number() & 0xffffffffu))),
      snapshots_(loop, std::move(look)),
      actions_(loop, std::move(act)),
      trouble_([&loop, trouble = std::move(trouble)](const std::string& sentence) {
        boost::asio::post(loop, [trouble, sentence] {
          try {
            trouble(sentence);
          } catch (const std::exception&) {  // There is no memory for telling it.
          }
        });
      }),
      http_(
          io_, std::move(listener),
          [this](const PageRequest& request) { return counted_page(request); }, trouble_),
      thread_([this] {
        block_signals();
        http_.run();
      }) {}

StatusServer::~StatusServer() {
  snapshots_.stop();
  actions_.stop();
  io_.stop();
}

void StatusServer::turned(std::string unready, BackupStatus backup) {
  const std::lock_guard lock(mutex_);
  turned_ = Clock::now();
  unready_ = std::move(unready);
  backup_ = std::move(backup);
}

void StatusServer::admit(std::shared_ptr<const Operators> operators) {
  const std::lock_guard lock(mutex_);
  operators_ = std::move(operators);
}

void StatusServer::note(const LogLine& line) {
  if (line.event == LogLine::Event::other) return;
  events_->add(event_json(line, wall_ms()));
  if (news_posted_.exchange(true)) return;
  try {
    boost::asio::post(io_, [this] {
      news_posted_ = false;
      http_.news();
    });
  } catch (const std::exception&) {
    news_posted_ = false;  // The next event tries it again.
  }
}

void StatusServer::stop() {
  snapshots_.stop();
  actions_.stop();
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

BackupStatus StatusServer::backup() {
  const std::lock_guard lock(mutex_);
  return backup_;
}

Page StatusServer::counted_page(const PageRequest& request) {
  const auto began = Clock::now();
  Page page = page_for(request);
  page_times_.add(Clock::now() - began);
  return page;
}

/// A request that may not act is logged here; an action is logged where it is carried out.
Page StatusServer::answer_to_action(const PageRequest& request) {
  std::shared_ptr<const Operators> operators;
  {
    const std::lock_guard lock(mutex_);
    operators = operators_;
  }
  auto asked = action_of(request, operators.get());
  if (auto* page = std::get_if<Page>(&asked)) {
    if (page->code == 401 || page->code == 403) note_denial(request, *page);
    return std::move(*page);
  }
  return outcome_page(actions_.act(std::get<Action>(std::move(asked))));
}

/// Anybody with an account here can cause denials, so the log has one line a minute.
void StatusServer::note_denial(const PageRequest& request, const Page& page) {
  ++actions_denied_;
  const auto now = Clock::now();
  if (denials_told_ && now < *denials_told_ + denials_period) {
    ++denials_untold_;
    return;
  }
  denials_told_ = now;
  const auto before = std::exchange(denials_untold_, 0);
  trouble_(fmt::format("action denied: {} {} (from {}): {}{}", request.method,
                       clipped(request.target), request.peer,
                       page.body.substr(0, page.body.find('\n')),
                       before == 0 ? "" : fmt::format(" (and {} before it)", before)));
}

Page StatusServer::page_for(const PageRequest& request) {
  if (auto refusal = refusal_of_foreign(request)) {
    if (is_action(request)) note_denial(request, *refusal);
    return *std::move(refusal);
  }
  if (is_action(request)) return answer_to_action(request);
  const bool of_jobs = request.target.starts_with(jobs_path);
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
                                  process_figures(), actions_denied_};
          },
      .unhealthy = [this] { return unhealthy(); },
      .unready = [this] { return unready(); },
      .backup = [this] { return backup(); },
      .events =
          [this](std::string_view last) { return std::make_shared<EventFeed>(events_, last); }};
  Page page = page_at(request, source);
  if (of_jobs && rendered_from_ && rendered_.size() < rendered_max) {
    rendered_.emplace(request.target, page);
  }
  return page;
}

}  // namespace dlaunch::rendezvous
