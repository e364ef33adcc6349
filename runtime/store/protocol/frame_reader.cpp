#include "runtime/store/protocol/frame_reader.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace dlaunch::store {
namespace {

/// A buffer that one large frame has grown is given back when it is empty.
constexpr std::size_t kept_bytes_max = 1u << 20;

/// The other side's first line, cut to fit our sentence.
std::string printable(BytesView said) {
  constexpr std::size_t shown = 40;
  std::string text;
  for (const std::byte byte : said.first(std::min(said.size(), shown))) {
    const char letter = static_cast<char>(byte);
    if (letter == '\r' || letter == '\n') break;
    text += letter >= 0x20 && letter < 0x7f ? letter : '?';
  }
  return name_in_quotes(text);
}

}  // namespace

std::span<std::byte> FrameReader::room() {
  constexpr std::size_t least = 8u << 10;
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (buffer_.size() > kept_bytes_max) Bytes(16u << 10).swap(buffer_);
  }
  std::size_t wanted = least;
  if (unread().size() >= wire::header_bytes) {
    const auto header = wire::decode_header(unread());
    if (header.length <= wire::frame_bytes_max) {
      wanted = std::max(wanted, wire::header_bytes + header.length - unread().size());
    }
  }
  if (buffer_.size() - end_ < wanted) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    if (buffer_.size() - end_ < wanted) buffer_.resize(end_ + wanted);
  }
  return std::span(buffer_).subspan(end_);
}

void FrameReader::arrived(std::size_t size, std::vector<unique_fd> descriptors) {
  end_ += size;
  std::ranges::move(descriptors, std::back_inserter(descriptors_));
}

std::optional<std::uint32_t> FrameReader::preface() {
  // A server of another kind may send no more than a few bytes, so those have to be enough to
  // recognise it.
  Bytes ours;
  wire::encode_preface(ours);
  const BytesView magic = BytesView(ours).first(std::min<std::size_t>(unread().size(), 4));
  if (!std::ranges::equal(magic, unread().first(magic.size()))) {
    throw Error(Errc::unreachable, "what answers there is not dlaunch (it says " +
                                       printable(unread()) + "); is the port right?");
  }
  if (unread().size() < wire::preface_bytes) return std::nullopt;
  const auto version = wire::decode_preface(unread());
  begin_ += wire::preface_bytes;
  return version;
}

std::optional<FrameReader::Frame> FrameReader::next() {
  if (unread().size() < wire::header_bytes) return std::nullopt;
  Frame frame;
  frame.header = wire::decode_header(unread());
  if (frame.header.length > wire::frame_bytes_max) {
    throw Error(Errc::version, "a message of " + std::to_string(frame.header.length) +
                                   " bytes came, which cannot be");
  }
  if (unread().size() - wire::header_bytes < frame.header.length) return std::nullopt;
  frame.payload = unread().subspan(wire::header_bytes, frame.header.length);
  // The kernel hands descriptors over no later than the first byte of their frame.
  while (frame.descriptors.size() < frame.header.descriptors() && !descriptors_.empty()) {
    frame.descriptors.push_back(std::move(descriptors_.front()));
    descriptors_.pop_front();
  }
  begin_ += wire::header_bytes + frame.header.length;
  return frame;
}

}  // namespace dlaunch::store
