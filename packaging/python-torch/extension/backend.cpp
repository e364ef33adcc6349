#include "packaging/python-torch/extension/backend.hpp"

#include "packaging/python-torch/extension/call_site.hpp"
#include "packaging/python-torch/extension/errors.hpp"
#include "packaging/python-torch/extension/leaving.hpp"
#include "packaging/python-torch/extension/python_lock.hpp"
#include "packaging/python-torch/extension/tensors.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace dlaunch::torch_backend {
namespace {

c10::intrusive_ptr<c10d::Backend::Options> options_with(std::chrono::milliseconds timeout) {
  return c10::make_intrusive<c10d::Backend::Options>("dlaunch", timeout);
}

/// Torch has these names since 2.9.
template <class Options>
void take_names(Options& to, const Options& from) {
  if constexpr (requires { to.group_name, to.global_ranks_in_group; }) {
    to.group_name = from.group_name;
    to.global_ranks_in_group = from.global_ranks_in_group;
  }
}

std::string list_of(const std::vector<std::int64_t>& ranks) {
  std::string text;
  for (const auto rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "[" + text + "]";
}

}  // namespace

// ---- Its beginning and its end. ----

c10::intrusive_ptr<DlaunchBackend> DlaunchBackend::meet(
    const c10::intrusive_ptr<c10d::Store>& store, const Place& place) {
  return with_torch_errors([&] {
    auto world = torch_backend::meet(*store, place);
    Communicator communicator(*world);
    auto group = std::make_shared<Group>(std::move(world), std::move(communicator));
    return noted(c10::make_intrusive<DlaunchBackend>(std::move(group), place.rank, place.size,
                                                     place.timeout));
  });
}

c10::intrusive_ptr<DlaunchBackend> DlaunchBackend::of_members(const std::vector<int>& ranks,
                                                              Milliseconds timeout) {
  return with_torch_errors([&] {
    auto made = group_->with([&](Communicator& communicator) {
      return communicator.group_of_members(ranks, {.site = place_of_program()});
    });
    const int rank = made.rank();
    const int size = made.size();
    return noted(c10::make_intrusive<DlaunchBackend>(
        std::make_shared<Group>(group_->world(), std::move(made)), rank, size, timeout));
  });
}

DlaunchBackend::DlaunchBackend(std::shared_ptr<Group> group, int rank, int size,
                               Milliseconds timeout)
    : c10d::Backend(rank, size),
      group_(std::move(group)),
      options_(options_with(timeout)),
      timeout_(timeout) {
  init();
}

/// Python may drop it, with its lock.
DlaunchBackend::~DlaunchBackend() {
  const WithoutPythonLock unlocked;
  shutdown();
}

void DlaunchBackend::shutdown() {
  {
    const std::lock_guard lock(shrunk_mutex_);
    shrunk_.reset();
  }
  group_->close();
}

void DlaunchBackend::abort() { group_->abort(place_of_program()); }

void DlaunchBackend::setTimeout(Milliseconds timeout) {
  if (timeout <= Milliseconds::zero()) refuse("a process group's timeout is more than zero");
  timeout_ = timeout;
  options_->timeout = timeout;
}

#ifdef DLAUNCH_TORCH_HAS_ERROR_TYPE
c10d::ErrorType DlaunchBackend::getError() {
  switch (group_->failure()->load()) {
    case Failure::none:
      return c10d::ErrorType::SUCCESS;
    case Failure::timeout:
      return c10d::ErrorType::TIMEOUT;
    case Failure::remote:
      return c10d::ErrorType::REMOTE_ERROR;
    case Failure::other:
      return c10d::ErrorType::COMM_ERROR;
  }
  return c10d::ErrorType::COMM_ERROR;
}
#endif

// ---- Groups made of it. ----

c10::intrusive_ptr<c10d::Backend> DlaunchBackend::split(
    const c10::intrusive_ptr<c10d::Store>& /*store*/, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& options) {
  auto made = of_members(ranks, options ? options->timeout : timeout_.load());
  if (options) take_names(*made->options_, *options);
  return made;
}

c10::intrusive_ptr<c10d::Backend> DlaunchBackend::merge(
    const c10::intrusive_ptr<c10d::Store>& store, const c10::intrusive_ptr<Options>& options,
    const int& rank, const int& size) {
  return meet(
      store, {.rank = rank, .size = size, .timeout = options ? options->timeout : timeout_.load()});
}

std::vector<std::int64_t> DlaunchBackend::find_lost(Milliseconds timeout) {
  return with_torch_errors([&] {
    const std::lock_guard lock(shrunk_mutex_);
    shrunk_ = group_->with([&](Communicator& communicator) {
      communicator.revoke();  // Nobody waits in it any longer.
      return communicator.shrink({.timeout = timeout_of(timeout), .site = place_of_program()});
    });
    const auto before = group_->with([](Communicator& c) { return c.world_ranks(); });
    const auto& after = shrunk_->world_ranks();
    lost_.clear();
    for (std::size_t rank = 0; rank < before.size(); ++rank) {
      if (std::find(after.begin(), after.end(), before[rank]) == after.end()) {
        lost_.push_back(static_cast<std::int64_t>(rank));
      }
    }
    return lost_;
  });
}

c10::intrusive_ptr<c10d::Backend> DlaunchBackend::shrink(
    const std::vector<std::int64_t>& ranks_to_exclude, int flags,
    const c10::intrusive_ptr<Options>& options) {
  const Milliseconds timeout = options ? options->timeout : timeout_.load();
  auto excluded = ranks_to_exclude;
  std::sort(excluded.begin(), excluded.end());
  // torch's SHRINK_DEFAULT is for ranks that live: those that stay make a group of a sound one.
  if (flags == 0) {
    std::vector<int> staying;
    for (int rank = 0; rank < size_; ++rank) {
      if (!std::binary_search(excluded.begin(), excluded.end(), rank)) staying.push_back(rank);
    }
    return of_members(staying, timeout);
  }
  bool is_found = false;
  {
    const std::lock_guard lock(shrunk_mutex_);
    is_found = shrunk_.has_value();
  }
  if (!is_found) find_lost(timeout);
  const std::lock_guard lock(shrunk_mutex_);
  if (lost_ != excluded) {
    fail("shrink: the ranks that are lost are " + list_of(lost_) + ", and it was to exclude " +
         list_of(excluded) + "; with SHRINK_ABORT it excludes those that are lost, and no other");
  }
  if (!shrunk_) fail("shrink: another thread has taken the group of the ranks that are left");
  auto made = std::exchange(shrunk_, std::nullopt);
  const int rank = made->rank();
  const int size = made->size();
  return noted(c10::make_intrusive<DlaunchBackend>(
      std::make_shared<Group>(group_->world(), *std::move(made)), rank, size, timeout));
}

// ---- Calls. ----

DlaunchBackend::Milliseconds DlaunchBackend::timeout_of(Milliseconds asked) const {
  return asked > Milliseconds::zero() ? asked : timeout_.load();
}

int DlaunchBackend::root_of(const char* call, std::int64_t root) const {
  if (root >= 0 && root < size_) return static_cast<int>(root);
  refuse(std::string(call) + ": there is no rank " + std::to_string(root) +
         " in this group, ranks are 0 to " + std::to_string(size_ - 1));
}

DlaunchBackend::WorkPointer DlaunchBackend::collective(
    What what,
    const std::function<void(Communicator&, const dlaunch::ReduceOptions&, Works&)>& begin) {
  what.timeout = timeout_of(what.timeout);
  // The mean of integers drops the fraction, as NCCL's does: frameworks take that of counts.
  const dlaunch::ReduceOptions options{
      .timeout = what.timeout, .truncate_mean = true, .site = place_of_program()};
  return start(
      std::move(what), Started::Kind::collective,
      [&](Communicator& communicator, Works& works) { begin(communicator, options, works); });
}

DlaunchBackend::WorkPointer DlaunchBackend::message(
    What what, Started::Kind kind, int tag,
    const std::function<dlaunch::Work(Communicator&, const MessageOptions&)>& begin) {
  what.timeout = timeout_of(what.timeout);
  const MessageOptions options{.timeout = what.timeout, .tag = tag, .site = place_of_program()};
  return start(std::move(what), kind, [&](Communicator& communicator, Works& works) {
    works.push_back(begin(communicator, options));
  });
}

DlaunchBackend::WorkPointer DlaunchBackend::start(What what, Started::Kind kind,
                                                  const Group::Begin& begin) {
  std::vector<at::Tensor> held = what.in;
  held.insert(held.end(), what.out.begin(), what.out.end());
  const auto started =
      std::make_shared<Started>(kind, std::move(held), what.copies, group_->failure());
  with_torch_errors([&] { group_->start(started, begin); });
  what.sequence = kind == Started::Kind::collective ? ++sequence_ : ++messages_;
  auto work = c10::make_intrusive<StartedWork>(rank_, std::move(what), group_, started);
  work->begin_watch();
  const std::lock_guard lock(coalescing_mutex_);
  if (is_coalescing_) coalesced_.push_back(work);
  return work;
}

void DlaunchBackend::startCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  is_coalescing_ = true;
}

