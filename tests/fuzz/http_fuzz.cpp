#include "rendezvous/control/action_pages.hpp"
#include "rendezvous/daemon/events.hpp"
#include "rendezvous/daemon/status_pages.hpp"
#include "rendezvous/http/request.hpp"

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

/// Any bytes as a request to the status pages: Beast reads them, as in HttpServer, and what it
/// makes of them goes through all that our own code reads of a request. A request of another site's
/// page is refused; every other one has an answer.

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
  if (is_action(request)) {
    const auto asked = action_of(request, &operators());
    const auto* action = std::get_if<Action>(&asked);
    if (action != nullptr && request.authorization.find(token) == std::string_view::npos) {
      fail("an action without a token");
    }
    if (action != nullptr && action->reason.size() > reason_bytes_max) fail("a long reason");
    return 0;
  }
  const Page page = page_at(request, source());
  if (page.code != 200 && page.code != 400 && page.code != 404) fail("an unknown answer");
  if (page.feed && page.feed->next().size() > (128u << 10)) fail("a long piece");
  return 0;
}
