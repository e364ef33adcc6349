#include "collectives/call/wait/call_frame.hpp"

namespace dlaunch {

std::string CallFrame::argument_text() const {
  const std::string text = argument ? argument->text() : "";
  const ReduceOp op = fingerprint.reduce;
  if (!text.empty() || op == ReduceOp{} || op >= ReduceOp::premul_sum) return text;
  const Reduction plain(op);
  return Argument{&plain}.text();
}

bool CallFrame::is_elsewhere(int world_rank) const {
  const WorldInfo& info = setting.mesh.world().info();
  const int place = world_rank - (info.rank - info.local_rank);
  return info.node_count > 1 && (place < 0 || place >= info.local_size);
}

}  // namespace dlaunch
