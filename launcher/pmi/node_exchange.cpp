#include "launcher/pmi/node_exchange.hpp"

#include <numeric>
#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::launcher {
namespace {

NodeExchange::Gathered read_answer(const wire::FrameHeader& header, BytesView payload) {
  if (header.type == wire::Type::gathered) {
    if (const auto gathered = wire::decode<wire::Gathered>(payload)) {
      std::vector<Bytes> of_nodes;
      for (const BytesView blob : gathered->blobs) {
        if (!blob.empty()) of_nodes.emplace_back(blob.begin(), blob.end());
      }
      return of_nodes;
    }
  } else if (const auto failed = wire::decode<wire::Failed>(payload)) {
    return failed->sentence;
  }
  return std::string("the job's store has answered something else");
}

}  // namespace

void NodeExchange::forget() {
  for (const auto number : asked_) uplink_->forget(number);
  asked_.clear();
  epoch_ = std::make_shared<int>(0);
}

void NodeExchange::begin(store::Uplink* uplink, const store::NodePlace& place) {
  forget();
  uplink_ = uplink;
  place_ = place;
}

/// The first rank of a node contributes the node's data, the others nothing. So the loss of any
/// rank ends the round, as it ends the ranks' own rounds.
void NodeExchange::all_gather(std::string_view name, std::uint64_t round, Bytes mine, Known known,
                              wire::Timeout timeout) {
  if (uplink_ == nullptr) {
    boost::asio::post(io_, [epoch = std::weak_ptr(epoch_), mine = std::move(mine),
                            known = std::move(known)]() mutable {
      if (epoch.expired()) return;
      std::vector<Bytes> all;
      if (!mine.empty()) all.push_back(std::move(mine));
      known(std::move(all));
    });
    return;
  }
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(place_.local_size));
  std::iota(ranks.begin(), ranks.end(), place_.first_rank);
  std::vector<BytesView> blobs(ranks.size());
  blobs.front() = mine;
  const Bytes payload =
      wire::payload_of(wire::AllGather{name, round, place_.world_size, timeout, ranks, blobs});
  // The answer cannot come before request() returns, so the number is known by then.
  const auto number = std::make_shared<std::uint64_t>(0);
  *number =
      uplink_->request(wire::AllGather::type, place_.epoch, payload,
                       [this, number, epoch = std::weak_ptr(epoch_), known = std::move(known)](
                           const wire::FrameHeader& header, BytesView answered) {
                         if (epoch.expired()) return;
                         asked_.erase(*number);
                         known(read_answer(header, answered));
                       });
  asked_.insert(*number);
}

}  // namespace dlaunch::launcher
