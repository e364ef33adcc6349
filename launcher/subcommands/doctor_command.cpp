#include "launcher/doctor/core/findings.hpp"
#include "launcher/doctor/host_clock.hpp"
#include "launcher/doctor/probes.hpp"
#include "launcher/doctor/read_host.hpp"
#include "launcher/machine/interpreter.hpp"
#include "launcher/request/option_values.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/text/take.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::launcher {
namespace {

struct Asked {
  bool json = false;
  EndpointAsked peer;
  std::vector<HostAsked> hosts;
  std::vector<std::string> ssh;
};

constexpr std::string_view options = "Options";

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Asked>>({
  {{"peer", 0, "HOST:PORT", "", options, {},
    "Also: whether it can be reached, which program answers there, and in how many ms."},
   take::by<&Asked::peer, read_endpoint>},
  {{"hosts", 0, "HOST,...", "", options, {},
    "Also: by how much the clocks of these hosts differ from this one's; they are asked over ssh."},
   take::by<&Asked::hosts, read_hosts>},
  {{"ssh", 0, "PROGRAM", "ssh -T -o BatchMode=yes", options, {},
    "The program that starts a line on a host: PROGRAM HOST LINE."},
   take::by<&Asked::ssh, read_program>},
  {{"json", 0, "", "0", options, {}, "The same as a line of JSON."}, take::flag<&Asked::json>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

std::uint16_t port_of(std::string_view text) {
  std::uint16_t port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  return port;
}

}  // namespace

const OptionTable& doctor_options() {
  static const OptionTable table(
      "dlaunch doctor",
      "Usage: dlaunch doctor [options]\n"
      "\n"
      "Looks at everything of this host that makes jobs fail, and says of each item\n"
      "whether it is ok, a warning or a problem, and what to do. Ends with 1 if there is\n"
      "a problem.\n",
      rows);
  return table;
}

EarlyExit run_doctor(std::span<const std::string> arguments) {
  Asked asked;
  GivenOptions given(doctor_options());
  std::vector<std::string> words;
  if (auto stop = given.take_arguments(arguments, {}, words)) return *std::move(stop);
  if (auto stop = given.apply(rows, asked)) return *std::move(stop);
  const auto environment = read_environment();
  doctor::HostFacts facts = doctor::read_host(environment);
  facts.python =
      doctor::probe_python(environment, environment_python(environment, launcher_path()));
  if (!asked.peer.host.empty()) {
    facts.peer = doctor::probe_peer(asked.peer.host,
                                    asked.peer.port.value_or(port_of(DLAUNCH_MEETING_PORT)));
  }
  for (const auto& host : asked.hosts) {
    if (host.name != ".") facts.clocks.push_back(doctor::probe_clock(host.name, asked.ssh));
  }
  const auto findings = doctor::judge(facts);
  // The findings go to stdout even if they are bad news.
  const int said = say_and_exit_with(
      0, asked.json ? doctor::findings_json(findings) : doctor::findings_text(findings));
  const bool well = doctor::count(findings, doctor::Level::problem) == 0;
  return {said != 0 ? said : well ? 0 : exit_code::failed, ""};
}

}  // namespace dlaunch::launcher
