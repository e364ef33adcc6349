#include "collectives/c/c_api.hpp"

/// Ranks from within a program, and ports.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Listener;
using dlaunch::SpawnError;

constexpr std::size_t spawn_options_size_first = 24;  // When it was published.
static_assert(sizeof(dl_spawn_options) >= spawn_options_size_first);

/// 0 keeps the default, a negative time means none.
void set_unless_zero(dlaunch::Clock::duration& to, std::int64_t ms) {
  if (ms != 0) to = duration_of(std::max<std::int64_t>(ms, 0));
}

}  // namespace

dl_status dl_spawn(int count, dl_program program, void* argument, const dl_spawn_options* options,
                   dl_spawn_failure* failure) {
  return guarded([&] {
    if (failure != nullptr) *failure = {-1, 0, 0};
    require(program != nullptr, "'program' is a null pointer");
    const auto given = known_part(options, spawn_options_size_first, "dl_spawn_options");
    dlaunch::SpawnOptions made;
    set_unless_zero(made.failure_grace, given.failure_grace_ms);
    set_unless_zero(made.shutdown_timeout, given.shutdown_timeout_ms);
    try {
      dlaunch::spawn_workers(
          count, [&](int rank) { return program(rank, argument); }, made);
    } catch (const SpawnError& error) {
      if (failure != nullptr) *failure = {error.rank(), error.exit_code(), error.signal()};
      throw;
    }
  });
}

dl_status dl_listener_open(int port, const char* host, dl_listener** listener) {
  return guarded([&] {
    auto& made = place(listener, "listener");
    made = new dl_listener(Listener(port, host != nullptr ? host : "127.0.0.1"));
  });
}

dl_status dl_find_free_port(dl_listener** listener) {
  return guarded([&] {
    auto& made = place(listener, "listener");
    made = new dl_listener(dlaunch::find_free_port());
  });
}

void dl_listener_free(dl_listener* listener) { delete listener; }

int dl_listener_port(const dl_listener* listener) {
  return listener != nullptr ? listener->listener.port() : -1;
}

int dl_listener_fd(const dl_listener* listener) {
  return listener != nullptr ? listener->listener.fd() : -1;
}

int dl_listener_release(dl_listener* listener) {
  return listener != nullptr ? listener->listener.release() : -1;
}

dl_status dl_is_free_port(int port, int* is_free) {
  return guarded([&] {
    auto& answer = place(is_free, "is_free");
    answer = dlaunch::is_free_port(port) ? 1 : 0;
  });
}

dl_status dl_report_progress(int* heard) {
  return guarded([&] {
    const bool told = dlaunch::report_progress();
    if (heard != nullptr) *heard = told ? 1 : 0;
  });
}

dl_status dl_extend_deadline(int64_t time_ms, int* heard) {
  return guarded([&] {
    require(time_ms >= 0, "time_ms is negative");
    const bool told = dlaunch::extend_deadline(std::chrono::milliseconds(time_ms));
    if (heard != nullptr) *heard = told ? 1 : 0;
  });
}
