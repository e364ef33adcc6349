#include "collectives/c/c_api.hpp"

#include <new>
#include <optional>
#include <span>

/// Communicators: memory, groups, and ending.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Communicator;

std::span<const int> ranks_of(const int* ranks, std::size_t count) {
  require(ranks != nullptr || count == 0,
          "'ranks' is a null pointer for " + std::to_string(count) + " ranks");
  return {ranks, count};
}

dl_comm* handle_of(std::optional<Communicator> made) {
  return made ? new dl_comm(std::move(*made)) : nullptr;
}

}  // namespace

dl_status dl_comm_create(const dl_world* world, const char* name, dl_comm** comm) {
  return guarded_on(world, [&] {
    auto& made = place(comm, "comm");
    made = new dl_comm(Communicator(world->world, name != nullptr ? name : "world"));
  });
}

void dl_comm_free(dl_comm* comm) { delete comm; }

int dl_comm_rank(const dl_comm* comm) { return comm != nullptr ? comm->comm.rank() : -1; }
int dl_comm_size(const dl_comm* comm) { return comm != nullptr ? comm->comm.size() : 0; }
const char* dl_comm_name(const dl_comm* comm) {
  return comm != nullptr ? comm->comm.name().c_str() : "";
}

dl_status dl_comm_set_timeout(dl_comm* comm, int64_t timeout_ms) {
  return guarded_on(comm, [&] { comm->comm.set_timeout(duration_of(timeout_ms)); });
}

dl_status dl_comm_set_stuck_after(dl_comm* comm, int64_t stuck_after_ms) {
  return guarded_on(comm, [&] { comm->comm.set_stuck_after(duration_of(stuck_after_ms)); });
}

dl_status dl_comm_descriptor(dl_comm* comm, int* descriptor) {
  return guarded_on(comm, [&] {
    auto& result = place(descriptor, "descriptor");
    result = comm->comm.descriptor();
  });
}

int64_t dl_comm_timeout_ms(const dl_comm* comm) {
  if (comm == nullptr) return 0;
  return std::chrono::duration_cast<std::chrono::milliseconds>(comm->comm.timeout()).count();
}

dl_status dl_comm_allocate(dl_comm* comm, size_t bytes, dl_buffer** buffer) {
  return guarded_on(comm, [&] {
    auto& made = place(buffer, "buffer");
    try {
      made = new dl_buffer(comm->comm.allocate(bytes));
    } catch (const std::bad_alloc&) {
      throw dlaunch::Error(dlaunch::Errc::internal, "dl_comm_allocate: there is no memory for " +
                                                        std::to_string(bytes) + " bytes");
    }
  });
}

dl_status dl_comm_allocate_device(dl_comm* comm, size_t bytes, int32_t device, dl_buffer** buffer) {
  return guarded_on(comm, [&] {
    auto& made = place(buffer, "buffer");
    made = new dl_buffer(comm->comm.allocate_device(bytes, device));
  });
}

dl_status dl_comm_prepare_device(dl_comm* comm, int32_t device, const dl_options* options) {
  return guarded_on(comm, [&] { comm->comm.prepare_device(device, options_of(options)); });
}

void* dl_buffer_data(const dl_buffer* buffer) {
  if (buffer == nullptr) return nullptr;
  return buffer->on_device.data() != nullptr ? buffer->on_device.data() : buffer->buffer.data();
}
size_t dl_buffer_bytes(const dl_buffer* buffer) {
  return buffer != nullptr ? buffer->buffer.size_bytes() + buffer->on_device.size_bytes() : 0;
}
int dl_buffer_is_shared(const dl_buffer* buffer) {
  return buffer != nullptr && buffer->buffer.is_shared() ? 1 : 0;
}
void dl_buffer_free(dl_buffer* buffer) { delete buffer; }

dl_status dl_comm_split(dl_comm* comm, int color, int key, dl_comm** made,
                        const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& result = place(made, "made");
    const auto chosen = color == DL_NO_COLOR ? std::nullopt : std::optional(color);
    result = handle_of(comm->comm.split(chosen, key, options_of(options)));
  });
}

dl_status dl_comm_group(dl_comm* comm, const int* ranks, size_t count, dl_comm** made,
                        const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& result = place(made, "made");
    Called call(comm, "dl_comm_group");
    const auto given = taken_or(
        call, [&] { return ranks_of(ranks, count); }, [] { return std::span<const int>(); });
    result = in_terms_of_c(call.fault,
                           [&] { return handle_of(comm->comm.group(given, options_of(options))); });
  });
}

dl_status dl_comm_group_of_members(dl_comm* comm, const int* ranks, size_t count, dl_comm** made,
                                   const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& result = place(made, "made");
    result = handle_of(comm->comm.group_of_members(ranks_of(ranks, count), options_of(options)));
  });
}

dl_status dl_comm_duplicate(dl_comm* comm, dl_comm** made, const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& result = place(made, "made");
    result = handle_of(comm->comm.duplicate(options_of(options)));
  });
}

dl_status dl_comm_world_ranks(const dl_comm* comm, int* ranks, size_t capacity) {
  return guarded_on(comm, [&] {
    auto& first = place(ranks, "ranks");
    const auto& all = comm->comm.world_ranks();
    require(capacity >= all.size(), "'ranks' has room for " + std::to_string(capacity) +
                                        " ranks, the communicator has " +
                                        std::to_string(all.size()));
    std::copy(all.begin(), all.end(), &first);
  });
}

dl_status dl_comm_translate(const dl_comm* comm, int rank, const dl_comm* other, int* translated) {
  return guarded_on(comm, [&] {
    auto& result = place(translated, "translated");
    require(rank >= 0 && rank < comm->comm.size(), "there is no rank " + std::to_string(rank) +
                                                       ", ranks are 0 to " +
                                                       std::to_string(comm->comm.size() - 1));
    result = comm->comm.translate(rank, place(other, "other").comm).value_or(-1);
  });
}

/// From any thread, so it may not touch the handle's message.
dl_status dl_comm_abort(dl_comm* comm) {
  if (comm == nullptr) return guarded([&] { static_cast<void>(place(comm, "comm")); });
  comm->comm.abort(dlaunch::CallSite{"", 0, ""});
  return DL_OK;
}

dl_status dl_comm_revoke(dl_comm* comm) {
  return guarded_on(comm, [&] { comm->comm.revoke(); });
}

dl_status dl_comm_agree(dl_comm* comm, uint32_t flags, uint32_t* agreed,
                        const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& result = place(agreed, "agreed");
    result = comm->comm.agree(flags, options_of(options));
  });
}

dl_status dl_comm_shrink(dl_comm* comm, dl_comm** made, const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& result = place(made, "made");
    result = handle_of(comm->comm.shrink(options_of(options)));
  });
}
