#include "rendezvous/control/action_pages.hpp"
#include "rendezvous/daemon/events.hpp"
#include "rendezvous/daemon/log.hpp"
#include "rendezvous/daemon/status_pages.hpp"
#include "rendezvous/http/request.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <fcntl.h>
#include <unistd.h>

/// Any bytes as a request to the status pages: Beast reads them, as in HttpServer, and what it
/// makes of them goes through all that our own code reads of a request. A request of another site's
/// page is refused; every other one has an answer. What was asked goes into the log, too, whose
/// lines are whole and have an end.

namespace {

using namespace dlaunch::rendezvous;
namespace http = boost::beast::http;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "http_fuzz: %s\n", what);
  std::abort();
}

DaemonStatus sample() {
  DaemonStatus status;
  NamedJobStatus job;
  job.job = "a job";
  job.status.nodes = {{"a", "host-a", NodeStatus::State::running, 0, 0, 8, {}}};
  status.jobs = {job};
  return status;
}

const StatusSource& source() {
  static const auto status = std::make_shared<const DaemonStatus>(sample());
  static const auto ring = [] {
    auto filled = std::make_shared<EventRing>("boot");
    for (int i = 0; i < 3; ++i) filled->add("{}");
    return filled;
  }();
  static const StatusSource all{
      .status = [] { return status; },
      .figures = [] { return ServingFigures{}; },
      .unhealthy = [] { return std::string(); },
      .unready = [] { return std::string(); },
      .backup = [] { return BackupStatus{}; },
      .events = [](std::string_view last) { return std::make_shared<EventFeed>(ring, last); }};
  return all;
}

constexpr std::string_view token = "0123456789abcdef";

const Operators& operators() {
  static const auto all = Operators::parse("ada " + std::string(token), "here");
  return all;
}

/// A line about a job of any name, in both forms.
void log_line_of(std::string_view job) {
  static const auto pipe = [] {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) fail("no pipe");
    return ends;
  }();
  constexpr std::size_t line_bytes_max = 4096;  // PIPE_BUF: it is written as a whole.
  std::array<char, 2 * line_bytes_max> read{};
  for (const auto form : {Log::Form::text, Log::Form::json}) {
    Log log(pipe[1]);
    log.set_form(form);
    log.write({.level = LogLine::Level::warning,
               .job = std::string(job),
               .sentence = "action: " + std::string(job)});
    const auto size = ::read(pipe[0], read.data(), read.size());
    if (size <= 0 || size > static_cast<ssize_t>(line_bytes_max)) fail("a line that is too long");
    const std::string_view line(read.data(), static_cast<std::size_t>(size));
    if (line.find('\n') != line.size() - 1) fail("not one line");
  }
}

std::string_view text_of(auto view) { return {view.data(), view.size()}; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(8u << 10);
  parser.eager(false);
  boost::system::error_code error;
  parser.put(boost::asio::buffer(data, size), error);
  if (error || !parser.is_header_done()) return 0;
  const auto& read = parser.get();
  const PageRequest request{.target = text_of(read.target()),
                            .host = text_of(read[http::field::host]),
                            .origin = text_of(read[http::field::origin]),
                            .accept = text_of(read[http::field::accept]),
                            .last_event_id = text_of(read["Last-Event-ID"]),
                            .method = text_of(read.method_string()),
                            .authorization = text_of(read[http::field::authorization]),
                            .peer = "127.0.0.1:1"};
  const auto refusal = refusal_of_foreign(request);
  // A name that a browser looks up may lead here; a number does not.
  const bool named = request.host.find_first_not_of("0123456789.:[]") != std::string_view::npos;
  const bool local = request.host.size() >= 9 && is_loopback_host(request.host);
  if (!refusal && named && !local) fail("a foreign name was let in");
  if (!refusal && request.origin.find("evil") != std::string_view::npos) {
    fail("a foreign page was let in");
  }
  if (refusal) return 0;
  log_line_of(request.target);
  if (is_action(request)) {
    const auto asked = action_of(request, &operators());
    const auto* action = std::get_if<Action>(&asked);
    if (action != nullptr && request.authorization.find(token) == std::string_view::npos) {
      fail("an action without a token");
    }
    if (action != nullptr && action->reason.size() > reason_bytes_max) fail("a long reason");
    if (action != nullptr && action->job.size() + action->node.size() > 2 * name_bytes_max) {
      fail("a long name");
    }
    return 0;
  }
  const Page page = page_at(request, source());
  if (page.code != 200 && page.code != 400 && page.code != 404) fail("an unknown answer");
  if (page.feed && page.feed->next().size() > (128u << 10)) fail("a long piece");
  return 0;
}
