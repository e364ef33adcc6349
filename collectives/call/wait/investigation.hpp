#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

/// Completes the facts when a call has ended: looks into records, and asks other ranks and agents
/// for a moment. Under the mesh's lock, while the call itself answers inquiries.
class Investigation {
 public:
  explicit Investigation(const CallFrame& frame) : frame_(frame), mesh_(frame.setting.mesh) {}

  /// The ending with all that could be found out; another ending if one was heard of meanwhile that
  /// says more.
  Ending complete(Ending ending);
  /// The same for a wait whose deadline has passed; nullopt if the wait was satisfied after all.
  std::optional<Ending> complete(Ending ending, const Ready& ready);

 private:
  void fill(ending::Told& told) const;
  void fill(ending::WrongArguments& wrong) const;
  void fill(ending::Lost& lost) const { lost.unwanted = unwanted(); }
  void fill(ending::MessageDiffers& message);
  void fill(ending::CallDiffers& differs);
  void fill(ending::WindowDiffers& differs);
  template <class Other>
  void fill(Other&) const {}

  bool fill(ending::TimedOut& late, const Ready& ready);
  void ask_ranks(const ending::TimedOut& late, transport::Inquiry& inquiry, const Ready& ready);
  std::map<int, SeenDoing> ask_agents(std::vector<int> silent);
  ending::Sight sight_of(int world_rank) const;
  std::optional<ending::Unwanted> unwanted() const;

  transport::Answer asked(int world_rank, transport::Inquiry inquiry);
  std::optional<transport::MadeCall> made(int world_rank, std::uint64_t sequence);
  std::string argument_of(int world_rank, std::uint64_t sequence);
  std::optional<transport::Fingerprint> disputed(const Claim& claim) const;

  const CallFrame& frame_;
  transport::Links& mesh_;
  std::optional<Ending> heard_;  ///< An ending that was heard of; it ends the search.
};

}  // namespace dlaunch
