#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "net/grpc_wire.h"

namespace divvy::net {

// A message as it stands on the wire.
inline std::string Framed(const std::string& message, char flag = 0) {
  std::string framed(MessagePrefix(message.size()).view());
  framed[0] = flag;
  return framed + message;
}

inline std::string Compressed(const std::string& text, bool gzip) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string to(deflateBound(&state, text.size()) + 32, '\0');
  std::string from = text;
  state.next_in = reinterpret_cast<Bytef*>(from.data());
  state.avail_in = static_cast<uInt>(from.size());
  state.next_out = reinterpret_cast<Bytef*>(to.data());
  state.avail_out = static_cast<uInt>(to.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  to.resize(to.size() - state.avail_out);
  deflateEnd(&state);
  return to;
}

}  // namespace divvy::net
