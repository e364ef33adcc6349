#pragma once

#include "rendezvous/state/reserve.hpp"
#include "rendezvous/state/state_file.hpp"
#include "rendezvous/state/state_place.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace dlaunch::rendezvous {

/// A state file with room in reserve. A full disk is waited out: changes under way are written into
/// the reserve, and obstacle() says meanwhile that no more should come. So it does where there is
/// no memory for a write.
class SqlitePlace final : public StatePlace {
 public:
  explicit SqlitePlace(StateFile file);

  StateContents load() override { return file_.load(); }
  std::size_t changes_at_once() const override { return SIZE_MAX; }
  Wrote write(std::span<const Change> changes) override;
  Clock::time_point tend() override;
  Obstacle obstacle() const override;
  std::unique_ptr<Backup> back_up(const std::string& name) override;
  bool is_ours() const override { return true; }  ///< The file is locked.
  std::optional<StateFigures::Lead> lead() const override { return std::nullopt; }

 private:
  StateFile file_;
  Reserve reserve_;
  bool full_ = false;     ///< The disk is full, or nearly.
  bool starved_ = false;  ///< There was no memory for the last write.
};

}  // namespace dlaunch::rendezvous
