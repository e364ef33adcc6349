#include "collectives/communicator/table_in_use.hpp"

#include "collectives/algorithms/select/table_text.hpp"
#include "collectives/communicator/state.hpp"
#include "runtime/world/table_file.hpp"

#include <string>
#include <utility>
#include <variant>

namespace dlaunch {

using algorithms::Table;

std::shared_ptr<const Table> table_of(const World& world) {
  // It lives as long as the program.
  const std::shared_ptr<const Table> built_in(std::shared_ptr<const void>(),
                                              &algorithms::built_in_table());
  if (world.size() == 1) return built_in;
  const auto file = find_table(*world.store());
  if (!file) return built_in;
  auto read = algorithms::parse_table(file->text);
  if (const auto* complaint = std::get_if<std::string>(&read)) {
    throw Error(Errc::misuse,
                std::string(table_variable) + ": " + file->origin + ": " + *complaint);
  }
  auto table = std::make_shared<Table>(std::get<Table>(std::move(read)));
  table->set_origin(file->origin);
  return table;
}

const Table& TableInUse::of(const Communicator& communicator) {
  return communicator.state_->mesh->table();
}

void TableInUse::replace(Communicator& communicator, std::shared_ptr<const Table> table) {
  Communicator::State& state = *communicator.state_;
  state.mesh->go_by(std::move(table));
  if (state.shm) state.shm->forget_choices();
  if (state.nodes && state.nodes->shm() != nullptr) state.nodes->shm()->forget_choices();
}

}  // namespace dlaunch
