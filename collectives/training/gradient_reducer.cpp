#include "collectives/call/call.hpp"
#include "collectives/training/parameters.hpp"
#include "collectives/training/reducer_state.hpp"

#include <utility>

namespace dlaunch {

/// The hook by which a rank without inputs takes part for the reducer.
class GradientReducer::Shadow final : public JoinHook {
 public:
  explicit Shadow(GradientReducer& reducer) : reducer_(reducer), state_(*reducer.state_) {}

  void main_hook(int part) override {
    switch (part) {
      case IterationPart::whole:
        if (!begin()) return;
        state_.sum_zeros();
        return end(false);
      case IterationPart::beginning:
        if (begin()) state_.site->clear(state_.memory.data(), state_.memory.size_bytes());
        return;
      case IterationPart::end:
        // Other joinables, such as an optimizer, may go on with these gradients.
        return end(true);
      default: {
        const auto bucket = static_cast<std::size_t>(part - IterationPart::first_bucket);
        state_.start_sum(bucket, state_.memory_of(bucket, state_.memory)).wait();
      }
    }
  }
  void post_hook(int last_joiner) override { state_.end_alike(last_joiner); }

 private:
  bool begin() {
    if (state_.is_open) {
      throw Error(Errc::misuse,
                  "the join was finished within an iteration, after begin() and before the "
                  "reducer's finish()");
    }
    const bool sums = state_.meet(true, false);
    state_.factor = 1.0 / reducer_.divisor();
    if (sums) state_.begin_sums();
    return sums;
  }
  void end(bool writes) {
    state_.compare_used();
    state_.take_out(writes);
  }

  GradientReducer& reducer_;
  State& state_;
};

GradientReducer::GradientReducer(Communicator& communicator, std::vector<Parameter> parameters,
                                 std::vector<TensorView> buffers, ReducerSettings settings,
                                 const CallSite& site)
    : Joinable(communicator) {
  const MarkedOptions options =
      group_->mark({Purpose::parameters, false, number_, 0},
                   {.cuda_stream = settings.cuda_stream, .site = in_program(site)});
  Communicator& own = this->communicator();
  training::check_parameters(own, parameters, buffers, settings, options, *group_);
  state_ = std::make_unique<State>(own, number_, *group_, std::move(parameters), std::move(buffers),
                                   settings);
  std::vector<TensorView> values;
  for (const Parameter& parameter : state_->parameters) values.push_back(parameter.value);
  training::spread(own, values, 0, options);
}

/// In a forked child nothing is ended: the calls under way, and the device, are the parent's.
GradientReducer::~GradientReducer() {
  if (state_ && !state_->home.is_here()) static_cast<void>(state_.release());
}

void GradientReducer::refuse(const CallSite& site, const std::string& sentence) {
  const std::string whole = "GradientReducer on rank " + std::to_string(communicator().rank()) +
                            ": " + sentence + place_text(in_program(site));
  group_->give_up(Error(Errc::mismatch, whole));
  throw Error(Errc::misuse, whole);
}

void GradientReducer::begin(const CallSite& site) {
  State& state = *state_;
  if (state.is_open) refuse(site, "begin() in an iteration that finish() has not ended");
  state.in_pieces = is_one_of_several();
  group_->come_from(site);
  announce(state.in_pieces ? IterationPart::beginning : IterationPart::whole, site);
  state.sums = state.meet(is_joined(), state.syncs);
  state.factor = 1.0 / divisor();
  if (state.sums) state.begin_sums();
  state.is_open = true;
}

void GradientReducer::ready(std::size_t index, const CallSite& site) {
  State& state = *state_;
  if (!state.is_open) refuse(site, "ready() without begin()");
  if (index >= state.parameters.size()) {
    refuse(site, "ready(" + std::to_string(index) + "), but there are " +
                     std::to_string(state.parameters.size()) + " parameters");
  }
  if (!state.sums) return;
  if (state.is_put[index]) refuse(site, state.name_of(index) + " is ready twice in one iteration");
  group_->come_from(site);
  state.put(index);
  state.start_complete(state.in_pieces, *this);
}

void GradientReducer::finish(const CallSite& site) {
  State& state = *state_;
  if (!state.is_open) refuse(site, "finish() without begin()");
  state.is_open = false;
  if (!state.sums) return;
  group_->come_from(site);
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    if (state.is_put[i]) continue;
    if (!state.settings.find_unused) {
      refuse(site, state.name_of(i) +
                       " was not ready when finish() was called; if that can be, set find_unused");
    }
    state.put_zeros(i);
  }
  state.start_complete(state.in_pieces, *this);
  if (state.in_pieces) announce(IterationPart::end, site);
  state.compare_used();
  state.take_out(true);
}

GradientReducer::NoSync::NoSync(GradientReducer& reducer) noexcept
    : reducer_(reducer), before_(std::exchange(reducer.state_->syncs, false)) {}
GradientReducer::NoSync::~NoSync() { reducer_.state_->syncs = before_; }

TensorView GradientReducer::gradient(std::size_t index) const {
  if (index >= state_->parameters.size()) {
    throw Error(Errc::misuse, "gradient(" + std::to_string(index) + "), but there are " +
                                  std::to_string(state_->parameters.size()) + " parameters");
  }
  return state_->is_provided(index) ? state_->place_of(index) : state_->parameters[index].gradient;
}

const std::vector<std::vector<std::size_t>>& GradientReducer::buckets() const noexcept {
  return state_->plan;
}

std::unique_ptr<JoinHook> GradientReducer::join_hook() { return std::make_unique<Shadow>(*this); }

}  // namespace dlaunch
