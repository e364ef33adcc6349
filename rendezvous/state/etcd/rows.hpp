#pragma once

#include "rendezvous/state/changes.hpp"
#include "rendezvous/state/etcd/batch.hpp"
#include "rendezvous/state/state_contents.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch::rendezvous::etcd {

/// The state as rows of keys and values: turns changes into rows, and rows into contents. Pure. The
/// rows are those of the state file, each with a checksum; a long one is cut into pieces.
class Rows {
 public:
  /// Takes in a row: keys with their values, in order. Throws Error (Errc::refused) where a row is
  /// damaged; `place` is named in its sentence.
  explicit Rows(std::string place) : place_(std::move(place)) {}
  void found(std::string_view key, std::string_view value);
  /// The contents, once all rows were taken in.
  StateContents contents();
  /// Whether no state was ever kept here.
  bool is_new() const { return !memory_; }

  /// Names the memory of a new place.
  void begin(std::uint64_t memory, Batch& batch);
  void apply(const Change& change, Batch& batch);

 private:
  struct Queue {
    std::uint64_t first = 0, next = 0;
  };
  using SpaceNumber = change::Space;

  struct Apply;
  void put(const std::string& row, Bytes payload, Batch& batch);
  void erase(const std::string& row, Batch& batch);
  void erase_all(const std::string& rows, Batch& batch);
  void put_job(const JobRecord& record, Batch& batch);
  void put_service(Batch& batch);
  void end_drain(const std::string& job, Batch& batch);

  std::size_t pieces_of(std::string_view row) const;
  void take(std::string_view row, BytesView value);
  void take_row(std::string_view row, BytesView payload);
  void take_in_space(std::string_view row, BytesView payload);
  void require(bool good, std::string_view row) const;

  const std::string place_;
  std::optional<std::uint64_t> memory_;
  std::uint64_t incarnation_ = 0, epoch_ = 0;  ///< The highest of jobs that are forgotten.
  std::map<std::string, JobRecord, std::less<>> jobs_;
  std::map<std::string, std::string, std::less<>> drains_;  ///< The reasons of drains, by job.
  std::map<std::pair<SpaceNumber, std::string>, Queue> queues_;
  /// Numbers of pieces, for rows that have more than one.
  std::map<std::string, std::size_t, std::less<>> pieces_;

  // While it is read.
  StateContents contents_;
  std::map<SpaceNumber, StateContents::Space*> spaces_;
  std::map<std::pair<SpaceNumber, std::uint64_t>,
           std::map<std::uint64_t, store::SpaceContents::Answer>>
      answers_;
  struct Whole {
    std::size_t pieces = 0;
    Bytes value;
  };
  std::map<std::string, Whole, std::less<>> wholes_;  ///< Rows of which pieces are still to come.
};

}  // namespace dlaunch::rendezvous::etcd
