#pragma once

#include <string>
#include <string_view>

namespace dlaunch {

/// The place and manner in which a world meets, as World::init takes it. Pure.
struct InitUrl {
  enum class Scheme { dlaunch, env, tcp, file };
  Scheme scheme = Scheme::env;
  std::string host;  ///< tcp: without the brackets of an IPv6 address.
  int port = 0;      ///< tcp.
  std::string path;  ///< file.
  int rank = -1;     ///< tcp, file: -1 where the URL does not say.
  int world_size = -1;
};

/// dlaunch://, env://, tcp://host:port, tcp://[::1]:port, file://path; the last two with an
/// optional ?rank=R&world_size=N. Throws Error{misuse} with what is wrong.
InitUrl parse_init_url(std::string_view url);

}  // namespace dlaunch
