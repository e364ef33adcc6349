#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch::process_test {

/// Why no network can be made here, as a sentence; nullopt where it can.
std::optional<std::string> network_unavailable();

/// Machines on one network: namespaces, each with a host name, a loopback and an "eth0" that leads
/// to a bridge in a namespace of its own. They have no files: they end with this object, or with
/// the test's process, however that ends. Connections are cut on the bridge: a machine notices it
/// only by what does not arrive.
class Network {
 public:
  enum class Family { v4, v6, both };
  explicit Network(int machines, Family family = Family::v4);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  static std::string host(int machine);       ///< "a", "b" and so on.
  std::string address(int machine) const;     ///< 10.77.0.1 and so on.
  std::string address_v6(int machine) const;  ///< fd77::1 and so on.
  /// A command line that runs `command` on the machine, in the process that runs the line.
  std::vector<std::string> on(int machine, const std::vector<std::string>& command) const;
  /// The same, with files of its own in the place of some of the system's, by path.
  using Files = std::vector<std::pair<std::string, std::string>>;
  std::vector<std::string> on(int machine, const std::vector<std::string>& command,
                              const Files& own_for_system) const;

  void cut(int machine);                ///< Nothing comes through any more, both ways.
  void cut_from(int machine);           ///< Packets from it are lost; it still hears the others.
  void cut_to(int machine);             ///< Packets to it are lost.
  void drop(int machine, int percent);  ///< So much of all packets, both ways.
  void heal(int machine);
  /// Packets to and from the machine go at this rate, in bursts of this size, each as tc(8) writes
  /// them; those that wait longer than 20 ms are lost. Not undone by heal.
  void shape(int machine, const std::string& rate, const std::string& burst);
  /// Gives it an "eth1" with 10.88.0.1 and so on, which leads nowhere: packets are lost there.
  void add_dead_end(int machine);
  /// Takes "eth0" away: the machine has its loopback only.
  void unplug(int machine);

 private:
  void rules(int machine, const std::vector<std::string>& matches);

  std::vector<pid_t> holders_;  ///< One process per machine, and the bridge's at the end.
};

}  // namespace dlaunch::process_test
