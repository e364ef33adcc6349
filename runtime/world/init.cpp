#include "runtime/base/deadline.hpp"
#include "runtime/base/os/identity.hpp"
#include "runtime/world/join.hpp"
#include "runtime/world/local_store.hpp"
#include "runtime/world/member/info.hpp"
#include "runtime/world/member/url.hpp"
#include "runtime/world/table_file.hpp"

#include <dlaunch/world.hpp>

namespace dlaunch {
namespace {

Joining joining_of(WorldPlace place, const Environment& environment, const InitOptions& options,
                   const std::string& url) {
  Joining joining;
  if (const auto found = environment.find(table_variable); found != environment.end()) {
    joining.table = found->second;
  }
  joining.place = std::move(place);
  joining.place.info.hostname = own_hostname();
  joining.place.info.init_method = url;
  joining.options = options;
  joining.deadline = deadline_after(options.timeout);
  return joining;
}

World world_of_one(WorldPlace place, const std::string& url) {
  place.info.hostname = own_hostname();
  place.info.init_method = url;
  return World(std::move(place.info), std::make_shared<LocalStore>());
}

World init_from_agent(const Environment& environment, const InitOptions& options) {
  Joining joining =
      joining_of(place_from(environment, Launcher::dlaunch), environment, options, "dlaunch://");
  const auto link = join_agent(environment, joining);
  return form_world(link, std::move(joining));
}

/// torchrun has its own store on MASTER_PORT, where rank 0 would have to listen.
void refuse_torchrun_port(const Environment& environment) {
  const auto found = environment.find("TORCHELASTIC_USE_AGENT_STORE");
  if (found == environment.end() || found->second != "True") return;
  throw Error(Errc::unsupported,
              "this process was started by torchrun, whose own store holds MASTER_PORT: start it "
              "with dlaunch, or join by the URL tcp://host:port with a port that is free "
              "(rank and size are taken from torchrun's variables)");
}

World init_from_variables(const Environment& environment, const InitOptions& options) {
  const Launcher launcher = launcher_of(environment);
  if (launcher == Launcher::dlaunch) return init_from_agent(environment, options);
  Asked asked;
  asked.master = true;
  WorldPlace place = place_from(environment, launcher, asked);
  if (place.info.size == 1) return world_of_one(std::move(place), "env://");
  refuse_torchrun_port(environment);
  Joining joining = joining_of(std::move(place), environment, options, "env://");
  joining.by_hand = true;
  const auto link = join_by_address(joining);
  return form_world(link, std::move(joining));
}

World init_from_url(const InitUrl& parsed, const std::string& url, const InitOptions& options) {
  const Environment environment = current_environment();
  Asked asked;
  asked.rank = parsed.rank >= 0 ? parsed.rank : options.rank;
  asked.size = parsed.world_size >= 0 ? parsed.world_size : options.world_size;
  const Launcher launcher = launcher_of(environment);
  WorldPlace place = place_from(environment, launcher, asked);
  if (parsed.scheme == InitUrl::Scheme::tcp) {
    place.info.master_addr = parsed.host;
    place.info.master_port = std::to_string(parsed.port);
  }
  if (place.info.size == 1) return world_of_one(std::move(place), url);
  Joining joining = joining_of(std::move(place), environment, options, url);
  joining.by_hand = true;
  const auto link = parsed.scheme == InitUrl::Scheme::tcp ? join_by_address(joining)
                                                          : join_by_file(parsed.path, joining);
  return form_world(link, std::move(joining));
}

}  // namespace

World World::init(std::string_view url, const InitOptions& options) {
  const InitUrl parsed = parse_init_url(url);
  switch (parsed.scheme) {
    case InitUrl::Scheme::dlaunch:
      return init_from_agent(current_environment(), options);
    case InitUrl::Scheme::env:
      return init_from_variables(current_environment(), options);
    case InitUrl::Scheme::tcp:
    case InitUrl::Scheme::file:
      return init_from_url(parsed, std::string(url), options);
  }
  throw Error(Errc::internal, "an init URL of no known kind");
}

World World::from_env(const InitOptions& options) {
  const Environment environment = current_environment();
  if (launcher_of(environment) == Launcher::none) return world_of_one({}, "env://");
  return init_from_variables(environment, options);
}

}  // namespace dlaunch