DlaunchBackend::WorkPointer DlaunchBackend::endCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  is_coalescing_ = false;
  return c10::make_intrusive<WorksTogether>(rank_, std::exchange(coalesced_, {}));
}

// ---- Barriers. ----

DlaunchBackend::WorkPointer DlaunchBackend::barrier(const c10d::BarrierOptions& options) {
  constexpr const char* call = "barrier";
  return collective({c10d::OpType::BARRIER, call, "dlaunch:barrier", 0, options.timeout, {}, {}},
                    [&](Communicator& communicator, const dlaunch::Options& asked, Works& works) {
                      works.push_back(communicator.start_barrier(asked));
                    });
}

/// A barrier that fails names the ranks that did not come, on all ranks that did.
void DlaunchBackend::monitoredBarrier(const c10d::BarrierOptions& options,
                                      bool /*wait_all_ranks*/) {
  c10d::BarrierOptions asked;
  // Zero is no time at all, not a time that was not set: all the others are there, or it fails.
  asked.timeout = options.timeout == Milliseconds::zero() ? Milliseconds(1) : options.timeout;
  barrier(asked)->wait();
}

// ---- Messages. ----

DlaunchBackend::WorkPointer DlaunchBackend::send(Tensors& tensors, int to, int tag) {
  const auto view = view_of("send", only("send", tensors));
  return message({c10d::OpType::SEND, "send", "dlaunch:send", 0, {}, tensors, {}},
                 Started::Kind::send, tag,
                 [&](Communicator& communicator, const MessageOptions& asked) {
                   return communicator.isend(view, to, asked);
                 });
}

DlaunchBackend::WorkPointer DlaunchBackend::recv(Tensors& tensors, int from, int tag) {
  const auto view = view_of("recv", only("recv", tensors));
  return message({c10d::OpType::RECV, "recv", "dlaunch:recv", 0, {}, tensors, tensors},
                 Started::Kind::receive, tag,
                 [&](Communicator& communicator, const MessageOptions& asked) {
                   return communicator.irecv(view, from, asked);
                 });
}

DlaunchBackend::WorkPointer DlaunchBackend::recvAnysource(Tensors& tensors, int tag) {
  const auto view = view_of("recv", only("recv", tensors));
  return message(
      {c10d::OpType::RECVANYSOURCE, "recv", "dlaunch:recvAnySource", 0, {}, tensors, tensors},
      Started::Kind::receive, tag, [&](Communicator& communicator, const MessageOptions& asked) {
        return communicator.irecv(view, any_source, asked);
      });
}

}  // namespace dlaunch::torch_backend
