#pragma once

#include "rendezvous/http/page.hpp"

#include <optional>
#include <string>
#include <string_view>

/// The parts of a request that our own code reads. Pure, and total: the text may be anything.
namespace dlaunch::rendezvous {

/// A target in absolute form, "http://HOST/path", as proxies are sent it (RFC 9112, 3.2.2).
struct AbsoluteTarget {
  std::string_view host;  ///< Empty where it names none, which is wrong.
  std::string_view path;  ///< With its query; "/" where there is none.
};
/// Nullopt: the target has another form.
std::optional<AbsoluteTarget> absolute_target(std::string_view target);

/// Whether a Host header names this machine's loopback: "localhost", "127.0.0.1:29401",
/// "[::1]:8080".
bool is_loopback_host(std::string_view host);

/// The answer to a request that a browser sends on behalf of another site's page: one whose Host is
/// not loopback, so that a name of that site was made to lead here (DNS rebinding), or whose Origin
/// is another one. Nullopt: it may be answered. Programs send no Origin, and may send no Host.
std::optional<Page> refusal_of_foreign(const PageRequest& request);

/// Whether an Accept header prefers OpenMetrics to Prometheus' older text.
bool prefers_openmetrics(std::string_view accept);

/// Nullopt for a % that two hexadecimal digits do not follow.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace dlaunch::rendezvous
